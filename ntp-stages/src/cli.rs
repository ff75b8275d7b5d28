//! The command line: a stream in, rows out.

use crate::{By, Engine, Options};
use anyhow::{Context, Result, bail};
use clap::Parser;
use ntp_record::row::Row;
use ntp_record::row_csv::CsvWriter;
use ntp_record::tool::{self, Commit, OutFile, Status};
use ntp_record::{Header, Item, Reader, Transport, interrupt};
use std::io::Write;
use std::str::FromStr;

/// Name in messages.
pub const TOOL: &str = "ntp-stages";

/// Where the time of commands went: statistics per group, stage and component, as rows
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ntp-stages",
    version,
    after_help = "Examples:\n  \
        ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt\n  \
        ntp-stages host.ntp | ntp-fmt                       one side alone\n  \
        ntp-stages --by op,size,device,qid joined.ntp | ntp-fmt --detail\n  \
        ntp-capture -t tcp | ntp-stages -i 10 | ntp-fmt     as it happens\n\n\
        Exit status: 0 done; 1 done, but there was no command, or input is damaged or cut off; 2 could not."
)]
pub struct Args {
    /// Group commands by these keys: see KEYS in ntp-stages(1)
    #[arg(long, value_name = "KEY,...", default_value = "op,size,device", value_parser = By::parse)]
    pub by: By,

    /// Rows for each interval of this many seconds as well
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<u64>,

    /// Groups at most; what is beyond shares one
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_groups: u32,

    /// Encoding of the rows: ndjson or csv
    #[arg(long, value_name = "FORMAT", default_value = "ndjson")]
    pub format: RowFormat,

    /// Write the rows to this file (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,

    /// Recording, or what ntp-join wrote (default, and `-`: standard input)
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub input: String,
}

/// Encoding of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// One JSON object a line.
    Ndjson,
    /// A flat table of groups, stages and components.
    Csv,
}

impl FromStr for RowFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ndjson" => Ok(RowFormat::Ndjson),
            "csv" => Ok(RowFormat::Csv),
            _ => Err(format!("`{text}` is no format: use ndjson or csv")),
        }
    }
}

/// Seconds on the command line, in ns.
fn seconds(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        // A year is enough for anybody, and small enough for all arithmetic.
        Ok(seconds) if (0.001..=31_536_000.0).contains(&seconds) => Ok((seconds * 1e9) as u64),
        _ => Err(format!(
            "`{text}` is no interval: use seconds, 0.001 or more"
        )),
    }
}

/// Runs the tool.
///
/// # Errors
/// When the input cannot be read or the output not be written.
pub fn run(args: &Args) -> Result<Status> {
    let mut reader = Reader::open(&args.input)?;
    if args.input == "-" {
        interrupt::outlive_the_first();
    }
    tool::not_an_input(args.output.as_deref(), &[&args.input])?;
    let mut out = OutFile::text(args.output.as_deref(), Commit::AtEnd)?;
    let status = stages(&mut reader, args, &mut out)?;
    out.finish()?;
    Ok(status)
}

/// Reads a stream to its end and writes the rows.
///
/// # Errors
/// Those of the input and of the output.
pub fn stages(reader: &mut Reader, args: &Args, out: &mut impl Write) -> Result<Status> {
    let mut engine = Engine::new(Options {
        by: args.by.clone(),
        interval_ns: args.interval,
        max_groups: args.max_groups as usize,
    });
    let mut out = Rows::new(args.format, out);
    let name = reader.name().to_owned();
    let mut damaged = false;
    while let Some(item) = reader.next()? {
        if let Item::Damage(damage) = &item {
            damaged = true;
            tool::warn(TOOL, format_args!("{name}: {damage}"));
        }
        if over_rdma(&item) {
            bail!(
                "{name}: recorded over RDMA, of which the stages are not told apart yet; \
                 ntp-join --format ndjson gives the times of each command"
            );
        }
        engine.apply(&item);
        let rows = engine.take_rows();
        if !rows.is_empty() {
            out.write(&rows)?;
        }
    }
    let rows = engine.finish();
    out.write(&rows)?;
    let empty = rows
        .iter()
        .any(|row| matches!(row, Row::Totals(totals) if totals.reported == 0));
    if empty {
        tool::warn(
            TOOL,
            format_args!("{name}: no whole command in it: nothing to report"),
        );
    }
    let cut_off = reader.cut_off();
    if let Some(text) = &cut_off {
        tool::warn(TOOL, text);
    }
    Ok(if empty || damaged || cut_off.is_some() {
        Status::Missing
    } else {
        Status::Done
    })
}

/// The rules know TCP's points only: over RDMA some numbers stand for others.
fn over_rdma(item: &Item<'_>) -> bool {
    let rdma = |header: &Header| header.transport == Transport::Rdma;
    match item {
        Item::Header(header) => rdma(header),
        Item::JoinHeader(join) => join.hosts.iter().chain(&join.targets).any(rdma),
        _ => false,
    }
}

/// Rows to their encoding.
enum Rows<W: Write> {
    Ndjson(W),
    Csv(Box<CsvWriter<W>>),
}

impl<W: Write> Rows<W> {
    fn new(format: RowFormat, out: W) -> Self {
        match format {
            RowFormat::Ndjson => Rows::Ndjson(out),
            RowFormat::Csv => Rows::Csv(Box::new(CsvWriter::new(out))),
        }
    }

    fn write(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            match self {
                Rows::Ndjson(out) => {
                    let mut line = serde_json::to_vec(row).context("a row")?;
                    line.push(b'\n');
                    out.write_all(&line)?;
                }
                Rows::Csv(out) => {
                    if let Row::Warning(warning) = row {
                        tool::warn(TOOL, &warning.text);
                    }
                    out.row(row)?;
                }
            }
        }
        // Somebody watches: a row that is ready goes out.
        match self {
            Rows::Ndjson(out) => out.flush()?,
            Rows::Csv(out) => out.flush()?,
        }
        Ok(())
    }
}
