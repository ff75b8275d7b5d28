//! Records one side of NVMe over Fabrics to a stream.

use ntp_capture::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    ntp_record::tool::main(ntp_capture::TOOL, |options: Options| {
        ntp_capture::run(&options)
    })
}
