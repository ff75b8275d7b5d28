//! A host's recording held to the log of `lab-target`, which ran on the same
//! machine and so by the same clock: what the target did is known to the PDU.

use crate::truth::Recording;
use anyhow::{Context, Result};
use ntp_lab::target::Logged;
use ntp_record::point::{Point, host};
use ntp_record::{Flags, Record, sample};
use std::collections::BTreeMap;
use std::path::Path;

/// What the comparison found.
#[derive(Debug, Default)]
pub struct Found {
    /// Commands in both.
    pub matched: usize,
    /// What cannot be, a line each.
    pub violations: Vec<String>,
    /// Commands that should have a point and have not, by the point's name.
    pub absent: BTreeMap<&'static str, usize>,
    /// Commands answered by several PDUs, and those of them that are recorded
    /// as having their first packet only after the second PDU was sent. TCP may
    /// hold a packet back that long; where it is more than a few, the arrival
    /// of another packet was taken.
    pub several: usize,
    /// See `several`.
    pub late: usize,
}

/// Reads a log.
pub fn log(path: &Path) -> Result<Vec<Logged>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("`{}`", path.display()))?;
    text.lines()
        .enumerate()
        .map(|(i, line)| {
            serde_json::from_str(line).with_context(|| format!("`{}`:{}", path.display(), i + 1))
        })
        .collect()
}

/// Holds the I/O commands of a recording to those of a log that belong to its
/// sample; the recording has no other filter. No command may be in flight when
/// the recording begins or ends.
pub fn compare(log: &[Logged], recording: &Recording) -> Found {
    type Key<'a> = (&'a str, u16, u8, u64, u16);
    let mut commands: BTreeMap<Key<'_>, (Vec<&Logged>, Vec<&Record>)> = BTreeMap::new();
    let during = recording.header.start_ns..=recording.totals.end_ns;
    let sampled = |l: &Logged| {
        let key = sample::Key {
            slba: l.slba,
            nsid: 1, // the only one
            cid: l.cid,
            length: l.nlb,
            opcode: l.opcode,
        };
        sample::sampled(
            sample::hash(&key, recording.header.salt),
            recording.header.sampling,
        )
    };
    for l in log {
        // 0x7f: Connect, which goes over the queue that it makes.
        if l.qid > 0 && l.opcode != 0x7f && during.contains(&l.received_ns) && sampled(l) {
            let key = (&*l.peer, l.cid, l.opcode, l.slba, l.nlb);
            commands.entry(key).or_default().0.push(l);
        }
    }
    for r in recording.records.iter().filter(|r| !r.has(Flags::Admin)) {
        let local = recording.connections.get(&r.conn).map(|c| &*c.local);
        let key = (local.unwrap_or(""), r.cid, r.opcode, r.slba, r.length);
        commands.entry(key).or_default().1.push(r);
    }
    let mut found = Found::default();
    for (key, (mut logged, mut recorded)) in commands {
        if logged.len() != recorded.len() {
            found.violations.push(format!(
                "{key:?}: {} in the log, {} recorded",
                logged.len(),
                recorded.len()
            ));
            continue;
        }
        logged.sort_by_key(|l| l.received_ns);
        recorded.sort_by_key(|r| r.time(host::DRIVER_START));
        for (l, r) in logged.into_iter().zip(recorded) {
            command(l, r, &mut found);
        }
    }
    found
}

