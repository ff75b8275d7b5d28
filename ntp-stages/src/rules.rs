//! The stage rules: what a command passes, and whose time it is.
//!
//! Everything here is data. A [`Path`](crate::paths::Path) is the ordered list
//! of boundary points of one kind of command; between two of them lies one
//! component, and [`COMPONENTS`] says to which stage that belongs.
//! [`crate::plan`] turns a path and the points that one command has into the
//! differences to take.

use ntp_record::Point;
use ntp_record::point::{host as h, target as t};
use ntp_record::row::{Machine, View};

/// A stage of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// The host's block layer.
    HostBlock,
    /// The host's NVMe-oF driver.
    HostDriver,
    /// Both machines' network stacks, NICs and the wire.
    Network,
    /// The target's NVMe-oF driver.
    TargetDriver,
    /// The target's block layer and the drive.
    Storage,
    /// What the host waited for, when the target was not recorded.
    TargetUnrecorded,
    /// What the target waited for, when the host was not recorded.
    HostUnrecorded,
}

impl Stage {
    /// Every stage with its name, in the order of a report.
    pub const ALL: &[(Stage, &str)] = &[
        (Stage::HostBlock, "host block layer"),
        (Stage::HostDriver, "host driver"),
        (Stage::Network, "network"),
        (Stage::TargetDriver, "target driver"),
        (Stage::Storage, "storage"),
        (Stage::TargetUnrecorded, "network and target (not recorded)"),
        (Stage::HostUnrecorded, "network and host (not recorded)"),
    ];

    /// Name of the stage, the same for every stack.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What a stage is made of: (stage, stack, transport) of the machine it lies
/// on, where empty means any. The first that fits is used.
const MADE_OF: &[(Stage, &str, &str, &str)] = &[
    (Stage::HostDriver, "linux", "tcp", "nvme-tcp"),
    (Stage::HostDriver, "linux", "rdma", "nvme-rdma"),
    (Stage::HostDriver, "spdk", "", "SPDK"),
    (Stage::TargetDriver, "linux", "tcp", "nvmet-tcp"),
    (Stage::TargetDriver, "linux", "rdma", "nvmet-rdma"),
    (Stage::TargetDriver, "spdk", "", "SPDK"),
    (Stage::Network, "", "tcp", "TCP/IP, NICs, wire"),
    (Stage::Network, "", "rdma", "NICs, wire"),
    (Stage::Storage, "linux", "", "target block layer, drive"),
    (Stage::Storage, "spdk", "", "SPDK bdev, drive"),
];

/// Name of a stage in a report of these machines.
pub fn title(stage: Stage, view: View, host: Option<&Machine>, target: Option<&Machine>) -> String {
    let name = stage.name();
    match (stage, view) {
        (Stage::Network, View::Host) => return format!("{name}, host's side"),
        (Stage::Network, View::Target) => return format!("{name}, target's side"),
        _ => {}
    }
    let on = match stage {
        Stage::HostBlock | Stage::HostDriver | Stage::Network => host.or(target),
        _ => target,
    };
    let made_of = MADE_OF.iter().find(|(of, stack, transport, _)| {
        let fits = |want: &str, is: fn(&Machine) -> &String| {
            want.is_empty() || on.is_some_and(|machine| is(machine) == want)
        };
        *of == stage && fits(stack, |m| &m.stack) && fits(transport, |m| &m.transport)
    });
    match made_of {
        Some((.., made_of)) => format!("{name} ({made_of})"),
        None => name.to_owned(),
    }
}

/// Who takes the time of several components that cannot be told apart: the
/// highest rank among them, the first of equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A block layer: short.
    Block,
    /// A driver.
    Driver,
    /// The way of received bytes to the driver.
    Receive,
    /// The wire, and whatever lies beyond it unrecorded.
    Wire,
    /// The drive: what commands wait for most.
    Drive,
    /// Attempts that failed: a timeout is longer than anything.
    Attempts,
}

