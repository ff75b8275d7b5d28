//! Finds the target record of each host record.

use crate::joiner::{HostSide, Joiner, Pair, Sink, State};
use crate::limits::{HostTimes, Limits, TargetTimes, start};
use crate::names::{Over, Passed};
use crate::shelf::Held;
use crate::store::{Mark, Ticket, key_hash};
use ntp_record::header::Role;
use ntp_record::sample::{self, Key};
use std::collections::VecDeque;
use std::io;

/// The target records that may be the partner of one host record.
pub(crate) struct Claim {
    /// The host record's connection, by number.
    conn: u32,
    found: Found,
    /// The first that was found, and a few more: many are as bad as two.
    ticket: Option<(Over, Ticket)>,
    more: Vec<(Over, Ticket)>,
    /// The host record's first point, ns; 0 for none.
    start: i64,
    times: Option<HostTimes>,
    /// Decided when a later one was over by then, ns; [`AT_ONCE`] for one that
    /// need not wait.
    due: i64,
}

/// Tickets beside the first.
const MORE: usize = 2;
const AT_ONCE: i64 = i64::MIN;

impl Claim {
    /// Of a record for which there can be no partner.
    fn none(conn: u32, start: i64) -> Self {
        Claim {
            conn,
            found: Found::None,
            ticket: None,
            more: Vec::new(),
            start,
            times: None,
            due: AT_ONCE,
        }
    }

    #[inline]
    fn tickets(&self) -> impl Iterator<Item = &(Over, Ticket)> {
        self.ticket.iter().chain(&self.more)
    }
}

/// Target records that fit a host record.
struct Fits {
    /// Whether one was looked for.
    looked: bool,
    count: usize,
    /// See [`Claim`].
    ticket: Option<(Over, Ticket)>,
    more: Vec<(Over, Ticket)>,
}

impl Fits {
    #[inline]
    fn add(&mut self, place: Over, ticket: Ticket) {
        match self.count {
            0 => self.ticket = Some((place, ticket)),
            1..=MORE => self.more.push((place, ticket)),
            _ => {}
        }
        self.count += 1;
    }

