//! The lab: two machines without hardware. Boots stock Debian kernels under
//! QEMU's own emulation (no KVM, no disk image), with fio, the NVMe-oF drivers
//! and the freshly built tools in an initramfs, and runs scripts in them.
//!
//! Three levels of use: [`run()`] does what `lab run` does, a whole recording
//! with two sides; [`Guest`] boots a machine and runs scripts in it by hand;
//! [`Cache`] fetches and prepares what a guest is made of.

#![forbid(unsafe_code)]

mod apt;
mod base;
mod boot;
mod cache;
mod console;
mod cpio;
mod extra;
mod facts;
mod fio;
mod guest;
mod kernels;
mod link;
mod modules;
mod qemu;
mod run;
mod shell;
mod sysroot;
pub mod target;
pub mod wire;

pub use boot::{BootOpts, default_bin_dir, with_tools};
pub use cache::{Cache, Prepared};
pub use facts::{Facts, ToolRun};
pub use fio::Fio;
pub use guest::{Guest, Output};
pub use link::GuestLost;
pub use qemu::Net;
pub use run::{Drive, RunOpts, is_lost, run};
pub use shell::{ShellOpts, shell};

/// One line on standard error about what the lab does.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    eprintln!("lab: {line}");
}
