//! The join itself: items of all inputs in, joined commands out.

use crate::clock::Track;
use crate::limits::end;
use crate::matching::{Claim, sampled_by};
use crate::names::{Conn, Dev, Domain, Over, Recording, strong};
use crate::store::Store;
use ntp_record::header::{Connection, Device, Header, Role, Totals};
use ntp_record::joined::{JoinTotals, Joined};
use ntp_record::record::Record;
use ntp_record::stream::{Item, JoinHeader};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;

/// Why a record was left out, as written in the totals.
pub mod cause {
    /// No connection of the other side has its addresses, or names and commands like it.
    pub const NO_CONNECTION: &str = "no_such_connection";
    /// Began or ended while the target was not recording.
    pub const TARGET_NOT_RECORDING: &str = "target_not_recording";
    /// The same for a target record.
    pub const HOST_NOT_RECORDING: &str = "host_not_recording";
    /// The target was recording, but has no such record.
    pub const NOT_IN_TARGET: &str = "not_in_target";
    /// The host was recording, but has no such record.
    pub const NOT_IN_HOST: &str = "not_in_host";
    /// More than one pair was possible.
    pub const AMBIGUOUS: &str = "ambiguous";
    /// The only record it could be paired with was not in order under the clock estimate.
    pub const CONTRADICTS: &str = "contradicts_clock";
    /// The difference of the clocks could not be found.
    pub const AMBIGUOUS_CLOCK: &str = "ambiguous_clock";
    /// The other side recorded one in more commands and not this one.
    pub const NOT_SAMPLED: &str = "not_sampled_by_the_other";
    /// Recorded with another salt: another sample of the commands.
    pub const OTHER_SALT: &str = "other_salt";
    /// An admin command that the other side did not record.
    pub const ADMIN: &str = "admin";
    /// Had to be dropped before the difference of the clocks was known.
    pub const WINDOW: &str = "window_full";
    /// Has none of the points that place it in time.
    pub const NO_TIMES: &str = "no_times";
    /// All of one side, in the order of a report.
    pub const HOST: &[&str] = &[
        NO_CONNECTION,
        TARGET_NOT_RECORDING,
        NOT_IN_TARGET,
        AMBIGUOUS,
        CONTRADICTS,
        AMBIGUOUS_CLOCK,
        NOT_SAMPLED,
        OTHER_SALT,
        ADMIN,
        WINDOW,
        NO_TIMES,
    ];
    /// The other side.
    pub const TARGET: &[&str] = &[
        NO_CONNECTION,
        HOST_NOT_RECORDING,
        NOT_IN_HOST,
        AMBIGUOUS,
        CONTRADICTS,
        AMBIGUOUS_CLOCK,
        NOT_SAMPLED,
        OTHER_SALT,
        ADMIN,
        WINDOW,
        NO_TIMES,
    ];
}

/// What can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Records held in memory at most, about 200 bytes each.
    pub window: usize,
    /// How long a record waits for a partner that was written late, ns.
    pub lag: i64,
    /// Estimate the clocks' difference also where the boot id says that it is 0;
    /// for tests of the estimate against the truth.
    pub estimate_always: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            window: 1 << 20,
            lag: 5_000_000_000,
            estimate_always: false,
        }
    }
}

/// Takes what is joined.
pub trait Sink {
    /// Headers, names, commands and totals of the joined stream, in its order.
    ///
    /// # Errors
    /// Those of the output.
    fn item(&mut self, item: &Item<'_>) -> io::Result<()>;
}

impl<W: io::Write> Sink for ntp_record::Writer<W> {
    fn item(&mut self, item: &Item<'_>) -> io::Result<()> {
        ntp_record::Writer::item(self, item)
    }
}

/// What is known of the clocks of a host and a target.
pub(crate) enum State {
    /// Nothing yet.
    Unknown,
    /// One clock.
    Same,
    /// An interval over time.
    Known(Box<Track>),
}

/// Two clocks.
pub(crate) struct Clock {
    pub host: usize,
    pub target: usize,
    pub state: State,
    /// Pairs that wait for later bounds, in the order in which they were found.
    pub waiting: VecDeque<Joined>,
    /// Records of the poorer side at which the next vote is worth it.
    pub next_try: usize,
    pub report: ClockReport,
}

/// What there is to say of two clocks at the end.
#[derive(Clone, Debug, Default)]
pub struct ClockReport {
    /// Machines.
    pub host: String,
    /// Machines.
    pub target: String,
    /// Whether both recordings are of one boot of one machine.
    pub same: bool,
    /// First and last moment with a pair (host clock) and the offset there, ns.
    pub first: Option<(i64, i64)>,
    /// See `first`.
    pub last: Option<(i64, i64)>,
    /// Pairs.
    pub pairs: u64,
    /// Sum of the bounds over the pairs that have one, ns.
    pub bounds: u128,
    /// Widest bound, ns.
    pub widest: u64,
    /// Offset found minus offset of the wall clocks, ns.
    pub off_wall: Option<i64>,
    /// How the last vote ended, when no clock was found.
    pub failed: Option<String>,
}

/// Records of the hosts of one clock.
#[derive(Default)]
pub(crate) struct HostSide {
    /// In the order of reading.
    pub queue: VecDeque<Record>,
    /// Of the first in the queue: what may be their partner.
    pub ahead: VecDeque<Claim>,
    /// Those for which nothing was found at first.
    pub late: VecDeque<Record>,
    /// Latest end of a record that was tried, ns.
    pub tried: i64,
}

pub(crate) struct Input {
    /// Segment being read, by number.
    pub recording: Option<usize>,
    conns: HashMap<u32, u32>,
    devs: HashMap<u32, u32>,
    pub open: bool,
    pub records: u64,
}

/// Joins the records of all inputs. Feed it items with [`Joiner::push`] in
/// whatever order; [`Joiner::next_input`] tells which input should be next.
pub struct Joiner {
    pub(crate) options: Options,
    pub(crate) inputs: Vec<Input>,
    pub(crate) domains: Vec<Domain>,
    pub(crate) recordings: Vec<Recording>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) devs: Vec<Dev>,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) hosts: Vec<HostSide>,
    pub(crate) ready: Vec<Joined>,
    pub(crate) opened: bool,
    pub(crate) totals: JoinTotals,
    pub(crate) host_left: BTreeMap<&'static str, u64>,
    pub(crate) target_left: BTreeMap<&'static str, u64>,
}

