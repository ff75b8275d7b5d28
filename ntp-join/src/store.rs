//! Target records of one connection that wait for their host record.

use crate::limits::TargetTimes;
use crate::shelf::Held;
use ntp_record::sample::Key;

/// Hash of what identifies a command on a connection, as far as the wire
/// tells: one wide multiplication, every bit in.
#[inline]
pub fn key_hash(key: &Key) -> u64 {
    let rest = u64::from(key.nsid) << 32 | u64::from(key.cid) << 16 | u64::from(key.length);
    let a = key.slba ^ 0x9E37_79B9_7F4A_7C15 ^ u64::from(key.opcode) << 56;
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

/// Two lines of the cache.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    key: Key,
    times: TargetTimes,
    held: Held,
    /// Neighbours in the same chain, in order of [`TargetTimes::got`].
    before: u32,
    after: u32,
    /// Neighbours in order of reading; `newer` chains the free slots.
    older: u32,
    newer: u32,
    /// Records this slot has held before: tells them apart.
    serial: u32,
    /// Host records that may be the partner.
    claims: u32,
    /// Low half of the hash of `key`: says in which chain it is.
    hash: u32,
    mark: Mark,
}

const _: () = assert!(size_of::<Slot>() == 128);

/// Slots of which the hash has the same low bits: those of one key, and
/// seldom of another. Those of one key are in order of time.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

const EMPTY: Chain = Chain {
    first: NONE,
    last: NONE,
};
/// A record in a [`Store`]; known to be gone when it was taken meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    serial: u32,
}

