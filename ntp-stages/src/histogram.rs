//! How often each time occurred, to three significant digits.
//!
//! The scheme is that of HdrHistogram (each power of two is cut into 1024
//! equal parts, so that a value is known to less than 0.1 %), with two things
//! added that this tool needs: negative values, and memory for the buckets
//! that occur only. A group has some thirty of these, and a time seldom
//! spreads over more than a few hundred buckets.

use crate::time::Time;
use std::collections::{BTreeMap, btree_map};
use std::ops::Range;

/// Parts of a power of two.
const PARTS_BITS: u32 = 10;
/// Buckets in a page, the piece in which memory is taken: those of a power of two.
const PAGE: usize = 1 << PARTS_BITS;

/// Counts of the values of one sign.
///
/// Those from the lowest to the highest page in use lie in one piece, so that
/// counting looks at nothing but the count; that each is small keeps those in
/// use in the cache. Values wait until there are many: one after the other they
/// find the counts in the nearest cache, which has no room for all histograms.
#[derive(Clone, Debug)]
struct Counts {
    /// Bucket of the first count: the first of a page.
    first: usize,
    counts: Vec<u16>,
    /// What was taken off counts before they could overflow.
    taken_off: BTreeMap<u32, u64>,
    /// Values counted since that was seen to.
    since: u16,
    /// Places in `counts` of values that wait to be counted: so many of them.
    waiting: Box<[u16; WAITING]>,
    waits: usize,
}

/// Values that wait at most.
const WAITING: usize = 512;

impl Default for Counts {
    fn default() -> Self {
        Counts {
            first: 0,
            counts: Vec::new(),
            taken_off: BTreeMap::new(),
            since: 0,
            waiting: Box::new([0; WAITING]),
            waits: 0,
        }
    }
}

/// So many values are counted before counts above it are cut by it: what is left
/// is neither 0 nor so much that the next so many overflow it.
const CUT: u16 = u16::MAX / 2;

/// Counts of signed values.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Values from 0 up.
    up: Counts,
    /// Negative values, by magnitude; few have any.
    down: Option<Box<Counts>>,
    n: u64,
}

/// Bucket of a magnitude. Values below 2048 have buckets of their own, those
/// from 2^k (k > 10) on share one with 2^(k - 10) neighbours.
#[inline]
fn bucket(magnitude: u64) -> usize {
    let shift = (63 - PARTS_BITS).saturating_sub((magnitude | 1).leading_zeros());
    (magnitude >> shift) as usize + ((shift as usize) << PARTS_BITS)
}

/// [`bucket`] of a magnitude below [`EXACT`]: the exponent and the first bits
/// of the fraction of a float are power and part already. Branches nowhere, so
/// that several are worked out at once.
#[inline(always)]
pub(crate) fn bucket_of_small(magnitude: u64) -> u32 {
    // Exact: the float's last bit stands for 1.
    let float = f64::from_bits(magnitude | EXACT.to_bits()) - EXACT;
    let parts = (float.to_bits() >> (f64::MANTISSA_DIGITS - 1 - PARTS_BITS)) as u32;
    // 2^10 and up: the power is counted from 2^9.
    let large = parts.wrapping_sub((1023 + PARTS_BITS - 1) << PARTS_BITS);
    if magnitude < PAGE as u64 {
        magnitude as u32
    } else {
        large
    }
}

/// The same of one of 31 bits, for which a smaller float will do.
#[inline(always)]
pub(crate) fn bucket_of_smallest(magnitude: i32) -> u32 {
    // Clears a bit below those that count and above those that are rounded
    // off: nothing is carried up.
    let float = (magnitude & !(magnitude >> 16)) as f32;
    let parts = float.to_bits() >> (f32::MANTISSA_DIGITS - 1 - PARTS_BITS);
    let large = parts.wrapping_sub((127 + PARTS_BITS - 1) << PARTS_BITS);
    if magnitude < PAGE as i32 {
        magnitude as u32
    } else {
        large
    }
}

/// The largest value for [`bucket_of_small`].
pub(crate) const SMALL: i64 = EXACT as i64 - 1;

/// Integers below it are exact in a float whose last bit stands for 1: 52 days, in ns.
const EXACT: f64 = (1u64 << (f64::MANTISSA_DIGITS - 1)) as f64;

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> PARTS_BITS).saturating_sub(1);
    let low = ((bucket - (shift << PARTS_BITS)) as u64) << shift;
    low + ((1u64 << shift) - 1) / 2
}