    fn found(&self) -> Found {
        match self.count {
            0 if !self.looked => Found::Nowhere,
            0 => Found::None,
            1 => Found::One,
            _ => Found::Many,
        }
    }
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
pub(crate) const DEEPEST: usize = 4096;
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

impl HostSide {
    /// Whether the oldest claim can be decided.
    #[inline]
    fn ripe(&self) -> bool {
        let (Some(first), Some(last)) = (self.ahead.front(), self.ahead.back()) else {
            return false;
        };
        let over = last.times.map_or(AT_ONCE, |times| times.over);
        over >= first.due || self.ahead.len() >= AHEAD_RECORDS
    }
}

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
            while let Some(held) = self.conns[conn].pending.pop_front() {
                self.leave_host(&held);
            }
            while let Some((held, mark)) = self.conns[conn].store.pop_oldest() {
                self.leave_target(&held, mark);
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
            .map(|recording| recording.pace.seen)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Brings the intervals of the past up to date when records of the past
    /// are about to be looked for.
    fn look_back(&mut self, domain: usize, lag: i64) {
        let side = &self.hosts[domain];
        let past = |held: Option<&Held>, lag: i64| {
            let due = side.tried.saturating_sub(lag);
            held.and_then(|held| held.end())
                .is_some_and(|over| over < due)
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
        let mut side = std::mem::take(&mut self.hosts[domain]);
        loop {
            if !side.ripe() {
                match side.queue.get(side.ahead.len()) {
                    Some(held) if self.within(held, &reach) => {
                        side.ahead.push_back(self.claim(held));
                        continue;
                    }
                    // At the end nothing more can come.
                    None if ended => {}
                    _ => break,
                }
            }
            let Some(held) = side.queue.pop_front() else {
                break;
            };
            if let Some(over) = held.end() {
                side.tried = side.tried.max(over);
            }
            let decision = self.decide(&held, &side.ahead);
            side.ahead.pop_front();
            match decision {
                Decision::Matched => {}
                Decision::Left => side.late.push_back(held),
                Decision::Nowhere => self.conns[held.conn as usize].pending.push_back(held),
            }
        }
        self.hosts[domain] = side;
    }

    /// Whether the targets a host record may have gone to were read beyond it.
    fn within(&self, held: &Held, reach: &[i64]) -> bool {
        let Some(over) = held.end() else {
            return true;
        };
        (self.conns[held.conn as usize].over.iter()).all(|place| {
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
        let over = |held: &Held| held.end().unwrap_or(i64::MIN);
        if late.front().is_none_or(|held| over(held) > due) {
            return;
        }
        let count = late.iter().take_while(|held| over(held) <= due).count();
        let beyond = due.saturating_add(AHEAD_LATE);
        let tried: Vec<Held> = (late.iter().copied())
            .take_while(|held| over(held) <= beyond)
            .collect();
        self.hosts[domain].late.drain(..count);
        let mut claims: VecDeque<Claim> = tried.iter().map(|held| self.claim(held)).collect();
        for held in &tried[..count] {
            let decision = self.decide(held, &claims);
            claims.pop_front();
            if decision != Decision::Matched {
                self.leave_host(held);
            }
        }
        for claim in &claims {
            self.release(claim);
        }
    }

    /// Finds what may be the partner of a host record.
    fn claim(&mut self, held: &Held) -> Claim {
        let record = self.shelf.get(held);
        let (key, start) = (record.key(), start(record).unwrap_or(0));
        let Some(times) = HostTimes::of(record) else {
            return Claim::none(held.conn, start);
        };
        let conn = &mut self.conns[held.conn as usize];
        if !conn.generations {
            conn.turns.note(key.cid, times.sent, times.over);
        }
        let fits = self.fits(held.conn, &key, &times);
        let found = fits.found();
        let wait = (2 * (times.over - times.sent)).clamp(*AHEAD.start(), *AHEAD.end());
        for (place, ticket) in fits.ticket.iter().chain(&fits.more) {
            self.conns[place.conn as usize].store.claim(*ticket);
        }
        Claim {
            conn: held.conn,
            found,
            ticket: fits.ticket,
            more: fits.more,
            start,
            times: Some(times),
            due: match found {
                Found::Nowhere => AT_ONCE,
                _ => times.over.saturating_add(wait + 1),
            },
        }
    }

    /// Target records with the key of a host record that its clock allows.
    #[inline]
    fn fits(&self, host: u32, key: &Key, times: &HostTimes) -> Fits {
        let mut fits = Fits {
            looked: false,
            count: 0,
            ticket: None,
            more: Vec::new(),
        };
        for place in &self.conns[host as usize].over {
            let clock = &self.clocks[place.clock as usize];
            if matches!(clock.state, State::Unknown) || !self.free(host, place.conn) {
                continue;
            }
            fits.looked = true;
            let store = &self.conns[place.conn as usize].store;
            let (from, to) = clock.window(times);
            for (slot, target) in store.candidates(key, from, to).take(DEEPEST) {
                if clock.allows(&Limits::of(times, target)) {
                    fits.add(*place, store.ticket(slot));
                }
            }
        }
        fits
    }

    /// Takes the claims back; tells how many there were on the most claimed.
    pub(crate) fn release(&mut self, claim: &Claim) -> u32 {
        let mut most = 0;
        for (place, ticket) in claim.tickets() {
            most = most.max(self.conns[place.conn as usize].store.release(*ticket));
        }
        most
    }

    /// Makes a pair of a host record, whose claim is the first of `ahead`, and
    /// its only candidate, if it is the only claim on it and fits what is
    /// known of the clock by now.
    fn decide(&mut self, held: &Held, ahead: &VecDeque<Claim>) -> Decision {
        let Some(claim) = ahead.front() else {
            return Decision::Left;
        };
        let claims = self.release(claim);
        let (Some(times), Some((place, ticket))) = (claim.times, &claim.ticket) else {
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
        let Some((slot, target)) = store.find(*ticket) else {
            return Decision::Left;
        };
        let target = *target;
        let limits = Limits::of(&times, &target);
        if !self.clocks[place.clock as usize].allows(&limits)
            || !self.free(held.conn, place.conn)
            || !(self.conns[held.conn as usize].generations
                || self.in_line(held, ahead, &limits, &target))
        {
            self.mark(claim);
            return Decision::Left;
        }
        self.note_partner(held.conn, place.conn);
        if !self.conns[held.conn as usize].generations {
            self.note_passed(held, &times, &target);
        }
        let clock = &mut self.clocks[place.clock as usize];
        if let State::Known(track) = &mut clock.state {
            track.add(&limits);
        }
        let (target, _) = self.conns[place.conn as usize].store.remove(slot);
        clock.waiting.push(Pair {
            host: held.kept,
            target: target.kept,
            start: claim.start,
            end: held.end().unwrap_or(i64::MIN),
            sent: times.sent,
            over: times.over,
        });
        self.totals.matched += 1;
        Decision::Matched
    }

    /// Whether a pair keeps the order of its connection, when that matters:
    /// never when command ids carry a generation.
    ///
    /// Of one command id only one command is under way, so the commands
    /// before and after it with the same key do not fit, unless the interval
    /// is wider than the target held the command and the id rested. Then, and if ids come back
    /// at once, the pair must fit a steady drift, or if that does not decide
    /// it either, the pairs sent just before and just after must be in order
    /// with it; and if there are none, its key must not have been used of late.
    fn in_line(
        &self,
        held: &Held,
        ahead: &VecDeque<Claim>,
        limits: &Limits,
        target: &TargetTimes,
    ) -> bool {
        let Some(claim) = ahead.front() else {
            return false;
        };
        let (Some(times), Some((place, _))) = (claim.times, &claim.ticket) else {
            return false;
        };
        let conn = &self.conns[held.conn as usize];
        let State::Known(track) = &self.clocks[place.clock as usize].state else {
            return true;
        };
        let busy = target.answered.saturating_sub(target.got);
        let apart = busy.saturating_add(conn.turns.least());
        if track.excess(track.span(times.over)) < apart {
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
        let others = (ahead.iter().skip(1))
            .take(LOOK_AHEAD)
            .filter(|other| other.conn == claim.conn && other.found == Found::One);
        for other in others.take(NEIGHBOURS) {
            let (Some(times), Some((place, ticket))) = (other.times, &other.ticket) else {
                continue;
            };
            let target = self.conns[place.conn as usize].store.find(*ticket);
            if let Some((_, target)) = target {
                if !keeps(times.sent, target.order) {
                    return false;
                }
            }
        }
        let key = key_hash(&self.shelf.get(held).key());
        before.min(after) >= ENOUGH_NEIGHBOURS || conn.recent.iter().all(|passed| passed.key != key)
    }

    /// Remembers a pair for [`Joiner::in_line`].
    fn note_passed(&mut self, held: &Held, times: &HostTimes, target: &TargetTimes) {
        let conn = &mut self.conns[held.conn as usize];
        if conn.recent.len() == NEIGHBOURS {
            conn.recent.pop_front();
        }
        conn.recent.push_back(Passed {
            sent: times.sent,
            order: target.order,
            key: key_hash(&self.shelf.get(held).key()),
        });
    }

    /// Marks the target records that were claimed in vain.
    fn mark(&mut self, claim: &Claim) {
        for (place, ticket) in claim.tickets() {
            let store = &mut self.conns[place.conn as usize].store;
            if let Some((slot, _)) = store.find(*ticket) {
                store.mark(slot, Mark::Ambiguous);
            }
        }
    }

    /// Whether two connections may be the same: neither is known to be
    /// another one of the same recording (an earlier connect of the same addresses).
    /// Those of several recordings may have been connected again in between.
    fn free(&self, host: u32, target: u32) -> bool {
        let (h, t) = (&self.conns[host as usize], &self.conns[target as usize]);
        if h.several || t.several {
            return true;
        }
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
            let is = (recording, other);
            if conn.partner.last() != Some(&is) && !conn.partner.contains(&is) {
                conn.partner.push(is);
            }
        }
    }
}

/// Whether a recording of one in `n` has a command.
pub(crate) fn sampled_by(n: u32, salt: u32, key: &Key) -> bool {
    sample::sampled(sample::hash(key, salt), n)
}
