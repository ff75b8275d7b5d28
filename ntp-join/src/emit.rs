//! Gives pairs their offset, once later bounds are known too, and writes them.

use crate::joiner::{Clock, ClockReport, Joiner, Pair, Sink, State};
use crate::shelf::Held;
use ntp_record::header::{Connection, Role};
use ntp_record::joined::{JoinTotals, Joined};
use ntp_record::record::Record;
use ntp_record::stream::Item;
use std::io;

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
            let over = |pair: &Pair| pair.host.end.unwrap_or(i64::MIN);
            let Some(oldest) = clock.waiting.front().map(over) else {
                continue;
            };
            let most = WAITING.min(self.options.window / 16);
            let full = clock.waiting.len() > most;
            let aged = oldest < tried.saturating_sub(SETTLE + SETTLE / 4);
            if !(all || full || aged || matches!(clock.state, State::Same)) {
                continue;
            }
            let until = match clock.state {
                State::Same => clock.waiting.len(),
                _ if all => clock.waiting.len(),
                _ => {
                    let due = tried.saturating_sub(SETTLE);
                    let aged = clock.waiting.iter().take_while(|pair| over(pair) <= due);
                    aged.count()
                        .max(clock.waiting.len().saturating_sub(most / 2))
                }
            };
            if let State::Known(track) = &mut clock.state {
                track.settle();
            }
            let first = self.ready.len();
            // Two plain copies: the iterator of a drain would make it one by one.
            let (front, back) = clock.waiting.as_slices();
            let split = until.min(front.len());
            self.ready.extend_from_slice(&front[..split]);
            self.ready.extend_from_slice(&back[..until - split]);
            clock.waiting.drain(..until);
            let clock = &mut self.clocks[number];
            let mut hint = 0;
            for pair in &mut self.ready[first..] {
                place(clock, pair, &mut hint);
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
        let mut order: Vec<(i64, u32)> = (self.ready.iter().zip(0..))
            .map(|(pair, number)| {
                let shift = self.domains[self.conns[pair.host.conn as usize].domain].shift;
                (pair.start.unwrap_or(0).saturating_add(shift), number)
            })
            .collect();
        order.sort_unstable();
        let keep = if all { 0 } else { order.len() / 4 };
        let ready = std::mem::take(&mut self.ready);
        let (now, later) = order.split_at(order.len() - keep);
        let pick = |(_, number): &(i64, u32)| &ready[*number as usize];
        self.ready = later.iter().map(pick).copied().collect();
        self.write_header(sink)?;
        let mut joined = Vec::with_capacity(now.len().min(PIECE));
        for piece in now.chunks(PIECE) {
            joined.clear();
            for pair in piece.iter().map(pick) {
                self.write_names(sink, &pair.host)?;
                self.write_names(sink, &pair.target)?;
                joined.push(self.joined(pair));
                self.shelf.release(&pair.host);
                self.shelf.release(&pair.target);
            }
            sink.item(&Item::Joined(&joined))?;
        }
        Ok(())
    }

    /// A pair as it is written.
    fn joined(&self, pair: &Pair) -> Joined {
        let record = |held: &Held| Record {
            conn: held.conn + 1,
            dev: held.dev + 1,
            ..*self.shelf.get(held)
        };
        Joined {
            host: record(&pair.host),
            target: record(&pair.target),
            offset_ns: pair.offset_ns,
            offset_bound_ns: pair.offset_bound_ns,
        }
    }

    fn write_header(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        if self.headed.is_none() {
            self.headed = Some(self.recordings.len());
            sink.item(&Item::JoinHeader(self.join_header()))?;
        }
        Ok(())
    }

    /// Writes the names a record refers to, unless they are written.
    fn write_names(&mut self, sink: &mut dyn Sink, held: &Held) -> io::Result<()> {
        let conn = &self.conns[held.conn as usize];
        if !conn.named {
            let source = self.source(conn.recording);
            let conn = &mut self.conns[held.conn as usize];
            conn.named = true;
            sink.item(&Item::Connection(Connection {
                source,
                ..conn.info.clone()
            }))?;
        }
        let dev = &mut self.devs[held.dev as usize];
        if !dev.named {
            dev.named = true;
            sink.item(&Item::Device(dev.info.clone()))?;
        }
        Ok(())
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

/// Fills in the offset of a pair; `hint` is for [`Track::offset`](crate::clock::Track::offset).
fn place(clock: &mut Clock, pair: &mut Pair, hint: &mut usize) {
    let middle = match &clock.state {
        State::Same => Some((0, 0)),
        State::Unknown => None,
        State::Known(track) => track.offset(pair.sent, pair.over, hint).middle(),
    };
    let report = &mut clock.report;
    report.pairs += 1;
    match middle {
        Some((offset, bound)) => {
            (pair.offset_ns, pair.offset_bound_ns) = (offset, bound);
            report.bounds += u128::from(bound);
            report.widest = report.widest.max(bound);
            report.first.get_or_insert((pair.over, offset));
            report.last = Some((pair.over, offset));
        }
        None => pair.offset_bound_ns = u64::MAX,
    }
}
