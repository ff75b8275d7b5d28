//! Finds the difference of two clocks about which nothing is known.
//!
//! Two records with the same key are a candidate: if they are one command,
//! theta lies in the interval they leave ([`Limits`]). Under the true theta
//! nearly every host record finds its partner; under a false one only chance
//! repeats of keys do. So a stretch of host records votes, the intervals with
//! most votes are tried on all records around, and the winner must explain
//! nearly all, better than chance by far, and better than every other
//! explanation. Else there is no answer: a wrong clock joins wrong commands.

use crate::clock::Track;
use crate::field::Field;
use crate::limits::Limits;
use crate::span::Span;

/// Host records that vote together: the fewer, the less theta drifts meanwhile.
const STRETCH: usize = 256;
/// Stretches tried, spread over all records.
const STRETCHES: usize = 16;
/// Of a stretch, the records whose keys are rarest vote.
const VOTERS: usize = 64;
/// A key that occurs more often says nothing.
const MOST_REPEATS: u32 = 2048;
/// Intervals tried on all records.
const SEEDS: usize = 12;
/// Records on either side of the stretch that a seed is tried on.
const REACH: usize = 1024;
/// Fewest pairs that make a clock.
pub const FEWEST: usize = 3;
/// Evidence needed, nats: the search looks at up to e^17 thetas.
const EVIDENCE: f64 = 28.0;
/// Evidence against, for a host record without a partner, nats.
const LOST: f64 = 3.0;
/// The runner-up may have at most this share of the winner's evidence.
const RUNNER_UP: f64 = 0.6;

/// What the records say of the clock.
#[derive(Debug)]
pub enum Verdict {
    /// The interval of theta over time, and over how many pairs it was found.
    Found(Box<Track>, usize),
    /// Fewer pairs than could prove anything.
    TooFew(usize),
    /// More than one explanation, or a poor one.
    Ambiguous,
}

