//! Takes in the items of the inputs: who recorded what, and the records.

use crate::cause;
use crate::joiner::{Clock, ClockReport, HostSide, Joiner, State};
use crate::limits::{TargetTimes, end};
use crate::matching::sampled_by;
use crate::names::{Conn, Dev, Domain, Over, Recording, strong};
use crate::store::Store;
use ntp_record::header::{Connection, Device, Header, Role, Totals};
use ntp_record::record::{Flags, Record};
use ntp_record::stream::Item;
use std::collections::VecDeque;

impl Joiner {
    /// Takes in an item of an input.
    pub fn push(&mut self, input: usize, item: &Item<'_>) {
        match item {
            Item::Header(header) => self.header(input, header),
            Item::Connection(connection) => self.connection(input, connection),
            Item::Device(device) => self.device(input, device),
            Item::Records(records) => self.records(input, records),
            Item::Counts(counts) => {
                if let Some(recording) = self.inputs[input].recording {
                    let recording = &mut self.recordings[recording];
                    recording.seen = recording.seen.max(counts.at_ns as i64);
                }
            }
            Item::Totals(totals) => self.close(input, Some(totals)),
            Item::Damage(damage) => self.totals.damaged_bytes += damage.bytes,
            Item::JoinHeader(_) | Item::Joined(_) | Item::JoinTotals(_) => {}
        }
    }

    /// Tells that an input has ended.
    pub fn end_input(&mut self, input: usize) {
        self.close(input, None);
        self.inputs[input].open = false;
    }

    fn close(&mut self, input: usize, totals: Option<&Totals>) {
        let Some(number) = self.inputs[input].recording else {
            return;
        };
        let recording = &mut self.recordings[number];
        if let Some(totals) = totals {
            recording.seen = recording.seen.max(totals.end_ns as i64);
            recording.end = Some(totals.end_ns as i64);
            self.totals.sources.push(totals.clone());
            self.count(input, number, Some(&totals.groups));
        } else if recording.end.is_none() {
            recording.end = Some(recording.seen);
            self.count(input, number, None);
        }
    }

    fn header(&mut self, input: usize, header: &Header) {
        self.close(input, None);
        let domain = self.domain(header);
        let start = if header.is_rebuilt() {
            i64::MAX
        } else {
            header.start_ns as i64
        };
        self.recordings.push(Recording {
            header: header.clone(),
            domain,
            start,
            end: None,
            input,
            seen: if header.is_rebuilt() { i64::MIN } else { start },
        });
        let from = &mut self.inputs[input];
        from.recording = Some(self.recordings.len() - 1);
        from.conns.clear();
        from.devs.clear();
        let role = header.role;
        for other in 0..self.recordings.len() {
            if self.recordings[other].header.role != role {
                let other = self.recordings[other].domain;
                match role {
                    Role::Host => self.clock(domain, other),
                    Role::Target => self.clock(other, domain),
                };
            }
        }
    }

    fn domain(&mut self, header: &Header) -> usize {
        let known = self
            .domains
            .iter()
            .position(|domain| !header.boot_id.is_empty() && domain.boot_id == header.boot_id);
        known.unwrap_or_else(|| {
            self.domains.push(Domain {
                boot_id: header.boot_id.clone(),
                machine: header.machine.clone(),
                shift: header.wall_minus_mono_ns,
                group: self.domains.len(),
            });
            self.hosts.push(HostSide {
                tried: i64::MIN,
                ..HostSide::default()
            });
            self.domains.len() - 1
        })
    }

    /// The pair of clocks, made when it is new.
    fn clock(&mut self, host: usize, target: usize) -> u32 {
        let known = self
            .clocks
            .iter()
            .position(|clock| clock.host == host && clock.target == target);
        let at = known.unwrap_or_else(|| {
            let same = host == target;
            let name = |domain: usize| self.domains[domain].machine.clone();
            self.clocks.push(Clock {
                host,
                target,
                state: if same && !self.options.estimate_always {
                    State::Same
                } else {
                    State::Unknown
                },
                waiting: VecDeque::new(),
                next_try: 64,
                report: ClockReport {
                    host: name(host),
                    target: name(target),
                    same,
                    ..ClockReport::default()
                },
            });
            self.clocks.len() - 1
        });
        at as u32
    }

    fn connection(&mut self, input: usize, info: &Connection) {
        let Some(recording) = self.inputs[input].recording else {
            return;
        };
        if let Some(known) = self.inputs[input].conns.get(&info.id) {
            let conn = &mut self.conns[*known as usize];
            conn.info = Connection {
                id: *known + 1,
                ..info.clone()
            };
            conn.named = false;
            let known = *known;
            self.pair_up(known);
            return;
        }
        let number = self.conns.len() as u32;
        let Recording { domain, header, .. } = &self.recordings[recording];
        self.conns.push(Conn {
            recording,
            domain: *domain,
            role: header.role,
            info: Connection {
                id: number + 1,
                ..info.clone()
            },
            over: Vec::new(),
            weak: false,
            partner: Vec::new(),
            named: false,
            matched: 0,
            records: 0,
            generations: false,
            turns: crate::names::Turns::default(),
            recent: VecDeque::new(),
            pending: VecDeque::new(),
            next_try: 64,
            store: Store::default(),
        });
        self.inputs[input].conns.insert(info.id, number);
        self.pair_up(number);
    }

