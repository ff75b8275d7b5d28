//! What a stream tells beside its commands: rates, intervals, losses, names.

mod util;

use ntp_record::point::{host as h, target as t};
use ntp_record::row::{Group, KeyValue, RateIs, Row, View};
use ntp_record::{Damage, Device, Flags, Item, JoinTotals, Record, Role};
use ntp_stages::{By, Options};
use util::*;

/// A host read that begins so many us after the recording and takes so long.
fn host_read(begin_us: u64, us: i64) -> Record {
    Way::new(read(), START + begin_us * 1000, h::BLOCK_START)
        .step(1000, h::DRIVER_START)
        .step(us * 1000 - 1000, h::COMPLETED)
        .record
}

fn value<'a>(group: &'a Group, name: &str) -> &'a KeyValue {
    group.key.get(name).unwrap()
}

#[test]
fn counted_commands_make_the_rate() {
    // 3 of a sample of 1 in 10; 40 counted in the 2 s that the recording ran.
    let records: Vec<Record> = (0..3).map(|i| host_read(i * 100_000, 50)).collect();
    let mut items = names(Role::Host, 10);
    items.push(Item::Records(&records));
    items.push(Item::Totals(totals(
        START + 2_000_000_000,
        &[(2, 4096, 40), (1, 4096, 7)],
    )));
    let rows = rows(&items);
    let group = groups(&rows)[0];
    assert_eq!(
        (group.commands, group.rate, group.rate_is),
        (Some(40), Some(20.0), Some(RateIs::Counted))
    );
    assert_eq!(
        (group.bytes_per_s, group.seconds),
        (Some(20.0 * 4096.0), Some(2.0))
    );
    assert!((group.l.unwrap() - 20.0 * 50e-6).abs() < 1e-12);
}

#[test]
fn a_sample_makes_an_estimate_where_nothing_was_counted() {
    let records: Vec<Record> = (0..3).map(|i| host_read(i * 100_000, 50)).collect();
    let mut items = names(Role::Host, 10);
    items.push(Item::Records(&records));
    items.push(Item::Totals(totals(START + 2_000_000_000, &[])));
    let by = Options {
        by: By::parse("qid").unwrap(),
        ..Options::default()
    };
    for rows in [rows(&items), rows_with(by, &items)] {
        let group = groups(&rows)[0];
        assert_eq!(
            (group.commands, group.rate, group.rate_is),
            (None, Some(15.0), Some(RateIs::Estimated))
        );
    }
}

#[test]
fn joined_commands_are_counted_by_their_hosts() {
    let times = ReadTimes {
        host: [1, 2],
        wire_out: 3,
        target: [1; 8],
        wire_back: 4,
        host_back: [5; 5],
    };
    let joined = [joined_read(times, START, 0, 0)];
    let mut items = joined_names(100);
    items.push(Item::Joined(&joined));
    let counts = totals(0, &[(2, 4096, 500)]).groups;
    items.push(Item::JoinTotals(JoinTotals {
        counts,
        counted_ns: 2_000_000_000,
        ..join_totals(1, 1, 1)
    }));
    let rows = rows(&items);
    assert_eq!(
        (groups(&rows)[0].commands, groups(&rows)[0].rate),
        (Some(500), Some(250.0))
    );
}

#[test]
fn recordings_one_after_the_other_add_up() {
    let records: Vec<Record> = (0..3).map(|i| host_read(i * 100_000, 50)).collect();
    let mut items = Vec::new();
    for start_s in [0, 100] {
        for mut item in names(Role::Host, 10) {
            if let Item::Header(header) = &mut item {
                header.wall_minus_mono_ns += start_s * 1_000_000_000;
            }
            items.push(item);
        }
        items.push(Item::Records(&records));
        items.push(Item::Totals(totals(
            START + 2_000_000_000,
            &[(2, 4096, 40)],
        )));
    }
    let rows = rows(&items);
    let group = groups(&rows)[0];
    assert_eq!(
        (group.latency.n, group.commands, group.seconds),
        (6, Some(80), Some(4.0))
    );
    assert_eq!(totals_row(&rows).segments, 2);
}

