//! Rows as one flat table: a line per group, stage and component, units in the
//! names of the columns, nothing where nothing was measured.

use crate::row::{Component, Distribution, Group, Key, KeyValue, Row, Span, Stage};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes rows as CSV.
///
/// Columns are known from the first report row on; rows that are no figures
/// of a group (clocks, totals, warnings) are left to the other formats.
pub struct CsvWriter<W: Write> {
    out: csv::Writer<W>,
    by: Option<Vec<String>>,
    /// View and key by number of the group.
    keys: BTreeMap<u32, (String, Key)>,
}

/// Units of keys that have one.
const KEY_UNITS: &[(&str, &str)] = &[("size", "size_bytes")];

/// Columns before the keys.
const BEFORE: &[&str] = &["row", "from_s", "to_s", "group", "view"];

/// Columns after the keys.
const AFTER: &[&str] = &[
    "name",
    "stage",
    "kind",
    "parent",
    "n",
    "mean_ns",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "min_ns",
    "max_ns",
    "stddev_ns",
    "few_samples_for",
    "negative",
    "per_command_ns",
    "share",
    "queue_depth",
    "missing",
    "reason",
    "shows_in",
    "bound_ns",
    "commands",
    "rate_per_s",
    "rate_is",
    "bytes_per_s",
    "seconds",
    "with_target",
    "failed",
    "retried",
    "timed_out",
    "cancelled",
];

impl<W: Write> CsvWriter<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        let out = csv::WriterBuilder::new().flexible(false).from_writer(out);
        CsvWriter {
            out,
            by: None,
            keys: BTreeMap::new(),
        }
    }

    /// Writes one row.
    ///
    /// # Errors
    /// Those of the output; rows grouped by other keys than those before;
    /// [`InvalidData`](io::ErrorKind::InvalidData) for a row of a group that
    /// did not come, after which others can be written.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        match row {
            Row::Report(report) => {
                self.keys.clear();
                self.head(&report.by)
            }
            Row::Group(group) => self.group(group),
            Row::Stage(stage) => self.stage(stage),
            Row::Component(component) => self.component(component),
            Row::Interval(_) | Row::Clock(_) | Row::Totals(_) | Row::Warning(_) => Ok(()),
        }
    }

    /// Hands everything on to where it goes.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The output, with all that was written.
    ///
    /// # Errors
    /// Those of the output.
    pub fn into_inner(self) -> io::Result<W> {
        self.out
            .into_inner()
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Names of the columns, once.
    fn head(&mut self, by: &[String]) -> io::Result<()> {
        match &self.by {
            None => {
                let unit = |key: &'_ String| {
                    KEY_UNITS
                        .iter()
                        .find(|(name, _)| name == key)
                        .map_or(key.clone(), |(_, unit)| (*unit).into())
                };
                let keys: Vec<String> = by.iter().map(unit).collect();
                let names = BEFORE
                    .iter()
                    .copied()
                    .chain(keys.iter().map(String::as_str))
                    .chain(AFTER.iter().copied());
                self.out.write_record(names).map_err(io_error)?;
                self.by = Some(by.to_vec());
                Ok(())
            }
            Some(before) if before == by => Ok(()),
            Some(before) => Err(io::Error::other(format!(
                "rows by {} after rows by {}: one table holds one kind; give them one by one",
                by.join(","),
                before.join(",")
            ))),
        }
    }

    fn group(&mut self, group: &Group) -> io::Result<()> {
        if self.by.is_none() {
            // The row that names the keys was lost: the group has them too.
            let by: Vec<String> = group.key.0.iter().map(|(name, _)| name.clone()).collect();
            self.head(&by)?;
        }
        self.keys
            .insert(group.group, (word(&group.view), group.key.clone()));
        let mut line = Line::new("group", group.group, group.interval);
        let name = if group.other { "other" } else { "end to end" };
        line.push([name.into(), String::new(), String::new(), String::new()]);
        line.time(&group.latency);
        line.push([
            number_of(group.latency.mean_ns),
            "1".into(),
            number_of(group.l),
        ]);
        line.push([String::new(), String::new(), String::new(), String::new()]);
        line.push([number_of(group.commands), number_of(group.rate)]);
        line.push([group.rate_is.as_ref().map(word).unwrap_or_default()]);
        line.push([number_of(group.bytes_per_s), number_of(group.seconds)]);
        line.push(
            [
                group.with_target,
                group.failed,
                group.retried,
                group.timed_out,
                group.cancelled,
            ]
            .map(|n| n.to_string()),
        );
        self.write(line)
    }

    fn stage(&mut self, stage: &Stage) -> io::Result<()> {
        let mut line = Line::new("stage", stage.group, stage.interval);
        line.push([
            stage.title.clone(),
            stage.stage.clone(),
            String::new(),
            String::new(),
        ]);
        line.time(&stage.time);
        line.push([
            number_of(Some(stage.per_command_ns)),
            number_of(stage.share),
            number_of(stage.l),
        ]);
        self.write(line)
    }

    fn component(&mut self, component: &Component) -> io::Result<()> {
        let mut line = Line::new("component", component.group, component.interval);
        let parent = component.parent.clone().unwrap_or_default();
        line.push([
            component.component.clone(),
            component.stage.clone(),
            word(&component.kind),
            parent,
        ]);
        line.time(&component.time);
        line.push([
            String::new(),
            number_of(component.share),
            number_of(component.l),
        ]);
        line.push([component.missing.to_string()]);
        line.push([
            component.reason.clone().unwrap_or_default(),
            component.shows_in.clone().unwrap_or_default(),
        ]);
        line.push([number_of(component.bound_ns)]);
        self.write(line)
    }

    fn write(&mut self, line: Line) -> io::Result<()> {
        let missing = || {
            let text = format!("a row of group {}, which has not come", line.group);
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let by = self.by.as_ref().ok_or_else(missing)?;
        let (view, key) = self.keys.get(&line.group).ok_or_else(missing)?;
        let values = by.iter().map(|name| match key.get(name) {
            Some(KeyValue::Number(number)) => number.to_string(),
            Some(KeyValue::Text(text)) => text.clone(),
            Some(KeyValue::Unknown) | None => String::new(),
        });
        let mut fields: Vec<String> = line.before;
        fields.push(view.clone());
        fields.extend(values);
        let empty = AFTER.len().saturating_sub(line.after.len());
        fields.extend(line.after);
        fields.extend(std::iter::repeat_n(String::new(), empty));
        self.out.write_record(fields).map_err(io_error)
    }
}

