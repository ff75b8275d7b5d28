//! The one table of hooks: which program takes which points where.
//!
//! `ntp-probe`, the plan, the loader and the documentation are made from it.
//! A program's name in the object is the handler's name and how it is hooked:
//! see [`How::suffix`].

use ntp_record::point::{host as h, rdma_host as rh, rdma_target as rt, target as t};
use ntp_record::{Point, Role, Transport};

/// What a handler is hooked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tracepoint.
    Tracepoint,
    /// The entry of a function.
    Entry,
    /// The return of a function.
    Exit,
}

/// How a site is hooked on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// Raw tracepoint.
    RawTp,
    /// BPF trampoline at the function's entry; needs the function's BTF.
    Fentry,
    /// BPF trampoline at the function's return; needs the function's BTF.
    Fexit,
    /// Breakpoint or ftrace based probe at the function's entry. There is no
    /// counterpart for returns: those probes are missed under load and cost
    /// most of all.
    Kprobe,
}

impl How {
    /// Name in recordings and in `ntp-probe`.
    pub fn name(self) -> &'static str {
        match self {
            How::RawTp => "raw_tp",
            How::Fentry => "fentry",
            How::Fexit => "fexit",
            How::Kprobe => "kprobe",
        }
    }

    /// What a handler's name ends with in the object.
    pub fn suffix(self) -> &'static str {
        match self {
            How::RawTp => "",
            How::Fentry => "_fe",
            How::Fexit => "_fx",
            How::Kprobe => "_kp",
        }
    }

    /// The way that needs no BTF of the function, where there is another.
    pub fn without_btf(self) -> Option<How> {
        match self {
            How::Fentry => Some(How::Kprobe),
            How::RawTp | How::Fexit | How::Kprobe => None,
        }
    }
}

/// Whether recording can go without a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No recording without it (or its stand-in).
    Required,
    /// Its points are missing without it.
    Optional,
}

/// Which of a hook's sites are hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Every one that is present.
    All,
    /// The first that is present.
    First,
}

/// A function or tracepoint, and the module it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Module, or `vmlinux`. A module may be built in.
    pub module: &'static str,
    /// Name in the kernel.
    pub name: &'static str,
}

/// One handler and where it is hooked.
#[derive(Debug)]
pub struct Hook {
    /// Handler in the object; unique together with its kind.
    pub handler: &'static str,
    /// What it is hooked to.
    pub kind: Kind,
    /// Where.
    pub sites: &'static [Site],
    /// At which of them.
    pub pick: Pick,
    /// Arguments of the function or tracepoint, where the program depends on
    /// how many there are: with another number it is as good as absent.
    pub args: Option<u32>,
    /// Whether recording can go without it.
    pub need: Need,
    /// Points it takes.
    pub gives: &'static [Point],
    /// Points others take that need what it remembers.
    pub helps: &'static [Point],
    /// Row it is used instead of: hooked only when that one is absent.
    pub stands_for: Option<(&'static str, Kind)>,
    /// It also stands in where that one would be a kprobe, of which calls in
    /// interrupts are missed.
    pub over_kprobe: bool,
    /// What gives its points when it is absent and no other hook stands in.
    pub fallback: Option<&'static str>,
    /// It begins records: attached last, detached first.
    pub last: bool,
    /// Records end where it is there: the programs are told, when they are loaded,
    /// whether it is (`cfg_send_exit`).
    pub ends: bool,
    /// It counts commands, so no call may be missed: by kprobe, which holds the
    /// CPU, where a trampoline's program may be preempted.
    pub every: bool,
}

impl Hook {
    /// What names a row of the table.
    pub fn key(&self) -> (&'static str, Kind) {
        (self.handler, self.kind)
    }

    /// Name, in a recording's totals, of how often the kernel skipped it.
    pub fn skipped(&self) -> String {
        format!("{}_skipped", self.handler)
    }

    /// Name of the program for one way to hook it.
    pub fn program(&self, how: How) -> String {
        format!("{}{}", self.handler, how.suffix())
    }
}

/// One BPF object: the hooks of a role and transport.
#[derive(Debug)]
pub struct Object {
    /// Name, that of its source.
    pub name: &'static str,
    /// Role recorded.
    pub role: Role,
    /// Transport recorded.
    pub transport: Transport,
    /// Modules whose types it reads; the first is the driver to load.
    pub modules: &'static [&'static str],
    /// Hooks, in the order of attaching.
    pub hooks: &'static [Hook],
    /// The compiled programs.
    pub code: &'static [u8],
}

