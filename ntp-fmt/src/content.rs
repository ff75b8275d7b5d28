//! From rows to what a report says.

use crate::document::{Align, Column, Document, Line, Style};
use crate::model::{GroupReport, Model};
use crate::units::{
    NOT_MEASURED, bytes_per_s, duration, label, percent, percent_of, si, two, us, us_of,
};
use ntp_record::cause::{Book, list};
use ntp_record::row::{
    Clock, Component, Distribution, Group, Kind, Machine, RateIs, Report, Stage, Totals, View,
};

/// Characters of a bar for the whole latency.
const BAR: f64 = 24.0;

/// Mark beside a percentile that few samples cannot carry.
const FEW: &str = "~";

/// The report of a whole recording.
pub fn document(model: &Model, detail: bool) -> Document {
    let mut doc = Document::default();
    if let Some(report) = &model.report {
        head(&mut doc, report);
    }
    for group in &model.groups {
        doc.gap();
        group_report(&mut doc, group, detail);
    }
    doc.gap();
    let marked = |time: &Distribution| !time.few.is_empty();
    let any = model.groups.iter().any(|group| {
        marked(&group.group.latency) || detail && group.components.iter().any(|c| marked(&c.time))
    });
    if any {
        doc.text(
            Style::Dim,
            0,
            format!("{FEW}: few samples, fewer than 10 commands lie beyond this percentile"),
        );
    }
    model.clocks.iter().for_each(|c| clock(&mut doc, c));
    if let Some(totals) = &model.totals {
        books(&mut doc, totals);
    }
    for warning in &model.warnings {
        doc.text(Style::Warning, 0, format!("warning: {}", warning.text));
    }
    doc
}

fn machine(machine: &Machine) -> String {
    let name = if machine.machine.is_empty() {
        "a machine without a name"
    } else {
        &machine.machine
    };
    match (machine.kernel.as_str(), machine.stack.as_str()) {
        ("", _) => name.to_owned(),
        (kernel, "linux" | "") => format!("{name} (kernel {kernel})"),
        (kernel, _) => format!("{name} (SPDK, kernel {kernel})"),
    }
}

fn head(doc: &mut Document, report: &Report) {
    let names = |machines: &[Machine]| machines.iter().map(machine).collect::<Vec<_>>().join(", ");
    let mut line = match (report.hosts.as_slice(), report.targets.as_slice()) {
        ([], []) => "recorded on machines that the stream does not name".to_owned(),
        (hosts, []) => format!("recorded on {}", names(hosts)),
        ([], targets) => format!("recorded on target {}", names(targets)),
        (hosts, targets) => format!("recorded on {}, target on {}", names(hosts), names(targets)),
    };
    match report.sampling {
        Some(1) => line.push_str(", every command"),
        Some(sampling) => line.push_str(&format!(", one command in {sampling} sampled")),
        None => line.push_str(", sampling unknown"),
    }
    doc.text(Style::Plain, 0, line);
    let mut filters: Vec<&String> = report
        .hosts
        .iter()
        .chain(&report.targets)
        .flat_map(|m| &m.filters)
        .collect();
    filters.dedup();
    if !filters.is_empty() {
        let filters: Vec<&str> = filters.iter().map(|filter| filter.as_str()).collect();
        doc.text(
            Style::Plain,
            0,
            format!("only commands that pass {}", filters.join(", ")),
        );
    }
}

fn title(group: &Group) -> String {
    let sampled = group.latency.n;
    let rate = group.rate.map(|rate| format!("{} commands/s", si(rate)));
    let bytes = group
        .bytes_per_s
        .filter(|bytes| *bytes > 0.0)
        .map(bytes_per_s);
    let of = match (group.commands, group.rate_is) {
        (Some(commands), _) => Some(format!("of {commands} counted")),
        (None, Some(RateIs::Estimated)) => Some("estimated".to_owned()),
        _ => None,
    };
    let facts: Vec<String> = [of, rate, bytes].into_iter().flatten().collect();
    let facts = if facts.is_empty() {
        String::new()
    } else {
        format!(" ({})", facts.join(", "))
    };
    let side = match group.view {
        View::Host => "host side only".to_owned(),
        View::Target => "target side only".to_owned(),
        View::Joined if group.with_target == sampled => "all with the target's side".to_owned(),
        View::Joined => format!("{} with the target's side", group.with_target),
    };
    format!(
        "== {}: {sampled} commands{facts}, {side}",
        label(&group.key, group.other)
    )
}

