//! Numbers that are the same in every run.

/// xorshift64*: quick, and good enough for delays.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// 0 to `n - 1`, all alike.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// `least` and, exponentially distributed, `mean` more.
    pub(crate) fn delay(&mut self, least: u64, mean: f64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        least + (-(1.0 - unit).ln() * mean) as u64
    }
}
