//! What a reader of a recording needs a year later.
//!
//! Everything here is written as JSON inside the stream: it is small, and new
//! fields must not break old readers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Side of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The machine that sends commands (initiator).
    Host,
    /// The machine that has the drive.
    Target,
}

/// NVMe-oF transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

/// Whose code the commands pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// The Linux drivers.
    Linux,
    /// SPDK.
    Spdk,
}

/// First thing in each segment of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Side recorded.
    pub role: Role,
    /// Transport recorded.
    pub transport: Transport,
    /// Stack recorded.
    pub stack: Stack,
    /// One command in this many was recorded.
    pub sampling: u32,
    /// Salt of the sampling hash; both sides need the same.
    #[serde(default)]
    pub salt: u32,
    /// Filters in force, as given on the command line; empty when all commands were eligible.
    #[serde(default)]
    pub filters: Vec<String>,
    /// Host name of the machine.
    pub machine: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU architecture, as in `uname -m`.
    #[serde(default)]
    pub arch: String,
    /// /etc/machine-id.
    #[serde(default)]
    pub machine_id: String,
    /// /proc/sys/kernel/random/boot_id: two recordings with the same one share a clock.
    #[serde(default)]
    pub boot_id: String,
    /// Version of the tool that recorded.
    pub version: String,
    /// CLOCK_MONOTONIC when the recording began, ns.
    #[serde(with = "crate::num::big")]
    pub start_ns: u64,
    /// Wall clock (ns since 1970) minus CLOCK_MONOTONIC at that moment.
    #[serde(with = "crate::num::big")]
    pub wall_minus_mono_ns: i64,
    /// Every hook: how it was attached, or what replaced it.
    #[serde(default)]
    pub hooks: Vec<HookState>,
    /// Points no hook of this recording can give, with the reason.
    #[serde(default)]
    pub missing: BTreeMap<String, String>,
}

impl Header {
    /// Whether this stands for a header that was filtered out of an NDJSON
    /// stream: role, transport, stack, sampling and machine come from the
    /// commands' lines, all else is unknown (empty, 0).
    pub fn is_rebuilt(&self) -> bool {
        self.version.is_empty()
    }
}

/// What became of one hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookState {
    /// Name of the hook's program.
    pub program: String,
    /// Kernel function or tracepoint.
    pub function: String,
    /// `fentry`, `fexit`, `kprobe`, `raw_tp`, or `absent`.
    pub how: String,
    /// Why it is absent, or what stands in for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// One NVMe-oF queue's connection. A reconnect makes a new one, so nothing can
/// be matched across it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Id used by records of the same segment.
    pub id: u32,
    /// Address and port of this machine's end, `10.0.0.1:4420` or `[::1]:4420`
    /// (IPv4-mapped IPv6 addresses are written as IPv4).
    pub local: String,
    /// Address and port of the other end.
    pub remote: String,
    /// NVMe queue id; 0 is the admin queue.
    pub qid: u16,
    /// Controller id given by the target.
    #[serde(default)]
    pub cntlid: u16,
    /// Controller instance on the host (`nvme3` is 3); 0 on the target.
    #[serde(default)]
    pub instance: u32,
    /// Host NQN, where it can be read.
    #[serde(default)]
    pub hostnqn: String,
    /// Subsystem NQN, where it can be read.
    #[serde(default)]
    pub subnqn: String,
    /// Monotonic time of the first command seen on it, ns.
    #[serde(default, with = "crate::num::big")]
    pub since_ns: u64,
    /// In a joined stream the recording it comes from, or one of the same boot:
    /// index into [`JoinHeader::hosts`](crate::JoinHeader::hosts) of a host's
    /// connection, into [`JoinHeader::targets`](crate::JoinHeader::targets) of a
    /// target's; beyond the end when the header does not hold it. `None` in
    /// other streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<u32>,
}

/// A namespace as one machine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Id used by records of the same segment.
    pub id: u32,
    /// Name in reports: the disk users open (`nvme0n1`); on the target the backing device or file.
    pub name: String,
    /// Path device below a multipath disk (`nvme0c1n1`), else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Namespace id.
    #[serde(default)]
    pub nsid: u32,
    /// Subsystem NQN, where it can be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subnqn: String,
}

/// Exact number of commands of a group, sampled or not, since the recording began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Device id.
    pub dev: u32,
    /// Opcode.
    pub opcode: u8,
    /// Bytes per command.
    pub bytes: u32,
    /// Admin queue.
    #[serde(default)]
    pub admin: bool,
    /// Commands.
    #[serde(with = "crate::num::big")]
    pub commands: u64,
}

/// Counters of all commands, taken now and then; they only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Monotonic time of the reading, ns.
    #[serde(with = "crate::num::big")]
    pub at_ns: u64,
    /// One entry a group.
    pub groups: Vec<Count>,
}

/// Last thing in each segment. A segment without it was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// CLOCK_MONOTONIC when the recording ended, ns.
    #[serde(with = "crate::num::big")]
    pub end_ns: u64,
    /// Commands seen, sampled or not, that pass the filters.
    #[serde(with = "crate::num::big")]
    pub seen: u64,
    /// Commands chosen by the sampling hash.
    #[serde(with = "crate::num::big")]
    pub sampled: u64,
    /// Records written.
    #[serde(with = "crate::num::big")]
    pub written: u64,
    /// Sampled commands not written, per cause; a cause that did not occur is 0, not absent.
    #[serde(with = "crate::num::map")]
    pub lost: BTreeMap<String, u64>,
    /// Sampled commands still in flight when the recording ended.
    #[serde(with = "crate::num::big")]
    pub unfinished: u64,
    /// Points that could not be taken, per cause.
    #[serde(default, with = "crate::num::map")]
    pub misses: BTreeMap<String, u64>,
    /// Counters of all commands at the end.
    #[serde(default)]
    pub groups: Vec<Count>,
}
