//! The bytes of an input: a mapped file, or a window sliding over a pipe.

use crate::error::Error;
use crate::map::Map;
use crate::stream::Damage;
use std::collections::VecDeque;
use std::io::{self, Read};

/// An input, seen through the bytes not yet consumed.
pub(crate) struct Bytes {
    name: String,
    source: Source,
    /// Offset of the first byte not yet consumed.
    offset: u64,
    /// Where a decompressor lost its input, and why; read ahead of `offset`.
    cuts: VecDeque<(u64, String)>,
}

enum Source {
    Map {
        map: Map,
        at: usize,
        /// Where what is kept in memory begins.
        kept: usize,
    },
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
/// Read behind what is wanted: the padding and the head of the next chunk.
const AHEAD: usize = 32;
/// Of a mapped file so much is kept in memory behind what was consumed, for
/// whoever refers to it, bytes; more is given back in steps.
const KEPT: usize = 16 << 20;
const GIVEN_BACK: usize = 4 << 20;

impl Bytes {
    pub(crate) fn map(name: &str, map: Map) -> Self {
        Bytes {
            name: name.into(),
            source: Source::Map {
                map,
                at: 0,
                kept: 0,
            },
            offset: 0,
            cuts: VecDeque::new(),
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
            cuts: VecDeque::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The map, when the input is one.
    pub(crate) fn mapped(&self) -> Option<&Map> {
        match &self.source {
            Source::Map { map, .. } => Some(map),
            Source::Stream(_) => None,
        }
    }

    /// The bytes at hand.
    pub(crate) fn peek(&self) -> &[u8] {
        match &self.source {
            Source::Map { map, at, .. } => &map.bytes()[*at..],
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
            Source::Map { map, at, kept } => {
                *at += count;
                while *kept + KEPT + GIVEN_BACK <= *at {
                    map.forget(*kept, *kept + GIVEN_BACK);
                    *kept += GIVEN_BACK;
                }
            }
            Source::Stream(window) => window.start += count,
        }
        self.offset += count as u64;
    }

    /// Reads once; false at the end of the input.
    pub(crate) fn fill(&mut self) -> Result<bool, Error> {
        self.fill_with(0)
    }

    /// [`Bytes::fill`] for so many bytes more than are at hand.
    fn fill_with(&mut self, missing: usize) -> Result<bool, Error> {
        let Source::Stream(window) = &mut self.source else {
            return Ok(false);
        };
        match window.fill(missing) {
            Ok(more) => Ok(more),
            Err(cause) => match cause
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<Cut>())
            {
                Some(Cut(text)) => {
                    let at = self.offset + (window.end - window.start) as u64;
                    // Of many members lost at one place, one is told.
                    if self.cuts.back().is_none_or(|(last, _)| *last < at) {
                        self.cuts.push_back((at, text.clone()));
                    }
                    // There may be another member behind it.
                    Ok(true)
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
            if !self.fill_with(count - self.peek().len())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets a decompressor have the word on damage that it caused: `lost` ends
    /// before what is read next. `None` when nothing is lost.
    pub(crate) fn explain(&mut self, lost: Option<Damage>) -> Option<Damage> {
        let mut lost = lost;
        while self.cuts.front().is_some_and(|(at, _)| *at <= self.offset) {
            let Some((at, cause)) = self.cuts.pop_front() else {
                break;
            };
            match &mut lost {
                Some(damage) if damage.offset <= at => damage.cause = cause,
                Some(_) => {}
                None => {
                    lost = Some(Damage {
                        offset: at,
                        bytes: 0,
                        cause,
                    })
                }
            }
        }
        lost
    }

    /// Whether a decompressor lost its input, ahead of what was consumed.
    pub(crate) fn is_cut(&self) -> bool {
        !self.cuts.is_empty()
    }
}

impl Window {
    fn peek(&self) -> &[u8] {
        use zerocopy::IntoBytes;
        &self.words.as_bytes()[self.start..self.end]
    }

    fn room(&self) -> usize {
        self.words.len() * 8 - self.end
    }

    /// Reads once, for so many bytes more.
    fn fill(&mut self, missing: usize) -> io::Result<bool> {
        use zerocopy::IntoBytes;
        if self.eof {
            return Ok(false);
        }
        let little = self.end - self.start <= AHEAD;
        if little || self.room() < missing.max(STEP / 4) {
            // Moving keeps the remainder modulo 8, and with it the alignment.
            let to = self.start % 8;
            if self.start > to {
                self.words
                    .as_mut_bytes()
                    .copy_within(self.start..self.end, to);
                (self.start, self.end) = (to, to + self.end - self.start);
            }
            let needed = STEP.max(missing + AHEAD);
            if self.room() < needed {
                let size = (self.words.len() * 2).max((self.end + needed).div_ceil(8));
                // Fresh zero pages cost nothing until they are used.
                let mut words = vec![0; size];
                words[..self.words.len()].copy_from_slice(&self.words);
                self.words = words;
            }
        }
        // The rest of a long chunk, and little more that would have to be moved.
        let most = match missing > STEP / 4 {
            true => self.room().min(missing + AHEAD),
            false => self.room(),
        };
        let into = self.end..self.end + most;
        loop {
            match self.read.read(&mut self.words.as_mut_bytes()[into.clone()]) {
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
