//! The programs that run in the kernel, and how they get there.
//!
//! `bpf/` holds them in C; the build script compiles and this crate embeds
//! them. The way to a recording:
//!
//! 1. [`hooks::OBJECTS`], the table: which program is hooked where and what
//!    it gives.
//! 2. [`Machine::read`]: what this machine has ([`Facts`]) and its type
//!    information ([`btf::KernelBtf`]). Reads only.
//! 3. [`Plan::new`]: from table and facts to what will be hooked, how, and
//!    what will be missing. Pure.
//! 4. [`Session::load`] and [`Session::attach`]: the plan carried out.

pub mod btf;
mod error;
pub mod facts;
pub mod hooks;
mod load;
mod objects;
pub mod plan;
mod prepare;
mod readout;
pub mod shared;
mod sys;

pub use error::LoadError;
pub use facts::{Facts, Machine};
pub use load::Session;
pub use plan::Plan;
pub use prepare::{MAX_DEVICES, Options};
pub use readout::{Readout, Stats};
