//! What a person sees on standard error while it records, and at the end.

use crate::TOOL;
use crate::options::Options;
use anyhow::Result;
use ntp_ebpf::Stats;
use ntp_record::tool::warn;
use ntp_record::{Connection, Counts, Device, Header, Record, Totals};
use std::time::Duration;

/// Nothing seen for this long is worth a word.
const QUIET: Duration = Duration::from_secs(5);

/// Progress of a recording.
pub(crate) struct Progress {
    said_quiet: bool,
    lost: u64,
}

impl Progress {
    pub(crate) fn new(_header: &Header, _options: &Options) -> Self {
        Self {
            said_quiet: false,
            lost: 0,
        }
    }

    pub(crate) fn connection(&mut self, _connection: &Connection) {}

    pub(crate) fn device(&mut self, _device: &Device) {}

    pub(crate) fn records(&mut self, _records: &[Record]) {}

    pub(crate) fn counts(&mut self, _counts: &Counts) {}

    pub(crate) fn totals(&mut self, _totals: &Totals) {}

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
                "no NVMe-oF command seen in 5 s: is the workload running, and is this the right role, transport and device?",
            );
        }
        Ok(())
    }

    pub(crate) fn interval(&mut self, _elapsed: Duration, stats: &Stats) {
        self.losses(stats.lost.values().sum());
    }

    fn losses(&mut self, lost: u64) {
        if lost > self.lost {
            warn(
                TOOL,
                format_args!(
                    "{} sampled commands lost so far: a larger -s or --buffer loses fewer",
                    lost
                ),
            );
            self.lost = lost;
        }
    }

    pub(crate) fn summary(&mut self, totals: &Totals, name: &str) {
        warn(
            TOOL,
            format_args!("{} records written to {name}", totals.written),
        );
        let lost: u64 = totals.lost.values().sum();
        if lost > 0 {
            let causes: Vec<String> = totals
                .lost
                .iter()
                .filter(|(_, n)| **n > 0)
                .map(|(cause, n)| format!("{n} {cause}"))
                .collect();
            warn(
                TOOL,
                format_args!(
                    "{lost} of {} sampled commands lost: {}",
                    totals.sampled,
                    causes.join(", ")
                ),
            );
        }
        if totals.unfinished > 0 {
            warn(
                TOOL,
                format_args!("{} sampled commands had not ended", totals.unfinished),
            );
        }
    }
}
