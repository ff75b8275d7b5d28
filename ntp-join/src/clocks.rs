//! Finds the clocks, and the connections whose addresses were rewritten.

use crate::field::{Field, Host};
use crate::joiner::{Clock, Joiner, State};
use crate::limits::{HostTimes, Limits, TargetTimes};
use crate::matching::sampled_by;
use crate::names::weak;
use crate::shelf::Held;
use crate::span::Span;
use crate::vote::Verdict;
use ntp_record::header::Role;

/// More records than this do not make a vote better.
const ENOUGH: usize = 1 << 18;

impl Clock {
    /// The interval of theta at a moment of the host's clock.
    #[inline]
    pub(crate) fn span(&self, at: i64) -> Span {
        match &self.state {
            State::Unknown => Span::ALL,
            State::Same => Span { lo: 0, hi: 0 },
            State::Known(track) => track.span(at),
        }
    }

    /// When the target may have got a command, first and last, ns of its clock.
    #[inline]
    pub(crate) fn window(&self, host: &HostTimes) -> (i64, i64) {
        (
            host.sent.saturating_add(self.span(host.sent).lo),
            host.over.saturating_add(self.span(host.over).hi),
        )
    }

    /// Whether a pair is possible.
    #[inline]
    pub(crate) fn allows(&self, limits: &Limits) -> bool {
        match &self.state {
            State::Unknown => false,
            State::Same => {
                limits.uppers().all(|bound| bound.ns >= 0)
                    && limits.lowers().all(|bound| bound.ns <= 0)
            }
            State::Known(track) => track.allows(limits),
        }
    }

    /// Whether the target held a command while the host waited for one.
    pub(crate) fn overlaps(&self, host: &HostTimes, target: &TargetTimes) -> bool {
        let (begin, end) = (self.span(host.sent), self.span(host.over));
        target.got < host.over.saturating_add(end.lo)
            && target.answered > host.sent.saturating_add(begin.hi)
    }
}

impl Joiner {
    /// Votes on each clock that is not known, when enough is new.
    pub(crate) fn find_clocks(&mut self, at_end: bool) {
        for clock in 0..self.clocks.len() {
            if matches!(self.clocks[clock].state, State::Unknown) {
                self.find_clock(clock, at_end);
            }
        }
        for conn in 0..self.conns.len() {
            let conn_ref = &self.conns[conn];
            if conn_ref.role == Role::Host
                && conn_ref.over.is_empty()
                && !conn_ref.pending.is_empty()
                && (at_end || conn_ref.pending.len() >= conn_ref.next_try)
            {
                self.conns[conn].next_try = self.conns[conn].pending.len() * 2;
                self.find_connection(conn as u32);
            }
        }
        self.requeue();
    }

    fn find_clock(&mut self, number: usize, at_end: bool) {
        let clock = &self.clocks[number];
        let (host, target) = (clock.host, clock.target);
        // Until then the records of such a host are in its queue.
        let pending = |conn: &crate::names::Conn| conn.pending.len();
        let in_domain = |role: Role, domain: usize| {
            self.conns
                .iter()
                .filter(move |conn| conn.role == role && conn.domain == domain)
        };
        let hosts: usize = in_domain(Role::Host, host).map(pending).sum();
        let targets: usize = in_domain(Role::Target, target)
            .map(|conn| conn.store.len())
            .sum();
        let poorer = hosts.min(targets);
        if poorer == 0 || (!at_end && poorer < clock.next_try) {
            return;
        }
        let strong = in_domain(Role::Host, host)
            .any(|conn| !conn.weak && conn.over.iter().any(|over| over.clock as usize == number));
        let over: Vec<(u32, Vec<u32>)> = (0..self.conns.len() as u32)
            .filter(|conn| {
                let conn = &self.conns[*conn as usize];
                conn.role == Role::Host && conn.domain == host && !conn.pending.is_empty()
            })
            .map(|conn| (conn, self.places(conn, number, strong)))
            .filter(|(_, over)| !over.is_empty())
            .collect();
        self.clocks[number].next_try = poorer.saturating_mul(2);
        let (field, names) = self.field(&over);
        let verdict = field.vote();
        drop(field);
        match verdict {
            Verdict::Found(track, _) => {
                let begin = track.now();
                let theta = track.span(begin).middle();
                self.clocks[number].state = State::Known(track);
                self.clocks[number].report.failed = None;
                if let Some((theta, _)) = theta {
                    self.align(number, theta);
                }
                if !strong {
                    for conn in names {
                        self.find_connection(conn);
                    }
                }
            }
            Verdict::TooFew(pairs) => {
                self.clocks[number].report.failed = Some(format!(
                    "{pairs} commands in common, too few to tell the difference of the clocks"
                ));
            }
            Verdict::Ambiguous => {
                self.clocks[number].report.failed = Some(
                    "the same commands come back so regularly that more than one difference \
                     of the clocks explains them"
                        .into(),
                );
            }
        }
    }

