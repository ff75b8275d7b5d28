//! What a host record and a target record of the same command say about the
//! difference of the two clocks.
//!
//! Nothing arrives before it was sent. With theta the target's clock minus the
//! host's, each message from host to target bounds theta from above and each
//! message back bounds it from below. Where a point is absent the nearest one
//! on its safe side stands in: the bound stays true, only looser.

use ntp_record::point::{Point, host, target};
use ntp_record::record::{Flags, Record};

/// Latest moment known to lie before the capsule left the host.
const SENT: &[Point] = &[host::SEND_BEGIN, host::DRIVER_START, host::BLOCK_START];
/// Earliest moment known to lie after the response reached the host.
const HEARD: &[Point] = &[
    host::RESP_ARRIVED,
    host::RESP_READ,
    host::RESP_LAST,
    host::COMPLETED,
    host::COMPLETE_RQ,
    host::BLOCK_DONE,
];
/// Earliest moment known to lie after the capsule reached the target. Not
/// PDU_READ: a driver may begin to read before there is anything to read.
const GOT: &[Point] = &[
    target::ARRIVED,
    target::RECEIVED,
    target::EXECUTE,
    target::BIO_SUBMIT,
    target::DRIVE_ISSUE,
    target::DRIVE_DONE,
    target::BIO_DONE,
    target::RESP_QUEUED,
];
/// Latest moment known to lie before the response left the target.
const ANSWERED: &[Point] = &[
    target::SEND_BEGIN,
    target::RESP_QUEUED,
    target::BIO_DONE,
    target::DRIVE_DONE,
    target::DRIVE_ISSUE,
    target::BIO_SUBMIT,
    target::EXECUTE,
    target::RECEIVED,
    target::ARRIVED,
];
/// Moments in the order in which the target took capsules off a connection.
const ORDER: &[Point] = &[target::RECEIVED, target::ARRIVED];
/// The same for the first R2T and for the first data it asked for.
const R2T_HEARD: &[Point] = &[host::R2T_ARRIVED, host::R2T_READ];
const R2T_SENT: &[Point] = &[target::R2T_SEND, target::R2T_QUEUED];
const DATA_SENT: &[Point] = &[host::DATA_SEND_BEGIN];
const DATA_GOT: &[Point] = &[target::DATA_ARRIVED, target::DATA_READ];

/// A time that can be reckoned with: up to 36 years since boot, so that sums
/// of a few do not overflow. What is later is no time at all.
#[inline]
pub(crate) fn moment(ns: u64) -> Option<i64> {
    i64::try_from(ns).ok().filter(|ns| *ns < 1 << 60)
}

fn first(record: &Record, points: &[Point]) -> Option<i64> {
    points
        .iter()
        .find_map(|point| record.time(*point))
        .and_then(moment)
}

/// Time of the last point in the order of the way, ns of the recorder's
/// clock; `None` for a record without any.
#[inline]
pub fn end(record: &Record) -> Option<i64> {
    let last = record.present.checked_ilog2()?;
    record.at.get(last as usize).and_then(|ns| moment(*ns))
}

/// Time of the first point in the order of the way, ns.
#[inline]
pub fn start(record: &Record) -> Option<i64> {
    let first = record.present.trailing_zeros();
    record.at.get(first as usize).and_then(|ns| moment(*ns))
}

/// The moments of a host record that bound the clock, ns of the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTimes {
    /// The capsule left no earlier.
    pub sent: i64,
    /// The response came no later; `None` when there was none.
    pub heard: Option<i64>,
    /// When it was over: `heard`, or the last point.
    pub over: i64,
    r2t: Option<(i64, i64)>,
}

impl HostTimes {
    /// `None` for a record without the moments needed.
    #[inline]
    pub fn of(record: &Record) -> Option<Self> {
        let sent = first(record, SENT)?;
        // A cancelled command was ended by the host itself: its end says nothing of a response.
        let heard = if record.has(Flags::Cancelled) {
            record.time(host::RESP_ARRIVED).and_then(moment)
        } else {
            first(record, HEARD)
        };
        let over = match heard {
            Some(heard) => heard,
            None => end(record)?,
        };
        let r2t = if record.has(Flags::R2t) {
            first(record, R2T_HEARD).zip(first(record, DATA_SENT))
        } else {
            None
        };
        Some(HostTimes {
            sent,
            heard,
            over,
            r2t,
        })
    }
}

/// The moments of a target record that bound the clock, ns of the target's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetTimes {
    /// The capsule came no later.
    pub got: i64,
    /// The response left no earlier.
    pub answered: i64,
    /// Later for each capsule than for the one before on the same connection.
    pub order: i64,
    r2t: Option<(i64, i64)>,
}

impl TargetTimes {
    /// `None` for a record without the moments needed.
    #[inline]
    pub fn of(record: &Record) -> Option<Self> {
        let r2t = if record.has(Flags::R2t) {
            first(record, R2T_SENT).zip(first(record, DATA_GOT))
        } else {
            None
        };
        let got = first(record, GOT)?;
        Some(TargetTimes {
            got,
            answered: first(record, ANSWERED)?,
            order: first(record, ORDER).unwrap_or(got),
            r2t,
        })
    }
}

