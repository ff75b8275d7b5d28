//! Joins simulated recordings whose truth is known. In all of them: no wrong
//! pair, the true offset inside the bound of each pair, every record
//! accounted for exactly.

mod sim;

use ntp_join::{Joiner, Options, Sink};
use ntp_record::joined::{JoinTotals, Joined};
use ntp_record::stream::Item;
use sim::{Clock, Link, Machine, Recording, World};
use std::collections::{HashMap, HashSet};
use std::io;

#[derive(Default)]
struct Collect {
    joined: Vec<Joined>,
    connections: HashSet<u32>,
    totals: Option<JoinTotals>,
}

impl Sink for Collect {
    fn item(&mut self, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Joined(joined) => {
                for pair in *joined {
                    assert!(self.connections.contains(&pair.host.conn));
                    assert!(self.connections.contains(&pair.target.conn));
                }
                self.joined.extend_from_slice(joined);
            }
            Item::Connection(connection) => {
                self.connections.insert(connection.id);
            }
            Item::JoinTotals(totals) => self.totals = Some(totals.clone()),
            _ => {}
        }
        Ok(())
    }
}

/// A recording as a list of inputs' items.
enum Step<'a> {
    Item(Box<Item<'a>>),
    Advance,
}

impl<'a> Step<'a> {
    fn item(item: Item<'a>) -> Self {
        Step::Item(Box::new(item))
    }
}

fn steps(recording: &Recording, chunk: usize) -> Vec<Step<'_>> {
    let mut steps = vec![Step::item(Item::Header(recording.header.clone()))];
    let names = recording.connections.iter().cloned().map(Item::Connection);
    let mut names: HashMap<u32, Item<'_>> = recording
        .connections
        .iter()
        .map(|c| c.id)
        .zip(names)
        .collect();
    steps.extend(
        recording
            .devices
            .iter()
            .cloned()
            .map(Item::Device)
            .map(Step::item),
    );
    for records in recording.records.chunks(chunk) {
        // As a recorder does: a name comes just before its first record.
        for record in records {
            steps.extend(names.remove(&record.conn).map(Step::item));
        }
        steps.push(Step::item(Item::Records(records)));
        steps.push(Step::Advance);
    }
    steps.push(Step::item(Item::Totals(recording.totals.clone())));
    steps
}

struct Outcome {
    joined: Vec<Joined>,
    totals: JoinTotals,
    report: Vec<String>,
    possible: u64,
    mean_bound: f64,
}

impl Outcome {
    fn share(&self) -> f64 {
        self.joined.len() as f64 / self.possible as f64
    }

    fn left(&self, side: char, cause: &str) -> u64 {
        let left = if side == 'h' {
            &self.totals.host_left
        } else {
            &self.totals.target_left
        };
        left.get(cause).copied().unwrap_or(0)
    }
}

fn run(world: &World) -> Outcome {
    run_with(world, Options::default(), 500)
}

fn run_with(world: &World, options: Options, chunk: usize) -> Outcome {
    let (hosts, targets) = world.run();
    // Order of the files must not matter: targets first here.
    let inputs: Vec<Vec<&Recording>> = targets.iter().chain(&hosts).map(|r| vec![r]).collect();
    join(world, &inputs, options, chunk)
}

fn join(world: &World, inputs: &[Vec<&Recording>], options: Options, chunk: usize) -> Outcome {
    let mut sink = Collect::default();
    let mut joiner = feed(inputs, options, chunk, &mut sink);
    joiner.finish(&mut sink).expect("finish");
    assert_eq!(joiner.copies(), 0);
    let report = ntp_join::lines(&joiner);
    check(world, inputs, sink, report)
}

