//! Streams to test with, and plain copies of what a reader gives.
#![allow(dead_code, unreachable_pub, reason = "each test uses its own part")]

use ntp_record::header::{Count, HookState};
use ntp_record::{
    Connection, Counts, Damage, Device, Error, Format, Header, Item, JoinHeader, JoinTotals,
    Joined, Reader, Record, Role, Stack, Totals, Transport, Writer,
};
use std::collections::BTreeMap;
use std::io::{self, Read};

/// An item that owns its records.
#[derive(Clone, Debug, PartialEq)]
pub enum Own {
    Header(Header),
    JoinHeader(JoinHeader),
    Connection(Connection),
    Device(Device),
    Record(Box<Record>),
    Joined(Box<Joined>),
    Counts(Counts),
    Totals(Totals),
    JoinTotals(JoinTotals),
    Damage(Damage),
}

/// Everything a reader gives, one entry a record.
pub fn collect(mut reader: Reader) -> Result<Vec<Own>, Error> {
    let mut all = Vec::new();
    while let Some(item) = reader.next()? {
        assert!(all.len() < 1_000_000, "a reader without end");
        match item {
            Item::Header(x) => all.push(Own::Header(x)),
            Item::JoinHeader(x) => all.push(Own::JoinHeader(x)),
            Item::Connection(x) => all.push(Own::Connection(x)),
            Item::Device(x) => all.push(Own::Device(x)),
            Item::Records(x) => all.extend(x.iter().map(|x| Own::Record(Box::new(*x)))),
            Item::Joined(x) => all.extend(x.iter().map(|x| Own::Joined(Box::new(*x)))),
            Item::Counts(x) => all.push(Own::Counts(x)),
            Item::Totals(x) => all.push(Own::Totals(x)),
            Item::JoinTotals(x) => all.push(Own::JoinTotals(x)),
            Item::Damage(x) => all.push(Own::Damage(x)),
        }
    }
    Ok(all)
}

/// Gives at most `step` bytes a read, as a slow pipe does.
pub struct Drip {
    pub bytes: io::Cursor<Vec<u8>>,
    pub step: usize,
}

impl Read for Drip {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(self.step);
        self.bytes.read(&mut out[..count])
    }
}

/// A reader over bytes, as from a pipe.
pub fn pipe(bytes: &[u8], step: usize) -> Reader {
    Reader::from_read(
        "pipe",
        Box::new(Drip {
            bytes: io::Cursor::new(bytes.to_vec()),
            step,
        }),
    )
}

/// A reader over bytes in a file.
pub fn file(bytes: &[u8]) -> Result<(tempfile::NamedTempFile, Reader), Error> {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), bytes).expect("temporary file");
    let reader = Reader::open(file.path().to_str().expect("path"))?;
    Ok((file, reader))
}

pub fn read(bytes: &[u8]) -> Vec<Own> {
    collect(pipe(bytes, 1 << 20)).expect("readable")
}

pub fn write(items: &[Own], format: Format) -> Vec<u8> {
    let mut out = Writer::new(Vec::new(), format);
    for item in items {
        match item {
            Own::Header(x) => out.header(x),
            Own::JoinHeader(x) => out.join_header(x),
            Own::Connection(x) => out.connection(x),
            Own::Device(x) => out.device(x),
            Own::Record(x) => out.records(&[**x]),
            Own::Joined(x) => out.joined(&[**x]),
            Own::Counts(x) => out.counts(x),
            Own::Totals(x) => out.totals(x),
            Own::JoinTotals(x) => out.join_totals(x),
            Own::Damage(_) => Ok(()),
        }
        .expect("written");
    }
    out.into_inner()
}

/// Numbers without pattern (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

pub fn header(role: Role, machine: &str) -> Header {
    Header {
        role,
        transport: Transport::Tcp,
        stack: Stack::Linux,
        sampling: 100,
        salt: 7,
        filters: vec!["op=read".into()],
        machine: machine.into(),
        kernel: "6.1.0-9-amd64".into(),
        arch: "x86_64".into(),
        machine_id: "0123".into(),
        boot_id: "4567".into(),
        version: "0.1.0".into(),
        start_ns: 9_007_199_254_740_993,
        wall_minus_mono_ns: 1_764_500_000_123_456_789,
        hooks: vec![HookState {
            program: "queue_rq".into(),
            function: "nvme_tcp_queue_rq".into(),
            how: "fentry".into(),
            note: String::new(),
        }],
        missing: BTreeMap::from([("resp_arrived".into(), "no skb in hand".into())]),
    }
}

