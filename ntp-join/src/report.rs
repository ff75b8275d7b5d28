//! What is said on standard error at the end.

use crate::cause;
use crate::joiner::{ClockReport, Joiner};
use crate::names::ends;
use ntp_record::cause::{Book, list};
use ntp_record::header::{Header, Role};
use std::collections::BTreeSet;

/// Connections named on each side when nothing matched.
const SHOWN: usize = 3;

/// Summary, clocks, causes, and why nothing matched when nothing did.
pub fn lines(joiner: &Joiner) -> Vec<String> {
    let totals = joiner.totals();
    let mut lines = Vec::new();
    if joiner.headless > 0 {
        lines.push(format!(
            "{} records left out: the header of their recording is lost",
            joiner.headless
        ));
    }
    if !joiner.both_sides() {
        lines.push(why_nothing(joiner));
        return lines;
    }
    let mut summary = format!(
        "{} host, {} target records; {} matched",
        totals.host, totals.target, totals.matched
    );
    if totals.matched > 0 {
        summary += &format!(
            " ({} of the host's; {} of those inside both recordings)",
            percent(totals.matched, totals.host),
            percent(totals.matched, totals.host_inside)
        );
    }
    lines.push(summary);
    for clock in joiner.clocks().filter(|clock| clock.pairs > 0) {
        lines.push(clock_line(clock));
        lines.extend(wall_line(clock));
    }
    for (side, left) in [("host", &totals.host_left), ("target", &totals.target_left)] {
        let causes = list(Book::Left, left);
        if !causes.is_empty() {
            lines.push(format!("{side} records left out: {causes}"));
        }
    }
    let weak = joiner.weak_pairs();
    if weak > 0 {
        lines.push(format!(
            "{weak} connections were matched by queue, names and commands, not by address (a NAT between host and target?)"
        ));
    }
    lines.extend(sampling_lines(joiner));
    if totals.matched == 0 {
        lines.push(why_nothing(joiner));
    }
    lines
}

/// A share that is 100 % only when it is all.
fn percent(part: u64, all: u64) -> String {
    if part == all {
        return "100 %".into();
    }
    let share = part as f64 / all.max(1) as f64 * 100.0;
    // Rounded down: 99.99 % is not all.
    format!("{:.2} %", (share * 100.0).floor() / 100.0)
}

fn clock_line(clock: &ClockReport) -> String {
    let ClockReport { host, target, .. } = clock;
    let (Some((begin, offset)), Some((end, last))) = (clock.first, clock.last) else {
        return format!("clock of {target}: not known against {host}");
    };
    if clock.same && clock.widest == 0 && offset == 0 && last == 0 {
        return format!("clock of {target}: the same as that of {host} (one boot of one machine)");
    }
    let mean = clock.bounds / u128::from(clock.pairs.max(1));
    let time = (end - begin) as f64;
    let drift = if time >= 1e9 {
        format!(", drift {:+.1} ppm", (last - offset) as f64 / time * 1e6)
    } else {
        String::new()
    };
    format!(
        "clock of {target} against {host}: {:+.6} s, give or take {:.2} us (at most {:.2} us){drift}",
        offset as f64 / 1e9,
        mean as f64 / 1e3,
        clock.widest as f64 / 1e3
    )
}

fn wall_line(clock: &ClockReport) -> Option<String> {
    let off = clock
        .off_wall
        .filter(|off| off.unsigned_abs() > 1_000_000_000)?;
    Some(format!(
        "the wall clocks of {} and {} differ by {:.1} s, by the commands",
        clock.target,
        clock.host,
        off as f64 / 1e9
    ))
}

/// For each two samplings of connections that are joined.
fn sampling_lines(joiner: &Joiner) -> impl Iterator<Item = String> {
    let sampling = |conn: usize| {
        let recording = joiner.conns[conn].recording;
        joiner.recordings[recording].header.sampling
    };
    let mut unequal = BTreeSet::new();
    for (number, conn) in joiner.conns.iter().enumerate() {
        let mut note = |other: u32| {
            let (a, b) = (sampling(number), sampling(other as usize));
            if a != b {
                unequal.insert((a.min(b), a.max(b)));
            }
        };
        // Of those it may be, the one it is, once that is known.
        conn.partner.iter().for_each(|(_, other)| note(*other));
        if conn.partner.is_empty() {
            conn.over.iter().for_each(|place| note(place.conn));
        }
    }
    unequal.into_iter().map(|(fine, coarse)| {
        format!(
            "the recordings sampled one command in {fine} and one in {coarse}: only those of one in {coarse} can be joined"
        )
    })
}

