//! Where records lie while they wait. Those of a mapped file stay in it; of
//! other inputs a copy is kept. All else refers to them.

use ntp_record::Map;
use ntp_record::record::{RECORD_SIZE, Record};

/// Where a record lies: number of the map and offset in it, or slot of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place(u64);

/// Bits of an offset; the rest is the number of the map, [`POOL`] for none.
const OFFSET: u32 = 48;
const POOL: u64 = u64::MAX >> OFFSET;

/// A record that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    place: Place,
    /// Connection and device, by number; what the record says are ids of its recording.
    pub conn: u32,
    /// See `conn`.
    pub dev: u32,
}

/// A record that waits for a partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The record.
    pub kept: Kept,
    /// [`NO_END`] for none.
    end: i64,
}

/// No time: a moment is never negative.
const NO_END: i64 = i64::MIN;

impl Held {
    /// Time of the last point, ns; see [`crate::limits::end`].
    #[inline]
    pub fn end(&self) -> Option<i64> {
        (self.end != NO_END).then_some(self.end)
    }
}

impl std::ops::Deref for Held {
    type Target = Kept;

    fn deref(&self) -> &Kept {
        &self.kept
    }
}

/// Records of an input, as they come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Of a map, from this place on.
    Map(u64),
    /// Of memory that is used again.
    Passing,
}

/// All records that wait.
#[derive(Default)]
pub(crate) struct Shelf {
    maps: Vec<Map>,
    pool: Vec<Record>,
    free: Vec<u32>,
}

impl Shelf {
    /// Number of a map from now on; `None` when there are too many.
    pub(crate) fn add(&mut self, map: &Map) -> Option<usize> {
        let number = self.maps.len();
        ((number as u64) < POOL).then(|| self.maps.push(map.clone()))?;
        Some(number)
    }

    /// Where records of a map lie, if they do.
    pub(crate) fn source(&self, map: Option<usize>, records: &[Record]) -> Source {
        let at = map.and_then(|map| Some((map as u64, self.maps[map].place(records)?)));
        match at {
            Some((map, at)) if at + size_of_val(records) as u64 <= 1 << OFFSET => {
                Source::Map(map << OFFSET | at)
            }
            _ => Source::Passing,
        }
    }

    /// Keeps the record that is the `number`th of a source.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        source: Source,
        number: usize,
        record: &Record,
        (conn, dev): (u32, u32),
    ) -> Held {
        let place = match source {
            Source::Map(first) => Place(first + (number * RECORD_SIZE) as u64),
            Source::Passing => self.copy(record),
        };
        Held {
            kept: Kept { place, conn, dev },
            end: crate::limits::end(record).unwrap_or(NO_END),
        }
    }

    /// Copies that are needed still.
    pub(crate) fn copies(&self) -> usize {
        self.pool.len() - self.free.len()
    }

    fn copy(&mut self, record: &Record) -> Place {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.pool[slot as usize] = *record;
                slot
            }
            None => {
                self.pool.push(*record);
                (self.pool.len() - 1) as u32
            }
        };
        Place(POOL << OFFSET | u64::from(slot))
    }

    /// A record that is kept.
    #[inline]
    pub(crate) fn get(&self, kept: &Kept) -> &Record {
        let Place(place) = kept.place;
        let (map, at) = (place >> OFFSET, place & ((1 << OFFSET) - 1));
        match map {
            POOL => &self.pool[at as usize],
            map => self.maps[map as usize].record(at),
        }
    }

    /// Whoever held it needs it no more.
    #[inline]
    pub(crate) fn release(&mut self, kept: &Kept) {
        let Place(place) = kept.place;
        if place >> OFFSET == POOL {
            self.free.push(place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ntp_record::{Format, Item, Reader, Writer};

    fn records() -> Vec<Record> {
        let record = |slba| Record {
            slba,
            ..Record::default()
        };
        (0..10).map(record).collect()
    }

    #[test]
    fn a_record_of_a_file_stays_where_it_is() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, Format::Binary);
        writer.records(&records()).expect("written");
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), bytes).expect("written");
        let mut reader = Reader::open(file.path().to_str().expect("path")).expect("recording");
        let mut shelf = Shelf::default();
        let map = shelf.add(reader.map().expect("a plain file"));
        let mut held = Vec::new();
        while let Some(item) = reader.next().expect("read") {
            let Item::Records(records) = item else {
                panic!("{item:?}");
            };
            let source = shelf.source(map, records);
            let keep = |(number, record)| shelf.keep(source, number, record, (4, 5));
            held.extend(records.iter().enumerate().map(keep));
        }
        drop(reader);
        assert!(held.iter().map(|held| *shelf.get(held)).eq(records()));
        assert_eq!((held[3].conn, held[3].dev, shelf.copies()), (4, 5, 0));
        held.iter().for_each(|held| shelf.release(held));
        // Records of other memory are not of the map.
        assert!(matches!(shelf.source(map, &records()), Source::Passing));
    }

    #[test]
    fn a_copy_is_kept_until_it_is_released() {
        let mut shelf = Shelf::default();
        let mut keep = |record| shelf.keep(Source::Passing, 0, record, (0, 0));
        let held: Vec<Held> = records().iter().map(&mut keep).collect();
        shelf.release(&held[2]);
        let other = Record {
            slba: 77,
            ..Record::default()
        };
        let new = shelf.keep(Source::Passing, 0, &other, (0, 0));
        assert_eq!((shelf.copies(), shelf.pool.len()), (10, 10));
        assert_eq!((shelf.get(&new).slba, shelf.get(&held[3]).slba), (77, 3));
    }
}
