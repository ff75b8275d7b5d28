//! A host, a target and a network between them, simulated: gives recordings
//! of both sides whose truth is known.
//!
//! True time is in ns. Each connection is a closed loop of `depth` slots.
//! `Record::reserved`, which no tool reads, carries the number of the command.

use ntp_record::point::{host, target};
use ntp_record::record::{Flags, Record};
use ntp_record::sample;
use ntp_record::{Connection, Device, Header, Role, Stack, Totals, Transport};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Exponentially distributed.
    pub(crate) fn exp(&mut self, mean: f64) -> i64 {
        (-(1.0 - self.unit()).ln() * mean) as i64
    }
}

/// A clock: reads `at_zero` at true time 0, gains `ppm`; from `bend.0` on, `bend.1` ppm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) at_zero: i64,
    pub(crate) ppm: f64,
    pub(crate) bend: Option<(i64, f64)>,
}

impl Clock {
    pub(crate) fn read(&self, t: i64) -> i64 {
        let gained = |time: i64, ppm: f64| (time as f64 * ppm / 1e6).floor() as i64;
        let extra = match self.bend {
            Some((from, ppm)) if t > from => gained(from, self.ppm) + gained(t - from, ppm),
            _ => gained(t, self.ppm),
        };
        self.at_zero + t + extra
    }
}

/// A machine that records.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) clock: Clock,
    /// Wall clock minus true time, ns: how wrong it is.
    pub(crate) wall: i64,
    pub(crate) loss: f64,
    pub(crate) sampling: u32,
    pub(crate) salt: u32,
    /// True time of the recording's begin and end.
    pub(crate) records: (i64, i64),
    /// Records are written up to so much later than they ended, ns.
    pub(crate) inversion: u64,
}

impl Machine {
    pub(crate) fn new(name: &'static str) -> Self {
        Machine {
            name,
            clock: Clock::default(),
            wall: 0,
            loss: 0.0,
            sampling: 1,
            salt: 0,
            records: (0, i64::MAX),
            inversion: 100_000,
        }
    }
}

/// A connection and its load.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) host: usize,
    pub(crate) target: usize,
    pub(crate) qid: u16,
    /// Addresses as the host and as the target see them.
    pub(crate) host_ends: (String, String),
    pub(crate) target_ends: (String, String),
    pub(crate) cntlid: u16,
    /// True time of connect and disconnect.
    pub(crate) alive: (i64, i64),
    pub(crate) depth: u16,
    /// Blocks used; 0 is all of a terabyte.
    pub(crate) lbas: u64,
    /// Walk through the blocks instead of choosing.
    pub(crate) sequential: bool,
    /// Linux ids (generation and tag), else the slot alone.
    pub(crate) generations: bool,
    /// Least delay to and from the target, ns, and mean of what is added.
    pub(crate) there: (i64, f64),
    pub(crate) back: (i64, f64),
    /// Least time in the target, and mean of what is added.
    pub(crate) held: (i64, f64),
    /// Least pause between response and next command, and mean of what is added.
    pub(crate) think: (i64, f64),
    /// Share of writes that wait for R2T.
    pub(crate) r2t: f64,
    /// Share of commands that take `slow_ns` more in the target.
    pub(crate) slow: f64,
    pub(crate) slow_ns: i64,
}

impl Link {
    pub(crate) fn new(host: usize, target: usize, port: u16) -> Self {
        let near = format!("10.0.0.{}:{port}", host + 1);
        let far = format!("10.0.1.{}:4420", target + 1);
        Link {
            host,
            target,
            qid: 1,
            host_ends: (near.clone(), far.clone()),
            target_ends: (far, near),
            cntlid: 1,
            alive: (0, i64::MAX),
            depth: 32,
            lbas: 0,
            sequential: false,
            generations: true,
            there: (15_000, 10_000.0),
            back: (12_000, 10_000.0),
            held: (10_000, 80_000.0),
            think: (3_000, 10_000.0),
            r2t: 0.0,
            slow: 0.0,
            slow_ns: 0,
        }
    }
}

/// What one machine recorded.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) header: Header,
    pub(crate) connections: Vec<Connection>,
    pub(crate) devices: Vec<Device>,
    pub(crate) records: Vec<Record>,
    pub(crate) totals: Totals,
}

pub(crate) struct World {
    pub(crate) hosts: Vec<Machine>,
    pub(crate) targets: Vec<Machine>,
    pub(crate) links: Vec<Link>,
    pub(crate) seed: u64,
    /// True time at which the load ends.
    pub(crate) until: i64,
}

struct Command {
    id: u32,
    link: usize,
    slot: u16,
    /// True times: sent, arrived, answered, heard.
    sent: i64,
    arrived: i64,
    answered: i64,
    heard: i64,
    /// R2T sent, R2T heard, data sent, data arrived.
    r2t: Option<[i64; 4]>,
    cid: u16,
    slba: u64,
}

