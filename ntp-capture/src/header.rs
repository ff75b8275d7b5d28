//! The header: what a reader needs a year later.

use crate::options::Options;
use crate::recording::now_ns;
use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use ntp_ebpf::Plan;
use ntp_record::Header;
use ntp_record::header::Stack;
use std::time::Duration;

/// Makes the header of a recording that begins now.
pub(crate) fn make(options: &Options, plan: &Plan) -> Result<Header> {
    let uname = nix::sys::utsname::uname().context("uname")?;
    let start_ns = now_ns()?;
    let wall = clock_gettime(ClockId::CLOCK_REALTIME).context("CLOCK_REALTIME")?;
    let wall_ns = Duration::from(wall).as_nanos() as i64;
    Ok(Header {
        role: options.role.into(),
        transport: options.transport.into(),
        stack: Stack::Linux,
        sampling: options.sample,
        salt: 0,
        filters: options.filters(),
        machine: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        machine_id: line("/etc/machine-id"),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        version: env!("CARGO_PKG_VERSION").into(),
        start_ns,
        wall_minus_mono_ns: wall_ns - start_ns as i64,
        hooks: plan.states(),
        missing: plan
            .missing
            .iter()
            .map(|(point, why)| ((*point).into(), why.clone()))
            .collect(),
    })
}

/// A file's first line; empty when there is none (a container need not have a machine id).
fn line(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
