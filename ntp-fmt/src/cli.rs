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
const MAX_ROW: u64 = 16 << 20;

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
        number: 0,
        good: 0,
        broken: 0,
    };
    let complete = match args.format {
        Format::Csv => csv(&mut rows, out)?,
        Format::Text | Format::Markdown | Format::Json => report(&mut rows, args, color, out)?,
    };
    let broken = rows.broken;
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

fn csv(rows: &mut Rows<'_, impl BufRead>, out: &mut impl Write) -> Result<bool> {
    let mut csv = CsvWriter::new(out);
    let mut complete = false;
    while let Some(row) = rows.next()? {
        complete |= matches!(row, Row::Totals(_));
        let flush = matches!(row, Row::Interval(_));
        csv.row(&row)?;
        if flush {
            csv.flush()?;
        }
    }
    csv.flush()?;
    Ok(complete)
}

fn report(
    rows: &mut Rows<'_, impl BufRead>,
    args: &Args,
    color: bool,
    out: &mut impl Write,
) -> Result<bool> {
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
    Ok(model.totals.is_some())
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
    number: u64,
    good: u64,
    broken: u64,
}

impl<R: BufRead> Rows<'_, R> {
    /// The next row; broken ones are told of and left out.
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            self.line.clear();
            let mut limited = self.input.by_ref().take(MAX_ROW);
            if limited
                .read_until(b'\n', &mut self.line)
                .with_context(|| self.name.to_owned())?
                == 0
            {
                if self.good == 0 && self.broken == 0 {
                    bail!(
                        "{}: empty: ntp-stages wrote no rows; see what it said",
                        self.name
                    );
                }
                return Ok(None);
            }
            self.number += 1;
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match parse(&self.line) {
                Ok(Some(row)) => {
                    self.good += 1;
                    return Ok(Some(row));
                }
                // A kind of row that did not exist when this was built.
                Ok(None) => self.good += 1,
                Err(cause) => {
                    if self.good == 0 {
                        bail!("{}: {}", self.name, no_rows(&self.line));
                    }
                    self.lose(&cause);
                }
            }
        }
    }

    fn lose(&mut self, cause: &str) {
        self.broken += 1;
        if self.broken <= 3 {
            tool::warn(
                TOOL,
                format_args!("{}: line {}: {cause}", self.name, self.number),
            );
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

/// What an input is that does not begin with a row.
fn no_rows(line: &[u8]) -> &'static str {
    let begins = |with: &[u8]| line.starts_with(with);
    if begins(b"NTP\x1a")
        || begins(b"{\"ntp\"")
        || begins(&[0x1f, 0x8b])
        || begins(&[0x28, 0xb5, 0x2f, 0xfd])
    {
        "a recording, not rows: use ntp-stages FILE | ntp-fmt"
    } else if begins(b"row,") {
        "a table, not rows: run ntp-stages without --format csv"
    } else {
        "no rows: ntp-stages writes what is read here"
    }
}
