//! The lab's NVMe/TCP target in user space: see `ntp_lab::target`.

#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::process::ExitCode;

use clap::Parser;
use ntp_lab::target::{TargetOpts, serve};

/// An NVMe/TCP target that splits and interleaves as it is told, and logs every command
///
/// One namespace that reads as zeroes and forgets what is written, under every
/// NQN that a host asks for.
#[derive(Parser)]
#[command(name = "lab-target", version, help_expected = true)]
struct Cli {
    #[command(flatten)]
    opts: TargetOpts,
}

fn main() -> ExitCode {
    let Cli { opts } = Cli::parse();
    let served = TcpListener::bind(opts.listen).and_then(|listener| {
        eprintln!("lab-target: listening on {}", opts.listen);
        serve(&listener, &opts)
    });
    if let Err(e) = served {
        eprintln!("lab-target: {}: {e}", opts.listen);
    }
    ExitCode::from(2)
}