#[test]
fn the_same_number_means_another_device_in_another_segment() {
    let records = [host_read(0, 50)];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    items.extend(names(Role::Host, 1));
    items.push(Item::Device(Device {
        name: "nvme7n1".into(),
        ..device(1, "")
    }));
    items.push(Item::Records(&records));
    let rows = rows(&items);
    let names: Vec<&KeyValue> = groups(&rows)
        .iter()
        .map(|group| value(group, "device"))
        .collect();
    assert_eq!(
        names,
        [
            &KeyValue::Text("nvme0n1".into()),
            &KeyValue::Text("nvme7n1".into())
        ]
    );
    // Neither has totals.
    assert_eq!(totals_row(&rows).cut_off, 2);
    assert!(warnings(&rows).contains(&"cut-off"));
}

#[test]
fn sides_are_never_mixed() {
    let target = Way::new(read(), START, t::ARRIVED)
        .step(500, t::EXECUTE)
        .step(1000, t::RESP_QUEUED)
        .record;
    let host = [host_read(0, 50)];
    let target = [Record {
        present: target.present | 1 << t::RECEIVED.index,
        ..target
    }];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&host));
    items.extend(names(Role::Target, 1));
    items.push(Item::Records(&target));
    let rows = rows_with(
        Options {
            by: By::parse("op").unwrap(),
            ..Options::default()
        },
        &items,
    );
    let views: Vec<View> = groups(&rows).iter().map(|group| group.view).collect();
    assert_eq!(views, [View::Host, View::Target]);
}

#[test]
fn half_a_command_is_counted_and_no_latency() {
    let no_end = Way::new(read(), START, h::BLOCK_START)
        .step(5, h::DRIVER_START)
        .step(5, h::RESP_ARRIVED)
        .record;
    let records = [
        no_end,
        host_read(0, 50),
        Record {
            present: 0,
            ..read()
        },
    ];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    let rows = rows(&items);
    let totals = totals_row(&rows);
    assert_eq!((totals.host, totals.reported), (3, 1));
    let left: Vec<(&str, u64)> = totals
        .left_out
        .iter()
        .map(|(what, n)| (what.as_str(), *n))
        .collect();
    assert_eq!(
        left,
        [("the end on the host", 1), ("the start on the host", 1)]
    );
    assert_eq!(groups(&rows)[0].latency.mean_ns, Some(50_000.0));
}

#[test]
fn endings_are_counted_and_can_be_told_apart() {
    let failed = Record {
        status: 0x281,
        ..host_read(0, 50)
    };
    let retried = Record {
        flags: Flags::Retried as u16 | Flags::TimedOut as u16,
        ..host_read(100, 5_000_000)
    };
    let records = [failed, retried, host_read(200, 70)];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    let all = rows(&items);
    let group = groups(&all)[0];
    assert_eq!(
        (
            group.latency.n,
            group.failed,
            group.retried,
            group.timed_out
        ),
        (3, 1, 1, 1)
    );
    // Slower than 32 bits of nanoseconds, and exact.
    assert_eq!(group.latency.max_ns, Some(5_000_000_000));
    let split = rows_with(
        Options {
            by: By::parse("status").unwrap(),
            ..Options::default()
        },
        &items,
    );
    let by_status: Vec<(&KeyValue, u64)> = groups(&split)
        .iter()
        .map(|group| (value(group, "status"), group.latency.n))
        .collect();
    assert_eq!(
        by_status,
        [(&KeyValue::Number(0), 2), (&KeyValue::Number(0x281), 1)]
    );
}

