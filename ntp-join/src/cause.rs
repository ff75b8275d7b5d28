//! Why a record was left out, as written in the totals; [`ntp_record::cause`] has the words.

/// No connection of the other side has its addresses, or names and commands like it.
pub const NO_CONNECTION: &str = "no_such_connection";
/// Began or ended while the target was not recording.
pub const TARGET_NOT_RECORDING: &str = "target_not_recording";
/// The same for a target record.
pub const HOST_NOT_RECORDING: &str = "host_not_recording";
/// The target was recording, but has no such record.
pub const NOT_IN_TARGET: &str = "not_in_target";
/// The host was recording, but has no such record.
pub const NOT_IN_HOST: &str = "not_in_host";
/// More than one pair was possible.
pub const AMBIGUOUS: &str = "ambiguous";
/// The only record it could be paired with was not in order under the clock estimate.
pub const CONTRADICTS: &str = "contradicts_clock";
/// The difference of the clocks could not be found.
pub const AMBIGUOUS_CLOCK: &str = "ambiguous_clock";
/// The other side recorded one in more commands and not this one.
pub const NOT_SAMPLED: &str = "not_sampled_by_the_other";
/// Recorded with another salt: another sample of the commands.
pub const OTHER_SALT: &str = "other_salt";
/// An admin command that the other side did not record.
pub const ADMIN: &str = "admin";
/// Had to be dropped before the difference of the clocks was known.
pub const WINDOW: &str = "window_full";
/// Cancelled by the host: whatever the target did, it was not answered.
pub const CANCELLED: &str = "cancelled";
/// Has none of the points that place it in time, or ends far after all others
/// of its recording (see [`crate::pace`]).
pub const NO_TIMES: &str = "no_times";
/// All of one side, in the order of a report.
pub const HOST: &[&str] = &[
    NO_CONNECTION,
    TARGET_NOT_RECORDING,
    NOT_IN_TARGET,
    AMBIGUOUS,
    CONTRADICTS,
    AMBIGUOUS_CLOCK,
    NOT_SAMPLED,
    OTHER_SALT,
    ADMIN,
    WINDOW,
    CANCELLED,
    NO_TIMES,
];
/// The other side.
pub const TARGET: &[&str] = &[
    NO_CONNECTION,
    HOST_NOT_RECORDING,
    NOT_IN_HOST,
    AMBIGUOUS,
    CONTRADICTS,
    AMBIGUOUS_CLOCK,
    NOT_SAMPLED,
    OTHER_SALT,
    ADMIN,
    WINDOW,
    NO_TIMES,
];

#[cfg(test)]
mod tests {
    use super::{HOST, TARGET};
    use ntp_record::cause::{Book, CAUSES};

    #[test]
    fn every_cause_has_words() {
        for code in HOST.iter().chain(TARGET) {
            let known =
                |(book, cause, _): &(Book, &str, &str)| *book == Book::Left && cause == code;
            assert!(CAUSES.iter().any(known), "{code}");
        }
    }
}
