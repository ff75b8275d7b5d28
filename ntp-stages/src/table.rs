//! Groups by number: of the whole recording, and of the intervals being filled.

use crate::group::Group;
use crate::plan::Plans;
use ntp_record::row::Span;
use std::collections::BTreeMap;
use std::ops::Range;

/// Groups by number.
#[derive(Debug, Default)]
pub struct Table(Vec<Option<Box<Group>>>);

impl Table {
    /// A group; made when it is not there.
    #[inline]
    pub fn get(&mut self, number: u32) -> &mut Group {
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number].get_or_insert_default()
    }

    /// The groups with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Group)> {
        self.0
            .iter()
            .enumerate()
            .filter_map(|(number, group)| Some((number as u32, group.as_deref()?)))
    }

    /// Frees all groups of the numbers of plans.
    pub fn settle(&mut self, plans: &Plans) {
        self.0
            .iter_mut()
            .flatten()
            .for_each(|group| group.settle(plans));
    }

    /// Takes in another's groups; it must be settled.
    pub fn merge(&mut self, other: &Table) {
        for (number, group) in other.iter() {
            self.get(number).merge(group);
        }
    }
}

/// How long after its end an interval waits for records that are late, ns:
/// recorders write at least once a second.
const GRACE: u64 = 1_000_000_000;

/// One interval's groups.
#[derive(Debug, Default)]
pub struct Slice {
    /// The groups.
    pub table: Table,
    /// Records in it.
    pub records: u64,
}

/// Intervals being filled.
#[derive(Debug)]
pub struct Intervals {
    length: u64,
    /// When interval 0 begins; `None`: at the first record.
    base: Option<u64>,
    open: BTreeMap<u64, Slice>,
    /// First interval not yet closed.
    next: u64,
    now: u64,
    /// Number of the last command's interval, and the time since the base that it spans.
    last: (u64, Range<u64>),
}

impl Intervals {
    /// Intervals of `length` ns.
    pub fn new(length: u64) -> Self {
        Intervals {
            length: length.max(1),
            base: None,
            open: BTreeMap::new(),
            next: 0,
            now: 0,
            last: (0, 0..0),
        }
    }

    /// A recording begins at `base` of its clock. All intervals must be closed.
    pub fn begin(&mut self, base: Option<u64>) {
        *self = Intervals {
            base,
            ..Intervals::new(self.length)
        };
    }

    /// Number of the interval of a command that ended at `end`; `None` when it is written already.
    #[inline]
    pub fn number(&mut self, end: u64) -> Option<u64> {
        let base = *self.base.get_or_insert(end);
        self.now = self.now.max(end);
        let since = end.saturating_sub(base);
        if !self.last.1.contains(&since) {
            self.turn_to(since);
        }
        (self.last.0 >= self.next).then_some(self.last.0)
    }

    /// An interval is there as soon as a command is: so it is known when it is over.
    #[cold]
    fn turn_to(&mut self, since: u64) {
        let number = since / self.length;
        let begin = number * self.length;
        self.last = (number, begin..begin.saturating_add(self.length));
        if number >= self.next {
            self.open.entry(number).or_default();
        }
    }

    /// An interval by its number.
    pub fn slice(&mut self, number: u64) -> &mut Slice {
        self.open.entry(number).or_default()
    }

    /// Time has passed, with or without commands.
    pub fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Number of the oldest interval that is over, or with `all` of the oldest.
    pub fn over(&self, all: bool) -> Option<u64> {
        let base = self.base?;
        let number = *self.open.first_key_value()?.0;
        let end = number.saturating_add(1).saturating_mul(self.length);
        let passed = self.now.saturating_sub(base);
        (all || passed >= end.saturating_add(GRACE.min(self.length))).then_some(number)
    }

    /// Takes out the interval that [`Intervals::over`] gives, which must have all its commands.
    pub fn take(&mut self, all: bool) -> Option<(Span, Slice)> {
        let base = self.base?;
        let number = self.over(all)?;
        let end = number.saturating_add(1).saturating_mul(self.length);
        let passed = self.now.saturating_sub(base);
        self.next = self.next.max(number.saturating_add(1));
        let slice = self.open.remove(&number)?;
        let begin = number.saturating_mul(self.length);
        // The last interval is as long as it lasted.
        let end = if passed > begin { end.min(passed) } else { end };
        Some((
            Span {
                from_s: begin as f64 / 1e9,
                to_s: end as f64 / 1e9,
            },
            slice,
        ))
    }

    /// The slices being filled.
    pub fn open(&mut self) -> impl Iterator<Item = &mut Slice> {
        self.open.values_mut()
    }

    /// Length of an interval, seconds.
    pub fn seconds(&self) -> f64 {
        self.length as f64 / 1e9
    }
}
