//! Counts what leaves without a partner: why, and when it is given up.

use crate::cause;
use crate::joiner::{Clock, Joiner, State};
use crate::limits::{HostTimes, Limits, TargetTimes, start};
use crate::matching::{DEEPEST, sampled_by};
use crate::shelf::Held;
use crate::store::Mark;
use ntp_record::header::Role;
use ntp_record::record::Flags;

impl Joiner {
    pub(crate) fn count_host(&mut self, cause: &'static str) {
        *self.host_left.entry(cause).or_default() += 1;
    }

    pub(crate) fn count_target(&mut self, cause: &'static str) {
        *self.target_left.entry(cause).or_default() += 1;
    }

    /// Counts a host record for which there is no partner, and lets it go.
    pub(crate) fn leave_host(&mut self, held: &Held) {
        let cause = self.host_cause(held);
        self.count_host(cause);
        self.shelf.release(held);
    }

    fn host_cause(&mut self, held: &Held) -> &'static str {
        let record = self.shelf.get(held);
        let key = record.key();
        let Some(times) = HostTimes::of(record) else {
            return cause::NO_TIMES;
        };
        let conn = &self.conns[held.conn as usize];
        let header = &self.recordings[conn.recording].header;
        if record.has(Flags::Admin) {
            return cause::ADMIN;
        }
        if !self.salt_exists(Role::Target, header.salt) {
            return cause::OTHER_SALT;
        }
        if conn.over.is_empty() {
            return cause::NO_CONNECTION;
        }
        let (mut known, mut inside, mut sampled) = (false, false, false);
        let (mut possible, mut overlaps) = (0, Vec::new());
        for place in &conn.over {
            let clock = &self.clocks[place.clock as usize];
            let there = &self.conns[place.conn as usize];
            let there = (&self.recordings[there.recording].header, &there.store);
            sampled |= sampled_by(there.0.sampling, there.0.salt, &key);
            if matches!(clock.state, State::Unknown) {
                continue;
            }
            known = true;
            let from = start(record).unwrap_or(times.sent);
            inside |= self.covered(clock, Role::Target, from, times.over);
            let (from_target, to_target) = clock.window(&times);
            // Those that only overlap may have come before.
            let early = from_target.saturating_sub(times.over.saturating_sub(times.sent));
            for (slot, target) in there.1.candidates(&key, early, to_target).take(DEEPEST) {
                if clock.allows(&Limits::of(&times, target)) {
                    possible += 1;
                } else if clock.overlaps(&times, target) {
                    overlaps.push((place.conn, slot));
                }
            }
        }
        if !sampled {
            return cause::NOT_SAMPLED;
        }
        if !known {
            return cause::AMBIGUOUS_CLOCK;
        }
        self.totals.host_inside += u64::from(inside);
        let contradicts = !overlaps.is_empty();
        for (conn, slot) in overlaps {
            self.conns[conn as usize]
                .store
                .mark(slot, Mark::Contradicts);
        }
        match () {
            () if possible > 0 => cause::AMBIGUOUS,
            () if !inside => cause::TARGET_NOT_RECORDING,
            () if contradicts => cause::CONTRADICTS,
            () => cause::NOT_IN_TARGET,
        }
    }

    /// Counts a target record for which there is no partner, and lets it go.
    pub(crate) fn leave_target(&mut self, held: &Held, mark: Mark) {
        let cause = self.target_cause(held, mark);
        self.count_target(cause);
        self.shelf.release(held);
    }

    fn target_cause(&self, held: &Held, mark: Mark) -> &'static str {
        let record = self.shelf.get(held);
        let Some(times) = TargetTimes::of(record) else {
            return cause::NO_TIMES;
        };
        let conn = &self.conns[held.conn as usize];
        let header = &self.recordings[conn.recording].header;
        if record.has(Flags::Admin) {
            return cause::ADMIN;
        }
        if !self.salt_exists(Role::Host, header.salt) {
            return cause::OTHER_SALT;
        }
        if conn.over.is_empty() {
            return cause::NO_CONNECTION;
        }
        let (mut known, mut inside, mut sampled) = (false, false, false);
        for place in &conn.over {
            let clock = &self.clocks[place.clock as usize];
            let there = &self.recordings[self.conns[place.conn as usize].recording].header;
            sampled |= sampled_by(there.sampling, there.salt, &record.key());
            if matches!(clock.state, State::Unknown) {
                continue;
            }
            known = true;
            inside |= self.covered(clock, Role::Host, times.got, times.answered);
        }
        if !sampled {
            return cause::NOT_SAMPLED;
        }
        if !known {
            return cause::AMBIGUOUS_CLOCK;
        }
        match mark {
            Mark::Ambiguous => cause::AMBIGUOUS,
            _ if !inside => cause::HOST_NOT_RECORDING,
            Mark::Contradicts => cause::CONTRADICTS,
            Mark::Untouched => cause::NOT_IN_HOST,
        }
    }

    fn salt_exists(&self, role: Role, salt: u32) -> bool {
        let mut other = (self.recordings.iter())
            .filter(|recording| recording.header.role == role)
            .peekable();
        other.peek().is_none() || other.any(|recording| recording.header.salt == salt)
    }

    /// Whether the other side was recording from one moment of this side to another.
    fn covered(&self, clock: &Clock, other: Role, from: i64, to: i64) -> bool {
        let (domain, sign) = match other {
            Role::Target => (clock.target, 1),
            Role::Host => (clock.host, -1),
        };
        // Moments of the target's clock are near enough the host's by the newest theta.
        let span = |at: i64| match other {
            Role::Target => clock.span(at),
            Role::Host => {
                let guess = clock.span(i64::MAX / 8);
                let about = guess.middle().map_or(0, |(middle, _)| middle);
                clock.span(at.saturating_sub(about))
            }
        };
        let place = |at: i64| {
            let middle = span(at).middle().map_or(0, |(middle, _)| middle);
            at.saturating_add(sign * middle)
        };
        let (from, to) = (place(from), place(to));
        (self.recordings.iter())
            .filter(|recording| recording.domain == domain && recording.header.role == other)
            .any(|recording| recording.start <= from && recording.end.is_none_or(|end| to <= end))
    }

    /// Gives up target records that no host record can claim any more.
    pub(crate) fn expire(&mut self, lag: i64) {
        let tried: Vec<i64> = (0..self.domains.len())
            .map(|domain| {
                let done = self.hosts[domain].queue.is_empty()
                    && self.hosts[domain].late.is_empty()
                    && self.read_up_to(domain, Role::Host) == i64::MAX;
                let tried = self.hosts[domain].tried;
                if done || tried == i64::MIN {
                    tried
                } else {
                    tried.saturating_add(self.domains[domain].shift)
                }
            })
            .collect();
        for number in 0..self.conns.len() {
            let conn = &self.conns[number];
            if conn.role == Role::Host || conn.store.is_empty() || conn.over.is_empty() {
                continue;
            }
            // Records of a host whose clock is unknown wait.
            let due = (conn.over.iter())
                .map(|place| &self.clocks[place.clock as usize])
                .map(|clock| match clock.state {
                    State::Unknown => i64::MIN,
                    _ => tried[clock.host],
                })
                .min()
                .unwrap_or(i64::MIN);
            if due == i64::MIN {
                continue;
            }
            let due = due
                .saturating_sub(self.domains[conn.domain].shift)
                .saturating_sub(2 * lag);
            while self.conns[number]
                .store
                .oldest()
                .is_some_and(|held| held.end().is_none_or(|over| over < due))
            {
                if let Some((held, mark)) = self.conns[number].store.pop_oldest() {
                    self.leave_target(&held, mark);
                }
            }
        }
    }

    /// Drops the oldest of what waits for a clock or a connection when memory
    /// is short.
    pub(crate) fn relieve(&mut self) {
        while self.held() > self.options.window {
            let oldest = |conn: &crate::names::Conn| {
                let held = match conn.role {
                    Role::Host => conn.pending.front(),
                    Role::Target => conn.store.oldest(),
                };
                held.and_then(|held| held.end())
                    .map(|over| over.saturating_add(self.domains[conn.domain].shift))
            };
            let Some((_, number)) = (self.conns.iter().enumerate())
                .filter_map(|(number, conn)| oldest(conn).map(|over| (over, number)))
                .min()
            else {
                return;
            };
            let count =
                (self.conns[number].pending.len() + self.conns[number].store.len()).div_ceil(4);
            for _ in 0..count {
                let conn = &mut self.conns[number];
                if let Some(held) = conn.pending.pop_front() {
                    let cause = self.drop_cause(&held);
                    self.count_host(cause);
                    self.shelf.release(&held);
                } else if let Some((held, _)) = conn.store.pop_oldest() {
                    let cause = self.drop_cause(&held);
                    self.count_target(cause);
                    self.shelf.release(&held);
                }
            }
        }
    }

    /// Cause of a record that is dropped while it waits.
    fn drop_cause(&self, held: &Held) -> &'static str {
        let record = self.shelf.get(held);
        let conn = &self.conns[held.conn as usize];
        let header = &self.recordings[conn.recording].header;
        let (other, silent) = match conn.role {
            Role::Host => (Role::Target, cause::TARGET_NOT_RECORDING),
            Role::Target => (Role::Host, cause::HOST_NOT_RECORDING),
        };
        if record.has(Flags::Admin) {
            return cause::ADMIN;
        }
        if !self.salt_exists(other, header.salt) {
            return cause::OTHER_SALT;
        }
        // By the wall clocks, until better is known.
        let over = (held.end())
            .unwrap_or(0)
            .saturating_add(self.domains[conn.domain].shift);
        let before_all = (self.recordings.iter())
            .filter(|recording| recording.header.role == other)
            .all(|recording| {
                recording
                    .start
                    .saturating_add(self.domains[recording.domain].shift)
                    > over
            });
        match () {
            () if before_all => silent,
            () if conn.over.is_empty() => cause::NO_CONNECTION,
            () if self.is_foreign(held.conn, &record.key()) => cause::NOT_SAMPLED,
            () => cause::WINDOW,
        }
    }
}
