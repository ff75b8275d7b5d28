//! One machine made to look like two: the target's recording as another clock
//! would have given it. The difference of the clocks is then known exactly.

use anyhow::Result;
use ntp_record::{Format, Item, Joined, Reader, Record, Writer};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// A clock beside the machine's own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it shows at time 0 of the machine's clock, ns.
    pub ahead_ns: i64,
    /// How much faster it runs, parts per million.
    pub drift_ppm: i64,
}

impl Clock {
    /// What it shows at a moment of the machine's clock, ns.
    pub fn shows(self, ns: u64) -> u64 {
        let ns = i128::from(ns);
        let shown = ns + ns * i128::from(self.drift_ppm) / 1_000_000 + i128::from(self.ahead_ns);
        u64::try_from(shown).expect("a time")
    }

    /// How far it is ahead at a moment of the machine's clock, ns.
    pub fn ahead_at(self, ns: u64) -> i64 {
        i64::try_from(i128::from(self.shows(ns)) - i128::from(ns)).expect("a difference")
    }
}

/// Writes the recording `from` to `to` as a machine with that clock would have
/// recorded it.
///
/// # Errors
/// Those of the files.
pub fn on_another_clock(from: &Path, to: &Path, clock: Clock) -> Result<()> {
    let mut reader = Reader::open(&from.display().to_string())?;
    let mut writer = Writer::new(BufWriter::new(File::create(to)?), Format::Binary);
    while let Some(item) = reader.next()? {
        match item {
            Item::Header(mut header) => {
                // Another machine, so that nobody takes its clock for the host's.
                header.machine += "-elsewhere";
                header.machine_id = "0123456789abcdef0123456789abcdef".into();
                header.boot_id = "00000000-0000-4000-8000-000000000000".into();
                let mono = header.start_ns;
                header.start_ns = clock.shows(mono);
                header.wall_minus_mono_ns -= clock.ahead_at(mono);
                writer.header(&header)?;
            }
            Item::Connection(mut c) => {
                c.since_ns = clock.shows(c.since_ns);
                writer.connection(&c)?;
            }
            Item::Records(records) => {
                let records: Vec<Record> = records.iter().map(|r| moved(r, clock)).collect();
                writer.records(&records)?;
            }
            Item::Counts(mut counts) => {
                counts.at_ns = clock.shows(counts.at_ns);
                writer.counts(&counts)?;
            }
            Item::Totals(mut totals) => {
                totals.end_ns = clock.shows(totals.end_ns);
                writer.totals(&totals)?;
            }
            item => writer.item(&item)?,
        }
    }
    writer.flush()?;
    Ok(())
}

fn moved(record: &Record, clock: Clock) -> Record {
    let mut moved = *record;
    for (i, at) in moved.at.iter_mut().enumerate() {
        if record.present >> i & 1 != 0 {
            *at = clock.shows(*at);
        }
    }
    moved
}

/// How far the estimated offset of a pair is from the truth, and its bound, ns.
/// The moment of the offset is that of the pair on the host.
pub fn error(pair: &Joined, clock: Clock) -> (u64, u64) {
    let at = pair.host.at.iter().copied().filter(|at| *at > 0).min();
    let truth = clock.ahead_at(at.expect("a time"));
    (pair.offset_ns.abs_diff(truth), pair.offset_bound_ns)
}
