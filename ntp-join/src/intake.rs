//! Takes in the items of the inputs: who recorded what, and the records.

use crate::blocks::Blocks;
use crate::cause;
use crate::joiner::{Clock, ClockReport, HostSide, Joiner, State};
use crate::limits::{TargetTimes, moment};
use crate::matching::sampled_by;
use crate::names::{Conn, Dev, Domain, Name, Numbers, Over, Recording, pair_name, strong};
use crate::pace::{Freed, Pace};
use crate::shelf::Held;
use crate::store::Store;
use ntp_record::header::{Connection, Device, Header, Role, Totals};
use ntp_record::record::{Flags, Record};
use ntp_record::sample::Key;
use ntp_record::stream::Item;
use std::collections::VecDeque;

/// Of what recording a record is, and what each of its records needs of it.
struct Origin {
    /// By number.
    recording: usize,
    role: Role,
    domain: usize,
    /// Whether its header is lost.
    rebuilt: bool,
}

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
                    let pace = &mut self.recordings[recording].pace;
                    pace.seen = pace.seen.max(moment(counts.at_ns).unwrap_or(pace.seen));
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
        for number in std::mem::take(&mut self.inputs[input].rebuilt) {
            let freed = self.recordings[number].pace.end(None);
            self.keep_freed(number, freed);
            self.recordings[number].end = Some(self.recordings[number].pace.seen);
        }
        self.inputs[input].open = false;
    }

    fn close(&mut self, input: usize, totals: Option<&Totals>) {
        let Some(number) = self.inputs[input].recording else {
            return;
        };
        let recording = &mut self.recordings[number];
        if let Some(totals) = totals {
            let end = moment(totals.end_ns).unwrap_or(recording.pace.seen);
            let freed = recording.pace.end(Some(end));
            recording.end = Some(end);
            self.keep_freed(number, freed);
            self.totals.sources.push(totals.clone());
            self.count(input, number, Some(&totals.groups));
            return;
        }
        // More of a recording without a header may follow; of another, what came
        // behind its totals may still wait.
        let known = recording.end;
        if !recording.header.is_rebuilt() {
            let freed = recording.pace.end(known);
            self.keep_freed(number, freed);
        }
        if known.is_none() {
            let recording = &mut self.recordings[number];
            recording.end = Some(recording.pace.seen);
            self.count(input, number, None);
        }
    }

    fn header(&mut self, input: usize, header: &Header) {
        self.close(input, None);
        let from = &mut self.inputs[input];
        from.conns.clear();
        from.devs.clear();
        // Lines of both sides in turn, without headers, are two recordings.
        let known = (from.rebuilt.iter().copied())
            .find(|known| header.is_rebuilt() && self.recordings[*known].header == *header);
        if let Some(known) = known {
            from.recording = Some(known);
            self.recordings[known].end = None;
            return;
        }
        let domain = self.domain(header);
        let start = if header.is_rebuilt() {
            i64::MAX
        } else {
            header.start_ns as i64
        };
        let number = self.recordings.len();
        self.recordings.push(Recording {
            header: header.clone(),
            domain,
            start,
            end: None,
            input,
            pace: Pace::new(if header.is_rebuilt() { i64::MIN } else { start }),
        });
        let from = &mut self.inputs[input];
        from.recording = Some(number);
        if header.is_rebuilt() {
            from.rebuilt.push(number);
        }
        let role = header.role;
        for other in 0..number {
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
        if let Some(known) = self.clock_of.get(&(host, target)) {
            return *known;
        }
        let number = self.clocks.len() as u32;
        self.clock_of.insert((host, target), number);
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
            waiting: Blocks::default(),
            next_try: 64,
            report: ClockReport {
                host: name(host),
                target: name(target),
                same,
                ..ClockReport::default()
            },
        });
        number
    }

    fn connection(&mut self, input: usize, info: &Connection) {
        let Some(recording) = self.inputs[input].recording else {
            return;
        };
        if let Some(known) = self.inputs[input].conns.get(info.id) {
            let conn = &mut self.conns[known as usize];
            conn.info = Connection {
                id: known + 1,
                ..info.clone()
            };
            conn.named = false;
            self.pair_up(known);
            return;
        }
        let name = Name::of_connection(&self.recordings[recording], info);
        if let Some(known) = self.known_as(&name, &self.inputs[input].conns) {
            self.conns[known as usize].several = true;
            self.inputs[input].conns.insert(info.id, known);
            return;
        }
        let number = self.conns.len() as u32;
        if let Some(name) = name {
            self.names.insert(name, number);
        }
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
            several: false,
            named: false,
            matched: 0,
            records: 0,
            generations: false,
            turns: crate::names::Turns::default(),
            recent: VecDeque::new(),
            pending: VecDeque::new(),
            next_try: 64,
            coarser: None,
            store: Store::default(),
        });
        self.inputs[input].conns.insert(info.id, number);
        self.pair_up(number);
    }

    /// Number of a connection or a device that another recording of the same
    /// boot has under the same name: it is the same one. But one recording has
    /// two of a name for a reason, unless its header is lost.
    fn known_as(&self, name: &Option<Name>, taken: &Numbers) -> Option<u32> {
        let name = name.as_ref()?;
        let known = *self.names.get(name)?;
        (name.rebuilt || !taken.holds(known)).then_some(known)
    }

    /// Notes which connections of the other side have the same two addresses.
    fn pair_up(&mut self, number: u32) {
        let conn = &self.conns[number as usize];
        let (role, salt) = (conn.role, self.recordings[conn.recording].header.salt);
        let Some(name) = pair_name(role, &conn.info) else {
            return;
        };
        let alike = self.pairs.entry(name).or_default();
        if !alike.contains(&number) {
            alike.push(number);
        }
        for other in alike.clone() {
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
            if self.recordings[b.recording].header.salt == salt && strong(info(host), info(target))
            {
                self.bind(host, target, false);
            }
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
        self.note_coarser(host);
        self.note_coarser(target);
    }

    fn device(&mut self, input: usize, info: &Device) {
        if let Some(known) = self.inputs[input].devs.get(info.id) {
            let dev = &mut self.devs[known as usize];
            dev.info = Device {
                id: known + 1,
                ..info.clone()
            };
            dev.named = false;
            return;
        }
        let recording = self.inputs[input].recording;
        let name = recording.and_then(|at| Name::of_device(&self.recordings[at], info));
        if let Some(known) = self.known_as(&name, &self.inputs[input].devs) {
            self.inputs[input].devs.insert(info.id, known);
            return;
        }
        let number = self.devs.len() as u32;
        if let Some(name) = name {
            self.names.insert(name, number);
        }
        self.devs.push(Dev {
            info: Device {
                id: number + 1,
                ..info.clone()
            },
            named: false,
        });
        self.inputs[input].devs.insert(info.id, number);
    }

    /// Number of a record's connection.
    #[inline]
    fn conn_of(&mut self, input: usize, id: u32) -> u32 {
        match self.inputs[input].conns.get(id) {
            Some(number) => number,
            None => self.nameless_conn(input, id),
        }
    }

    /// A connection whose name was lost.
    #[cold]
    fn nameless_conn(&mut self, input: usize, id: u32) -> u32 {
        self.connection(
            input,
            &Connection {
                id,
                ..Connection::default()
            },
        );
        self.inputs[input].conns.get(id).unwrap_or(0)
    }

    /// Number of a record's device.
    #[inline]
    pub(crate) fn dev_of(&mut self, input: usize, id: u32) -> u32 {
        match self.inputs[input].devs.get(id) {
            Some(number) => number,
            None => self.nameless_dev(input, id),
        }
    }

    /// A device whose name was lost.
    #[cold]
    fn nameless_dev(&mut self, input: usize, id: u32) -> u32 {
        self.device(
            input,
            &Device {
                id,
                ..Device::default()
            },
        );
        self.inputs[input].devs.get(id).unwrap_or(0)
    }

    fn records(&mut self, input: usize, records: &[Record]) {
        let Some(at) = self.inputs[input].recording else {
            // Nobody knows whose they are.
            self.headless += records.len() as u64;
            self.totals.damaged_bytes += size_of_val(records) as u64;
            return;
        };
        let origin = self.origin(at);
        self.inputs[input].records += records.len() as u64;
        match origin.role {
            Role::Host => self.totals.host += records.len() as u64,
            Role::Target => self.totals.target += records.len() as u64,
        }
        let (mut conn_id, mut conn, mut dev_id, mut dev) = (None, 0, None, 0);
        let source = self.shelf.source(self.inputs[input].map, records);
        for (number, record) in records.iter().enumerate() {
            if conn_id != Some(record.conn) {
                conn = self.conn_of(input, record.conn);
                conn_id = Some(record.conn);
            }
            if dev_id != Some(record.dev) {
                dev = self.dev_of(input, record.dev);
                dev_id = Some(record.dev);
            }
            self.conns[conn as usize].records += 1;
            let held = self.shelf.keep(source, number, record, (conn, dev));
            let recording = &mut self.recordings[at];
            if held
                .end()
                .is_none_or(|over| recording.pace.take(over, held))
            {
                self.keep(&origin, record, held);
            }
            if self.recordings[at].pace.is_due() {
                let freed = self.recordings[at].pace.free();
                self.keep_freed(at, freed);
            }
        }
    }

    /// Takes in records of a recording that waited.
    fn keep_freed(&mut self, recording: usize, freed: Freed<Held>) {
        let origin = self.origin(recording);
        for held in freed.right {
            let record = *self.shelf.get(&held);
            self.keep(&origin, &record, held);
        }
        for held in freed.wrong {
            self.reject(&origin, held, cause::NO_TIMES);
        }
    }

    fn origin(&self, recording: usize) -> Origin {
        let Recording { header, domain, .. } = &self.recordings[recording];
        Origin {
            recording,
            role: header.role,
            domain: *domain,
            rebuilt: header.is_rebuilt(),
        }
    }

    /// Takes in a record whose time can be believed.
    #[inline]
    fn keep(&mut self, origin: &Origin, record: &Record, held: Held) {
        if origin.rebuilt {
            let recording = &mut self.recordings[origin.recording];
            let start = crate::limits::start(record).or(held.end());
            recording.start = recording.start.min(start.unwrap_or(recording.start));
        }
        let key = record.key();
        if self.is_foreign(held.conn, &key) {
            return self.reject(origin, held, cause::NOT_SAMPLED);
        }
        if origin.role == Role::Host && record.has(Flags::Cancelled) {
            return self.reject(origin, held, cause::CANCELLED);
        }
        let conn = &mut self.conns[held.conn as usize];
        conn.generations |= record.cid >> 12 != 0;
        match origin.role {
            Role::Host => self.hosts[origin.domain].queue.push_back(held),
            Role::Target => match TargetTimes::of(record) {
                Some(times) => conn.store.push(key, times, held),
                None => self.reject(origin, held, cause::NO_TIMES),
            },
        }
    }

    /// Leaves out a record that was read.
    fn reject(&mut self, origin: &Origin, held: Held, cause: &'static str) {
        match origin.role {
            Role::Host => self.count_host(cause),
            Role::Target => self.count_target(cause),
        }
        self.shelf.release(&held);
    }

    /// Whether all connections a record's may be joined with were sampled, and
    /// without it: then it need not be kept. While there is none, it is.
    #[inline]
    pub(crate) fn is_foreign(&self, conn: u32, key: &Key) -> bool {
        (self.conns[conn as usize].coarser)
            .is_some_and(|(sampling, salt)| !sampled_by(sampling, salt, key))
    }

    /// Notes the sample of a connection's records that those it may be joined
    /// with can have, when that is not all.
    fn note_coarser(&mut self, conn: u32) {
        let conn_ref = &self.conns[conn as usize];
        let own = self.recordings[conn_ref.recording].header.sampling;
        let finest = (conn_ref.over.iter())
            .map(|place| self.conns[place.conn as usize].recording)
            .map(|other| &self.recordings[other].header)
            .min_by_key(|header| header.sampling);
        self.conns[conn as usize].coarser = finest
            .filter(|other| other.sampling > own)
            .map(|other| (other.sampling, other.salt));
    }
}
