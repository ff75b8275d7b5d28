//! Gives pairs their offset, once later bounds are known too, and writes them.

use crate::joiner::{Clock, ClockReport, Joiner, Sink, State};
use crate::limits::{HostTimes, end, start};
use ntp_record::header::{Connection, Role};
use ntp_record::joined::{JoinTotals, Joined};
use ntp_record::stream::Item;
use std::io;

/// Pairs wait so long for bounds from after them, ns: a change of the drift
/// shows within a tenth of a second.
const SETTLE: i64 = 300_000_000;
/// But no more than so many of them.
const WAITING: usize = 1 << 16;
/// Pairs that wait to be written in order of their start.
const READY: usize = 1 << 12;

impl Joiner {
    /// Settles and writes what later records can hardly change.
    pub(crate) fn settle(&mut self, sink: &mut dyn Sink, all: bool) -> io::Result<()> {
        for number in 0..self.clocks.len() {
            let tried = self.hosts[self.clocks[number].host].tried;
            let clock = &mut self.clocks[number];
            let over = |joined: &Joined| end(&joined.host).unwrap_or(i64::MIN);
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
                    let aged = clock
                        .waiting
                        .iter()
                        .take_while(|joined| over(joined) <= due);
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
            for joined in &mut self.ready[first..] {
                place(clock, joined, &mut hint);
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
            .map(|(joined, number)| {
                let shift = self.domains[self.conns[joined.host.conn as usize].domain].shift;
                (
                    start(&joined.host).unwrap_or(0).saturating_add(shift),
                    number,
                )
            })
            .collect();
        order.sort_unstable();
        let keep = if all { 0 } else { order.len() / 4 };
        let pick = |order: &[(i64, u32)]| -> Vec<Joined> {
            (order.iter().map(|(_, number)| self.ready[*number as usize])).collect()
        };
        let (now, later) = order.split_at(order.len() - keep);
        let (mut ready, later) = (pick(now), pick(later));
        self.ready = later;
        self.write_names(sink, &ready)?;
        for joined in &mut ready {
            for record in [&mut joined.host, &mut joined.target] {
                record.conn += 1;
                record.dev += 1;
            }
        }
        sink.item(&Item::Joined(&ready))
    }

    /// Writes the header, and the names these pairs refer to.
    fn write_names(&mut self, sink: &mut dyn Sink, ready: &[Joined]) -> io::Result<()> {
        if self.headed.is_none() {
            self.headed = Some(self.recordings.len());
            sink.item(&Item::JoinHeader(self.join_header()))?;
        }
        for record in ready
            .iter()
            .flat_map(|joined| [&joined.host, &joined.target])
        {
            let conn = &self.conns[record.conn as usize];
            if !conn.named {
                let source = self.source(conn.recording);
                let conn = &mut self.conns[record.conn as usize];
                conn.named = true;
                sink.item(&Item::Connection(Connection {
                    source,
                    ..conn.info.clone()
                }))?;
            }
            let dev = &mut self.devs[record.dev as usize];
            if !dev.named {
                dev.named = true;
                sink.item(&Item::Device(dev.info.clone()))?;
            }
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
            self.write_names(sink, &[])?;
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
fn place(clock: &mut Clock, joined: &mut Joined, hint: &mut usize) {
    let Some(times) = HostTimes::of(&joined.host) else {
        return;
    };
    let middle = match &clock.state {
        State::Same => Some((0, 0)),
        State::Unknown => None,
        State::Known(track) => track.offset(times.sent, times.over, hint).middle(),
    };
    let report = &mut clock.report;
    report.pairs += 1;
    match middle {
        Some((offset, bound)) => {
            (joined.offset_ns, joined.offset_bound_ns) = (offset, bound);
            report.bounds += u128::from(bound);
            report.widest = report.widest.max(bound);
            report.first.get_or_insert((times.over, offset));
            report.last = Some((times.over, offset));
        }
        None => joined.offset_bound_ns = u64::MAX,
    }
}