/// Records in order of reading, found by key and time.
pub struct Store {
    slots: Vec<Slot>,
    /// By the low bits of the hash: a power of two, and twice as many as
    /// slots, so that few hold two keys.
    chains: Vec<Chain>,
    free: u32,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            slots: Vec::new(),
            chains: vec![EMPTY; 2],
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

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, key: Key, times: TargetTimes, held: Held) {
        if self.free == NONE {
            self.grow();
        }
        let at = self.free;
        let slot = &mut self.slots[at as usize];
        self.free = slot.newer;
        *slot = Slot {
            key,
            times,
            held,
            before: NONE,
            after: NONE,
            older: self.newest,
            newer: NONE,
            serial: slot.serial,
            claims: 0,
            hash: key_hash(&key) as u32,
            mark: Mark::Untouched,
        };
        self.chain_up(at);
        match self.newest {
            NONE => self.oldest = at,
            newest => self.slots[newest as usize].newer = at,
        }
        self.newest = at;
        self.len += 1;
    }

    /// Makes one more slot, a free one.
    #[cold]
    fn grow(&mut self) {
        self.free = self.slots.len() as u32;
        self.slots.push(Slot {
            newer: NONE,
            ..Slot::default()
        });
        if 2 * self.slots.len() > self.chains.len() {
            self.split_chains();
        }
    }

    /// Twice as many chains. Each is split in two, so that the order in them stays.
    fn split_chains(&mut self) {
        let old = std::mem::take(&mut self.chains);
        self.chains = vec![EMPTY; 2 * old.len()];
        for chain in old {
            let mut at = chain.first;
            while at != NONE {
                let Slot { after, hash, .. } = self.slots[at as usize];
                let home = self.home(hash);
                let before = self.chains[home].last;
                self.tie(home, before, at);
                self.tie(home, at, NONE);
                at = after;
            }
        }
    }

    /// Place of the chain of a hash.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    /// Puts a slot into its chain. Nearly always it is the last there: records
    /// come nearly in order.
    #[inline]
    fn chain_up(&mut self, at: u32) {
        let Slot { hash, times, .. } = self.slots[at as usize];
        let home = self.home(hash);
        let (mut before, mut after) = (self.chains[home].last, NONE);
        while before != NONE && self.slots[before as usize].times.got > times.got {
            (before, after) = (self.slots[before as usize].before, before);
        }
        self.tie(home, before, at);
        self.tie(home, at, after);
    }

    /// Makes two slots neighbours in a chain; [`NONE`] is either end of it.
    #[inline]
    fn tie(&mut self, home: usize, before: u32, after: u32) {
        match before {
            NONE => self.chains[home].first = after,
            before => self.slots[before as usize].after = after,
        }
        match after {
            NONE => self.chains[home].last = before,
            after => self.slots[after as usize].before = before,
        }
    }

    /// Slots whose record has this key and whose capsule came from
    /// one moment to another, in order of time or against it.
    #[inline]
    pub fn candidates(&self, key: &Key, from: i64, to: i64) -> Candidates<'_> {
        let chain = self.chains[self.home(key_hash(key) as u32)];
        let mut found = Candidates {
            slots: &self.slots,
            key: *key,
            at: chain.first,
            forward: true,
            from,
            to,
        };
        // Nearly always there is but one.
        if chain.first != chain.last {
            found.begin(chain);
        }
        found
    }

    /// The record in a slot given by [`Store::candidates`], for later.
    #[inline]
    pub fn ticket(&self, slot: u32) -> Ticket {
        let serial = self.slots[slot as usize].serial;
        Ticket { slot, serial }
    }

    /// Notes that a host record may be the partner of a record that is there.
    #[inline]
    pub fn claim(&mut self, ticket: Ticket) {
        self.slots[ticket.slot as usize].claims += 1;
    }

    /// Takes a claim back; tells how many there were, 0 when the record is gone.
    #[inline]
    pub fn release(&mut self, ticket: Ticket) -> u32 {
        match self.slots.get_mut(ticket.slot as usize) {
            Some(slot) if slot.serial == ticket.serial => {
                slot.claims = slot.claims.saturating_sub(1);
                slot.claims + 1
            }
            _ => 0,
        }
    }

    /// The times of a ticket's record and its slot, unless it is gone.
    #[inline]
    pub fn find(&self, ticket: Ticket) -> Option<(u32, &TargetTimes)> {
        (self.slots.get(ticket.slot as usize))
            .filter(|slot| slot.serial == ticket.serial)
            .map(|slot| (ticket.slot, &slot.times))
    }

    /// Marks a record in a slot given by [`Store::candidates`].
    pub fn mark(&mut self, slot: u32, mark: Mark) {
        let old = &mut self.slots[slot as usize].mark;
        if *old != Mark::Ambiguous {
            *old = mark;
        }
    }

    /// The record that was read first.
    pub fn oldest(&self) -> Option<&Held> {
        (self.oldest != NONE).then(|| &self.slots[self.oldest as usize].held)
    }

    /// Takes the record that was read first.
    pub fn pop_oldest(&mut self) -> Option<(Held, Mark)> {
        (self.oldest != NONE).then(|| self.remove(self.oldest))
    }

    /// Every record, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &TargetTimes, &Held)> {
        let mut at = self.oldest;
        std::iter::from_fn(move || {
            (at != NONE).then(|| {
                let slot = &self.slots[at as usize];
                at = slot.newer;
                (&slot.key, &slot.times, &slot.held)
            })
        })
    }

    /// Takes the record in a slot given by [`Store::candidates`].
    pub fn remove(&mut self, at: u32) -> (Held, Mark) {
        let Slot {
            held,
            before,
            after,
            older,
            newer,
            hash,
            mark,
            ..
        } = self.slots[at as usize];
        let home = self.home(hash);
        self.tie(home, before, after);
        // Out of the order of reading.
        let slots = &mut self.slots;
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
        (held, mark)
    }
}

/// See [`Store::candidates`].
pub struct Candidates<'a> {
    slots: &'a [Slot],
    key: Key,
    at: u32,
    forward: bool,
    from: i64,
    to: i64,
}

impl<'a> Iterator for Candidates<'a> {
    type Item = (u32, &'a TargetTimes);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.at != NONE {
            let at = self.at;
            let slot = &self.slots[at as usize];
            let (too_early, too_late) = (slot.times.got < self.from, slot.times.got > self.to);
            let beyond = if self.forward { too_late } else { too_early };
            self.at = match (beyond, self.forward) {
                (true, _) => NONE,
                (false, true) => slot.after,
                (false, false) => slot.before,
            };
            if !(too_early || too_late) && slot.key == self.key {
                return Some((at, &slot.times));
            }
        }
        None
    }
}

