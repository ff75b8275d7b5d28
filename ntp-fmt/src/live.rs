//! One line a group and interval, as they come.

use crate::document::printable;
use crate::model::IntervalReport;
use crate::units::{label, percent, si, us, us_of};

/// Stages in the columns of a line: head and name of the stage.
const STAGES: &[(&str, &str)] = &[
    ("block", "host block layer"),
    ("driver", "host driver"),
    ("network", "network"),
    ("t.driver", "target driver"),
    ("storage", "storage"),
    ("not rec.", ""),
];

/// The two lines above the first interval.
pub fn head(seconds: Option<f64>) -> String {
    let every = seconds.map_or_else(String::new, |seconds| format!("every {seconds} s, "));
    let mut head = format!(
        "{every}per group: commands recorded, rate, latency, and each stage's share of the mean\n\
         {:>9}  {:<28} {:>8} {:>8} {:>9} {:>9} ",
        "time", "group", "n", "cmds/s", "mean us", "p99 us"
    );
    STAGES
        .iter()
        .for_each(|(name, _)| head.push_str(&format!(" {name:>8}")));
    head
}

/// One line a group.
pub fn lines(interval: &IntervalReport) -> Vec<String> {
    let time = format!("{:.1}s", interval.interval.interval.to_s);
    interval
        .groups
        .iter()
        .map(|report| {
            let group = &report.group;
            let mut line = format!(
                "{time:>9}  {:<28} {:>8} {:>8} {:>9} {:>9} ",
                printable(&label(&group.key, group.other)),
                group.latency.n,
                group.rate.map_or_else(|| "n/a".to_owned(), si),
                us(group.latency.mean_ns),
                us_of(group.latency.p99_ns),
            );
            for (_, name) in STAGES {
                let of = |stage: &&ntp_record::row::Stage| match *name {
                    "" => stage.stage.ends_with("(not recorded)"),
                    name => stage.stage == name,
                };
                let share = report.stages.iter().find(of).and_then(|stage| stage.share);
                line.push_str(&format!(" {:>8}", percent(share)));
            }
            line
        })
        .collect()
}
