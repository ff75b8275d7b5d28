//! Target records of one connection that wait for their host record.

use hashbrown::HashTable;
use ntp_record::record::Record;

/// What identifies a command on a connection, as far as the wire tells.
#[inline]
pub fn same_key(a: &Record, b: &Record) -> bool {
    a.slba == b.slba
        && a.cid == b.cid
        && a.opcode == b.opcode
        && a.nsid == b.nsid
        && a.length == b.length
}

/// Hash of that key: one wide multiplication, every bit in.
#[inline]
pub fn key_hash(r: &Record) -> u64 {
    let rest = u64::from(r.nsid) << 32 | u64::from(r.cid) << 16 | u64::from(r.length);
    let a = r.slba ^ 0x9E37_79B9_7F4A_7C15 ^ u64::from(r.opcode) << 56;
    let b = rest ^ 0xD1B5_4A32_D192_ED03;
    let wide = u128::from(a).wrapping_mul(u128::from(b | 1));
    let once = wide as u64 ^ (wide >> 64) as u64;
    let wide = u128::from(once ^ rest).wrapping_mul(0xA076_1D64_78BD_642F);
    wide as u64 ^ (wide >> 64) as u64
}

/// No slot.
const NONE: u32 = u32::MAX;

/// Why a waiting record was passed over; decides the cause when it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nobody looked at it twice.
    #[default]
    Untouched,
    /// More than one pair was possible.
    Ambiguous,
    /// Overlapped with a host record in time, but not in order.
    Contradicts,
}

struct Slot {
    record: Record,
    hash: u64,
    /// When the capsule came, ns.
    got: i64,
    /// Neighbours with the same key, in order of `got`.
    before: u32,
    after: u32,
    /// Neighbours in order of reading; `newer` chains the free slots.
    older: u32,
    newer: u32,
    /// Records this slot has held before: tells them apart.
    serial: u32,
    /// Host records that may be the partner.
    claims: u32,
    mark: Mark,
}

/// Slots with the same key.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

/// A record in a [`Store`]; known to be gone when it was taken meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    serial: u32,
}

/// Records in order of reading, found by key and time.
pub struct Store {
    slots: Vec<Slot>,
    chains: HashTable<Chain>,
    free: u32,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            slots: Vec::new(),
            chains: HashTable::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            len: 0,
        }
    }
}

impl Store {
    /// Records waiting.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a record; `got` is when its capsule came, ns.
    pub fn push(&mut self, record: &Record, got: i64) {
        let hash = key_hash(record);
        let mut slot = Slot {
            record: *record,
            hash,
            got,
            before: NONE,
            after: NONE,
            older: self.newest,
            newer: NONE,
            serial: 0,
            claims: 0,
            mark: Mark::Untouched,
        };
        let at = if self.free == NONE {
            self.slots.len() as u32
        } else {
            self.free
        };
        let slots = &mut self.slots;
        let chain = self.chains.find_mut(hash, |chain| {
            same_key(&slots[chain.last as usize].record, record)
        });
        match chain {
            Some(chain) => {
                // Nearly always the last: records come nearly in order.
                let (mut before, mut after) = (chain.last, NONE);
                while before != NONE && slots[before as usize].got > got {
                    (before, after) = (slots[before as usize].before, before);
                }
                (slot.before, slot.after) = (before, after);
                match before {
                    NONE => chain.first = at,
                    before => slots[before as usize].after = at,
                }
                match after {
                    NONE => chain.last = at,
                    after => slots[after as usize].before = at,
                }
            }
            None => {
                let chain = Chain {
                    first: at,
                    last: at,
                };
                // The new slot is not there yet when the table grows: its hash is known.
                self.chains.insert_unique(hash, chain, |chain| {
                    slots
                        .get(chain.last as usize)
                        .map_or(hash, |slot| slot.hash)
                });
            }
        }
        if self.newest == NONE {
            self.oldest = at;
        } else {
            self.slots[self.newest as usize].newer = at;
        }
        self.newest = at;
        if self.free == NONE {
            self.slots.push(slot);
        } else {
            slot.serial = self.slots[at as usize].serial;
            let old = std::mem::replace(&mut self.slots[at as usize], slot);
            self.free = old.newer;
        }
        self.len += 1;
    }

