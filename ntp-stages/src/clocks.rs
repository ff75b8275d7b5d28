//! What the joined commands say of the two machines' clocks.

use crate::group::Offset;
use crate::keys;
use crate::machines;
use ntp_record::row::{Clock, KeyValue, View};
use ntp_record::{Role, Segment};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Clock figures of each pair of machines.
#[derive(Debug, Default)]
pub struct Clocks {
    pairs: Vec<Pair>,
    by_clock: BTreeMap<[OneClock; 2], usize>,
    by_connection: FxHashMap<(u32, u32), usize>,
}

/// Name of a machine, and the boot whose clock it is, empty when that is not known.
type OneClock = (String, String);

#[derive(Debug, Default)]
struct Pair {
    n: u64,
    /// (host's time, offset) of the first and the last command.
    first: (u64, i64),
    last: (u64, i64),
    bounds: u128,
    bound_max: Option<i64>,
    unbounded: u64,
}

/// Connection pairs remembered at most; more are looked up by name again.
const REMEMBERED: usize = 1 << 16;

impl Clocks {
    /// Takes in the offset at a command that began at `begin_ns` of the host's
    /// clock, between the machines that [`Clocks::find`] gave.
    #[inline]
    pub fn record(&mut self, place: usize, begin_ns: u64, offset: Offset) {
        let pair = &mut self.pairs[place];
        if pair.n == 0 || begin_ns < pair.first.0 {
            pair.first = (begin_ns, offset.ns);
        }
        if pair.n == 0 || begin_ns >= pair.last.0 {
            pair.last = (begin_ns, offset.ns);
        }
        pair.n += 1;
        match offset.bound {
            Some(bound) => {
                pair.bounds += u128::from(bound.unsigned_abs());
                pair.bound_max = pair.bound_max.max(Some(bound));
            }
            None => pair.unbounded += 1,
        }
    }

    /// Number of the pair of machines of a host's and a target's connection.
    pub fn find(&mut self, segment: &Segment, connections: (u32, u32)) -> usize {
        match self.by_connection.get(&connections) {
            Some(place) => *place,
            None => {
                let name = |value| match value {
                    KeyValue::Text(name) => name,
                    KeyValue::Number(_) | KeyValue::Unknown => String::new(),
                };
                let boot = |conn, role| {
                    let header = machines::header_of(segment, conn, role);
                    header.map_or_else(String::new, |header| header.boot_id.clone())
                };
                let (host, target) = connections;
                let host = (
                    name(keys::host(segment, View::Joined, host)),
                    boot(host, Role::Host),
                );
                let target = (
                    name(keys::target(segment, View::Joined, target)),
                    boot(target, Role::Target),
                );
                let place = *self
                    .by_clock
                    .entry([host, target])
                    .or_insert(self.pairs.len());
                if place == self.pairs.len() {
                    self.pairs.push(Pair::default());
                }
                if self.by_connection.len() >= REMEMBERED {
                    self.by_connection.clear();
                }
                self.by_connection.insert(connections, place);
                place
            }
        }
    }

    /// Connection numbers mean something else from here on.
    pub fn forget_names(&mut self) {
        self.by_connection.clear();
    }

    /// One row a pair of machines.
    pub fn rows(&self) -> Vec<Clock> {
        self.by_clock
            .iter()
            .map(|([(host, _), (target, _)], place)| {
                let pair = &self.pairs[*place];
                let passed = pair.last.0.saturating_sub(pair.first.0);
                let moved = pair.last.1.wrapping_sub(pair.first.1);
                let bounded = pair.n - pair.unbounded;
                Clock {
                    host: host.clone(),
                    target: target.clone(),
                    n: pair.n,
                    offset_ns: pair.first.1,
                    last_offset_ns: pair.last.1,
                    drift_ppm: (passed > 0).then(|| moved as f64 / passed as f64 * 1e6),
                    bound_mean_ns: (bounded > 0).then(|| pair.bounds as f64 / bounded as f64),
                    bound_max_ns: pair.bound_max.map(i64::unsigned_abs),
                    unbounded: pair.unbounded,
                }
            })
            .collect()
    }
}
