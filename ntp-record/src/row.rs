//! The lines of a report: what ntp-stages writes and ntp-fmt (or jq, or a
//! spreadsheet) reads.
//!
//! One row is one JSON object on a line, told apart by its `row` field. Rows
//! come in this order: a [`Report`]; for each interval its groups and then an
//! [`Interval`]; at the end the groups of the whole recording, [`Clock`]s,
//! [`Totals`] and [`Warning`]s. A [`Group`] is followed by its [`Stage`]s and
//! [`Component`]s.
//!
//! Times are nanoseconds (`_ns`), rates are per second, shares are fractions
//! of 1. What was not measured is `null` or absent, never 0.

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "row", rename_all = "snake_case")]
pub enum Row {
    /// What was recorded, where, and how.
    Report(Report),
    /// Commands that share a key.
    Group(Group),
    /// One stage of a group.
    Stage(Stage),
    /// One component of a group.
    Component(Component),
    /// End of the rows of an interval.
    Interval(Interval),
    /// Difference of two machines' clocks.
    Clock(Clock),
    /// What became of every record.
    Totals(Totals),
    /// What a reader of the figures should know.
    Warning(Warning),
}

/// Which machines saw a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// Both machines, joined.
    Joined,
    /// The host alone.
    Host,
    /// The target alone.
    Target,
}

/// One machine of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub machine: String,
    /// Kernel release.
    pub kernel: String,
    /// `linux` or `spdk`.
    pub stack: String,
    /// `tcp` or `rdma`.
    pub transport: String,
    /// One command in this many was recorded.
    pub sampling: u32,
    /// Filters in force while recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
}

/// First row: what was recorded, where, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Hosts recorded; empty when the stream does not say.
    pub hosts: Vec<Machine>,
    /// Targets recorded; empty when the stream does not say.
    pub targets: Vec<Machine>,
    /// One command in this many; `None` when the stream does not say.
    pub sampling: Option<u32>,
    /// Keys of the groups.
    pub by: Vec<String>,
    /// Length of an interval, seconds, when rows come by interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
}

/// Value of a group's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeyValue {
    /// Bytes, queue, CPU, status ...
    Number(u64),
    /// A name.
    Text(String),
    /// The recording does not say.
    Unknown,
}

/// A group's key: names and values, in the order of `--by`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key(pub Vec<(String, KeyValue)>);

impl Key {
    /// Value of one part of the key.
    pub fn get(&self, name: &str) -> Option<&KeyValue> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
}

/// Where a rate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateIs {
    /// Every command was counted.
    Counted,
    /// Estimated from the sampled commands.
    Estimated,
}

/// The times of one thing over the commands of a group.
///
/// A percentile is the smallest time that at least that share of the commands
/// did not exceed (nearest rank), to three significant digits; mean, minimum
/// and maximum are exact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Commands measured.
    pub n: u64,
    /// Mean, ns.
    pub mean_ns: Option<f64>,
    /// Median, ns.
    pub p50_ns: Option<i64>,
    /// 99th percentile, ns.
    pub p99_ns: Option<i64>,
    /// 99.9th percentile, ns.
    pub p999_ns: Option<i64>,
    /// Smallest, ns.
    pub min_ns: Option<i64>,
    /// Largest, ns.
    pub max_ns: Option<i64>,
    /// Standard deviation, ns; of the end-to-end time only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev_ns: Option<f64>,
    /// Percentiles that so few commands cannot carry, as `p99`: fewer than ten lie beyond.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub few: Vec<String>,
    /// Commands whose time was negative; in all figures of this row.
    #[serde(default)]
    pub negative: u64,
}

/// Part of the recording's time, seconds since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Begin, seconds.
    pub from_s: f64,
    /// End, seconds.
    pub to_s: f64,
}

/// Commands that share a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Number of the group, to which its stages and components refer.
    pub group: u32,
    /// Interval of which this is; `None`: the whole recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// What the commands share.
    pub key: Key,
    /// Which machines saw them.
    pub view: View,
    /// The commands were too many kinds: this is what did not get a group of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
    /// End-to-end time: on the host, or what the target held when the host was not recorded.
    pub latency: Distribution,
    /// All commands of the group, sampled or not, where they were counted.
    pub commands: Option<u64>,
    /// Commands a second.
    pub rate: Option<f64>,
    /// Where the rate comes from.
    pub rate_is: Option<RateIs>,
    /// Bytes a second.
    pub bytes_per_s: Option<f64>,
    /// Time over which the rate is taken, seconds.
    pub seconds: Option<f64>,
    /// Mean number of commands in flight (Little's law: rate times mean).
    pub l: Option<f64>,
    /// Commands of a joined group whose target side is used.
    pub with_target: u64,
    /// Commands that ended with an error status.
    pub failed: u64,
    /// Commands that were tried again.
    pub retried: u64,
    /// Commands whose timeout ran out.
    pub timed_out: u64,
    /// Commands cancelled by the host.
    pub cancelled: u64,
    /// Name of the stage that took the most time.
    pub largest: Option<String>,
    /// Share of that stage.
    pub largest_share: Option<f64>,
}

/// One stage of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The group.
    pub group: u32,
    /// Interval of which this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Short name, the same for every stack (`network`).
    pub stage: String,
    /// Name in a report (`network (TCP/IP, NICs, wire)`).
    pub title: String,
    /// Mean over all commands of the group, ns: the stages add up to the mean latency.
    pub per_command_ns: f64,
    /// Part of the end-to-end time of the group.
    pub share: Option<f64>,
    /// Mean number of commands in the stage.
    pub l: Option<f64>,
    /// Over the commands that have the stage.
    #[serde(flatten)]
    pub time: Distribution,
}