    /// Notes which connections of the other side have the same two addresses.
    fn pair_up(&mut self, number: u32) {
        let (role, salt) = {
            let conn = &self.conns[number as usize];
            (conn.role, self.recordings[conn.recording].header.salt)
        };
        for other in 0..self.conns.len() as u32 {
            let (a, b) = (&self.conns[number as usize], &self.conns[other as usize]);
            if b.role == role || a.over.iter().any(|over| over.conn == other) {
                continue;
            }
            let (host, target) = if role == Role::Host {
                (number, other)
            } else {
                (other, number)
            };
            let info = |conn: u32| &self.conns[conn as usize].info;
            if self.recordings[b.recording].header.salt != salt || !strong(info(host), info(target))
            {
                continue;
            }
            self.bind(host, target, false);
        }
    }

    /// From now on records of one are looked for in the other.
    pub(crate) fn bind(&mut self, host: u32, target: u32, weak: bool) {
        let clock = self.clock(
            self.conns[host as usize].domain,
            self.conns[target as usize].domain,
        );
        for (one, other) in [(host, target), (target, host)] {
            let conn = &mut self.conns[one as usize];
            // Addresses say more than likeness.
            if conn.weak && !weak && conn.partner.is_empty() {
                conn.over.clear();
            }
            conn.weak = weak;
            conn.over.push(Over { conn: other, clock });
        }
    }

    fn device(&mut self, input: usize, info: &Device) {
        if let Some(known) = self.inputs[input].devs.get(&info.id) {
            let dev = &mut self.devs[*known as usize];
            dev.info = Device {
                id: *known + 1,
                ..info.clone()
            };
            dev.named = false;
            return;
        }
        let number = self.devs.len() as u32;
        self.devs.push(Dev {
            info: Device {
                id: number + 1,
                ..info.clone()
            },
            named: false,
        });
        self.inputs[input].devs.insert(info.id, number);
    }

    /// Number of a record's connection; one without a name when its name was lost.
    fn conn_of(&mut self, input: usize, id: u32) -> u32 {
        if let Some(number) = self.inputs[input].conns.get(&id) {
            return *number;
        }
        self.connection(
            input,
            &Connection {
                id,
                ..Connection::default()
            },
        );
        self.inputs[input].conns.get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn dev_of(&mut self, input: usize, id: u32) -> u32 {
        if let Some(number) = self.inputs[input].devs.get(&id) {
            return *number;
        }
        self.device(
            input,
            &Device {
                id,
                ..Device::default()
            },
        );
        self.inputs[input].devs.get(&id).copied().unwrap_or(0)
    }

    fn records(&mut self, input: usize, records: &[Record]) {
        let Some(at) = self.inputs[input].recording else {
            // Nobody knows whose they are.
            self.headless += records.len() as u64;
            self.totals.damaged_bytes += size_of_val(records) as u64;
            return;
        };
        let role = self.recordings[at].header.role;
        let domain = self.recordings[at].domain;
        self.inputs[input].records += records.len() as u64;
        match role {
            Role::Host => self.totals.host += records.len() as u64,
            Role::Target => self.totals.target += records.len() as u64,
        }
        let foreign = self.coarsest_needed(at);
        let (mut conn_id, mut conn, mut dev_id, mut dev) = (None, 0, None, 0);
        for record in records {
            if conn_id != Some(record.conn) {
                conn = self.conn_of(input, record.conn);
                conn_id = Some(record.conn);
            }
            if dev_id != Some(record.dev) {
                dev = self.dev_of(input, record.dev);
                dev_id = Some(record.dev);
            }
            let mut record = *record;
            // Numbers until they are written; ids are one more, so that 0 stays free.
            record.conn = conn;
            record.dev = dev;
            let over = end(&record);
            let recording = &mut self.recordings[at];
            if let Some(over) = over {
                recording.seen = recording.seen.max(over);
                if recording.header.is_rebuilt() {
                    let start = crate::limits::start(&record).unwrap_or(over);
                    recording.start = recording.start.min(start);
                }
            }
            self.conns[conn as usize].records += 1;
            if foreign.is_some_and(|(n, salt)| !sampled_by(n, salt, &record)) {
                match role {
                    Role::Host => self.count_host(cause::NOT_SAMPLED),
                    Role::Target => self.count_target(cause::NOT_SAMPLED),
                }
                continue;
            }
            if role == Role::Host && record.has(Flags::Cancelled) {
                self.count_host(cause::CANCELLED);
                continue;
            }
            let conn = &mut self.conns[conn as usize];
            conn.generations |= record.cid >> 12 != 0;
            match role {
                Role::Host => self.hosts[domain].queue.push_back(record),
                Role::Target => {
                    if let Some(times) = TargetTimes::of(&record) {
                        conn.store.push(&record, times.got);
                    } else {
                        *self.target_left.entry(cause::NO_TIMES).or_default() += 1;
                    }
                }
            }
        }
    }

    /// Sampling of the other side, when all of its recordings of this salt are
    /// coarser than this one: what they do not have need not be kept.
    fn coarsest_needed(&self, recording: usize) -> Option<(u32, u32)> {
        let header = &self.recordings[recording].header;
        let finest = (self.recordings.iter())
            .map(|other| &other.header)
            .filter(|other| other.role != header.role && other.salt == header.salt)
            .map(|other| other.sampling)
            .min()?;
        (finest > header.sampling).then_some((finest, header.salt))
    }
}
