//! Why commands were left out, lost or not seen whole: the codes in totals,
//! and the one wording that all tools say.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Which books a cause is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Book {
    /// Records that ntp-join left out, `host_left` and `target_left` of [`JoinTotals`](crate::JoinTotals).
    Left,
    /// Sampled commands without a record, `lost` of [`Totals`](crate::Totals).
    Lost,
    /// Points, names and counts that could not be taken, `misses` of [`Totals`](crate::Totals).
    Miss,
}

/// Every cause: its books, its code, and words that go after a number of commands.
pub const CAUSES: &[(Book, &str, &str)] = &[
    (
        Book::Left,
        "no_such_connection",
        "on a connection that the other side did not record",
    ),
    (
        Book::Left,
        "target_not_recording",
        "while the target was not recording",
    ),
    (
        Book::Left,
        "host_not_recording",
        "while the host was not recording",
    ),
    (
        Book::Left,
        "not_in_target",
        "missing in the target's recording",
    ),
    (Book::Left, "not_in_host", "missing in the host's recording"),
    (
        Book::Left,
        "ambiguous",
        "ambiguous: more than one partner was possible",
    ),
    (
        Book::Left,
        "contradicts_clock",
        "out of order under the clock estimate",
    ),
    (
        Book::Left,
        "ambiguous_clock",
        "without a known difference of the clocks",
    ),
    (
        Book::Left,
        "not_sampled_by_the_other",
        "not in the other side's sample",
    ),
    (Book::Left, "other_salt", "sampled with another salt"),
    (
        Book::Left,
        "admin",
        "admin commands that the other side did not record",
    ),
    (
        Book::Left,
        "window_full",
        "dropped for memory before the clocks were known",
    ),
    (Book::Left, "cancelled", "cancelled by the host"),
    (Book::Left, "no_times", "without a time that can be right"),
    (
        Book::Lost,
        "ring_full",
        "with the buffer from the kernel full",
    ),
    (
        Book::Lost,
        "inflight_full",
        "with too many commands in flight",
    ),
    (Book::Lost, "end_not_seen", "with their end not seen"),
    (
        Book::Lost,
        "retried",
        "with an attempt that failed and was retried",
    ),
    (
        Book::Lost,
        "connection_closed",
        "with their connection closed while they were in flight",
    ),
    (
        Book::Lost,
        "not_written",
        "with the output failing before they were written",
    ),
    (
        Book::Miss,
        "queue_table_full",
        "with the table of connections full",
    ),
    (
        Book::Miss,
        "arrival_forgotten",
        "with an arrival no longer remembered when it was read",
    ),
    (Book::Miss, "name_not_sent", "with a name sent late"),
    (
        Book::Miss,
        "count_table_full",
        "not counted, of too many kinds",
    ),
    (
        Book::Miss,
        "start_of_request",
        "whose bio was not seen entering the block layer: begun with the request",
    ),
    (
        Book::Miss,
        "merged_bios",
        "merged of more bios than were looked at",
    ),
];

/// A cause in words; one that is not known here is its code with spaces.
pub fn words(book: Book, code: &str) -> Cow<'static, str> {
    CAUSES
        .iter()
        .find(|(of, known, _)| *of == book && *known == code)
        .map_or_else(
            || code.replace('_', " ").into(),
            |(.., words)| Cow::Borrowed(*words),
        )
}

/// `3 with their end not seen; 1 ...` of what is not 0, in the order of
/// [`CAUSES`]; empty when all is.
pub fn list(book: Book, counts: &BTreeMap<String, u64>) -> String {
    let place = |code: &str| {
        let is = |(of, known, _): &(Book, &str, &str)| *of == book && *known == code;
        CAUSES.iter().position(is).unwrap_or(CAUSES.len())
    };
    let mut some: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    some.sort_by_key(|(code, _)| place(code));
    let some: Vec<String> = some
        .into_iter()
        .map(|(code, count)| format!("{count} {}", words(book, code)))
        .collect();
    some.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_wording() {
        for (book, code, _) in CAUSES {
            let same = |(b, c, _): &&(Book, &str, &str)| b == book && c == code;
            assert_eq!(CAUSES.iter().filter(same).count(), 1, "{code}");
        }
        assert_eq!(words(Book::Lost, "end_not_seen"), "with their end not seen");
        assert_eq!(words(Book::Miss, "queue_rq_skipped"), "queue rq skipped");
        // `cancelled` is no cause of a loss while recording.
        assert_eq!(words(Book::Lost, "cancelled"), "cancelled");
        let counts = [
            ("a_new_one", 1),
            ("end_not_seen", 3),
            ("retried", 0),
            ("ring_full", 4),
        ];
        let counts = counts.map(|(code, n)| (code.to_owned(), n)).into();
        assert_eq!(
            list(Book::Lost, &counts),
            "4 with the buffer from the kernel full; 3 with their end not seen; 1 a new one"
        );
    }
}
