//! A report to read, from rows.

use std::process::ExitCode;

fn main() -> ExitCode {
    ntp_record::tool::main(ntp_fmt::cli::TOOL, |args: ntp_fmt::cli::Args| {
        ntp_fmt::cli::run(&args)
    })
}
