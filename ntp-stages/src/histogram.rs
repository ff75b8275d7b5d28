//! How often each time occurred, to three significant digits.
//!
//! The scheme is that of HdrHistogram (each power of two is cut into 1024
//! equal parts, so that a value is known to less than 0.1 %), with two things
//! added that this tool needs: negative values, and memory for the buckets
//! that occur only. A group has some thirty of these, and a time seldom
//! spreads over more than a few hundred buckets.

use std::collections::BTreeMap;

/// Parts of a power of two.
const PARTS_BITS: u32 = 10;
/// Buckets in a page, the piece in which memory is taken: those of a power of two.
const PAGE: usize = 1 << PARTS_BITS;
/// Pages of all 64-bit magnitudes: values below 2048 have two.
const PAGES: usize = 65 - PARTS_BITS as usize;

/// Counts wrap: that each is small keeps those in use in the cache.
type Page = Option<Box<[u16; PAGE]>>;

/// Counts of the values of one sign.
#[derive(Clone, Debug)]
struct Counts {
    pages: [Page; PAGES],
    /// How often a bucket's count wrapped.
    wraps: BTreeMap<u32, u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            pages: [const { None }; PAGES],
            wraps: BTreeMap::new(),
        }
    }
}

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
fn bucket_of_small(magnitude: u64) -> u32 {
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

/// Integers below it are exact in a float whose last bit stands for 1: 52 days, in ns.
const EXACT: f64 = (1u64 << (f64::MANTISSA_DIGITS - 1)) as f64;

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> PARTS_BITS).saturating_sub(1);
    let low = ((bucket - (shift << PARTS_BITS)) as u64) << shift;
    low + ((1u64 << shift) - 1) / 2
}

impl Counts {
    #[inline(always)]
    fn count(&mut self, bucket: usize) {
        match &mut self.pages[bucket / PAGE] {
            Some(page) => {
                let count = &mut page[bucket % PAGE];
                *count = count.wrapping_add(1);
                if *count == 0 {
                    self.wrap(bucket, 1);
                }
            }
            page => page.insert(new_page())[bucket % PAGE] = 1,
        }
    }

    #[cold]
    fn wrap(&mut self, bucket: usize, times: u64) {
        *self.wraps.entry(bucket as u32).or_default() += times;
    }

    fn add(&mut self, other: &Counts) {
        for (bucket, times) in other.buckets() {
            let count = &mut self.pages[bucket / PAGE].get_or_insert_with(new_page)[bucket % PAGE];
            let sum = u64::from(*count) + times;
            *count = sum as u16;
            if sum >> 16 != 0 {
                self.wrap(bucket, sum >> 16);
            }
        }
    }

    /// Each bucket that occurs, and how often.
    fn buckets(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        let taken = self.pages.iter().enumerate();
        let taken = taken.filter_map(|(number, page)| Some((number * PAGE, page.as_deref()?)));
        let counts = taken.flat_map(|(first, page)| {
            (page.iter().enumerate()).map(move |(slot, count)| (first + slot, u64::from(*count)))
        });
        counts.filter_map(|(bucket, count)| {
            let wraps = match self.wraps.is_empty() {
                true => 0,
                false => self.wraps.get(&(bucket as u32)).copied().unwrap_or(0),
            };
            let times = (wraps << 16) + count;
            (times != 0).then_some((bucket, times))
        })
    }
}

#[cold]
fn new_page() -> Box<[u16; PAGE]> {
    Box::new([0; PAGE])
}

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

    /// Counts values that all lie between 0 and [`Histogram::SMALL`].
    #[inline(always)]
    pub(crate) fn record_small(&mut self, values: &[i64]) {
        self.n += values.len() as u64;
        let mut buckets = [0; 64];
        for values in values.chunks(buckets.len()) {
            let buckets = &mut buckets[..values.len()];
            for (bucket, value) in buckets.iter_mut().zip(values) {
                *bucket = bucket_of_small(*value as u64);
            }
            for bucket in buckets {
                self.up.count(*bucket as usize);
            }
        }
    }

    /// See [`Histogram::record_small`].
    pub(crate) const SMALL: i64 = EXACT as i64 - 1;

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
        let mut found = [None; N];
        let rank = |(part, whole): (u64, u64)| {
            let rank = (u128::from(self.n) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
            u64::try_from(rank)
                .unwrap_or(u64::MAX)
                .clamp(1, self.n.max(1))
        };
        let ranks = wanted.map(rank);
        let signed = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
        let down = self.down.iter().flat_map(|down| down.buckets().rev());
        let down = down.map(|(bucket, times)| (-signed(middle(bucket)), times));
        let up = self.up.buckets();
        let up = up.map(|(bucket, times)| (signed(middle(bucket)), times));
        let (mut next, mut passed) = (0, 0);
        for (value, times) in down.chain(up) {
            passed += times;
            while next < N && passed >= ranks[next] {
                found[next] = Some(value);
                next += 1;
            }
            if next == N {
                break;
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
    fn both_ways_to_a_bucket_lead_to_the_same() {
        let powers = (0..52).map(|power| 1u64 << power);
        let near = powers.flat_map(|power| [power - 1, power, power + 1, power + power / 3]);
        let numbers = numbers(10_000, 4, false);
        let numbers = numbers
            .iter()
            .map(|value| *value as u64 & Histogram::SMALL as u64);
        for value in near.chain(numbers).chain([0, Histogram::SMALL as u64]) {
            assert_eq!(bucket_of_small(value) as usize, bucket(value), "{value}");
        }
        assert_eq!(bucket(u64::MAX), PAGES * PAGE - 1);
    }

    #[test]
    fn a_bucket_counts_beyond_16_bits() {
        let mut histogram = Histogram::default();
        for _ in 0..1000 {
            histogram.record_small(&[5; 200]);
        }
        histogram.record(7);
        let mut both = histogram.clone();
        both.merge(&histogram);
        for (histogram, n) in [(&histogram, 200_000), (&both, 400_000)] {
            let found = histogram.up.buckets().collect::<Vec<_>>();
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
