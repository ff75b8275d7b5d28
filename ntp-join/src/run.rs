//! Reads all inputs in common order, joins, writes.

use crate::cli::TOOL;
use crate::joiner::{Joiner, Options};
use crate::report;
use anyhow::Result;
use ntp_record::stream::{Format, Item};
use ntp_record::tool::{self, Commit, OutFile, Status};
use ntp_record::{Header, Reader, Role, Writer};
use std::collections::HashMap;

/// What to join.
#[derive(Clone, Debug)]
pub struct Job {
    /// Recordings; `-` is standard input.
    pub files: Vec<String>,
    /// Output; standard output when absent.
    pub output: Option<String>,
    /// Encoding of the output.
    pub format: Format,
    /// How.
    pub options: Options,
}

/// Joins the files and tells on standard error what became of every record.
///
/// # Errors
/// When an input cannot be read or is no recording, or the output cannot be
/// written. Input that is damaged or cut off is read in part and ends with [`Status::Missing`].
pub fn run(job: &Job) -> Result<Status> {
    tool::at_most_one_stdin(&job.files)?;
    tool::not_an_input(job.output.as_deref(), &job.files)?;
    let mut readers = Vec::new();
    for file in &job.files {
        readers.push(Reader::open(file)?);
    }
    let out = OutFile::create(job.output.as_deref(), Commit::AtEnd, job.format)?;
    let mut writer = Writer::new(out, job.format);
    let mut joiner = Joiner::new(readers.len(), job.options);
    for (number, reader) in readers.iter().enumerate() {
        if let Some(map) = reader.map() {
            joiner.in_place(number, map);
        }
    }
    let mut damaged = false;
    let mut given = Given::default();
    while let Some(number) = joiner.next_input() {
        let reader = &mut readers[number];
        let name = reader.name().to_owned();
        match reader.next()? {
            Some(item) => {
                match &item {
                    Item::Damage(damage) => {
                        damaged = true;
                        tool::warn(TOOL, format_args!("{name}: {damage}"));
                    }
                    Item::JoinHeader(_) => anyhow::bail!(
                        "{name}: is joined already: give it to ntp-stages, or name the recordings it was made of"
                    ),
                    Item::Header(header) => given.note(header, number, &name)?,
                    _ => {}
                }
                joiner.push(number, &item);
                if matches!(item, Item::Records(_)) {
                    joiner.advance(&mut writer)?;
                }
            }
            None => {
                joiner.end_input(number);
                joiner.advance(&mut writer)?;
            }
        }
    }
    joiner.finish(&mut writer)?;
    let cut_off: Vec<String> = readers.iter().filter_map(Reader::cut_off).collect();
    for text in &cut_off {
        tool::warn(TOOL, text);
    }
    let matched = joiner.totals().matched;
    if matched > 0 || joiner.both_sides() {
        writer.into_inner().finish()?;
    }
    for line in report::lines(&joiner) {
        tool::warn(TOOL, line);
    }
    Ok(if matched == 0 || damaged || !cut_off.is_empty() {
        Status::Missing
    } else {
        Status::Done
    })
}

/// The recordings read so far, and the file each is in.
#[derive(Default)]
struct Given(HashMap<(Role, String, String, u64), (usize, String)>);

impl Given {
    /// Refuses a recording that was given before: every command of it would
    /// have two partners.
    fn note(&mut self, header: &Header, input: usize, file: &str) -> Result<()> {
        if header.boot_id.is_empty() {
            return Ok(());
        }
        let (boot, machine) = (header.boot_id.clone(), header.machine.clone());
        let recording = (header.role, boot, machine, header.start_ns);
        match self.0.insert(recording, (input, file.to_owned())) {
            Some((first, _)) if first == input => {
                anyhow::bail!("{file}: holds the same recording twice: give it once")
            }
            Some((_, first)) => {
                anyhow::bail!("{file}: the same recording as {first}: give it once")
            }
            None => Ok(()),
        }
    }
}