impl World {
    pub(crate) fn new(seed: u64, until_ms: i64) -> Self {
        World {
            hosts: vec![Machine::new("host")],
            targets: vec![Machine::new("target")],
            links: vec![Link::new(0, 0, 41_000)],
            seed,
            until: until_ms * 1_000_000,
        }
    }

    fn commands(&self, rng: &mut Rng) -> Vec<Command> {
        let mut all = Vec::new();
        let mut id = 0;
        for (number, link) in self.links.iter().enumerate() {
            let mut next: BinaryHeap<Reverse<(i64, u16)>> = (0..link.depth)
                .map(|slot| Reverse((link.alive.0 + rng.exp(1e5), slot)))
                .collect();
            let mut generation = vec![rng.below(16) as u16; usize::from(link.depth)];
            let (mut arrived_last, mut heard_last, mut block) = (i64::MIN, i64::MIN, 0);
            let until = self.until.min(link.alive.1);
            while let Some(Reverse((sent, slot))) = next.pop() {
                if sent >= until {
                    continue;
                }
                let arrived = (sent + link.there.0 + rng.exp(link.there.1))
                    .max(arrived_last.saturating_add(200));
                arrived_last = arrived;
                let (mut held, mut r2t) = (link.held.0 + rng.exp(link.held.1), None);
                if rng.chance(link.slow) {
                    held += link.slow_ns;
                }
                if rng.chance(link.r2t) {
                    let asked = arrived + 2_000 + rng.exp(2_000.0);
                    let heard = asked + link.back.0 + rng.exp(link.back.1);
                    let data = heard + 1_000 + rng.exp(2_000.0);
                    let got = data + link.there.0 + rng.exp(link.there.1);
                    held += got - arrived;
                    r2t = Some([asked, heard, data, got]);
                }
                let answered = arrived + held;
                let mut heard = answered + link.back.0 + rng.exp(link.back.1);
                // Responses of quick commands do not pass each other either.
                if heard_last.saturating_sub(heard) < 1_000_000 {
                    heard = heard.max(heard_last.saturating_add(100));
                    heard_last = heard;
                }
                let slba = if link.sequential {
                    block += 1;
                    block % link.lbas
                } else if link.lbas == 0 {
                    rng.below(1 << 31)
                } else {
                    rng.below(link.lbas)
                };
                let tags = &mut generation[usize::from(slot)];
                *tags = (*tags + 1) % 16;
                let cid = if link.generations {
                    *tags << 12 | slot
                } else {
                    slot
                };
                all.push(Command {
                    id,
                    link: number,
                    slot,
                    sent,
                    arrived,
                    answered,
                    heard,
                    r2t,
                    cid,
                    slba,
                });
                id += 1;
                next.push(Reverse((
                    heard + link.think.0 + rng.exp(link.think.1),
                    slot,
                )));
            }
        }
        all
    }

    /// Runs the load: recordings of the hosts and of the targets.
    pub(crate) fn run(&self) -> (Vec<Recording>, Vec<Recording>) {
        let mut rng = Rng::new(self.seed);
        let commands = self.commands(&mut rng);
        let host = |number| {
            self.record(
                Role::Host,
                number,
                &commands,
                &mut Rng::new(self.seed ^ 77 ^ number as u64),
            )
        };
        let hosts = (0..self.hosts.len()).map(host).collect();
        let target = |number| {
            self.record(
                Role::Target,
                number,
                &commands,
                &mut Rng::new(self.seed ^ 9999 ^ number as u64),
            )
        };
        let targets = (0..self.targets.len()).map(target).collect();
        (hosts, targets)
    }

