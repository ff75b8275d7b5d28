//! Several machines in one joined stream: each has a clock of its own.

mod util;

use ntp_record::row::{KeyValue, RateIs, Row};
use ntp_record::{Connection, Header, Item, JoinHeader, Joined, Role};
use ntp_stages::{By, Options};
use util::*;

const TIMES: ReadTimes = ReadTimes {
    host: [1000, 2000],
    wire_out: 3000,
    target: [1000; 8],
    wire_back: 4000,
    host_back: [1000; 5],
};
const S: u64 = 1_000_000_000;

/// A machine that booted `booted_s` after the first one.
fn machine(role: Role, name: &str, booted_s: u64) -> Header {
    let plain = header(role, name, 10);
    Header {
        boot_id: format!("boot of {name}"),
        start_ns: START - booted_s * S,
        wall_minus_mono_ns: plain.wall_minus_mono_ns + (booted_s * S) as i64,
        ..plain
    }
}

/// Connections 1 and 3 are those of alpha and gamma, each to connection 2 of beta.
fn names(hosts: Vec<Header>, sources: [Option<u32>; 2]) -> Vec<Item<'static>> {
    let join = JoinHeader {
        version: "0.1.0".into(),
        hosts,
        targets: vec![machine(Role::Target, "beta", 0)],
    };
    let conn = |id, local: &str, source| {
        Item::Connection(Connection {
            local: local.into(),
            source,
            ..connection(id, 3)
        })
    };
    vec![
        Item::JoinHeader(join),
        Item::Device(device(1, "nvme0n1")),
        Item::Device(device(2, "/dev/nullb0")),
        conn(1, "10.0.0.1:41000", sources[0]),
        conn(2, "10.0.0.2:4420", Some(0)),
        conn(3, "10.0.0.3:41000", sources[1]),
    ]
}

/// A command at `ms` after both recordings began, on the clock of a host that booted so late.
fn command(conn: u32, booted_s: u64, ms: u64) -> Joined {
    let mut joined = joined_read(TIMES, START - booted_s * S + ms * 1_000_000, 0, 0);
    joined.host.conn = conn;
    joined
}

fn by(by: &str, interval_s: Option<u64>) -> Options {
    Options {
        by: By::parse(by).unwrap(),
        interval_ns: interval_s.map(|s| s * S),
        ..Options::default()
    }
}

fn both() -> Vec<Header> {
    vec![
        machine(Role::Host, "gamma", 500),
        machine(Role::Host, "alpha", 0),
    ]
}

/// One command of each host every 100 ms for 3 s; gamma booted 500 s after alpha.
fn commands() -> Vec<Joined> {
    (0..31)
        .flat_map(|i| [command(1, 0, i * 100), command(3, 500, i * 100)])
        .collect()
}

#[test]
fn the_rate_of_two_hosts_is_that_of_the_time_they_share() {
    let commands = commands();
    let mut items = names(both(), [Some(1), Some(0)]);
    items.push(Item::Joined(&commands));
    items.push(Item::JoinTotals(join_totals(62, 62, 62)));
    let rows = rows_with(by("op", None), &items);
    let group = groups(&rows)[0];
    // 62 commands, each for 10, from the first's begin to the last's end: 3 s and 23 us.
    assert_eq!(group.latency.mean_ns, Some(23_000.0));
    assert!((group.seconds.unwrap() - 3.000023).abs() < 1e-9);
    assert_eq!(group.rate_is, Some(RateIs::Estimated));
    assert!((group.rate.unwrap() - 620.0 / 3.000023).abs() < 1e-6);
}

#[test]
fn intervals_are_those_of_the_wall_clock() {
    let commands = commands();
    let mut items = names(both(), [Some(1), Some(0)]);
    items.extend(commands.chunks(7).map(Item::Joined));
    items.push(Item::JoinTotals(join_totals(62, 62, 62)));
    let rows = rows_with(by("host", Some(1)), &items);
    let intervals: Vec<(f64, u64)> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Interval(i) => Some((i.interval.from_s, i.records)),
            _ => None,
        })
        .collect();
    // Ten of each host end in every second, 23 us after they began; one of each after 3 s.
    assert_eq!(intervals, [(0.0, 20), (1.0, 20), (2.0, 20), (3.0, 2)]);
    assert_eq!(totals_row(&rows).late, 0);
}