/// How a component relates to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Adds to the end-to-end time.
    Sum,
    /// Adds to its parent.
    Part,
    /// Lies within its parent, which has more than this.
    Within,
}

/// One component of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// The group.
    pub group: u32,
    /// Interval of which this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Name.
    pub component: String,
    /// Its stage, by short name.
    pub stage: String,
    /// How it relates to the sum.
    pub kind: Kind,
    /// Component it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Part of the end-to-end time of the group.
    pub share: Option<f64>,
    /// Mean number of commands in it.
    pub l: Option<f64>,
    /// Over the commands in which it was measured.
    #[serde(flatten)]
    pub time: Distribution,
    /// Commands that passed it without its being measured.
    #[serde(default)]
    pub missing: u64,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Component in which the time that was not measured shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows_in: Option<String>,
    /// Of an estimate: largest error bound, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_ns: Option<u64>,
}

/// End of the rows of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Which interval.
    pub interval: Span,
    /// Groups it had.
    pub groups: u64,
    /// Records of commands that ended in it.
    pub records: u64,
}

/// Difference of the clocks of a host and a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The host, by machine name or address.
    pub host: String,
    /// The target, by machine name or address.
    pub target: String,
    /// Joined commands.
    pub n: u64,
    /// Target's clock minus host's at the first command, ns.
    pub offset_ns: i64,
    /// The same at the last command, ns.
    pub last_offset_ns: i64,
    /// How much faster the target's clock runs, parts per million.
    pub drift_ppm: Option<f64>,
    /// Mean half width of the interval that holds the true offset, ns.
    pub bound_mean_ns: Option<f64>,
    /// Largest half width, ns.
    pub bound_max_ns: Option<u64>,
    /// Joined commands without a bound.
    pub unbounded: u64,
}

/// What became of every record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Host records read, by ntp-join or here.
    pub host: u64,
    /// Target records read, by ntp-join or here.
    pub target: u64,
    /// Pairs; `None` when nothing was joined.
    pub matched: Option<u64>,
    /// Part of the host's records that were matched.
    pub matched_of_host: Option<f64>,
    /// Host records that began and ended while their target was recording.
    pub host_inside: Option<u64>,
    /// Matched records, as part of those.
    pub matched_of_inside: Option<f64>,
    /// Host records ntp-join left out, per cause.
    pub host_left: BTreeMap<String, u64>,
    /// Target records ntp-join left out, per cause.
    pub target_left: BTreeMap<String, u64>,
    /// Commands in the report.
    pub reported: u64,
    /// Commands left out of the report, per cause.
    pub left_out: BTreeMap<String, u64>,
    /// Commands whose components do not add up to their end-to-end time; anything but 0 is a bug.
    pub sum_mismatches: u64,
    /// Negative times of the computed wire.
    pub wire_negative: u64,
    /// Negative times elsewhere: points out of order.
    pub out_of_order: u64,
    /// Joined commands whose points are in causal order within the bound of the clock.
    pub in_order: u64,
    /// Joined commands that could be checked for it.
    pub in_order_of: u64,
    /// Records that came after their interval had been written; in the totals only.
    pub late: u64,
    /// Sampled commands the recorders lost, per cause.
    pub lost: BTreeMap<String, u64>,
    /// Points the recorders could not take, per cause.
    pub misses: BTreeMap<String, u64>,
    /// Commands still in flight when the recordings ended.
    pub unfinished: u64,
    /// Recordings (or joined streams) read.
    pub segments: u64,
    /// Of these, how many have no totals: they were cut off.
    pub cut_off: u64,
    /// Damaged parts of the input.
    pub damaged: u64,
    /// Bytes in them.
    pub damaged_bytes: u64,
}

/// What a reader of the figures should know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Kind of warning, for programs.
    pub code: String,
    /// Group it is about; `None`: the whole report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// One sentence, for people.
    pub text: String,
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the group's key")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Key, A::Error> {
                let mut key = Key::default();
                while let Some(entry) = map.next_entry()? {
                    key.0.push(entry);
                }
                Ok(key)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_json_with_its_key_in_order() {
        let key = Key(vec![
            ("size".into(), KeyValue::Number(4096)),
            ("op".into(), KeyValue::Text("read".into())),
            ("qid".into(), KeyValue::Unknown),
        ]);
        let time = Distribution {
            n: 3,
            mean_ns: Some(10.0 / 3.0),
            ..Distribution::default()
        };
        let row = Row::Stage(Stage {
            group: 1,
            interval: None,
            stage: "network".into(),
            title: "network (TCP/IP, NICs, wire)".into(),
            per_command_ns: 0.1,
            share: Some(0.25),
            l: None,
            time,
        });
        let line = serde_json::to_string(&row).unwrap();
        assert!(
            line.starts_with(r#"{"row":"stage","group":1,"stage":"network""#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap(), row);
        assert_eq!(
            serde_json::to_string(&key).unwrap(),
            r#"{"size":4096,"op":"read","qid":null}"#
        );
        assert_eq!(
            serde_json::from_str::<Key>(r#"{"size":4096,"op":"read","qid":null}"#).unwrap(),
            key
        );
    }
}
