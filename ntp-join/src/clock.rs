//! The difference of two clocks over time, as an interval that holds it.
//!
//! Every matched pair bounds theta (target's clock minus host's) at two
//! moments ([`Limits`]). Between moments theta moves, but not faster than the
//! clocks can drift apart: a bound known at one moment is a bound at every
//! other, widened by rate times distance. The interval at a moment is the
//! narrowest that all bounds around it leave.
//!
//! Two rates are used. To match, [`MAX_PPM`] around no drift at all: an
//! assumption about hardware, never about data. To print an offset, the drift
//! estimated from the last minute, give or take [`WANDER_PPM`]: tighter, and
//! given up for the first wherever the bounds contradict it.

use crate::hull::slope_of_lower_hull;
use crate::limits::{Bound, Limits};
use crate::span::{FAR, MAX_PPM, Span, slack};
use std::collections::VecDeque;

/// The drift changes by no more within the time kept, ppm.
pub const WANDER_PPM: f64 = 20.0;
/// Time between knots at first, ns: 0.7 us of drift.
const FIRST_SPACING: i64 = 1_000_000;
/// Time between knots after that is doubled, at most, ns.
const SPACING: i64 = 10_000_000;
/// Knots kept: a minute and more of dense traffic.
const KNOTS: usize = 8192;
/// Drift is estimated from at least this many knots over this time, ns.
const FIT_KNOTS: usize = 16;
const FIT_TIME: i64 = 250_000_000;

/// Tightest bounds of a short time.
#[derive(Clone, Copy, Debug)]
struct Knot {
    start: i64,
    upper: Option<Bound>,
    lower: Option<Bound>,
}

impl Knot {
    fn lower_upper(&mut self, bound: Bound) {
        if self.upper.is_none_or(|old| bound.ns < old.ns) {
            self.upper = Some(bound);
        }
    }

    fn raise_lower(&mut self, bound: Bound) {
        if self.lower.is_none_or(|old| bound.ns > old.ns) {
            self.lower = Some(bound);
        }
    }
}

/// What is known of one pair of clocks.
#[derive(Clone, Debug)]
pub struct Track {
    /// By start.
    knots: VecDeque<Knot>,
    spacing: i64,
    /// Newest moment, and all bounds brought there.
    now: i64,
    run: Span,
    /// The same with the estimated drift taken out.
    sharp: Span,
    /// Intervals at the knots' starts at [`MAX_PPM`], as of the last [`Track::settle`].
    coarse: Vec<(i64, Span)>,
    /// The same with the drift taken out.
    fine: Vec<(i64, Span)>,
    drift: Drift,
    stale: bool,
    /// Narrowest interval of late, ns: the two least delays of the network.
    narrowest: i64,
}

/// Estimated drift, in ns per 2^40 ns: products are exact and quick.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drift {
    /// Change of theta.
    rate: i64,
    /// Half width of the estimate; unsigned, so that one multiplication is enough.
    error: u64,
    /// Moment around which it turns, ns.
    origin: i64,
}

/// A rate in the unit of [`Drift`].
fn scaled(rate: f64) -> i64 {
    (rate * (1i64 << 40) as f64) as i64
}

impl Track {
    /// Begins with an interval at a moment of the host's clock.
    pub fn new(now: i64, run: Span) -> Self {
        Track {
            knots: VecDeque::new(),
            spacing: FIRST_SPACING,
            now,
            run,
            sharp: run,
            coarse: Vec::new(),
            fine: Vec::new(),
            drift: Drift {
                rate: 0,
                error: scaled(MAX_PPM as f64 / 1e6) as u64,
                origin: now,
            },
            stale: false,
            narrowest: FAR,
        }
    }

    /// Newest moment with a bound, ns of the host's clock.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// The interval at a moment, for matching.
    #[inline]
    pub fn span(&self, at: i64) -> Span {
        if self.is_late(at) {
            return self.run.after(at - self.now);
        }
        self.past(at)
    }

    /// Whether a moment is so late that the bounds brought to the newest say all.
    #[inline]
    fn is_late(&self, at: i64) -> bool {
        at > self.now - self.spacing || self.coarse.is_empty()
    }

    /// Whether theta may be as little as the upper bound says. The interval is
    /// only wider elsewhere than at the newest moment: what is within it there
    /// is within it.
    #[inline]
    fn allows_upper(&self, bound: Bound) -> bool {
        (bound.ns >= self.run.lo && self.is_late(bound.at)) || bound.ns >= self.span(bound.at).lo
    }

    /// The same for a lower bound.
    #[inline]
    fn allows_lower(&self, bound: Bound) -> bool {
        (bound.ns <= self.run.hi && self.is_late(bound.at)) || bound.ns <= self.span(bound.at).hi
    }

