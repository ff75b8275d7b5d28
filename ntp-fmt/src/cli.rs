//! The command line: rows in, a report out.

use crate::content;
use crate::model::{IntervalReport, Model};
use crate::{live, markdown, text};
use anyhow::{Context, Result, bail};
use clap::Parser;
use ntp_record::interrupt;
use ntp_record::row::Row;
use ntp_record::row_csv::CsvWriter;
use ntp_record::tool::{self, Commit, OutFile, Status};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::str::FromStr;

/// Name in messages.
pub const TOOL: &str = "ntp-fmt";

/// Longest row believed, bytes.
const MAX_ROW: usize = 16 << 20;
/// Give up on an input when so much of its beginning is no row, bytes.
const SNIFF: usize = 1 << 20;
/// Broken rows told one by one.
const TOLD: u64 = 3;
/// How a row begins, and nothing in the middle of one.
const BEGIN: &[u8] = b"{\"row\":";

/// A report to read, from the rows of ntp-stages
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ntp-fmt",
    version,
    after_help = "Examples:\n  \
        ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt\n  \
        ntp-stages joined.ntp | ntp-fmt --detail\n  \
        ntp-stages joined.ntp | ntp-fmt --format csv -o report.csv\n  \
        ntp-capture -t tcp | ntp-stages -i 10 | ntp-fmt     as it happens\n\n\
        Exit status: 0 done; 1 done, but rows were broken or cut off; 2 could not."
)]
pub struct Args {
    /// Every component of every group as well
    #[arg(long)]
    pub detail: bool,

    /// text, markdown, csv or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,

    /// Colour in text: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Write the report to this file (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,

    /// What ntp-stages wrote (default, and `-`: standard input)
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub input: String,
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal: $($(#[$doc:meta])* $variant:ident = $word:literal),*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($name::$variant),)*
                    _ => Err(format!("`{text}` is no {}: use one of {}", $what, [$($word),*].join(", "))),
                }
            }
        }
    };
}

words! {
    /// Look of a report.
    Format, "format":
    /// For people.
    Text = "text",
    /// For issues and mails.
    Markdown = "markdown",
    /// For spreadsheets: the same bytes as `ntp-stages --format csv`.
    Csv = "csv",
    /// For programs: one object.
    Json = "json"
}

words! {
    /// When text is coloured.
    Color, "choice of colour":
    /// On a terminal that can.
    Auto = "auto",
    /// Always.
    Always = "always",
    /// Never.
    Never = "never"
}

impl Color {
    /// Whether to colour.
    fn on(self, terminal: bool) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                terminal
                    && !set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// Runs the tool.
///
/// # Errors
/// When the input cannot be read or the output not be written.
pub fn run(args: &Args) -> Result<Status> {
    let (name, input): (&str, Box<dyn Read>) = if args.input == "-" {
        interrupt::outlive_the_first();
        ("standard input", Box::new(io::stdin()))
    } else {
        let file = File::open(&args.input).with_context(|| args.input.clone())?;
        if file.metadata().is_ok_and(|meta| meta.is_dir()) {
            bail!("{}: is a directory: name a file of rows", args.input);
        }
        (&args.input, Box::new(file))
    };
    tool::not_an_input(args.output.as_deref(), &[&args.input])?;
    let mut out = OutFile::text(args.output.as_deref(), Commit::AtEnd)?;
    let color = args.color.on(out.is_terminal());
    let status = format(name, &mut BufReader::new(input), args, color, &mut out)?;
    out.finish()?;
    Ok(status)
}

/// Reads rows to their end and writes the report.
///
/// # Errors
/// When the input holds no rows, and those of input and output.
pub fn format(
    name: &str,
    input: &mut impl BufRead,
    args: &Args,
    color: bool,
    out: &mut impl Write,
) -> Result<Status> {
    let mut rows = Rows {
        name,
        input,
        line: Vec::new(),
        again: false,
        number: 0,
        good: false,
        broken: 0,
        early: Vec::new(),
        skipped: 0,
        open: false,
        whole: false,
        complete: None,
    };
    match args.format {
        Format::Csv => csv(&mut rows, out)?,
        Format::Text | Format::Markdown | Format::Json => report(&mut rows, args, color, out)?,
    }
    let (broken, complete) = (rows.broken, rows.complete());
    if broken > 0 {
        tool::warn(TOOL, format_args!("{name}: {broken} broken rows left out"));
    }
    if !complete {
        tool::warn(
            TOOL,
            format_args!("{name}: cut off: the rows have no end; see what ntp-stages said"),
        );
    }
    Ok(if broken > 0 || !complete {
        Status::Missing
    } else {
        Status::Done
    })
}

fn csv(rows: &mut Rows<'_, impl BufRead>, out: &mut impl Write) -> Result<()> {
    let mut csv = CsvWriter::new(out);
    while let Some(row) = rows.next()? {
        match csv.row(&row) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                rows.lose(&error.to_string());
            }
            done => done?,
        }
        if matches!(row, Row::Interval(_)) {
            csv.flush()?;
        }
    }
    csv.flush()?;
    Ok(())
}

