//! What inputs may look like: cut in pieces, without headers, in any order,
//! given twice, with a wrong time in between.
#![allow(dead_code, reason = "the simulation offers more than is used here")]

mod sim;

use ntp_join::run::{Job, run};
use ntp_join::{Joiner, Options, Sink, lines};
use ntp_record::Format;
use ntp_record::header::{Connection, Header};
use ntp_record::joined::{JoinTotals, Joined};
use ntp_record::record::Record;
use ntp_record::stream::Item;
use sim::{Clock, Link, Machine, Recording, World};
use std::collections::HashSet;
use std::io;
use std::path::Path;

#[derive(Default)]
struct Collect {
    pairs: Vec<(u32, u32)>,
    connections: usize,
    devices: usize,
    totals: JoinTotals,
    report: Vec<String>,
    recordings: usize,
}

impl Sink for Collect {
    fn item(&mut self, item: &Item<'_>) -> io::Result<()> {
        let numbers = |pair: &Joined| (pair.host.reserved, pair.target.reserved);
        match item {
            Item::Joined(joined) => self.pairs.extend(joined.iter().map(numbers)),
            Item::Connection(_) => self.connections += 1,
            Item::Device(_) => self.devices += 1,
            Item::JoinTotals(totals) => self.totals = totals.clone(),
            _ => {}
        }
        Ok(())
    }
}

/// A stretch of a recording, as an input has it.
struct Part<'a> {
    recording: &'a Recording,
    header: Header,
    records: &'a [Record],
    ends: Option<u64>,
}

fn whole(recording: &Recording) -> Part<'_> {
    Part {
        recording,
        header: recording.header.clone(),
        records: &recording.records,
        ends: Some(recording.totals.end_ns),
    }
}

fn items<'a>(part: &Part<'a>) -> Vec<Item<'a>> {
    let mut items = vec![Item::Header(part.header.clone())];
    let of = |id: u32| part.records.iter().any(|record| record.conn == id);
    let names = part.recording.connections.iter().filter(|conn| of(conn.id));
    items.extend(names.cloned().map(Item::Connection));
    items.extend(part.recording.devices.iter().cloned().map(Item::Device));
    items.extend(part.records.chunks(200).map(Item::Records));
    let totals = ntp_record::Totals {
        end_ns: part.ends.unwrap_or(0),
        ..part.recording.totals.clone()
    };
    items.extend(part.ends.map(|_| Item::Totals(totals)));
    items
}

/// Joins inputs of several parts each; no pair may be wrong, and the books are in order.
fn join(inputs: &[Vec<Part<'_>>]) -> Collect {
    let mut sink = Collect::default();
    let mut joiner = Joiner::new(inputs.len(), Options::default());
    let mut lists: Vec<_> = (inputs.iter())
        .map(|parts| parts.iter().flat_map(items).collect::<Vec<_>>().into_iter())
        .collect();
    while let Some(input) = joiner.next_input() {
        match lists[input].next() {
            Some(item) => joiner.push(input, &item),
            None => joiner.end_input(input),
        }
        joiner.advance(&mut sink).expect("advance");
    }
    joiner.finish(&mut sink).expect("finish");
    sink.report = lines(&joiner);
    sink.recordings = joiner.headers().count();
    assert!(sink.pairs.iter().all(|(host, target)| host == target));
    let JoinTotals { matched, .. } = sink.totals;
    let left = |left: &std::collections::BTreeMap<String, u64>| left.values().sum::<u64>();
    assert_eq!(sink.totals.host, matched + left(&sink.totals.host_left));
    assert_eq!(sink.totals.target, matched + left(&sink.totals.target_left));
    sink
}

/// Commands that both sides have.
fn common(hosts: &[Recording], targets: &[Recording]) -> usize {
    let ids = |side: &[Recording]| -> HashSet<u32> {
        let records = side.iter().flat_map(|recording| &recording.records);
        records.map(|record| record.reserved).collect()
    };
    ids(hosts).intersection(&ids(targets)).count()
}

#[test]
fn lines_of_both_sides_in_turn_are_two_recordings() {
    let (hosts, targets) = World::new(3, 60).run();
    let bare = |recording: &Recording| Header {
        version: String::new(),
        boot_id: String::new(),
        kernel: String::new(),
        machine_id: String::new(),
        start_ns: 0,
        wall_minus_mono_ns: 0,
        ..recording.header.clone()
    };
    let part = |recording, record| Part {
        recording,
        header: bare(recording),
        records: std::slice::from_ref(record),
        ends: None,
    };
    let mut parts = Vec::new();
    for record in &hosts[0].records {
        let mut there = targets[0].records.iter();
        if let Some(other) = there.find(|other| other.reserved == record.reserved) {
            parts.push(part(&hosts[0], record));
            parts.push(part(&targets[0], other));
        }
    }
    let possible = parts.len() / 2;
    assert!(possible > 1_000);
    let found = join(&[parts]);
    assert_eq!(found.recordings, 2);
    assert_eq!((found.connections, found.devices), (2, 2));
    assert_eq!(found.pairs.len(), possible);
}

/// A recording as so many short ones, one after the other.
fn pieces(recording: &Recording, count: usize) -> Vec<Part<'_>> {
    let size = recording.records.len().div_ceil(count);
    let last = |records: &[Record]| records.iter().flat_map(|record| record.at).max();
    let mut start = recording.header.start_ns;
    (recording.records.chunks(size))
        .map(|records| {
            let end = last(records).expect("records").max(start);
            let header = Header {
                start_ns: start,
                ..recording.header.clone()
            };
            start = end;
            Part {
                recording,
                header,
                records,
                ends: Some(end),
            }
        })
        .collect()
}

