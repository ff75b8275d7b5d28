//! `facts.json`: what a run was, what was injected, and how each tool ended.

use serde::{Deserialize, Serialize};

use crate::run::RunOpts;

/// How one tool ended in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRun {
    /// What it was, such as `capture host`.
    pub name: String,
    /// Its exit status; absent when it could not be started.
    pub status: Option<i32>,
    /// What went wrong; absent when nothing did.
    pub problem: Option<String>,
}

/// What is known of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// What was asked for.
    pub options: RunOpts,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The kernel's package and version.
    pub package: String,
    /// The disk on the host that fio used.
    pub disk: String,
    /// Address and port of the target.
    pub target: String,
    /// Whether both sides share one clock.
    pub one_clock: bool,
    /// The drive's delay, in nanoseconds: exact plus the timer's latency.
    pub drive_delay_ns: u64,
    /// Delay from host to target, in nanoseconds.
    pub net_delay_out_ns: u64,
    /// Delay from target to host, in nanoseconds.
    pub net_delay_back_ns: u64,
    /// How each tool ended.
    pub tools: Vec<ToolRun>,
    /// Guests that were lost before this run held, one line each.
    pub lost: Vec<String>,
    /// Seconds from the start to the first script, and to the end.
    pub boot_seconds: f64,
    /// See `boot_seconds`.
    pub total_seconds: f64,
}

impl Facts {
    /// Everything that went wrong, one line each; none: the run is whole.
    pub fn problems(&self) -> Vec<String> {
        let line = |t: &ToolRun| t.problem.as_ref().map(|p| format!("{}: {p}", t.name));
        self.tools.iter().filter_map(line).collect()
    }
}
