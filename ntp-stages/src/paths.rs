//! The ways of commands: which points follow each other, and what lies between.
//!
//! Data, as [`crate::rules`]: to teach a new kind of command, add its path.

use crate::rules::Id;
use ntp_record::point::{host as h, target as t};
use ntp_record::row::View;
use ntp_record::{Point, Role};

/// What decides between two names of one difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum When {
    /// The write's data came in the capsule.
    InCapsule = 1,
    /// The command brings no data to the host.
    NoDataIn = 2,
    /// An attempt before the last one failed.
    Retried = 4,
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
    // The request is that of the first attempt, the driver's start that of the last.
    step_unless(
        Id::HostBlockSubmission,
        When::Retried,
        Id::EarlierAttempts,
        h::DRIVER_START,
    ),
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
