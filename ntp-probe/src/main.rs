//! Can this machine be recorded?

use std::process::ExitCode;

fn main() -> ExitCode {
    ntp_record::tool::main("ntp-probe", |options: ntp_probe::Options| {
        ntp_probe::run(&options, &mut std::io::stdout().lock())
    })
}
