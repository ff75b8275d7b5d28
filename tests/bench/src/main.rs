//! Measures the analysis side: what a command costs from two recordings to a
//! report, and what a database needs for the same. docs/benchmarks.md has the
//! figures; `make bench` makes them anew.

mod load;
mod random;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Make recordings to measure with, and measure
#[derive(Parser)]
#[command(name = "ntp-bench", version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Write host.ntp and target.ntp, always the same
    Generate {
        /// Commands in each
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10_000_000)]
        commands: u64,
        /// Folder to write them to
        #[arg(short, long, value_name = "DIR", default_value = ".")]
        output: PathBuf,
    },
}

fn run(args: Args) -> Result<()> {
    match args.what {
        What::Generate { commands, output } => load::generate(commands, &output),
    }
}

fn main() -> ExitCode {
    ntp_record::tool::main("ntp-bench", |args: Args| {
        run(args).map(|()| ntp_record::tool::Status::Done)
    })
}
