//! What the kernel programs send besides records: names, counters. The layout
//! is that of `bpf/ntp.h`; a test compares the two.

use ntp_record::{Connection, Device};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Room for an NQN (223 bytes and NUL, base specification 4.5).
const NQN: usize = 224;
/// Room for a backing path.
const PATH: usize = 128;

/// `struct ntp_name`: a connection or a device, sent before the first record
/// that refers to it; now and then twice.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
pub struct RawName {
    /// 1 connection, 2 device.
    pub kind: u32,
    /// Id that records use.
    pub id: u32,
    /// Monotonic time of the first command seen, ns.
    pub since_ns: u64,
    /// This machine's address, IPv6 or IPv4-mapped.
    pub local: [u8; 16],
    /// The other machine's.
    pub remote: [u8; 16],
    /// Port of this end.
    pub local_port: u16,
    /// Port of the other end.
    pub remote_port: u16,
    /// NVMe queue id.
    pub qid: u16,
    /// Controller id.
    pub cntlid: u16,
    /// Controller instance on the host.
    pub instance: u32,
    /// Namespace id (device).
    pub nsid: u32,
    /// Host NQN.
    pub hostnqn: [u8; NQN],
    /// Subsystem NQN.
    pub subnqn: [u8; NQN],
    /// Device below a multipath disk.
    pub path: [u8; 32],
    /// Disk name or backing path (device).
    pub name: [u8; PATH],
}

/// A name the kernel programs sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A connection.
    Connection(Connection),
    /// A device.
    Device(Device),
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// `10.0.0.1:4420` or `[fe80::1]:4420`; an IPv4-mapped address is IPv4.
fn address(bytes: [u8; 16], port: u16) -> String {
    let v6 = Ipv6Addr::from(bytes);
    let ip = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
    SocketAddr::new(ip, port).to_string()
}

impl Name {
    /// Reads one message of the `names` ring buffer; `None` when it is no name
    /// this version knows.
    pub fn parse(bytes: &[u8]) -> Option<Name> {
        let (raw, _) = RawName::read_from_prefix(bytes).ok()?;
        match raw.kind {
            1 => Some(Name::Connection(Connection {
                id: raw.id,
                local: address(raw.local, raw.local_port),
                remote: address(raw.remote, raw.remote_port),
                qid: raw.qid,
                cntlid: raw.cntlid,
                instance: raw.instance,
                hostnqn: text(&raw.hostnqn),
                subnqn: text(&raw.subnqn),
                since_ns: raw.since_ns,
                source: None,
            })),
            2 => Some(Name::Device(Device {
                id: raw.id,
                name: text(&raw.name),
                path: text(&raw.path),
                nsid: raw.nsid,
                subnqn: text(&raw.subnqn),
            })),
            _ => None,
        }
    }
}

/// `struct ntp_count_key`: a group of which every command is counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, KnownLayout)]
pub struct CountKey {
    /// Device id.
    pub dev: u32,
    /// Bytes per command.
    pub bytes: u32,
    /// Opcode.
    pub opcode: u8,
    /// Admin queue.
    pub admin: u8,
    /// 0.
    pub zero: u16,
}

/// What a counter of the `stats` map counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Commands that pass the filters.
    Seen,
    /// Of these, chosen by the hash.
    Sampled,
    /// Records handed to user space.
    Emitted,
    /// Sampled commands that gave no record, with the cause.
    Lost(&'static str),
    /// Points or names that could not be had, with the cause.
    Miss(&'static str),
}

/// The counters of the `stats` map, by index (`enum ntp_stat`).
pub const STATS: &[StatKind] = &[
    StatKind::Seen,
    StatKind::Sampled,
    StatKind::Emitted,
    StatKind::Lost("ring_full"),
    StatKind::Lost("inflight_full"),
    StatKind::Lost("end_not_seen"),
    StatKind::Lost("retried"),
    StatKind::Miss("queue_table_full"),
    StatKind::Miss("arrival_forgotten"),
    StatKind::Miss("name_not_sent"),
    StatKind::Miss("count_table_full"),
    StatKind::Lost("connection_closed"),
    StatKind::Miss("start_of_request"),
    StatKind::Miss("merged_bios"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_written_as_ipv4() {
        let mut bytes = [0; 16];
        bytes[10] = 0xff;
        bytes[11] = 0xff;
        bytes[12..].copy_from_slice(&[10, 0, 0, 1]);
        assert_eq!(address(bytes, 4420), "10.0.0.1:4420");
        assert_eq!(address(Ipv6Addr::LOCALHOST.octets(), 4420), "[::1]:4420");
    }

    #[test]
    fn text_ends_at_nul_or_at_the_end() {
        assert_eq!(text(b"nvme0n1\0garbage"), "nvme0n1");
        assert_eq!(text(b"full"), "full");
    }
}