    fn record(&self, role: Role, number: usize, commands: &[Command], rng: &mut Rng) -> Recording {
        let machine = match role {
            Role::Host => &self.hosts[number],
            Role::Target => &self.targets[number],
        };
        let clock = machine.clock;
        let until = machine.records.1.min(self.until + 20_000_000_000);
        let (mut records, mut order) = (Vec::new(), Vec::new());
        let mut since = vec![None; self.links.len()];
        let mut lost = 0;
        for command in commands {
            let link = &self.links[command.link];
            let mine = match role {
                Role::Host => link.host == number,
                Role::Target => link.target == number,
            };
            if !mine {
                continue;
            }
            let mut record = build(role, command, &clock);
            let (first, last) = match role {
                Role::Host => (command.sent - 3_000, command.heard + 4_000),
                Role::Target => (command.arrived, command.answered + 3_000),
            };
            if first < machine.records.0 || last > until {
                continue;
            }
            let key = sample::Key {
                slba: record.slba,
                nsid: record.nsid,
                cid: record.cid,
                length: record.length,
                opcode: record.opcode,
            };
            if !sample::sampled(sample::hash(&key, machine.salt), machine.sampling) {
                continue;
            }
            if rng.chance(machine.loss) {
                lost += 1;
                continue;
            }
            let begin = since[command.link].get_or_insert(i64::MAX);
            *begin = (*begin).min(clock.read(first));
            record.conn = command.link as u32 + 7;
            record.dev = 3;
            order.push((
                last + rng.below(machine.inversion.max(1)) as i64,
                records.len(),
            ));
            records.push(record);
        }
        order.sort_unstable();
        let records: Vec<Record> = order.iter().map(|(_, at)| records[*at]).collect();
        let connections = (self.links.iter().enumerate())
            .filter_map(|(at, link)| {
                let (local, remote) = match role {
                    Role::Host => link.host_ends.clone(),
                    Role::Target => link.target_ends.clone(),
                };
                Some(Connection {
                    id: at as u32 + 7,
                    local,
                    remote,
                    qid: link.qid,
                    cntlid: link.cntlid,
                    since_ns: since[at]? as u64,
                    ..Connection::default()
                })
            })
            .collect();
        let start = clock.read(machine.records.0);
        let written = records.len() as u64;
        Recording {
            header: Header {
                role,
                transport: Transport::Tcp,
                stack: Stack::Linux,
                sampling: machine.sampling,
                salt: machine.salt,
                filters: Vec::new(),
                machine: machine.name.into(),
                kernel: "6.1".into(),
                arch: "x86_64".into(),
                machine_id: machine.name.into(),
                boot_id: format!("boot-{}", machine.name),
                version: "0".into(),
                start_ns: start as u64,
                wall_minus_mono_ns: 1_700_000_000_000_000_000 + machine.records.0 + machine.wall
                    - start,
                hooks: Vec::new(),
                missing: Default::default(),
            },
            connections,
            devices: vec![Device {
                id: 3,
                name: format!("{}-disk", machine.name),
                ..Device::default()
            }],
            records,
            totals: Totals {
                end_ns: clock.read(until) as u64,
                seen: written + lost,
                sampled: written + lost,
                written,
                lost: [("ring_buffer".to_owned(), lost)].into(),
                ..Totals::default()
            },
        }
    }
}

fn build(role: Role, command: &Command, clock: &Clock) -> Record {
    let mut record = Record {
        slba: command.slba,
        bytes: 4096,
        nsid: 1,
        cid: command.cid,
        length: 7,
        opcode: if command.r2t.is_some() { 1 } else { 2 },
        submit_cpu: command.slot,
        reserved: command.id,
        ..Record::default()
    };
    let set = |record: &mut Record, point, t: i64| record.set(point, clock.read(t) as u64);
    if let Some([asked, heard, data, got]) = command.r2t {
        record.flags |= Flags::R2t as u16;
        record.r2ts = 1;
        match role {
            Role::Host => {
                set(&mut record, host::R2T_ARRIVED, heard);
                set(&mut record, host::R2T_READ, heard + 100);
                set(&mut record, host::DATA_SEND_BEGIN, data);
                set(&mut record, host::DATA_SEND_END, data + 100);
            }
            Role::Target => {
                set(&mut record, target::R2T_QUEUED, asked - 100);
                set(&mut record, target::R2T_SEND, asked);
                set(&mut record, target::DATA_ARRIVED, got);
                set(&mut record, target::DATA_READ, got + 100);
            }
        }
    }
    match role {
        Role::Host => {
            set(&mut record, host::BLOCK_START, command.sent - 3_000);
            set(&mut record, host::DRIVER_START, command.sent - 2_000);
            set(&mut record, host::SEND_BEGIN, command.sent);
            set(&mut record, host::SEND_LAST, command.sent + 10);
            set(&mut record, host::SEND_END, command.sent + 4_000);
            set(&mut record, host::RESP_ARRIVED, command.heard);
            set(&mut record, host::RESP_READ, command.heard + 1_000);
            set(&mut record, host::RESP_LAST, command.heard + 1_500);
            set(&mut record, host::COMPLETED, command.heard + 2_000);
            set(&mut record, host::COMPLETE_RQ, command.heard + 3_000);
            set(&mut record, host::BLOCK_DONE, command.heard + 4_000);
        }
        Role::Target => {
            set(&mut record, target::ARRIVED, command.arrived);
            set(&mut record, target::PDU_READ, command.arrived + 500);
            set(&mut record, target::RECEIVED, command.arrived + 1_000);
            set(&mut record, target::EXECUTE, command.answered - 8_000);
            set(&mut record, target::BIO_SUBMIT, command.answered - 7_000);
            set(&mut record, target::RESP_QUEUED, command.answered - 1_000);
            set(&mut record, target::SEND_BEGIN, command.answered);
            set(&mut record, target::SEND_LAST, command.answered + 10);
            set(&mut record, target::SEND_END, command.answered + 3_000);
        }
    }
    record
}
