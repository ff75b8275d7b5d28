//! What a person sees on standard error while it records, and at the end: the
//! report of ntp-stages and ntp-fmt over what was recorded so far.

use crate::TOOL;
use crate::options::Options;
use anyhow::Result;
use ntp_ebpf::Stats;
use ntp_ebpf::hooks::{Hook, OBJECTS};
use ntp_fmt::model::Model;
use ntp_fmt::{content, live, text};
use ntp_record::cause::{Book, list};
use ntp_record::tool::warn;
use ntp_record::{Header, Item, Record, Totals, Transport};
use ntp_stages::Engine;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

/// Nothing seen for this long is worth a word.
const QUIET: Duration = Duration::from_secs(5);

/// Progress of a recording.
pub(crate) struct Progress {
    engine: Option<Engine>,
    model: Model,
    headed: bool,
    said_quiet: bool,
    lost: u64,
}

impl Progress {
    pub(crate) fn new(header: &Header, options: &Options) -> Self {
        let interval = options.interval.as_nanos();
        let engine = || {
            Engine::new(ntp_stages::Options {
                interval_ns: u64::try_from(interval).ok().filter(|ns| *ns > 0),
                ..ntp_stages::Options::default()
            })
        };
        let mut progress = Self {
            // Its rules do not know the points of RDMA yet.
            engine: (header.transport == Transport::Tcp).then(engine),
            model: Model::default(),
            headed: false,
            said_quiet: false,
            lost: 0,
        };
        progress.apply(&Item::Header(header.clone()));
        progress
    }

    /// Takes in what was written to the stream.
    pub(crate) fn apply(&mut self, item: &Item<'_>) {
        if let Some(engine) = &mut self.engine {
            engine.apply(item);
        }
    }

    pub(crate) fn records(&mut self, records: &[Record]) {
        self.apply(&Item::Records(records));
    }

    /// Says once that no command came, which is easily a wrong role or transport.
    pub(crate) fn quiet(
        &mut self,
        elapsed: Duration,
        seen: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        if self.said_quiet || elapsed < QUIET {
            return Ok(());
        }
        self.said_quiet = true;
        if seen()? == 0 {
            warn(
                TOOL,
                "no NVMe-oF command seen in 5 s: is the workload running, and is this the \
                 right role, transport and device?",
            );
        }
        Ok(())
    }

    /// Ends the interval at `now_ns`: a line per group, and what was lost since.
    pub(crate) fn interval(&mut self, now_ns: u64, stats: &Stats) {
        if let Some(engine) = &mut self.engine {
            engine.tick(now_ns);
            for row in engine.take_rows() {
                // Only a broken order of rows is an error, and these come from the engine.
                if let Ok(Some(interval)) = self.model.apply(row) {
                    let mut err = io::stderr().lock();
                    // Nobody is left to tell when standard error is gone.
                    if !self.headed && !interval.groups.is_empty() {
                        self.headed = true;
                        let every = self.model.report.as_ref().and_then(|r| r.interval_s);
                        let _ = writeln!(err, "{}", live::head(every));
                    }
                    for line in live::lines(&interval) {
                        let _ = writeln!(err, "{line}");
                    }
                }
            }
        }
        let lost = stats.lost.values().sum();
        if lost > self.lost {
            warn(
                TOOL,
                format_args!(
                    "{lost} sampled commands lost so far: a larger -s records fewer, a larger \
                     --buffer holds more"
                ),
            );
            self.lost = lost;
        }
    }

    /// The report of the whole recording and its books.
    pub(crate) fn summary(&mut self, totals: &Totals, options: &Options, name: &str) {
        warn(
            TOOL,
            format_args!("{} records written to {name}", totals.written),
        );
        if totals.written > 0
            && let Some(engine) = self.engine.take()
        {
            self.model.intervals.clear();
            for row in engine.finish() {
                let _ = self.model.apply(row);
            }
            let mut err = io::stderr().lock();
            let _ = writeln!(err);
            let _ = text::write(&content::document(&self.model, false), false, &mut err);
        }
        let lost: u64 = totals.lost.values().sum();
        if lost > 0 {
            warn(
                TOOL,
                format_args!(
                    "{lost} of {} sampled commands lost: {}",
                    totals.sampled,
                    list(Book::Lost, &totals.lost)
                ),
            );
        }
        let unseen = unseen(totals);
        if unseen > 0 {
            warn(
                TOOL,
                format_args!(
                    "up to {unseen} commands not seen, the kernel having skipped the program that \
                     begins a record: they are in no count"
                ),
            );
        }
        if totals.unfinished > 0 {
            warn(
                TOOL,
                format_args!("{} sampled commands had not ended", totals.unfinished),
            );
        }
        if let Some(n) = better_sampling(totals, options.sample) {
            warn(
                TOOL,
                format_args!(
                    "{} of {} commands are few: -s {n} on both sides would record about a thousand in the same time",
                    totals.written, totals.seen
                ),
            );
        }
    }
}

/// Commands of which the beginning was skipped, at most: nothing else knows of them.
fn unseen(totals: &Totals) -> u64 {
    let hooks = OBJECTS.iter().flat_map(|object| object.hooks);
    let first: BTreeSet<String> = hooks.filter(|hook| hook.last).map(Hook::skipped).collect();
    let counted = first.iter().filter_map(|cause| totals.misses.get(cause));
    counted.sum()
}

/// The -s that would have given about a thousand records, when this one gave
/// too few for a 99th percentile and a smaller one exists.
fn better_sampling(totals: &Totals, sample: u32) -> Option<u64> {
    const ENOUGH: u64 = 1000;
    (totals.seen > 0 && totals.written < ENOUGH && sample > 1)
        .then(|| (totals.seen / ENOUGH).clamp(1, u64::from(sample) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_records_name_the_sampling_that_gives_a_thousand() {
        let totals = |seen, written| Totals {
            seen,
            written,
            ..Totals::default()
        };
        assert_eq!(better_sampling(&totals(20_000, 200), 100), Some(20));
        assert_eq!(better_sampling(&totals(500, 5), 100), Some(1));
        assert_eq!(better_sampling(&totals(500, 500), 1), None);
        assert_eq!(better_sampling(&totals(1_000_000, 10_000), 100), None);
        assert_eq!(better_sampling(&totals(0, 0), 100), None);
    }

    #[test]
    fn a_skipped_beginning_is_a_command_not_seen() {
        let mut totals = Totals::default();
        for (cause, n) in [("h_setup_skipped", 3), ("h_done_skipped", 5)] {
            totals.misses.insert(cause.into(), n);
        }
        assert_eq!(unseen(&totals), 3);
        totals.misses = [("t_init_skipped".to_owned(), 2)].into();
        assert_eq!(unseen(&totals), 2);
    }

    #[test]
    fn every_cause_of_the_recorder_has_words() {
        use ntp_ebpf::shared::{STATS, StatKind};
        use ntp_record::cause::CAUSES;
        let known = |book, code| CAUSES.iter().any(|(b, c, _)| *b == book && *c == code);
        assert!(known(Book::Lost, "not_written"));
        for kind in STATS {
            match *kind {
                StatKind::Lost(code) => assert!(known(Book::Lost, code), "{code}"),
                StatKind::Miss(code) => assert!(known(Book::Miss, code), "{code}"),
                StatKind::Seen | StatKind::Sampled | StatKind::Emitted => {}
            }
        }
    }
}