/// A time on either side.
#[derive(Clone, Copy)]
enum At {
    Host(Point),
    Target(&'static str, u64),
}

fn command(l: &Logged, r: &Record, found: &mut Found) {
    use At::{Host, Target};
    let mut wrong = |what: String| {
        let id = (&l.peer, l.cid, l.slba, l.received_ns);
        found.violations.push(format!("{id:?}: {what}"));
    };
    found.matched += 1;

    let answers = l.c2h_pdus + u32::from(!l.success);
    let saturated = |n: u32| n.min(255) as u8;
    if r.r2ts != saturated(l.r2ts) {
        wrong(format!("{} R2Ts, {} recorded", l.r2ts, r.r2ts));
    }
    if r.pdus != saturated(answers) {
        wrong(format!("{answers} PDUs, {} recorded", r.pdus));
    }
    if r.status != l.status {
        wrong(format!("status {:#x}, {:#x} recorded", l.status, r.status));
    }
    let write = l.opcode == 0x01;
    for (flag, name, is) in [
        (Flags::R2t, "r2t", l.r2ts > 0),
        (Flags::InCapsule, "in_capsule", write && l.r2ts == 0),
        (Flags::SuccessFlag, "success_flag", l.success),
        (Flags::Cancelled, "cancelled", false),
    ] {
        if r.has(flag) != is {
            wrong(format!("{name}: {is}, {} recorded", r.has(flag)));
        }
    }

    // Each is no later than the next.
    let mut chains = vec![
        vec![
            Host(host::BLOCK_START),
            Host(host::DRIVER_START),
            Host(host::SEND_BEGIN),
            Host(host::SEND_LAST),
            Target("received_ns", l.received_ns),
        ],
        vec![Host(host::SEND_LAST), Host(host::SEND_END)],
        vec![
            Target("answered_ns", l.answered_ns),
            Host(host::RESP_ARRIVED),
            Host(host::RESP_READ),
            Host(host::RESP_LAST),
            Host(host::COMPLETED),
            Host(host::COMPLETE_RQ),
            Host(host::BLOCK_DONE),
        ],
        vec![Target("last_ns", l.last_ns), Host(host::RESP_LAST)],
    ];
    if l.r2ts > 0 {
        chains.push(vec![
            Target("r2t_ns", l.r2t_ns),
            Host(host::R2T_ARRIVED),
            Host(host::R2T_READ),
            Host(host::DATA_SEND_BEGIN),
            Host(host::DATA_SEND_LAST),
            Target("data_done_ns", l.data_done_ns),
        ]);
        chains.push(vec![Host(host::DATA_SEND_LAST), Host(host::DATA_SEND_END)]);
    }
    for chain in chains {
        let mut before: Option<(&str, u64)> = None;
        for at in chain {
            let (name, ns) = match at {
                Target(name, ns) => (name, Some(ns)),
                Host(point) => (point.name, r.time(point)),
            };
            let Some(ns) = ns else {
                *found.absent.entry(name).or_default() += 1;
                continue;
            };
            if let Some((first, early)) = before.filter(|b| b.1 > ns) {
                let late = early - ns;
                let id = (&l.peer, l.cid, l.slba, l.received_ns);
                let line = format!("{id:?}: {name} is {late} ns before {first}");
                found.violations.push(line);
            }
            before = Some((name, ns));
        }
    }
    if l.second_ns > 0 {
        found.several += 1;
        let late = r.time(host::RESP_ARRIVED) > Some(l.second_ns);
        found.late += usize::from(late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ntp_record::{Connection, Totals};

    /// A write that was asked for twice and a read of three PDUs, as they are
    /// logged and as they are recorded.
    fn both() -> (Vec<Logged>, Recording) {
        let write = Logged {
            peer: "10.0.0.1:5000".into(),
            qid: 1,
            cid: 7,
            opcode: 1,
            slba: 64,
            nlb: 15,
            received_ns: 1400,
            r2t_ns: 1500,
            data_done_ns: 2300,
            answered_ns: 2400,
            last_ns: 2400,
            r2ts: 2,
            h2c_pdus: 2,
            ..Logged::default()
        };
        let read = Logged {
            opcode: 2,
            received_ns: 3400,
            r2t_ns: 0,
            data_done_ns: 0,
            answered_ns: 3500,
            second_ns: 3600,
            last_ns: 3700,
            c2h_pdus: 3,
            r2ts: 0,
            h2c_pdus: 0,
            ..write.clone()
        };
        let record = |l: &Logged, flags: Flags, times: &[(Point, u64)]| {
            let mut r = Record {
                slba: 64,
                conn: 3,
                cid: 7,
                length: 15,
                opcode: l.opcode,
                r2ts: l.r2ts as u8,
                pdus: l.c2h_pdus as u8 + 1,
                flags: flags as u16,
                ..Record::default()
            };
            for (point, ns) in times {
                r.set(*point, *ns);
            }
            r
        };
        let begin = |at| {
            [
                (host::BLOCK_START, at),
                (host::DRIVER_START, at + 100),
                (host::SEND_BEGIN, at + 200),
                (host::SEND_LAST, at + 300),
                (host::SEND_END, at + 410),
            ]
        };
        let end = |at| {
            [
                (host::RESP_ARRIVED, at),
                (host::RESP_READ, at + 200),
                (host::RESP_LAST, at + 300),
                (host::COMPLETED, at + 310),
                (host::COMPLETE_RQ, at + 320),
                (host::BLOCK_DONE, at + 330),
            ]
        };
        let middle = [
            (host::R2T_ARRIVED, 1600),
            (host::R2T_READ, 1700),
            (host::DATA_SEND_BEGIN, 1800),
            (host::DATA_SEND_LAST, 2200),
            (host::DATA_SEND_END, 2350),
        ];
        let written = [&begin(1000)[..], &middle, &end(2500)].concat();
        let was_read = [begin(3000).as_slice(), &end(3550)].concat();
        let header = serde_json::json!({
            "role": "host", "transport": "tcp", "stack": "linux", "sampling": 1,
            "machine": "host", "kernel": "6.12", "version": "0.1.0",
            "start_ns": 500, "wall_minus_mono_ns": 0
        });
        let connection = Connection {
            local: "10.0.0.1:5000".into(),
            ..Connection::default()
        };
        let recording = Recording {
            header: serde_json::from_value(header).unwrap(),
            records: vec![
                // The order of records is that of their ends.
                record(&read, Flags::Polled, &was_read),
                record(&write, Flags::R2t, &written),
            ],
            connections: [(3, connection)].into(),
            devices: [].into(),
            totals: Totals {
                end_ns: 9000,
                ..Totals::default()
            },
        };
        let earlier = Logged {
            received_ns: 400,
            ..read.clone()
        };
        let connect = Logged {
            opcode: 0x7f,
            ..read.clone()
        };
        (vec![earlier, connect, write, read], recording)
    }

    #[test]
    fn what_fits_is_not_complained_of() {
        let (log, recording) = both();
        let found = compare(&log, &recording);
        assert_eq!(found.violations, [""; 0]);
        assert_eq!((found.matched, found.several, found.late), (2, 1, 0));
        assert_eq!(found.absent, BTreeMap::new());
    }

    #[test]
    fn each_disagreement_is_named() {
        type Damage = fn(&mut Logged, &mut Logged, &mut Record, &mut Record);
        let cases: [(Damage, &str); 12] = [
            (|_, _, w, _| w.r2ts = 1, "2 R2Ts, 1 recorded"),
            (|_, _, _, r| r.pdus = 3, "4 PDUs, 3 recorded"),
            (|_, _, _, r| r.status = 2, "status 0x0, 0x2 recorded"),
            (|_, r, _, _| r.success = true, "3 PDUs, 4 recorded"),
            (|_, r, _, _| r.success = true, "success_flag: true, false"),
            (
                |w, _, _, _| w.received_ns = 1299,
                "received_ns is 1 ns before send_last",
            ),
            (
                |w, _, _, _| w.r2t_ns = 1601,
                "r2t_arrived is 1 ns before r2t_ns",
            ),
            (
                |w, _, _, _| w.data_done_ns = 2199,
                "data_done_ns is 1 ns before data_send_last",
            ),
            (
                |_, r, _, _| r.answered_ns = 3551,
                "resp_arrived is 1 ns before answered_ns",
            ),
            (
                |_, r, _, _| r.last_ns = 3851,
                "resp_last is 1 ns before last_ns",
            ),
            (
                |_, _, _, r| r.set(host::RESP_READ, 3549),
                "resp_read is 1 ns before resp_arrived",
            ),
            (|_, _, _, r| r.cid = 8, "1 in the log, 0 recorded"),
        ];
        for (damage, expected) in cases {
            let (mut log, mut recording) = both();
            let [.., write, read] = &mut log[..] else {
                unreachable!()
            };
            let [was_read, written] = &mut recording.records[..] else {
                unreachable!()
            };
            damage(write, read, written, was_read);
            let said = compare(&log, &recording).violations;
            assert!(
                said.iter().any(|s| s.contains(expected)),
                "{expected}: {said:?}"
            );
        }
    }

    #[test]
    fn commands_outside_of_the_sample_are_not_asked_for() {
        let (log, mut recording) = both();
        recording.records.clear();
        assert_eq!(compare(&log, &recording).violations.len(), 2);
        // A sample this small holds neither.
        recording.header.sampling = u32::MAX;
        assert_eq!(compare(&log, &recording).violations, [""; 0]);
    }

    #[test]
    fn a_late_arrival_and_an_absent_point_are_counted() {
        let (log, mut recording) = both();
        recording.records[0].set(host::RESP_ARRIVED, 3601);
        let found = compare(&log, &recording);
        assert_eq!((found.violations.len(), found.late), (0, 1));
        recording.records[0].present &= !(1 << host::RESP_ARRIVED.index);
        let found = compare(&log, &recording);
        assert_eq!((found.violations.len(), found.late), (0, 0));
        assert_eq!(found.absent, BTreeMap::from([("resp_arrived", 1)]));
    }
}
