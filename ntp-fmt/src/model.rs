//! The rows of a report, put together again.

use ntp_record::row::{Clock, Component, Group, Interval, Report, Row, Stage, Totals, Warning};
use serde::Serialize;

/// A group with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// The group.
    #[serde(flatten)]
    pub group: Group,
    /// Its stages.
    pub stages: Vec<Stage>,
    /// Its components, in path order.
    pub components: Vec<Component>,
    /// Warnings about it.
    pub warnings: Vec<Warning>,
}

/// An interval with its groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntervalReport {
    /// Which interval.
    #[serde(flatten)]
    pub interval: Interval,
    /// Its groups.
    #[serde(rename = "of")]
    pub groups: Vec<GroupReport>,
}

/// A whole report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Model {
    /// What was recorded.
    pub report: Option<Report>,
    /// Groups of the whole recording.
    pub groups: Vec<GroupReport>,
    /// Intervals that were kept.
    pub intervals: Vec<IntervalReport>,
    /// Clocks compared.
    pub clocks: Vec<Clock>,
    /// What became of the records.
    pub totals: Option<Totals>,
    /// Warnings about the whole.
    pub warnings: Vec<Warning>,
    /// Groups of the interval that is being read.
    #[serde(skip)]
    pending: Vec<GroupReport>,
    /// Groups of the reports before this one: its rows are not about them.
    #[serde(skip)]
    before: usize,
}

impl Model {
    /// Takes in a row; gives back an interval that is complete with it.
    ///
    /// # Errors
    /// A row that belongs to a group that did not come.
    pub fn apply(&mut self, row: Row) -> Result<Option<IntervalReport>, String> {
        match row {
            Row::Report(report) => {
                self.report = Some(report);
                self.pending.clear();
                self.before = self.groups.len();
            }
            Row::Group(group) => {
                let into = if group.interval.is_some() {
                    &mut self.pending
                } else {
                    &mut self.groups
                };
                into.push(GroupReport {
                    group,
                    stages: Vec::new(),
                    components: Vec::new(),
                    warnings: Vec::new(),
                });
            }
            Row::Stage(stage) => self
                .group(stage.group, stage.interval.is_some())?
                .stages
                .push(stage),
            Row::Component(component) => {
                self.group(component.group, component.interval.is_some())?
                    .components
                    .push(component);
            }
            Row::Interval(interval) => {
                let groups = std::mem::take(&mut self.pending);
                return Ok(Some(IntervalReport { interval, groups }));
            }
            Row::Clock(clock) => self.clocks.push(clock),
            Row::Totals(totals) => self.totals = Some(totals),
            Row::Warning(warning) => match warning.group {
                Some(number) => self.group(number, false)?.warnings.push(warning),
                None => self.warnings.push(warning),
            },
        }
        Ok(None)
    }

    fn group(&mut self, number: u32, in_interval: bool) -> Result<&mut GroupReport, String> {
        let groups = if in_interval {
            &mut self.pending[..]
        } else {
            &mut self.groups[self.before..]
        };
        // Rows follow their group; only warnings come later.
        groups
            .iter_mut()
            .rev()
            .find(|group| group.group.group == number)
            .ok_or_else(|| format!("a row of group {number}, which has not come"))
    }
}