/// Feeds all inputs as the tool does.
fn feed(inputs: &[Vec<&Recording>], options: Options, chunk: usize, sink: &mut Collect) -> Joiner {
    let mut joiner = Joiner::new(inputs.len(), options);
    let mut lists: Vec<_> = (inputs.iter())
        .map(|parts| {
            parts
                .iter()
                .flat_map(|part| steps(part, chunk))
                .collect::<Vec<_>>()
                .into_iter()
        })
        .collect();
    let mut held = 0;
    while let Some(input) = joiner.next_input() {
        held = held.max(joiner.held());
        match lists[input].next() {
            Some(Step::Item(item)) => joiner.push(input, &item),
            Some(Step::Advance) => joiner.advance(sink).expect("advance"),
            None => {
                joiner.end_input(input);
                joiner.advance(sink).expect("advance");
            }
        }
    }
    println!("held at most {held}");
    assert!(held <= options.window + 2 * chunk, "window");
    joiner
}

fn check(world: &World, inputs: &[Vec<&Recording>], sink: Collect, report: Vec<String>) -> Outcome {
    let recordings = || inputs.iter().flatten();
    let ids = |role| -> HashSet<u32> {
        recordings()
            .filter(|r| r.header.role == role)
            .flat_map(|r| r.records.iter().map(|r| r.reserved))
            .collect()
    };
    let (host, target) = (ids(ntp_record::Role::Host), ids(ntp_record::Role::Target));
    let possible = host.intersection(&target).count() as u64;
    let totals = sink.totals.expect("totals");
    let (mut wrong, mut outside, mut bounds) = (0, 0, 0.0);
    let mut seen = HashSet::new();
    let links: HashMap<u32, usize> = recordings()
        .flat_map(|r| r.records.iter().map(|r| (r.reserved, r.conn as usize - 7)))
        .collect();
    for pair in &sink.joined {
        assert!(seen.insert(pair.host.reserved), "a command twice");
        if pair.host.reserved != pair.target.reserved {
            wrong += 1;
            println!(
                "wrong: {} {} sent {} held {}",
                pair.host.reserved,
                pair.target.reserved,
                pair.host.at[2],
                pair.target.at[13] - pair.target.at[0]
            );
        }
        let bound = i128::from(pair.offset_bound_ns);
        bounds += pair.offset_bound_ns as f64;
        let link = &world.links[links[&pair.host.reserved]];
        for theta in truth(link, world, pair) {
            if (i128::from(theta) - i128::from(pair.offset_ns)).abs() > bound {
                outside += 1;
            }
        }
    }
    // The books.
    let matched = sink.joined.len() as u64;
    let read = |role| -> u64 {
        recordings()
            .filter(|r| r.header.role == role)
            .map(|r| r.records.len() as u64)
            .sum()
    };
    assert_eq!(totals.matched, matched);
    assert_eq!(totals.host, read(ntp_record::Role::Host));
    assert_eq!(totals.target, read(ntp_record::Role::Target));
    assert_eq!(
        totals.host,
        matched + totals.host_left.values().sum::<u64>(),
        "{:?}",
        totals.host_left
    );
    assert_eq!(
        totals.target,
        matched + totals.target_left.values().sum::<u64>(),
        "{:?}",
        totals.target_left
    );
    assert!(totals.host_inside >= matched && totals.host_inside <= totals.host);
    let outcome = Outcome {
        possible,
        mean_bound: bounds / matched.max(1) as f64,
        totals,
        report,
        joined: sink.joined,
    };
    println!(
        "possible {possible} matched {matched} ({:.4} %) inside {} wrong {wrong} outside {outside} bound {:.1} us\n  host left {:?}\n  target left {:?}",
        100.0 * outcome.share(),
        outcome.totals.host_inside,
        outcome.mean_bound / 1e3,
        nonzero(&outcome.totals.host_left),
        nonzero(&outcome.totals.target_left),
    );
    for line in &outcome.report {
        println!("  {line}");
    }
    assert_eq!(wrong, 0, "wrong pairs");
    assert_eq!(outside, 0, "true offset outside the bound");
    outcome
}

