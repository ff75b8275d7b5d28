//! Finds the target record of each host record, and decides what becomes of
//! those that have none.

use crate::joiner::{Clock, Joiner, Sink, State, cause};
use crate::limits::{HostTimes, Limits, TargetTimes, end, start};
use crate::names::{Over, Passed};
use crate::store::{Mark, Ticket, key_hash};
use ntp_record::header::Role;
use ntp_record::joined::Joined;
use ntp_record::record::{Flags, Record};
use ntp_record::sample;
use std::io;

/// The target records that may be the partner of one host record.
pub(crate) struct Claim {
    record: Record,
    times: Option<HostTimes>,
    found: Found,
    /// The first few; more are as bad as two.
    tickets: [Option<(Over, Ticket)>; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Matched,
    /// Perhaps later.
    Left,
    /// As [`Found::Nowhere`].
    Nowhere,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Its clock is not known yet, or it has no connection.
    Nowhere,
    /// No record that fits.
    None,
    One,
    Many,
}

/// A key is looked for in so many records at most.
const DEEPEST: usize = 4096;
/// A record that ended so long before the newest is of the past, ns.
const BACK: i64 = 1_000_000;
/// Host records are decided when all that ended so long after them have
/// claimed theirs: twice what the command waited, but between these, ns. The
/// next command with the same id ends within that time.
const AHEAD: std::ops::RangeInclusive<i64> = 200_000..=20_000_000;
/// And no more of them than this.
const AHEAD_RECORDS: usize = 8192;
/// Pairs of a connection among which order is looked at, on either side.
const NEIGHBOURS: usize = 32;
/// Of them so many, on each side, must have been sent while the command waited.
const ENOUGH_NEIGHBOURS: u32 = 3;
/// Claims looked through for them.
const LOOK_AHEAD: usize = 2048;
/// The same as [`AHEAD`] for records that are tried once more, ns.
const AHEAD_LATE: i64 = 1_000_000_000;

impl Joiner {
    /// Does all that can be done with what was read so far.
    ///
    /// # Errors
    /// Those of the output.
    pub fn advance(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        self.find_clocks(false);
        let mut lag = self.options.lag;
        let held = self.held();
        if held > self.options.window / 2 {
            // Less time for stragglers the less memory is left.
            let left = self.options.window.saturating_sub(held) as i128;
            lag = (i128::from(lag) * left * 2 / self.options.window as i128) as i64;
        }
        for domain in 0..self.hosts.len() {
            self.look_back(domain, lag);
            self.match_queue(domain);
            self.match_late(domain, lag);
        }
        self.expire(lag);
        self.relieve();
        self.settle(sink, false)
    }