/// The most likely reason, in one sentence with the facts.
fn why_nothing(joiner: &Joiner) -> String {
    let of = |role: Role| joiner.headers().filter(move |header| header.role == role);
    let (hosts, targets) = (of(Role::Host).count(), of(Role::Target).count());
    match (hosts, targets) {
        (0, 0) => return "nothing to join: no recording among the inputs".into(),
        (1, 0) | (0, 1) => {
            return "nothing to join: only one recording: give it to ntp-stages directly, or name the other side's too".into();
        }
        (_, 0) => return same_role("host", "target", of(Role::Host)),
        (0, _) => return same_role("target", "host", of(Role::Target)),
        _ => {}
    }
    let totals = joiner.totals();
    if totals.host == 0 || totals.target == 0 {
        let (side, count) = if totals.host == 0 {
            ("host", totals.target)
        } else {
            ("target", totals.host)
        };
        return format!(
            "nothing matched: the {side} recording holds no command, the other {count}: was it recording while commands ran?"
        );
    }
    let salts: Vec<u32> = joiner.headers().map(|header| header.salt).collect();
    if totals.host_left.get(cause::OTHER_SALT) == Some(&totals.host) {
        return format!(
            "nothing matched: different sampling salts ({salts:?}): record both sides with the same"
        );
    }
    if totals
        .host_left
        .get(cause::NO_CONNECTION)
        .is_some_and(|left| *left == totals.host)
    {
        return format!(
            "nothing matched: other connections: host has {}; target has {}",
            joiner.connections(Role::Host, SHOWN),
            joiner.connections(Role::Target, SHOWN)
        );
    }
    if let Some(text) = no_overlap(joiner) {
        return text;
    }
    if let Some(clock) = joiner.clocks().find(|clock| clock.failed.is_some()) {
        let failed = clock.failed.as_deref().unwrap_or_default();
        return format!(
            "nothing matched between {} and {}: {failed}: record longer, or more of the commands (a smaller -s on both sides)",
            clock.host, clock.target
        );
    }
    "nothing matched: the two sides recorded different commands: see the causes above".into()
}

fn same_role<'a>(role: &str, other: &str, headers: impl Iterator<Item = &'a Header>) -> String {
    let machines: Vec<&str> = headers.map(|header| header.machine.as_str()).collect();
    format!(
        "nothing to join: all recordings are of a {role} ({}): name one of a {other} too",
        machines.join(", ")
    )
}

/// Said when the wall clocks leave no common time.
fn no_overlap(joiner: &Joiner) -> Option<String> {
    let (host, target) = (
        joiner.wall_time(Role::Host)?,
        joiner.wall_time(Role::Target)?,
    );
    let gap = |first: (i64, i64), second: (i64, i64)| second.0.saturating_sub(first.1);
    let apart = gap(host, target).max(gap(target, host));
    (apart > 0).then(|| {
        let (early, late) = if gap(host, target) > 0 { ("host", "target") } else { ("target", "host") };
        format!(
            "nothing matched: by their wall clocks, the {early} recording ended {:.1} s before the {late} recording began",
            apart as f64 / 1e9
        )
    })
}

impl Joiner {
    /// Headers of all recordings.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.recordings.iter().map(|recording| &recording.header)
    }

    /// Host connections whose partner was found by other things than addresses.
    pub fn weak_pairs(&self) -> usize {
        (self.conns.iter())
            .filter(|conn| conn.role == Role::Host && conn.weak && conn.matched > 0)
            .count()
    }

    /// The first connections of a side in words.
    fn connections(&self, role: Role, shown: usize) -> String {
        let all: Vec<String> = (self.conns.iter())
            .filter(|conn| conn.role == role)
            .map(|conn| ends(&conn.info))
            .collect();
        let more = all.len().saturating_sub(shown);
        let mut text = all
            .iter()
            .take(shown)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if all.is_empty() {
            text = "none".into();
        }
        if more > 0 {
            text += &format!(" and {more} more");
        }
        text
    }

    /// First and last moment of a side's recordings by the wall clock, ns.
    fn wall_time(&self, role: Role) -> Option<(i64, i64)> {
        let of = || {
            (self.recordings.iter()).filter(move |recording| {
                recording.header.role == role && recording.header.wall_minus_mono_ns != 0
            })
        };
        let wall = |recording: &crate::names::Recording, at: i64| {
            at.saturating_add(recording.header.wall_minus_mono_ns)
        };
        Some((
            of().map(|recording| wall(recording, recording.start))
                .min()?,
            of().map(|recording| wall(recording, recording.pace.seen))
                .max()?,
        ))
    }
}
