//! The hosts' counters of all commands, carried into the joined stream.

use crate::joiner::Joiner;
use ntp_record::header::{Count, Role};
use std::collections::BTreeMap;

/// Counters of the host recordings that have ended.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Commands by device (as written), admin, opcode and bytes.
    groups: BTreeMap<(u32, bool, u8, u32), u64>,
    /// Begin and end of each recording, ns of wall clock.
    spans: Vec<(i64, i64)>,
    /// A recording has no final counters: the sums would be too small.
    missing: bool,
}

impl Joiner {
    /// A recording of an input has ended, with these counters if it was not cut off.
    pub(crate) fn count(&mut self, input: usize, recording: usize, groups: Option<&[Count]>) {
        let ended = &self.recordings[recording];
        if ended.header.role != Role::Host {
            return;
        }
        let Some(groups) = groups.filter(|groups| !groups.is_empty()) else {
            self.counted.missing = true;
            return;
        };
        let shift = self.domains[ended.domain].shift;
        let end = ended.end.unwrap_or(ended.pace.seen);
        let span = (ended.start.saturating_add(shift), end.saturating_add(shift));
        self.counted.spans.push(span);
        for group in groups {
            // Numbers until they are written; ids are one more.
            let dev = match group.admin {
                true => 0,
                false => self.dev_of(input, group.dev) + 1,
            };
            let key = (dev, group.admin, group.opcode, group.bytes);
            let sum = self.counted.groups.entry(key).or_default();
            *sum = sum.saturating_add(group.commands);
        }
    }

    /// Puts what was counted into the totals: all of it or nothing.
    pub(crate) fn write_counts(&mut self) {
        if self.counted.missing {
            return;
        }
        let sums = self.counted.groups.iter();
        self.totals.counts = sums
            .map(|((dev, admin, opcode, bytes), commands)| Count {
                dev: *dev,
                admin: *admin,
                opcode: *opcode,
                bytes: *bytes,
                commands: *commands,
            })
            .collect();
        self.totals.counted_ns = union(&mut self.counted.spans);
    }
}

/// Length of all spans together, ns: where they overlap they count once.
fn union(spans: &mut [(i64, i64)]) -> u64 {
    spans.sort_unstable();
    let (mut total, mut until) = (0u64, i64::MIN);
    for (from, to) in spans.iter() {
        let from = (*from).max(until);
        total = total.saturating_add(u64::try_from(to.saturating_sub(from)).unwrap_or(0));
        until = until.max(*to);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::union;

    #[test]
    fn overlapping_spans_count_once() {
        assert_eq!(union(&mut [(10, 20), (0, 5)]), 15);
        assert_eq!(union(&mut [(0, 10), (5, 15), (6, 7)]), 15);
        assert_eq!(union(&mut [(5, 3)]), 0);
        assert_eq!(union(&mut []), 0);
    }
}