/// A percentile, marked when few samples cannot carry it.
fn percentile(time: &Distribution, name: &str, ns: Option<i64>) -> String {
    let mark = if time.few.iter().any(|few| few == name) {
        FEW
    } else {
        ""
    };
    format!("{mark}{}", us_of(ns))
}

fn group_report(doc: &mut Document, report: &GroupReport, detail: bool) {
    let group = &report.group;
    doc.text(Style::Title, 0, title(group));
    let time = &group.latency;
    let what = if group.view == View::Target {
        "time on the target (us)"
    } else {
        "latency (us)"
    };
    let mut line = format!(
        "{what}: mean {}, p50 {}, p99 {}, p99.9 {}",
        us(time.mean_ns),
        percentile(time, "p50", time.p50_ns),
        percentile(time, "p99", time.p99_ns),
        percentile(time, "p99.9", time.p999_ns)
    );
    if detail {
        line.push_str(&format!(
            ", min {}, max {}, deviation {}",
            us_of(time.min_ns),
            us_of(time.max_ns),
            us(time.stddev_ns)
        ));
    }
    doc.text(Style::Plain, 1, line);
    let endings = [
        (group.failed, "failed"),
        (group.retried, "retried"),
        (group.timed_out, "timed out"),
        (group.cancelled, "cancelled"),
    ];
    let endings: Vec<String> = endings
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect();
    if !endings.is_empty() {
        doc.text(
            Style::Warning,
            1,
            format!("of these: {}", endings.join(", ")),
        );
    }
    stages(doc, report);
    if let Some(largest) = &group.largest {
        let share = percent(group.largest_share).replace('%', " %");
        doc.text(
            Style::Strong,
            1,
            format!("largest: {largest}, {share} of the latency"),
        );
    }
    for warning in &report.warnings {
        doc.text(Style::Warning, 1, format!("warning: {}", warning.text));
    }
    if detail {
        doc.gap();
        doc.text(
            Style::Plain,
            1,
            "components, in path order (L: commands in each, by Little's law)",
        );
        components(doc, report);
    }
}

fn column(name: &'static str, width: usize, align: Align) -> Column {
    Column { name, width, align }
}

fn stages(doc: &mut Document, report: &GroupReport) {
    let columns = vec![
        column("stage", 37, Align::Left),
        column("mean us", 9, Align::Right),
        column("share", 6, Align::Right),
        column("avg QD", 8, Align::Right),
        column("", 0, Align::Left),
    ];
    let row = |stage: &Stage| {
        let length = (stage.share.unwrap_or(0.0).clamp(0.0, 1.0) * BAR).round() as usize;
        let partly = if stage.time.n == report.group.latency.n {
            String::new()
        } else {
            format!(" (in {} of {})", stage.time.n, report.group.latency.n)
        };
        Line {
            cells: vec![
                stage.title.clone(),
                us(Some(stage.per_command_ns)),
                percent(stage.share),
                two(stage.l),
                format!("{}{partly}", "#".repeat(length)),
            ],
            depth: 0,
            style: Style::Plain,
        }
    };
    doc.table(columns, report.stages.iter().map(row).collect());
}

fn components(doc: &mut Document, report: &GroupReport) {
    let columns = vec![
        column("component", 45, Align::Left),
        column("n", 8, Align::Right),
        column("mean", 9, Align::Right),
        column("L", 7, Align::Right),
        column("p50", 9, Align::Right),
        column("p99", 9, Align::Right),
        column("p99.9", 9, Align::Right),
        column("(us)", 0, Align::Left),
    ];
    let figures = |name: String, time: &Distribution, l: Option<f64>, note: String| {
        vec![
            name,
            time.n.to_string(),
            us(time.mean_ns),
            two(l),
            percentile(time, "p50", time.p50_ns),
            percentile(time, "p99", time.p99_ns),
            percentile(time, "p99.9", time.p999_ns),
            note,
        ]
    };
    let row = |component: &Component| {
        let depth = usize::from(component.kind != Kind::Sum && component.parent.is_some());
        let style = if component.time.n == 0 {
            Style::Dim
        } else {
            Style::Plain
        };
        let cells = figures(
            component.component.clone(),
            &component.time,
            component.l,
            note(component),
        );
        Line {
            cells,
            depth,
            style,
        }
    };
    let mut lines: Vec<Line> = report.components.iter().map(row).collect();
    let group = &report.group;
    let cells = figures("end to end".into(), &group.latency, group.l, String::new());
    lines.push(Line {
        cells,
        depth: 0,
        style: Style::Strong,
    });
    doc.table(columns, lines);
}

