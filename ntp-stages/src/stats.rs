//! The statistics of one kind of time.

use crate::histogram::Histogram;
use crate::time::Time;
use ntp_record::row::Distribution;

/// Percentiles of a report, as (part, whole, name).
pub const PERCENTILES: [(u64, u64, &str); 3] =
    [(50, 100, "p50"), (99, 100, "p99"), (999, 1000, "p99.9")];

/// Values that must lie beyond a percentile for it to mean something.
///
/// With k values beyond it, a percentile's rank is known to about one part in
/// the square root of k: with fewer than ten, the next recording may well put
/// it somewhere else.
pub const BEYOND: u64 = 10;

/// Values needed to carry a percentile, by [`BEYOND`].
pub fn needed(part: u64, whole: u64) -> u64 {
    (BEYOND * whole).div_ceil(whole - part)
}

/// Times of one thing, nanoseconds. Sums are exact; percentiles have three digits.
#[derive(Clone, Debug)]
pub struct Stat {
    n: u64,
    sum: i128,
    min: i64,
    max: i64,
    negative: u64,
    histogram: Histogram,
}

impl Default for Stat {
    fn default() -> Self {
        Stat {
            n: 0,
            sum: 0,
            min: i64::MAX,
            max: i64::MIN,
            negative: 0,
            histogram: Histogram::default(),
        }
    }
}

impl Stat {
    /// Takes in times, ns; gives back how many are negative.
    #[inline(always)]
    pub(crate) fn record_all<T: Time>(&mut self, values: &[T]) -> u64 {
        if values.is_empty() {
            return 0;
        }
        let (mut min, mut max, mut sum) = (T::MAX, T::MIN, 0i64);
        for value in values {
            min = min.min(*value);
            max = max.max(*value);
            sum = sum.wrapping_add((*value).into());
        }
        let mut negative = 0;
        // Ordinary times go the quick way; a thousand of them add up in 64 bits.
        if min >= T::default() && max <= T::SMALL && values.len() <= 1000 {
            self.sum += i128::from(sum);
            self.histogram.record_small(values, min, max);
        } else {
            negative = self.record_others(values);
        }
        self.min = self.min.min(min.into());
        self.max = self.max.max(max.into());
        self.n += values.len() as u64;
        self.negative += negative;
        negative
    }

    #[cold]
    fn record_others<T: Time>(&mut self, values: &[T]) -> u64 {
        let values = values.iter().map(|value| -> i64 { (*value).into() });
        self.sum += values.clone().map(i128::from).sum::<i128>();
        values
            .clone()
            .for_each(|value| self.histogram.record(value));
        values.filter(|value| *value < 0).count() as u64
    }

    /// Takes in another's times.
    pub fn merge(&mut self, other: &Stat) {
        let Stat {
            n,
            sum,
            min,
            max,
            negative,
            histogram,
        } = other;
        self.n += n;
        self.sum += sum;
        self.min = self.min.min(*min);
        self.max = self.max.max(*max);
        self.negative += negative;
        self.histogram.merge(histogram);
    }

    /// Times taken in.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Their sum, ns.
    pub fn sum(&self) -> i128 {
        self.sum
    }

    /// How many were negative.
    pub fn negative(&self) -> u64 {
        self.negative
    }

    /// Their mean, ns.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then(|| ratio(self.sum, self.n))
    }

    /// The figures of a row.
    pub fn distribution(&self) -> Distribution {
        // A bucket's middle may lie beyond the extremes, which are exact.
        let within = |value: i64| value.clamp(self.min, self.max);
        let found = self
            .histogram
            .quantiles(PERCENTILES.map(|(part, whole, _)| (part, whole)));
        let [p50_ns, p99_ns, p999_ns] = found.map(|value| value.map(within));
        let few = PERCENTILES
            .iter()
            .filter(|(part, whole, _)| self.n > 0 && self.n < needed(*part, *whole))
            .map(|(_, _, name)| (*name).to_owned())
            .collect();
        Distribution {
            n: self.n,
            mean_ns: self.mean(),
            p50_ns,
            p99_ns,
            p999_ns,
            min_ns: (self.n > 0).then_some(self.min),
            max_ns: (self.n > 0).then_some(self.max),
            stddev_ns: None,
            few,
            negative: self.negative,
        }
    }
}

/// Sum of squares, for a standard deviation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Squares(u128);

