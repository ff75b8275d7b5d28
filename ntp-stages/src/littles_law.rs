//! How many commands are somewhere at once.

/// Mean number of commands in a place: arrivals a second times the mean time
/// each spends there, in nanoseconds (Little's law, L = lambda * W).
pub fn mean_in_place(per_second: f64, mean_ns: f64) -> f64 {
    per_second * mean_ns / 1e9
}

/// Commands a second from the number of sampled ones, each standing for
/// `sampling` commands; `None` when no time passed.
pub fn estimated_rate(standing_for: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| standing_for as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_after_the_other_is_one_in_flight() {
        // 10 000 commands a second of 100 us each.
        assert!((mean_in_place(10_000.0, 100_000.0) - 1.0).abs() < 1e-12);
        assert_eq!(estimated_rate(229_800, 20.0), Some(11_490.0));
        assert_eq!(estimated_rate(1, 0.0), None);
    }
}
