//! When a recording ends: by the clock or by a signal.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use std::io::{PipeReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When a recording ends, and how often it tells of its progress.
pub(crate) struct Limits {
    duration: Option<Duration>,
    interval: Duration,
    stopped: Arc<AtomicBool>,
    /// Readable once a signal came.
    woken: PipeReader,
}

impl Limits {
    /// From here on the first SIGINT, SIGTERM or SIGHUP ends the recording in
    /// order. A second ends the process: whoever reads the output may have
    /// stopped reading without closing it, and then nothing can be written.
    ///
    /// # Errors
    /// The system refuses a thread or a pipe.
    pub(crate) fn new(duration: Option<Duration>, interval: Duration) -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        // Threads made from here on inherit it: only the one below takes signals.
        set.thread_block().context("signals")?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (woken, mut wake) = std::io::pipe().context("signals")?;
        let told = Arc::clone(&stopped);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                while let Ok(signal) = set.wait() {
                    if told.swap(true, Ordering::SeqCst) {
                        std::process::exit(128 + signal as i32);
                    }
                    // The recording may be over: then nobody has to be woken.
                    let _ = wake.write_all(&[1]);
                }
            })
            .context("signals")?;
        Ok(Self {
            duration,
            interval,
            stopped,
            woken,
        })
    }

    /// Whether a recording that began then is to end.
    pub(crate) fn reached(&self, begin: Instant) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.duration.is_some_and(|d| begin.elapsed() >= d)
    }

    /// Time between progress lines; `None`: none are wanted.
    pub(crate) fn interval(&self) -> Option<Duration> {
        (!self.interval.is_zero()).then_some(self.interval)
    }

    /// Readable once a signal came.
    pub(crate) fn woken(&self) -> &PipeReader {
        &self.woken
    }
}
