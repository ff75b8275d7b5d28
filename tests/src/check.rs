//! What must hold for every recording, whatever was recorded.

use crate::results::{self, Outcome};
use crate::tools::shell;
use crate::truth::{self, Pairs, Recording};
use ntp_lab::Fio;
use ntp_record::point::{Point, host, target};
use ntp_record::row::{self, Kind, Row};
use ntp_record::{Flags, Record, Role};
use std::path::Path;

/// Points that (nearly) every command of a scenario must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Points {
    /// Of the host.
    pub host: &'static [Point],
    /// Of the target.
    pub target: &'static [Point],
}

/// A command that a drive answers.
pub const USUAL: Points = Points {
    host: &[
        host::BLOCK_START,
        host::DRIVER_START,
        host::SEND_BEGIN,
        host::SEND_END,
        host::RESP_ARRIVED,
        host::RESP_READ,
        host::COMPLETED,
        host::COMPLETE_RQ,
        host::BLOCK_DONE,
    ],
    target: &[
        target::ARRIVED,
        target::RECEIVED,
        target::EXECUTE,
        target::BIO_SUBMIT,
        target::DRIVE_ISSUE,
        target::DRIVE_DONE,
        target::BIO_DONE,
        target::RESP_QUEUED,
        target::SEND_BEGIN,
        target::SEND_END,
    ],
};

/// A command that reaches no drive: refused, or with nothing to do.
pub const NO_DRIVE: Points = Points {
    host: &[
        host::DRIVER_START,
        host::SEND_BEGIN,
        host::RESP_ARRIVED,
        host::COMPLETED,
        host::COMPLETE_RQ,
    ],
    target: &[
        target::ARRIVED,
        target::RECEIVED,
        target::RESP_QUEUED,
        target::SEND_BEGIN,
    ],
};

/// A file-backed namespace: no block layer of the target's that is ours to see.
pub const FILE: Points = Points {
    host: USUAL.host,
    target: &[
        target::ARRIVED,
        target::RECEIVED,
        target::EXECUTE,
        target::RESP_QUEUED,
        target::SEND_BEGIN,
    ],
};

/// A write that waits for an R2T.
pub const R2T: Points = Points {
    host: &[
        host::BLOCK_START,
        host::DRIVER_START,
        host::SEND_BEGIN,
        host::R2T_ARRIVED,
        host::R2T_READ,
        host::DATA_SEND_BEGIN,
        host::DATA_SEND_END,
        host::RESP_ARRIVED,
        host::RESP_READ,
        host::COMPLETED,
        host::BLOCK_DONE,
    ],
    target: &[
        target::ARRIVED,
        target::RECEIVED,
        target::R2T_QUEUED,
        target::R2T_SEND,
        target::DATA_ARRIVED,
        target::DATA_READ,
        target::EXECUTE,
        target::DRIVE_ISSUE,
        target::DRIVE_DONE,
        target::RESP_QUEUED,
        target::SEND_BEGIN,
    ],
};

/// Points that kernels with such a release miss in more than one command of a hundred.
const UNSURE: &[(&str, &[Point])] = &[
    // Kprobes only: one that an interrupt brings while another runs is missed.
    ("5.10.", &[target::R2T_QUEUED, target::RESP_QUEUED]),
    // Real time: the thread that sends loses its CPU to those that handle the packet, and
    // the command may have ended before the send call returns. Programs lose it too, and are
    // then skipped on that CPU.
    (
        "-rt-",
        &[
            host::SEND_END,
            host::DATA_SEND_END,
            host::RESP_ARRIVED,
            target::SEND_END,
        ],
    ),
];

/// What the recorded kernel does not always give.
fn unsure(r: &Recording) -> Vec<Point> {
    let of = UNSURE.iter().filter(|(k, _)| r.header.kernel.contains(k));
    of.flat_map(|(_, points)| points.iter().copied()).collect()
}

/// A checked pair of recordings.
#[derive(Debug)]
pub struct Checked {
    /// The host's side.
    pub host: Recording,
    /// The target's side.
    pub target: Recording,
    /// What ntp-join made of them.
    pub joined: Pairs,
    /// What ntp-stages made of that.
    pub rows: Vec<Row>,
}

