//! The records of two machines that wait for a clock, found by key.

use crate::limits::{HostTimes, Limits, TargetTimes};
use crate::span::Span;
use crate::store::key_hash;
use ntp_record::sample::Key;

/// Hosts looked at for one target, going back in time from the latest possible.
const DEEPEST: usize = 16;

/// A host record with the connections of the target it may have come over.
pub struct Host<'a> {
    /// What the command is.
    pub key: Key,
    /// Its moments.
    pub times: HostTimes,
    /// Numbers of target connections.
    pub over: &'a [u32],
}

struct Target {
    hash: u64,
    times: TargetTimes,
    key: Key,
    connection: u32,
}

/// All records of both sides.
pub struct Field<'a> {
    /// By the end of the command.
    pub(crate) hosts: Vec<Host<'a>>,
    /// How many targets have the key of each host.
    pub(crate) repeats: Vec<u32>,
    /// By key and time.
    targets: Vec<Target>,
    /// Hash of the key, time sent, number of the host; by these.
    senders: Vec<(u64, i64, u32)>,
    /// Time covered by the targets, ns of the target's clock.
    pub(crate) first: i64,
    pub(crate) last: i64,
}

fn hash_on(connection: u32, key: &Key) -> u64 {
    key_hash(key) ^ u64::from(connection).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<'a> Field<'a> {
    /// Hosts in any order; targets with their connection.
    pub fn new(
        mut hosts: Vec<Host<'a>>,
        targets: impl Iterator<Item = (u32, Key, TargetTimes)>,
    ) -> Self {
        hosts.sort_by_key(|host| host.times.over);
        let mut targets: Vec<Target> = targets
            .map(|(connection, key, times)| Target {
                hash: hash_on(connection, &key),
                times,
                key,
                connection,
            })
            .collect();
        targets.sort_by_key(|target| (target.hash, target.times.got));
        let mut senders: Vec<(u64, i64, u32)> = (hosts.iter().zip(0..))
            .flat_map(|(host, number)| {
                let hash = move |over: &u32| (hash_on(*over, &host.key), host.times.sent, number);
                host.over.iter().map(hash)
            })
            .collect();
        senders.sort_unstable();
        let first = targets.iter().map(|target| target.times.got).min();
        let last = targets.iter().map(|target| target.times.answered).max();
        let mut field = Field {
            repeats: Vec::new(),
            hosts,
            targets,
            senders,
            first: first.unwrap_or(i64::MAX),
            last: last.unwrap_or(i64::MIN),
        };
        field.repeats = (field.hosts.iter())
            .map(|host| field.candidates(host, Span::ALL).count() as u32)
            .collect();
        field
    }

    /// Targets that may be the partner of a host record by key, and by time
    /// when theta is in `span`.
    pub(crate) fn candidates(
        &self,
        host: &Host<'a>,
        span: Span,
    ) -> impl Iterator<Item = (u32, Limits)> + '_ {
        let (times, key, over) = (host.times, host.key, host.over);
        let from = times.sent.saturating_add(span.lo);
        let to = times.over.saturating_add(span.hi);
        over.iter().flat_map(move |connection| {
            let hash = hash_on(*connection, &key);
            let begin = self
                .targets
                .partition_point(|target| (target.hash, target.times.got) < (hash, from));
            (self.targets[begin..].iter().zip(begin as u32..))
                .take_while(move |(target, _)| target.hash == hash && target.times.got <= to)
                .filter(move |(target, _)| target.connection == *connection && target.key == key)
                .map(move |(target, at)| (at, Limits::of(&times, &target.times)))
        })
    }

    /// How many hosts may be the partner of a target, at most 2.
    pub(crate) fn claimants(
        &self,
        target: u32,
        allows: impl Fn(&Limits) -> bool,
        lo: i64,
    ) -> usize {
        let target = &self.targets[target as usize];
        let latest = target.times.got.saturating_sub(lo);
        let end = self
            .senders
            .partition_point(|(hash, sent, _)| (*hash, *sent) <= (target.hash, latest));
        (self.senders[..end].iter().rev())
            .take_while(|(hash, _, _)| *hash == target.hash)
            .take(DEEPEST)
            .map(|(_, _, host)| &self.hosts[*host as usize])
            .filter(|host| host.key == target.key)
            .filter(|host| allows(&Limits::of(&host.times, &target.times)))
            .take(2)
            .count()
    }

    /// How long the target held a command, ns.
    pub(crate) fn held(&self, target: u32) -> i64 {
        let times = &self.targets[target as usize].times;
        times.answered.saturating_sub(times.got)
    }
}