impl Counts {
    /// Counts values below [`EXACT`] whose buckets lie from `low` to `high`.
    #[inline(always)]
    fn count_small<T: Time>(&mut self, values: &[T], low: usize, high: usize) {
        self.room(low, high);
        for values in values.chunks(WAITING) {
            if self.waits + values.len() > WAITING {
                self.count_waiting();
            }
            let waiting = &mut self.waiting[self.waits..][..values.len()];
            let first = self.first as u32;
            for (place, value) in waiting.iter_mut().zip(values) {
                *place = value.bucket().wrapping_sub(first) as u16;
            }
            self.waits += values.len();
        }
    }

    #[inline(never)]
    fn count_waiting(&mut self) {
        self.cut_before(self.waits as u16);
        let counts = self.counts.as_mut_slice();
        let mut count = |place: &u16| counts[usize::from(*place)] += 1;
        // Several at a time: the loop costs as much as a count does.
        let mut pieces = self.waiting[..self.waits].chunks_exact(8);
        pieces
            .by_ref()
            .for_each(|piece| piece.iter().for_each(&mut count));
        pieces.remainder().iter().for_each(count);
        self.waits = 0;
    }

    fn count(&mut self, bucket: usize) {
        self.room(bucket, bucket);
        self.cut_before(1);
        self.counts[bucket - self.first] += 1;
    }

    /// So many more are about to be counted.
    fn cut_before(&mut self, more: u16) {
        if self.since + more > CUT {
            self.cut();
        }
        self.since += more;
    }

    /// Makes room for the counts of all buckets from `low` to `high`.
    #[inline(always)]
    fn room(&mut self, low: usize, high: usize) {
        if low < self.first || high >= self.first + self.counts.len() {
            self.cover(low, high);
        }
    }

    #[cold]
    #[inline(never)]
    fn cover(&mut self, low: usize, high: usize) {
        let low = low / PAGE * PAGE;
        if self.counts.is_empty() {
            self.first = low;
        }
        if low < self.first {
            // Places are about to change.
            self.count_waiting();
            let more = self.first - low;
            self.counts.splice(..0, std::iter::repeat_n(0, more));
            self.first = low;
        }
        let high = (high / PAGE + 1) * PAGE;
        if high > self.first + self.counts.len() {
            self.counts
                .reserve_exact(high - self.first - self.counts.len());
            self.counts.resize(high - self.first, 0);
        }
    }

    #[cold]
    #[inline(never)]
    fn cut(&mut self) {
        self.since = 0;
        if self.counts.iter().fold(0, |all, count| all | count) <= CUT {
            return;
        }
        for (place, count) in self.counts.iter_mut().enumerate() {
            if *count > CUT {
                *count -= CUT;
                let bucket = (self.first + place) as u32;
                *self.taken_off.entry(bucket).or_default() += u64::from(CUT);
            }
        }
    }

    fn add(&mut self, other: &Counts) {
        for (bucket, times) in other.buckets() {
            self.room(bucket, bucket);
            let count = &mut self.counts[bucket - self.first];
            let sum = u64::from(*count) + times;
            // Not 0, and small enough for the next values.
            *count = (1 + (sum - 1) % u64::from(CUT)) as u16;
            let rest = sum - u64::from(*count);
            if rest > 0 {
                *self.taken_off.entry(bucket as u32).or_default() += rest;
            }
        }
        // Counts that nothing was added to may be large.
        self.cut();
        for place in &other.waiting[..other.waits] {
            self.count(other.first + usize::from(*place));
        }
    }

    /// Each bucket that occurs, and how often, but for values that wait.
    fn buckets(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        self.pieces().flat_map(|piece| self.buckets_of(piece))
    }

    /// Buckets in pieces, of which the values are counted quickly.
    fn pieces(&self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let end = self.first + self.counts.len();
        let firsts = (self.first..end).step_by(PIECE);
        firsts.map(|first| first..first + PIECE)
    }

    fn counts_of(&self, piece: &Range<usize>) -> &[u16] {
        &self.counts[piece.start - self.first..][..PIECE]
    }

