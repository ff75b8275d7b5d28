//! Small recordings made by hand: a command is the list of its component times.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use ntp_record::point::{host as h, target as t};
use ntp_record::row::{Component, Group, Row, Stage, Totals};
use ntp_record::{
    Connection, Counts, Device, Flags, Header, Item, JoinHeader, JoinTotals, Joined, Point, Record,
    Role, Stack, Transport,
};
use ntp_stages::{Engine, Options};

/// Host clock at which recordings begin, ns.
pub const START: u64 = 1_000_000_000_000;

pub fn header(role: Role, machine: &str, sampling: u32) -> Header {
    Header {
        role,
        transport: Transport::Tcp,
        stack: Stack::Linux,
        sampling,
        salt: 0,
        filters: Vec::new(),
        machine: machine.into(),
        kernel: "6.1.0-44-amd64".into(),
        arch: "x86_64".into(),
        machine_id: String::new(),
        boot_id: String::new(),
        version: "0.1.0".into(),
        start_ns: START,
        wall_minus_mono_ns: 1_700_000_000_000_000_000,
        hooks: Vec::new(),
        missing: Default::default(),
    }
}

pub fn device(id: u32, name: &str) -> Device {
    Device {
        id,
        name: name.into(),
        nsid: 1,
        ..Device::default()
    }
}

pub fn connection(id: u32, qid: u16) -> Connection {
    Connection {
        id,
        local: "10.0.0.1:41000".into(),
        remote: "10.0.0.2:4420".into(),
        qid,
        ..Connection::default()
    }
}

/// A read of 4 KiB on device 1 and connection 1.
pub fn read() -> Record {
    Record {
        opcode: 2,
        bytes: 4096,
        length: 7,
        nsid: 1,
        conn: 1,
        dev: 1,
        ..Record::default()
    }
}

/// A write of 128 KiB on device 1 and connection 1.
pub fn write(flags: Flags) -> Record {
    Record {
        opcode: 1,
        bytes: 131_072,
        length: 255,
        flags: flags as u16,
        ..read()
    }
}

/// Goes along points: each step is the time since the one before, ns.
pub struct Way {
    pub record: Record,
    now: u64,
}

impl Way {
    pub fn new(record: Record, begin: u64, at: Point) -> Self {
        let mut way = Way { record, now: begin };
        way.record.set(at, begin);
        way
    }

    pub fn step(mut self, ns: i64, to: Point) -> Self {
        self.now = self.now.wrapping_add_signed(ns);
        self.record.set(to, self.now);
        self
    }

    /// Time passes without a point.
    pub fn pass(mut self, ns: i64) -> Self {
        self.now = self.now.wrapping_add_signed(ns);
        self
    }

    pub fn now(&self) -> u64 {
        self.now
    }
}

/// Times of a joined read, in path order, ns.
#[derive(Clone, Copy)]
pub struct ReadTimes {
    pub host: [i64; 2],
    pub wire_out: i64,
    pub target: [i64; 8],
    pub wire_back: i64,
    pub host_back: [i64; 5],
}

/// A joined read that begins at `begin` of the host's clock; the target's is `offset` ahead.
pub fn joined_read(times: ReadTimes, begin: u64, offset: i64, bound: u64) -> Joined {
    let ReadTimes {
        host,
        wire_out,
        target,
        wire_back,
        host_back,
    } = times;
    let out = Way::new(read(), begin, h::BLOCK_START)
        .step(host[0], h::DRIVER_START)
        .step(host[1], h::SEND_BEGIN);
    let arrived = out
        .now()
        .wrapping_add_signed(wire_out)
        .wrapping_add_signed(offset);
    let target_points = [
        t::RECEIVED,
        t::EXECUTE,
        t::BIO_SUBMIT,
        t::DRIVE_ISSUE,
        t::DRIVE_DONE,
        t::BIO_DONE,
        t::RESP_QUEUED,
        t::SEND_BEGIN,
    ];
    let mut held = Way::new(
        Record {
            dev: 2,
            conn: 2,
            ..read()
        },
        arrived,
        t::ARRIVED,
    );
    for (ns, point) in target.into_iter().zip(target_points) {
        held = held.step(ns, point);
    }
    let back = held
        .now()
        .wrapping_add_signed(wire_back)
        .wrapping_add_signed(-offset);
    let gap = back.wrapping_sub(out.now()) as i64;
    let mut back = out.step(gap, h::RESP_ARRIVED);
    let host_points = [
        h::RESP_READ,
        h::RESP_LAST,
        h::COMPLETED,
        h::COMPLETE_RQ,
        h::BLOCK_DONE,
    ];
    for (ns, point) in host_back.into_iter().zip(host_points) {
        back = back.step(ns, point);
    }
    Joined {
        host: back.record,
        target: held.record,
        offset_ns: offset,
        offset_bound_ns: bound,
    }
}