/// The output's own error where it is one, so that a closed pipe is known.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// The fields of a line as they come.
struct Line {
    group: u32,
    before: Vec<String>,
    after: Vec<String>,
}

impl Line {
    fn new(row: &str, group: u32, interval: Option<Span>) -> Self {
        let from = number_of(interval.map(|span| span.from_s));
        let to = number_of(interval.map(|span| span.to_s));
        Line {
            group,
            before: vec![row.into(), from, to, group.to_string()],
            after: Vec::new(),
        }
    }

    fn push<const N: usize>(&mut self, fields: [String; N]) {
        self.after.extend(fields);
    }

    fn time(&mut self, time: &Distribution) {
        let Distribution {
            n,
            mean_ns,
            p50_ns,
            p99_ns,
            p999_ns,
            min_ns,
            max_ns,
            stddev_ns,
            few,
            negative,
        } = time;
        self.push([n.to_string(), number_of(*mean_ns)]);
        self.push([p50_ns, p99_ns, p999_ns, min_ns, max_ns].map(|ns| number_of(*ns)));
        self.push([number_of(*stddev_ns), few.join(" "), negative.to_string()]);
    }
}

/// A number as in JSON, so that a figure is the same in both; nothing for none.
fn number_of<T: serde::Serialize>(number: Option<T>) -> String {
    number
        .and_then(|number| serde_json::to_string(&number).ok())
        .unwrap_or_default()
}

/// The JSON word of an enum.
fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value)
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned()
}
