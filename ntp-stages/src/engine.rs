//! Commands in, rows out.

mod summary;

use crate::batch::{Batches, Ends, Place};
use crate::clocks::Clocks;
use crate::command::Command;
use crate::directory::Directory;
use crate::group::{Checks, Offset, Scratch};
use crate::keys::By;
use crate::machines::CommonTime;
use crate::plan::Plans;
use crate::recordings::Recordings;
use crate::report;
use crate::route::{Looks, Route, Routes};
use crate::table::{Intervals, Table};
use ntp_record::row::{self, Machine, Report, Row, View};
use ntp_record::{Header, Item, Joined, Record, Role, Segment, Stack, Totals, Transport};
use std::collections::BTreeMap;

/// What to report.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys of the groups.
    pub by: By,
    /// Length of an interval, ns; `None`: the whole recording only.
    pub interval_ns: Option<u64>,
    /// Groups at most; the rest of the commands share one.
    pub max_groups: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            by: By::default(),
            interval_ns: None,
            max_groups: 1000,
        }
    }
}

/// Turns a stream into the rows of a report.
///
/// Memory is bounded: by groups (a few hundred KiB each), not by commands.
///
/// ```
/// use ntp_stages::{Engine, Options};
/// let mut engine = Engine::new(Options::default());
/// // for each item of a Reader: engine.apply(&item);
/// let rows = engine.finish();
/// assert!(matches!(rows.last(), Some(ntp_record::row::Row::Totals(_))));
/// ```
#[derive(Debug)]
pub struct Engine {
    segment: Segment,
    /// Commands each record of the segment stands for; 0: the stream does not say.
    sampling: u32,
    sampling_seen: Option<(u32, u32)>,
    open: bool,
    plans: Plans,
    routes: Routes,
    batches: Batches,
    directory: Directory,
    total: Table,
    intervals: Option<Intervals>,
    checks: Checks,
    scratch: Scratch,
    clocks: Clocks,
    common: CommonTime,
    recordings: Recordings,
    report: Report,
    missing: BTreeMap<(bool, String), String>,
    books: row::Totals,
    /// Commands of a clock that the stream does not tell.
    unplaced: u64,
    reported: bool,
    ready: Vec<Row>,
}

impl Engine {
    /// A report without commands so far.
    pub fn new(options: Options) -> Self {
        let Options {
            by,
            interval_ns,
            max_groups,
        } = options;
        let intervals = interval_ns.map(Intervals::new);
        Engine {
            segment: Segment::default(),
            sampling: 0,
            sampling_seen: None,
            open: false,
            plans: Plans::default(),
            routes: Routes::default(),
            batches: Batches::default(),
            report: Report {
                by: by.names(),
                interval_s: intervals.as_ref().map(Intervals::seconds),
                ..Report::default()
            },
            directory: Directory::new(by, max_groups),
            total: Table::default(),
            intervals,
            checks: Checks::default(),
            scratch: Scratch::default(),
            clocks: Clocks::default(),
            common: CommonTime::default(),
            recordings: Recordings::default(),
            missing: BTreeMap::new(),
            books: row::Totals::default(),
            unplaced: 0,
            reported: false,
            ready: Vec::new(),
        }
    }

    /// Takes in one item of a stream.
    pub fn apply(&mut self, item: &Item<'_>) {
        match item {
            Item::Header(header) => {
                self.close();
                self.open_header(header);
            }
            Item::JoinHeader(join) => {
                self.close();
                for header in join.hosts.iter().chain(&join.targets) {
                    self.machine(header);
                }
                let sampling = join
                    .hosts
                    .iter()
                    .chain(&join.targets)
                    .map(|header| header.sampling)
                    .max();
                self.sampled(sampling.unwrap_or(0));
                let (base, wall_minus_common) = self.common.begin(join);
                self.recordings.joined(wall_minus_common);
                self.begin(base, join.hosts.iter().any(Header::is_rebuilt));
            }
            Item::Connection(_) | Item::Device(_) => {
                self.directory.forget_names();
                self.clocks.forget_names();
                self.common.forget_names();
                self.routes.clear();
            }
            Item::Records(records) => self.records(records),
            Item::Joined(joined) => self.joined(joined),
            Item::Counts(counts) => {
                self.recordings.counts(counts);
                self.tick(counts.at_ns);
            }
            Item::Totals(totals) => {
                self.recordings.totals(totals);
                self.add_totals(totals);
                self.tick(totals.end_ns);
                self.open = false;
            }
            Item::JoinTotals(totals) => {
                self.recordings
                    .join_totals(&totals.counts, totals.counted_ns);
                saturate(&mut self.books.host, totals.host);
                saturate(&mut self.books.target, totals.target);
                saturate(self.books.matched.get_or_insert_default(), totals.matched);
                saturate(
                    self.books.host_inside.get_or_insert_default(),
                    totals.host_inside,
                );
                add(&mut self.books.host_left, &totals.host_left);
                add(&mut self.books.target_left, &totals.target_left);
                saturate(&mut self.books.damaged_bytes, totals.damaged_bytes);
                totals
                    .sources
                    .iter()
                    .for_each(|source| self.add_totals(source));
                self.open = false;
            }
            Item::Damage(damage) => {
                self.books.damaged += 1;
                saturate(&mut self.books.damaged_bytes, damage.bytes);
            }
        }
        self.segment.apply(item);
    }