/// Header and names of a joined stream of one host and one target.
pub fn joined_names(sampling: u32) -> Vec<Item<'static>> {
    let join = JoinHeader {
        version: "0.1.0".into(),
        hosts: vec![header(Role::Host, "alpha", sampling)],
        targets: vec![header(Role::Target, "beta", sampling)],
    };
    vec![
        Item::JoinHeader(join),
        Item::Device(device(1, "nvme0n1")),
        Item::Device(device(2, "/dev/nullb0")),
        Item::Connection(connection(1, 3)),
        Item::Connection(Connection {
            id: 2,
            ..connection(2, 3)
        }),
    ]
}

/// Header and names of a recording of one machine.
pub fn names(role: Role, sampling: u32) -> Vec<Item<'static>> {
    let machine = if role == Role::Host { "alpha" } else { "beta" };
    let name = if role == Role::Host {
        "nvme0n1"
    } else {
        "/dev/nullb0"
    };
    vec![
        Item::Header(header(role, machine, sampling)),
        Item::Device(device(1, name)),
        Item::Connection(connection(1, 3)),
    ]
}

pub fn totals(end_ns: u64, commands: &[(u8, u32, u64)]) -> ntp_record::Totals {
    let groups = commands
        .iter()
        .map(|(opcode, bytes, commands)| ntp_record::header::Count {
            dev: 1,
            opcode: *opcode,
            bytes: *bytes,
            admin: false,
            commands: *commands,
        })
        .collect();
    ntp_record::Totals {
        end_ns,
        groups,
        ..Default::default()
    }
}

pub fn counts(at_ns: u64) -> Counts {
    Counts {
        at_ns,
        groups: Vec::new(),
    }
}

pub fn join_totals(host: u64, target: u64, matched: u64) -> JoinTotals {
    JoinTotals {
        host,
        target,
        matched,
        host_inside: host,
        ..JoinTotals::default()
    }
}

/// The rows of a stream.
pub fn rows_with(options: Options, items: &[Item<'_>]) -> Vec<Row> {
    let mut engine = Engine::new(options);
    let mut rows = Vec::new();
    for item in items {
        engine.apply(item);
        rows.append(&mut engine.take_rows());
    }
    rows.append(&mut engine.finish());
    rows
}

pub fn rows(items: &[Item<'_>]) -> Vec<Row> {
    rows_with(Options::default(), items)
}

pub fn groups(rows: &[Row]) -> Vec<&Group> {
    rows.iter()
        .filter_map(|row| {
            if let Row::Group(group) = row {
                Some(group)
            } else {
                None
            }
        })
        .collect()
}

pub fn stages(rows: &[Row]) -> Vec<&Stage> {
    rows.iter()
        .filter_map(|row| {
            if let Row::Stage(stage) = row {
                Some(stage)
            } else {
                None
            }
        })
        .collect()
}

pub fn components(rows: &[Row]) -> Vec<&Component> {
    rows.iter()
        .filter_map(|row| {
            if let Row::Component(part) = row {
                Some(part)
            } else {
                None
            }
        })
        .collect()
}

pub fn component<'a>(rows: &'a [Row], name: &str) -> &'a Component {
    let all = components(rows);
    let found = all.iter().find(|c| c.component == name);
    found.unwrap_or_else(|| {
        panic!(
            "no component `{name}` in {:?}",
            all.iter().map(|c| &c.component).collect::<Vec<_>>()
        )
    })
}

pub fn totals_row(rows: &[Row]) -> &Totals {
    match rows.last() {
        Some(Row::Totals(totals)) => totals,
        other => panic!("the last row is {other:?}"),
    }
}

pub fn warnings(rows: &[Row]) -> Vec<&str> {
    rows.iter()
        .filter_map(|row| {
            if let Row::Warning(w) = row {
                Some(w.code.as_str())
            } else {
                None
            }
        })
        .collect()
}
