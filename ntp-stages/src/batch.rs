//! Gathers commands into batches that can be taken in together.

use crate::command::{Command, SLOTS};
use crate::group::Offset;
use ntp_record::{Flags, Record};
use rustc_hash::FxHashMap;
use std::ops::AddAssign;

/// Commands worked on at once: what one component needs of them stays in the nearest cache.
pub(crate) const BATCH: usize = 128;

/// Where commands go and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Interval; `None`: the whole recording.
    pub(crate) interval: Option<u64>,
    /// Number of the group.
    pub(crate) group: u32,
    /// Number of the plan.
    pub(crate) plan: u32,
}

/// The times of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// By slot.
    pub(crate) at: [[u64; SLOTS / 2]; 2],
    /// Estimated offset of the clocks, ns.
    pub(crate) offset: i64,
    /// Its bound, ns; [`NO_BOUND`]: the offset is not known.
    pub(crate) bound: i64,
}

/// See [`Times::bound`].
pub(crate) const NO_BOUND: i64 = -1;

/// How commands ended, and the bytes they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    pub(crate) timed_out: u64,
    pub(crate) cancelled: u64,
}

impl Ends {
    /// Of one command.
    pub(crate) fn of(record: &Record) -> Self {
        Ends {
            bytes: record.bytes.into(),
            failed: (record.status != 0).into(),
            retried: (record.has(Flags::Retried) || record.retries != 0).into(),
            timed_out: record.has(Flags::TimedOut).into(),
            cancelled: record.has(Flags::Cancelled).into(),
        }
    }
}

impl AddAssign for Ends {
    #[inline]
    fn add_assign(&mut self, other: Ends) {
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.retried += other.retried;
        self.timed_out += other.timed_out;
        self.cancelled += other.cancelled;
    }
}

/// Commands of one place.
#[derive(Debug)]
pub(crate) struct Batch {
    place: Place,
    times: Box<[Times; BATCH]>,
    n: usize,
    ends: Ends,
}

impl Batch {
    fn new() -> Self {
        let none = Times {
            at: Default::default(),
            offset: 0,
            bound: NO_BOUND,
        };
        Batch {
            place: Place::default(),
            times: Box::new([none; BATCH]),
            n: 0,
            ends: Ends::default(),
        }
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The times of its commands.
    pub(crate) fn times(&self) -> &[Times] {
        &self.times[..self.n]
    }

    pub(crate) fn ends(&self) -> Ends {
        self.ends
    }

    /// Adds a command; tells whether the batch is full.
    #[inline]
    pub(crate) fn push(
        &mut self,
        command: &Command<'_>,
        offset: Option<Offset>,
        ends: Ends,
    ) -> bool {
        let times = &mut self.times[self.n];
        times.at = [command.main().at, command.last().at];
        (times.offset, times.bound) = match offset.and_then(|o| Some((o.ns, o.bound?))) {
            Some(known) => known,
            None => (0, NO_BOUND),
        };
        self.ends += ends;
        self.n += 1;
        self.n == BATCH
    }

    /// Its commands were taken in.
    pub(crate) fn clear(&mut self) {
        self.n = 0;
        self.ends = Ends::default();
    }
}

/// Batches being filled.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// The first of them are in use, the rest is kept for later.
    batches: Vec<Batch>,
    by_place: FxHashMap<Place, u32>,
}

/// Batches filled at once, some 34 KiB each.
const OPEN: usize = 256;

impl Batches {
    /// Number of the batch of a place, which was `known` before.
    #[inline(always)]
    pub(crate) fn find(&mut self, place: Place, known: u32) -> u32 {
        let in_use = (known as usize) < self.by_place.len();
        match in_use && self.batches[known as usize].place == place {
            true => known,
            false => self.look_up(place),
        }
    }

    fn look_up(&mut self, place: Place) -> u32 {
        let new = self.by_place.len();
        let number = *self.by_place.entry(place).or_insert(new as u32);
        if new == self.batches.len() {
            self.batches.push(Batch::new());
        }
        self.batches[number as usize].place = place;
        number
    }

    /// Whether there are so many that all should be taken in.
    #[inline]
    pub(crate) fn full(&self) -> bool {
        self.by_place.len() > OPEN
    }

    /// A batch by its number.
    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> &mut Batch {
        &mut self.batches[number as usize]
    }

    /// Numbers of the batches in use.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.by_place.len() as u32
    }

    /// All were taken in: they are free for other places.
    pub(crate) fn clear(&mut self) {
        self.by_place.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_batch_until_all_are_taken_in() {
        let place = |group| Place {
            group,
            ..Place::default()
        };
        let mut batches = Batches::default();
        for group in 0..OPEN as u32 {
            assert_eq!(batches.find(place(group), 0), group);
            assert!(!batches.full());
        }
        // Whatever was known of another place.
        assert_eq!(batches.find(place(7), 3), 7);
        assert_eq!(batches.find(place(7), u32::MAX), 7);
        batches.find(place(OPEN as u32), 0);
        assert!(batches.full());
        batches.clear();
        assert_eq!(batches.find(place(7), 7), 0);
    }
}
