//! The stage rules: what a command passes, and whose time it is.
//!
//! Everything here is data. A [`Path`] is the ordered list of boundary points
//! of one kind of command; between two of them lies one component, and
//! [`COMPONENTS`] says to which stage that belongs. [`crate::plan`] turns a
//! path and the points that one command has into the differences to take.

use ntp_record::point::{host as h, target as t};
use ntp_record::row::{Machine, View};
use ntp_record::{Point, Role};

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

/// What decides between two names of one difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum When {
    /// The write's data came in the capsule.
    InCapsule = 1,
    /// The command brings no data to the host.
    NoDataIn = 2,
}

/// One step of a path: a component and the point that ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The component.
    pub component: Id,
    /// Another component in its place, for some commands.
    pub unless: Option<(When, Id)>,
    /// Point that ends it.
    pub to: Point,
}

const fn step(component: Id, to: Point) -> Step {
    Step {
        component,
        unless: None,
        to,
    }
}

const fn step_unless(component: Id, when: When, other: Id, to: Point) -> Step {
    Step {
        component,
        unless: Some((when, other)),
        to,
    }
}

/// Points of which a command must have one to go by a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// What is missing without them.
    pub what: &'static str,
    /// The points.
    pub one_of: &'static [Point],
}

/// The way of one kind of command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Name, for people who read this table.
    pub name: &'static str,
    /// Which machines' records it is for.
    pub views: &'static [View],
    /// For writes that wait for an R2T only.
    pub r2t: bool,
    /// What a command must have.
    pub needs: &'static [Need],
    /// First point.
    pub from: Point,
    /// The steps from there, in order, in pieces that paths share.
    pub steps: &'static [&'static [Step]],
}

const HOST_START: Need = Need {
    what: "the start on the host",
    one_of: &[h::BLOCK_START, h::DRIVER_START],
};
const HOST_END: Need = Need {
    what: "the end on the host",
    one_of: &[h::COMPLETED, h::COMPLETE_RQ, h::BLOCK_DONE],
};
const HOST_R2T: Need = Need {
    what: "the R2T on the host",
    one_of: &[h::R2T_ARRIVED, h::R2T_READ, h::DATA_SEND_BEGIN],
};
const TARGET_START: Need = Need {
    what: "the start on the target",
    one_of: &[t::ARRIVED, t::RECEIVED],
};
const TARGET_END: Need = Need {
    what: "the end on the target",
    one_of: &[t::RESP_QUEUED, t::SEND_BEGIN],
};

const HOST_SUBMISSION: &[Step] = &[
    step(Id::HostBlockSubmission, h::DRIVER_START),
    step(Id::HostSubmission, h::SEND_BEGIN),
];
const TARGET_RECEIVE: &[Step] = &[step(Id::TargetReceive, t::RECEIVED)];
const TARGET_SUBMISSION: &[Step] = &[step_unless(
    Id::TargetSubmission,
    When::InCapsule,
    Id::CapsuleData,
    t::EXECUTE,
)];
const TARGET_R2T: &[Step] = &[
    step(Id::TargetSubmission, t::R2T_QUEUED),
    step(Id::R2tWait, t::R2T_SEND),
];
const TARGET_DATA: &[Step] = &[
    step(Id::TargetReceiveData, t::DATA_READ),
    step(Id::TargetRestOfData, t::EXECUTE),
];
const BACKEND: &[Step] = &[
    step(Id::TargetHandoff, t::BIO_SUBMIT),
    step(Id::TargetBlockSubmission, t::DRIVE_ISSUE),
    step(Id::Drive, t::DRIVE_DONE),
    step(Id::TargetBlockCompletion, t::BIO_DONE),
    step(Id::TargetCompletion, t::RESP_QUEUED),
    step(Id::ResponseWait, t::SEND_BEGIN),
];
const HOST_COMPLETION: &[Step] = &[
    step(Id::HostReceive, h::RESP_READ),
    step_unless(
        Id::RestOfData,
        When::NoDataIn,
        Id::RestOfResponse,
        h::RESP_LAST,
    ),
    step_unless(
        Id::HostProcessing,
        When::NoDataIn,
        Id::HostCompletion,
        h::COMPLETED,
    ),
    step(Id::HandoffToRq, h::COMPLETE_RQ),
    step(Id::HostBlockCompletion, h::BLOCK_DONE),
];