    /// Whether a pair is possible: in order under some theta of the interval.
    #[inline]
    pub fn allows(&self, limits: &Limits) -> bool {
        let upper = limits.upper;
        self.allows_upper(upper)
            && (limits.lower).is_none_or(|lower| {
                self.allows_lower(lower)
                    && (lower.ns <= upper.ns
                        || lower.ns <= upper.ns.saturating_add(slack(lower.at - upper.at)))
            })
            && (limits.r2t)
                .is_none_or(|(upper, lower)| self.allows_upper(upper) && self.allows_lower(lower))
    }

    /// Takes in the bounds of a pair that [`Track::allows`].
    pub fn add(&mut self, limits: &Limits) {
        let Limits { upper, lower, r2t } = *limits;
        let newest = upper.at.max(lower.map_or(i64::MIN, |lower| lower.at));
        let newest = r2t.map_or(newest, |(upper, lower)| newest.max(upper.at).max(lower.at));
        if newest > self.now {
            self.run = self.run.after(newest - self.now);
            self.sharp = self.sharp.widen(self.drift.slack(newest - self.now));
            self.now = newest;
        }
        self.add_upper(upper);
        if let Some(lower) = lower {
            self.add_lower(lower);
        }
        if let Some((upper, lower)) = r2t {
            self.add_upper(upper);
            self.add_lower(lower);
        }
        let width = self.sharp.hi.saturating_sub(self.sharp.lo);
        self.narrowest = self.narrowest.min(width).max(0);
        self.stale = true;
    }

    #[inline]
    fn add_upper(&mut self, bound: Bound) {
        let ns = self.drift.level(bound);
        // Brought here it is wider still: one that is so already tells nothing new.
        if ns < self.sharp.hi {
            let ns = ns.saturating_add(self.drift.slack(self.now - bound.at));
            self.sharp.hi = self.sharp.hi.min(ns);
        }
        if bound.ns < self.run.hi {
            let ns = bound.ns.saturating_add(slack(self.now - bound.at));
            self.run.hi = self.run.hi.min(ns);
        }
        self.note(bound.at, |knot| knot.lower_upper(bound));
    }

    #[inline]
    fn add_lower(&mut self, bound: Bound) {
        let ns = self.drift.level(bound);
        if ns > self.sharp.lo {
            let ns = ns.saturating_sub(self.drift.slack(self.now - bound.at));
            self.sharp.lo = self.sharp.lo.max(ns);
        }
        if bound.ns > self.run.lo {
            let ns = bound.ns.saturating_sub(slack(self.now - bound.at));
            self.run.lo = self.run.lo.max(ns);
        }
        self.note(bound.at, |knot| knot.raise_lower(bound));
    }

    /// The interval at a moment if the drift stays as it was: narrower than
    /// [`Track::span`], but true only of clocks that nobody slews meanwhile.
    pub fn sharp(&self, at: i64) -> Span {
        let span = self.span(at);
        if at <= self.now - self.spacing && !self.fine.is_empty() {
            return span;
        }
        let by = self.drift.slack(at - self.now);
        let both = span.and(self.sharp.widen(by).plus(self.drift.moved(at)));
        if both.is_empty() { span } else { both }
    }

    /// How much wider than it could be an interval is, ns.
    ///
    /// On one connection, the command before or after with the same id fits a
    /// record only when the target held it for less than this.
    pub fn excess(&self, span: Span) -> i64 {
        let width = span.hi.saturating_sub(span.lo);
        width.saturating_sub(self.narrowest)
    }

    /// Whether a pair is possible under [`Track::sharp`].
    pub fn allows_sharply(&self, limits: &Limits) -> bool {
        limits
            .uppers()
            .all(|bound| bound.ns >= self.sharp(bound.at).lo)
            && limits
                .lowers()
                .all(|bound| bound.ns <= self.sharp(bound.at).hi)
    }

    /// Makes room for another knot: wider spaced ones, or without the oldest.
    fn thin(&mut self) {
        if self.spacing * 2 > SPACING {
            self.knots.pop_front();
            return;
        }
        self.spacing *= 2;
        let mut kept: VecDeque<Knot> = VecDeque::with_capacity(self.knots.len());
        for knot in self.knots.drain(..) {
            match kept.back_mut() {
                Some(last) if knot.start < last.start + self.spacing => {
                    if let Some(bound) = knot.upper {
                        last.lower_upper(bound);
                    }
                    if let Some(bound) = knot.lower {
                        last.raise_lower(bound);
                    }
                }
                _ => kept.push_back(knot),
            }
        }
        self.knots = kept;
        if self.knots.len() == KNOTS {
            self.knots.pop_front();
        }
    }