impl Field<'_> {
    /// Looks for theta.
    pub fn vote(&self) -> Verdict {
        let common = self.repeats.iter().filter(|repeats| **repeats > 0).count();
        if common < FEWEST {
            return Verdict::TooFew(common);
        }
        let stretches = self.hosts.len().div_ceil(STRETCH).min(STRETCHES);
        let mut winners: Vec<Trial> = Vec::new();
        let mut most = 0;
        for index in 0..stretches {
            let begin = if stretches == 1 {
                0
            } else {
                (self.hosts.len() - STRETCH) * index / (stretches - 1)
            };
            let end = (begin + STRETCH).min(self.hosts.len());
            let Some((best, rival)) = self.try_stretch(begin, end) else {
                continue;
            };
            most = most.max(best.pairs.len());
            if best.convinces(rival) {
                winners.push(best);
            }
        }
        let best = winners
            .iter()
            .max_by(|a, b| a.evidence.total_cmp(&b.evidence));
        match best {
            // Stretches that disagree leave no answer, unless one says far more.
            Some(best)
                if winners
                    .iter()
                    .filter(|other| !best.same_clock(other))
                    .all(|other| other.evidence <= RUNNER_UP * best.evidence) =>
            {
                let (track, pairs) = self.follow(best);
                Verdict::Found(Box::new(track), pairs)
            }
            None if most < FEWEST => Verdict::TooFew(most),
            _ => Verdict::Ambiguous,
        }
    }

    /// The best explanation of a stretch, and the evidence for the next best.
    fn try_stretch(&self, begin: usize, end: usize) -> Option<(Trial, f64)> {
        let mut best: Option<Trial> = None;
        let mut rival = f64::MIN;
        for seed in self.seeds(begin, end) {
            let trial = self.try_seed(begin, end, seed);
            match &mut best {
                // Seeds that lead to the same pairs are one explanation.
                Some(old) if old.agrees(&trial) => {
                    if trial.evidence > old.evidence {
                        *old = trial;
                    }
                }
                Some(old) if trial.evidence > old.evidence => {
                    rival = rival.max(old.evidence);
                    *old = trial;
                }
                Some(_) => rival = rival.max(trial.evidence),
                None => best = Some(trial),
            }
        }
        best.map(|best| (best, rival))
    }

    /// Intervals of theta, at the middle of the stretch, that most voters share.
    fn seeds(&self, begin: usize, end: usize) -> Vec<Span> {
        let middle = self.middle(begin, end);
        // The rarest keys, and of those the nearest to the middle.
        let half = (begin + end) / 2;
        let mut voters: Vec<usize> = (begin..end)
            .filter(|host| (1..=MOST_REPEATS).contains(&self.repeats[*host]))
            .collect();
        voters.sort_by_key(|host| (self.repeats[*host].ilog2(), host.abs_diff(half)));
        voters.truncate(VOTERS);
        let mut edges: Vec<(i64, i32)> = Vec::new();
        for host in voters {
            let host = &self.hosts[host];
            for (_, limits) in self.candidates(host, Span::ALL) {
                let Some(lower) = limits.lower else { continue };
                let span = Span {
                    lo: lower.ns,
                    hi: limits.upper.ns,
                }
                .after(
                    (host.times.sent - middle)
                        .abs()
                        .max((host.times.over - middle).abs()),
                );
                if lower.ns <= limits.upper.ns {
                    edges.push((span.lo, 1));
                    // One past the end, so that touching intervals overlap.
                    edges.push((span.hi + 1, -1));
                }
            }
        }
        edges.sort_unstable();
        let (mut votes, mut since, mut rising) = (0, 0, false);
        let mut peaks: Vec<(i32, Span)> = Vec::new();
        for (at, step) in edges {
            if step > 0 {
                (since, rising) = (at, true);
            } else if rising {
                peaks.push((
                    votes,
                    Span {
                        lo: since,
                        hi: at - 1,
                    },
                ));
                rising = false;
            }
            votes += step;
        }
        peaks.sort_by_key(|(votes, _)| -votes);
        peaks.truncate(SEEDS);
        peaks.into_iter().map(|(_, span)| span).collect()
    }

    fn middle(&self, begin: usize, end: usize) -> i64 {
        let (first, last) = (self.hosts[begin].times.over, self.hosts[end - 1].times.over);
        first + (last - first) / 2
    }

    /// Explains the records around a stretch by theta, following its drift.
    fn try_seed(&self, begin: usize, end: usize, seed: Span) -> Trial {
        let mid = begin + (end - begin) / 2;
        let mut trial = Trial {
            seed: Track::new(self.middle(begin, end), seed),
            mid,
            pairs: Vec::new(),
            tried: 0,
            repeats: 0,
            evidence: 0.0,
        };
        let forward = mid..(end + REACH).min(self.hosts.len());
        let backward = (begin.saturating_sub(REACH)..mid).rev();
        let mut walk = Walk::new(&trial.seed);
        for index in forward {
            self.explain(index, &mut walk, &mut trial);
        }
        let mut walk = Walk::new(&trial.seed);
        for index in backward {
            self.explain(index, &mut walk, &mut trial);
        }
        trial.pairs.sort_unstable();
        trial
    }

    fn explain(&self, index: usize, walk: &mut Walk, trial: &mut Trial) {
        let host = &self.hosts[index];
        let span = walk.at(host.times.over);
        // Only what both were recording counts.
        if host.times.sent.saturating_add(span.hi) < self.first
            || host.times.over.saturating_add(span.lo) > self.last
        {
            return;
        }
        let (only, found) = self.partners(index, walk);
        let repeats = self.repeats[index] as usize;
        let waited = (host.times.over - host.times.sent).max(1) as f64;
        let chance = repeats as f64 * waited / (self.last - self.first).max(1) as f64;
        trial.tried += 1;
        match only {
            None => trial.evidence -= LOST,
            Some((at, limits)) => {
                trial.repeats += repeats;
                trial.evidence += -chance.clamp(1e-6, 0.9).ln();
                if found == 1 && self.sole(at, walk) {
                    walk.add(&limits);
                }
                trial.pairs.push((index as u32, at));
            }
        }
    }

    /// A target that may be the partner of a host under the theta of a walk,
    /// and how many there are.
    fn partners(&self, host: usize, walk: &Walk) -> (Option<(u32, Limits)>, usize) {
        let host = &self.hosts[host];
        let span = walk.at(host.times.sent).cover(walk.at(host.times.over));
        let (mut one, mut found) = (None, 0);
        for (at, limits) in self.candidates(host, span) {
            if walk.allows(&limits) {
                found += 1;
                one = Some((at, limits));
            }
        }
        (one, found)
    }

    /// Whether no other host may be the partner of a target.
    fn sole(&self, target: u32, walk: &Walk) -> bool {
        self.claimants(target, |limits| walk.allows(limits), walk.span.lo) < 2
    }

    /// Collects the bounds of all records, outwards from the winning stretch.
    ///
    /// Twice: when both partners of two commands with the same key are lost,
    /// what is left of them may look like one, but only where theta is less
    /// well known than the target held the command. How well it can be known
    /// is learnt the first time.
    fn follow(&self, trial: &Trial) -> (Track, usize) {
        let mut narrowest = i64::MAX;
        let all = self.collect(trial, &mut narrowest, |_, _| true);
        let mut same = narrowest;
        let safe = self.collect(trial, &mut same, |walk, target| {
            walk.width().saturating_sub(narrowest) < self.held(target)
        });
        let mut limits = if safe.len() * 8 >= all.len() {
            safe
        } else {
            all
        };
        limits.sort_by_key(|limits| limits.upper.at);
        let begin = self.hosts.first().map_or(0, |host| host.times.sent);
        let mut track = Track::new(begin, Span::ALL);
        for limits in &limits {
            track.add(limits);
        }
        track.settle();
        (track, limits.len())
    }

    /// The bounds of all pairs that are the only ones, and that `may` be used.
    fn collect(
        &self,
        trial: &Trial,
        narrowest: &mut i64,
        may: impl Fn(&Walk, u32) -> bool,
    ) -> Vec<Limits> {
        let mut all = Vec::new();
        for forward in [false, true] {
            let mut walk = Walk::new(&trial.seed);
            let hosts: Box<dyn Iterator<Item = usize>> = if forward {
                Box::new(trial.mid..self.hosts.len())
            } else {
                Box::new((0..trial.mid).rev())
            };
            for host in hosts {
                if let (Some((target, limits)), 1) = self.partners(host, &walk) {
                    if self.sole(target, &walk) && may(&walk, target) {
                        walk.add(&limits);
                        all.push(limits);
                        *narrowest = walk.width().min(*narrowest).max(0);
                    }
                }
            }
        }
        all
    }
}

