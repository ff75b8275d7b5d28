//! The points a command passes, in the order of its way.
//!
//! One table per side. `ebpf/bpf/ntp.h` holds the same numbers for the kernel
//! programs; a test compares the two. Numbers are part of the stream format:
//! append-only, a retired one leaves a hole.

use crate::header::Role;

/// How many points a record has room for.
pub const POINTS: usize = 16;

/// A moment on a command's way through one machine.
///
/// The value is the index of the timestamp in [`crate::Record::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// Side on which the point lies.
    pub side: Role,
    /// Index of its timestamp in a record of that side.
    pub index: u8,
    /// Name in NDJSON, in the documentation and in the hook table.
    pub name: &'static str,
    /// What happens at this moment.
    pub meaning: &'static str,
}

macro_rules! points {
    ($side:expr, $table:ident: $($konst:ident = $index:literal, $name:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning]
        pub const $konst: Point = Point { side: $side, index: $index, name: $name, meaning: $meaning };)*
        /// All points of this side, by index.
        pub const $table: &[Point] = &[$($konst),*];
    };
}

/// The points of the host.
pub mod host {
    use super::{Point, Role};
    points! { Role::Host, ALL:
        BLOCK_START = 0, "block_start", "the bio entered the block layer";
        DRIVER_START = 1, "driver_start", "the driver set up the command (nvme_setup_cmd)";
        SEND_BEGIN = 2, "send_begin", "the first send call for the command capsule began";
        SEND_LAST = 3, "send_last", "the last send call for the capsule and its in-capsule data began";
        SEND_END = 4, "send_end", "that call returned, the last byte handed over";
        R2T_ARRIVED = 5, "r2t_arrived", "the first packet of the first R2T arrived";
        R2T_READ = 6, "r2t_read", "the driver began to read the first R2T";
        DATA_SEND_BEGIN = 7, "data_send_begin", "the first send call for data asked for by an R2T began";
        DATA_SEND_LAST = 8, "data_send_last", "the last send call for data asked for by an R2T began";
        DATA_SEND_END = 9, "data_send_end", "that call returned, the last byte of data handed over";
        RESP_ARRIVED = 10, "resp_arrived", "the first packet of the response (data or completion) arrived";
        RESP_READ = 11, "resp_read", "the driver began to read the first PDU of the response";
        RESP_LAST = 12, "resp_last", "the driver was given the last packet of the response";
        COMPLETED = 13, "completed", "the driver handed the finished command to the block layer";
        COMPLETE_RQ = 14, "complete_rq", "nvme_complete_rq ran";
        BLOCK_DONE = 15, "block_done", "the block layer began to end the request";
    }
}

/// The points of the target.
pub mod target {
    use super::{Point, Role};
    points! { Role::Target, ALL:
        ARRIVED = 0, "arrived", "the first packet of the command capsule arrived";
        PDU_READ = 1, "pdu_read", "the driver began to read the capsule";
        RECEIVED = 2, "received", "the capsule was read and parsed (nvmet_req_init)";
        R2T_QUEUED = 3, "r2t_queued", "the driver queued the first R2T";
        R2T_SEND = 4, "r2t_send", "the send call for the first R2T began";
        DATA_ARRIVED = 5, "data_arrived", "the first packet of the data asked for by an R2T arrived";
        DATA_READ = 6, "data_read", "the driver saw the first PDU of that data";
        EXECUTE = 7, "execute", "the command was handed to its backend, all its data present";
        BIO_SUBMIT = 8, "bio_submit", "the bio entered the target's block layer";
        DRIVE_ISSUE = 9, "drive_issue", "the block layer issued the request to the drive";
        DRIVE_DONE = 10, "drive_done", "the drive had completed the request";
        BIO_DONE = 11, "bio_done", "the bio was done";
        RESP_QUEUED = 12, "resp_queued", "the driver queued the response";
        SEND_BEGIN = 13, "send_begin", "the first send call for the response (data or completion) began";
        SEND_LAST = 14, "send_last", "the last send call for the response began";
        SEND_END = 15, "send_end", "that call returned, the last byte handed over";
    }
}

/// The points of one side, by index.
pub fn of(side: Role) -> &'static [Point] {
    match side {
        Role::Host => host::ALL,
        Role::Target => target::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_indexed_by_position_and_names_are_unique() {
        for side in [Role::Host, Role::Target] {
            let all = of(side);
            assert!(all.len() <= POINTS);
            for (i, p) in all.iter().enumerate() {
                assert_eq!(usize::from(p.index), i, "{}", p.name);
                assert_eq!(p.side, side);
                assert_eq!(
                    all.iter().filter(|q| q.name == p.name).count(),
                    1,
                    "{}",
                    p.name
                );
            }
        }
    }
}