pub fn connection(id: u32) -> Connection {
    Connection {
        id,
        local: format!("10.0.0.1:{}", 41000 + id),
        remote: "[fe80::1%eth-0]:4420".into(),
        qid: id as u16,
        cntlid: 3,
        instance: 1,
        hostnqn: "nqn.2014-08.org:host \"a\"".into(),
        subnqn: "nqn.2014-08.org:sub".into(),
        since_ns: u64::MAX - 1,
        source: None,
    }
}

pub fn device(id: u32) -> Device {
    Device {
        id,
        name: format!("nvme{id}n1"),
        path: format!("nvme{id}c1n1"),
        nsid: 1,
        subnqn: "nqn.sub".into(),
    }
}

/// A record whose every field holds something, extremes included.
pub fn record(random: &mut Random) -> Record {
    let mut record = Record {
        slba: random.next() >> random.below(64),
        bytes: random.next() as u32,
        nsid: random.next() as u32,
        conn: 1 + random.below(3) as u32,
        dev: 1 + random.below(2) as u32,
        cid: random.next() as u16,
        status: random.next() as u16,
        flags: random.next() as u16,
        present: 0,
        submit_cpu: random.next() as u16,
        send_cpu: random.next() as u16,
        complete_cpu: random.next() as u16,
        length: random.next() as u16,
        opcode: random.next() as u8,
        retries: random.next() as u8,
        r2ts: random.next() as u8,
        pdus: random.next() as u8,
        reserved: 0,
        at: [0; 16],
    };
    let begin = random.next() >> random.below(64);
    for index in 0..16 {
        if random.below(3) > 0 {
            record.present |= 1 << index;
            // Mostly later, sometimes earlier, now and then absurd.
            record.at[index] = match random.below(20) {
                0 => random.next(),
                1 => begin.wrapping_sub(random.below(1 << 40)),
                _ => begin.wrapping_add(random.below(1 << 34)),
            };
        }
    }
    record
}

pub fn totals() -> Totals {
    let group = Count {
        dev: 1,
        opcode: 2,
        bytes: 4096,
        admin: false,
        commands: 1 << 60,
    };
    Totals {
        end_ns: 9_007_199_254_740_993,
        seen: u64::MAX,
        sampled: 12,
        written: 11,
        lost: BTreeMap::from([("ring_full".into(), 1), ("huge".into(), u64::MAX - 2)]),
        unfinished: 0,
        misses: BTreeMap::from([("resp_arrived".into(), 0)]),
        groups: vec![group],
    }
}

pub fn names() -> Vec<Own> {
    let connections = (1..=3).map(|id| Own::Connection(connection(id)));
    connections
        .chain((1..=2).map(|id| Own::Device(device(id))))
        .collect()
}

/// A whole recording with `count` records.
pub fn recording(role: Role, machine: &str, count: usize) -> Vec<Own> {
    let mut random = Random(42 + count as u64);
    let mut all = vec![Own::Header(header(role, machine))];
    all.extend(names());
    all.extend((0..count).map(|_| Own::Record(Box::new(record(&mut random)))));
    let Totals { groups, .. } = totals();
    all.push(Own::Counts(Counts {
        at_ns: 1 << 62,
        groups,
    }));
    all.push(Own::Totals(totals()));
    all
}

/// A whole joined stream with `count` commands.
pub fn join(count: usize) -> Vec<Own> {
    let mut random = Random(4711);
    let (hosts, targets) = (
        vec![header(Role::Host, "h")],
        vec![header(Role::Target, "t")],
    );
    let mut all = vec![Own::JoinHeader(JoinHeader {
        version: "0.1.0".into(),
        hosts,
        targets,
    })];
    all.extend(names().into_iter().map(|name| match name {
        Own::Connection(connection) => Own::Connection(Connection {
            source: Some(connection.id % 2),
            ..connection
        }),
        other => other,
    }));
    all.extend((0..count).map(|index| {
        Own::Joined(Box::new(Joined {
            host: record(&mut random),
            target: record(&mut random),
            offset_ns: random.next() as i64,
            offset_bound_ns: if index % 3 == 0 {
                u64::MAX
            } else {
                random.below(1 << 62)
            },
        }))
    }));
    all.push(Own::JoinTotals(JoinTotals {
        host: 1,
        target: 2,
        matched: u64::MAX,
        host_inside: 4,
        host_left: BTreeMap::from([("ambiguous".into(), 1 << 61)]),
        target_left: BTreeMap::new(),
        damaged_bytes: 0,
        counts: totals().groups,
        counted_ns: u64::MAX - 1,
        sources: vec![totals()],
    }));
    all
}
