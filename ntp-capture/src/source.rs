//! Where records come from: the kernel, or a test.

use anyhow::{Context, Result};
use ntp_ebpf::shared::Name;
use ntp_ebpf::{Readout, Session, Stats};
use ntp_record::Record;
use ntp_record::header::Count;
use std::os::fd::BorrowedFd;

/// What a recording reads from.
pub(crate) trait Source {
    /// Becomes readable when many records wait; fewer are found by looking.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Moves up to `max` records to `out`; returns how many.
    fn records(&mut self, out: &mut Vec<Record>, max: usize) -> usize;
    /// Moves new names to `out`.
    fn names(&mut self, out: &mut Vec<Name>);
    /// Counters since the beginning.
    fn stats(&self) -> Result<Stats>;
    /// Exact commands per group since the beginning.
    fn counts(&self) -> Result<Vec<Count>>;
    /// Sampled commands that have not ended.
    fn in_flight(&self) -> u64;
    /// Begins no more records; those in flight may end.
    fn stop(&mut self);
    /// Ends all.
    fn close(&mut self);
}

/// The programs in the kernel.
pub(crate) struct Kernel {
    session: Session,
    readout: Readout,
}

impl Kernel {
    pub(crate) fn new(mut session: Session) -> Result<Self> {
        let readout = Readout::new(&mut session)?;
        Ok(Self { session, readout })
    }
}

impl Source for Kernel {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readout.fd())
    }

    fn records(&mut self, out: &mut Vec<Record>, max: usize) -> usize {
        self.readout.records(out, max)
    }

    fn names(&mut self, out: &mut Vec<Name>) {
        self.readout.names(out);
    }

    fn stats(&self) -> Result<Stats> {
        let mut stats = self
            .readout
            .stats()
            .context("counters of the kernel programs")?;
        stats.misses.extend(self.session.misses());
        Ok(stats)
    }

    fn counts(&self) -> Result<Vec<Count>> {
        self.readout
            .counts()
            .context("counters of the kernel programs")
    }

    fn in_flight(&self) -> u64 {
        self.readout.in_flight()
    }

    fn stop(&mut self) {
        self.session.stop_sampling();
    }

    fn close(&mut self) {
        self.session.detach();
    }
}