    /// Notes a bound at the knot for its moment; nowhere when that is older
    /// than all that is kept. Nearly always it is the newest.
    #[inline]
    fn note(&mut self, at: i64, note: impl FnOnce(&mut Knot)) {
        match self.knots.back_mut() {
            Some(back) if at >= back.start && at < back.start + self.spacing => note(back),
            _ => {
                if let Some(knot) = self.other_knot(at) {
                    note(knot);
                }
            }
        }
    }

    #[inline(never)]
    fn other_knot(&mut self, at: i64) -> Option<&mut Knot> {
        let fresh = Knot {
            start: at,
            upper: None,
            lower: None,
        };
        let index = match self.knots.back() {
            None => {
                self.knots.push_back(fresh);
                0
            }
            Some(back) if at >= back.start + self.spacing => {
                if self.knots.len() == KNOTS {
                    self.thin();
                }
                self.knots.push_back(fresh);
                self.knots.len() - 1
            }
            Some(back) if at >= back.start => self.knots.len() - 1,
            Some(_) => {
                let next = self.knots.partition_point(|knot| knot.start <= at);
                let home = next.checked_sub(1);
                match home.filter(|home| at < self.knots[*home].start + self.spacing) {
                    Some(home) => home,
                    None if self.knots.len() == KNOTS => home?,
                    None => {
                        self.knots.insert(next, fresh);
                        next
                    }
                }
            }
        };
        self.knots.get_mut(index)
    }

    /// Estimates the drift, and makes [`Track::offset`] and, at past moments,
    /// [`Track::span`] see the bounds added since the last time.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut coarse = std::mem::take(&mut self.coarse);
        self.cones(&mut coarse, |bound, at| (bound.ns, slack(at - bound.at)));
        self.coarse = coarse;
        let mut fine = std::mem::take(&mut self.fine);
        // A drift that changed by more than assumed empties the interval
        // somewhere: then nothing is assumed of it.
        for drift in [self.fit(), self.cautious()] {
            self.drift = drift;
            self.cones(&mut fine, |bound, at| {
                (drift.level(bound), drift.slack(at - bound.at))
            });
            if !fine.iter().any(|(_, span)| span.is_empty()) {
                break;
            }
        }
        self.fine = fine;
        self.sharp = (self.fine.last()).map_or(Span::ALL, |(at, span)| {
            span.widen(self.drift.slack(self.now - at))
        });
        let widths = self
            .fine
            .iter()
            .map(|(_, span)| span.hi.saturating_sub(span.lo));
        if let Some(narrowest) = widths.filter(|width| *width >= 0).min() {
            self.narrowest = narrowest;
        }
    }

    /// The narrowest interval at each knot: bounds from before and from after
    /// it. `level` gives a bound's value and its slack at a moment.
    fn cones(&self, out: &mut Vec<(i64, Span)>, level: impl Fn(Bound, i64) -> (i64, i64)) {
        out.clear();
        let own = |knot: &Knot| Span {
            lo: knot.lower.map_or(-FAR, |bound| {
                let (ns, slack) = level(bound, knot.start);
                ns - slack
            }),
            hi: knot.upper.map_or(FAR, |bound| {
                let (ns, slack) = level(bound, knot.start);
                ns + slack
            }),
        };
        let step = |span: Span, from: i64, to: i64| {
            let bound = Bound { at: from, ns: 0 };
            span.widen(level(bound, to).1)
        };
        let mut run: Option<(i64, Span)> = None;
        for knot in &self.knots {
            let before = run.map_or(Span::ALL, |(at, span)| step(span, at, knot.start));
            let span = before.and(own(knot));
            out.push((knot.start, span));
            run = Some((knot.start, span));
        }
        let mut run: Option<(i64, Span)> = None;
        for (at, span) in out.iter_mut().rev() {
            if let Some((from, after)) = run {
                *span = span.and(step(after, from, *at));
            }
            run = Some((*at, *span));
        }
    }

    /// No drift, give or take all that is possible.
    fn cautious(&self) -> Drift {
        Drift {
            rate: 0,
            error: scaled(MAX_PPM as f64 / 1e6) as u64,
            origin: self.now,
        }
    }

    fn fit(&self) -> Drift {
        let cautious = self.cautious();
        let (Some(first), Some(last)) = (self.knots.front(), self.knots.back()) else {
            return cautious;
        };
        if self.knots.len() < FIT_KNOTS || last.start - first.start < FIT_TIME {
            return cautious;
        }
        let base = first.start;
        let level = self
            .knots
            .iter()
            .find_map(|knot| knot.upper)
            .map_or(0, |bound| bound.ns);
        let upper = slope_of_lower_hull(
            (self.knots.iter().filter_map(|knot| knot.upper))
                .map(|bound| (bound.at - base, bound.ns - level)),
        );
        let lower = slope_of_lower_hull(
            (self.knots.iter().filter_map(|knot| knot.lower))
                .map(|bound| (bound.at - base, level - bound.ns)),
        );
        let (Some(upper), Some(lower)) = (upper, lower.map(|slope| -slope)) else {
            return cautious;
        };
        let rate = f64::midpoint(upper, lower);
        let error = WANDER_PPM / 1e6 + (upper - lower).abs();
        let drift = Drift {
            rate: scaled(rate),
            error: scaled(error) as u64 + 1,
            origin: self.now,
        };
        // An estimate no better than the assumption is no estimate.
        if rate.abs() + error > MAX_PPM as f64 / 1e6 {
            cautious
        } else {
            drift
        }
    }

    /// The interval that holds theta from one moment of the host's clock to
    /// another, as of the last [`Track::settle`]. `gap` is that of the last
    /// moment asked for: mostly this one's too.
    pub fn offset(&self, from: i64, to: i64, gap: &mut Gap) -> Span {
        if !gap.holds(to) {
            *gap = self.gap(to);
        }
        let span = self.between(gap, to);
        if to - from > self.spacing {
            return span.cover(self.past(from));
        }
        // So close that looking twice gains nothing.
        let moved = self.drift.moved(to) - self.drift.moved(from);
        span.widen(moved.abs() + self.drift.slack(to - from))
    }

    /// The interval at a moment among the knots.
    #[cold]
    fn past(&self, at: i64) -> Span {
        self.between(&self.gap(at), at)
    }

    /// The knots on either side of a moment.
    fn gap(&self, at: i64) -> Gap {
        // Both lists have the knots' starts.
        let next = self.fine.partition_point(|(start, _)| *start <= at);
        let side = |place: usize| {
            let (start, fine) = *self.fine.get(place)?;
            let (_, coarse) = *self.coarse.get(place)?;
            Some(Side {
                start,
                coarse,
                fine,
            })
        };
        let before = next.checked_sub(1).and_then(side);
        let after = side(next);
        Gap {
            from: before.map_or(i64::MIN, |side| side.start),
            to: after.map_or(i64::MAX, |side| side.start),
            before: before.unwrap_or(Side::OPEN),
            after: after.unwrap_or(Side::OPEN),
        }
    }

    /// The interval at a moment in a gap.
    #[inline]
    fn between(&self, gap: &Gap, at: i64) -> Span {
        let coarse = |side: &Side| side.coarse.after(at - side.start);
        let fine = |side: &Side| side.fine.widen(self.drift.slack(at - side.start));
        let coarse = coarse(&gap.before).and(coarse(&gap.after));
        let fine = fine(&gap.before).and(fine(&gap.after));
        let both = coarse.and(fine.plus(self.drift.moved(at)));
        if both.is_empty() { coarse } else { both }
    }

    /// Estimated drift, ppm of the host's clock; `None` while too little is known.
    pub fn drift_ppm(&self) -> Option<f64> {
        (self.drift.error < scaled(MAX_PPM as f64 / 1e6) as u64)
            .then_some(self.drift.rate as f64 / (1i64 << 40) as f64 * 1e6)
    }
}

