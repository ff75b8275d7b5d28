//! Whatever points a command has: its components add up to its end to end, to
//! the nanosecond, and no time depends on how far the two clocks are apart.

mod util;

use ntp_record::row::{Kind, Row};
use ntp_record::{Flags, Item, Joined, Record};
use std::collections::BTreeMap;
use util::*;

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A record with most of its points, in any order.
fn record(random: &mut Random, shift: u64) -> Record {
    let mut record = read();
    record.opcode = [0, 1, 2, 5, 9][random.below(5) as usize];
    record.flags = (random.next() as u16)
        & (Flags::InCapsule as u16 | Flags::R2t as u16 | Flags::Passthrough as u16);
    record.present = (random.next() | random.next() | random.next()) as u16;
    for at in &mut record.at {
        *at = shift + random.below(1 << 40);
    }
    record
}

/// Sum of the top-level components of a group of one command.
fn sum(rows: &[Row]) -> f64 {
    components(rows)
        .iter()
        .filter(|c| c.kind == Kind::Sum)
        .filter_map(|c| c.time.mean_ns)
        .sum()
}

/// Times by component.
fn times(rows: &[Row]) -> BTreeMap<String, Option<f64>> {
    components(rows)
        .iter()
        .map(|c| (c.component.clone(), c.time.mean_ns))
        .collect()
}

fn one(items: Vec<Item<'static>>, command: Item<'_>) -> Vec<Row> {
    let mut all = items;
    all.push(match command {
        // The slices live as long as the test needs them.
        Item::Records(records) => Item::Records(records.to_vec().leak()),
        Item::Joined(joined) => Item::Joined(joined.to_vec().leak()),
        other => panic!("{other:?}"),
    });
    rows(&all)
}

#[test]
fn components_of_any_command_add_up_and_clocks_cancel() {
    let mut random = Random(1);
    let mut reported = 0;
    for round in 0..6000 {
        let start = 1 << 41;
        let host = record(&mut random, start);
        let target = record(&mut random, start);
        let (rows, moved) = match round % 3 {
            0 => (
                one(names(ntp_record::Role::Host, 1), Item::Records(&[host])),
                None,
            ),
            1 => (
                one(names(ntp_record::Role::Target, 1), Item::Records(&[target])),
                None,
            ),
            _ => {
                let apart = random.below(1 << 40);
                let joined = Joined {
                    host,
                    target,
                    offset_ns: 0,
                    offset_bound_ns: u64::MAX,
                };
                let mut moved = joined;
                moved.target.at.iter_mut().for_each(|at| *at += apart);
                (
                    one(joined_names(1), Item::Joined(&[joined])),
                    Some(one(joined_names(1), Item::Joined(&[moved]))),
                )
            }
        };
        let totals = totals_row(&rows);
        assert_eq!(totals.sum_mismatches, 0, "{rows:?}");
        let left_out: u64 = totals.left_out.values().sum();
        assert_eq!(
            totals.reported + left_out,
            1,
            "a record is in the report or in the books"
        );
        if let [group] = groups(&rows)[..] {
            reported += 1;
            assert_eq!(Some(sum(&rows)), group.latency.mean_ns, "{rows:?}");
            let stages: f64 = stages(&rows).iter().map(|s| s.per_command_ns).sum();
            assert_eq!(Some(stages), group.latency.mean_ns);
            for parent in components(&rows) {
                let parts: Vec<f64> = components(&rows)
                    .iter()
                    .filter(|c| {
                        c.kind == Kind::Part && c.parent.as_ref() == Some(&parent.component)
                    })
                    .filter_map(|c| c.time.mean_ns)
                    .collect();
                if !parts.is_empty() {
                    assert_eq!(Some(parts.iter().sum()), parent.time.mean_ns);
                }
            }
        }
        if let Some(moved) = moved {
            assert_eq!(times(&rows), times(&moved), "a time depends on the clocks");
        }
    }
    assert!(
        reported > 3000,
        "{reported} commands are too few to show anything"
    );
}

#[test]
fn timestamps_that_are_noise_do_no_harm() {
    let mut random = Random(2);
    for _ in 0..2000 {
        let mut noise = || {
            let mut record = record(&mut random, 0);
            record.at.iter_mut().for_each(|at| *at = random.next());
            record.present = 0xffff;
            record
        };
        let joined = Joined {
            host: noise(),
            target: noise(),
            offset_ns: i64::MIN,
            offset_bound_ns: 1,
        };
        let rows = one(joined_names(1), Item::Joined(&[joined]));
        assert_eq!(totals_row(&rows).sum_mismatches, 0);
    }
}