impl Checked {
    /// Groups of the report.
    pub fn groups(&self) -> impl Iterator<Item = &row::Group> {
        self.rows.iter().filter_map(|row| match row {
            Row::Group(group) => Some(group),
            _ => None,
        })
    }

    /// Components of the report.
    pub fn components(&self) -> impl Iterator<Item = &row::Component> {
        self.rows.iter().filter_map(|row| match row {
            Row::Component(component) => Some(component),
            _ => None,
        })
    }

    /// Mean of a stage over all commands of the report, us.
    pub fn stage_us(&self, stage: &str) -> f64 {
        let (mut sum, mut n) = (0.0, 0.0);
        for group in self.groups() {
            let commands = group.latency.n as f64;
            n += commands;
            sum += self
                .rows
                .iter()
                .filter_map(|row| match row {
                    Row::Stage(s) if s.group == group.group && s.stage == stage => Some(s),
                    _ => None,
                })
                .map(|s| s.per_command_ns * commands)
                .sum::<f64>();
        }
        sum / f64::max(n, 1.0) / 1e3
    }

    /// Mean of a component over all commands of the report, us: 0 where a
    /// command has none.
    pub fn component_us(&self, name: &str) -> f64 {
        let commands: u64 = self.groups().map(|g| g.latency.n).sum();
        let of = self.components().filter(|c| c.component == name);
        let sum: f64 = of
            .map(|c| c.time.mean_ns.unwrap_or(0.0) * c.time.n as f64)
            .sum();
        sum / f64::max(commands as f64, 1.0) / 1e3
    }
}

/// One side's recording, with exact books: what was seen was recorded, what was
/// recorded is there.
#[track_caller]
pub fn recording(dir: &Path, name: &str, role: Role) -> Recording {
    let r = truth::recording(&dir.join(name), role).expect(name);
    let t = &r.totals;
    assert_eq!(t.written, r.records.len() as u64, "{name}");
    let lost: u64 = t.lost.values().sum();
    assert_eq!(t.sampled, t.written + lost + t.unfinished, "{name}: {t:?}");
    assert!(t.seen >= t.sampled, "{name}: {t:?}");
    let counted: u64 = t.groups.iter().map(|g| g.commands).sum();
    assert_eq!(counted, t.seen, "{name}: {t:?}");
    r
}

/// Both recordings of a folder.
#[track_caller]
pub fn recordings(dir: &Path) -> (Recording, Recording) {
    (
        recording(dir, "host.ntp", Role::Host),
        recording(dir, "target.ntp", Role::Target),
    )
}

/// Both sides of a recording of one machine and what ntp-join made of them.
#[derive(Debug)]
pub struct Sides {
    /// The host's side.
    pub host: Recording,
    /// The target's side.
    pub target: Recording,
    /// The pairs.
    pub joined: Pairs,
    /// Host records of commands that were answered and that began and ended
    /// while both sides recorded: each has a partner.
    pub inside: usize,
}

/// Joins a recording of one machine: every pair is in order and is one command.
#[track_caller]
pub fn pairs(what: &str, dir: &Path) -> Sides {
    let (host, target) = recordings(dir);
    shell(dir, "ntp-join -o joined.ntp host.ntp target.ntp").expect(0);
    let joined = truth::joined(&dir.join("joined.ntp")).expect("joined");
    let bad = truth::out_of_order(&joined.pairs);
    // ntp-join leaves out what contradicts the clock: on one clock that must be nothing,
    // or commands out of order would only be missing.
    for left in [&joined.totals.host_left, &joined.totals.target_left] {
        assert_eq!(left["contradicts_clock"], 0, "{what}: {left:?}");
        assert_eq!(left["ambiguous"], 0, "{what}: {left:?}");
    }
    let wrong = truth::strangers(&joined) + truth::at_another_time(&joined);
    let inside = inside_both(&host, &target);
    println!(
        "{what}: {} host, {} target, {} joined of {inside} inside both, {} out of order, {wrong} wrong pairs",
        host.records.len(),
        target.records.len(),
        joined.pairs.len(),
        bad.len()
    );
    assert_eq!(bad, [], "{what}");
    assert_eq!(wrong, 0, "{what}");
    Sides {
        host,
        target,
        joined,
        inside,
    }
}