fn report(
    rows: &mut Rows<'_, impl BufRead>,
    args: &Args,
    color: bool,
    out: &mut impl Write,
) -> Result<()> {
    let mut model = Model::default();
    let mut intervals = 0u64;
    while let Some(row) = rows.next()? {
        match model.apply(row) {
            Ok(None) => {}
            Ok(Some(interval)) => {
                intervals += 1;
                match args.format {
                    // Somebody watches.
                    Format::Text => {
                        show(&model, &interval, intervals == 1, out)?;
                        out.flush()?;
                    }
                    _ => model.intervals.push(interval),
                }
            }
            Err(cause) => rows.lose(&cause),
        }
    }
    if intervals > 0 && args.format == Format::Text {
        writeln!(out)?;
    }
    match args.format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &model).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Format::Markdown => {
            if !model.intervals.is_empty() {
                writeln!(out, "```")?;
                for (i, interval) in model.intervals.iter().enumerate() {
                    show(&model, interval, i == 0, out)?;
                }
                writeln!(out, "```\n")?;
            }
            markdown::write(&content::document(&model, args.detail), out)?;
        }
        Format::Text | Format::Csv => {
            text::write(&content::document(&model, args.detail), color, out)?
        }
    }
    Ok(())
}

fn show(model: &Model, interval: &IntervalReport, first: bool, out: &mut impl Write) -> Result<()> {
    if first {
        writeln!(
            out,
            "{}",
            live::head(model.report.as_ref().and_then(|report| report.interval_s))
        )?;
    }
    for line in live::lines(interval) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Reads rows line by line.
struct Rows<'a, R> {
    name: &'a str,
    input: &'a mut R,
    line: Vec<u8>,
    /// What is left of the line is to be read.
    again: bool,
    number: u64,
    /// A row was read.
    good: bool,
    broken: u64,
    /// What was said of broken rows before the first good one: kept back,
    /// since the input may hold no rows at all.
    early: Vec<String>,
    /// Bytes of broken rows before the first good one.
    skipped: usize,
    /// A report began that has not ended.
    open: bool,
    /// It has come to the rows of the whole recording.
    whole: bool,
    /// Whether each report that ended, or that another one followed, had its
    /// totals; `None` before any.
    complete: Option<bool>,
}