#[test]
fn many_short_recordings_of_one_boot_have_the_connections_in_common() {
    let (hosts, targets) = World::new(4, 1_000).run();
    let found = join(&[pieces(&hosts[0], 1_000), pieces(&targets[0], 1_000)]);
    assert!(found.recordings > 1_900);
    assert_eq!((found.connections, found.devices), (2, 2));
    assert_eq!(found.pairs.len(), common(&hosts, &targets));
}

#[test]
fn a_connection_again_with_the_same_name_in_one_recording_is_another_one() {
    let mut world = World::new(5, 400);
    world.links[0].alive.1 = 200_000_000;
    let mut again = Link::new(0, 0, 41_000);
    again.alive.0 = 210_000_000;
    world.links.push(again);
    let (hosts, targets) = world.run();
    let names: Vec<&Connection> = hosts[0].connections.iter().collect();
    assert_eq!(names[0].local, names[1].local);
    let found = join(&[vec![whole(&hosts[0])], vec![whole(&targets[0])]]);
    assert_eq!(found.connections, 4);
    assert_eq!(found.pairs.len(), common(&hosts, &targets));
    // The host stopped in between, the target did not.
    let cut = hosts[0].records.iter().position(|record| record.conn == 8);
    let (first, second) = hosts[0].records.split_at(cut.expect("second link"));
    let part = |records, number| Part {
        records,
        header: Header {
            start_ns: hosts[0].header.start_ns + number,
            ..hosts[0].header.clone()
        },
        ..whole(&hosts[0])
    };
    let found = join(&[
        vec![part(first, 0), part(second, 1)],
        vec![whole(&targets[0])],
    ]);
    assert_eq!(found.pairs.len(), common(&hosts, &targets));
}

/// Two hosts and two targets that have nothing to do with each other.
fn two_pairs(sampling: [[u32; 2]; 2]) -> (Vec<Recording>, Vec<Recording>) {
    let mut world = World::new(6, 400);
    let clock = |at_zero| Clock {
        at_zero,
        ppm: 20.0,
        bend: None,
    };
    world.hosts.push(Machine::new("host-b"));
    world.targets.push(Machine::new("target-b"));
    world.links.push(Link::new(1, 1, 41_000));
    for (pair, [of_host, of_target]) in sampling.into_iter().enumerate() {
        let number = pair as i64;
        world.hosts[pair].clock = clock(1_000_000_000 * number);
        world.targets[pair].clock = clock(77_000_000_000 * (1 + number));
        world.hosts[pair].sampling = of_host;
        world.targets[pair].sampling = of_target;
    }
    world.run()
}

#[test]
fn pairs_of_different_sampling_do_not_disturb_each_other_in_any_order() {
    let (hosts, targets) = two_pairs([[1, 1], [4, 4]]);
    let all = [&hosts[0], &targets[0], &hosts[1], &targets[1]];
    let possible = common(&hosts, &targets);
    for order in [[0, 1, 2, 3], [3, 0, 2, 1], [0, 2, 1, 3], [2, 3, 1, 0]] {
        let parts: Vec<Part<'_>> = order.iter().map(|one| whole(all[*one])).collect();
        let inputs = order.iter().map(|one| vec![whole(all[*one])]).collect();
        for inputs in [vec![parts], inputs] {
            let found = join(&inputs);
            assert_eq!(found.pairs.len(), possible, "{order:?}");
            assert!(!found.report.iter().any(|line| line.contains("sampled")));
        }
    }
}