/// Joins a recording of one machine, and checks what must hold for every
/// command of it when nothing went wrong.
#[track_caller]
pub fn one_clock(what: &str, dir: &Path, at_least: u64, points: Points) -> Checked {
    let Sides {
        host,
        target,
        joined,
        inside,
    } = pairs(what, dir);
    let n = joined.pairs.len();
    assert!(
        host.records.len() as u64 >= at_least,
        "{what}: {} records",
        host.records.len()
    );
    // An interrupt in the middle of a program makes the kernel skip the run of the same
    // program in it, and counts that: what it cost is no more.
    let skipped = skipped(&host) + skipped(&target);
    for side in [&host.totals, &target.totals] {
        let lost = side.lost.values().sum::<u64>() + side.unfinished;
        assert!(
            lost <= skipped,
            "{what}: {lost} lost, {skipped} skipped: {side:?}"
        );
    }
    assert!(
        (n as u64 + skipped) as f64 >= 0.999 * inside as f64,
        "{what}: {:?}",
        joined.totals
    );
    have_points(what, &host, points.host);
    have_points(what, &target, points.target);
    let checked = Checked {
        rows: rows(what, dir, n),
        host,
        target,
        joined,
    };
    nothing_unmeasured(what, &checked);
    results::add(Outcome {
        scenario: what.to_owned(),
        commands: checked.host.records.len(),
        inside,
        matched: n,
        violations: 0,
        figures: largest(&checked),
    });
    checked
}

/// Runs of programs that the kernel skipped.
pub fn skipped(r: &Recording) -> u64 {
    let misses = r.totals.misses.iter();
    let skipped = misses.filter(|(cause, _)| cause.ends_with("_skipped"));
    skipped.map(|(_, n)| n).sum()
}

/// Figures of the largest groups.
fn largest(checked: &Checked) -> String {
    const SHOWN: usize = 3;
    let mut groups: Vec<_> = checked.groups().collect();
    groups.sort_by_key(|g| std::cmp::Reverse(g.latency.n));
    let mut shown: Vec<_> = groups.iter().take(SHOWN).map(|g| figures(g)).collect();
    if groups.len() > SHOWN {
        shown.push(format!("and {} other groups", groups.len() - SHOWN));
    }
    shown.join("; ")
}

fn figures(group: &row::Group) -> String {
    let value = |v: &row::KeyValue| match v {
        row::KeyValue::Number(n) => n.to_string(),
        row::KeyValue::Text(text) => text.clone(),
        row::KeyValue::Unknown => "?".to_owned(),
    };
    let key: Vec<String> = group.key.0.iter().map(|(_, v)| value(v)).collect();
    format!(
        "{} {} mean {:.0} us",
        group.latency.n,
        key.join(" "),
        group.latency.mean_ns.unwrap_or(0.0) / 1e3
    )
}

fn inside_both(h: &Recording, t: &Recording) -> usize {
    let from = h.header.start_ns.max(t.header.start_ns);
    let to = h.totals.end_ns.min(t.totals.end_ns);
    let inside = |r: &&Record| {
        let begin = r.time(host::DRIVER_START);
        let end = r.time(host::BLOCK_DONE).or(r.time(host::COMPLETE_RQ));
        let answered = !r.has(Flags::Cancelled);
        answered && begin >= Some(from) && end.is_some_and(|end| end <= to)
    };
    h.records.iter().filter(inside).count()
}