#[test]
fn each_host_has_its_name() {
    let commands = commands();
    let mut items = names(both(), [Some(1), Some(0)]);
    items.push(Item::Joined(&commands[..3]));
    items.push(Item::JoinTotals(join_totals(3, 3, 3)));
    let rows = rows_with(by("host,target", None), &items);
    let keys: Vec<(Option<&KeyValue>, u64)> = groups(&rows)
        .iter()
        .map(|group| (group.key.get("host"), group.latency.n))
        .collect();
    let name = |name: &str| KeyValue::Text(name.into());
    assert_eq!(keys, [(Some(&name("alpha")), 2), (Some(&name("gamma")), 1)]);
    assert_eq!(groups(&rows)[0].key.get("target"), Some(&name("beta")));
    let clocks: Vec<(&str, u64)> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Clock(clock) => Some((clock.host.as_str(), clock.n)),
            _ => None,
        })
        .collect();
    assert_eq!(clocks, [("alpha", 2), ("gamma", 1)]);
}

#[test]
fn two_machines_of_one_name_are_told_apart_by_address() {
    let commands = commands();
    let mut hosts = both();
    hosts[0].machine = "alpha".into();
    let mut items = names(hosts, [Some(1), Some(0)]);
    items.push(Item::Joined(&commands));
    let rows = rows_with(by("host", None), &items);
    let found: Vec<Option<&KeyValue>> = groups(&rows).iter().map(|g| g.key.get("host")).collect();
    let name = |name: &str| KeyValue::Text(name.into());
    assert_eq!(found, [Some(&name("10.0.0.1")), Some(&name("10.0.0.3"))]);
}

#[test]
fn times_of_a_clock_that_nobody_tells_make_no_rate() {
    let commands = commands();
    // One connection of a recording that the header does not hold; or old streams.
    for sources in [[Some(1), Some(2)], [Some(1), None], [None, None]] {
        let mut items = names(both(), sources);
        items.push(Item::Joined(&commands));
        items.push(Item::JoinTotals(join_totals(62, 62, 62)));
        let rows = rows_with(by("op", Some(1)), &items);
        let group = groups(&rows).into_iter().find(|g| g.interval.is_none());
        let group = group.unwrap();
        assert_eq!(
            (group.latency.n, group.rate, group.seconds),
            (62, None, None)
        );
        assert_eq!(group.latency.mean_ns, Some(23_000.0));
        assert!(warnings(&rows).contains(&"unplaced"));
        assert_eq!(totals_row(&rows).late, 0);
        // What the hosts counted needs no clock of theirs here.
        let mut counted = join_totals(62, 62, 62);
        counted.counts = totals(0, &[(2, 4096, 620)]).groups;
        counted.counted_ns = 4 * S;
        items.pop();
        items.push(Item::JoinTotals(counted));
        let rows = rows_with(by("op,size,device", None), &items);
        assert_eq!(groups(&rows)[0].rate, Some(155.0));
    }
}

#[test]
fn recordings_of_one_boot_share_a_clock_whatever_the_wall_clock_did() {
    let commands: Vec<Joined> = (0..31)
        .map(|i| command(1 + i as u32 % 2 * 2, 0, i * 100))
        .collect();
    let mut hosts = vec![
        machine(Role::Host, "alpha", 0),
        machine(Role::Host, "alpha", 0),
    ];
    hosts[1].wall_minus_mono_ns += 3600 * S as i64;
    for sources in [[Some(0), Some(1)], [None, None]] {
        let mut items = names(hosts.clone(), sources);
        items.push(Item::Joined(&commands));
        let rows = rows_with(by("op,host", None), &items);
        let group = groups(&rows)[0];
        assert!((group.seconds.unwrap() - 3.000023).abs() < 1e-9);
        if sources[0].is_some() {
            assert_eq!(group.latency.n, 31);
        }
    }
}
