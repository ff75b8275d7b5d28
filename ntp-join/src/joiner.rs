//! The join itself: items of all inputs in, joined commands out.

use crate::blocks::Blocks;
use crate::cause;
use crate::clock::Track;
use crate::counts::Counted;
use crate::matching::Claim;
use crate::names::{Conn, Dev, Domain, Name, Numbers, Recording};
use crate::shelf::{Held, Kept, Shelf};
use ntp_record::Map;
use ntp_record::header::Role;
use ntp_record::joined::JoinTotals;
use ntp_record::stream::{Item, JoinHeader};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;

/// What can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Records held in memory at most, about 150 bytes each, and 180 more of inputs that are not plain files.
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
    pub waiting: Blocks<Pair>,
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

/// A command whose both records were found. Many wait: it is as long as a line
/// of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub host: Kept,
    pub target: Kept,
    /// First and last point of the host, and the two moments of
    /// [`HostTimes`](crate::limits::HostTimes), ns.
    pub start: i64,
    pub end: i64,
    pub sent: i64,
    pub over: i64,
}

const _: () = assert!(size_of::<Pair>() == 64);

/// A pair with its offset: see [`ntp_record::Joined`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub pair: Pair,
    pub offset_ns: i64,
    pub offset_bound_ns: u64,
}

/// Records of the hosts of one clock.
#[derive(Default)]
pub(crate) struct HostSide {
    /// In the order of reading.
    pub queue: VecDeque<Held>,
    /// Of the first in the queue: what may be their partner.
    pub ahead: VecDeque<Claim>,
    /// Those for which nothing was found at first.
    pub late: VecDeque<Held>,
    /// Latest end of a record that was tried, ns.
    pub tried: i64,
}

pub(crate) struct Input {
    /// Its map, by number.
    pub map: Option<usize>,
    /// Segment being read, by number.
    pub recording: Option<usize>,
    /// Numbers of the connections and devices of the segment, by id.
    pub conns: Numbers,
    /// See `conns`.
    pub devs: Numbers,
    /// Recordings of it whose headers are lost, by number.
    pub rebuilt: Vec<usize>,
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
    /// Numbers of connections and devices by what they are called.
    pub(crate) names: HashMap<Name, u32>,
    /// Numbers of connections by their two addresses, the host's first.
    pub(crate) pairs: HashMap<(String, String), Vec<u32>>,
    pub(crate) clocks: Vec<Clock>,
    /// Numbers of clocks by host and target.
    pub(crate) clock_of: HashMap<(usize, usize), u32>,
    pub(crate) hosts: Vec<HostSide>,
    /// Pairs that wait to be written.
    pub(crate) ready: Vec<Ready>,
    pub(crate) shelf: Shelf,
    /// Recordings in the header of the joined stream, once that is written.
    pub(crate) headed: Option<usize>,
    /// Records of a recording whose header is lost.
    pub(crate) headless: u64,
    pub(crate) totals: JoinTotals,
    pub(crate) counted: Counted,
    pub(crate) host_left: BTreeMap<&'static str, u64>,
    pub(crate) target_left: BTreeMap<&'static str, u64>,
}

impl Joiner {
    /// For so many inputs.
    pub fn new(inputs: usize, options: Options) -> Self {
        let input = || Input {
            map: None,
            recording: None,
            conns: Numbers::default(),
            devs: Numbers::default(),
            rebuilt: Vec::new(),
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
            names: HashMap::new(),
            pairs: HashMap::new(),
            clocks: Vec::new(),
            clock_of: HashMap::new(),
            hosts: Vec::new(),
            ready: Vec::new(),
            shelf: Shelf::default(),
            headed: None,
            headless: 0,
            totals: JoinTotals::default(),
            counted: Counted::default(),
            host_left: cause::HOST.iter().map(|cause| (*cause, 0)).collect(),
            target_left: cause::TARGET.iter().map(|cause| (*cause, 0)).collect(),
        }
    }

    /// Tells that the records of an input lie in a map and stay there.
    pub fn in_place(&mut self, input: usize, map: &Map) {
        self.inputs[input].map = self.shelf.add(map);
    }

    /// Records held in memory.
    pub fn held(&self) -> usize {
        let conns: usize = (self.conns.iter())
            .map(|conn| conn.pending.len() + conn.store.len())
            .sum();
        let hosts: usize = (self.hosts.iter())
            .map(|host| host.queue.len() + host.late.len())
            .sum();
        let pairs: usize = self.clocks.iter().map(|clock| clock.waiting.len()).sum();
        conns + hosts + 2 * (pairs + self.ready.len())
    }

    /// Records copied because their input is read once, and not let go yet;
    /// 0 after [`Joiner::finish`].
    pub fn copies(&self) -> usize {
        self.shelf.copies()
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
                .pace
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

    /// Place in the header of a recording, or of one of the same boot that the
    /// header holds: one that begins later is not in it, and then beyond its end.
    pub(crate) fn source(&self, recording: usize) -> Option<u32> {
        let Recording { header, domain, .. } = &self.recordings[recording];
        let headed = self.headed.unwrap_or(0);
        let of_side = || {
            let all = (self.recordings.iter().enumerate())
                .filter(|(_, other)| other.header.role == header.role);
            (0u32..).zip(all)
        };
        let boot =
            of_side().find(|(_, (number, other))| *number < headed && other.domain == *domain);
        let (place, _) = (of_side()
            .find(|(_, (number, _))| *number == recording && *number < headed))
        .or(boot)
        .or_else(|| of_side().find(|(_, (number, _))| *number == recording))?;
        Some(place)
    }
}

/// Records read of each input before wall clocks are believed.
const PROBE: usize = 1 << 14;
