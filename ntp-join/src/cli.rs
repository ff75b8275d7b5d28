//! The command line: recordings in, joined commands out.

use crate::Options;
use crate::run::{self, Job};
use anyhow::Result;
use clap::Parser;
use ntp_record::stream::Format;
use ntp_record::tool::Status;

/// Name in messages.
pub const TOOL: &str = "ntp-join";

/// Join the recordings of hosts and targets, command by command.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ntp-join",
    version,
    help_expected = true,
    before_help = "EXAMPLES\n  ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt\n  ntp-join --format ndjson host.ntp.gz target.ntp.gz | jq -c 'select(.op == \"write\")'",
    after_help = "EXIT STATUS\n  0  done\n  1  done, but nothing matched, or input was damaged or cut off\n  2  could not: usage, no such file, not a recording"
)]
pub struct Args {
    /// Encoding of the output: bin or ndjson
    #[arg(long, value_name = "FORMAT", default_value_t = Format::Binary)]
    format: Format,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,

    /// Hold at most so many records in memory, about 150 bytes each (330 of compressed inputs and pipes)
    #[arg(long, value_name = "RECORDS", default_value_t = Options::default().window, value_parser = window)]
    window: usize,

    /// Estimate the clocks' difference even where both recordings are of one boot, to check the estimate
    #[arg(long, hide = true)]
    estimate_always: bool,

    /// Recordings of both sides, any number of each, in any order; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

/// Fewer records than this cannot hold what is in flight.
const LEAST: usize = 1 << 12;

fn window(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(window) if window >= LEAST => Ok(window),
        Ok(_) => Err(format!("at least {LEAST}")),
        Err(_) => Err("not a number of records".into()),
    }
}

/// Joins as the arguments say: [`run::run`].
///
/// # Errors
/// When an input cannot be read or the output cannot be written.
pub fn run(args: Args) -> Result<Status> {
    run::run(&Job {
        files: args.files,
        output: args.output,
        format: args.format,
        options: Options {
            window: args.window,
            estimate_always: args.estimate_always,
            ..Options::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_option_has_a_help() {
        Args::command().debug_assert();
    }
}