/// How a component enters the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Adds to the end-to-end time.
    Sum(Rank),
    /// Adds to a component that is nothing but the sum of its parts.
    Part(Rank, Id),
    /// Lies within another (the first of the list that the command has):
    /// informative, not in the sum.
    Within(&'static [Id], Point, Point, Record),
    /// One direction of a computed wire, by the estimated offset of the clocks.
    Way(Id, Direction),
}

/// When a component that lies within another is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Whenever both points were taken.
    Always,
    /// When they differ.
    NotZero,
}

/// Direction over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to target.
    Out,
    /// Target to host.
    Back,
}

/// What lies between two points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Component {
    /// Number: its place in [`COMPONENTS`].
    pub id: Id,
    /// Name in a report.
    pub name: &'static str,
    /// Stage it belongs to.
    pub stage: Stage,
    /// How it enters the sum.
    pub place: Place,
}

macro_rules! components {
    ($($id:ident, $name:literal, $stage:ident, $place:expr;)*) => {
        /// Number of a component.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the table below names each")]
        pub enum Id { $($id),* }

        /// Every component, in path order: the order of a report.
        pub const COMPONENTS: &[Component] = &[
            $(Component { id: Id::$id, name: $name, stage: Stage::$stage, place: $place }),*
        ];
    };
}

use Direction::{Back, Out};
use Place::{Part, Sum, Way, Within};
use Record::{Always, NotZero};

