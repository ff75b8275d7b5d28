//! An interval of theta, and how it widens with time.

/// Two clocks drift apart by no more, parts per million: 500 is what the
/// kernel lets NTP slew, the rest is the crystals'.
pub const MAX_PPM: i64 = 700;
/// Stands for no bound; far enough from the ends of i64 to add to.
pub(crate) const FAR: i64 = i64::MAX / 4;

/// An interval of theta, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Theta is at least this.
    pub lo: i64,
    /// Theta is at most this.
    pub hi: i64,
}

impl Span {
    /// Nothing is known.
    pub const ALL: Span = Span { lo: -FAR, hi: FAR };

    /// Whether any theta is left.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.lo > self.hi
    }

    /// What both allow.
    #[must_use]
    #[inline]
    pub fn and(self, other: Span) -> Span {
        Span {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
        }
    }

    /// What either allows, and all between.
    #[must_use]
    pub fn cover(self, other: Span) -> Span {
        Span {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
        }
    }

    /// The interval after `time` ns of drift at up to [`MAX_PPM`].
    #[must_use]
    #[inline]
    pub fn after(self, time: i64) -> Span {
        self.widen(slack(time))
    }

    #[inline]
    pub(crate) fn plus(self, by: i64) -> Span {
        Span {
            lo: self.lo.saturating_add(by),
            hi: self.hi.saturating_add(by),
        }
    }

    /// `by` is what drift makes in some time, and so far from the ends of i64
    /// as both sides are.
    #[inline]
    pub(crate) fn widen(self, by: i64) -> Span {
        Span {
            lo: (self.lo - by).max(-FAR),
            hi: (self.hi + by).min(FAR),
        }
    }

    /// Middle and half width; `None` while one side is open.
    #[inline]
    pub fn middle(self) -> Option<(i64, u64)> {
        (self.lo > -FAR && self.hi < FAR && !self.is_empty()).then(|| {
            let width = self.hi.abs_diff(self.lo);
            (self.lo + (width / 2) as i64, width.div_ceil(2))
        })
    }
}

/// How far theta moves in `time` ns at most, ns.
#[inline]
pub(crate) fn slack(time: i64) -> i64 {
    let time = time.unsigned_abs().min(FAR as u64);
    ((time >> 10) * MAX_PPM as u64 / 976) as i64 + 1
}