/// Everything that can be recorded.
pub const OBJECTS: &[Object; 4] = &[
    Object {
        name: "host_tcp",
        role: Role::Host,
        transport: Transport::Tcp,
        modules: &["nvme_tcp", "nvme_core"],
        hooks: HOST_TCP,
        code: crate::objects::HOST_TCP,
    },
    Object {
        name: "target_tcp",
        role: Role::Target,
        transport: Transport::Tcp,
        modules: &["nvmet_tcp", "nvmet"],
        hooks: TARGET_TCP,
        code: crate::objects::TARGET_TCP,
    },
    Object {
        name: "host_rdma",
        role: Role::Host,
        transport: Transport::Rdma,
        modules: &["nvme_rdma", "nvme_core"],
        hooks: HOST_RDMA,
        code: crate::objects::HOST_RDMA,
    },
    Object {
        name: "target_rdma",
        role: Role::Target,
        transport: Transport::Rdma,
        modules: &["nvmet_rdma", "nvmet"],
        hooks: TARGET_RDMA,
        code: crate::objects::TARGET_RDMA,
    },
];

/// The object of a role and transport.
pub fn object(role: Role, transport: Transport) -> &'static Object {
    let [host_tcp, target_tcp, host_rdma, target_rdma] = OBJECTS;
    match (role, transport) {
        (Role::Host, Transport::Tcp) => host_tcp,
        (Role::Target, Transport::Tcp) => target_tcp,
        (Role::Host, Transport::Rdma) => host_rdma,
        (Role::Target, Transport::Rdma) => target_rdma,
    }
}

const fn site(module: &'static str, name: &'static str) -> Site {
    Site { module, name }
}

/// The row most others differ little from.
const ROW: Hook = Hook {
    handler: "",
    kind: Kind::Entry,
    sites: &[],
    pick: Pick::All,
    args: None,
    need: Need::Optional,
    gives: &[],
    helps: &[],
    stands_for: None,
    over_kprobe: false,
    fallback: None,
    last: false,
    ends: false,
    every: false,
};

const SENDPAGE: &[Site] = &[
    site("vmlinux", "kernel_sendpage"),
    site("vmlinux", "sock_no_sendpage"),
];
const SENDMSG: &[Site] = &[site("vmlinux", "sock_sendmsg")];
const BIO_QUEUE: &[Site] = &[site("vmlinux", "block_bio_queue")];
const RQ_ISSUE: &[Site] = &[site("vmlinux", "block_rq_issue")];
const REQ_COMPLETE: &[Site] = &[site("nvmet", "nvmet_req_complete")];
const H_SEND: &[Point] = &[
    h::SEND_BEGIN,
    h::SEND_LAST,
    h::DATA_SEND_BEGIN,
    h::DATA_SEND_LAST,
];
const H_SENT: &[Point] = &[h::SEND_END, h::DATA_SEND_END];
const T_SEND: &[Point] = &[t::R2T_SEND, t::SEND_BEGIN, t::SEND_LAST];
const T_SENT: &[Point] = &[t::SEND_END];

// Rows of nvme-core, nvmet and the block layer, whatever the transport.

const H_DONE: Hook = Hook {
    handler: "h_done",
    kind: Kind::Tracepoint,
    sites: &[site("vmlinux", "block_rq_complete")],
    need: Need::Required,
    gives: &[h::BLOCK_DONE],
    ..ROW
};

const H_COMPLETE_RQ: Hook = Hook {
    handler: "h_complete_rq",
    kind: Kind::Tracepoint,
    sites: &[site("nvme_core", "nvme_complete_rq")],
    // Status and retries come with it.
    need: Need::Required,
    gives: &[h::COMPLETE_RQ],
    ..ROW
};

const H_BIO_QUEUE: Hook = Hook {
    handler: "h_bio_queue",
    kind: Kind::Tracepoint,
    sites: BIO_QUEUE,
    args: Some(1),
    gives: &[h::BLOCK_START],
    // Later than the bio, and of a batch that of its first request.
    fallback: Some("request.start_time_ns"),
    ..ROW
};

// 5.10: the request queue comes first.
const H_BIO_QUEUE_Q: Hook = Hook {
    handler: "h_bio_queue_q",
    kind: Kind::Tracepoint,
    sites: BIO_QUEUE,
    args: Some(2),
    stands_for: Some(("h_bio_queue", Kind::Tracepoint)),
    gives: &[h::BLOCK_START],
    fallback: Some("request.start_time_ns"),
    ..ROW
};

