//! Merges host and target recordings by command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ntp_record::tool::main(ntp_join::cli::TOOL, ntp_join::cli::run)
}
