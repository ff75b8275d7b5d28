//! `lab`: runs the tools inside guests; see the library for what it does.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ntp_lab::{Cache, RunOpts, ShellOpts, is_lost, run, shell};

/// Two machines without hardware: stock kernels under emulation, fio, and the
/// tools
#[derive(Parser)]
#[command(
    name = "lab",
    version,
    after_help = "\
Exit status: 0 done; 1 a guest or a tool was lost on the way; 2 could not.
The cache is in $NTP_LAB_CACHE, else $XDG_CACHE_HOME/ntp-lab, else ~/.cache/ntp-lab."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record both sides of one load
    Run(Box<RunOpts>),
    /// Boot a guest and run standard input in it
    Shell(ShellOpts),
    /// Fetch and prepare kernels, so that later runs need no network
    Fetch {
        /// Families, such as 6.1 6.12
        #[arg(default_values = ["6.1", "6.12"])]
        kernels: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(opts) => record(&opts),
        // Above 255 there is no status; 1 is as good as any other.
        Command::Shell(opts) => shell(&opts).map(|s| ExitCode::from(u8::try_from(s).unwrap_or(1))),
        Command::Fetch { kernels } => fetch(&kernels),
    };
    match done {
        Ok(status) => status,
        Err(e) => {
            eprintln!("lab: {e:#}");
            ExitCode::from(if is_lost(&e) { 1 } else { 2 })
        }
    }
}

fn record(opts: &RunOpts) -> anyhow::Result<ExitCode> {
    let facts = run(opts)?;
    let problems = facts.problems();
    for p in &problems {
        eprintln!("lab: {p}");
    }
    let dir = opts.out.display();
    eprintln!(
        "lab: {} in {:.1} s: `{dir}`",
        facts.release, facts.total_seconds
    );
    Ok(if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn fetch(kernels: &[String]) -> anyhow::Result<ExitCode> {
    let cache = Cache::open()?;
    for kernel in kernels {
        let p = cache.prepare(kernel)?;
        eprintln!("lab: {}: {} {} is ready", p.family, p.package, p.version);
    }
    Ok(ExitCode::SUCCESS)
}
