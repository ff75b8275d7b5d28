//! Times of commands, in as many bits as they need.

use crate::histogram::{SMALL, bucket_of_small, bucket_of_smallest};

/// Nanoseconds. Nearly all times fit into 32 bits, of which the CPU takes twice as many at once.
///
/// Damaged timestamps may be anything: wrapping keeps sums exact and never panics.
pub(crate) trait Time: Copy + Default + Ord + Into<i64> {
    const MIN: Self;
    const MAX: Self;
    /// The largest with a [`Time::bucket`].
    const SMALL: Self;

    /// The low bits.
    fn of(ns: i64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Bucket of a time from 0 on.
    fn bucket(self) -> u32;
}

impl Time for i64 {
    const MIN: Self = i64::MIN;
    const MAX: Self = i64::MAX;
    const SMALL: Self = SMALL;

    #[inline(always)]
    fn of(ns: i64) -> Self {
        ns
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    #[inline(always)]
    fn bucket(self) -> u32 {
        bucket_of_small(self as u64)
    }
}

impl Time for i32 {
    const MIN: Self = i32::MIN;
    const MAX: Self = i32::MAX;
    const SMALL: Self = i32::MAX;

    #[inline(always)]
    fn of(ns: i64) -> Self {
        ns as i32
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    #[inline(always)]
    fn bucket(self) -> u32 {
        bucket_of_smallest(self)
    }
}