/// A bound on theta, ns, at a moment of the host's clock, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// When it holds.
    pub at: i64,
    /// Theta is at most (or at least) this.
    pub ns: i64,
}

/// All bounds one pair gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Theta is at most.
    pub upper: Bound,
    /// Theta is at least; absent for a command that was never answered.
    pub lower: Option<Bound>,
    /// Data after R2T (at most) and R2T (at least).
    pub r2t: Option<(Bound, Bound)>,
}

impl Limits {
    /// What a pair says, if it is one.
    #[inline]
    pub fn of(host: &HostTimes, target: &TargetTimes) -> Self {
        Limits {
            upper: Bound {
                at: host.sent,
                ns: target.got.wrapping_sub(host.sent),
            },
            lower: host.heard.map(|heard| Bound {
                at: heard,
                ns: target.answered.wrapping_sub(heard),
            }),
            r2t: host.r2t.zip(target.r2t).map(|(host, target)| {
                (
                    Bound {
                        at: host.1,
                        ns: target.1.wrapping_sub(host.1),
                    },
                    Bound {
                        at: host.0,
                        ns: target.0.wrapping_sub(host.0),
                    },
                )
            }),
        }
    }

    /// Every upper bound.
    #[inline]
    pub fn uppers(&self) -> impl Iterator<Item = Bound> + use<> {
        [Some(self.upper), self.r2t.map(|(upper, _)| upper)]
            .into_iter()
            .flatten()
    }

    /// Every lower bound.
    #[inline]
    pub fn lowers(&self) -> impl Iterator<Item = Bound> + use<> {
        [self.lower, self.r2t.map(|(_, lower)| lower)]
            .into_iter()
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Record, Record) {
        let (mut h, mut t) = (Record::default(), Record::default());
        h.set(host::BLOCK_START, 900);
        h.set(host::SEND_BEGIN, 1_000);
        h.set(host::RESP_ARRIVED, 1_100);
        h.set(host::COMPLETED, 1_200);
        t.set(target::ARRIVED, 5_010);
        t.set(target::PDU_READ, 4_000);
        t.set(target::RECEIVED, 5_020);
        t.set(target::SEND_BEGIN, 5_090);
        (h, t)
    }

    fn limits(h: &Record, t: &Record) -> Limits {
        Limits::of(
            &HostTimes::of(h).expect("host times"),
            &TargetTimes::of(t).expect("target times"),
        )
    }

    #[test]
    fn a_pair_bounds_theta_from_both_sides() {
        let (h, t) = pair();
        let l = limits(&h, &t);
        assert_eq!(
            l.upper,
            Bound {
                at: 1_000,
                ns: 4_010
            }
        );
        assert_eq!(
            l.lower,
            Some(Bound {
                at: 1_100,
                ns: 3_990
            })
        );
    }

    #[test]
    fn absent_points_are_replaced_on_the_safe_side() {
        let (mut h, mut t) = pair();
        h.present &= !(1 << host::SEND_BEGIN.index | 1 << host::RESP_ARRIVED.index);
        t.present &= !(1 << target::ARRIVED.index | 1 << target::SEND_BEGIN.index);
        let l = limits(&h, &t);
        assert_eq!(l.upper, Bound { at: 900, ns: 4_120 });
        assert_eq!(
            l.lower,
            Some(Bound {
                at: 1_200,
                ns: 3_820
            })
        );
    }

    #[test]
    fn a_cancelled_command_has_no_lower_bound() {
        let (mut h, t) = pair();
        h.present &= !(1 << host::RESP_ARRIVED.index);
        h.flags |= Flags::Cancelled as u16;
        assert_eq!(limits(&h, &t).lower, None);
        assert_eq!(HostTimes::of(&h).map(|times| times.over), Some(1_200));
    }

    #[test]
    fn a_time_in_a_thousand_years_is_none() {
        let (mut h, t) = pair();
        h.set(host::SEND_BEGIN, u64::MAX);
        assert_eq!(HostTimes::of(&h), None);
        h.set(host::SEND_BEGIN, 1 << 60);
        assert_eq!(HostTimes::of(&h), None);
        assert!(TargetTimes::of(&t).is_some());
    }

    #[test]
    fn r2t_gives_two_more() {
        let (mut h, mut t) = pair();
        h.flags |= Flags::R2t as u16;
        t.flags |= Flags::R2t as u16;
        t.set(target::R2T_SEND, 5_030);
        h.set(host::R2T_ARRIVED, 1_035);
        h.set(host::DATA_SEND_BEGIN, 1_050);
        t.set(target::DATA_ARRIVED, 5_055);
        let l = limits(&h, &t);
        assert_eq!(
            l.r2t,
            Some((
                Bound {
                    at: 1_050,
                    ns: 4_005
                },
                Bound {
                    at: 1_035,
                    ns: 3_995
                }
            ))
        );
    }

    #[test]
    fn a_record_without_points_has_no_times() {
        assert_eq!(HostTimes::of(&Record::default()), None);
        assert_eq!(TargetTimes::of(&Record::default()), None);
        assert_eq!(
            (start(&Record::default()), end(&Record::default())),
            (None, None)
        );
    }
}