    /// Does the rest, at the end of all inputs.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        for input in 0..self.inputs.len() {
            if self.inputs[input].open {
                self.end_input(input);
            }
        }
        self.advance(sink)?;
        self.find_clocks(true);
        for domain in 0..self.hosts.len() {
            self.look_back(domain, 0);
            self.match_queue(domain);
            self.match_late(domain, i64::MIN);
        }
        for conn in 0..self.conns.len() {
            while let Some(record) = self.conns[conn].pending.pop_front() {
                self.leave_host(&record);
            }
            while let Some((record, mark)) = self.conns[conn].store.pop_oldest() {
                self.leave_target(&record, mark);
            }
        }
        self.settle(sink, true)?;
        self.write_totals(sink)
    }

    /// Last moment up to which all of a target's records were read, ns of its clock.
    pub(crate) fn read_up_to(&self, domain: usize, role: Role) -> i64 {
        (self.inputs.iter())
            .filter(|input| input.open)
            .filter_map(|input| input.recording)
            .map(|recording| &self.recordings[recording])
            .filter(|recording| recording.domain == domain && recording.header.role == role)
            .map(|recording| recording.seen)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Brings the intervals of the past up to date when records of the past
    /// are about to be looked for.
    fn look_back(&mut self, domain: usize, lag: i64) {
        let side = &self.hosts[domain];
        let past = |record: Option<&Record>, lag: i64| {
            let due = side.tried.saturating_sub(lag);
            record.and_then(end).is_some_and(|over| over < due)
        };
        if past(side.late.front(), lag.max(0)) || past(side.queue.front(), BACK) {
            for clock in self.clocks.iter_mut().filter(|clock| clock.host == domain) {
                if let State::Known(track) = &mut clock.state {
                    track.settle();
                }
            }
        }
    }

    /// Decides the host records whose targets were read.
    fn match_queue(&mut self, domain: usize) {
        let reach: Vec<i64> = (self.clocks.iter())
            .map(|clock| self.read_up_to(clock.target, Role::Target))
            .collect();
        let ended = self.read_up_to(domain, Role::Host) == i64::MAX;
        loop {
            let mut newest = i64::MIN;
            while let Some(record) = self.hosts[domain].queue.front() {
                if !self.within(record, &reach) {
                    break;
                }
                let Some(record) = self.hosts[domain].queue.pop_front() else {
                    break;
                };
                newest = newest.max(end(&record).unwrap_or(i64::MIN));
                let claim = self.claim(record);
                self.hosts[domain].ahead.push_back(claim);
                if self.ripe(domain) {
                    break;
                }
            }
            // At the end nothing more can come.
            let last = ended && self.hosts[domain].queue.is_empty();
            if !self.ripe(domain) && !last {
                return;
            }
            let Some(claim) = self.hosts[domain].ahead.pop_front() else {
                return;
            };
            if let Some(over) = end(&claim.record) {
                let tried = &mut self.hosts[domain].tried;
                *tried = (*tried).max(over);
            }
            match self.decide(&claim) {
                Decision::Matched => {}
                Decision::Left => self.hosts[domain].late.push_back(claim.record),
                Decision::Nowhere => {
                    let conn = claim.record.conn as usize;
                    self.conns[conn].pending.push_back(claim.record);
                }
            }
        }
    }

    /// Whether the oldest claim can be decided.
    fn ripe(&self, domain: usize) -> bool {
        let ahead = &self.hosts[domain].ahead;
        let (Some(first), Some(last)) = (ahead.front(), ahead.back()) else {
            return false;
        };
        let Some(times) = first.times else {
            return true;
        };
        let wait = (2 * (times.over - times.sent)).clamp(*AHEAD.start(), *AHEAD.end());
        ahead.len() >= AHEAD_RECORDS
            || first.found == Found::Nowhere
            || end(&last.record).is_some_and(|over| over > times.over.saturating_add(wait))
    }

    /// Whether the targets a host record may have gone to were read beyond it.
    fn within(&self, record: &Record, reach: &[i64]) -> bool {
        let Some(over) = end(record) else {
            return true;
        };
        (self.conns[record.conn as usize].over.iter()).all(|place| {
            let clock = &self.clocks[place.clock as usize];
            matches!(clock.state, State::Unknown)
                || (reach.get(place.clock as usize))
                    .is_none_or(|reach| *reach >= over.saturating_add(clock.span(over).hi))
        })
    }

    /// Tries those that found nothing once more, and gives them up.
    fn match_late(&mut self, domain: usize, lag: i64) {
        let due = match lag {
            i64::MIN => i64::MAX,
            lag => self.hosts[domain].tried.saturating_sub(lag),
        };
        let late = &self.hosts[domain].late;
        let over = |record: &Record| end(record).unwrap_or(i64::MIN);
        if late.front().is_none_or(|record| over(record) > due) {
            return;
        }
        let count = late.iter().take_while(|record| over(record) <= due).count();
        let beyond = due.saturating_add(AHEAD_LATE);
        let claims: Vec<Record> = (late.iter().copied())
            .take_while(|record| over(record) <= beyond)
            .collect();
        let claims: Vec<Claim> = claims
            .into_iter()
            .map(|record| self.claim(record))
            .collect();
        self.hosts[domain].late.drain(..count);
        for (number, claim) in claims.iter().enumerate() {
            if number >= count {
                self.release(claim);
            } else if self.decide(claim) != Decision::Matched {
                self.leave_host(&claim.record);
            }
        }
    }

    /// Finds what may be the partner of a host record.
    fn claim(&mut self, record: Record) -> Claim {
        let mut claim = Claim {
            record,
            times: HostTimes::of(&record),
            found: Found::None,
            tickets: [None; 3],
        };
        let Some(times) = claim.times else {
            return claim;
        };
        let conn = &mut self.conns[record.conn as usize];
        if !conn.generations {
            conn.turns.note(record.cid, times.sent, times.over);
        }
        let places = std::mem::take(&mut conn.over);
        let mut known = false;
        let mut slots: [Option<(Over, u32)>; 3] = [None; 3];
        let mut count = 0;
        for place in &places {
            let clock = &self.clocks[place.clock as usize];
            if matches!(clock.state, State::Unknown) || !self.free(record.conn, place.conn) {
                continue;
            }
            known = true;
            let store = &self.conns[place.conn as usize].store;
            for (slot, target) in store.candidates(&record).take(DEEPEST) {
                let fits = TargetTimes::of(target)
                    .is_some_and(|target| clock.allows(&Limits::of(&times, &target)));
                if fits {
                    if let Some(free) = slots.get_mut(count) {
                        *free = Some((*place, slot));
                    }
                    count += 1;
                }
            }
        }
        self.conns[record.conn as usize].over = places;
        for (ticket, slot) in claim.tickets.iter_mut().zip(slots) {
            *ticket = slot
                .map(|(place, slot)| (place, self.conns[place.conn as usize].store.claim(slot)));
        }
        claim.found = match count {
            0 if !known => Found::Nowhere,
            0 => Found::None,
            1 => Found::One,
            _ => Found::Many,
        };
        claim
    }

    fn release(&mut self, claim: &Claim) -> u32 {
        let mut most = 0;
        for (place, ticket) in claim.tickets.iter().flatten() {
            most = most.max(self.conns[place.conn as usize].store.release(*ticket));
        }
        most
    }

    /// Makes a pair of a host record and its only candidate, if it is the
    /// only claim on it and fits what is known of the clock by now.
    fn decide(&mut self, claim: &Claim) -> Decision {
        let claims = self.release(claim);
        let (Some(times), Some((place, ticket))) = (claim.times, claim.tickets[0]) else {
            return match claim.found {
                Found::Nowhere => Decision::Nowhere,
                _ => Decision::Left,
            };
        };
        if claim.found != Found::One || claims > 1 {
            self.mark(claim);
            return Decision::Left;
        }
        let store = &self.conns[place.conn as usize].store;
        let Some((slot, target)) = store.find(ticket) else {
            return Decision::Left;
        };
        let Some(target) = TargetTimes::of(target) else {
            return Decision::Left;
        };
        let limits = Limits::of(&times, &target);
        if !self.clocks[place.clock as usize].allows(&limits)
            || !self.free(claim.record.conn, place.conn)
            || !self.in_line(claim, place, &limits, &target)
        {
            self.mark(claim);
            return Decision::Left;
        }
        let order = target;
        let (target, _) = self.conns[place.conn as usize].store.remove(slot);
        self.note_partner(claim.record.conn, place.conn);
        self.note_passed(claim, &times, &order);
        let clock = &mut self.clocks[place.clock as usize];
        if let State::Known(track) = &mut clock.state {
            track.add(&limits);
        }
        clock.waiting.push_back(Joined {
            host: claim.record,
            target,
            offset_ns: 0,
            offset_bound_ns: 0,
        });
        self.totals.matched += 1;
        Decision::Matched
    }

    /// Whether a pair keeps the order of its connection, when that matters.
    ///
    /// Of one command id only one command is under way, so the commands
    /// before and after it with the same key do not fit, unless the interval
    /// is wider than the target held the command and the id rested. Then, and if ids come back
    /// at once, the pair must fit a steady drift, or if that does not decide
    /// it either, the pairs sent just before and just after must be in order
    /// with it; and if there are none, its key must not have been used of late.
    fn in_line(&self, claim: &Claim, place: Over, limits: &Limits, target: &TargetTimes) -> bool {
        let Some(times) = claim.times else {
            return false;
        };
        let conn = &self.conns[claim.record.conn as usize];
        let State::Known(track) = &self.clocks[place.clock as usize].state else {
            return true;
        };
        let held = target.answered.saturating_sub(target.got);
        let apart = held.saturating_add(conn.turns.least());
        if conn.generations || track.excess(track.span(times.over)) < apart {
            return true;
        }
        if !track.allows_sharply(limits) {
            return false;
        }
        if track.excess(track.sharp(times.over)) < apart {
            return true;
        }
        let (mut before, mut after) = (0, 0);
        let waited = times.over - times.sent;
        let mut keeps = |sent: i64, order: i64| {
            before += u32::from((1..waited).contains(&(times.sent - sent)));
            after += u32::from((1..waited).contains(&(sent - times.sent)));
            (sent < times.sent) == (order < target.order) || order == target.order
        };
        for passed in &conn.recent {
            if !keeps(passed.sent, passed.order) {
                return false;
            }
        }
        let domain = conn.domain;
        let others = (self.hosts[domain].ahead.iter())
            .take(LOOK_AHEAD)
            .filter(|other| other.record.conn == claim.record.conn && other.found == Found::One);
        for other in others.take(NEIGHBOURS) {
            let (Some(times), Some((place, ticket))) = (other.times, other.tickets[0]) else {
                continue;
            };
            let target = self.conns[place.conn as usize].store.find(ticket);
            if let Some(target) = target.and_then(|(_, target)| TargetTimes::of(target)) {
                if !keeps(times.sent, target.order) {
                    return false;
                }
            }
        }
        let key = key_hash(&claim.record);
        before.min(after) >= ENOUGH_NEIGHBOURS || conn.recent.iter().all(|passed| passed.key != key)
    }

    /// Remembers a pair for [`Joiner::in_line`].
    fn note_passed(&mut self, claim: &Claim, times: &HostTimes, target: &TargetTimes) {
        let conn = &mut self.conns[claim.record.conn as usize];
        if conn.generations {
            return;
        }
        if conn.recent.len() == NEIGHBOURS {
            conn.recent.pop_front();
        }
        conn.recent.push_back(Passed {
            sent: times.sent,
            order: target.order,
            key: key_hash(&claim.record),
        });
    }

    /// Marks the target records that were claimed in vain.
    fn mark(&mut self, claim: &Claim) {
        for (place, ticket) in claim.tickets.iter().flatten() {
            let store = &mut self.conns[place.conn as usize].store;
            if let Some((slot, _)) = store.find(*ticket) {
                store.mark(slot, Mark::Ambiguous);
            }
        }
    }

    /// Whether two connections may be the same: neither is known to be
    /// another one of the same recording (an earlier connect of the same addresses).
    fn free(&self, host: u32, target: u32) -> bool {
        let (h, t) = (&self.conns[host as usize], &self.conns[target as usize]);
        let other = |partner: &[(usize, u32)], recording: usize, conn: u32| {
            (partner.iter()).any(|(known, is)| *known == recording && *is != conn)
        };
        !other(&h.partner, t.recording, target) && !other(&t.partner, h.recording, host)
    }

    fn note_partner(&mut self, host: u32, target: u32) {
        for (one, other) in [(host, target), (target, host)] {
            let recording = self.conns[other as usize].recording;
            let conn = &mut self.conns[one as usize];
            conn.matched += 1;
            if !conn.partner.contains(&(recording, other)) {
                conn.partner.push((recording, other));
            }
        }
    }

    pub(crate) fn count_host(&mut self, cause: &'static str) {
        *self.host_left.entry(cause).or_default() += 1;
    }

    pub(crate) fn count_target(&mut self, cause: &'static str) {
        *self.target_left.entry(cause).or_default() += 1;
    }

    /// Counts a host record for which there is no partner.
    pub(crate) fn leave_host(&mut self, record: &Record) {
        let Some(times) = HostTimes::of(record) else {
            return self.count_host(cause::NO_TIMES);
        };
        let conn = &self.conns[record.conn as usize];
        let header = &self.recordings[conn.recording].header;
        if record.has(Flags::Admin) {
            return self.count_host(cause::ADMIN);
        }
        if !self.salt_exists(Role::Target, header.salt) {
            return self.count_host(cause::OTHER_SALT);
        }
        if conn.over.is_empty() {
            return self.count_host(cause::NO_CONNECTION);
        }
        let (mut known, mut inside, mut sampled) = (false, false, false);
        let (mut possible, mut overlaps) = (0, Vec::new());
        for place in &conn.over {
            let clock = &self.clocks[place.clock as usize];
            let there = &self.conns[place.conn as usize];
            let there = (&self.recordings[there.recording].header, &there.store);
            sampled |= sampled_by(there.0.sampling, there.0.salt, record);
            if matches!(clock.state, State::Unknown) {
                continue;
            }
            known = true;
            let from = start(record).unwrap_or(times.sent);
            inside |= self.covered(clock, Role::Target, from, times.over);
            for (slot, target) in there.1.candidates(record).take(DEEPEST) {
                let Some(target) = TargetTimes::of(target) else {
                    continue;
                };
                if clock.allows(&Limits::of(&times, &target)) {
                    possible += 1;
                } else if clock.overlaps(&times, &target) {
                    overlaps.push((place.conn, slot));
                }
            }
        }
        if !sampled {
            return self.count_host(cause::NOT_SAMPLED);
        }
        if !known {
            return self.count_host(cause::AMBIGUOUS_CLOCK);
        }
        self.totals.host_inside += u64::from(inside);
        let contradicts = !overlaps.is_empty();
        for (conn, slot) in overlaps {
            self.conns[conn as usize]
                .store
                .mark(slot, Mark::Contradicts);
        }
        self.count_host(match () {
            () if possible > 0 => cause::AMBIGUOUS,
            () if !inside => cause::TARGET_NOT_RECORDING,
            () if contradicts => cause::CONTRADICTS,
            () => cause::NOT_IN_TARGET,
        });
    }

    /// Counts a target record for which there is no partner.
    pub(crate) fn leave_target(&mut self, record: &Record, mark: Mark) {
        let Some(times) = TargetTimes::of(record) else {
            return self.count_target(cause::NO_TIMES);
        };
        let conn = &self.conns[record.conn as usize];
        let header = &self.recordings[conn.recording].header;
        if record.has(Flags::Admin) {
            return self.count_target(cause::ADMIN);
        }
        if !self.salt_exists(Role::Host, header.salt) {
            return self.count_target(cause::OTHER_SALT);
        }
        if conn.over.is_empty() {
            return self.count_target(cause::NO_CONNECTION);
        }
        let (mut known, mut inside, mut sampled) = (false, false, false);
        for place in &conn.over {
            let clock = &self.clocks[place.clock as usize];
            let there = &self.recordings[self.conns[place.conn as usize].recording].header;
            sampled |= sampled_by(there.sampling, there.salt, record);
            if matches!(clock.state, State::Unknown) {
                continue;
            }
            known = true;
            inside |= self.covered(clock, Role::Host, times.got, times.answered);
        }
        if !sampled {
            return self.count_target(cause::NOT_SAMPLED);
        }
        if !known {
            return self.count_target(cause::AMBIGUOUS_CLOCK);
        }
        self.count_target(match mark {
            Mark::Ambiguous => cause::AMBIGUOUS,
            _ if !inside => cause::HOST_NOT_RECORDING,
            Mark::Contradicts => cause::CONTRADICTS,
            Mark::Untouched => cause::NOT_IN_HOST,
        });
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
    fn expire(&mut self, lag: i64) {
        let tried: Vec<i64> = (0..self.domains.len())
            .map(|domain| {
                let done = self.hosts[domain].queue.is_empty()
                    && self.hosts[domain].ahead.is_empty()
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
                .is_some_and(|record| end(record).is_none_or(|over| over < due))
            {
                if let Some((record, mark)) = self.conns[number].store.pop_oldest() {
                    self.leave_target(&record, mark);
                }
            }
        }
    }

    /// Drops the oldest of what waits for a clock or a connection when memory
    /// is short.
    fn relieve(&mut self) {
        while self.held() > self.options.window {
            let oldest = |conn: &crate::names::Conn| {
                let record = match conn.role {
                    Role::Host => conn.pending.front(),
                    Role::Target => conn.store.oldest(),
                };
                record
                    .and_then(end)
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
                if let Some(record) = conn.pending.pop_front() {
                    let cause = self.drop_cause(&record);
                    self.count_host(cause);
                } else if let Some((record, _)) = conn.store.pop_oldest() {
                    let cause = self.drop_cause(&record);
                    self.count_target(cause);
                }
            }
        }
    }

    /// Cause of a record that is dropped while it waits.
    fn drop_cause(&self, record: &Record) -> &'static str {
        let conn = &self.conns[record.conn as usize];
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
        let over = end(record)
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
            () => cause::WINDOW,
        }
    }
}

/// Whether a recording of one in `n` has a command.
pub(crate) fn sampled_by(n: u32, salt: u32, record: &Record) -> bool {
    let key = sample::Key {
        slba: record.slba,
        nsid: record.nsid,
        cid: record.cid,
        length: record.length,
        opcode: record.opcode,
    };
    sample::sampled(sample::hash(&key, salt), n)
}
