//! Manners the five tools share: exit status, messages, where output goes.

use crate::error::{Error, tidy};
use crate::stream::Format;
use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How a tool that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Exit status 0.
    Done,
    /// Exit status 1: done, but the answer is no or data is missing.
    Missing,
}

/// Runs a tool with its arguments and turns its end into an exit status: 0 or
/// 1 by [`Status`], 2 and one line on standard error for an error, also one of
/// usage, 0 and silence when whoever reads the output has closed the pipe.
pub fn main<A: clap::Parser>(
    tool: &'static str,
    run: impl FnOnce(A) -> Result<Status>,
) -> ExitCode {
    let ended = match A::try_parse() {
        Ok(args) => run(args),
        // Help and version are what was asked for.
        Err(words) if !words.use_stderr() => words
            .print()
            .map(|()| Status::Done)
            .context("standard output"),
        Err(words) => Err(anyhow::anyhow!(usage(&words.to_string()))),
    };
    match ended {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Missing) => ExitCode::from(1),
        Err(error) if broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            warn(tool, message(&error));
            ExitCode::from(2)
        }
    }
}

/// What the argument parser says over several lines, in one.
fn usage(words: &str) -> String {
    let cause: Vec<&str> = words
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let cause = cause.join(" ");
    format!(
        "{}; see --help",
        cause.strip_prefix("error: ").unwrap_or(&cause)
    )
}

/// One line on standard error, `tool: message`.
pub fn warn(tool: &str, message: impl Display) {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(io::stderr().lock(), "{tool}: {message}");
}

/// Whether a closed pipe is the root of an error.
pub fn broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// An error and its causes in one line, outermost first.
pub fn message(error: &anyhow::Error) -> String {
    let parts: Vec<String> = error
        .chain()
        .map(|cause| {
            cause
                .downcast_ref::<io::Error>()
                .map_or_else(|| cause.to_string(), tidy)
        })
        .collect();
    parts.join(": ").replace('\n', " ")
}

/// Refuses a list of inputs that names standard input (`-`) more than once.
pub fn at_most_one_stdin<S: AsRef<str>>(inputs: &[S]) -> Result<(), Error> {
    match inputs.iter().filter(|input| input.as_ref() == "-").count() {
        0 | 1 => Ok(()),
        _ => Err(Error::TwoStdin),
    }
}

/// Refuses an output that is one of the inputs: what was recorded would be gone.
///
/// # Errors
/// `output` and one of `inputs` are one file.
pub fn not_an_input<S: AsRef<str>>(output: Option<&str>, inputs: &[S]) -> Result<()> {
    let same_file = |path: &str| {
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some((meta.dev(), meta.ino()))
    };
    let Some(file) = output.filter(|path| *path != "-").and_then(same_file) else {
        return Ok(());
    };
    for input in inputs.iter().map(AsRef::as_ref).filter(|path| *path != "-") {
        if same_file(input) == Some(file) {
            bail!("{input}: is read and would be overwritten: name another file with -o");
        }
    }
    Ok(())
}

/// When a named output file gets its final name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// At [`OutFile::finish`]: a failure leaves nothing under the final name.
    AtEnd,
    /// At once: a crash leaves what was written until then (ntp-capture).
    InPlace,
}

/// Where a tool's data goes: standard output, or a file named with `-o`.
///
/// Buffered; errors name the file. Call [`OutFile::finish`] at the end.
#[derive(Debug)]
pub struct OutFile {
    name: String,
    out: Option<BufWriter<File>>,
    /// Temporary and final name.
    rename: Option<(PathBuf, PathBuf)>,
}

impl OutFile {
    /// Opens the output; `None` and `-` are standard output. Binary to a
    /// terminal is refused.
    pub fn create(path: Option<&str>, commit: Commit, format: Format) -> Result<Self> {
        let out = Self::text(path, commit)?;
        if format == Format::Binary
            && out
                .out
                .as_ref()
                .is_some_and(|out| out.get_ref().is_terminal())
        {
            bail!(
                "{} is a terminal: redirect it, name a file with -o, or use --format ndjson",
                out.name
            );
        }
        Ok(out)
    }

    /// [`OutFile::create`] for output that a terminal can show.
    pub fn text(path: Option<&str>, commit: Commit) -> Result<Self> {
        let Some(path) = path.filter(|path| *path != "-") else {
            let fd = io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .context("standard output")?;
            // What is no pipe, or may not be widened, stays as it is.
            let _ = fcntl(&fd, FcntlArg::F_SETPIPE_SZ(PIPE));
            let out = Some(BufWriter::with_capacity(BUFFER, File::from(fd)));
            return Ok(OutFile {
                name: "standard output".into(),
                out,
                rename: None,
            });
        };
        let target = Path::new(path);
        // A device or a pipe cannot be replaced by a file, only written to.
        let special = fs::metadata(target).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let rename =
            (commit == Commit::AtEnd && !special).then(|| (temporary(target), target.to_owned()));
        if target.is_dir() {
            bail!("{path}: is a directory: name a file in it");
        }
        if commit == Commit::InPlace && fs::symlink_metadata(target).is_ok_and(|m| m.is_file()) {
            // Not truncated: somebody may be reading the old one through a map.
            fs::remove_file(target).with_context(|| path.to_owned())?;
        }
        let open = rename.as_ref().map_or(target, |(temporary, _)| temporary);
        let file = File::create(open).with_context(|| path.to_owned())?;
        Ok(OutFile {
            name: path.into(),
            out: Some(BufWriter::with_capacity(BUFFER, file)),
            rename,
        })
    }

    /// File name, or `standard output`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a person reads along.
    pub fn is_terminal(&self) -> bool {
        self.out
            .as_ref()
            .is_some_and(|out| out.get_ref().is_terminal())
    }

    /// Writes what is buffered and gives the file its final name.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if let Some((temporary, target)) = self.rename.take() {
            fs::rename(&temporary, &target).map_err(|cause| {
                let _ = fs::remove_file(&temporary);
                named(&self.name, &cause)
            })?;
        }
        Ok(())
    }
}

/// Bytes in a pipe that the reader has not taken yet: with the 64 KiB of an
/// ordinary one the two would take turns every few hundred commands.
const PIPE: libc::c_int = 1 << 20;

/// Large enough that a chunk of records is written around it.
const BUFFER: usize = 64 << 10;

/// A name beside `target`, so that a rename stays within one file system.
fn temporary(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn named(name: &str, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("{name}: {}", tidy(cause)))
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(out) = &mut self.out else {
            return Ok(bytes.len());
        };
        out.write(bytes).map_err(|cause| named(&self.name, &cause))
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        out.flush().map_err(|cause| named(&self.name, &cause))
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.rename {
            // Unfinished: throw away the buffer as well as the file.
            if let Some(out) = self.out.take() {
                let _ = out.into_parts();
            }
            let _ = fs::remove_file(temporary);
        }
    }
}
