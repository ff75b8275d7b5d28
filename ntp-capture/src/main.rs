//! Records one side of NVMe over Fabrics to a stream.

use clap::Parser;
use ntp_capture::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    ntp_record::tool::main(ntp_capture::TOOL, || ntp_capture::run(&options))
}
