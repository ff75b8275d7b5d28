//! Gives pairs their offset, once later bounds are known too, and writes them.

use crate::clock::Gap;
use crate::joiner::{Clock, ClockReport, Joiner, Pair, Ready, Sink, State};
use crate::shelf::Kept;
use ntp_record::header::{Connection, Role};
use ntp_record::joined::{JoinTotals, Joined};
use ntp_record::record::Record;
use ntp_record::stream::Item;
use std::io;
use std::ops::Range;

/// Pairs wait so long for bounds from after them, ns: a change of the drift
/// shows within a tenth of a second.
const SETTLE: i64 = 300_000_000;
/// But no more than so many of them.
const WAITING: usize = 1 << 16;
/// Pairs that wait to be written in order of their start.
const READY: usize = 1 << 12;
/// Pairs handed on together.
const PIECE: usize = 1 << 10;

impl Joiner {
    /// Settles and writes what later records can hardly change.
    pub(crate) fn settle(&mut self, sink: &mut dyn Sink, all: bool) -> io::Result<()> {
        for number in 0..self.clocks.len() {
            let tried = self.hosts[self.clocks[number].host].tried;
            let clock = &mut self.clocks[number];
            let Some(oldest) = clock.waiting.front().map(|pair| pair.end) else {
                continue;
            };
            let most = WAITING.min(self.options.window / 16);
            let full = clock.waiting.len() > most;
            let aged = oldest < tried.saturating_sub(SETTLE + SETTLE / 4);
            let same = matches!(clock.state, State::Same);
            if !(all || full || aged || same) {
                continue;
            }
            if let State::Known(track) = &mut clock.state {
                track.settle();
            }
            let stay = if all || same { 0 } else { most / 2 };
            let due = tried.saturating_sub(SETTLE);
            self.ready.reserve(clock.waiting.len().saturating_sub(stay));
            let mut gap = Gap::default();
            while let Some(pair) = clock.waiting.front().copied()
                && (clock.waiting.len() > stay || pair.end <= due)
            {
                clock.waiting.pop();
                self.ready.push(place(clock, pair, &mut gap));
            }
        }
        self.write_ready(sink, all)
    }

    /// Writes in order of the host's start, as far as it is known.
    fn write_ready(&mut self, sink: &mut dyn Sink, all: bool) -> io::Result<()> {
        let clocks_wait = self.clocks.iter().any(|clock| !clock.waiting.is_empty());
        let full = self.ready.len() > READY.min(self.options.window / 16);
        if self.ready.is_empty() || !(all || full || !clocks_wait) {
            return Ok(());
        }
        let starts = self.ready.iter().map(|ready| {
            let shift = self.domains[self.conns[ready.pair.host.conn as usize].domain].shift;
            ready.pair.start.saturating_add(shift)
        });
        let order = in_order(starts.collect());
        let keep = if all { 0 } else { order.len() / 4 };
        let ready = std::mem::take(&mut self.ready);
        let (now, later) = order.split_at(order.len() - keep);
        let pick = |number: &u32| &ready[*number as usize];
        self.ready = later.iter().map(pick).copied().collect();
        self.write_header(sink)?;
        let mut joined = vec![Joined::default(); now.len().min(PIECE)];
        for piece in now.chunks(PIECE) {
            for (joined, ready) in joined.iter_mut().zip(piece.iter().map(pick)) {
                let pair = &ready.pair;
                self.write_names(sink, &pair.host)?;
                self.write_names(sink, &pair.target)?;
                self.fetch(&pair.host, &mut joined.host);
                self.fetch(&pair.target, &mut joined.target);
                joined.offset_ns = ready.offset_ns;
                joined.offset_bound_ns = ready.offset_bound_ns;
            }
            sink.item(&Item::Joined(&joined[..piece.len()]))?;
        }
        Ok(())
    }

    /// A record as it is written; it is kept no longer.
    #[inline]
    fn fetch(&mut self, kept: &Kept, record: &mut Record) {
        *record = *self.shelf.get(kept);
        record.conn = kept.conn + 1;
        record.dev = kept.dev + 1;
        self.shelf.release(kept);
    }

    fn write_header(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        if self.headed.is_none() {
            self.headed = Some(self.recordings.len());
            sink.item(&Item::JoinHeader(self.join_header()))?;
        }
        Ok(())
    }

    /// Writes the names a record refers to, unless they are written.
    #[inline]
    fn write_names(&mut self, sink: &mut dyn Sink, kept: &Kept) -> io::Result<()> {
        if !self.conns[kept.conn as usize].named {
            self.write_connection(sink, kept.conn)?;
        }
        if !self.devs[kept.dev as usize].named {
            self.write_device(sink, kept.dev)?;
        }
        Ok(())
    }

    #[cold]
    fn write_connection(&mut self, sink: &mut dyn Sink, number: u32) -> io::Result<()> {
        let source = self.source(self.conns[number as usize].recording);
        let conn = &mut self.conns[number as usize];
        conn.named = true;
        sink.item(&Item::Connection(Connection {
            source,
            ..conn.info.clone()
        }))
    }

