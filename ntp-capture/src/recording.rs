//! The recording itself: from the ring buffer to the output, until it ends.

use crate::output::Output;
use crate::progress::Progress;
use crate::source::Source;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
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
/// Everything older than this has left, also for a reader of the output.
const FLUSH: Duration = Duration::from_secs(1);
/// How long commands in flight may take to end after the last one began.
const DRAIN: Duration = Duration::from_secs(1);

/// When a recording ends.
pub(crate) struct Limits {
    signals: SignalFd,
    duration: Option<Duration>,
    interval: Duration,
}

impl Limits {
    /// From here on SIGINT, SIGTERM and SIGHUP end the recording, not the process.
    pub(crate) fn new(duration: Option<Duration>, interval: Duration) -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().context("signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags).context("signals")?;
        Ok(Self {
            signals,
            duration,
            interval,
        })
    }

    fn signalled(&self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }
}

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
    while failed.is_none() {
        wait(source, limits)?;
        let stop = limits.signalled() || limits.duration.is_some_and(|d| begin.elapsed() >= d);
        failed = mover.all(source, output);
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
        if !limits.interval.is_zero() && reported.elapsed() >= limits.interval {
            reported += limits.interval;
            mover.progress.interval(now_ns()?, &source.stats()?);
        }
        if stop {
            break;
        }
    }

    source.stop();
    let drain = Instant::now();
    while failed.is_none() && source.in_flight() > 0 && drain.elapsed() < DRAIN {
        std::thread::sleep(Duration::from_millis(10));
        failed = mover.all(source, output);
    }
    let end_ns = now_ns()?;
    let unfinished = source.in_flight();
    source.close();
    if failed.is_none() {
        failed = mover.all(source, output);
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

/// Sleeps until records may wait or a signal came.
fn wait(source: &dyn Source, limits: &Limits) -> Result<()> {
    let mut fds = vec![PollFd::new(limits.signals.as_fd(), PollFlags::POLLIN)];
    fds.extend(source.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
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

    /// Moves all that waits now.
    fn all(&mut self, source: &mut dyn Source, output: &mut Output) -> Option<anyhow::Error> {
        loop {
            self.batch.clear();
            let n = source.records(&mut self.batch, BATCH);
            // A command's name is sent when it begins: after this, those of all
            // records of the batch are known.
            source.names(&mut self.names);
            for name in self.names.drain(..) {
                let failed = match &name {
                    Name::Connection(c) if self.known.insert((1, c.id)) => {
                        self.progress.apply(&Item::Connection(c.clone()));
                        write(output, |w| w.connection(c))
                    }
                    Name::Device(d) if self.known.insert((2, d.id)) => {
                        self.progress.apply(&Item::Device(d.clone()));
                        write(output, |w| w.device(d))
                    }
                    _ => None,
                };
                if failed.is_some() {
                    return failed;
                }
            }
            if n == 0 {
                return None;
            }
            let failed = write(output, |w| w.records(&self.batch));
            if failed.is_some() {
                return failed;
            }
            self.written += n as u64;
            self.progress.records(&self.batch);
            if n < BATCH {
                return None;
            }
        }
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
