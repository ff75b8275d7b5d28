//! Measures the analysis side: what a command costs from two recordings to a
//! report, and what a database needs for the same. docs/benchmarks.md has the
//! figures; `make bench` makes them anew.

mod bench;
mod compare;
mod csv;
mod load;
mod measure;
mod random;

use anyhow::{Context, Result};
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
    /// Write the records of a recording as CSV to standard output
    Csv {
        /// Recording
        #[arg(value_name = "FILE")]
        recording: String,
    },
    /// Measure ntp-join, ntp-stages and ntp-fmt, and DuckDB
    Run {
        /// Commands, for each a run
        #[arg(short = 'n', long, value_name = "N,...", value_delimiter = ',', default_values_t = [1_000_000, 10_000_000])]
        commands: Vec<u64>,
        /// Folder of the tools; that of this program by default
        #[arg(long, value_name = "DIR")]
        tools: Option<PathBuf>,
        /// Folder for the recordings, 352 bytes a command, removed afterwards
        #[arg(short, long, value_name = "DIR", default_value = ".")]
        folder: PathBuf,
        /// How often; the run of middling CPU time counts
        #[arg(long, value_name = "N", default_value_t = 3)]
        repeat: usize,
        /// Python that has DuckDB, and peer.py
        #[arg(long, value_names = ["PYTHON", "SCRIPT"], num_args = 2)]
        peer: Option<Vec<String>>,
    },
}

fn run(args: Args) -> Result<()> {
    match args.what {
        What::Generate { commands, output } => load::generate(commands, &output),
        What::Csv { recording } => csv::write(&recording),
        What::Run {
            commands,
            tools,
            folder,
            repeat,
            peer,
        } => {
            let own = std::env::current_exe()?;
            let beside = own.parent().context("no folder")?.to_owned();
            bench::run(&bench::Bench {
                tools: tools.unwrap_or(beside),
                folder,
                commands,
                repeat,
                peer: peer
                    .and_then(|peer| peer.try_into().ok())
                    .map(|[python, script]: [String; 2]| (python, script)),
            })
        }
    }
}

fn main() -> ExitCode {
    ntp_record::tool::main("ntp-bench", |args: Args| {
        run(args).map(|()| ntp_record::tool::Status::Done)
    })
}
