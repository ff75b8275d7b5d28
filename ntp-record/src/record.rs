//! What one machine saw of one command.

use crate::point::{POINTS, Point};
use crate::sample::Key;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One command as one machine saw it.
///
/// The layout is that of `struct ntp_record` in `ebpf/bpf/ntp.h`, of the ring
/// buffer between kernel and ntp-capture, and of a record chunk in a binary
/// stream (little-endian): a record is never translated on its way. Fields a
/// side cannot know are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Record {
    /// First logical block, or command dwords 10 and 11 of a command that has none.
    pub slba: u64,
    /// Data moved by the command, bytes.
    pub bytes: u32,
    /// Namespace id.
    pub nsid: u32,
    /// Connection, by [`crate::Connection::id`] of the same segment.
    pub conn: u32,
    /// Device, by [`crate::Device::id`] of the same segment.
    pub dev: u32,
    /// Command id on the wire.
    pub cid: u16,
    /// NVMe status field without the phase bit (NVMe base specification,
    /// completion queue entry): 0 is success.
    pub status: u16,
    /// Bit set of [`Flags`].
    pub flags: u16,
    /// Bit `i` is set when `at[i]` holds a timestamp.
    pub present: u16,
    /// CPU that submitted the command (host) or received it (target).
    pub submit_cpu: u16,
    /// CPU that sent the capsule (host) or the response (target).
    pub send_cpu: u16,
    /// CPU that completed the command (host) or saw the drive done (target).
    pub complete_cpu: u16,
    /// Low half of command dword 12 (number of blocks minus one for reads and writes).
    pub length: u16,
    /// Opcode on the wire.
    pub opcode: u8,
    /// How often the host retried the command before it ended.
    pub retries: u8,
    /// R2Ts seen for the command; over RDMA, RDMA READs of its data (target).
    pub r2ts: u8,
    /// PDUs of the response seen (host, TCP).
    pub pdus: u8,
    /// 0.
    pub reserved: u32,
    /// Time of each point, nanoseconds of this machine's CLOCK_MONOTONIC.
    pub at: [u64; POINTS],
}

/// Size of a record, bytes.
pub const RECORD_SIZE: usize = 176;
const _: () = assert!(size_of::<Record>() == RECORD_SIZE);
const _: () = assert!(align_of::<Record>() == 8);

impl Default for Record {
    fn default() -> Self {
        <Self as zerocopy::FromZeros>::new_zeroed()
    }
}

impl Record {
    /// Time of a point, nanoseconds of this machine's monotonic clock; `None`
    /// when the command did not pass it or nobody could see it.
    #[inline]
    pub fn time(&self, point: Point) -> Option<u64> {
        self.time_at(point.index)
    }

    /// [`Record::time`] by index.
    #[inline]
    pub fn time_at(&self, index: u8) -> Option<u64> {
        (self.present >> index & 1 != 0).then(|| self.at[usize::from(index)])
    }

    /// Sets the time of a point.
    pub fn set(&mut self, point: Point, ns: u64) {
        self.present |= 1 << point.index;
        self.at[usize::from(point.index)] = ns;
    }

    /// What both machines see of the command.
    #[inline]
    pub fn key(&self) -> Key {
        Key {
            slba: self.slba,
            nsid: self.nsid,
            cid: self.cid,
            length: self.length,
            opcode: self.opcode,
        }
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: Flags) -> bool {
        self.flags & flag as u16 != 0
    }

    /// Name of the command, from opcode and queue.
    pub fn op(&self) -> &'static str {
        op_name(self.opcode, self.has(Flags::Admin))
    }
}

/// What else is known of a command; bits of [`Record::flags`].
///
/// Explicit, append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Flags {
    /// Came over the admin queue.
    Admin = 1 << 0,
    /// Passthrough: did not come from the block layer.
    Passthrough = 1 << 1,
    /// Write data in the capsule.
    InCapsule = 1 << 2,
    /// Write data asked for by R2T; over RDMA, fetched by the target with RDMA READ.
    R2t = 1 << 3,
    /// The response ended with the SUCCESS flag of its last data PDU, no completion capsule.
    SuccessFlag = 1 << 4,
    /// The host's timeout handler ran for it.
    TimedOut = 1 << 5,
    /// Set up again after a failed attempt; the points are the last attempt's,
    /// but for `block_start`, which is the first's.
    Retried = 1 << 6,
    /// Part of a fused pair.
    Fused = 1 << 7,
    /// The connection uses TLS.
    Tls = 1 << 8,
    /// More than one bio was merged into the request.
    Merged = 1 << 9,
    /// Through a polled queue.
    Polled = 1 << 10,
    /// Cancelled by the host, never answered.
    Cancelled = 1 << 11,
}

impl Flags {
    /// Every flag with its NDJSON name.
    pub const ALL: &[(Flags, &str)] = &[
        (Flags::Admin, "admin"),
        (Flags::Passthrough, "passthrough"),
        (Flags::InCapsule, "in_capsule"),
        (Flags::R2t, "r2t"),
        (Flags::SuccessFlag, "success_flag"),
        (Flags::TimedOut, "timed_out"),
        (Flags::Retried, "retried"),
        (Flags::Fused, "fused"),
        (Flags::Tls, "tls"),
        (Flags::Merged, "merged"),
        (Flags::Polled, "polled"),
        (Flags::Cancelled, "cancelled"),
    ];
}

/// I/O opcodes with a name of their own (NVM command set specification).
pub const IO_OPS: &[(u8, &str)] = &[
    (0x00, "flush"),
    (0x01, "write"),
    (0x02, "read"),
    (0x04, "write-uncorrectable"),
    (0x05, "compare"),
    (0x08, "write-zeroes"),
    (0x09, "dsm"),
    (0x0c, "verify"),
    (0x0d, "resv-register"),
    (0x0e, "resv-report"),
    (0x11, "resv-acquire"),
    (0x15, "resv-release"),
    (0x79, "zone-mgmt-send"),
    (0x7a, "zone-mgmt-recv"),
    (0x7d, "zone-append"),
];

/// Name of an opcode; opcodes without one are `io` or `admin`.
pub fn op_name(opcode: u8, admin: bool) -> &'static str {
    if admin {
        return "admin";
    }
    IO_OPS
        .iter()
        .find(|(op, _)| *op == opcode)
        .map_or("io", |(_, name)| name)
}
