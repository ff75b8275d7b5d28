//! Where the time of commands went.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = ntp_stages::cli::Args::parse();
    ntp_record::tool::main(ntp_stages::cli::TOOL, || ntp_stages::cli::run(&args))
}