components! {
    HostBlockSubmission, "host block layer, submission", HostBlock, Sum(Rank::Block);
    EarlierAttempts, "earlier attempts and requeueing", HostDriver, Sum(Rank::Attempts);
    HostSubmission, "host driver, submission", HostDriver, Sum(Rank::Driver);

    Wire, "network: wire and NICs (computed)", Network, Sum(Rank::Wire);
    WireOut, "host to target (estimated)", Network, Way(Id::Wire, Out);
    WireBack, "target to host (estimated)", Network, Way(Id::Wire, Back);
    WireCapsule, "network: wire and NICs, capsule and R2T (computed)", Network, Sum(Rank::Wire);
    WireCapsuleOut, "capsule, host to target (estimated)", Network, Way(Id::WireCapsule, Out);
    WireCapsuleBack, "R2T, target to host (estimated)", Network, Way(Id::WireCapsule, Back);
    TargetUnrecorded, "network and target (not recorded)", TargetUnrecorded, Sum(Rank::Wire);
    TargetUnrecordedCapsule, "network and target, capsule to R2T (not recorded)", TargetUnrecorded, Sum(Rank::Wire);
    SendCall, "inside the host's send calls, capsule", Network,
        Within(CAPSULE_WAYS, h::SEND_BEGIN, h::SEND_END, Always);
    SendContinued, "first to last of the host's send calls, capsule", Network,
        Within(CAPSULE_WAYS, h::SEND_BEGIN, h::SEND_LAST, NotZero);

    TargetReceive, "network: target receive path", Network, Sum(Rank::Receive);
    TargetBeforeRead, "arrival to the driver's read", Network,
        Within(&[Id::TargetReceive], t::ARRIVED, t::PDU_READ, Always);
    TargetRead, "reading and parsing the capsule", Network,
        Within(&[Id::TargetReceive], t::PDU_READ, t::RECEIVED, Always);
    CapsuleData, "network: in-capsule data arriving", Network, Sum(Rank::Receive);
    TargetSubmission, "target driver, submission", TargetDriver, Sum(Rank::Driver);
    R2tWait, "target driver, R2T waiting for the worker", TargetDriver, Sum(Rank::Driver);
    HostReceiveR2t, "network: host receive path, R2T", Network, Sum(Rank::Receive);
    HostSendingData, "host driver, sending the data", HostDriver, Sum(Rank::Driver);

    WireData, "network: wire and NICs, data and response (computed)", Network, Sum(Rank::Wire);
    WireDataOut, "data, host to target (estimated)", Network, Way(Id::WireData, Out);
    WireDataBack, "response, target to host (estimated)", Network, Way(Id::WireData, Back);
    TargetUnrecordedData, "network and target, data to response (not recorded)", TargetUnrecorded, Sum(Rank::Wire);
    HostUnrecorded, "network and host, R2T to data (not recorded)", HostUnrecorded, Sum(Rank::Wire);
    R2tUnsplit, "network and host, R2T to data (not split)", Network, Sum(Rank::Wire);
    DataSendCall, "inside the host's send calls, data", Network,
        Within(DATA_WAYS, h::DATA_SEND_BEGIN, h::DATA_SEND_END, Always);
    DataSendContinued, "first to last of the host's send calls, data", Network,
        Within(DATA_WAYS, h::DATA_SEND_BEGIN, h::DATA_SEND_LAST, NotZero);
    TargetReceiveData, "network: target receive path, data", Network, Sum(Rank::Receive);
    TargetRestOfData, "network: rest of the data arriving at the target", Network, Sum(Rank::Receive);

    TargetHandoff, "target driver, handing to the block layer", TargetDriver, Sum(Rank::Driver);
    Storage, "storage: target block layer and drive", Storage, Sum(Rank::Drive);
    TargetBlockSubmission, "target block layer, submission", Storage, Part(Rank::Block, Id::Storage);
    Drive, "drive", Storage, Part(Rank::Drive, Id::Storage);
    TargetBlockCompletion, "target block layer, completion", Storage, Part(Rank::Block, Id::Storage);
    TargetCompletion, "target driver, completion", TargetDriver, Sum(Rank::Driver);
    ResponseWait, "target driver, response waiting for the worker", TargetDriver, Sum(Rank::Driver);
    ResponseSendCall, "inside the target's send calls, response", Network,
        Within(RESPONSE_WAYS, t::SEND_BEGIN, t::SEND_END, Always);
    ResponseSendContinued, "first to last of the target's send calls, response", Network,
        Within(RESPONSE_WAYS, t::SEND_BEGIN, t::SEND_LAST, NotZero);

    HostReceive, "network: host receive path", Network, Sum(Rank::Receive);
    RestOfData, "network: rest of the data arriving", Network, Sum(Rank::Receive);
    RestOfResponse, "network: rest of the response arriving", Network, Sum(Rank::Receive);
    HostProcessing, "host driver, processing the data", HostDriver, Sum(Rank::Driver);
    HostCompletion, "host driver, completion", HostDriver, Sum(Rank::Driver);
    HandoffToRq, "handoff to nvme_complete_rq", HostBlock, Sum(Rank::Block);
    HostBlockCompletion, "host block layer, completion", HostBlock, Sum(Rank::Block);
}

/// Points that nothing tells on a TLS connection: which bytes of the TCP stream are a
/// PDU's is known only once they are decrypted.
pub const HIDDEN_BY_TLS: &[Point] = &[
    h::R2T_ARRIVED,
    h::RESP_ARRIVED,
    t::ARRIVED,
    t::PDU_READ,
    t::DATA_ARRIVED,
    t::DATA_READ,
];

/// Components that begin when the capsule is sent.
const CAPSULE_WAYS: &[Id] = &[
    Id::Wire,
    Id::WireCapsule,
    Id::TargetUnrecorded,
    Id::TargetUnrecordedCapsule,
];
/// Components that begin when the data asked for by an R2T is sent.
const DATA_WAYS: &[Id] = &[Id::WireData, Id::TargetUnrecordedData];
/// Components that hold the way of the response.
const RESPONSE_WAYS: &[Id] = &[Id::Wire, Id::WireData];

impl Id {
    /// The component.
    pub fn component(self) -> &'static Component {
        &COMPONENTS[self as usize]
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