#[test]
fn joined_recordings_of_different_sampling_are_told_of() {
    let (hosts, targets) = two_pairs([[1, 4], [8, 8]]);
    let inputs = [&hosts[0], &targets[1], &targets[0], &hosts[1]];
    let found = join(&inputs.map(|one| vec![whole(one)]));
    assert_eq!(found.pairs.len(), common(&hosts, &targets));
    let told: Vec<_> = found
        .report
        .iter()
        .filter(|l| l.contains("sampled"))
        .collect();
    assert_eq!(told.len(), 1);
    assert!(
        told[0].contains("one command in 1 and one in 4"),
        "{told:?}"
    );
    // Known to be in nobody's sample, whatever was read first.
    let spare = hosts[0].records.len() - targets[0].records.len();
    let foreign = found.totals.host_left["not_sampled_by_the_other"];
    assert!(foreign.abs_diff(spare as u64) < 10, "{foreign} of {spare}");
}

#[test]
fn one_wrong_time_costs_one_command() {
    for side in 0..2 {
        for (all, late) in [(false, 100), (true, 100), (true, 3_600), (false, 1 << 28)] {
            let (mut hosts, mut targets) = World::new(7, 400).run();
            let possible = common(&hosts, &targets);
            let recording = if side == 0 {
                &mut hosts[0]
            } else {
                &mut targets[0]
            };
            let record = &mut recording.records[2_000];
            let last = record.present.ilog2() as usize;
            for at in if all { 0..=last } else { last..=last } {
                record.at[at] += late * 1_000_000_000;
            }
            let found = join(&[vec![whole(&hosts[0])], vec![whole(&targets[0])]]);
            assert_eq!(found.pairs.len(), possible - 1, "{side} {all} {late}");
            let left = [&found.totals.host_left, &found.totals.target_left][side];
            assert_eq!(left["no_times"], 1);
        }
    }
}

/// No recorder writes it, damage may: a record behind the totals of its
/// recording, long after their end.
#[test]
fn a_record_behind_the_totals_is_in_the_books() {
    let (hosts, targets) = World::new(7, 100).run();
    let mut late = hosts[0].records[50];
    for at in &mut late.at {
        *at += 60_000_000_000;
    }
    let mut host = items(&whole(&hosts[0]));
    host.push(Item::Records(std::slice::from_ref(&late)));
    let mut joiner = Joiner::new(2, Options::default());
    let mut sink = Collect::default();
    for (input, items) in [host, items(&whole(&targets[0]))].iter().enumerate() {
        items.iter().for_each(|item| joiner.push(input, item));
        joiner.end_input(input);
    }
    joiner.finish(&mut sink).expect("finish");
    let left: u64 = sink.totals.host_left.values().sum();
    assert_eq!(sink.totals.host, hosts[0].records.len() as u64 + 1);
    assert_eq!(sink.totals.host, sink.totals.matched + left);
    assert_eq!(sink.totals.host_left["no_times"], 1);
}

fn write(path: &Path, recordings: &[&Recording]) -> String {
    let file = std::fs::File::create(path).expect("file");
    let mut writer = ntp_record::Writer::new(file, Format::Binary);
    for item in recordings.iter().flat_map(|one| items(&whole(one))) {
        writer.item(&item).expect("write");
    }
    writer.flush().expect("flush");
    path.to_str().expect("path").to_owned()
}

#[test]
fn a_recording_given_twice_is_refused() {
    let (hosts, targets) = World::new(8, 20).run();
    let dir = tempfile::tempdir().expect("dir");
    let host = write(&dir.path().join("a"), &[&hosts[0]]);
    let copy = write(&dir.path().join("b"), &[&hosts[0]]);
    let twice = write(&dir.path().join("c"), &[&hosts[0], &hosts[0]]);
    let target = write(&dir.path().join("t"), &[&targets[0]]);
    let job = |files: &[&String]| {
        let job = Job {
            files: files.iter().map(|file| (*file).clone()).collect(),
            output: Some(dir.path().join("o").to_str().expect("path").to_owned()),
            format: Format::Binary,
            options: Options::default(),
        };
        run(&job).map_err(|error| error.to_string())
    };
    assert!(job(&[&host, &target]).is_ok());
    assert_eq!(
        job(&[&host, &target, &copy]).expect_err("given twice"),
        format!("{copy}: the same recording as {host}: give it once")
    );
    assert_eq!(
        job(&[&target, &twice]).expect_err("twice in one"),
        format!("{twice}: holds the same recording twice: give it once")
    );
}
