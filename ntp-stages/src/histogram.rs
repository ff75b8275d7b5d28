//! How often each time occurred, to three significant digits.
//!
//! The scheme is that of HdrHistogram (each power of two is cut into 1024
//! equal parts, so that a value is known to less than 0.1 %), with two things
//! added that this tool needs: negative values, and memory for the buckets
//! that occur only. A group has some thirty of these, and a time seldom
//! spreads over more than a few hundred buckets.

/// Parts of a power of two.
const PARTS_BITS: u32 = 10;
/// Buckets in a page, the piece in which memory is taken.
const PAGE: usize = 128;

type Page = Option<Box<[u64; PAGE]>>;

/// Counts of signed values.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Values from 0 up.
    up: Vec<Page>,
    /// Negative values, by magnitude.
    down: Vec<Page>,
    n: u64,
}

/// Bucket of a magnitude. Values below 2048 have buckets of their own, those
/// from 2^k (k > 10) on share one with 2^(k - 10) neighbours.
#[inline]
fn bucket(magnitude: u64) -> usize {
    let shift = (63 - PARTS_BITS).saturating_sub((magnitude | 1).leading_zeros());
    (magnitude >> shift) as usize + ((shift as usize) << PARTS_BITS)
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> PARTS_BITS).saturating_sub(1);
    let low = ((bucket - (shift << PARTS_BITS)) as u64) << shift;
    low + ((1u64 << shift) - 1) / 2
}

#[cold]
fn page(pages: &mut Vec<Page>, number: usize) -> &mut [u64; PAGE] {
    if pages.len() <= number {
        pages.resize_with(number + 1, || None);
    }
    pages[number].get_or_insert_with(|| Box::new([0; PAGE]))
}

#[inline]
fn count(pages: &mut Vec<Page>, magnitude: u64) {
    let bucket = bucket(magnitude);
    let (number, slot) = (bucket / PAGE, bucket % PAGE);
    match pages.get_mut(number) {
        Some(Some(page)) => page[slot] += 1,
        _ => page(pages, number)[slot] += 1,
    }
}

fn add(into: &mut Vec<Page>, from: &[Page]) {
    for (number, from) in from.iter().enumerate() {
        if let Some(from) = from {
            let into = page(into, number);
            into.iter_mut()
                .zip(from.iter())
                .for_each(|(into, from)| *into += from);
        }
    }
}

impl Histogram {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: i64) {
        self.n += 1;
        let pages = if value >= 0 {
            &mut self.up
        } else {
            &mut self.down
        };
        count(pages, value.unsigned_abs());
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Histogram) {
        self.n += other.n;
        add(&mut self.up, &other.up);
        add(&mut self.down, &other.down);
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
        let down = buckets(&self.down)
            .rev()
            .map(|(value, times)| (-signed(value), times));
        let up = buckets(&self.up).map(|(value, times)| (signed(value), times));
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

/// Middle and count of each bucket that occurs.
fn buckets(pages: &[Page]) -> impl DoubleEndedIterator<Item = (u64, u64)> {
    let taken = pages
        .iter()
        .enumerate()
        .filter_map(|(number, page)| Some((number, page.as_ref()?)));
    taken.flat_map(|(number, page)| {
        let occurs = page.iter().enumerate().filter(|(_, times)| **times != 0);
        occurs.map(move |(slot, times)| (middle(number * PAGE + slot), *times))
    })
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