    /// Slots whose record has the key of `record` and whose capsule came from
    /// one moment to another, in order of time or against it.
    #[inline]
    pub fn candidates(&self, record: &Record, from: i64, to: i64) -> Candidates<'_> {
        let chain = self.chains.find(key_hash(record), |chain| {
            same_key(&self.slots[chain.last as usize].record, record)
        });
        let mut found = Candidates {
            slots: &self.slots,
            at: NONE,
            forward: false,
            from,
            to,
        };
        if let Some(chain) = chain {
            let got = |slot: u32| self.slots[slot as usize].got;
            // From the end that is nearer in time.
            let before = from.saturating_sub(got(chain.first));
            let after = got(chain.last).saturating_sub(to);
            found.forward = before < after;
            found.at = if found.forward {
                chain.first
            } else {
                chain.last
            };
        }
        found
    }

    /// The record in a slot given by [`Store::candidates`].
    #[inline]
    pub fn get(&self, slot: u32) -> &Record {
        &self.slots[slot as usize].record
    }

    /// Notes that a host record may be the partner of the record in a slot
    /// given by [`Store::candidates`].
    pub fn claim(&mut self, slot: u32) -> Ticket {
        let at = &mut self.slots[slot as usize];
        at.claims += 1;
        Ticket {
            slot,
            serial: at.serial,
        }
    }

    /// Takes a claim back; tells how many there were, 0 when the record is gone.
    pub fn release(&mut self, ticket: Ticket) -> u32 {
        match self.slots.get_mut(ticket.slot as usize) {
            Some(slot) if slot.serial == ticket.serial => {
                slot.claims = slot.claims.saturating_sub(1);
                slot.claims + 1
            }
            _ => 0,
        }
    }

    /// The record of a ticket and its slot, unless it is gone.
    #[inline]
    pub fn find(&self, ticket: Ticket) -> Option<(u32, &Record)> {
        (self.slots.get(ticket.slot as usize))
            .filter(|slot| slot.serial == ticket.serial)
            .map(|slot| (ticket.slot, &slot.record))
    }

    /// Marks a record in a slot given by [`Store::candidates`].
    pub fn mark(&mut self, slot: u32, mark: Mark) {
        let old = &mut self.slots[slot as usize].mark;
        if *old != Mark::Ambiguous {
            *old = mark;
        }
    }

    /// The record that was read first.
    pub fn oldest(&self) -> Option<&Record> {
        (self.oldest != NONE).then(|| &self.slots[self.oldest as usize].record)
    }

    /// Takes the record that was read first.
    pub fn pop_oldest(&mut self) -> Option<(Record, Mark)> {
        (self.oldest != NONE).then(|| self.remove(self.oldest))
    }

    /// Every record, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        let mut at = self.oldest;
        std::iter::from_fn(move || {
            (at != NONE).then(|| {
                let slot = &self.slots[at as usize];
                at = slot.newer;
                &slot.record
            })
        })
    }

    /// Takes the record in a slot given by [`Store::candidates`].
    pub fn remove(&mut self, at: u32) -> (Record, Mark) {
        let Slot {
            record,
            hash,
            before,
            after,
            older,
            newer,
            mark,
            ..
        } = self.slots[at as usize];
        // Out of the chain of its key.
        let slots = &mut self.slots;
        let chain = self.chains.find_entry(hash, |chain| {
            same_key(&slots[chain.last as usize].record, &record)
        });
        if let Ok(mut chain) = chain {
            match (before, after) {
                (NONE, NONE) => {
                    chain.remove();
                }
                (NONE, after) => chain.get_mut().first = after,
                (before, NONE) => chain.get_mut().last = before,
                _ => {}
            }
        }
        if before != NONE {
            slots[before as usize].after = after;
        }
        if after != NONE {
            slots[after as usize].before = before;
        }
        // Out of the order of reading.
        match older {
            NONE => self.oldest = newer,
            older => slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => slots[newer as usize].older = older,
        }
        slots[at as usize].newer = self.free;
        slots[at as usize].serial = slots[at as usize].serial.wrapping_add(1);
        self.free = at;
        self.len -= 1;
        (record, mark)
    }
}