const H_SETUP: Hook = Hook {
    handler: "h_setup",
    kind: Kind::Tracepoint,
    sites: &[site("nvme_core", "nvme_setup_cmd")],
    need: Need::Required,
    gives: &[h::DRIVER_START],
    last: true,
    ..ROW
};

const T_EXECUTE: Hook = Hook {
    handler: "t_execute",
    sites: &[
        site("nvmet", "nvmet_bdev_execute_rw"),
        site("nvmet", "nvmet_bdev_execute_flush"),
        site("nvmet", "nvmet_bdev_execute_dsm"),
        site("nvmet", "nvmet_bdev_execute_write_zeroes"),
        site("nvmet", "nvmet_file_execute_rw"),
        site("nvmet", "nvmet_file_execute_flush"),
        site("nvmet", "nvmet_file_execute_dsm"),
        site("nvmet", "nvmet_file_execute_write_zeroes"),
    ],
    gives: &[t::EXECUTE],
    ..ROW
};

const T_BIO_QUEUE: Hook = Hook {
    handler: "t_bio_queue",
    kind: Kind::Tracepoint,
    sites: BIO_QUEUE,
    args: Some(1),
    gives: &[t::BIO_SUBMIT],
    helps: &[t::DRIVE_ISSUE, t::DRIVE_DONE],
    ..ROW
};

// 5.10: the request queue comes first.
const T_BIO_QUEUE_Q: Hook = Hook {
    handler: "t_bio_queue_q",
    kind: Kind::Tracepoint,
    sites: BIO_QUEUE,
    args: Some(2),
    stands_for: Some(("t_bio_queue", Kind::Tracepoint)),
    gives: &[t::BIO_SUBMIT],
    helps: &[t::DRIVE_ISSUE, t::DRIVE_DONE],
    ..ROW
};

const T_RQ_ISSUE: Hook = Hook {
    handler: "t_rq_issue",
    kind: Kind::Tracepoint,
    sites: RQ_ISSUE,
    args: Some(1),
    gives: &[t::DRIVE_ISSUE],
    helps: &[t::DRIVE_DONE],
    ..ROW
};

// Early 5.10: the request queue comes first.
const T_RQ_ISSUE_Q: Hook = Hook {
    handler: "t_rq_issue_q",
    kind: Kind::Tracepoint,
    sites: RQ_ISSUE,
    args: Some(2),
    stands_for: Some(("t_rq_issue", Kind::Tracepoint)),
    gives: &[t::DRIVE_ISSUE],
    helps: &[t::DRIVE_DONE],
    ..ROW
};

const T_RQ_COMPLETE: Hook = Hook {
    handler: "t_rq_complete",
    kind: Kind::Tracepoint,
    sites: &[site("vmlinux", "block_rq_complete")],
    gives: &[t::DRIVE_DONE],
    ..ROW
};

const T_BIO_DONE: Hook = Hook {
    handler: "t_bio_done",
    sites: &[site("nvmet", "nvmet_bio_done")],
    gives: &[t::BIO_DONE],
    ..ROW
};

// The first thing that nvmet_bio_done() calls.
const T_COMPLETE: Hook = Hook {
    handler: "t_complete",
    kind: Kind::Tracepoint,
    sites: REQ_COMPLETE,
    args: Some(1),
    stands_for: Some(("t_bio_done", Kind::Entry)),
    over_kprobe: true,
    gives: &[t::BIO_DONE],
    ..ROW
};

const T_INIT: Hook = Hook {
    handler: "t_init",
    sites: &[site("nvmet", "nvmet_req_init")],
    need: Need::Required,
    gives: &[t::RECEIVED],
    last: true,
    every: true,
    ..ROW
};

