//! A report to read, from rows.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = ntp_fmt::cli::Args::parse();
    ntp_record::tool::main(ntp_fmt::cli::TOOL, || ntp_fmt::cli::run(&args))
}
