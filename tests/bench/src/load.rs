//! A load, simulated: two recordings of the same commands, always the same.
//!
//! A host with two controllers of four I/O queues each drives three namespaces
//! of a target through closed loops, one for each slot of each queue. Every
//! point a command passes is there, with delays as measured on real machines:
//! a least time and an exponential tail. The two machines' clocks differ by
//! hours and drift apart by 7 ppm.
//!
//! Memory is bounded by the commands in flight, whatever their number.

use crate::random::Random;
use anyhow::{Context, Result};
use ntp_record::header::{Count, Role};
use ntp_record::point::{host as h, target as t};
use ntp_record::record::{Flags, Record};
use ntp_record::{Connection, Device, Format, Header, Stack, Totals, Transport, Writer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Queues, over both controllers.
const QUEUES: u32 = 8;
/// Slots of a queue: commands in flight at most.
const DEPTH: u16 = 16;
/// Namespaces.
const DEVICES: u64 = 3;
/// Blocks of 512 bytes in a namespace.
const BLOCKS: u64 = 1 << 31;
/// Port of the host's end of the first queue.
pub(crate) const PORT: u32 = 41_000;

/// True time at which the recordings begin, ns.
const BEGIN: u64 = 1_000_000_000;
/// Clock of the host at true time 0, ns.
const HOST_ZERO: u64 = 5_000_000_000_000;
/// Clock of the target at true time 0, ns, and what it gains, ppm.
const TARGET_ZERO: u64 = 93_000_000_000_000;
const TARGET_PPM: u64 = 7;
/// Wall clock at true time 0, ns since 1970.
const WALL_ZERO: u64 = 1_796_000_000_000_000_000;
/// Records in a chunk, as ntp-capture writes them.
const CHUNK: usize = 4096;

/// A kind of command: how many in 100, opcode, bytes.
struct Kind {
    share: u64,
    opcode: u8,
    bytes: u32,
    /// Write data after an R2T, not in the capsule.
    r2t: bool,
}

const KINDS: &[Kind] = &[
    Kind {
        share: 60,
        opcode: 2,
        bytes: 4096,
        r2t: false,
    },
    Kind {
        share: 15,
        opcode: 2,
        bytes: 65_536,
        r2t: false,
    },
    Kind {
        share: 15,
        opcode: 1,
        bytes: 4096,
        r2t: false,
    },
    Kind {
        share: 10,
        opcode: 1,
        bytes: 65_536,
        r2t: true,
    },
];

/// A command in flight.
struct Slot {
    /// True time at which it is submitted, ns.
    at: u64,
    queue: u32,
    tag: u16,
}

/// Recording of one machine while it is written.
struct Recorder {
    writer: Writer<BufWriter<File>>,
    role: Role,
    /// Records by their ends, so that they are written in that order.
    waiting: BinaryHeap<Reverse<Ended>>,
    chunk: Vec<Record>,
    groups: BTreeMap<(u32, u8, u32), u64>,
    written: u64,
}

/// A record, ordered by the true time of its end.
struct Ended {
    at: u64,
    number: u64,
    record: Record,
}

impl PartialEq for Ended {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ended {}
impl PartialOrd for Ended {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ended {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Writes `host.ntp` and `target.ntp` with so many commands each into a folder.
///
/// # Errors
/// Those of the files.
pub(crate) fn generate(commands: u64, folder: &Path) -> Result<()> {
    let mut random = Random::new(20_261_130);
    let mut host = Recorder::create(folder, Role::Host)?;
    let mut target = Recorder::create(folder, Role::Target)?;
    let mut next: BinaryHeap<Reverse<(u64, u32, u16)>> = BinaryHeap::new();
    for queue in 0..QUEUES {
        for tag in 0..DEPTH {
            next.push(Reverse((BEGIN + random.delay(0, 50_000.0), queue, tag)));
        }
    }
    let mut ways = vec![Way::default(); QUEUES as usize];
    let mut turns = vec![0u16; QUEUES as usize * usize::from(DEPTH)];
    let mut now = BEGIN;
    for number in 0..commands {
        let Some(Reverse((at, queue, tag))) = next.pop() else {
            break;
        };
        now = at;
        host.write_until(at)?;
        target.write_until(at)?;
        let turn = &mut turns[queue as usize * usize::from(DEPTH) + usize::from(tag)];
        *turn = (*turn + 1) % 16;
        let slot = Slot {
            at,
            queue,
            tag: *turn << 12 | tag,
        };
        let pair = pass(&slot, &mut ways[queue as usize], &mut random);
        next.push(Reverse((
            pair.over.0 + random.delay(2_000, 20_000.0),
            queue,
            tag,
        )));
        host.add(pair.over.0, number, pair.host);
        target.add(pair.over.1, number, pair.target);
    }
    let end = now + 1_000_000_000;
    host.finish(end)?;
    target.finish(end)
}

/// When the last message of a queue passed, each way, ns: TCP keeps their order.
#[derive(Clone, Copy, Default)]
struct Way {
    arrived: u64,
    responded: u64,
}

/// Records of one command, and when each ends, ns.
struct Pair {
    host: Record,
    target: Record,
    over: (u64, u64),
}

/// Sends a command on its way.
fn pass(slot: &Slot, way: &mut Way, random: &mut Random) -> Pair {
    let mut pick = random.below(100);
    let kind = KINDS.iter().find(|kind| {
        let taken = pick < kind.share;
        pick = pick.saturating_sub(kind.share);
        taken
    });
    let kind = kind.unwrap_or(&KINDS[0]);
    let device = random.below(DEVICES) as u32;
    let blocks = kind.bytes / 512;
    let write = kind.opcode == 1;
    let what = Record {
        slba: random.below(BLOCKS / u64::from(blocks)) * u64::from(blocks),
        bytes: kind.bytes,
        nsid: device + 1,
        cid: slot.tag,
        length: (blocks - 1) as u16,
        opcode: kind.opcode,
        flags: match (write, kind.r2t) {
            (true, true) => Flags::R2t as u16,
            (true, false) => Flags::InCapsule as u16,
            (false, _) => Flags::SuccessFlag as u16,
        },
        r2ts: u8::from(kind.r2t),
        ..Record::default()
    };
    let cpu = slot.queue as u16 * 2;
    let mut host = Record {
        conn: slot.queue + 1,
        dev: device + 1,
        submit_cpu: cpu,
        send_cpu: cpu + u16::from(random.below(8) == 0),
        complete_cpu: cpu,
        pdus: 1 + u8::from(!write && kind.bytes > 32_768),
        ..what
    };
    let mut target = Record {
        conn: 100 + QUEUES - slot.queue,
        dev: 10 + device,
        submit_cpu: cpu + 1,
        send_cpu: cpu + 1,
        complete_cpu: (cpu + 5) % 16,
        ..what
    };
    // Time of the wire for the data, at 25 Gbit/s.
    let long = u64::from(kind.bytes) * 8 / 25;
    let (in_capsule, data_in) = (write && !kind.r2t, !write);

    let mut at = slot.at;
    let mut host_at = |point, at: u64| host.set(point, HOST_ZERO + at);
    let mut target_at = |point, at: u64| {
        let gained = (u128::from(at) * u128::from(TARGET_PPM) / 1_000_000) as u64;
        target.set(point, TARGET_ZERO + at + gained);
    };
    host_at(h::BLOCK_START, at);
    at += random.delay(250, 200.0);
    host_at(h::DRIVER_START, at);
    at += random.delay(600, 2_000.0);
    host_at(h::SEND_BEGIN, at);
    host_at(h::SEND_LAST, at + if in_capsule { 400 } else { 0 });
    host_at(h::SEND_END, at + random.delay(1_800, 900.0));

    at += random.delay(6_000, 2_500.0) + if in_capsule { long } else { 0 };
    at = at.max(way.arrived + 150);
    way.arrived = at;
    target_at(t::ARRIVED, at);
    at += random.delay(500, 1_500.0);
    target_at(t::PDU_READ, at);
    at += random.delay(150, 100.0);
    target_at(t::RECEIVED, at);
    if kind.r2t {
        at += random.delay(200, 150.0);
        target_at(t::R2T_QUEUED, at);
        at += random.delay(300, 900.0);
        target_at(t::R2T_SEND, at);
        at += random.delay(7_000, 2_500.0);
        host_at(h::R2T_ARRIVED, at);
        at += random.delay(600, 1_200.0);
        host_at(h::R2T_READ, at);
        at += random.delay(500, 1_000.0);
        host_at(h::DATA_SEND_BEGIN, at);
        host_at(h::DATA_SEND_LAST, at + 2_500);
        host_at(h::DATA_SEND_END, at + random.delay(6_000, 2_000.0));
        at += random.delay(6_000, 2_500.0);
        target_at(t::DATA_ARRIVED, at);
        at += random.delay(400, 800.0);
        target_at(t::DATA_READ, at);
        at += long;
    }
    at += random.delay(250, 300.0);
    target_at(t::EXECUTE, at);
    at += random.delay(100, 50.0);
    target_at(t::BIO_SUBMIT, at);
    at += random.delay(350, 250.0);
    target_at(t::DRIVE_ISSUE, at);
    at += if write {
        random.delay(9_000, 6_000.0)
    } else {
        random.delay(55_000, 25_000.0)
    };
    // One in a thousand waits for the flash behind an erase.
    if random.below(1000) == 0 {
        at += random.delay(500_000, 700_000.0);
    }
    target_at(t::DRIVE_DONE, at);
    at += random.delay(120, 80.0);
    target_at(t::BIO_DONE, at);
    at += random.delay(180, 120.0);
    target_at(t::RESP_QUEUED, at);
    at += random.delay(500, 1_800.0);
    target_at(t::SEND_BEGIN, at);
    target_at(t::SEND_LAST, at + if data_in { 900 } else { 0 });
    let target_over = at + random.delay(2_200, 900.0);
    target_at(t::SEND_END, target_over);

    at += random.delay(7_000, 2_500.0);
    // Quick responses stay in order; a slow one is not waited for.
    if way.responded.saturating_sub(at) < 100_000 {
        at = at.max(way.responded + 100);
        way.responded = at;
    }
    host_at(h::RESP_ARRIVED, at);
    at += random.delay(900, 1_800.0);
    host_at(h::RESP_READ, at);
    at += if data_in { long / 4 } else { 0 };
    host_at(h::RESP_LAST, at);
    at += random.delay(400, 250.0);
    host_at(h::COMPLETED, at);
    at += random.delay(80, 40.0);
    host_at(h::COMPLETE_RQ, at);
    at += random.delay(60, 30.0);
    host_at(h::BLOCK_DONE, at);
    Pair {
        host,
        target,
        over: (at, target_over),
    }
}

impl Recorder {
    fn create(folder: &Path, role: Role) -> Result<Self> {
        let path = folder.join(match role {
            Role::Host => "host.ntp",
            Role::Target => "target.ntp",
        });
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let out = BufWriter::with_capacity(64 << 10, file);
        let mut writer = Writer::new(out, Format::Binary);
        writer.header(&header(role))?;
        for queue in 0..QUEUES {
            let (near, far) = (
                format!("10.0.0.1:{}", PORT + queue),
                "10.0.0.2:4420".to_owned(),
            );
            let (id, local, remote) = match role {
                Role::Host => (queue + 1, near, far),
                Role::Target => (100 + QUEUES - queue, far, near),
            };
            writer.connection(&Connection {
                id,
                local,
                remote,
                qid: (queue % 4) as u16 + 1,
                cntlid: (queue / 4) as u16 + 1,
                instance: if role == Role::Host { queue / 4 } else { 0 },
                since_ns: clock(role, BEGIN),
                ..Connection::default()
            })?;
        }
        for device in 0..DEVICES as u32 {
            let (id, name) = match role {
                Role::Host => (device + 1, format!("nvme{}n1", device + 1)),
                Role::Target => (10 + device, format!("nvme{device}n1")),
            };
            writer.device(&Device {
                id,
                name,
                nsid: device + 1,
                ..Device::default()
            })?;
        }
        Ok(Recorder {
            writer,
            role,
            waiting: BinaryHeap::new(),
            chunk: Vec::with_capacity(CHUNK),
            groups: BTreeMap::new(),
            written: 0,
        })
    }

    fn add(&mut self, at: u64, number: u64, record: Record) {
        *self
            .groups
            .entry((record.dev, record.opcode, record.bytes))
            .or_default() += 1;
        self.waiting.push(Reverse(Ended { at, number, record }));
    }

    /// Writes the records that ended before a moment: nothing earlier can come.
    fn write_until(&mut self, until: u64) -> Result<()> {
        while self
            .waiting
            .peek()
            .is_some_and(|Reverse(first)| first.at < until)
        {
            if let Some(Reverse(first)) = self.waiting.pop() {
                self.chunk.push(first.record);
            }
            if self.chunk.len() == CHUNK {
                self.write_chunk()?;
            }
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<()> {
        self.writer.records(&self.chunk)?;
        self.written += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }

    fn finish(mut self, end: u64) -> Result<()> {
        self.write_until(u64::MAX)?;
        self.write_chunk()?;
        let groups = self
            .groups
            .iter()
            .map(|((dev, opcode, bytes), commands)| Count {
                dev: *dev,
                opcode: *opcode,
                bytes: *bytes,
                admin: false,
                commands: *commands,
            });
        self.writer.totals(&Totals {
            end_ns: clock(self.role, end),
            seen: self.written,
            sampled: self.written,
            written: self.written,
            groups: groups.collect(),
            ..Totals::default()
        })?;
        self.writer.flush()?;
        Ok(())
    }
}

/// A machine's clock at a true time, ns.
fn clock(role: Role, at: u64) -> u64 {
    match role {
        Role::Host => HOST_ZERO + at,
        Role::Target => {
            TARGET_ZERO + at + (u128::from(at) * u128::from(TARGET_PPM) / 1_000_000) as u64
        }
    }
}

fn header(role: Role) -> Header {
    let name = match role {
        Role::Host => "host",
        Role::Target => "target",
    };
    let start_ns = clock(role, BEGIN);
    Header {
        role,
        transport: Transport::Tcp,
        stack: Stack::Linux,
        sampling: 1,
        salt: 0,
        filters: Vec::new(),
        machine: name.into(),
        kernel: "6.12.0".into(),
        arch: "x86_64".into(),
        machine_id: name.into(),
        boot_id: format!("boot of {name}"),
        version: env!("CARGO_PKG_VERSION").into(),
        start_ns,
        wall_minus_mono_ns: (WALL_ZERO + BEGIN - start_ns) as i64,
        hooks: Vec::new(),
        missing: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ntp_record::{Item, Reader};
    use std::collections::HashMap;

    fn records(path: &Path) -> Vec<Record> {
        let mut reader = Reader::open(path.to_str().expect("path")).expect("recording");
        let mut all = Vec::new();
        while let Some(item) = reader.next().expect("read") {
            match item {
                Item::Records(records) => all.extend_from_slice(records),
                Item::Damage(damage) => panic!("{damage}"),
                _ => {}
            }
        }
        assert!(reader.ended_cleanly());
        all
    }

    #[test]
    fn both_sides_have_every_command_in_order_of_the_ends() {
        let folder = tempfile::tempdir().expect("folder");
        generate(20_000, folder.path()).expect("written");
        let host = records(&folder.path().join("host.ntp"));
        let target = records(&folder.path().join("target.ntp"));
        assert_eq!((host.len(), target.len()), (20_000, 20_000));
        let ends = |records: &[Record]| {
            records
                .iter()
                .map(|record| record.at[15])
                .collect::<Vec<_>>()
        };
        assert!(ends(&host).is_sorted() && ends(&target).is_sorted());
        let queue = |record: &Record, role| match role {
            Role::Host => record.conn,
            Role::Target => 101 + QUEUES - record.conn,
        };
        let mut there: HashMap<_, Vec<&Record>> = HashMap::new();
        for record in &target {
            let key = (queue(record, Role::Target), record.cid, record.slba);
            there.entry(key).or_default().push(record);
        }
        for record in &host {
            let key = (queue(record, Role::Host), record.cid, record.slba);
            let nested = there[&key].iter().any(|target| {
                // Back to true time, to the rounding of the drift.
                let true_ns = |point| {
                    let ns = target.time(point).expect("point") - TARGET_ZERO;
                    (ns as f64 / (1.0 + TARGET_PPM as f64 / 1e6)) as u64
                };
                let sent = record.time(h::SEND_BEGIN).expect("point") - HOST_ZERO;
                let heard = record.time(h::RESP_ARRIVED).expect("point") - HOST_ZERO;
                sent < true_ns(t::ARRIVED) && true_ns(t::SEND_BEGIN) < heard
            });
            assert!(nested, "{record:?}");
            assert_eq!(
                record.has(Flags::R2t),
                record.time(h::R2T_ARRIVED).is_some()
            );
        }
    }

    #[test]
    fn two_runs_are_the_same() {
        let (one, two) = (
            tempfile::tempdir().expect("folder"),
            tempfile::tempdir().expect("folder"),
        );
        generate(5_000, one.path()).expect("written");
        generate(5_000, two.path()).expect("written");
        for name in ["host.ntp", "target.ntp"] {
            let read =
                |folder: &tempfile::TempDir| std::fs::read(folder.path().join(name)).expect("file");
            assert!(read(&one) == read(&two));
        }
    }
}
