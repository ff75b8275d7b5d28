//! A file in memory, and records where they lie in it.

use crate::record::{RECORD_SIZE, Record};
use memmap2::{Mmap, UncheckedAdvice};
use std::fs::File;
use std::io;
use std::sync::Arc;
use zerocopy::FromBytes;

/// A mapped file. Clones share the map.
#[derive(Clone, Debug)]
pub struct Map(Arc<Mmap>);

impl Map {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the map is only read, and recordings are only appended to while they are
        // read: ntp-capture puts a new file in an old one's place. A file that another process
        // cuts short meanwhile ends this one with SIGBUS; it does not give wrong values.
        #[expect(unsafe_code, reason = "memory maps have no safe constructor")]
        let map = unsafe { Mmap::map(file) }?;
        Ok(Map(Arc::new(map)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Where records lie in the file, bytes; `None` when they are not part of the map.
    pub fn place(&self, records: &[Record]) -> Option<u64> {
        let at = records
            .as_ptr()
            .addr()
            .checked_sub(self.0.as_ptr().addr())?;
        let end = at.checked_add(size_of_val(records))?;
        (end <= self.0.len()).then_some(at as u64)
    }

    /// The record at a place, found good before.
    ///
    /// # Panics
    /// When no record can lie there: [`Map::place`] gives none such.
    #[inline]
    pub fn record(&self, at: u64) -> &Record {
        let at = at as usize;
        let record = Record::ref_from_bytes(&self.0[at..at + RECORD_SIZE]);
        record.unwrap_or_else(|_| panic!("no record lies at byte {at}"))
    }

    /// Gives memory back to the system; what is read there once more is
    /// fetched from the file again.
    pub(crate) fn forget(&self, from: usize, to: usize) {
        // SAFETY: the pages are those of a file, mapped shared and never written: dropped, they
        // are read from the file again, with the same content.
        #[expect(unsafe_code, reason = "other maps would lose their content")]
        let result =
            unsafe { (self.0).unchecked_advise_range(UncheckedAdvice::DontNeed, from, to - from) };
        // Then they stay: more memory is used, nothing else.
        let _ = result;
    }
}