/// Theta on the way from a seed, in either direction of time.
struct Walk {
    now: i64,
    span: Span,
}

impl Walk {
    fn new(seed: &Track) -> Self {
        Walk {
            now: seed.now(),
            span: seed.span(seed.now()),
        }
    }

    fn width(&self) -> i64 {
        self.span.hi.saturating_sub(self.span.lo)
    }

    fn at(&self, at: i64) -> Span {
        self.span.after(at - self.now)
    }

    fn allows(&self, limits: &Limits) -> bool {
        limits
            .uppers()
            .all(|bound| bound.ns >= self.at(bound.at).lo)
            && limits
                .lowers()
                .all(|bound| bound.ns <= self.at(bound.at).hi)
            && limits.lower.is_none_or(|lower| {
                lower.ns
                    <= limits
                        .upper
                        .ns
                        .saturating_add(Span { lo: 0, hi: 0 }.after(lower.at - limits.upper.at).hi)
            })
    }

    fn add(&mut self, limits: &Limits) {
        let now = limits.lower.unwrap_or(limits.upper).at;
        let mut span = self.at(now);
        for bound in limits.uppers() {
            let there = Span {
                lo: bound.ns,
                hi: bound.ns,
            }
            .after(now - bound.at);
            span.hi = span.hi.min(there.hi);
        }
        for bound in limits.lowers() {
            let there = Span {
                lo: bound.ns,
                hi: bound.ns,
            }
            .after(now - bound.at);
            span.lo = span.lo.max(there.lo);
        }
        (self.now, self.span) = (now, span);
    }
}

/// One explanation.
struct Trial {
    seed: Track,
    mid: usize,
    /// Host and target, by number.
    pairs: Vec<(u32, u32)>,
    tried: usize,
    /// Sum of how often the keys of the pairs occur.
    repeats: usize,
    evidence: f64,
}

impl Trial {
    fn agrees(&self, other: &Trial) -> bool {
        let shared = other
            .pairs
            .iter()
            .filter(|pair| self.pairs.binary_search(pair).is_ok())
            .count();
        shared * 2 > other.pairs.len().min(self.pairs.len())
    }

    /// Whether drift can carry one theta to the other.
    fn same_clock(&self, other: &Trial) -> bool {
        let (a, b) = (&self.seed, &other.seed);
        !a.span(b.now()).and(b.span(b.now())).is_empty()
    }

    fn convinces(&self, rival: f64) -> bool {
        let pairs = self.pairs.len();
        // Keys that occur once cannot fit by chance, so losses may be many.
        let rare = self.repeats <= pairs + pairs / 2;
        let share = if rare { 0.2 } else { 0.7 };
        pairs >= FEWEST
            && self.evidence >= EVIDENCE
            && pairs as f64 >= share * self.tried as f64
            && rival <= RUNNER_UP * self.evidence
    }
}
