//! Opens an input, whatever it is: file or pipe, compressed or not, binary or NDJSON.

use crate::binary::{self, BinaryReader, MAGIC, SNIFF};
use crate::bytes::Bytes;
use crate::error::Error;
use crate::header::Header;
use crate::map::Map;
use crate::ndjson::NdjsonReader;
use crate::stream::{Format, Item, JoinHeader};
use std::fs::File;
use std::io::{self, Read};

/// Reads a stream item by item.
///
/// The encoding is recognised by the first bytes; gzip and zstd are undone.
/// Memory is bounded by the largest chunk, whatever the length of the input.
pub struct Reader {
    bytes: Bytes,
    body: Body,
    /// Segments opened and not closed, over the whole input.
    unclosed: u64,
    open: bool,
    damaged_bytes: u64,
}

enum Body {
    Unknown,
    Binary(BinaryReader),
    Ndjson(Box<NdjsonReader>),
}

impl Reader {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// When it is missing, empty, a directory, or no recording. What a pipe
    /// carries is seen at the first [`Reader::next`] only.
    pub fn open(path: &str) -> Result<Reader, Error> {
        if path == "-" {
            return Ok(Self::from_read("standard input", Box::new(io::stdin())));
        }
        let fail = |cause| Error::Io {
            name: path.into(),
            cause,
        };
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(Error::Directory { name: path.into() });
        }
        if !meta.is_file() {
            return Ok(Self::from_read(path, Box::new(file)));
        }
        // An empty file cannot be mapped, and some files of /proc call themselves empty.
        let mut reader = if meta.len() == 0 {
            Self::from_read(path, Box::new(file))
        } else {
            let map = Map::of(&file).map_err(fail)?;
            if crate::compress::recognise(map.bytes()).is_some() {
                drop(map);
                Self::from_read(path, Box::new(file))
            } else {
                Self::with(Bytes::map(path, map))
            }
        };
        reader.recognise()?;
        Ok(reader)
    }

    /// Reads from anything; `name` is used in messages.
    pub fn from_read(name: &str, read: Box<dyn Read + Send>) -> Reader {
        Self::with(Bytes::stream(name, crate::compress::undo(read)))
    }

    fn with(bytes: Bytes) -> Reader {
        Reader {
            bytes,
            body: Body::Unknown,
            unclosed: 0,
            open: false,
            damaged_bytes: 0,
        }
    }

    /// File name, or `standard input`.
    pub fn name(&self) -> &str {
        self.bytes.name()
    }

    /// The input in memory, when it is a plain file: its records stay where
    /// they lie as long as the map is held.
    pub fn map(&self) -> Option<&Map> {
        self.bytes.mapped()
    }

    /// Encoding of the input; `None` before anything of a pipe was read.
    pub fn format(&self) -> Option<Format> {
        match self.body {
            Body::Unknown => None,
            Body::Binary(_) => Some(Format::Binary),
            Body::Ndjson(_) => Some(Format::Ndjson),
        }
    }

    /// The next item; `None` at the end.
    ///
    /// Blocks until a whole chunk or line is there, never longer: a live pipe
    /// gives what it has.
    ///
    /// # Errors
    /// When the input cannot be read, is no recording, or comes from a newer
    /// format. Damage is an item, not an error.
    #[expect(
        clippy::should_implement_trait,
        reason = "items borrow from the reader, an Iterator's cannot"
    )]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, Error> {
        self.recognise()?;
        let item = match &mut self.body {
            Body::Unknown => None,
            Body::Binary(body) => body.next(&mut self.bytes)?,
            Body::Ndjson(body) => body.next(&mut self.bytes)?,
        };
        match &item {
            Some(
                Item::Header(Header { version, .. }) | Item::JoinHeader(JoinHeader { version, .. }),
            ) => {
                self.unclosed += u64::from(self.open);
                // Totals of a rebuilt header went the way of the header: that is no cut.
                self.open = !version.is_empty();
            }
            Some(Item::Totals(_) | Item::JoinTotals(_)) => self.open = false,
            Some(Item::Damage(damage)) => self.damaged_bytes += damage.bytes,
            _ => {}
        }
        Ok(item)
    }

    /// Segments read so far that have no totals: those recordings were cut
    /// off. The segment being read counts until its totals are read.
    pub fn without_totals(&self) -> u64 {
        self.unclosed + u64::from(self.open)
    }

    /// Whether each segment read so far has its totals.
    pub fn ended_cleanly(&self) -> bool {
        self.without_totals() == 0
    }

    /// What to say at the end of an input in which recordings were cut off;
    /// `None` when each has its totals.
    pub fn cut_off(&self) -> Option<String> {
        let whose = match self.without_totals() {
            0 => return None,
            1 => "a recording in it has",
            _ => "recordings in it have",
        };
        Some(format!(
            "{}: cut off: {whose} no totals, so what was lost while recording is not known",
            self.name()
        ))
    }

    /// Bytes lost so far, as told by [`Item::Damage`].
    pub fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// Finds out the encoding.
    fn recognise(&mut self) -> Result<(), Error> {
        if !matches!(self.body, Body::Unknown) {
            return Ok(());
        }
        // As much as a message quotes; the shortest stream is longer.
        self.bytes.want(8)?;
        let begin = self.bytes.peek();
        if begin.is_empty() && !self.bytes.is_cut() {
            return Err(Error::Empty {
                name: self.name().into(),
            });
        }
        let magic = &MAGIC[..MAGIC.len().min(begin.len())];
        self.body = if begin.starts_with(magic) {
            Body::Binary(BinaryReader::default())
        } else if begins_object(begin) {
            Body::Ndjson(Box::default())
        } else {
            // The first chunk or line may be damaged: is there another chunk?
            self.bytes.want(SNIFF)?;
            let begin = self.bytes.peek();
            if binary::has_head(&begin[..begin.len().min(SNIFF)]) {
                Body::Binary(BinaryReader::default())
            } else {
                // It gives up when there is no line either.
                Body::Ndjson(Box::default())
            }
        };
        Ok(())
    }
}

/// Whether this may be the beginning of a JSON object. A brace alone is not
/// enough: the first byte of a chunk may have been damaged into one.
fn begins_object(begin: &[u8]) -> bool {
    let mut text = begin.iter().filter(|byte| !byte.is_ascii_whitespace());
    text.next().is_none_or(|byte| *byte == b'{') && text.next().is_none_or(|byte| *byte == b'"')
}
