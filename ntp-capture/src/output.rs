//! Where the recording goes.

use crate::options::Options;
use anyhow::{Context, Result, bail};
use ntp_record::tool::{Commit, OutFile};
use ntp_record::{Format, Writer};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

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
    writer: Writer<Sink>,
}

impl Output {
    /// Refuses what [`Output::open`] will refuse, as far as it can be told
    /// without touching anything.
    pub(crate) fn check(options: &Options) -> Result<()> {
        match options.output.as_deref().filter(|path| *path != "-") {
            None => {
                let binary = options.compress || options.format == Format::Binary;
                if binary && std::io::stdout().is_terminal() {
                    bail!(
                        "standard output is a terminal: redirect it, name a file with -o, or use \
                         --format ndjson{}",
                        if options.compress { " without -z" } else { "" }
                    );
                }
            }
            Some(path) => {
                let folder = Path::new(path)
                    .parent()
                    .filter(|p| !p.as_os_str().is_empty());
                if Path::new(path).is_dir() {
                    bail!("{path}: is a directory: name a file in it");
                }
                if let Some(folder) = folder
                    && !folder.is_dir()
                {
                    bail!("{path}: no such folder");
                }
            }
        }
        Ok(())
    }

    /// Opens the output; a file is written in place, so that a crash leaves
    /// what there was.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let path = options.output.as_deref();
        let out = if options.compress {
            // Compressed NDJSON is as little for a terminal as binary is.
            OutFile::create(path, Commit::InPlace, Format::Binary)?
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
        Ok(Self {
            name,
            writer: Writer::new(sink, options.format),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn writer(&mut self) -> &mut Writer<Sink> {
        &mut self.writer
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