    fn taken_off(&self, piece: &Range<usize>) -> btree_map::Range<'_, u32, u64> {
        self.taken_off.range(piece.start as u32..piece.end as u32)
    }

    /// Values in a piece.
    fn values_of(&self, piece: &Range<usize>) -> u64 {
        let counts = self.counts_of(piece).iter().map(|count| u32::from(*count));
        let left: u32 = counts.sum();
        u64::from(left) + self.taken_off(piece).map(|(_, times)| times).sum::<u64>()
    }

    /// Each bucket of a piece that occurs, and how often.
    fn buckets_of(&self, piece: Range<usize>) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        let cut = self.taken_off(&piece).next().is_some();
        let counts = self.counts_of(&piece).iter().zip(piece);
        counts
            .filter(|(count, _)| **count != 0)
            .map(move |(count, bucket)| {
                let taken_off = match cut {
                    true => self.taken_off.get(&(bucket as u32)).copied(),
                    false => None,
                };
                (bucket, taken_off.unwrap_or(0) + u64::from(*count))
            })
    }
}

/// Buckets in a piece of a page.
const PIECE: usize = 64;

impl Histogram {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: i64) {
        self.n += 1;
        let counts = if value >= 0 {
            &mut self.up
        } else {
            self.down.get_or_insert_default()
        };
        counts.count(bucket(value.unsigned_abs()));
    }

    /// Counts values of which `min` and `max` lie between 0 and [`Time::SMALL`].
    #[inline(always)]
    pub(crate) fn record_small<T: Time>(&mut self, values: &[T], min: T, max: T) {
        self.n += values.len() as u64;
        let bucket = |value: T| bucket(value.into() as u64);
        self.up.count_small(values, bucket(min), bucket(max));
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Histogram) {
        self.n += other.n;
        self.up.add(&other.up);
        if let Some(down) = &other.down {
            self.down.get_or_insert_default().add(down);
        }
    }

    /// For each (part, whole), in rising order: the smallest value that at
    /// least `part` of `whole` values did not exceed (nearest rank), as the
    /// middle of its bucket; `None` when empty.
    pub fn quantiles<const N: usize>(&self, wanted: [(u64, u64); N]) -> [Option<i64>; N] {
        if self.up.waits > 0 {
            let mut all = self.clone();
            all.up.count_waiting();
            return all.quantiles(wanted);
        }
        let mut found = [None; N];
        let rank = |(part, whole): (u64, u64)| {
            let rank = (u128::from(self.n) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
            u64::try_from(rank)
                .unwrap_or(u64::MAX)
                .clamp(1, self.n.max(1))
        };
        let ranks = wanted.map(rank);
        let signed = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
        let down = self.down.iter().flat_map(|down| {
            let pieces = down.pieces().rev();
            pieces.map(|piece| (true, &**down, piece))
        });
        let up = self.up.pieces().map(|piece| (false, &self.up, piece));
        let (mut next, mut passed) = (0, 0);
        for (negative, counts, piece) in down.chain(up) {
            let values = counts.values_of(&piece);
            if next == N || passed + values < ranks[next] {
                passed += values;
                continue;
            }
            let mut buckets = counts.buckets_of(piece);
            let mut rising = || match negative {
                true => buckets.next_back(),
                false => buckets.next(),
            };
            while let Some((bucket, times)) = rising() {
                passed += times;
                while next < N && passed >= ranks[next] {
                    let magnitude = signed(middle(bucket));
                    found[next] = Some(if negative { -magnitude } else { magnitude });
                    next += 1;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers over many magnitudes.
    fn numbers(count: usize, mut seed: u64, signed: bool) -> Vec<i64> {
        (0..count)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let value = ((seed >> 16) >> (seed % 47)) as i64;
                if signed && seed >> 63 != 0 {
                    -value
                } else {
                    value
                }
            })
            .collect()
    }

    fn exact(sorted: &[i64], part: usize, whole: usize) -> i64 {
        sorted[(sorted.len() * part).div_ceil(whole).max(1) - 1]
    }

    #[test]
    fn quantiles_are_those_of_a_sort_to_three_digits() {
        for (seed, signed) in [(1, false), (2, true), (3, true)] {
            for count in [1, 2, 3, 10, 99, 100, 101, 5000] {
                let mut values = numbers(count, seed, signed);
                let mut histogram = Histogram::default();
                values.iter().for_each(|value| histogram.record(*value));
                values.sort_unstable();
                for (part, whole) in [
                    (0, 1),
                    (1, 100),
                    (1, 2),
                    (9, 10),
                    (99, 100),
                    (999, 1000),
                    (1, 1),
                ] {
                    let right = exact(&values, part, whole);
                    let got = histogram.quantiles([(part as u64, whole as u64)])[0].unwrap();
                    let allowed =
                        right.unsigned_abs() / 2048 + u64::from(right.unsigned_abs() >= 2048);
                    assert!(
                        got.abs_diff(right) <= allowed,
                        "{count} values, {part}/{whole}: {got}, not {right}"
                    );
                }
            }
        }
    }

    #[test]
    fn small_values_are_exact_and_large_ones_have_a_place() {
        for value in [0, 1, 2047, -1, -2047] {
            let mut histogram = Histogram::default();
            histogram.record(value);
            assert_eq!(histogram.quantiles([(1, 2)])[0], Some(value));
        }
        for value in [i64::MAX, i64::MIN, i64::MIN + 1] {
            let mut histogram = Histogram::default();
            histogram.record(value);
            let got = histogram.quantiles([(1, 2)])[0].unwrap();
            assert!(got.abs_diff(value) <= 1 << 53, "{got}, not {value}");
        }
        assert_eq!(Histogram::default().quantiles([(1, 2)])[0], None);
    }

    #[test]
    fn all_ways_to_a_bucket_lead_to_the_same() {
        let powers = (0..52).map(|power| 1u64 << power);
        let near = powers.flat_map(|power| {
            let part = power >> PARTS_BITS;
            [
                power - 1,
                power,
                power + 1,
                power + power / 3,
                power + 7 * part - u64::from(part > 0),
            ]
        });
        let numbers = numbers(10_000, 4, false);
        let numbers = numbers.iter().map(|value| *value as u64 & SMALL as u64);
        for value in near.chain(numbers).chain([0, SMALL as u64]) {
            assert_eq!(bucket_of_small(value) as usize, bucket(value), "{value}");
            if let Ok(smallest) = i32::try_from(value) {
                assert_eq!(
                    bucket_of_smallest(smallest) as usize,
                    bucket(value),
                    "{value}"
                );
            }
        }
        // Values below 2048 have two pages.
        assert_eq!(bucket(u64::MAX), (65 - PARTS_BITS as usize) * PAGE - 1);
    }

    #[test]
    fn a_bucket_counts_beyond_16_bits() {
        let mut histogram = Histogram::default();
        for _ in 0..1000 {
            histogram.record_small(&[5; 200], 5, 5);
        }
        histogram.record(7);
        let mut both = histogram.clone();
        both.merge(&histogram);
        for (histogram, n) in [(&histogram, 200_000), (&both, 400_000)] {
            let mut up = histogram.up.clone();
            up.count_waiting();
            let found = up.buckets().collect::<Vec<_>>();
            assert_eq!(found, [(5, n), (7, n / 200_000)]);
            assert_eq!(histogram.quantiles([(1, 2)]), [Some(5)]);
        }
    }

    #[test]
    fn merging_is_recording_both() {
        let (a, b) = (numbers(1000, 5, true), numbers(700, 6, true));
        let (mut left, mut right, mut both) = (
            Histogram::default(),
            Histogram::default(),
            Histogram::default(),
        );
        a.iter().for_each(|value| left.record(*value));
        b.iter().for_each(|value| right.record(*value));
        a.iter().chain(&b).for_each(|value| both.record(*value));
        left.merge(&right);
        for part in 0..=1000 {
            assert_eq!(
                left.quantiles([(part, 1000)])[0],
                both.quantiles([(part, 1000)])[0]
            );
        }
    }

    #[test]
    fn it_agrees_with_hdrhistogram() {
        let values = numbers(20_000, 9, false);
        let mut own = Histogram::default();
        let mut other = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        for value in values {
            own.record(value);
            other.record(value as u64).unwrap();
        }
        for part in [10, 500, 900, 990, 999] {
            let theirs = other.value_at_quantile(part as f64 / 1000.0);
            let ours = own.quantiles([(part, 1000)])[0].unwrap() as u64;
            assert!(
                ours.abs_diff(theirs) <= theirs / 1000 + 1,
                "{part}: {ours}, theirs {theirs}"
            );
        }
    }
}