impl Drift {
    /// A bound with the drift taken out, ns.
    #[inline]
    fn level(&self, bound: Bound) -> i64 {
        bound.ns.saturating_sub(self.moved(bound.at))
    }

    /// Change of theta since the origin, ns.
    #[inline]
    fn moved(&self, at: i64) -> i64 {
        ((i128::from(self.rate) * i128::from(at - self.origin)) >> 40) as i64
    }

    /// How far theta may be from that after `time` ns, ns.
    #[inline]
    fn slack(&self, time: i64) -> i64 {
        // One for rounding, here and in `moved`.
        ((u128::from(self.error) * u128::from(time.unsigned_abs())) >> 40) as i64 + 2
    }
}

/// What is known of the time between two knots; made by [`Track::offset`].
#[derive(Clone, Debug)]
pub struct Gap {
    /// The moments of the knots.
    from: i64,
    to: i64,
    before: Side,
    after: Side,
}

/// The intervals at a knot.
#[derive(Clone, Copy, Debug)]
struct Side {
    start: i64,
    coarse: Span,
    fine: Span,
}

impl Side {
    /// Where there is no knot nothing is known, and that at every moment.
    const OPEN: Side = Side {
        start: 0,
        coarse: Span::ALL,
        fine: Span::ALL,
    };
}

impl Default for Gap {
    /// Holds no moment.
    fn default() -> Self {
        Gap {
            from: i64::MAX,
            to: i64::MIN,
            before: Side::OPEN,
            after: Side::OPEN,
        }
    }
}

impl Gap {
    #[inline]
    fn holds(&self, at: i64) -> bool {
        self.from <= at && at < self.to
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
