//! How far a recording was read: records come nearly in the order of their
//! ends, so one that lies far after the rest has a wrong time. It must not
//! move the time forward for the others, whose partners would be given up.
//!
//! The rule: an end up to [`JUMP`] after the latest moment read is believed
//! at once. A record with a later one waits; when [`FEW`] wait together the
//! load had paused, and the earliest of them is believed; when [`FEW`] others
//! were believed meanwhile, or the recording ended before it, its time is wrong.

/// Records that are never held back end no later than this after the last moment, ns.
const JUMP: i64 = 1_000_000_000;
/// So many records are not wrong together.
const FEW: usize = 8;

/// Of one recording.
#[derive(Debug)]
pub struct Pace<T> {
    /// Last moment read so far, ns of the recording's clock.
    pub seen: i64,
    /// Records that end far after it, with their ends.
    waiting: Vec<(i64, T)>,
    /// Records believed since the last of those came.
    since: usize,
}

/// Records that wait no longer.
#[derive(Debug, PartialEq, Eq)]
pub struct Freed<T> {
    /// Whose time is right after all.
    pub right: Vec<T>,
    /// Whose time is wrong.
    pub wrong: Vec<T>,
}

impl<T: Copy> Pace<T> {
    /// From this moment on, ns.
    pub fn new(seen: i64) -> Self {
        Pace {
            seen,
            waiting: Vec::new(),
            since: 0,
        }
    }

    /// Takes in a record that ends at `over`, ns: false when it has to wait.
    #[inline]
    pub fn take(&mut self, over: i64, record: T) -> bool {
        if over <= self.seen.saturating_add(JUMP) {
            self.seen = self.seen.max(over);
            self.since += 1;
            return true;
        }
        self.waiting.push((over, record));
        self.since = 0;
        false
    }

    /// Whether [`Pace::free`] is worth it.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.waiting.is_empty() && (self.waiting.len() >= FEW || self.since >= FEW)
    }

    /// The records about which more is known by now.
    pub fn free(&mut self) -> Freed<T> {
        let mut freed = Freed {
            right: Vec::new(),
            wrong: Vec::new(),
        };
        self.release(&mut freed.right);
        while self.waiting.len() >= FEW {
            let earliest = self.waiting.iter().map(|(over, _)| *over).min();
            self.seen = self.seen.max(earliest.unwrap_or(self.seen));
            self.release(&mut freed.right);
        }
        if self.since >= FEW {
            let wrong = self.waiting.drain(..).map(|(_, record)| record);
            freed.wrong = wrong.collect();
        }
        freed
    }

    /// The rest, when nothing more comes; `known` when the recording says
    /// when it ended. Else nobody can tell, and all are believed.
    pub fn end(&mut self, known: Option<i64>) -> Freed<T> {
        let latest = self.waiting.iter().map(|(over, _)| *over).max();
        if let Some(moment) = known.or(latest) {
            self.seen = self.seen.max(moment);
        }
        let mut freed = self.free();
        self.release(&mut freed.right);
        freed
            .wrong
            .extend(self.waiting.drain(..).map(|(_, record)| record));
        freed
    }

    /// Takes out what is believed by now.
    fn release(&mut self, right: &mut Vec<T>) {
        let mut believed = true;
        while believed {
            let limit = self.seen.saturating_add(JUMP);
            let mut latest = self.seen;
            self.waiting.retain(|(over, record)| {
                let wait = *over > limit;
                if !wait {
                    latest = latest.max(*over);
                    right.push(*record);
                }
                wait
            });
            believed = latest > self.seen;
            self.seen = latest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ntp_record::record::Record;

    const SECOND: i64 = 1_000_000_000;

    /// Takes ends in; gives those believed and those found wrong.
    fn read(pace: &mut Pace<Record>, ends: &[i64]) -> (Vec<u64>, Vec<u64>) {
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for over in ends {
            let record = Record {
                slba: *over as u64,
                ..Record::default()
            };
            if pace.take(*over, record) {
                right.push(record.slba);
            }
            if pace.is_due() {
                let freed = pace.free();
                right.extend(freed.right.iter().map(|record| record.slba));
                wrong.extend(freed.wrong.iter().map(|record| record.slba));
            }
        }
        (right, wrong)
    }

    #[test]
    fn one_far_off_moves_nothing() {
        let mut pace = Pace::new(0);
        let ends: Vec<i64> = (1..=20)
            .map(|i| if i == 5 { 100 * SECOND } else { i * 1_000 })
            .collect();
        let (right, wrong) = read(&mut pace, &ends);
        assert_eq!(right.len(), 19);
        assert_eq!(wrong, [100 * SECOND as u64]);
        assert_eq!(pace.seen, 20_000);
    }

    #[test]
    fn after_a_pause_all_are_believed() {
        let mut pace = Pace::new(0);
        let ends: Vec<i64> = (0..30).map(|i| i * 1_000 + i / 10 * 60 * SECOND).collect();
        let (right, wrong) = read(&mut pace, &ends);
        assert_eq!((right.len(), wrong.len()), (30, 0));
        assert_eq!(pace.seen, 2 * 60 * SECOND + 29_000);
    }

    #[test]
    fn few_commands_an_hour_are_all_believed_by_the_end() {
        let mut pace = Pace::new(0);
        let ends: Vec<i64> = (0..20).map(|i| i * 100 * SECOND).collect();
        let (right, wrong) = read(&mut pace, &ends);
        let rest = pace.end(Some(2_000 * SECOND));
        assert_eq!(right.len() + rest.right.len(), 20);
        assert_eq!((wrong.len(), rest.wrong.len()), (0, 0));
    }

    #[test]
    fn what_lies_after_the_end_is_wrong() {
        let mut pace = Pace::new(0);
        read(&mut pace, &[5, 100 * SECOND, 6]);
        let rest = pace.end(Some(7));
        assert_eq!((rest.right.len(), rest.wrong.len()), (0, 1));
        assert_eq!(pace.seen, 7);
        // A recording that was cut off does not say.
        let mut pace = Pace::new(0);
        read(&mut pace, &[5, 100 * SECOND, 6]);
        assert_eq!(pace.end(None).right.len(), 1);
    }
}