impl Squares {
    /// Takes in times, ns.
    #[inline(always)]
    pub(crate) fn record_all<T: Time>(&mut self, values: &[T]) {
        let few = values.len() <= 256;
        let values = values.iter().map(|value| -> i64 { (*value).into() });
        // So many squares of so few bits add up in 64 bits.
        if few && values.clone().fold(0, |all, value| all | value) >> 28 == 0 {
            let squares = values.map(|value| value as u64 * value as u64);
            self.0 = self.0.saturating_add(squares.sum::<u64>().into());
            return;
        }
        for value in values {
            let magnitude = u128::from(value.unsigned_abs());
            // Times of centuries, a billion of them: then it sticks at the limit.
            self.0 = self.0.saturating_add(magnitude * magnitude);
        }
    }

    /// Takes in another's times.
    pub fn merge(&mut self, other: Squares) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// Standard deviation of the times of `stat`, ns (of the sample: n - 1); `None` for fewer than two.
    pub fn deviation(self, stat: &Stat) -> Option<f64> {
        if stat.n() < 2 {
            return None;
        }
        let n = stat.n() as f64;
        // n * sum of squares - square of the sum, in integers while they fit.
        let square = stat.sum.unsigned_abs().checked_mul(stat.sum.unsigned_abs());
        let spread = match (self.0.checked_mul(u128::from(stat.n())), square) {
            (Some(squares), Some(square)) => squares.saturating_sub(square) as f64,
            _ => (self.0 as f64 * n - (stat.sum as f64).powi(2)).max(0.0),
        };
        Some((spread / (n * (n - 1.0))).sqrt())
    }
}

/// Quotient of a sum and a count, as exact as a float is.
pub fn ratio(sum: i128, n: u64) -> f64 {
    let n = i128::from(n);
    (sum / n) as f64 + (sum % n) as f64 / n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact_where_they_can_be() {
        let mut stat = Stat::default();
        let mut squares = Squares::default();
        stat.record_all(&[2, 4, 4, 4, 5, 5, 7, 9]);
        squares.record_all(&[2, 4, 4, 4, 5, 5, 7, 9]);
        let figures = stat.distribution();
        assert_eq!(figures.mean_ns, Some(5.0));
        // Sum of squared deviations 32, over 7.
        assert!((squares.deviation(&stat).unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(
            (
                figures.min_ns,
                figures.p50_ns,
                figures.p99_ns,
                figures.max_ns
            ),
            (Some(2), Some(4), Some(9), Some(9))
        );
        assert_eq!(figures.few, ["p50", "p99", "p99.9"]);
    }

    #[test]
    fn percentiles_need_ten_values_beyond_them() {
        assert_eq!(
            PERCENTILES.map(|(part, whole, _)| needed(part, whole)),
            [20, 1000, 10_000]
        );
        let mut stat = Stat::default();
        (0..999).for_each(|value| _ = stat.record_all(&[value]));
        assert_eq!(stat.distribution().few, ["p99", "p99.9"]);
        stat.record_all(&[999]);
        assert_eq!(stat.distribution().few, ["p99.9"]);
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        let none = Stat::default().distribution();
        assert_eq!(none, Distribution::default());
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut stat = Stat::default();
        stat.record_all(&[i64::MAX; 1000]);
        stat.record_all(&[i64::MIN; 500]);
        assert_eq!(
            stat.sum(),
            i128::from(i64::MAX) * 1000 + i128::from(i64::MIN) * 500
        );
        assert_eq!((stat.n(), stat.negative()), (1500, 500));
    }

    #[test]
    fn slow_and_negative_times_are_kept() {
        let mut stat = Stat::default();
        // Beyond 32 bits of nanoseconds (4.29 s), and below 0.
        assert_eq!(
            stat.record_all(&[5_000_000_000_i64, -300, 60_000_000_000]),
            1
        );
        let figures = stat.distribution();
        assert_eq!(figures.mean_ns, Some(64_999_999_700.0 / 3.0));
        assert_eq!(
            (figures.min_ns, figures.max_ns, figures.negative),
            (Some(-300), Some(60_000_000_000), 1)
        );
        let p50 = figures.p50_ns.unwrap();
        assert!((p50 - 5_000_000_000).abs() <= 5_000_000_000 / 2000, "{p50}");
    }
}
