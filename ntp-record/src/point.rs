//! The points a command passes, in the order of its way.
//!
//! One table per side and transport. `ebpf/bpf/ntp.h` holds the same numbers for
//! the kernel programs; a test compares the two. Numbers are part of the stream
//! format: append-only, a retired one leaves a hole. What the transports share has
//! the same number and name in both tables; over RDMA some numbers that only TCP
//! needs stand for other points, with other names.

use crate::header::{Role, Transport};

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

/// The points of the host over RDMA.
pub mod rdma_host {
    use super::{Point, Role};
    points! { Role::Host, ALL:
        BLOCK_START = 0, "block_start", "the bio entered the block layer";
        DRIVER_START = 1, "driver_start", "the driver set up the command (nvme_setup_cmd)";
        SEND_BEGIN = 2, "send_begin", "the driver, the data mapped, began to post the send of the capsule";
        SEND_DONE = 3, "send_done", "the driver saw the completion of that send: the other side has acknowledged it";
        SEND_END = 4, "send_end", "the call that posted it returned";
        INV_DONE = 5, "inv_done", "the driver saw the completion of its own invalidation of the memory key";
        SEND_LATE = 6, "send_late", "send_done, of a command whose response was seen before it";
        RESP_READ = 11, "resp_read", "the driver saw the completion of the receive that brought the response";
        COMPLETED = 13, "completed", "the driver handed the finished command to the block layer";
        COMPLETE_RQ = 14, "complete_rq", "nvme_complete_rq ran";
        BLOCK_DONE = 15, "block_done", "the block layer began to end the request";
    }
}

/// The points of the target over RDMA.
pub mod rdma_target {
    use super::{Point, Role};
    points! { Role::Target, ALL:
        RECV_SEEN = 1, "recv_seen", "the driver saw the completion of the receive that brought the capsule";
        RECEIVED = 2, "received", "the capsule was parsed (nvmet_req_init)";
        READ_QUEUED = 3, "read_queued", "the driver was ready to post the RDMA READ of a write's data";
        READ_POSTED = 4, "read_posted", "it posted it: later where the send queue was full";
        SEND_DONE = 5, "send_done", "the driver saw the completion of the response's send: the host has acknowledged it";
        READ_DONE = 6, "read_done", "the driver saw the completion of the last RDMA READ: the data is here";
        EXECUTE = 7, "execute", "the command was handed to its backend, all its data present";
        BIO_SUBMIT = 8, "bio_submit", "the bio entered the target's block layer";
        DRIVE_ISSUE = 9, "drive_issue", "the block layer issued the request to the drive";
        DRIVE_DONE = 10, "drive_done", "the drive had completed the request";
        BIO_DONE = 11, "bio_done", "the bio was done";
        SEND_BEGIN = 13, "send_begin", "the driver began to post the response, a read's data by RDMA WRITE in front of it";
        SEND_LAST = 14, "send_last", "with protection information: that data was written, the response is posted";
        SEND_END = 15, "send_end", "the call that posted the response returned";
    }
}

/// The points of one side, in the order of their numbers.
pub fn of(side: Role, transport: Transport) -> &'static [Point] {
    match (side, transport) {
        (Role::Host, Transport::Tcp) => host::ALL,
        (Role::Target, Transport::Tcp) => target::ALL,
        (Role::Host, Transport::Rdma) => rdma_host::ALL,
        (Role::Target, Transport::Rdma) => rdma_target::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Rdma];

    #[test]
    fn numbers_rise_and_fit_a_record() {
        for side in [Role::Host, Role::Target] {
            for transport in TRANSPORTS {
                let all = of(side, transport);
                assert!(all.windows(2).all(|two| two[0].index < two[1].index));
                assert!(all.iter().all(|p| p.side == side));
                assert!(all.iter().all(|p| usize::from(p.index) < POINTS));
            }
        }
    }

    /// A line of NDJSON has names and no transport.
    #[test]
    fn a_name_is_one_number_whatever_the_transport() {
        for side in [Role::Host, Role::Target] {
            let all: Vec<Point> = TRANSPORTS.map(|t| of(side, t)).concat();
            for p in &all {
                for q in all.iter().filter(|q| q.name == p.name) {
                    assert_eq!(p.index, q.index, "{}", p.name);
                }
            }
        }
    }
}
