//! Can this machine be recorded?

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = ntp_probe::Options::parse();
    ntp_record::tool::main("ntp-probe", || {
        ntp_probe::run(&options, &mut std::io::stdout().lock())
    })
}
