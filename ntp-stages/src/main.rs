//! Where the time of commands went.

use std::process::ExitCode;

fn main() -> ExitCode {
    ntp_record::tool::main(ntp_stages::cli::TOOL, |args: ntp_stages::cli::Args| {
        ntp_stages::cli::run(&args)
    })
}
