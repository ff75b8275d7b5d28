//! A recording from a source that is no kernel.

use super::*;
use crate::options::Options;
use clap::Parser;
use ntp_record::header::Count;
use ntp_record::point::host;
use ntp_record::{Connection, Device, Reader, Role};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// Gives so many records, then nothing; counts what it is told.
struct Fake {
    waiting: Vec<Record>,
    names: Vec<Name>,
    stats: Stats,
    in_flight: u64,
    stopped: bool,
    /// A command that ends while the programs are detached.
    late: Option<Record>,
    endless: bool,
}

impl Fake {
    fn new(records: u64) -> Self {
        let waiting = (0..records)
            .map(|i| {
                let mut r = Record {
                    slba: i,
                    cid: i as u16,
                    conn: 1,
                    dev: 7,
                    opcode: 2,
                    bytes: 4096,
                    ..Record::default()
                };
                r.set(host::DRIVER_START, 1000 + i * 10);
                r.set(host::BLOCK_DONE, 1500 + i * 10);
                r
            })
            .collect();
        let connection = Name::Connection(Connection {
            id: 1,
            local: "10.0.0.1:40000".into(),
            remote: "10.0.0.2:4420".into(),
            qid: 1,
            ..Connection::default()
        });
        let device = Name::Device(Device {
            id: 7,
            name: "nvme0n1".into(),
            ..Device::default()
        });
        Fake {
            waiting,
            // Sent by two CPUs at once: the second is dropped.
            names: vec![connection.clone(), device, connection],
            stats: Stats {
                seen: records * 3,
                sampled: records + 5,
                emitted: records,
                lost: BTreeMap::from([("ring_full".into(), 3)]),
                misses: BTreeMap::new(),
            },
            in_flight: 2,
            stopped: false,
            late: None,
            endless: false,
        }
    }
}

impl Source for Fake {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn records(&mut self, out: &mut Vec<Record>, max: usize) -> usize {
        if self.endless && !self.stopped {
            self.stats.emitted += max as u64;
            self.stats.sampled += max as u64;
            out.extend(std::iter::repeat_n(Record::default(), max));
            return max;
        }
        let n = max.min(self.waiting.len());
        out.extend(self.waiting.drain(..n));
        n
    }
    fn names(&mut self, out: &mut Vec<Name>) {
        out.append(&mut self.names);
    }
    fn stats(&self) -> Result<Stats> {
        Ok(self.stats.clone())
    }
    fn counts(&self) -> Result<Vec<Count>> {
        Ok(vec![Count {
            dev: 7,
            opcode: 2,
            bytes: 4096,
            admin: false,
            commands: self.stats.seen,
        }])
    }
    fn in_flight(&self) -> u64 {
        if self.stopped { self.in_flight } else { 0 }
    }
    fn stop(&mut self) {
        self.stopped = true;
    }
    fn close(&mut self) {
        if let Some(late) = self.late.take() {
            self.waiting.push(late);
            self.in_flight -= 1;
            self.stats.emitted += 1;
        }
    }
}

fn header() -> Header {
    serde_json::from_value(serde_json::json!({
        "role": "host", "transport": "tcp", "stack": "linux", "sampling": 3, "machine": "m",
        "kernel": "k", "version": "v", "start_ns": 500, "wall_minus_mono_ns": 0
    }))
    .expect("header")
}

/// Records what a source has; gives the end and what went to standard error is not looked at.
fn record(source: &mut Fake, output: &str, more: &[&str]) -> End {
    let args = [&["ntp-capture", "-i", "0", "-o", output], more].concat();
    let options = Options::parse_from(args);
    let mut output = Output::open(&options).expect("output");
    // Signals are blocked for this thread only.
    let limits = Limits::new(Some(Duration::ZERO), Duration::ZERO).expect("limits");
    let header = header();
    let mut progress = Progress::new(&header, &options);
    let mut end = run(source, &mut output, &header, &limits, &mut progress).expect("recording");
    if end.failed.is_none() {
        end.failed = output.finish().err();
    }
    end
}

#[test]
fn the_books_are_exact_and_names_come_once_and_first() {
    let dir = tempfile::tempdir().expect("folder");
    for more in [&[][..], &["-z"], &["--format", "ndjson"]] {
        let file = dir.path().join("r").display().to_string();
        // More than a batch.
        let end = record(&mut Fake::new(10_000), &file, more);
        assert!(end.failed.is_none(), "{:?}", end.failed);
        let t = &end.totals;
        assert_eq!(
            (t.seen, t.sampled, t.written, t.unfinished),
            (30_000, 10_005, 10_000, 2)
        );
        assert_eq!(t.lost["ring_full"], 3);
        assert_eq!(t.lost["not_written"], 0);
        let lost: u64 = t.lost.values().sum();
        assert_eq!(t.sampled, t.written + lost + t.unfinished);

        let mut reader = Reader::open(&file).expect("recording");
        let (mut n, mut connections, mut devices, mut totals) = (0, 0, 0, None);
        while let Some(item) = reader.next().expect("readable") {
            match item {
                Item::Header(h) => assert_eq!(h.role, Role::Host),
                Item::Connection(_) => connections += 1,
                Item::Device(_) => devices += 1,
                Item::Records(records) => {
                    assert!(connections == 1 && devices == 1, "names before records");
                    for r in records {
                        assert_eq!(r.slba, n);
                        assert_eq!(r.time(host::BLOCK_DONE), Some(1500 + n * 10));
                        n += 1;
                    }
                }
                Item::Totals(t) => totals = Some(t),
                Item::Damage(d) => panic!("{d:?}"),
                _ => {}
            }
        }
        assert_eq!((n, connections, devices), (10_000, 1, 1), "{more:?}");
        assert_eq!(totals.as_ref(), Some(t), "{more:?}");
    }
}

#[test]
fn a_full_disk_ends_the_recording_with_its_name_and_counts_what_was_not_written() {
    let end = record(&mut Fake::new(10_000), "/dev/full", &[]);
    let failed = end.failed.expect("no space");
    let message = ntp_record::tool::message(&failed);
    assert!(message.starts_with("/dev/full: no space left"), "{message}");
    let t = &end.totals;
    assert_eq!(t.written, 0);
    assert_eq!(t.lost["not_written"], 10_000);
}

#[test]
fn a_command_that_ends_at_the_last_moment_is_in_the_books_once() {
    let dir = tempfile::tempdir().expect("folder");
    let mut source = Fake::new(100);
    source.late = Some(source.waiting[0]);
    let end = record(
        &mut source,
        &dir.path().join("r").display().to_string(),
        &[],
    );
    let t = &end.totals;
    assert_eq!((t.written, t.unfinished), (101, 1));
    let lost: u64 = t.lost.values().sum();
    assert_eq!(t.sampled, t.written + lost + t.unfinished);
}

#[test]
fn records_that_never_stop_coming_do_not_keep_it_from_ending() {
    let dir = tempfile::tempdir().expect("folder");
    let mut source = Fake::new(0);
    source.endless = true;
    let end = record(
        &mut source,
        &dir.path().join("r").display().to_string(),
        &[],
    );
    assert!(end.totals.written > 0);
}