    fn open_header(&mut self, header: &Header) {
        self.machine(header);
        self.sampled(header.sampling);
        self.recordings.header(header);
        self.common.alone();
        self.begin(start(header), header.is_rebuilt());
    }

    /// A segment begins. One whose header was filtered out has no totals to wait for.
    fn begin(&mut self, base: Option<u64>, rebuilt: bool) {
        self.books.segments += 1;
        self.open = !rebuilt;
        self.directory.forget_names();
        self.clocks.forget_names();
        self.routes.clear();
        if let Some(intervals) = &mut self.intervals {
            intervals.begin(base);
        }
    }

    /// A segment is over: with a header after it, or at the end.
    fn close(&mut self) {
        self.take_in_all();
        self.write_intervals(true);
        self.recordings.close(&self.segment, self.directory.by());
        if self.open {
            self.books.cut_off += 1;
            self.open = false;
        }
    }

    fn sampled(&mut self, sampling: u32) {
        self.sampling = sampling;
        if sampling != 0 {
            let (least, most) = self.sampling_seen.unwrap_or((sampling, sampling));
            self.sampling_seen = Some((least.min(sampling), most.max(sampling)));
            self.report.sampling = self.sampling_seen.map(|(_, most)| most);
        }
    }

    fn machine(&mut self, header: &Header) {
        let machine = Machine {
            machine: header.machine.clone(),
            kernel: header.kernel.clone(),
            stack: match header.stack {
                Stack::Linux => "linux",
                Stack::Spdk => "spdk",
            }
            .to_owned(),
            transport: match header.transport {
                Transport::Tcp => "tcp",
                Transport::Rdma => "rdma",
            }
            .to_owned(),
            sampling: header.sampling,
            filters: header.filters.clone(),
        };
        let on_host = header.role == Role::Host;
        let machines = if on_host {
            &mut self.report.hosts
        } else {
            &mut self.report.targets
        };
        if !machines.contains(&machine) {
            machines.push(machine);
        }
        for (point, reason) in &header.missing {
            self.missing
                .entry((on_host, point.clone()))
                .or_insert_with(|| reason.clone());
        }
    }

    fn add_totals(&mut self, totals: &Totals) {
        add(&mut self.books.lost, &totals.lost);
        add(&mut self.books.misses, &totals.misses);
        saturate(&mut self.books.unfinished, totals.unfinished);
    }

    fn records(&mut self, records: &[Record]) {
        // The points of a record mean what the header says: without it, nothing.
        let Some(role) = self.segment.role() else {
            let left = self.books.left_out.entry(HEADER.to_owned()).or_default();
            *left += records.len() as u64;
            return;
        };
        match role {
            Role::Host => self.books.host += records.len() as u64,
            Role::Target => self.books.target += records.len() as u64,
        }
        let commands = records.iter().map(|record| Command::alone(record, role));
        self.commands(commands.map(|command| (command, None)));
    }

    fn joined(&mut self, joined: &[Joined]) {
        if self
            .segment
            .join_header
            .as_ref()
            .is_none_or(|join| join.hosts.iter().any(Header::is_rebuilt))
        {
            // No totals will come: what is here is all that is known.
            let n = joined.len() as u64;
            self.books.host += n;
            self.books.target += n;
            self.books.matched = Some(self.books.matched.unwrap_or(0) + n);
        }
        self.commands(joined.iter().map(|joined| {
            let command = Command::joined(&joined.host, &joined.target);
            let offset = Offset::new(joined.offset_ns, joined.offset_bound_ns);
            (command, Some(offset))
        }));
    }

