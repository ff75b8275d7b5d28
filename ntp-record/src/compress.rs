//! gzip and zstd, undone on the way in.
//!
//! A file may hold several members one after the other (`gzip >> host.ntp`),
//! and one that was cut off may stand before a good one.

use crate::bytes::Cut;
use std::io::{self, BufRead, Read};

/// A compression recognised by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

/// Bytes that tell what begins.
const MAGIC: usize = 10;

/// The compression that begins with these bytes.
pub(crate) fn recognise(begin: &[u8]) -> Option<Compression> {
    match begin {
        // Method deflate, reserved flags clear (RFC 1952).
        [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => Some(Compression::Gzip),
        // A frame, or one to be skipped (RFC 8878).
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Some(Compression::Zstd)
        }
        _ => None,
    }
}

/// A member that may begin in the middle of damaged bytes: stricter than
/// [`recognise`], since every byte is asked.
fn resumes(begin: &[u8]) -> bool {
    match recognise(begin) {
        Some(Compression::Gzip) => {
            matches!(begin, [_, _, _, _, _, _, _, _, 0 | 2 | 4, system, ..] if *system < 14 || *system == 255)
        }
        Some(Compression::Zstd) => begin[0] == 0x28,
        None => false,
    }
}

/// Undoes compression; what is not compressed passes through. A member that
/// is damaged ends with one error that holds a [`Cut`]; reading on gives what
/// follows it.
pub(crate) fn undo(read: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    Box::new(Undo {
        state: State::Between(Tape::new(read)),
    })
}

struct Undo {
    state: State,
}

enum State {
    /// Before a member.
    Between(Tape),
    Plain(Tape),
    Gzip(Box<flate2::bufread::GzDecoder<Tape>>),
    Zstd(Box<zstd::Decoder<'static, Tape>>),
    End,
}

/// Given to a decoder at once at most, bytes: what it makes of them in the
/// call in which it finds damage is lost with it.
const GULP: usize = 1 << 10;

impl Read for Undo {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let (what, result) = match &mut self.state {
                State::End => return Ok(0),
                State::Plain(tape) => return tape.read(out),
                State::Between(tape) => {
                    tape.want(MAGIC)?;
                    self.begin()?;
                    continue;
                }
                State::Gzip(decoder) => ("gzip", decoder.read(out)),
                State::Zstd(decoder) => ("zstd", decoder.read(out)),
            };
            match result {
                Ok(0) => self.state = self.take().map_or(State::End, State::Between),
                Ok(count) => return Ok(count),
                // Only the operating system's errors carry a number.
                Err(cause) if cause.raw_os_error().is_some() => return Err(cause),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => return Err(cause),
                Err(cause) => {
                    if let Some(mut tape) = self.take()
                        && tape.resume()?
                    {
                        self.state = State::Between(tape);
                    }
                    let text = match cause.kind() {
                        io::ErrorKind::UnexpectedEof => format!("the {what} stream is cut off"),
                        // zstd's own word for a window above 128 MiB.
                        _ if cause.to_string().contains("too much memory") => format!(
                            "the {what} stream was compressed with --long or --ultra: compress it without"
                        ),
                        _ => format!("the {what} stream is damaged"),
                    };
                    return Err(io::Error::new(io::ErrorKind::InvalidData, Cut(text)));
                }
            }
        }
    }
}

impl Undo {
    /// Starts on what comes next.
    fn begin(&mut self) -> io::Result<()> {
        let State::Between(mut tape) = std::mem::replace(&mut self.state, State::End) else {
            return Ok(());
        };
        tape.begin();
        self.state = match recognise(tape.ahead()) {
            None => State::Plain(tape),
            Some(Compression::Gzip) => State::Gzip(Box::new(flate2::bufread::GzDecoder::new(tape))),
            Some(Compression::Zstd) => {
                State::Zstd(Box::new(zstd::Decoder::with_buffer(tape)?.single_frame()))
            }
        };
        Ok(())
    }

    /// The input under the decoder that is at its end.
    fn take(&mut self) -> Option<Tape> {
        match std::mem::replace(&mut self.state, State::End) {
            State::Between(tape) | State::Plain(tape) => Some(tape),
            State::Gzip(decoder) => Some(decoder.into_inner()),
            State::Zstd(decoder) => Some(decoder.finish()),
            State::End => None,
        }
    }
}

/// Compressed input that can be wound back a little: a decoder goes on for a
/// while in what follows a member that was cut off.
struct Tape {
    read: Box<dyn Read + Send>,
    /// History up to `at`, read ahead up to `end`, room behind it.
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// History no longer reaches back to the member's beginning.
    forgotten: bool,
    eof: bool,
}

/// How far a tape winds back, bytes: more than a block of either compression.
const HISTORY: usize = 256 << 10;
/// Room for one read, bytes.
const READ: usize = 64 << 10;

impl Tape {
    fn new(read: Box<dyn Read + Send>) -> Self {
        Tape {
            read,
            buffer: Vec::new(),
            at: 0,
            end: 0,
            forgotten: false,
            eof: false,
        }
    }

    /// Reads once; false at the end.
    fn more(&mut self) -> io::Result<bool> {
        if self.eof {
            return Ok(false);
        }
        if self.buffer.len() - self.end < READ {
            if self.at > 2 * HISTORY {
                self.drop_front(self.at - HISTORY);
                self.forgotten = true;
            } else {
                let mut buffer = vec![0; self.end + HISTORY];
                buffer[..self.end].copy_from_slice(&self.buffer[..self.end]);
                self.buffer = buffer;
            }
        }
        let count = self.read.read(&mut self.buffer[self.end..])?;
        self.end += count;
        self.eof = count == 0;
        Ok(count > 0)
    }

    fn ahead(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Reads until `count` bytes are ahead, or the end.
    fn want(&mut self, count: usize) -> io::Result<()> {
        while self.ahead().len() < count && self.more()? {}
        Ok(())
    }

    /// A member begins here: no winding back before it.
    fn begin(&mut self) {
        self.drop_front(self.at);
        self.forgotten = false;
    }

    fn drop_front(&mut self, count: usize) {
        self.buffer.copy_within(count..self.end, 0);
        self.at = self.at.saturating_sub(count);
        self.end -= count;
    }

    /// Winds to the next member after damage; false when there is none.
    fn resume(&mut self) -> io::Result<bool> {
        // Not to the very member that is damaged.
        self.at = usize::from(!self.forgotten).min(self.end);
        loop {
            while self.ahead().len() >= MAGIC {
                if resumes(self.ahead()) {
                    return Ok(true);
                }
                self.at += 1;
            }
            if !self.more()? {
                return Ok(false);
            }
        }
    }
}

impl BufRead for Tape {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.end {
            self.more()?;
        }
        let ahead = self.ahead();
        Ok(&ahead[..ahead.len().min(GULP)])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl Read for Tape {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.end {
            self.more()?;
        }
        let ahead = self.ahead();
        let count = ahead.len().min(out.len());
        out[..count].copy_from_slice(&ahead[..count]);
        self.consume(count);
        Ok(count)
    }
}