    #[cold]
    fn write_device(&mut self, sink: &mut dyn Sink, number: u32) -> io::Result<()> {
        let dev = &mut self.devs[number as usize];
        dev.named = true;
        sink.item(&Item::Device(dev.info.clone()))
    }

    pub(crate) fn write_totals(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let named = |left: &std::collections::BTreeMap<&'static str, u64>| {
            left.iter()
                .map(|(cause, count)| ((*cause).to_owned(), *count))
                .collect()
        };
        self.totals.host_inside += self.totals.matched;
        self.totals.host_left = named(&self.host_left);
        self.totals.target_left = named(&self.target_left);
        self.write_counts();
        if self.both_sides() {
            self.write_header(sink)?;
            sink.item(&Item::JoinTotals(self.totals.clone()))?;
        }
        Ok(())
    }

    /// Whether recordings of both sides were read.
    pub fn both_sides(&self) -> bool {
        let has = |role: Role| {
            self.recordings
                .iter()
                .any(|recording| recording.header.role == role)
        };
        has(Role::Host) && has(Role::Target)
    }

    /// What became of every record; complete after [`Joiner::finish`].
    pub fn totals(&self) -> &JoinTotals {
        &self.totals
    }

    /// What was found of the clocks.
    pub fn clocks(&self) -> impl Iterator<Item = &ClockReport> {
        self.clocks.iter().map(|clock| &clock.report)
    }
}

/// Places of times in their order; of equal ones, in that of the places.
fn in_order(times: Vec<i64>) -> Vec<u32> {
    let places = u64::BITS - (times.len() as u64).leading_zeros();
    let first = times.iter().copied().min().unwrap_or(0);
    let last = times.iter().copied().max().unwrap_or(0);
    let range = last.abs_diff(first);
    if range.leading_zeros() < places {
        let mut order: Vec<(i64, u32)> = times.into_iter().zip(0..).collect();
        order.sort_unstable();
        return order.into_iter().map(|(_, place)| place).collect();
    }
    // Time and place fit one word, which is sorted much quicker than two.
    let mut order: Vec<u64> = (times.iter().zip(0..))
        .map(|(time, place)| time.abs_diff(first) << places | place)
        .collect();
    drop(times);
    if order.len() < FEW {
        order.sort_unstable();
    } else {
        // The places are in order already: only the times are looked at.
        sort_bits(
            &mut order,
            places..u64::BITS - range.leading_zeros() + places,
        );
    }
    let mask = (1 << places) - 1;
    (order.into_iter())
        .map(|word| (word & mask) as u32)
        .collect()
}

/// Fewer words are sorted quicker by comparing them.
const FEW: usize = 1 << 10;
/// Bits that words are sorted by at once.
const DIGIT: u32 = 11;

/// Sorts words by some of their bits, the lowest first; equal ones stay in order.
fn sort_bits(words: &mut Vec<u64>, bits: Range<u32>) {
    let mut sorted = vec![0; words.len()];
    for low in bits.step_by(DIGIT as usize) {
        let digit = |word: u64| (word >> low) as usize & ((1 << DIGIT) - 1);
        let mut places = [0u32; 1 << DIGIT];
        for word in &*words {
            places[digit(*word)] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        for word in &*words {
            let place = &mut places[digit(*word)];
            sorted[*place as usize] = *word;
            *place += 1;
        }
        std::mem::swap(words, &mut sorted);
    }
}

/// Gives a pair its offset; `gap` is for [`Track::offset`](crate::clock::Track::offset).
#[inline]
fn place(clock: &mut Clock, pair: Pair, gap: &mut Gap) -> Ready {
    let middle = match &clock.state {
        State::Same => Some((0, 0)),
        State::Unknown => None,
        State::Known(track) => track.offset(pair.sent, pair.over, gap).middle(),
    };
    let report = &mut clock.report;
    report.pairs += 1;
    if let Some((offset, bound)) = middle {
        report.bounds += u128::from(bound);
        report.widest = report.widest.max(bound);
        report.first.get_or_insert((pair.over, offset));
        report.last = Some((pair.over, offset));
    }
    let (offset_ns, offset_bound_ns) = middle.unwrap_or((0, u64::MAX));
    Ready {
        pair,
        offset_ns,
        offset_bound_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn times_near_and_far_are_put_in_order() {
        assert_eq!(in_order(vec![30, 10, 20, 10]), [1, 3, 2, 0]);
        let far = vec![i64::MAX, 5, i64::MIN, 5];
        assert_eq!(in_order(far), [2, 1, 3, 0]);
        assert_eq!(in_order(vec![7]), [0]);
        assert!(in_order(vec![]).is_empty());
    }

    #[test]
    fn many_times_are_put_in_order() {
        // Nearly in order, as commands end, and with equal ones.
        let time = |i: i64| i * 1_000_000 + i.wrapping_mul(7_919) % 977 * 10_000_000;
        for scale in [1, 1 << 10] {
            let times: Vec<i64> = (0..5_000).map(|i| time(i / 2) * scale - 5).collect();
            let mut expected: Vec<u32> = (0..5_000).collect();
            expected.sort_by_key(|place| times[*place as usize]);
            assert_eq!(in_order(times), expected);
        }
    }
}