impl<R: BufRead> Rows<'_, R> {
    /// The next row; broken ones are told of and left out.
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if !std::mem::take(&mut self.again) && !self.read()? {
                return Ok(None);
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let cause = if self.line.len() > MAX_ROW {
                "longer than any row".into()
            } else {
                match parse(&self.line) {
                    Ok(row) => {
                        self.good = true;
                        for text in self.early.drain(..) {
                            tool::warn(TOOL, text);
                        }
                        let Some(row) = row else { continue };
                        self.books(&row);
                        return Ok(Some(row));
                    }
                    Err(cause) => cause,
                }
            };
            self.lose(&cause);
            if !self.good {
                self.skipped += self.line.len();
                let (what, sure) = no_rows(&self.line);
                if sure || self.skipped > SNIFF {
                    bail!("{}: {what}", self.name);
                }
            }
            // Another report may have been appended to one that was cut off in a row.
            let rest = self.line.get(1..).unwrap_or_default();
            if let Some(at) = rest.windows(BEGIN.len()).position(|text| text == BEGIN) {
                self.line.drain(..=at);
                self.again = true;
            }
        }
    }

    /// Reads a line, one byte of what is too long for a row; false at the end.
    fn read(&mut self) -> Result<bool> {
        self.line.clear();
        let name = self.name;
        let mut limited = self.input.by_ref().take(MAX_ROW as u64 + 1);
        limited
            .read_until(b'\n', &mut self.line)
            .with_context(|| name.to_owned())?;
        if self.line.len() > MAX_ROW && !self.line.ends_with(b"\n") {
            self.input
                .skip_until(b'\n')
                .with_context(|| name.to_owned())?;
        }
        if !self.line.is_empty() {
            self.number += 1;
            return Ok(true);
        }
        match (self.good, self.broken) {
            (true, _) => Ok(false),
            (false, 0) => bail!("{name}: empty: ntp-stages wrote no rows; see what it said"),
            (false, _) => bail!("{name}: {NO_ROWS}"),
        }
    }

    /// Notes where reports begin and end.
    fn books(&mut self, row: &Row) {
        // A report by intervals has a second report row, before those of the whole.
        match row {
            Row::Totals(_) => (self.open, self.whole) = (false, false),
            Row::Report(report) => {
                if self.whole {
                    self.complete = Some(false);
                }
                (self.open, self.whole) = (true, report.interval_s.is_none());
            }
            Row::Group(group) if group.interval.is_none() => (self.open, self.whole) = (true, true),
            _ => self.open = true,
        }
        if !self.open {
            self.complete.get_or_insert(true);
        }
    }

    /// Whether every report came to its end.
    fn complete(&self) -> bool {
        !self.open && self.complete == Some(true)
    }

    fn lose(&mut self, cause: &str) {
        self.broken += 1;
        if self.broken > TOLD {
            return;
        }
        let text = format!("{}: line {}: {cause}", self.name, self.number);
        if self.good {
            tool::warn(TOOL, text);
        } else {
            self.early.push(text);
        }
    }
}

fn parse(line: &[u8]) -> Result<Option<Row>, String> {
    #[derive(serde::Deserialize)]
    struct Tag {
        row: String,
    }
    match serde_json::from_slice(line) {
        Ok(row) => Ok(Some(row)),
        Err(cause) => match serde_json::from_slice::<Tag>(line) {
            Ok(tag) if !ROWS.contains(&tag.row.as_str()) => Ok(None),
            _ => Err(format!("broken row: {cause}")),
        },
    }
}

/// Kinds of rows known here.
const ROWS: &[&str] = &[
    "report",
    "group",
    "stage",
    "component",
    "interval",
    "clock",
    "totals",
    "warning",
];

/// Said of an input that holds nothing of what is read here.
const NO_ROWS: &str = "no rows: ntp-stages writes what is read here";

/// What an input is that begins with no row, and whether that is sure.
fn no_rows(line: &[u8]) -> (&'static str, bool) {
    let begins = |with: &[u8]| line.starts_with(with);
    if begins(b"NTP\x1a")
        || begins(b"{\"ntp\"")
        || begins(&[0x1f, 0x8b])
        || begins(&[0x28, 0xb5, 0x2f, 0xfd])
    {
        ("a recording, not rows: use ntp-stages FILE | ntp-fmt", true)
    } else if begins(b"row,") {
        (
            "a table, not rows: run ntp-stages without --format csv",
            true,
        )
    } else {
        (NO_ROWS, false)
    }
}