#[test]
fn too_many_groups_share_one_and_it_is_said() {
    let records: Vec<Record> = (0..5)
        .map(|i| Record {
            bytes: 512 << i,
            ..host_read(0, 50)
        })
        .collect();
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    let rows = rows_with(
        Options {
            max_groups: 2,
            ..Options::default()
        },
        &items,
    );
    let sizes: Vec<(bool, u64)> = groups(&rows)
        .iter()
        .map(|group| (group.other, group.latency.n))
        .collect();
    assert_eq!(sizes, [(true, 3), (false, 1), (false, 1)]);
    assert!(warnings(&rows).contains(&"too-many-groups"));
    assert_eq!(totals_row(&rows).reported, 5);
}

#[test]
fn losses_come_through() {
    let records = [host_read(0, 50)];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    items.push(Item::Damage(Damage {
        offset: 700,
        bytes: 176,
        cause: "checksum does not match".into(),
    }));
    let mut totals = totals(START + 1_000_000_000, &[]);
    totals.lost.insert("ring buffer full".into(), 12);
    totals.lost.insert("map full".into(), 0);
    totals.unfinished = 3;
    items.push(Item::Totals(totals));
    let rows = rows(&items);
    let totals = totals_row(&rows);
    assert_eq!(
        (
            totals.damaged,
            totals.damaged_bytes,
            totals.unfinished,
            totals.cut_off
        ),
        (1, 176, 3, 0)
    );
    // A cause that did not occur stays, as 0.
    assert_eq!(totals.lost.values().copied().collect::<Vec<_>>(), [0, 12]);
    assert_eq!(warnings(&rows), ["few-samples", "damaged", "lost"]);
}

#[test]
fn a_joined_command_without_a_target_side_shows_what_the_host_saw() {
    let times = ReadTimes {
        host: [1, 2],
        wire_out: 3,
        target: [1; 8],
        wire_back: 4,
        host_back: [5; 5],
    };
    let mut joined = [
        joined_read(times, START, 0, 0),
        joined_read(times, START + 100, 0, 0),
    ];
    joined[0].target.present = 1 << t::ARRIVED.index;
    let mut items = joined_names(1);
    items.push(Item::Joined(&joined));
    let rows = rows(&items);
    assert_eq!(
        (groups(&rows)[0].latency.n, groups(&rows)[0].with_target),
        (2, 1)
    );
    // 3 out, 8 held, 4 back.
    let unrecorded = component(&rows, "network and target (not recorded)");
    assert_eq!(
        (unrecorded.time.n, unrecorded.time.mean_ns),
        (1, Some(15.0))
    );
    assert_eq!(component(&rows, "drive").time.n, 1);
    assert_eq!(totals_row(&rows).in_order_of, 1);
}

#[test]
fn intervals_come_as_they_end_and_add_up() {
    // Ends at 0.5, 0.9, 1.5, 3.2 s; one that ended at 0.7 comes after its interval was written.
    let at = |ms: u64| host_read(ms * 1000 - 100, 100);
    let (a, b) = ([at(500), at(900)], [at(1500)]);
    let (c, late) = ([at(3200)], [at(700)]);
    let mut engine = ntp_stages::Engine::new(Options {
        interval_ns: Some(1_000_000_000),
        ..Options::default()
    });
    names(Role::Host, 10)
        .iter()
        .for_each(|item| engine.apply(item));
    let mut spans = Vec::new();
    let mut take = |engine: &mut ntp_stages::Engine| {
        for row in engine.take_rows() {
            if let Row::Interval(interval) = row {
                spans.push((
                    interval.interval.from_s,
                    interval.interval.to_s,
                    interval.records,
                ));
            }
        }
        spans.len()
    };
    engine.apply(&Item::Records(&a));
    engine.apply(&Item::Records(&b));
    // A second has passed since, but a recorder may hold back for one more.
    assert_eq!(take(&mut engine), 0);
    engine.apply(&Item::Counts(counts(START + 2_000_000_000)));
    assert_eq!(take(&mut engine), 1);
    engine.apply(&Item::Records(&c));
    engine.apply(&Item::Records(&late));
    engine.apply(&Item::Totals(totals(START + 3_500_000_000, &[])));
    take(&mut engine);
    let rows = engine.finish();
    let rest: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            if let Row::Interval(i) = row {
                Some((i.interval.from_s, i.interval.to_s, i.records))
            } else {
                None
            }
        })
        .collect();
    spans.extend(rest);
    // Nothing ended in the third second; the last interval is as long as it lasted.
    assert_eq!(spans, [(0.0, 1.0, 2), (1.0, 2.0, 1), (3.0, 3.5, 1)]);
    let whole = groups(&rows)
        .into_iter()
        .find(|group| group.interval.is_none())
        .unwrap();
    assert_eq!((whole.latency.n, totals_row(&rows).late), (5, 1));
    assert!(warnings(&rows).contains(&"late"));
}

