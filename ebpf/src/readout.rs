//! What user space reads from the maps of a session.

use crate::error::LoadError;
use crate::load::Session;
use crate::shared::{CountKey, Name, STATS, StatKind};
use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, PerCpuHashMap, RingBuf};
use ntp_record::Record;
use ntp_record::header::Count;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::FromBytes;

/// Size of `struct flight` in `bpf/core.h`; only its keys are read here.
pub(crate) const FLIGHT: usize = 216;
/// Size of `struct ntp_count_key`.
const COUNT_KEY: usize = size_of::<CountKey>();

/// Counters of the kernel programs since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands that pass the filters.
    pub seen: u64,
    /// Of these, chosen by the hash.
    pub sampled: u64,
    /// Records handed to user space.
    pub emitted: u64,
    /// Sampled commands without a record, per cause.
    pub lost: BTreeMap<String, u64>,
    /// Points and names that could not be had, per cause.
    pub misses: BTreeMap<String, u64>,
}

/// The maps of a session, open for reading.
pub struct Readout {
    records: RingBuf<MapData>,
    names: RingBuf<MapData>,
    stats: PerCpuArray<MapData, u64>,
    counts: PerCpuHashMap<MapData, [u8; COUNT_KEY], u64>,
    inflight: HashMap<MapData, u64, [u8; FLIGHT]>,
}

fn take<T>(session: &mut Session, name: &str) -> Result<T, LoadError>
where
    T: TryFrom<Map, Error = MapError>,
{
    T::try_from(session.take_map(name)?).map_err(|e| LoadError::Map {
        map: name.into(),
        what: e.to_string(),
    })
}

impl Readout {
    /// Takes the maps out of a session.
    ///
    /// # Errors
    /// A map is missing or of another shape: the object does not fit this program.
    pub fn new(session: &mut Session) -> Result<Self, LoadError> {
        Ok(Self {
            records: take(session, "records")?,
            names: take(session, "names")?,
            stats: take(session, "stats")?,
            counts: take(session, "counts")?,
            inflight: take(session, "inflight")?,
        })
    }

    /// Readable when records wait; not all that wait wake it up.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// Moves up to `max` waiting records to `out`; returns how many.
    pub fn records(&mut self, out: &mut Vec<Record>, max: usize) -> usize {
        let mut n = 0;
        while n < max {
            let Some(item) = self.records.next() else {
                break;
            };
            if let Ok((record, _)) = Record::read_from_prefix(&item) {
                out.push(record);
                n += 1;
            }
        }
        n
    }

    /// Moves the waiting names to `out`.
    pub fn names(&mut self, out: &mut Vec<Name>) {
        while let Some(item) = self.names.next() {
            out.extend(Name::parse(&item));
        }
    }

    /// The counters, all CPUs together.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn stats(&self) -> Result<Stats, MapError> {
        let mut stats = Stats::default();
        for (i, kind) in (0..).zip(STATS) {
            let n = self.stats.get(&i, 0)?.iter().sum();
            match kind {
                StatKind::Seen => stats.seen = n,
                StatKind::Sampled => stats.sampled = n,
                StatKind::Emitted => stats.emitted = n,
                StatKind::Lost(cause) => drop(stats.lost.insert((*cause).into(), n)),
                StatKind::Miss(cause) => drop(stats.misses.insert((*cause).into(), n)),
            }
        }
        Ok(stats)
    }

    /// Exact number of commands per group, in a fixed order.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn counts(&self) -> Result<Vec<Count>, MapError> {
        let mut counts = Vec::new();
        for entry in self.counts.iter() {
            let (bytes, per_cpu) = entry?;
            let Ok(key) = CountKey::read_from_bytes(&bytes) else {
                continue;
            };
            counts.push(Count {
                dev: key.dev,
                opcode: key.opcode,
                bytes: key.bytes,
                admin: key.admin != 0,
                commands: per_cpu.iter().sum(),
            });
        }
        counts.sort_by_key(|c| (c.dev, c.admin, c.opcode, c.bytes));
        Ok(counts)
    }

    /// Sampled commands in flight now.
    pub fn in_flight(&self) -> u64 {
        self.inflight.keys().filter(Result::is_ok).count() as u64
    }
}