impl Joiner {
    /// For so many inputs.
    pub fn new(inputs: usize, options: Options) -> Self {
        let input = || Input {
            recording: None,
            conns: HashMap::new(),
            devs: HashMap::new(),
            open: true,
            records: 0,
        };
        Joiner {
            options,
            inputs: (0..inputs).map(|_| input()).collect(),
            domains: Vec::new(),
            recordings: Vec::new(),
            conns: Vec::new(),
            devs: Vec::new(),
            clocks: Vec::new(),
            hosts: Vec::new(),
            ready: Vec::new(),
            opened: false,
            totals: JoinTotals::default(),
            host_left: cause::HOST.iter().map(|cause| (*cause, 0)).collect(),
            target_left: cause::TARGET.iter().map(|cause| (*cause, 0)).collect(),
        }
    }

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
        let Some(recording) = self.inputs[input].recording else {
            return;
        };
        let recording = &mut self.recordings[recording];
        if let Some(totals) = totals {
            recording.seen = recording.seen.max(totals.end_ns as i64);
            recording.end = Some(totals.end_ns as i64);
            self.totals.sources.push(totals.clone());
        } else if recording.end.is_none() {
            recording.end = Some(recording.seen);
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

    fn dev_of(&mut self, input: usize, id: u32) -> u32 {
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
            // The header was lost: nobody knows whose clock this is. Counted as damage by the reader.
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
            let conn = &mut self.conns[conn as usize];
            conn.generations |= record.cid >> 12 != 0;
            match role {
                Role::Host => self.hosts[domain].queue.push_back(record),
                Role::Target => {
                    if crate::limits::TargetTimes::of(&record).is_some() {
                        conn.store.push(&record);
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

    /// Records held in memory.
    pub(crate) fn held(&self) -> usize {
        let conns: usize = (self.conns.iter())
            .map(|conn| conn.pending.len() + conn.store.len())
            .sum();
        let hosts: usize = (self.hosts.iter())
            .map(|host| host.queue.len() + host.late.len())
            .sum();
        let pairs: usize = self.clocks.iter().map(|clock| clock.waiting.len()).sum();
        conns + hosts + 2 * (pairs + self.ready.len())
    }

    /// The input to read next; `None` when all have ended.
    ///
    /// The one that is furthest behind in common time; but as long as nothing
    /// is known of a recording's clock, the beginning of each is read first,
    /// since wall clocks may be wrong.
    pub fn next_input(&self) -> Option<usize> {
        let open = || (0..self.inputs.len()).filter(|input| self.inputs[*input].open);
        if let Some(new) = open().find(|input| self.inputs[*input].recording.is_none()) {
            return Some(new);
        }
        let unknown = |input: &usize| {
            let Some(recording) = self.inputs[*input].recording else {
                return true;
            };
            let domain = self.recordings[recording].domain;
            let mut clocks = (self.clocks.iter())
                .filter(|clock| clock.host == domain || clock.target == domain)
                .peekable();
            clocks.peek().is_some() && clocks.all(|clock| matches!(clock.state, State::Unknown))
        };
        let probe = (self.options.window / 8).min(PROBE) as u64;
        open()
            .filter(unknown)
            .filter(|input| self.inputs[*input].records < probe)
            .min_by_key(|input| self.inputs[*input].records)
            .or_else(|| open().min_by_key(|input| self.reached(*input)))
    }

    /// Common time up to which an input was read, ns.
    fn reached(&self, input: usize) -> i64 {
        self.inputs[input].recording.map_or(i64::MIN, |recording| {
            let recording = &self.recordings[recording];
            recording
                .seen
                .saturating_add(self.domains[recording.domain].shift)
        })
    }

    /// The header of the joined stream, of what was read so far.
    pub(crate) fn join_header(&self) -> JoinHeader {
        let of = |role: Role| {
            (self.recordings.iter())
                .map(|recording| recording.header.clone())
                .filter(|header| header.role == role)
                .collect()
        };
        JoinHeader {
            version: env!("CARGO_PKG_VERSION").into(),
            hosts: of(Role::Host),
            targets: of(Role::Target),
        }
    }
}

/// Records read of each input before wall clocks are believed.
const PROBE: usize = 1 << 14;
