//! gzip and zstd, undone on the way in.

use crate::bytes::Cut;
use std::io::{self, BufReader, Read};

/// A compression recognised by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

/// First bytes of each compression.
const MAGICS: &[(Compression, &[u8])] = &[
    (Compression::Gzip, &[0x1f, 0x8b]),
    (Compression::Zstd, &[0x28, 0xb5, 0x2f, 0xfd]),
];

/// The compression that begins with these bytes.
pub(crate) fn recognise(begin: &[u8]) -> Option<Compression> {
    MAGICS
        .iter()
        .find(|(_, magic)| begin.starts_with(magic))
        .map(|(compression, _)| *compression)
}

/// Undoes compression while there is any.
pub(crate) fn undo(read: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    Box::new(Undo {
        state: State::Begin(Some(read)),
    })
}

struct Undo {
    state: State,
}

enum State {
    /// Nothing read yet.
    Begin(Option<Box<dyn Read + Send>>),
    Plain(Box<dyn Read + Send>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<Input>>),
    Zstd(Box<zstd::Decoder<'static, Input>>),
}

type Input = BufReader<io::Chain<io::Cursor<Vec<u8>>, Box<dyn Read + Send>>>;

impl Undo {
    fn begin(read: Option<Box<dyn Read + Send>>) -> io::Result<State> {
        let Some(mut read) = read else {
            return Ok(State::Plain(Box::new(io::empty())));
        };
        let mut begin = Vec::new();
        (&mut read).take(4).read_to_end(&mut begin)?;
        let compression = recognise(&begin);
        let chain = io::Cursor::new(begin).chain(read);
        Ok(match compression {
            None => State::Plain(Box::new(chain)),
            Some(Compression::Gzip) => {
                let input = BufReader::with_capacity(64 << 10, chain);
                State::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input)))
            }
            Some(Compression::Zstd) => {
                let input = BufReader::with_capacity(64 << 10, chain);
                State::Zstd(Box::new(zstd::Decoder::with_buffer(input)?))
            }
        })
    }
}

impl Read for Undo {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let State::Begin(read) = &mut self.state {
            self.state = Self::begin(read.take())?;
        }
        match &mut self.state {
            State::Begin(_) => Ok(0),
            State::Plain(read) => read.read(out),
            State::Gzip(read) => read.read(out).map_err(|cause| cut("gzip", cause)),
            State::Zstd(read) => read.read(out).map_err(|cause| cut("zstd", cause)),
        }
    }
}

/// Tells a damaged stream from a failed read: only the operating system's
/// errors carry a number.
fn cut(what: &str, cause: io::Error) -> io::Error {
    if cause.raw_os_error().is_some() || cause.kind() == io::ErrorKind::Interrupted {
        return cause;
    }
    let text = match cause.kind() {
        io::ErrorKind::UnexpectedEof => format!("the {what} stream is cut off"),
        _ => format!("the {what} stream is damaged: {cause}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, Cut(text))
}