impl Candidates<'_> {
    /// Begins at the end of a chain that is nearer in time, by the first and
    /// the last record with the key.
    fn begin(&mut self, chain: Chain) {
        let first = self.first_with_key(chain.first, |slot| slot.after);
        let last = self.first_with_key(chain.last, |slot| slot.before);
        let (Some(first), Some(last)) = (first, last) else {
            self.at = NONE;
            return;
        };
        let got = |slot: u32| self.slots[slot as usize].times.got;
        let before = self.from.saturating_sub(got(first));
        let after = got(last).saturating_sub(self.to);
        self.forward = before < after;
        self.at = if self.forward { first } else { last };
    }

    fn first_with_key(&self, mut at: u32, next: impl Fn(&Slot) -> u32) -> Option<u32> {
        while at != NONE && self.slots[at as usize].key != self.key {
            at = next(&self.slots[at as usize]);
        }
        (at != NONE).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelf::{Shelf, Source};
    use ntp_record::Record;
    use ntp_record::point::target;
    use std::collections::VecDeque;

    fn key(cid: u16) -> Key {
        Key {
            cid,
            ..Key::default()
        }
    }

    fn times(got: u64) -> TargetTimes {
        let mut record = Record::default();
        record.set(target::ARRIVED, got);
        TargetTimes::of(&record).expect("times")
    }

    /// A record that can be told from the others by its number.
    fn held(number: u32) -> Held {
        let mut shelf = Shelf::default();
        shelf.keep(Source::Passing, 0, &Record::default(), (number, 0))
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
                    let new = held(step as u32);
                    store.push(key(cid), times(got), new);
                    list.push_back((cid, got as i64, new));
                }
                9 => assert_eq!(
                    store.pop_oldest().map(|(held, _)| held),
                    list.pop_front().map(|(.., held)| held)
                ),
                _ => {
                    let from = (step * 10).saturating_sub(late * 40) as i64;
                    let to = if late.is_multiple_of(7) {
                        i64::MAX
                    } else {
                        from + 500
                    };
                    let mut found: Vec<_> = store
                        .candidates(&key(cid), from, to)
                        .map(|(slot, times)| (times.got, store.slots[slot as usize].held, slot))
                        .collect();
                    let mut expected: Vec<_> = list
                        .iter()
                        .filter(|(other, got, _)| *other == cid && (from..=to).contains(got))
                        .map(|(_, got, held)| (*got, *held))
                        .collect();
                    found.sort_by_key(|(got, held, _)| (*got, held.conn));
                    expected.sort_by_key(|(got, held)| (*got, held.conn));
                    assert!(
                        (found.iter().map(|(got, held, _)| (*got, *held))).eq(expected),
                        "step {step}"
                    );
                    if let Some((_, held, slot)) = found.get(found.len() / 2) {
                        assert_eq!(store.remove(*slot).0, *held);
                        let at = list.iter().position(|(.., other)| other == held);
                        list.remove(at.expect("there"));
                    }
                }
            }
            assert_eq!(store.len(), list.len());
        }
        let left = store
            .iter()
            .map(|(key, times, held)| (key.cid, times.got, *held));
        assert!(left.eq(list));
    }

    #[test]
    fn a_ticket_ends_with_its_record() {
        let mut store = Store::default();
        store.push(key(1), times(10), held(1));
        let slot = store
            .candidates(&key(1), 0, 20)
            .next()
            .map(|(slot, _)| slot);
        let slot = slot.expect("there");
        let ticket = store.ticket(slot);
        store.claim(ticket);
        store.claim(ticket);
        assert_eq!(store.release(ticket), 2);
        assert_eq!(store.release(ticket), 1);
        let last = store.ticket(slot);
        store.claim(last);
        store.remove(slot);
        assert_eq!(store.find(last), None);
        // The slot is used again, by another record.
        store.push(key(1), times(30), held(2));
        assert_eq!(store.find(last), None);
        assert_eq!(store.release(last), 0);
    }
}