    /// Sorts commands into batches of one place and one plan, and takes in those that are full.
    fn commands<'a>(&mut self, commands: impl Iterator<Item = (Command<'a>, Option<Offset>)>) {
        let by_cpu = self.directory.by().by_cpu();
        let mut seen: Option<(View, u64, u64)> = None;
        let mut unplaced = None;
        for (command, offset) in commands {
            let looks = Looks::of(&command, by_cpu);
            let route = self.routes.find(&looks, || {
                let plan = self.plans.find(&command);
                let (begin, end) = match self.plans.get(plan) {
                    Ok(plan) => (plan.begin, plan.end),
                    Err(what) => return Err(*what),
                };
                let (host, target) = (command.main().conn, command.last().conn);
                Ok(Route {
                    group: self.directory.find(&self.segment, &command),
                    plan,
                    begin,
                    end,
                    behind: self.common.behind(&self.segment, host),
                    clocks: match offset {
                        Some(_) => self.clocks.find(&self.segment, (host, target)),
                        None => 0,
                    },
                    ends: Ends::of(command.main()),
                    batch: 0,
                })
            });
            let route = match route {
                Ok(route) => route,
                Err(what) => {
                    *self.books.left_out.entry(what.to_owned()).or_default() += 1;
                    continue;
                }
            };
            let (begin, end) = (command.at(route.begin), command.at(route.end));
            if let Some(offset) = offset {
                self.clocks.record(route.clocks, begin, offset);
            }
            let mut interval = None;
            match route.behind {
                Some(behind) => {
                    let (begin, end) = (begin.saturating_add(behind), end.saturating_add(behind));
                    let (_, first, last) = seen.unwrap_or((command.view(), begin, end));
                    seen = Some((command.view(), first.min(begin), last.max(end)));
                    if let Some(intervals) = &mut self.intervals {
                        interval = intervals.number(end);
                        self.books.late += u64::from(interval.is_none());
                    }
                }
                None => {
                    unplaced = Some(command.view());
                    self.unplaced += 1;
                }
            }
            let place = Place {
                interval,
                group: route.group,
                plan: route.plan,
            };
            let number = self.batches.find(place, route.batch);
            route.batch = number;
            if (self.batches.get(number)).push(&command, offset, route.ends) {
                self.take_in(number);
            }
            if self.batches.full() {
                self.take_in_all();
            }
        }
        if let Some((view, first, last)) = seen {
            self.recordings.seen(view, first, last);
        }
        if let Some(view) = unplaced {
            self.recordings.unplaced(view);
        }
        self.write_intervals(false);
        if self.plans.full() {
            self.take_in_all();
            self.settle();
            self.plans.clear();
            self.routes.clear();
        }
    }

    /// Takes in the commands of a batch.
    fn take_in(&mut self, number: u32) {
        let batch = self.batches.get(number);
        let place = batch.place();
        let Ok(plan) = self.plans.get(place.plan) else {
            return;
        };
        let table = match (&mut self.intervals, place.interval) {
            (Some(intervals), Some(number)) => {
                let slice = intervals.slice(number);
                slice.records += batch.times().len() as u64;
                &mut slice.table
            }
            _ => &mut self.total,
        };
        self.books.reported += batch.times().len() as u64;
        table.get(place.group).record(
            batch,
            plan,
            self.sampling,
            &mut self.scratch,
            &mut self.checks,
        );
        batch.clear();
    }

    /// Takes in whatever waits for more.
    fn take_in_all(&mut self) {
        self.batches
            .numbers()
            .for_each(|number| self.take_in(number));
        self.batches.clear();
    }

    /// Tells that time passed, ns of the recording's clock: intervals may be over.
    pub fn tick(&mut self, now_ns: u64) {
        if let Some(intervals) = &mut self.intervals {
            intervals.tick(now_ns);
        }
        self.write_intervals(false);
    }

    fn settle(&mut self) {
        self.total.settle(&self.plans);
        if let Some(intervals) = &mut self.intervals {
            intervals
                .open()
                .for_each(|slice| slice.table.settle(&self.plans));
        }
    }

    fn write_intervals(&mut self, all: bool) {
        let over = |intervals: &Intervals| intervals.over(all).is_some();
        if self.intervals.as_ref().is_some_and(over) {
            self.take_in_all();
        }
        while let Some((span, mut slice)) = self
            .intervals
            .as_mut()
            .and_then(|intervals| intervals.take(all))
        {
            slice.table.settle(&self.plans);
            if !self.reported {
                self.ready.push(Row::Report(self.report.clone()));
                self.reported = true;
            }
            let mut groups: Vec<_> = slice.table.iter().collect();
            groups.sort_by(|(a, _), (b, _)| self.order(*a).cmp(&self.order(*b)));
            let mut rows = Vec::new();
            for (number, group) in &groups {
                let seconds = span.to_s - span.from_s;
                let rate = self.estimated(group, Some(seconds));
                rows.extend(report::rows(group, &self.about(*number, Some(span), rate)));
            }
            let groups = groups.len() as u64;
            self.ready.append(&mut rows);
            self.ready.push(Row::Interval(row::Interval {
                interval: span,
                groups,
                records: slice.records,
            }));
            self.total.merge(&slice.table);
        }
    }

    /// Rows that are ready: intervals that are over.
    pub fn take_rows(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.ready)
    }
}

/// What is missing of records whose recording begins with damage.
const HEADER: &str = "the header of their recording";

/// When a recording began, on its clock; `None` when its header was filtered out.
fn start(header: &Header) -> Option<u64> {
    (!header.is_rebuilt()).then_some(header.start_ns)
}

fn add(into: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>) {
    for (cause, times) in from {
        saturate(into.entry(cause.clone()).or_default(), *times);
    }
}

/// Adds what the input claims: absurd numbers stick at the limit.
fn saturate(into: &mut u64, more: u64) {
    *into = into.saturating_add(more);
}