    /// Target connections on which the records of a host connection may be, for a vote.
    fn places(&self, host: u32, clock: usize, strong: bool) -> Vec<u32> {
        let conn = &self.conns[host as usize];
        if strong {
            return (conn.over.iter())
                .filter(|over| over.clock as usize == clock)
                .map(|over| over.conn)
                .collect();
        }
        if !conn.over.is_empty() {
            return Vec::new();
        }
        let salt = self.recordings[conn.recording].header.salt;
        (0..self.conns.len() as u32)
            .filter(|target| {
                let target = &self.conns[*target as usize];
                target.role == Role::Target
                    && target.domain == self.clocks[clock].target
                    && target.over.is_empty()
                    && !target.store.is_empty()
                    && self.recordings[target.recording].header.salt == salt
                    && weak(&conn.info, &target.info)
            })
            .collect()
    }

    /// The records that vote, and the host connections they come from.
    fn field<'a>(&'a self, over: &'a [(u32, Vec<u32>)]) -> (Field<'a>, Vec<u32>) {
        let mut targets: Vec<u32> = over
            .iter()
            .flat_map(|(_, over)| over.iter().copied())
            .collect();
        targets.sort_unstable();
        targets.dedup();
        let share = ENOUGH / over.len().max(1);
        let sampling = |conn: u32| {
            let header = &self.recordings[self.conns[conn as usize].recording].header;
            (header.sampling, header.salt)
        };
        let hosts = over
            .iter()
            .flat_map(|(conn, over)| {
                let pending = &self.conns[*conn as usize].pending;
                // One that no target can have recorded says nothing.
                let coarse = over.iter().map(|conn| sampling(*conn)).min();
                // The newest: the older ones may lie before the other's beginning.
                let skip = pending.len().saturating_sub(share);
                pending.iter().skip(skip).filter_map(move |held| {
                    let (n, salt) = coarse?;
                    let record = self.shelf.get(held);
                    let key = record.key();
                    sampled_by(n, salt, &key).then_some(())?;
                    Some(Host {
                        key,
                        times: HostTimes::of(record)?,
                        over,
                    })
                })
            })
            .collect();
        let records = targets.into_iter().flat_map(|conn| {
            (self.conns[conn as usize].store.iter())
                .map(move |(key, times, _)| (conn, *key, *times))
        });
        let names = over.iter().map(|(conn, _)| *conn).collect();
        (Field::new(hosts, records), names)
    }

    /// Moves the clocks' groups so that common time is common.
    fn align(&mut self, number: usize, theta: i64) {
        let Clock { host, target, .. } = self.clocks[number];
        // A moment of the host's clock is theta later on the target's.
        let wanted = self.domains[host].shift.saturating_sub(theta);
        let by = wanted.saturating_sub(self.domains[target].shift);
        self.clocks[number].report.off_wall = Some(by.saturating_neg());
        let (from, to) = (self.domains[target].group, self.domains[host].group);
        if from == to {
            return;
        }
        for domain in &mut self.domains {
            if domain.group == from {
                domain.shift = domain.shift.saturating_add(by);
                domain.group = to;
            }
        }
    }

    /// Looks for the target connection of a host connection whose addresses
    /// nobody has: names that do not disagree, and commands that fit the clock.
    fn find_connection(&mut self, host: u32) {
        let conn = &self.conns[host as usize];
        if !conn.over.is_empty() || conn.pending.is_empty() {
            return;
        }
        let mut scores: Vec<(usize, usize, u32)> = Vec::new();
        for clock in 0..self.clocks.len() {
            if self.clocks[clock].host != conn.domain
                || matches!(self.clocks[clock].state, State::Unknown)
            {
                continue;
            }
            for target in self.places(host, clock, false) {
                let (fits, tried) = self.likeness(host, target, clock);
                scores.push((fits, tried, target));
            }
        }
        scores.sort_unstable_by(|a, b| b.cmp(a));
        let Some((fits, tried, target)) = scores.first().copied() else {
            return;
        };
        let next = scores.get(1).map_or(0, |(fits, _, _)| *fits);
        if fits >= crate::vote::FEWEST && fits * 2 >= tried && next * 4 <= fits {
            self.bind(host, target, true);
        }
    }

    /// Of the records of a host connection that end where the target
    /// connection has records, how many fit exactly one of them.
    fn likeness(&self, host: u32, target: u32, clock: usize) -> (usize, usize) {
        let store = &self.conns[target as usize].store;
        let header = &self.recordings[self.conns[target as usize].recording].header;
        let clock = &self.clocks[clock];
        let Some(first) = store.oldest().and_then(|held| held.end()) else {
            return (0, 0);
        };
        let last = store.iter().filter_map(|(.., held)| held.end()).max();
        let last = last.unwrap_or(first);
        let (mut fits, mut tried) = (0, 0);
        for held in &self.conns[host as usize].pending {
            let record = self.shelf.get(held);
            let key = record.key();
            let Some(times) = HostTimes::of(record) else {
                continue;
            };
            if !sampled_by(header.sampling, header.salt, &key) {
                continue;
            }
            let span = clock.span(times.over);
            let there = times.over.saturating_add(span.lo)..=times.over.saturating_add(span.hi);
            if *there.end() < first || *there.start() > last {
                continue;
            }
            tried += 1;
            let (from, to) = clock.window(&times);
            let possible = (store.candidates(&key, from, to))
                .filter(|(_, target)| clock.allows(&Limits::of(&times, target)))
                .count();
            fits += usize::from(possible == 1);
        }
        (fits, tried)
    }

    /// Host records whose clock and connection are now known are tried again.
    fn requeue(&mut self) {
        let mut back: Vec<Vec<Held>> = self.hosts.iter().map(|_| Vec::new()).collect();
        for conn in 0..self.conns.len() {
            let known = (self.conns[conn].over.iter())
                .any(|over| !matches!(self.clocks[over.clock as usize].state, State::Unknown));
            if known && !self.conns[conn].pending.is_empty() {
                let domain = self.conns[conn].domain;
                back[domain].extend(std::mem::take(&mut self.conns[conn].pending));
            }
        }
        for (domain, mut back) in back.into_iter().enumerate() {
            if back.is_empty() {
                continue;
            }
            for claim in std::mem::take(&mut self.hosts[domain].ahead) {
                self.release(&claim);
            }
            let host = &mut self.hosts[domain];
            back.sort_by_key(|held| held.end().unwrap_or(i64::MIN));
            // They count as not tried, so that their partners are kept.
            if let Some(oldest) = back.iter().find_map(|held| held.end()) {
                host.tried = host.tried.min(oldest);
            }
            back.extend(host.queue.drain(..));
            host.queue = back.into();
        }
    }
}