fn nonzero(left: &std::collections::BTreeMap<String, u64>) -> Vec<(&String, &u64)> {
    left.iter().filter(|(_, count)| **count > 0).collect()
}

/// True theta at the send and at the response of a pair.
fn truth(link: &Link, world: &World, pair: &Joined) -> [i64; 2] {
    let (host, target) = (&world.hosts[link.host], &world.targets[link.target]);
    [pair.host.at[2], pair.host.at[10]].map(|at| {
        let at = at as i64;
        // Inverse of the clock by iteration: it is almost the identity.
        let mut t = at - host.clock.at_zero;
        for _ in 0..6 {
            t -= host.clock.read(t) - at;
        }
        target.clock.read(t) - at
    })
}

/// Minutes apart, drifting.
fn apart(world: &mut World, ppm: f64) {
    world.hosts[0].clock = Clock {
        at_zero: 500_000_000_000,
        ppm: 0.0,
        bend: None,
    };
    world.targets[0].clock = Clock {
        at_zero: 9_876_543_210_000,
        ppm,
        bend: None,
    };
}

#[test]
fn random_reads_at_depth_32() {
    let mut world = World::new(1, 1_000);
    apart(&mut world, 200.0);
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
    assert!(outcome.mean_bound < 30_000.0);
    assert_eq!(outcome.totals.host_inside, outcome.totals.host);
}

#[test]
fn depth_1_of_few_blocks_and_losses() {
    for generations in [false, true] {
        let mut world = World::new(2, 2_000);
        apart(&mut world, -200.0);
        world.links[0].depth = 1;
        world.links[0].lbas = 4;
        world.links[0].generations = generations;
        world.hosts[0].loss = 0.02;
        world.targets[0].loss = 0.03;
        let outcome = run(&world);
        assert!(outcome.share() >= 0.999);
    }
}

#[test]
fn few_blocks_few_tags_many_losses() {
    for seed in 0..6 {
        let mut world = World::new(100 + seed, 400);
        apart(&mut world, 200.0);
        let link = &mut world.links[0];
        link.depth = 4;
        link.lbas = 2;
        link.generations = false;
        world.hosts[0].loss = 0.1;
        world.targets[0].loss = 0.1;
        let outcome = run(&world);
        assert!(outcome.share() >= 0.999, "{seed}");
    }
}

