//! A host record and the target record of the same command.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One command as both machines saw it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Joined {
    /// What the host saw.
    pub host: Record,
    /// What the target saw.
    pub target: Record,
    /// Estimated target clock minus host clock at this command, ns.
    pub offset_ns: i64,
    /// Half width of the interval that holds the true offset, ns;
    /// `u64::MAX` when there is no bound.
    pub offset_bound_ns: u64,
}

const _: () = assert!(size_of::<Joined>() == 368);

/// Last thing in a joined stream: what became of every record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JoinTotals {
    /// Host records read.
    #[serde(with = "crate::num::big")]
    pub host: u64,
    /// Target records read.
    #[serde(with = "crate::num::big")]
    pub target: u64,
    /// Pairs written.
    #[serde(with = "crate::num::big")]
    pub matched: u64,
    /// Host records that began and ended while a target of theirs was recording.
    #[serde(with = "crate::num::big")]
    pub host_inside: u64,
    /// Host records left out, per cause.
    #[serde(with = "crate::num::map")]
    pub host_left: BTreeMap<String, u64>,
    /// Target records left out, per cause.
    #[serde(with = "crate::num::map")]
    pub target_left: BTreeMap<String, u64>,
    /// Bytes of damaged or cut-off input.
    #[serde(default, with = "crate::num::big")]
    pub damaged_bytes: u64,
    /// Counters of all commands of the hosts, sampled or not; devices by their
    /// id in this stream. Empty when a host did not count.
    #[serde(default)]
    pub counts: Vec<crate::header::Count>,
    /// Time over which they were counted, ns: times of several hosts that overlap count once.
    #[serde(default, with = "crate::num::big")]
    pub counted_ns: u64,
    /// Totals of the recordings joined, in the order of the files.
    #[serde(default)]
    pub sources: Vec<crate::header::Totals>,
}