/// Every path. A command takes the first that is for its records and whose
/// needs it has; a joined command that has no whole target side goes by what
/// the host saw.
pub const PATHS: &[Path] = &[
    Path {
        name: "joined, R2T",
        views: &[View::Joined],
        r2t: true,
        needs: &[HOST_START, HOST_END, TARGET_START, TARGET_END, HOST_R2T],
        from: h::BLOCK_START,
        steps: &[
            HOST_SUBMISSION,
            &[step(Id::WireCapsule, t::ARRIVED)],
            TARGET_RECEIVE,
            TARGET_R2T,
            &[step(Id::WireCapsule, h::R2T_ARRIVED)],
            &[
                step(Id::HostReceiveR2t, h::R2T_READ),
                step(Id::HostSendingData, h::DATA_SEND_BEGIN),
            ],
            &[step(Id::WireData, t::DATA_ARRIVED)],
            TARGET_DATA,
            BACKEND,
            &[step(Id::WireData, h::RESP_ARRIVED)],
            HOST_COMPLETION,
        ],
    },
    Path {
        name: "joined, R2T not seen on the host",
        views: &[View::Joined],
        r2t: true,
        needs: &[HOST_START, HOST_END, TARGET_START, TARGET_END],
        from: h::BLOCK_START,
        steps: &[
            HOST_SUBMISSION,
            &[step(Id::Wire, t::ARRIVED)],
            TARGET_RECEIVE,
            TARGET_R2T,
            &[step(Id::R2tUnsplit, t::DATA_ARRIVED)],
            TARGET_DATA,
            BACKEND,
            &[step(Id::Wire, h::RESP_ARRIVED)],
            HOST_COMPLETION,
        ],
    },
    Path {
        name: "joined",
        views: &[View::Joined],
        r2t: false,
        needs: &[HOST_START, HOST_END, TARGET_START, TARGET_END],
        from: h::BLOCK_START,
        steps: &[
            HOST_SUBMISSION,
            &[step(Id::Wire, t::ARRIVED)],
            TARGET_RECEIVE,
            TARGET_SUBMISSION,
            BACKEND,
            &[step(Id::Wire, h::RESP_ARRIVED)],
            HOST_COMPLETION,
        ],
    },
    Path {
        name: "host, R2T",
        views: &[View::Host, View::Joined],
        r2t: true,
        needs: &[HOST_START, HOST_END, HOST_R2T],
        from: h::BLOCK_START,
        steps: &[
            HOST_SUBMISSION,
            &[step(Id::TargetUnrecordedCapsule, h::R2T_ARRIVED)],
            &[
                step(Id::HostReceiveR2t, h::R2T_READ),
                step(Id::HostSendingData, h::DATA_SEND_BEGIN),
            ],
            &[step(Id::TargetUnrecordedData, h::RESP_ARRIVED)],
            HOST_COMPLETION,
        ],
    },
    Path {
        name: "host",
        views: &[View::Host, View::Joined],
        r2t: false,
        needs: &[HOST_START, HOST_END],
        from: h::BLOCK_START,
        steps: &[
            HOST_SUBMISSION,
            &[step(Id::TargetUnrecorded, h::RESP_ARRIVED)],
            HOST_COMPLETION,
        ],
    },
    Path {
        name: "target, R2T",
        views: &[View::Target],
        r2t: true,
        needs: &[TARGET_START, TARGET_END],
        from: t::ARRIVED,
        steps: &[
            TARGET_RECEIVE,
            TARGET_R2T,
            &[step(Id::HostUnrecorded, t::DATA_ARRIVED)],
            TARGET_DATA,
            BACKEND,
        ],
    },
    Path {
        name: "target",
        views: &[View::Target],
        r2t: false,
        needs: &[TARGET_START, TARGET_END],
        from: t::ARRIVED,
        steps: &[TARGET_RECEIVE, TARGET_SUBMISSION, BACKEND],
    },
];

impl Path {
    /// Whether the path is one of both machines.
    pub fn joined(&self) -> bool {
        self.steps
            .iter()
            .flat_map(|piece| piece.iter())
            .any(|step| step.to.side == Role::Target)
            && self.from.side == Role::Host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(path: &Path) -> Vec<Step> {
        path.steps
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect()
    }

    #[test]
    fn tables_are_in_order_and_names_are_unique() {
        for (i, component) in COMPONENTS.iter().enumerate() {
            assert_eq!(component.id as usize, i, "{}", component.name);
            assert_eq!(
                COMPONENTS
                    .iter()
                    .filter(|c| c.name == component.name)
                    .count(),
                1,
                "{}",
                component.name
            );
            match component.place {
                Sum(_) => {}
                Part(_, parent) | Way(parent, _) => {
                    assert!(matches!(parent.component().place, Sum(_)));
                    assert!(
                        parent < component.id,
                        "{} comes before its parent",
                        component.name
                    );
                }
                Within(parents, from, to, _) => {
                    assert!(!parents.is_empty());
                    assert_eq!(from.side, to.side, "{}: two clocks", component.name);
                }
            }
        }
        for (i, (stage, _)) in Stage::ALL.iter().enumerate() {
            assert_eq!(*stage as usize, i);
        }
        assert!(COMPONENTS.len() <= 64, "plans keep a bit for each");
    }

    #[test]
    fn only_a_wire_crosses_from_one_machine_to_the_other_and_it_comes_back() {
        for path in PATHS {
            let mut from = path.from;
            let mut open = Vec::new();
            for step in steps(path) {
                if step.to.side != from.side {
                    assert!(
                        matches!(step.component.component().place, Sum(Rank::Wire)),
                        "{}",
                        path.name
                    );
                    match open.pop() {
                        None => open.push(step.component),
                        Some(out) => assert_eq!(out, step.component, "{}", path.name),
                    }
                } else {
                    assert!(
                        step.to.index > from.index || from.side == Role::Host,
                        "{}",
                        path.name
                    );
                }
                from = step.to;
            }
            assert!(
                open.is_empty(),
                "{}: the path ends on the other machine",
                path.name
            );
            assert_eq!(from.side, path.from.side);
        }
    }

    #[test]
    fn every_component_is_on_a_path_or_inside_one() {
        let used: Vec<Id> = PATHS
            .iter()
            .flat_map(steps)
            .flat_map(|step| [Some(step.component), step.unless.map(|(_, id)| id)])
            .flatten()
            .collect();
        for component in COMPONENTS {
            let found = match component.place {
                Sum(_) => {
                    used.contains(&component.id)
                        || COMPONENTS
                            .iter()
                            .any(|c| matches!(c.place, Part(_, parent) if parent == component.id))
                }
                Part(..) => used.contains(&component.id),
                Within(parents, ..) => parents.iter().all(|parent| used.contains(parent)),
                Way(parent, _) => used.contains(&parent),
            };
            assert!(found, "{} is never used", component.name);
        }
    }
}