/// Hooks of the Linux host over TCP.
pub const HOST_TCP: &[Hook] = &[
    H_DONE,
    H_COMPLETE_RQ,
    Hook {
        handler: "h_completed",
        sites: &[site("vmlinux", "blk_mq_complete_request_remote")],
        gives: &[h::COMPLETED, h::RESP_READ, h::RESP_LAST, h::RESP_ARRIVED],
        ..ROW
    },
    Hook {
        handler: "h_copy_bits",
        sites: &[site("vmlinux", "skb_copy_bits")],
        gives: &[h::R2T_READ, h::R2T_ARRIVED],
        helps: &[h::RESP_READ, h::RESP_ARRIVED],
        ..ROW
    },
    Hook {
        handler: "h_recv_skb",
        sites: &[site("nvme_tcp", "nvme_tcp_recv_skb")],
        helps: &[h::RESP_LAST],
        ..ROW
    },
    Hook {
        handler: "h_data_ready",
        sites: &[site("nvme_tcp", "nvme_tcp_data_ready")],
        helps: &[h::RESP_ARRIVED, h::R2T_ARRIVED],
        ..ROW
    },
    Hook {
        handler: "h_timeout",
        sites: &[site("nvme_tcp", "nvme_tcp_timeout")],
        ..ROW
    },
    Hook {
        handler: "h_sendpage",
        sites: SENDPAGE,
        need: Need::Required,
        gives: H_SEND,
        ..ROW
    },
    Hook {
        handler: "h_sendpage",
        kind: Kind::Exit,
        sites: SENDPAGE,
        args: Some(5),
        gives: H_SENT,
        ..ROW
    },
    Hook {
        handler: "h_sendmsg",
        sites: SENDMSG,
        stands_for: Some(("h_sendpage", Kind::Entry)),
        need: Need::Required,
        gives: H_SEND,
        ..ROW
    },
    Hook {
        handler: "h_sendmsg",
        kind: Kind::Exit,
        sites: SENDMSG,
        args: Some(2),
        stands_for: Some(("h_sendpage", Kind::Exit)),
        gives: H_SENT,
        ..ROW
    },
    H_BIO_QUEUE,
    H_BIO_QUEUE_Q,
    H_SETUP,
];

/// Hooks of the Linux target over TCP.
pub const TARGET_TCP: &[Hook] = &[
    Hook {
        handler: "t_data_ready",
        sites: &[site("nvmet_tcp", "nvmet_tcp_data_ready")],
        helps: &[t::ARRIVED, t::DATA_ARRIVED],
        ..ROW
    },
    Hook {
        handler: "t_recv_pdu",
        sites: &[site("nvmet_tcp", "nvmet_tcp_try_recv_pdu")],
        gives: &[t::PDU_READ, t::DATA_READ, t::ARRIVED, t::DATA_ARRIVED],
        ..ROW
    },
    // Where the compiler made it part of its caller: the socket call in it.
    Hook {
        handler: "t_recvmsg",
        sites: &[site("vmlinux", "kernel_recvmsg")],
        stands_for: Some(("t_recv_pdu", Kind::Entry)),
        gives: &[t::PDU_READ, t::DATA_READ, t::ARRIVED, t::DATA_ARRIVED],
        ..ROW
    },
    Hook {
        handler: "t_h2c_data",
        sites: &[
            site("nvmet_tcp", "nvmet_tcp_build_pdu_iovec"),
            // 5.10
            site("nvmet_tcp", "nvmet_tcp_map_pdu_iovec"),
        ],
        pick: Pick::First,
        gives: &[t::DATA_READ, t::DATA_ARRIVED],
        ..ROW
    },
    T_EXECUTE,
    T_BIO_QUEUE,
    T_BIO_QUEUE_Q,
    T_RQ_ISSUE,
    T_RQ_ISSUE_Q,
    T_RQ_COMPLETE,
    T_BIO_DONE,
    T_COMPLETE,
    // Ends what a closed connection leaves in flight.
    Hook {
        handler: "t_release",
        sites: &[site("nvmet_tcp", "nvmet_tcp_release_queue_work")],
        ..ROW
    },
    Hook {
        handler: "t_queue_resp",
        sites: &[site("nvmet_tcp", "nvmet_tcp_queue_response")],
        need: Need::Required,
        gives: &[t::R2T_QUEUED, t::RESP_QUEUED],
        ..ROW
    },
    // Not sock_no_sendpage: the target's own socket operation is below it.
    Hook {
        handler: "t_sendpage",
        sites: &[site("vmlinux", "kernel_sendpage")],
        need: Need::Required,
        gives: T_SEND,
        ..ROW
    },
    Hook {
        handler: "t_sendpage",
        kind: Kind::Exit,
        sites: &[site("vmlinux", "kernel_sendpage")],
        args: Some(5),
        gives: T_SENT,
        ends: true,
        ..ROW
    },
    Hook {
        handler: "t_sendmsg",
        sites: SENDMSG,
        stands_for: Some(("t_sendpage", Kind::Entry)),
        need: Need::Required,
        gives: T_SEND,
        ..ROW
    },
    Hook {
        handler: "t_sendmsg",
        kind: Kind::Exit,
        sites: SENDMSG,
        args: Some(2),
        stands_for: Some(("t_sendpage", Kind::Exit)),
        gives: T_SENT,
        ends: true,
        ..ROW
    },
    T_INIT,
];

