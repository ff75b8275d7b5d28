//! Where the recording goes.

use crate::options::Options;
use anyhow::{Context, Result};
use ntp_record::Writer;
use ntp_record::tool::{Commit, OutFile};
use std::io::{self, Write};

/// Compressed or plain bytes to a file or standard output.
pub(crate) enum Sink {
    Plain(OutFile),
    Zstd(Box<zstd::Encoder<'static, OutFile>>),
}

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(out) => out.write(buf),
            Sink::Zstd(out) => out.write(buf),
        }
    }

    /// What was written until now can be read from here on, compressed or not.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(out) => out.flush(),
            Sink::Zstd(out) => out.flush(),
        }
    }
}

/// The recording being written.
pub(crate) struct Output {
    name: String,
    file: Option<String>,
    writer: Writer<Sink>,
}

impl Output {
    /// Opens the output; a file is written in place, so that a crash leaves
    /// what there was.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let path = options.output.as_deref();
        let out = if options.compress {
            // Compressed NDJSON is as little for a terminal as binary is.
            OutFile::create(path, Commit::InPlace, ntp_record::Format::Binary)?
        } else {
            OutFile::create(path, Commit::InPlace, options.format)?
        };
        let name = out.name().to_owned();
        let sink = if options.compress {
            let mut encoder = zstd::Encoder::new(out, 1).context("zstd")?;
            encoder.include_checksum(true).context("zstd")?;
            Sink::Zstd(Box::new(encoder))
        } else {
            Sink::Plain(out)
        };
        let file = path.filter(|p| *p != "-").map(str::to_owned);
        Ok(Self {
            name,
            file,
            writer: Writer::new(sink, options.format),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn writer(&mut self) -> &mut Writer<Sink> {
        &mut self.writer
    }

    /// Nothing was recorded: leaves no empty file behind.
    pub(crate) fn discard(self) {
        drop(self.writer);
        let Some(file) = self.file else { return };
        // A device or pipe named with -o is not ours to remove.
        if std::fs::metadata(&file).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            let _ = std::fs::remove_file(file);
        }
    }

    /// Writes what is left.
    pub(crate) fn finish(self) -> Result<()> {
        let ended = match self.writer.into_inner() {
            Sink::Plain(out) => out.finish(),
            Sink::Zstd(encoder) => encoder.finish().and_then(OutFile::finish),
        };
        // Its errors name the file.
        Ok(ended?)
    }
}
