//! The bytes of an input: a mapped file, or a window sliding over a pipe.

use crate::error::Error;
use memmap2::Mmap;
use std::io::{self, Read};

/// An input, seen through the bytes not yet consumed.
pub(crate) struct Bytes {
    name: String,
    source: Source,
    /// Offset of the first byte not yet consumed.
    offset: u64,
    /// Why the input ended early, when a decompressor said so.
    cut: Option<String>,
}

enum Source {
    Map { map: Mmap, at: usize },
    Stream(Window),
}

/// Bytes `start..end` of `words` were read and not yet consumed. Words, so
/// that what begins at a multiple of 8 is aligned for a record.
struct Window {
    read: Box<dyn Read + Send>,
    words: Vec<u64>,
    start: usize,
    end: usize,
    eof: bool,
}

/// Marks an error of a decompressor: the input is cut off or damaged, what
/// was read before it stays good.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Cut(pub(crate) String);

/// Read at least so much at once.
const STEP: usize = 256 << 10;

impl Bytes {
    pub(crate) fn map(name: &str, map: Mmap) -> Self {
        Bytes {
            name: name.into(),
            source: Source::Map { map, at: 0 },
            offset: 0,
            cut: None,
        }
    }

    pub(crate) fn stream(name: &str, read: Box<dyn Read + Send>) -> Self {
        let window = Window {
            read,
            words: Vec::new(),
            start: 0,
            end: 0,
            eof: false,
        };
        Bytes {
            name: name.into(),
            source: Source::Stream(window),
            offset: 0,
            cut: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The bytes at hand.
    pub(crate) fn peek(&self) -> &[u8] {
        match &self.source {
            Source::Map { map, at } => &map[*at..],
            Source::Stream(window) => window.peek(),
        }
    }

    /// Offset of `peek()[0]` from the beginning of the input.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Drops the first `count` bytes at hand.
    pub(crate) fn consume(&mut self, count: usize) {
        match &mut self.source {
            Source::Map { at, .. } => *at += count,
            Source::Stream(window) => window.start += count,
        }
        self.offset += count as u64;
    }

    /// Reads once; false at the end of the input.
    pub(crate) fn fill(&mut self) -> Result<bool, Error> {
        let Source::Stream(window) = &mut self.source else {
            return Ok(false);
        };
        match window.fill() {
            Ok(more) => Ok(more),
            Err(cause) => match cause
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<Cut>())
            {
                Some(Cut(text)) => {
                    self.cut = Some(text.clone());
                    window.eof = true;
                    Ok(false)
                }
                None => Err(Error::Io {
                    name: self.name.clone(),
                    cause,
                }),
            },
        }
    }

    /// Reads until `count` bytes are at hand; false when the input ends before.
    pub(crate) fn want(&mut self, count: usize) -> Result<bool, Error> {
        while self.peek().len() < count {
            if !self.fill()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why the input ended early, once.
    pub(crate) fn take_cut(&mut self) -> Option<String> {
        self.cut.take()
    }
}

impl Window {
    fn peek(&self) -> &[u8] {
        use zerocopy::IntoBytes;
        &self.words.as_bytes()[self.start..self.end]
    }

    fn fill(&mut self) -> io::Result<bool> {
        use zerocopy::IntoBytes;
        if self.eof {
            return Ok(false);
        }
        if self.words.len() * 8 - self.end < STEP {
            // Moving keeps the remainder modulo 8, and with it the alignment.
            let to = self.start % 8;
            self.words
                .as_mut_bytes()
                .copy_within(self.start..self.end, to);
            (self.start, self.end) = (to, to + self.end - self.start);
            if self.words.len() * 8 - self.end < STEP {
                let grown = (self.words.len() * 2).max((self.end + STEP).div_ceil(8));
                self.words.resize(grown, 0);
            }
        }
        loop {
            match self.read.read(&mut self.words.as_mut_bytes()[self.end..]) {
                Ok(0) => {
                    self.eof = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
    }
}
