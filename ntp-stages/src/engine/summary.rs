//! What the engine says when it is asked: rates, rows, warnings.

use super::Engine;
use crate::group::{Checks, Group};
use crate::littles_law::estimated_rate;
use crate::report::{self, About, Rate};
use crate::stats::{PERCENTILES, needed};
use crate::warnings::Warning;
use ntp_record::row::{self, Key, RateIs, Row, Span};

impl Engine {
    pub(super) fn order(&self, number: u32) -> impl Ord + '_ {
        let entry = self.directory.entry(number);
        (entry.view, entry.values.is_none(), &entry.values)
    }

    pub(super) fn about(&self, number: u32, interval: Option<Span>, rate: Rate) -> About<'_> {
        let entry = self.directory.entry(number);
        let values = entry.values.clone().unwrap_or_default();
        About {
            number,
            interval,
            view: entry.view,
            key: Key(self.report.by.iter().cloned().zip(values).collect()),
            other: entry.values.is_none(),
            rate,
            hosts: &self.report.hosts,
            targets: &self.report.targets,
            missing: &self.missing,
        }
    }

    pub(super) fn estimated(&self, group: &Group, seconds: Option<f64>) -> Rate {
        // Records that stand for nobody knows how many make no rate.
        let known = seconds.filter(|_| self.sampling_seen.is_some() && group.standing_for > 0);
        let per_second = known.and_then(|seconds| estimated_rate(group.standing_for, seconds));
        Rate {
            per_second,
            bytes_per_second: known
                .filter(|s| *s > 0.0)
                .map(|seconds| group.bytes as f64 / seconds),
            is: per_second.map(|_| RateIs::Estimated),
            commands: None,
            seconds,
        }
    }

    fn rate(&self, number: u32, group: &Group) -> Rate {
        let entry = self.directory.entry(number);
        let counted = entry
            .values
            .as_deref()
            .and_then(|values| self.recordings.counted(entry.view, values));
        match counted {
            Some((counted, seconds)) => Rate {
                per_second: Some(counted.commands as f64 / seconds),
                bytes_per_second: Some(counted.bytes as f64 / seconds),
                is: Some(RateIs::Counted),
                commands: Some(counted.commands),
                seconds: Some(seconds),
            },
            None => self.estimated(group, self.recordings.seconds(entry.view)),
        }
    }

    /// The stream has ended: all rows that were not taken, and those of the whole recording.
    pub fn finish(mut self) -> Vec<Row> {
        self.close();
        self.settle();
        let mut rows = std::mem::take(&mut self.ready);
        rows.push(Row::Report(self.report.clone()));
        let mut groups: Vec<_> = self.total.iter().collect();
        groups.sort_by(|(a, x), (b, y)| {
            let most_first = y.latency.n().cmp(&x.latency.n());
            self.directory
                .entry(*a)
                .view
                .cmp(&self.directory.entry(*b).view)
                .then(most_first)
                .then_with(|| self.order(*a).cmp(&self.order(*b)))
        });
        let mut warnings = Vec::new();
        for (number, group) in groups {
            let rate = self.rate(number, group);
            rows.extend(report::rows(group, &self.about(number, None, rate)));
            warnings.extend(self.few_samples(number, group));
            if self.directory.entry(number).values.is_none() {
                let commands = group.latency.n();
                warnings.push(Warning::TooManyGroups {
                    commands,
                    most: self.directory.most(),
                });
            }
        }
        rows.extend(self.clocks.rows().into_iter().map(Row::Clock));
        let totals = self.totals();
        warnings.extend(self.warnings(&totals));
        rows.extend(warnings.iter().map(|warning| Row::Warning(warning.row())));
        rows.push(Row::Totals(totals));
        rows
    }

    fn totals(&self) -> row::Totals {
        let Checks {
            sum_mismatches,
            wire_negative,
            out_of_order,
            in_order,
            in_order_of,
        } = self.checks;
        let matched = self.books.matched;
        let part = |of: Option<u64>| match (matched, of) {
            (Some(matched), Some(of)) if of > 0 => Some(matched as f64 / of as f64),
            _ => None,
        };
        row::Totals {
            sum_mismatches,
            wire_negative,
            out_of_order,
            in_order,
            in_order_of,
            matched_of_host: part(Some(self.books.host)),
            matched_of_inside: part(self.books.host_inside),
            ..self.books.clone()
        }
    }

    fn few_samples(&self, group: u32, of: &Group) -> Option<Warning> {
        let n = of.latency.n();
        let lacking: Vec<_> = PERCENTILES
            .iter()
            .filter(|(part, whole, _)| n < needed(*part, *whole))
            .collect();
        let (part, whole, _) = lacking.last()?;
        // So many times more samples are needed; one in one is the most there is.
        let sampling_to_use = (self.sampling > 1)
            .then(|| u64::from(self.sampling) * n / needed(*part, *whole))
            .filter(|sampling| *sampling >= 1)
            .and_then(|sampling| u32::try_from(sampling).ok());
        let percentiles = lacking
            .iter()
            .map(|(.., name)| (*name).to_owned())
            .collect();
        Some(Warning::FewSamples {
            group,
            n,
            percentiles,
            sampling_to_use,
        })
    }

    fn warnings(&self, totals: &row::Totals) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |when: bool, warning: Warning| {
            if when {
                warnings.push(warning);
            }
        };
        let commands = totals.sum_mismatches;
        warn(commands > 0, Warning::SumMismatch { commands });
        warn(
            totals.out_of_order > 0,
            Warning::OutOfOrder {
                times: totals.out_of_order,
            },
        );
        warn(
            totals.wire_negative > 0,
            Warning::WireNegative {
                times: totals.wire_negative,
            },
        );
        let commands = totals.in_order_of - totals.in_order;
        warn(
            commands > 0,
            Warning::NotInOrder {
                commands,
                of: totals.in_order_of,
            },
        );
        let unbounded = self.clocks.rows().iter().map(|clock| clock.unbounded).sum();
        warn(
            unbounded > 0,
            Warning::NoBound {
                commands: unbounded,
            },
        );
        let (parts, bytes) = (totals.damaged, totals.damaged_bytes);
        warn(parts > 0 || bytes > 0, Warning::Damaged { parts, bytes });
        warn(
            totals.cut_off > 0,
            Warning::CutOff {
                recordings: totals.cut_off,
                of: totals.segments,
            },
        );
        for (cause, records) in &totals.lost {
            warn(
                *records > 0,
                Warning::Lost {
                    cause: cause.clone(),
                    records: *records,
                },
            );
        }
        for (what, records) in &totals.left_out {
            warn(
                true,
                Warning::LeftOut {
                    what: what.clone(),
                    records: *records,
                },
            );
        }
        warn(
            totals.late > 0,
            Warning::Late {
                records: totals.late,
            },
        );
        warn(
            self.unplaced > 0,
            Warning::Unplaced {
                commands: self.unplaced,
            },
        );
        let (least, most) = self.sampling_seen.unwrap_or((0, 0));
        warn(totals.reported > 0 && most == 0, Warning::SamplingUnknown);
        warn(
            self.books.matched.is_none() && least != most,
            Warning::SamplingDiffers { least, most },
        );
        warnings
    }
}