/// See [`Store::candidates`].
pub struct Candidates<'a> {
    slots: &'a [Slot],
    at: u32,
    forward: bool,
    from: i64,
    to: i64,
}

impl<'a> Iterator for Candidates<'a> {
    type Item = (u32, &'a Record);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.at != NONE {
            let at = self.at;
            let slot = &self.slots[at as usize];
            let (too_early, too_late) = (slot.got < self.from, slot.got > self.to);
            let beyond = if self.forward { too_late } else { too_early };
            self.at = match (beyond, self.forward) {
                (true, _) => NONE,
                (false, true) => slot.after,
                (false, false) => slot.before,
            };
            if !(too_early || too_late) {
                return Some((at, &slot.record));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn record(cid: u16, mark: u64) -> Record {
        let mut record = Record {
            cid,
            ..Record::default()
        };
        record.at[0] = mark;
        record
    }

    /// Against a plain list: same contents, same order, same candidates.
    #[test]
    fn behaves_like_a_list() {
        let (mut store, mut list) = (Store::default(), VecDeque::new());
        let mut seed = 1u64;
        for step in 0..20_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let cid = (seed >> 40) as u16 % 37;
            let late = (seed >> 20) % 50;
            match seed >> 60 {
                0..=8 => {
                    let got = (step * 10).saturating_sub(late * late);
                    let mut new = record(cid, got);
                    new.at[1] = step;
                    store.push(&new, got as i64);
                    list.push_back(new);
                }
                9 => assert_eq!(
                    store.pop_oldest().map(|(record, _)| record),
                    list.pop_front()
                ),
                _ => {
                    let from = (step * 10).saturating_sub(late * 40) as i64;
                    let to = if late.is_multiple_of(7) {
                        i64::MAX
                    } else {
                        from + 500
                    };
                    let mut found: Vec<_> = store
                        .candidates(&record(cid, 0), from, to)
                        .map(|(slot, r)| (slot, *r))
                        .collect();
                    let mut expected: Vec<_> = list
                        .iter()
                        .filter(|r| r.cid == cid && (from..=to).contains(&(r.at[0] as i64)))
                        .copied()
                        .collect();
                    found.sort_by_key(|(_, r)| (r.at[0], r.at[1]));
                    expected.sort_by_key(|r| (r.at[0], r.at[1]));
                    assert_eq!(found.iter().map(|(_, r)| *r).collect::<Vec<_>>(), expected);
                    if let Some((slot, r)) = found.get(found.len() / 2) {
                        assert_eq!(store.remove(*slot).0, *r);
                        let at = list.iter().position(|other| other == r).expect("there");
                        list.remove(at);
                    }
                }
            }
            assert_eq!(store.len(), list.len());
        }
        assert!(store.iter().eq(list.iter()));
    }

    #[test]
    fn a_ticket_ends_with_its_record() {
        let mut store = Store::default();
        store.push(&record(1, 10), 10);
        let slot = store
            .candidates(&record(1, 0), 0, 20)
            .next()
            .map(|(slot, _)| slot);
        let slot = slot.expect("there");
        let (one, two) = (store.claim(slot), store.claim(slot));
        assert_eq!(store.release(one), 2);
        assert_eq!(store.release(two), 1);
        let last = store.claim(slot);
        store.remove(slot);
        assert_eq!(store.find(last), None);
        // The slot is used again, by another record.
        store.push(&record(1, 30), 30);
        assert_eq!(store.find(last), None);
        assert_eq!(store.release(last), 0);
    }
}