#[test]
fn one_key_only() {
    // Flushes of SPDK at depth 1: nothing but time tells them apart.
    let mut world = World::new(3, 500);
    apart(&mut world, 50.0);
    let link = &mut world.links[0];
    (link.depth, link.lbas, link.generations) = (1, 1, false);
    world.targets[0].loss = 0.01;
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn quick_answers_over_an_uneven_network() {
    // One way takes 30 times the other, the target answers at once, and the
    // same id with the same key is sent again at once: the next command all
    // but fits the record of the one before, and one in ten has lost its own.
    let cases = [
        ((600_000, 5_000.0), (20_000, 5_000.0), (2_000, 500.0), 500),
        (
            (20_000, 60_000.0),
            (600_000, 5_000.0),
            (5_000, 1_000.0),
            2_000,
        ),
    ];
    for (there, back, held, think) in cases {
        let mut world = World::new(4, 1_000);
        apart(&mut world, 100.0);
        world.hosts[0].loss = 0.05;
        world.targets[0].loss = 0.05;
        let link = &mut world.links[0];
        (link.there, link.back, link.held) = (there, back, held);
        link.think = (think, 300.0);
        (link.depth, link.lbas, link.generations) = (8, 3, false);
        let outcome = run(&world);
        assert!(outcome.share() >= 0.99);
    }
}

#[test]
fn r2t_writes_bound_the_clock_too() {
    let mut world = World::new(5, 500);
    apart(&mut world, 200.0);
    world.links[0].r2t = 0.5;
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn late_start_and_early_end_of_the_target() {
    let mut world = World::new(6, 3_000);
    apart(&mut world, 200.0);
    world.links[0].depth = 4;
    world.targets[0].records = (1_000_000_000, 2_000_000_000);
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
    // All that was left of the host's lay outside of the target's time, give or take the edges.
    let left = outcome.totals.host - outcome.totals.matched;
    let outside = outcome.left('h', "target_not_recording");
    assert!(left - outside <= 4, "{left} {outside}");
    assert!(outcome.totals.host_inside - outcome.totals.matched <= 4);
}

#[test]
fn late_start_of_the_host() {
    let mut world = World::new(7, 2_000);
    apart(&mut world, 200.0);
    world.links[0].depth = 4;
    world.links[0].lbas = 16;
    world.hosts[0].records = (1_200_000_000, i64::MAX);
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
    assert!(outcome.left('t', "host_not_recording") > 10_000);
    assert!(outcome.left('t', "not_in_host") <= 4);
}

#[test]
fn wall_clocks_minutes_apart() {
    for wall in [
        -300_000_000_000,
        120_000_000_000,
        40 * 365 * 86_400_000_000_000,
    ] {
        let mut world = World::new(8, 2_000);
        apart(&mut world, 200.0);
        world.links[0].depth = 8;
        world.targets[0].wall = wall;
        let outcome = run(&world);
        assert!(outcome.share() >= 0.999, "{wall}");
        assert!(
            outcome
                .report
                .iter()
                .any(|line| line.contains("wall clocks"))
        );
    }
}

#[test]
fn different_sampling_joins_the_coarser() {
    for (host, target) in [(4, 32), (32, 4), (1, 10)] {
        let mut world = World::new(9, 3_000);
        apart(&mut world, 200.0);
        world.hosts[0].sampling = host;
        world.targets[0].sampling = target;
        let outcome = run(&world);
        assert!(outcome.possible > 5_000);
        assert!(outcome.share() >= 0.999);
        let (coarse, fine) = if host > target {
            ('h', 't')
        } else {
            ('t', 'h')
        };
        assert_eq!(outcome.left(coarse, "not_sampled_by_the_other"), 0);
        assert!(outcome.left(fine, "not_sampled_by_the_other") > 10_000);
        assert_eq!(outcome.totals.host_inside, outcome.totals.matched);
    }
}

#[test]
fn different_salt_is_refused() {
    let mut world = World::new(10, 500);
    world.hosts[0].sampling = 10;
    world.targets[0].sampling = 10;
    world.targets[0].salt = 5;
    let outcome = run(&world);
    assert_eq!(outcome.totals.matched, 0);
    assert_eq!(outcome.left('h', "other_salt"), outcome.totals.host);
    assert!(outcome.report.iter().any(|line| line.contains("salt")));
}

#[test]
fn two_hosts_with_the_same_commands() {
    // Same ids, same few blocks, same time, one target; clocks of all three differ.
    let mut world = World::new(11, 800);
    apart(&mut world, 200.0);
    world.hosts.push(Machine {
        clock: Clock {
            at_zero: 77_000_000_000,
            ppm: -150.0,
            bend: None,
        },
        ..Machine::new("other")
    });
    world.links.push(Link::new(1, 0, 41_000));
    for link in &mut world.links {
        (link.depth, link.lbas, link.generations) = (4, 4, false);
    }
    world.targets[0].loss = 0.01;
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn two_targets_of_one_host_many_queues() {
    let mut world = World::new(12, 500);
    apart(&mut world, 200.0);
    world.targets.push(Machine {
        clock: Clock {
            at_zero: 1_000_000,
            ppm: 30.0,
            bend: None,
        },
        ..Machine::new("second")
    });
    world.links.clear();
    for queue in 0..8 {
        let mut link = Link::new(0, usize::from(queue % 2), 41_000 + queue);
        (link.qid, link.depth, link.lbas) = (1 + queue / 2, 2, 8);
        world.links.push(link);
    }
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn reconnect_over_the_same_ports() {
    // Three connects with one pair of addresses; the target misses the first.
    let mut world = World::new(13, 3_000);
    apart(&mut world, 200.0);
    world.targets[0].records = (1_200_000_000, i64::MAX);
    let alive = [
        (0, 1_000_000_000),
        (1_100_000_000, 1_900_000_000),
        (2_000_000_000, i64::MAX),
    ];
    world.links = alive
        .into_iter()
        .map(|alive| Link {
            alive,
            depth: 4,
            lbas: 4,
            generations: false,
            ..Link::new(0, 0, 41_000)
        })
        .collect();
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn another_machine_takes_the_address_over() {
    let mut world = World::new(14, 2_000);
    apart(&mut world, 200.0);
    world.hosts.push(Machine {
        clock: Clock {
            at_zero: 5_000_000_000,
            ppm: 0.0,
            bend: None,
        },
        ..Machine::new("other")
    });
    let mut first = Link::new(0, 0, 41_000);
    first.alive = (0, 900_000_000);
    let mut second = first.clone();
    (second.host, second.alive) = (1, (1_000_000_000, i64::MAX));
    world.links = vec![first, second];
    for link in &mut world.links {
        (link.depth, link.lbas) = (4, 64);
    }
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn a_nat_weakens_the_match_and_does_not_break_it() {
    let mut world = World::new(15, 1_000);
    apart(&mut world, 200.0);
    world.links.clear();
    for queue in 0..4u16 {
        let mut link = Link::new(0, 0, 41_000 + queue);
        link.target_ends = (
            "172.16.0.9:4420".into(),
            format!("192.0.2.1:{}", 60_000 + queue * 7),
        );
        (link.qid, link.depth) = (1 + queue, 4);
        world.links.push(link);
    }
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
    assert!(
        outcome
            .report
            .iter()
            .any(|line| line.contains("4 connections were matched by queue"))
    );
}

#[test]
fn two_hosts_behind_one_nat() {
    let mut world = World::new(16, 1_000);
    apart(&mut world, 200.0);
    world.hosts.push(Machine {
        clock: Clock {
            at_zero: 77_000_000_000,
            ppm: -150.0,
            bend: None,
        },
        ..Machine::new("other")
    });
    world.links.clear();
    for host in 0..2u16 {
        let mut link = Link::new(usize::from(host), 0, 41_000);
        link.target_ends.1 = format!("192.0.2.1:{}", 60_000 + host);
        link.cntlid = 0;
        link.depth = 8;
        world.links.push(link);
    }
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn slow_commands_are_matched_when_they_end() {
    let mut world = World::new(17, 30_000);
    apart(&mut world, 200.0);
    let link = &mut world.links[0];
    (link.depth, link.slow, link.slow_ns) = (4, 0.002, 7_000_000_000);
    link.think = (1_000_000, 3_000_000.0);
    let outcome = run(&world);
    assert!(outcome.share() >= 0.9999);
}

#[test]
fn records_written_seconds_late() {
    let mut world = World::new(18, 12_000);
    apart(&mut world, 200.0);
    world.links[0].depth = 2;
    world.links[0].think = (1_000_000, 100_000.0);
    world.targets[0].inversion = 3_000_000_000;
    world.hosts[0].inversion = 2_000_000_000;
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn one_clock_is_known_to_be_one() {
    let mut world = World::new(19, 500);
    world.hosts[0].name = "both";
    world.targets[0].name = "both";
    let outcome = run(&world);
    assert!(outcome.share() >= 1.0);
    assert!(
        outcome
            .joined
            .iter()
            .all(|pair| pair.offset_ns == 0 && pair.offset_bound_ns == 0)
    );
    // The estimator comes to the same, within its bound.
    let options = Options {
        estimate_always: true,
        ..Options::default()
    };
    let outcome = run_with(&world, options, 500);
    assert!(outcome.share() >= 0.999);
    assert!(outcome.mean_bound > 0.0 && outcome.mean_bound < 20_000.0);
}

#[test]
fn drift_that_changes() {
    let mut world = World::new(20, 4_000);
    apart(&mut world, 80.0);
    world.targets[0].clock.bend = Some((2_000_000_000, 60.0));
    world.links[0].depth = 8;
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn sparse_traffic_with_long_pauses() {
    let mut world = World::new(21, 300_000);
    apart(&mut world, 200.0);
    let link = &mut world.links[0];
    (link.depth, link.lbas, link.generations) = (1, 2, false);
    link.think = (20_000_000, 400_000_000.0);
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn clockwork_is_refused_rather_than_guessed() {
    // One key, exactly every 10 ms, both recordings cut so that neither end tells.
    let mut world = World::new(22, 20_000);
    apart(&mut world, 0.0);
    let link = &mut world.links[0];
    (link.depth, link.lbas, link.generations) = (1, 1, false);
    (link.there, link.back) = ((15_000, 0.0), (15_000, 0.0));
    (link.held, link.think) = ((20_000, 0.0), (9_950_000, 0.0));
    world.targets[0].records = (5_000_000_000, i64::MAX);
    let outcome = run(&world);
    assert_eq!(outcome.totals.matched, 0);
    assert!(outcome.left('h', "ambiguous_clock") > 0);
}

#[test]
fn other_connections_and_other_times_match_nothing() {
    let mut world = World::new(23, 500);
    apart(&mut world, 0.0);
    world.links[0].target_ends.1 = "10.9.9.9:1".into();
    world.links[0].cntlid = 0;
    let (hosts, _) = world.run();
    let mut other = World::new(24, 500);
    other.targets[0].clock = world.targets[0].clock;
    other.targets[0].wall = 3_600_000_000_000;
    let (_, targets) = other.run();
    // Ids of another run mean other commands.
    let mut target = targets.into_iter().next().expect("one");
    for record in &mut target.records {
        record.reserved += 1 << 30;
    }
    let inputs = [vec![&hosts[0]], vec![&target]];
    let outcome = join(&world, &inputs, Options::default(), 500);
    assert_eq!(outcome.totals.matched, 0);
    assert!(
        outcome
            .report
            .iter()
            .any(|line| line.starts_with("nothing matched"))
    );
}

#[test]
fn all_in_one_stream() {
    // cat target.ntp host.ntp | ntp-join -
    let mut world = World::new(25, 500);
    apart(&mut world, 200.0);
    world.links[0].depth = 4;
    let (hosts, targets) = world.run();
    for order in [[&targets[0], &hosts[0]], [&hosts[0], &targets[0]]] {
        let outcome = join(&world, &[order.to_vec()], Options::default(), 500);
        assert!(outcome.share() >= 0.999);
    }
}

#[test]
fn a_small_window_is_enough_when_the_clocks_are_near() {
    let mut world = World::new(26, 6_000);
    apart(&mut world, 200.0);
    world.targets[0].wall = 3_000_000;
    world.hosts[0].loss = 0.01;
    world.targets[0].loss = 0.01;
    let options = Options {
        window: 20_000,
        ..Options::default()
    };
    let outcome = run_with(&world, options, 500);
    assert!(outcome.totals.host > 500_000);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn a_clock_that_is_slewed_hard() {
    // NTP finds out that it is off, and slews at its limit.
    let mut world = World::new(27, 4_000);
    apart(&mut world, 20.0);
    world.targets[0].clock.bend = Some((2_000_000_000, -480.0));
    world.links[0].depth = 8;
    let outcome = run(&world);
    assert!(outcome.share() >= 0.999);
}

#[test]
fn points_that_no_hook_gave() {
    let mut world = World::new(28, 1_000);
    apart(&mut world, 200.0);
    world.links[0].depth = 4;
    let (mut hosts, mut targets) = world.run();
    for record in &mut hosts[0].records {
        record.present &= !(1 << 10);
    }
    for record in &mut targets[0].records {
        record.present &= !(1 << 0 | 1 << 13);
    }
    let outcome = join(
        &world,
        &[vec![&hosts[0]], vec![&targets[0]]],
        Options::default(),
        500,
    );
    assert!(outcome.share() >= 0.999);
}

#[test]
fn cancelled_commands_and_admin_commands() {
    use ntp_record::record::Flags;
    let mut world = World::new(29, 1_000);
    apart(&mut world, 200.0);
    world.links[0].depth = 4;
    let (mut hosts, mut targets) = world.run();
    // One in 100 was cancelled by the host: no response, though the target sent one.
    for record in hosts[0].records.iter_mut().step_by(100) {
        record.flags |= Flags::Cancelled as u16;
        record.present &= !(0b111 << 10);
    }
    // One in 100 is an admin command; the target recorded half of these.
    for (number, record) in hosts[0].records.iter_mut().skip(1).step_by(100).enumerate() {
        record.flags |= Flags::Admin as u16;
        let twin = targets[0]
            .records
            .iter_mut()
            .find(|r| r.reserved == record.reserved);
        if let Some(twin) = twin {
            twin.flags |= Flags::Admin as u16;
            // Not recorded: a key of its own, seen by nobody.
            if number % 2 == 0 {
                twin.slba = u64::MAX;
            }
        }
    }
    let admin = hosts[0].records.len().div_ceil(100).div_ceil(2) as u64;
    let cancelled = hosts[0].records.len().div_ceil(100) as u64;
    let outcome = join(
        &world,
        &[vec![&hosts[0]], vec![&targets[0]]],
        Options::default(),
        500,
    );
    assert!(outcome.left('h', "admin").abs_diff(admin) <= 1);
    assert_eq!(outcome.left('h', "admin"), outcome.left('t', "admin"));
    assert_eq!(outcome.left('h', "cancelled"), cancelled);
    assert!(outcome.totals.matched + admin + cancelled + 1 >= outcome.possible);
}

#[test]
fn a_recording_given_twice_matches_nothing_wrong() {
    let mut world = World::new(30, 300);
    apart(&mut world, 200.0);
    let (hosts, targets) = world.run();
    let inputs = [vec![&hosts[0]], vec![&targets[0]], vec![&hosts[0]]];
    let mut sink = Collect::default();
    let mut joiner = feed(&inputs, Options::default(), 500, &mut sink);
    joiner.finish(&mut sink).expect("finish");
    assert!(
        sink.joined
            .iter()
            .all(|pair| pair.host.reserved == pair.target.reserved)
    );
    assert_eq!(joiner.totals().host, 2 * hosts[0].records.len() as u64);
}

#[test]
fn records_without_a_header_are_told_of() {
    let world = World::new(31, 50);
    let (hosts, targets) = world.run();
    let mut sink = Collect::default();
    let mut joiner = feed(
        &[vec![&targets[0]], vec![]],
        Options::default(),
        500,
        &mut sink,
    );
    joiner.push(1, &Item::Records(&hosts[0].records));
    joiner.finish(&mut sink).expect("finish");
    let count = hosts[0].records.len() as u64;
    assert_eq!(joiner.totals().damaged_bytes, count * 176);
    let said = ntp_join::lines(&joiner);
    assert!(
        said[0].starts_with(&format!("{count} records left out")),
        "{said:?}"
    );
}

#[test]
fn nonsense_is_survived() {
    for seed in 0..20 {
        let mut rng = sim::Rng::new(seed);
        let mut world = World::new(seed, 20);
        apart(&mut world, 0.0);
        world.links[0].depth = 2;
        let (mut hosts, mut targets) = world.run();
        for recording in hosts.iter_mut().chain(&mut targets) {
            for record in &mut recording.records {
                if rng.chance(0.3) {
                    let at = rng.below(16) as usize;
                    record.at[at] = [rng.next(), 0, u64::MAX, i64::MAX as u64, rng.below(1 << 50)]
                        [rng.below(5) as usize];
                }
                if rng.chance(0.1) {
                    record.present = rng.next() as u16;
                }
                if rng.chance(0.1) {
                    record.flags = rng.next() as u16;
                    record.cid = rng.next() as u16;
                    record.conn = rng.below(4) as u32 + 6;
                    record.dev = rng.below(4) as u32;
                }
            }
            if rng.chance(0.3) {
                recording.header.start_ns = rng.next();
                recording.header.wall_minus_mono_ns = rng.next() as i64;
                recording.totals.end_ns = rng.next();
            }
        }
        let options = Options {
            window: 4096,
            estimate_always: rng.chance(0.5),
            ..Options::default()
        };
        let mut sink = Collect::default();
        let mut joiner = feed(
            &[vec![&hosts[0]], vec![&targets[0]]],
            options,
            100,
            &mut sink,
        );
        joiner.finish(&mut sink).expect("finish");
        let totals = joiner.totals();
        assert_eq!(
            totals.host,
            totals.matched + totals.host_left.values().sum::<u64>()
        );
        assert_eq!(
            totals.target,
            totals.matched + totals.target_left.values().sum::<u64>()
        );
        ntp_join::lines(&joiner);
    }
}

#[test]
fn many_worlds() {
    // Mixed settings, at random but the same each time.
    let (from, to) = (
        0,
        std::env::var("SIM_WORLDS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(40),
    );
    for seed in from..to {
        let mut rng = sim::Rng::new(1_000 + seed);
        let mut world = World::new(seed, 200);
        apart(&mut world, rng.below(800) as f64 / 2.0 - 200.0);
        let link = &mut world.links[0];
        link.depth = 1 + rng.below(8) as u16;
        link.lbas = [1, 2, 7, 100, 0][rng.below(5) as usize];
        link.sequential = link.lbas == 100;
        link.generations = rng.chance(0.5);
        link.there = (
            1_000 + rng.below(100_000) as i64,
            1.0 + rng.unit() * 50_000.0,
        );
        link.back = (
            1_000 + rng.below(100_000) as i64,
            1.0 + rng.unit() * 50_000.0,
        );
        link.held = (500 + rng.below(20_000) as i64, 1.0 + rng.unit() * 100_000.0);
        link.think = (500 + rng.below(5_000) as i64, 1.0 + rng.unit() * 100_000.0);
        link.r2t = rng.unit() * 0.3;
        world.hosts[0].loss = rng.unit() * 0.1;
        world.targets[0].loss = rng.unit() * 0.1;
        let outcome = run(&world);
        // Little is lost but what nothing could tell apart.
        assert!(outcome.share() >= 0.85, "{seed}");
    }
}

/// Writes recordings of so many commands a side to a folder, to measure with:
/// `NTP_SIM_OUT=DIR NTP_SIM_MS=20000 cargo test --release -p ntp-join -- --ignored write`.
#[test]
#[ignore = "writes large files"]
fn write_recordings() {
    let dir = std::env::var("NTP_SIM_OUT").expect("NTP_SIM_OUT");
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let mut world = World::new(42, number("NTP_SIM_MS").unwrap_or(5_000));
    apart(&mut world, 20.0);
    world.links.clear();
    for queue in 0..4 {
        let mut link = Link::new(0, 0, 41_000 + queue);
        (link.qid, link.depth) = (1 + queue, 8);
        world.links.push(link);
    }
    let (hosts, targets) = world.run();
    for (recording, name) in [(&hosts[0], "host.ntp"), (&targets[0], "target.ntp")] {
        let file = std::fs::File::create(std::path::Path::new(&dir).join(name)).expect("file");
        let mut writer =
            ntp_record::Writer::new(std::io::BufWriter::new(file), ntp_record::Format::Binary);
        for step in steps(recording, 1_000) {
            if let Step::Item(item) = step {
                writer.item(&item).expect("write");
            }
        }
        writer.flush().expect("flush");
    }
}