#[test]
fn intervals_change_nothing_in_the_totals() {
    let records: Vec<Record> = (0..500)
        .map(|i| host_read(i * 9_973, 50 + i as i64 % 90))
        .collect();
    let stream = |options: Options| {
        let mut items = names(Role::Host, 10);
        items.extend(records.chunks(37).map(Item::Records));
        items.push(Item::Totals(totals(
            START + 6_000_000_000,
            &[(2, 4096, 5000)],
        )));
        let mut rows = rows_with(options, &items);
        let last_report = rows
            .iter()
            .rposition(|row| matches!(row, Row::Report(_)))
            .unwrap();
        rows.split_off(last_report + 1)
    };
    let whole = stream(Options::default());
    let pieces = stream(Options {
        interval_ns: Some(300_000_000),
        ..Options::default()
    });
    assert_eq!(whole, pieces);
}

#[test]
fn absurd_counters_stick_at_the_limit() {
    let records = [host_read(0, 50)];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    let mut totals = totals(u64::MAX, &[(2, 4096, u64::MAX), (2, 4096, u64::MAX)]);
    totals.unfinished = u64::MAX;
    totals.lost.insert("ring buffer full".into(), u64::MAX);
    items.push(Item::Totals(totals));
    items.extend(items.clone());
    let damage = Damage {
        offset: 0,
        bytes: u64::MAX,
        cause: "cut off".into(),
    };
    items.extend([Item::Damage(damage.clone()), Item::Damage(damage)]);
    let huge = JoinTotals {
        host: u64::MAX,
        matched: u64::MAX,
        host_inside: u64::MAX,
        ..JoinTotals::default()
    };
    items.extend([Item::JoinTotals(huge.clone()), Item::JoinTotals(huge)]);
    let rows = rows_with(
        Options {
            interval_ns: Some(1),
            ..Options::default()
        },
        &items,
    );
    assert_eq!(totals_row(&rows).unfinished, u64::MAX);
}

#[test]
fn a_recording_that_was_cut_off_did_not_count_its_commands() {
    // The last counters were read after 2 s; a record of 2.5 s follows them.
    let records = [host_read(0, 50), host_read(2_500_000, 50)];
    let mut items = names(Role::Host, 10);
    items.push(Item::Records(&records[..1]));
    items.push(Item::Counts(ntp_record::Counts {
        groups: totals(0, &[(2, 4096, 1)]).groups,
        ..counts(START + 2_000_000_000)
    }));
    items.push(Item::Records(&records[1..]));
    let rows = rows(&items);
    let group = groups(&rows)[0];
    assert_eq!((group.latency.n, group.commands), (2, None));
    assert_eq!(group.rate_is, Some(RateIs::Estimated));
    // Twenty in the 2.50005 s up to the last record's end.
    assert!((group.seconds.unwrap() - 2.50005).abs() < 1e-9);
    assert!((group.rate.unwrap() - 20.0 / 2.50005).abs() < 1e-9);
}

#[test]
fn one_command_is_one() {
    let records = [host_read(0, 50)];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    items.push(Item::Totals(totals(START + 1_000_000_000, &[])));
    let rows = rows(&items);
    let text = rows.iter().find_map(|row| match row {
        Row::Warning(warning) => Some(warning.text.as_str()),
        _ => None,
    });
    assert!(text.unwrap().starts_with("1 command is too few for p50, "));
}