/// All but one in a hundred have the points, and all but the first of each
/// connection: what arrived before the queue was known has no arrival.
#[track_caller]
fn have_points(what: &str, r: &Recording, points: &[Point]) {
    let n = r.records.len();
    let allowed = n / 100 + r.connections.len();
    let unsure = unsure(r);
    for point in points {
        let missing = r.records.iter().filter(|r| r.time(*point).is_none());
        let missing = missing.count();
        // What is not sure is there mostly.
        if unsure.contains(point) && missing > 0 {
            println!("{what}: {} missing in {missing} of {n}", point.name);
        }
        let allowed = match unsure.contains(point) {
            true => n / 5 + allowed,
            false => allowed,
        };
        assert!(
            missing <= allowed && missing < n,
            "{what}: {:?} {} missing in {missing} of {n}",
            point.side,
            point.name
        );
    }
}

/// The rows of a joined stream, of which the components sum to the end-to-end
/// time to the nanosecond, by the tools' own check of every command and by the
/// exact totals of the rows.
#[track_caller]
pub fn rows(what: &str, dir: &Path, pairs: usize) -> Vec<Row> {
    let text = shell(dir, "ntp-stages joined.ntp").expect(0).text();
    let rows: Vec<Row> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("row"))
        .collect();
    let mut totals = rows.iter().filter_map(|row| match row {
        Row::Totals(t) => Some(t),
        _ => None,
    });
    let totals = totals.next().expect("totals");
    assert_eq!(totals.sum_mismatches, 0, "{what}: {totals:?}");
    assert_eq!(totals.out_of_order, 0, "{what}: {totals:?}");
    assert_eq!(totals.in_order, pairs as u64, "{what}: {totals:?}");
    for row in &rows {
        let Row::Group(group) = row else { continue };
        let whole = group.latency.mean_ns.expect("mean") * group.latency.n as f64;
        let parts: f64 = rows
            .iter()
            .filter_map(|row| match row {
                Row::Component(c) if c.group == group.group && c.kind == Kind::Sum => Some(c),
                _ => None,
            })
            .map(|c| c.time.n as f64 * c.time.mean_ns.unwrap_or(0.0))
            .sum();
        assert!((whole - parts).abs() < 1.0, "{what}: {whole} {parts}");
    }
    println!(
        "{what}: sums exact for {pairs} commands, wire negative in {}",
        totals.wire_negative
    );
    rows
}

/// What may take no time: all of it came with the first packet.
const IN_ONE_PACKET: &[&str] = &[
    "network: rest of the data arriving",
    "network: rest of the response arriving",
    "network: rest of the data arriving at the target",
];

/// Nothing reads 0 because nobody measured it: what was measured took time, and
/// what was not says why and where its time went.
#[track_caller]
fn nothing_unmeasured(what: &str, checked: &Checked) {
    for c in checked.components() {
        let at_once = IN_ONE_PACKET.contains(&c.component.as_str());
        if c.time.n > 0 && c.kind != Kind::Within && !at_once {
            assert_ne!(c.time.max_ns, Some(0), "{what}: {c:?}");
        }
        if c.missing > 0 {
            let reason = c.reason.as_deref().expect("a reason");
            let took_none = reason.starts_with("passthrough");
            assert!(took_none || c.shows_in.is_some(), "{what}: {c:?}");
        }
        assert!(c.time.n + c.missing > 0, "{what}: {c:?}");
    }
}

/// fio starts its clock before the block layer sees the command and stops it
/// after; its completion latency starts when the submitting call has returned.
/// At a depth above 1 fio also counts the time until it looks for a completion,
/// here the time it takes to submit the others: its completion latency is then
/// no lower bound.
#[track_caller]
pub fn within_fio(what: &str, dir: &Path, h: &Recording, alone: bool) {
    let fio = Fio::read(&dir.join("fio.json")).expect("fio");
    let mean = truth::mean_us(&h.records, host::BLOCK_START, host::BLOCK_DONE).expect("mean");
    println!(
        "{what}: fio clat {:.1} us <= ntp {mean:.1} us <= fio lat {:.1} us; {} I/Os of fio, {} seen",
        fio.clat_us, fio.lat_us, fio.ios, h.totals.seen
    );
    assert_eq!(h.totals.seen, fio.ios, "{what}");
    assert!(!alone || fio.clat_us <= mean * 1.02, "{what}");
    assert!(mean <= fio.lat_us * 1.02, "{what}");
}