/// What must be known beside a component's figures.
fn note(component: &Component) -> String {
    let mut notes = Vec::new();
    if let Some(bound) = component.bound_ns {
        notes.push(match bound {
            0 => "one clock".to_owned(),
            bound => format!("+-{} us", us(Some(bound as f64))),
        });
    }
    if component.time.negative > 0 {
        notes.push(format!("{} negative", component.time.negative));
    }
    if component.missing > 0 {
        let why = component.reason.as_deref().unwrap_or("not recorded");
        let within = component
            .shows_in
            .as_ref()
            .map(|at| format!(", its time is in `{at}`"))
            .unwrap_or_default();
        let how_many = if component.time.n > 0 {
            format!("n/a for {}: ", component.missing)
        } else {
            String::new()
        };
        notes.push(format!("{how_many}{why}{within}"));
    }
    notes.join("; ")
}

fn clock(doc: &mut Document, clock: &Clock) {
    let name = |name: &str, role: &str| {
        if name.is_empty() {
            role.to_owned()
        } else {
            name.to_owned()
        }
    };
    let (host, target) = (
        name(&clock.host, "the host"),
        name(&clock.target, "the target"),
    );
    let apart = |ns: i64| {
        let side = if ns < 0 { "behind" } else { "ahead" };
        format!("{} {side}", duration(ns.unsigned_abs() as f64))
    };
    let text = match (clock.bound_max_ns, clock.offset_ns, clock.last_offset_ns) {
        (Some(0), 0, 0) => format!("clock: {host} and {target} share one"),
        (Some(most), ..) => {
            let mean = clock.bound_mean_ns.filter(|mean| *mean != most as f64);
            format!(
                "clock: {target} is {} of {host} at the first command, {} at the last (drift {} ppm), known to +-{}{}",
                apart(clock.offset_ns),
                apart(clock.last_offset_ns),
                clock
                    .drift_ppm
                    .map_or_else(|| NOT_MEASURED.to_owned(), |ppm| format!("{ppm:.3}")),
                duration(most as f64),
                mean.map_or_else(String::new, |mean| format!(" (mean +-{})", duration(mean))),
            )
        }
        (None, ..) => format!("clock: the difference between {host} and {target} has no bound"),
    };
    doc.text(Style::Plain, 0, text);
}

fn books(doc: &mut Document, totals: &Totals) {
    if totals.in_order_of > 0 {
        doc.text(
            Style::Plain,
            0,
            format!("in order: {} of {}", totals.in_order, totals.in_order_of),
        );
    }
    let mut sides = Vec::new();
    if totals.host > 0 || totals.target == 0 {
        sides.push(format!("{} host", totals.host));
    }
    if totals.target > 0 {
        sides.push(format!("{} target", totals.target));
    }
    let mut line = format!("records: {}", sides.join(", "));
    if let Some(matched) = totals.matched {
        line.push_str(&format!("; {matched} matched"));
        if let Some(share) = totals.matched_of_host {
            line.push_str(&format!(" ({} of the host's", percent_of(share)));
            if let Some(inside) = totals.matched_of_inside.filter(|inside| *inside != share) {
                line.push_str(&format!(
                    ", {} of those inside the target's recording",
                    percent_of(inside)
                ));
            }
            line.push(')');
        }
    }
    doc.text(Style::Plain, 0, line);
    for (side, left) in [("host", &totals.host_left), ("target", &totals.target_left)] {
        let causes = list(Book::Left, left);
        if !causes.is_empty() {
            doc.text(Style::Plain, 0, format!("not matched, {side}: {causes}"));
        }
    }
    if totals.unfinished > 0 {
        doc.text(
            Style::Plain,
            0,
            format!("in flight when recording ended: {}", totals.unfinished),
        );
    }
    let misses = list(Book::Miss, &totals.misses);
    if !misses.is_empty() {
        doc.text(Style::Plain, 0, format!("points not taken: {misses}"));
    }
}
