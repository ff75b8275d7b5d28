//! When recordings ran, and how many commands they counted.

use crate::keys::By;
use ntp_record::header::Count;
use ntp_record::row::{KeyValue, View};
use ntp_record::{Counts, Header, Segment, Totals};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// All commands of a group, sampled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Commands.
    pub commands: u64,
    /// Bytes they moved.
    pub bytes: u128,
}

/// Time and counters of the recordings read.
#[derive(Debug, Default)]
pub struct Recordings {
    /// Begin and end of each recording, ns of wall clock.
    spans: BTreeMap<View, Vec<(i128, i128)>>,
    counted: HashMap<(View, Vec<KeyValue>), Counted>,
    /// How long joined segments' hosts counted, ns.
    counting: BTreeMap<View, i128>,
    /// Views of which a recording did not count its commands.
    uncounted: Vec<View>,
    /// Views with commands of which nobody knows when they were.
    unplaced: Vec<View>,
    open: Open,
}

/// The recording being read.
#[derive(Debug, Default)]
struct Open {
    /// Begin and end by its header and totals, ns of the monotonic clock, or
    /// of the common one of several hosts.
    start: Option<u64>,
    end: Option<u64>,
    /// Whether it has totals: one that was cut off goes on after its last counters.
    ended: bool,
    /// First and last time of its records, by view.
    seen: BTreeMap<View, (u64, u64)>,
    /// View of records whose time is not known.
    unplaced: Option<View>,
    wall_minus_mono: i128,
    counts: Vec<Count>,
    /// Time over which a joined segment's hosts counted, ns.
    counted: i128,
}

impl Recordings {
    /// A recording begins.
    pub fn header(&mut self, header: &Header) {
        self.open.start = (!header.is_rebuilt()).then_some(header.start_ns);
        self.open.wall_minus_mono = header.wall_minus_mono_ns.into();
    }

    /// A joined segment begins, whose times are so much behind the wall clock, ns.
    pub fn joined(&mut self, wall_minus_common: i64) {
        self.open.wall_minus_mono = wall_minus_common.into();
    }

    /// Counters were read: the recording went on until then. They are no count
    /// of its commands, since records follow.
    pub fn counts(&mut self, counts: &Counts) {
        self.open.end = self.open.end.max(Some(counts.at_ns));
    }

    /// The recording ended.
    pub fn totals(&mut self, totals: &Totals) {
        self.open.end = Some(totals.end_ns);
        self.open.ended = true;
        self.open.counts.clone_from(&totals.groups);
    }

    /// A joined segment ended: its hosts counted these, over so many ns.
    pub fn join_totals(&mut self, counts: &[Count], counted_ns: u64) {
        self.open.counts = counts.to_vec();
        self.open.counted = i128::from(counted_ns);
    }

    /// Records between these times were read.
    pub fn seen(&mut self, view: View, first: u64, last: u64) {
        let seen = self.open.seen.entry(view).or_insert((first, last));
        *seen = (seen.0.min(first), seen.1.max(last));
    }

    /// Records came whose time is not known.
    pub fn unplaced(&mut self, view: View) {
        self.open.unplaced = Some(view);
        if !self.unplaced.contains(&view) {
            self.unplaced.push(view);
        }
    }

    /// The recording is over: its names go.
    pub fn close(&mut self, segment: &Segment, by: &By) {
        let Open {
            start,
            end,
            ended,
            seen,
            unplaced,
            wall_minus_mono,
            counts,
            counted,
        } = std::mem::take(&mut self.open);
        let view = match (&segment.header, &segment.join_header) {
            (Some(header), _) if header.role == ntp_record::Role::Host => Some(View::Host),
            (Some(_), _) => Some(View::Target),
            (None, Some(_)) => Some(View::Joined),
            (None, None) => None,
        };
        let views: BTreeSet<View> = seen.keys().copied().chain(unplaced).collect();
        for of in views {
            // A recording's own times hold also when nothing happened in them.
            let own = view == Some(of);
            if let Some((first, last)) = seen.get(&of) {
                let first = start.filter(|_| own).unwrap_or(*first);
                let last = match end.filter(|_| own) {
                    Some(end) if ended => end,
                    Some(end) => end.max(*last),
                    None => *last,
                };
                let span = (
                    i128::from(first) + wall_minus_mono,
                    i128::from(last.max(first)) + wall_minus_mono,
                );
                self.spans.entry(of).or_default().push(span);
            }
            *self.counting.entry(of).or_default() += counted;
            if (counts.is_empty() || !own) && !self.uncounted.contains(&of) {
                self.uncounted.push(of);
            }
        }
        let Some(view) = view else { return };
        for count in &counts {
            if let Some(raw) = by.raw_of_count(count) {
                let key = (view, by.values(segment, view, &raw));
                let counted = self.counted.entry(key).or_default();
                counted.commands = counted.commands.saturating_add(count.commands);
                counted.bytes += u128::from(count.bytes) * u128::from(count.commands);
            }
        }
    }

    /// How long the recordings of a view ran, seconds: times that overlap count
    /// once; `None` when that is not known.
    pub fn seconds(&self, view: View) -> Option<f64> {
        if self.unplaced.contains(&view) {
            return None;
        }
        let mut spans = self.spans.get(&view)?.clone();
        spans.sort_unstable();
        let mut total = 0;
        let mut until = i128::MIN;
        for (first, last) in spans {
            total += (last - first.max(until)).max(0);
            until = until.max(last);
        }
        (total > 0).then(|| total as f64 / 1e9)
    }

    /// Commands counted of a group, and the seconds over which; `None` when
    /// its recordings did not count them all.
    pub fn counted(&self, view: View, key: &[KeyValue]) -> Option<(Counted, f64)> {
        if self.uncounted.contains(&view) {
            return None;
        }
        let seconds = match self.counting.get(&view) {
            Some(counting) if *counting > 0 => *counting as f64 / 1e9,
            _ => self.seconds(view)?,
        };
        Some((*self.counted.get(&(view, key.to_vec()))?, seconds))
    }
}
