//! A joined stream says of each connection which recording it is of.
#![allow(dead_code, reason = "the simulation offers more than is used here")]

mod sim;

use ntp_join::{Joiner, Options, Sink};
use ntp_record::header::Header;
use ntp_record::record::Record;
use ntp_record::stream::{Item, Segment};
use sim::{Clock, Link, Machine, Recording, World};
use std::io;

/// For each joined record: its machine by its source, `None` without one, and its link.
#[derive(Default)]
struct Machines {
    segment: Segment,
    hosts: Vec<(Option<String>, u32)>,
    targets: Vec<(Option<String>, u32)>,
}

impl Sink for Machines {
    fn item(&mut self, item: &Item<'_>) -> io::Result<()> {
        self.segment.apply(item);
        let Item::Joined(pairs) = item else {
            return Ok(());
        };
        let join = self.segment.join_header.as_ref().expect("header first");
        let machine = |headers: &[Header], record: &Record| {
            let source = self.segment.connection(record.conn).expect("name").source?;
            Some(headers.get(source as usize)?.machine.clone())
        };
        for pair in *pairs {
            let link = pair.host.nsid;
            (self.hosts).push((machine(&join.hosts, &pair.host), link));
            (self.targets).push((machine(&join.targets, &pair.target), link));
        }
        Ok(())
    }
}

/// Joins recordings, several to an input; `nsid` carries the number of the link.
fn join(inputs: &[Vec<&Recording>]) -> Machines {
    let mut sink = Machines::default();
    let mut joiner = Joiner::new(inputs.len(), Options::default());
    let mut lists: Vec<_> = inputs
        .iter()
        .map(|parts| {
            let mut items: Vec<(Option<Item<'_>>, Vec<Record>)> = Vec::new();
            for part in parts {
                items.push((Some(Item::Header(part.header.clone())), Vec::new()));
                let names = part.connections.iter().cloned().map(Item::Connection);
                items.extend(names.map(|name| (Some(name), Vec::new())));
                for chunk in part.records.chunks(200) {
                    let numbered = chunk.iter().map(|record| Record {
                        nsid: record.conn - 7,
                        ..*record
                    });
                    items.push((None, numbered.collect()));
                }
                items.push((Some(Item::Totals(part.totals.clone())), Vec::new()));
            }
            items.into_iter()
        })
        .collect();
    while let Some(input) = joiner.next_input() {
        match lists[input].next() {
            Some((Some(item), _)) => joiner.push(input, &item),
            Some((None, records)) => {
                joiner.push(input, &Item::Records(&records));
                joiner.advance(&mut sink).expect("advance");
            }
            None => {
                joiner.end_input(input);
                joiner.advance(&mut sink).expect("advance");
            }
        }
    }
    joiner.finish(&mut sink).expect("finish");
    sink
}

/// Host 1 of the world reaches its one target over link 1, host 0 over link 0.
fn two_hosts() -> World {
    let mut world = World::new(11, 800);
    world.hosts.push(Machine {
        clock: Clock {
            at_zero: 77_000_000_000,
            ppm: 20.0,
            bend: None,
        },
        ..Machine::new("other")
    });
    world.links.push(Link::new(1, 0, 41_000));
    world
}

#[test]
fn every_connection_names_its_recording_whatever_the_order_of_the_files() {
    let world = two_hosts();
    let (hosts, targets) = world.run();
    let name = |link: u32| Some(hosts[link as usize].header.machine.clone());
    for order in [
        [&hosts[0], &hosts[1], &targets[0]],
        [&hosts[1], &targets[0], &hosts[0]],
        [&targets[0], &hosts[1], &hosts[0]],
    ] {
        let inputs: Vec<Vec<&Recording>> = order.iter().map(|one| vec![*one]).collect();
        let found = join(&inputs);
        for link in 0..2 {
            assert!(found.hosts.iter().any(|(_, of)| *of == link));
        }
        for (machine, link) in &found.hosts {
            assert_eq!(*machine, name(*link));
        }
        for (machine, _) in &found.targets {
            assert_eq!(machine.as_deref(), Some(targets[0].header.machine.as_str()));
        }
    }
}

#[test]
fn a_recording_met_after_the_header_is_that_of_its_boot_or_none() {
    let mut world = two_hosts();
    // One file holds two recordings of the first host's boot, and then one of
    // the second host.
    let begin = 1_000_000_000;
    world.until = 2 * begin;
    world.hosts[1].records = (begin, i64::MAX);
    let (hosts, targets) = world.run();
    let (mut early, mut late) = (hosts[0].clone(), hosts[0].clone());
    let split = hosts[0].records.len() / 2;
    late.records = early.records.split_off(split);
    early.totals.end_ns = early.records.iter().flat_map(|r| r.at).max().unwrap_or(0);
    late.header.start_ns = early.totals.end_ns;
    let found = join(&[vec![&targets[0]], vec![&early, &late, &hosts[1]]]);
    assert_eq!(found.segment.join_header.expect("header").hosts.len(), 1);
    let first = Some(hosts[0].header.machine.clone());
    let of = |link: u32| found.hosts.iter().filter(move |(_, of)| *of == link);
    assert!(of(0).count() > split + 1 && of(1).count() > 0);
    assert!(of(0).all(|(machine, _)| *machine == first));
    assert!(of(1).all(|(machine, _)| machine.is_none()));
}
