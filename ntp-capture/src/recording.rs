//! The recording itself: from the ring buffer to the output, until it ends.

use crate::limits::Limits;
use crate::output::Output;
use crate::progress::Progress;
use crate::source::Source;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use ntp_ebpf::Stats;
use ntp_ebpf::shared::Name;
use ntp_record::{Counts, Header, Item, Record, Totals};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Records moved at once: memory is bounded by it, whatever the rate.
const BATCH: usize = 4096;
/// Longest time a record waits in the ring buffer.
const LOOK: Duration = Duration::from_millis(100);
/// How long records are let gather while they come.
const GATHER: Duration = Duration::from_millis(10);
/// Batches moved before anything else is looked at: with a slow output the ring
/// buffer may never be found empty.
const BATCHES: usize = 8;
/// Everything older than this has left, also for a reader of the output.
const FLUSH: Duration = Duration::from_secs(1);
/// How long commands in flight may take to end after the last one began.
const DRAIN: Duration = Duration::from_secs(1);

/// How a recording ended.
pub(crate) struct End {
    pub(crate) totals: Totals,
    /// The output failed; nothing was written after.
    pub(crate) failed: Option<anyhow::Error>,
}

/// CLOCK_MONOTONIC, ns: the clock of the kernel programs.
pub(crate) fn now_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).context("CLOCK_MONOTONIC")?;
    Ok(Duration::from(time).as_nanos() as u64)
}

/// Records until a limit is reached or the output fails.
///
/// # Errors
/// The kernel's counters or the clock cannot be read. A failing output is no
/// error here: see [`End::failed`].
pub(crate) fn run(
    source: &mut dyn Source,
    output: &mut Output,
    header: &Header,
    limits: &Limits,
    progress: &mut Progress,
) -> Result<End> {
    let begin = Instant::now();
    let mut mover = Mover::new(progress);
    let mut failed = write(output, |w| w.header(header));
    let mut flushed = begin;
    let mut reported = begin;
    let mut moved = 0;
    while failed.is_none() {
        wait(source, limits, moved > 0)?;
        let stop = limits.reached(begin);
        (moved, failed) = mover.some(source, output);
        if failed.is_none() && flushed.elapsed() >= FLUSH {
            flushed = Instant::now();
            let counts = Counts {
                at_ns: now_ns()?,
                groups: source.counts()?,
            };
            mover.progress.apply(&Item::Counts(counts.clone()));
            failed = write(output, |w| w.counts(&counts).and_then(|()| w.flush()));
            if failed.is_none() {
                mover.flushed = mover.written;
            }
        }
        mover
            .progress
            .quiet(begin.elapsed(), || Ok(source.stats()?.seen))?;
        if let Some(interval) = limits.interval()
            && reported.elapsed() >= interval
        {
            reported += interval;
            mover.progress.interval(now_ns()?, &source.stats()?);
        }
        if stop {
            break;
        }
    }

    // Nothing that begins after this is recorded or counted.
    let end_ns = now_ns()?;
    source.stop();
    let drain = Instant::now();
    while failed.is_none() && source.in_flight() > 0 && drain.elapsed() < DRAIN {
        std::thread::sleep(Duration::from_millis(10));
        (_, failed) = mover.some(source, output);
    }
    source.close();
    let unfinished = source.in_flight();
    let mut left = 1;
    while failed.is_none() && left > 0 {
        (left, failed) = mover.some(source, output);
    }
    let stats = source.stats()?;
    // Of what an output that failed had taken, only what was flushed is sure.
    let written = if failed.is_none() {
        mover.written
    } else {
        mover.flushed
    };
    let mut totals = totals(&stats, written, unfinished, end_ns);
    totals.groups = source.counts()?;
    mover.progress.apply(&Item::Totals(totals.clone()));
    if failed.is_none() {
        failed = write(output, |w| w.totals(&totals).and_then(|()| w.flush()));
    }
    Ok(End { totals, failed })
}

/// The books: sampled = written + lost + unfinished.
fn totals(stats: &Stats, written: u64, unfinished: u64, end_ns: u64) -> Totals {
    let mut lost = stats.lost.clone();
    lost.insert("not_written".into(), stats.emitted.saturating_sub(written));
    Totals {
        end_ns,
        seen: stats.seen,
        sampled: stats.sampled,
        written,
        lost,
        unfinished,
        misses: stats.misses.clone(),
        groups: Vec::new(),
    }
}

/// Sleeps until records may wait or a signal came. The ring buffer is readable
/// whenever it holds anything: while records come, it is let fill for a moment,
/// so that they are moved by many.
fn wait(source: &dyn Source, limits: &Limits, busy: bool) -> Result<()> {
    let mut fds = vec![PollFd::new(limits.woken().as_fd(), PollFlags::POLLIN)];
    if !busy {
        fds.extend(source.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    }
    let longest = if busy { GATHER } else { LOOK };
    let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::ZERO);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("poll"),
    }
}

fn write(
    output: &mut Output,
    what: impl FnOnce(&mut ntp_record::Writer<crate::output::Sink>) -> io::Result<()>,
) -> Option<anyhow::Error> {
    let result = what(output.writer());
    // Its errors name the file.
    result.err().map(anyhow::Error::new)
}

/// Moves records, each name before the first record that refers to it.
struct Mover<'a> {
    progress: &'a mut Progress,
    batch: Vec<Record>,
    names: Vec<Name>,
    known: HashSet<(u8, u32)>,
    written: u64,
    /// Of these, flushed to the output.
    flushed: u64,
}

impl<'a> Mover<'a> {
    fn new(progress: &'a mut Progress) -> Self {
        Self {
            progress,
            batch: Vec::with_capacity(BATCH),
            names: Vec::new(),
            known: HashSet::new(),
            written: 0,
            flushed: 0,
        }
    }

    /// Moves what waits now, [`BATCHES`] at most; returns how many records.
    fn some(
        &mut self,
        source: &mut dyn Source,
        output: &mut Output,
    ) -> (usize, Option<anyhow::Error>) {
        let mut moved = 0;
        for _ in 0..BATCHES {
            match self.batch(source, output) {
                Ok(n) => moved += n,
                Err(failed) => return (moved, Some(failed)),
            }
            if self.batch.len() < BATCH {
                break;
            }
        }
        (moved, None)
    }

    fn batch(&mut self, source: &mut dyn Source, output: &mut Output) -> Result<usize> {
        self.batch.clear();
        let n = source.records(&mut self.batch, BATCH);
        // A command's name is sent when it begins: after this, those of all
        // records of the batch are known.
        source.names(&mut self.names);
        for name in self.names.drain(..) {
            match &name {
                Name::Connection(c) if self.known.insert((1, c.id)) => {
                    self.progress.apply(&Item::Connection(c.clone()));
                    output.writer().connection(c)?;
                }
                Name::Device(d) if self.known.insert((2, d.id)) => {
                    self.progress.apply(&Item::Device(d.clone()));
                    output.writer().device(d)?;
                }
                _ => {}
            }
        }
        if n > 0 {
            output.writer().records(&self.batch)?;
            self.written += n as u64;
            self.progress.records(&self.batch);
        }
        Ok(n)
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