/// Hooks of the Linux host over RDMA.
pub const HOST_RDMA: &[Hook] = &[
    H_DONE,
    H_COMPLETE_RQ,
    Hook {
        handler: "h_completed",
        sites: &[site("vmlinux", "blk_mq_complete_request_remote")],
        gives: &[rh::COMPLETED],
        ..ROW
    },
    Hook {
        handler: "h_recv_done",
        sites: &[site("nvme_rdma", "nvme_rdma_recv_done")],
        need: Need::Required,
        gives: &[rh::RESP_READ],
        helps: &[rh::SEND_LATE],
        ..ROW
    },
    Hook {
        handler: "h_send_done",
        sites: &[site("nvme_rdma", "nvme_rdma_send_done")],
        gives: &[rh::SEND_DONE, rh::SEND_LATE],
        ..ROW
    },
    Hook {
        handler: "h_inv_done",
        sites: &[site("nvme_rdma", "nvme_rdma_inv_rkey_done")],
        gives: &[rh::INV_DONE],
        ..ROW
    },
    Hook {
        handler: "h_timeout",
        sites: &[site("nvme_rdma", "nvme_rdma_timeout")],
        ..ROW
    },
    Hook {
        handler: "h_post",
        sites: &[site("nvme_rdma", "nvme_rdma_post_send")],
        need: Need::Required,
        gives: &[rh::SEND_BEGIN],
        ..ROW
    },
    Hook {
        handler: "h_post",
        kind: Kind::Exit,
        sites: &[site("nvme_rdma", "nvme_rdma_post_send")],
        args: Some(5),
        gives: &[rh::SEND_END],
        ..ROW
    },
    H_BIO_QUEUE,
    H_BIO_QUEUE_Q,
    H_SETUP,
];

/// Hooks of the Linux target over RDMA.
pub const TARGET_RDMA: &[Hook] = &[
    Hook {
        handler: "t_recv",
        sites: &[site("nvmet_rdma", "nvmet_rdma_recv_done")],
        gives: &[rt::RECV_SEEN],
        ..ROW
    },
    Hook {
        handler: "t_go",
        sites: &[site("nvmet_rdma", "nvmet_rdma_execute_command")],
        gives: &[rt::READ_QUEUED, rt::READ_POSTED],
        ..ROW
    },
    Hook {
        handler: "t_read_done",
        sites: &[site("nvmet_rdma", "nvmet_rdma_read_data_done")],
        gives: &[rt::READ_DONE],
        ..ROW
    },
    T_EXECUTE,
    T_BIO_QUEUE,
    T_BIO_QUEUE_Q,
    T_RQ_ISSUE,
    T_RQ_ISSUE_Q,
    T_RQ_COMPLETE,
    T_BIO_DONE,
    T_COMPLETE,
    // Protection information only.
    Hook {
        handler: "t_write_done",
        sites: &[site("nvmet_rdma", "nvmet_rdma_write_data_done")],
        gives: &[rt::SEND_LAST],
        ..ROW
    },
    // Ends what a closed connection leaves in flight.
    Hook {
        handler: "t_release",
        sites: &[site("nvmet_rdma", "nvmet_rdma_release_queue_work")],
        ..ROW
    },
    // Ends records.
    Hook {
        handler: "t_send_done",
        sites: &[site("nvmet_rdma", "nvmet_rdma_send_done")],
        need: Need::Required,
        gives: &[rt::SEND_DONE],
        ..ROW
    },
    Hook {
        handler: "t_post",
        sites: &[site("nvmet_rdma", "nvmet_rdma_queue_response")],
        need: Need::Required,
        gives: &[rt::SEND_BEGIN],
        ..ROW
    },
    // Just before it is called.
    Hook {
        handler: "t_answer",
        kind: Kind::Tracepoint,
        sites: REQ_COMPLETE,
        args: Some(1),
        stands_for: Some(("t_post", Kind::Entry)),
        over_kprobe: true,
        gives: &[rt::SEND_BEGIN],
        ..ROW
    },
    Hook {
        handler: "t_post",
        kind: Kind::Exit,
        sites: &[site("nvmet_rdma", "nvmet_rdma_queue_response")],
        args: Some(1),
        gives: &[rt::SEND_END],
        ..ROW
    },
    Hook {
        gives: &[rt::RECEIVED],
        ..T_INIT
    },
];
