//! The NDJSON encoding: the same content, and lines that stand alone.

mod common;

use common::*;
use ntp_record::point::{self, POINTS};
use ntp_record::{
    Connection, Device, Error, Format, Header, Item, JoinHeader, Joined, Record, Role, Transport,
};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

fn records(items: &[Own]) -> Vec<Record> {
    items
        .iter()
        .filter_map(|item| {
            if let Own::Record(record) = item {
                Some(**record)
            } else {
                None
            }
        })
        .collect()
}

fn text(items: &[Own]) -> String {
    String::from_utf8(write(items, Format::Ndjson)).expect("text")
}

/// Lines of `text` for which `keep` holds.
fn grep(text: &str, keep: impl Fn(&str) -> bool) -> String {
    text.lines()
        .filter(|line| keep(line))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// What `jq` with these arguments makes of `input`; `None` when there is no jq.
fn jq(args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new("jq")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    let feed = std::thread::spawn(move || stdin.write_all(&input));
    let mut out = Vec::new();
    child
        .stdout
        .take()
        .expect("stdout")
        .read_to_end(&mut out)
        .expect("jq's output");
    feed.join().expect("feeder").expect("jq's input");
    assert!(child.wait().expect("jq").success());
    Some(out)
}

#[test]
fn a_record_is_this_line() {
    let mut header = header(Role::Host, "h");
    header.sampling = 50;
    let mut record = Record {
        slba: 9_007_199_254_740_993,
        bytes: 4096,
        nsid: 1,
        conn: 2,
        dev: 1,
        cid: 0xf00d,
        status: 0x281,
        flags: 0b1000_0000_0000_0100,
        submit_cpu: 3,
        send_cpu: 4,
        complete_cpu: 5,
        length: 7,
        opcode: 1,
        retries: 1,
        r2ts: 2,
        pdus: 3,
        ..Record::default()
    };
    record.set(
        ntp_record::point::host::DRIVER_START,
        12_345_678_901_234_567_890,
    );
    record.set(
        ntp_record::point::host::SEND_BEGIN,
        12_345_678_901_234_567_990,
    );
    record.set(
        ntp_record::point::host::BLOCK_DONE,
        12_345_678_901_234_567_880,
    );
    let items = [
        Own::Header(header),
        Own::Connection(connection(2)),
        Own::Device(device(1)),
        Own::Record(Box::new(record)),
    ];
    let text = text(&items);
    assert!(
        text.starts_with(r#"{"ntp":"header","format":1,"role":"host","#),
        "{text}"
    );
    assert!(
        text.contains(
            r#""start_ns":"9007199254740993","wall_minus_mono_ns":"1764500000123456789""#
        )
    );
    assert_eq!(
        text.lines().last(),
        Some(concat!(
            r#"{"role":"host","machine":"h","transport":"tcp","stack":"linux","sampling":50,"#,
            r#""op":"write","opcode":1,"device":"nvme1n1","path":"nvme1c1n1","#,
            r#""connection":"10.0.0.1:41002-[fe80::1%eth-0]:4420/2","conn":2,"dev":1,"#,
            r#""cid":61453,"nsid":1,"slba":"9007199254740993","length":7,"bytes":4096,"status":641,"#,
            r#""flags":["in_capsule","bit15"],"retries":1,"r2ts":2,"pdus":3,"cpus":[3,4,5],"#,
            r#""origin_ns":"12345678901234567890","at":{"driver_start":0,"send_begin":100,"block_done":-10}}"#
        ))
    );
}

#[test]
fn binary_and_back_is_the_same() {
    for items in [
        recording(Role::Host, "h", 2500),
        recording(Role::Target, "t", 30),
        join(700),
    ] {
        let bytes = text(&items).into_bytes();
        let (_file, reader) = file(&bytes).expect("opens");
        assert_eq!(collect(reader).expect("reads"), items);
        for step in [701, 4096, 1 << 20] {
            assert_eq!(
                collect(pipe(&bytes, step)).expect("reads"),
                items,
                "step {step}"
            );
        }
    }
}

/// The same over RDMA: with its header, and no point that RDMA has not.
fn over_rdma(items: Vec<Own>) -> Vec<Own> {
    let strip = |record: &mut Record, role| {
        let has = |index: &u8| {
            point::of(role, Transport::Rdma)
                .iter()
                .any(|point| point.index == *index)
        };
        for index in (0..point::POINTS as u8).filter(|index| !has(index)) {
            record.present &= !(1 << index);
            record.at[usize::from(index)] = 0;
        }
    };
    let mut role = Role::Host;
    items
        .into_iter()
        .map(|mut item| {
            match &mut item {
                Own::Header(header) => {
                    header.transport = Transport::Rdma;
                    role = header.role;
                }
                Own::JoinHeader(header) => {
                    for header in header.hosts.iter_mut().chain(&mut header.targets) {
                        header.transport = Transport::Rdma;
                    }
                }
                Own::Record(record) => strip(record, role),
                Own::Joined(joined) => {
                    strip(&mut joined.host, Role::Host);
                    strip(&mut joined.target, Role::Target);
                }
                _ => {}
            }
            item
        })
        .collect()
}

#[test]
fn rdma_binary_and_back_is_the_same() {
    for items in [
        recording(Role::Host, "h", 300),
        recording(Role::Target, "t", 300),
        join(300),
    ]
    .map(over_rdma)
    {
        let binary = write(&items, Format::Binary);
        let (_file, reader) = file(&binary).expect("opens");
        assert_eq!(collect(reader).expect("reads"), items);
        let lines = text(&items);
        assert!(lines.contains(r#""send_done":"#));
        assert_eq!(collect(pipe(lines.as_bytes(), 4096)).expect("reads"), items);
        // Without a header the names say which points they are.
        let commands = grep(&lines, |line| !line.starts_with(r#"{"ntp""#));
        let alone = collect(pipe(commands.as_bytes(), 4096)).expect("reads");
        let times = |items: &[Own]| -> Vec<[u64; POINTS]> {
            records(items).iter().map(|record| record.at).collect()
        };
        assert_eq!(times(&alone), times(&items));
    }
}

/// Recordings of both transports may be joined at once: a connection tells of
/// which of them a command is.
#[test]
fn joined_commands_have_the_names_of_their_own_transport() {
    let (mut tcp, mut rdma) = (header(Role::Host, "a"), header(Role::Host, "b"));
    tcp.transport = Transport::Tcp;
    rdma.transport = Transport::Rdma;
    let (mut to_tcp, mut to_rdma) = (header(Role::Target, "t"), header(Role::Target, "t"));
    to_tcp.transport = Transport::Tcp;
    to_rdma.transport = Transport::Rdma;
    let of = |id, source| {
        Own::Connection(Connection {
            source: Some(source),
            ..connection(id)
        })
    };
    let command = |conn, index: u8| {
        let mut record = Record {
            conn,
            opcode: 1,
            bytes: 4096,
            present: 1 << index,
            ..Record::default()
        };
        record.at[usize::from(index)] = 5;
        record
    };
    let joined = |conn, host, target| {
        Own::Joined(Box::new(Joined {
            host: command(conn, host),
            target: command(conn + 1, target),
            offset_ns: 0,
            offset_bound_ns: 0,
        }))
    };
    let items = [
        Own::JoinHeader(JoinHeader {
            version: "0.1.0".into(),
            hosts: vec![tcp, rdma],
            targets: vec![to_tcp, to_rdma],
        }),
        of(1, 0),
        of(2, 0),
        of(3, 1),
        of(4, 1),
        joined(1, 3, 5),
        joined(3, 3, 5),
    ];
    let lines = text(&items);
    let commands: Vec<&str> = lines.lines().rev().take(2).collect();
    assert!(commands[1].contains(r#""at":{"send_last":0}"#), "{lines}");
    assert!(
        commands[1].contains(r#""at":{"data_arrived":0}"#),
        "{lines}"
    );
    assert_eq!(commands[0].matches(r#""at":{"send_done":0}"#).count(), 2);
    assert_eq!(collect(pipe(lines.as_bytes(), 4096)).expect("reads"), items);
}

#[test]
fn jq_keeps_everything() {
    for items in [
        recording(Role::Host, "h", 300),
        recording(Role::Target, "t", 30),
        join(200),
    ] {
        let bytes = text(&items).into_bytes();
        // Compact, one value over many lines, and with the keys in another order.
        for args in [
            &["-c", "."][..],
            &["."],
            &["-S", "-c", "."],
            &["--tab", "."],
        ] {
            let Some(through) = jq(args, &bytes) else {
                eprintln!("skipped: jq is not installed");
                return;
            };
            assert_eq!(read(&through), items, "jq {args:?}");
        }
    }
}

#[test]
fn lines_stand_alone() {
    let items = recording(Role::Target, "t", 400);
    let kept = grep(&text(&items), |line| !line.contains("\"ntp\":"));
    let read = read(kept.as_bytes());
    assert_eq!(records(&read), records(&items));
    let Some(Own::Header(header)) = read.first() else {
        panic!("no header")
    };
    assert!(header.is_rebuilt());
    assert_eq!(
        (header.role, header.sampling, header.machine.as_str()),
        (Role::Target, 100, "t")
    );
    for id in 1..=3 {
        let Connection {
            local, remote, qid, ..
        } = connection(id);
        let expected = Connection {
            id,
            local,
            remote,
            qid,
            ..Connection::default()
        };
        assert!(read.contains(&Own::Connection(expected)));
    }
    for id in 1..=2 {
        assert!(read.iter().any(|item| matches!(item, Own::Device(device)
            if device.id == id && device.name == format!("nvme{id}n1") && device.path == format!("nvme{id}c1n1"))));
    }
    // Names stand before their use.
    let mut named = 0;
    for item in &read {
        match item {
            Own::Connection(_) => named += 1,
            Own::Record(record) => assert!(record.conn <= 3 && named > 0),
            _ => {}
        }
    }
}

#[test]
fn a_filtered_stream_is_not_called_cut_off() {
    let kept = grep(&text(&recording(Role::Host, "h", 4)), |line| {
        !line.contains("\"ntp\":")
    });
    let mut reader = pipe(kept.as_bytes(), 4096);
    while reader.next().expect("reads").is_some() {}
    assert!(reader.ended_cleanly());
}

#[test]
fn joined_lines_stand_alone() {
    let items = join(50);
    let kept = grep(&text(&items), |line| !line.contains("\"ntp\":"));
    let read = read(kept.as_bytes());
    let pairs = |items: &[Own]| -> Vec<Own> {
        items
            .iter()
            .filter(|item| matches!(item, Own::Joined(_)))
            .cloned()
            .collect()
    };
    assert_eq!(pairs(&read), pairs(&items));
    let Some(Own::JoinHeader(join)) = read.first() else {
        panic!("no header")
    };
    assert!(join.is_rebuilt());
    let sides: Vec<(Role, u32, &str)> = join
        .hosts
        .iter()
        .chain(&join.targets)
        .map(
            |Header {
                 role,
                 sampling,
                 machine,
                 ..
             }| (*role, *sampling, machine.as_str()),
        )
        .collect();
    assert_eq!(sides, [(Role::Host, 100, "h"), (Role::Target, 100, "t")]);
    // A connection keeps the recording it is of.
    let sources: Vec<(u32, Option<u32>)> = read
        .iter()
        .filter_map(|item| match item {
            Own::Connection(x) => Some((x.id, x.source)),
            _ => None,
        })
        .collect();
    assert_eq!(sources.len(), 3);
    for (id, source) in sources {
        assert_eq!(source, Some(id % 2));
    }
}

#[test]
fn ids_of_two_filtered_recordings_do_not_mix() {
    let line = |connection: &str, device: &str| {
        format!(
            r#"{{"role":"host","transport":"tcp","stack":"linux","sampling":1,"machine":"h","opcode":2,"bytes":512,"conn":1,"dev":1,"connection":"{connection}","device":"{device}","at":{{}}}}
"#
        )
    };
    let text = [
        line("10.0.0.1:1-10.0.0.2:4420/1", "nvme0n1"),
        line("10.0.0.1:9-10.0.0.2:4420/1", "nvme0n2"),
        line("10.0.0.1:1-10.0.0.2:4420/1", "nvme0n1"),
    ]
    .concat();
    let read = read(text.as_bytes());
    let mut segment = ntp_record::Segment::default();
    for item in &read {
        match item {
            Own::Connection(x) => segment.apply(&Item::Connection(x.clone())),
            Own::Device(x) => segment.apply(&Item::Device(x.clone())),
            _ => {}
        }
    }
    let names: Vec<(String, String)> = records(&read)
        .iter()
        .map(|record| {
            let Some(Connection { local, .. }) = segment.connection(record.conn) else {
                panic!("unnamed")
            };
            let Some(Device { name, .. }) = segment.device(record.dev) else {
                panic!("unnamed")
            };
            (local.clone(), name.clone())
        })
        .collect();
    let expected = [
        ("10.0.0.1:1", "nvme0n1"),
        ("10.0.0.1:9", "nvme0n2"),
        ("10.0.0.1:1", "nvme0n1"),
    ];
    assert_eq!(
        names,
        expected.map(|(local, name)| (local.to_owned(), name.to_owned()))
    );
}

#[test]
fn a_change_of_machine_opens_a_segment() {
    let a = grep(&text(&recording(Role::Host, "a", 3)), |line| {
        !line.contains("\"ntp\":")
    });
    let b = grep(&text(&recording(Role::Target, "b", 2)), |line| {
        !line.contains("\"ntp\":")
    });
    let read = read([a, b].concat().as_bytes());
    let mut machines = Vec::new();
    for item in &read {
        match item {
            Own::Header(header) => machines.push((header.machine.clone(), 0)),
            Own::Record(_) => machines.last_mut().expect("a header first").1 += 1,
            _ => {}
        }
    }
    assert_eq!(machines, [("a".to_owned(), 3), ("b".to_owned(), 2)]);
}

#[test]
fn a_broken_line_is_damage_and_not_the_end() {
    let items = recording(Role::Host, "h", 20);
    let text = text(&items);
    for broken in [
        "{\"role\":\"host\",\"op\":",
        "{\"role\":\"host\"}",
        "garbage",
        "}{",
        "[1,2,3]",
        "\u{1}",
        "{\"opcode\":2,\"bytes\":1,\"at\":{\"send_begin\":0}}",
        "{\"opcode\":2,\"bytes\":-1,\"at\":{}}",
        "{\"ntp\":\"totals\"}",
        "\"unclosed",
    ] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(10, broken);
        let bytes = lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .into_bytes();
        let offset: usize = lines[..10].iter().map(|line| line.len() + 1).sum();
        for step in [100, 1 << 20] {
            let read = collect(pipe(&bytes, step)).expect("reads");
            let damage: Vec<_> = read
                .iter()
                .filter_map(|item| {
                    if let Own::Damage(x) = item {
                        Some(x)
                    } else {
                        None
                    }
                })
                .collect();
            assert_eq!(damage.len(), 1, "{broken}");
            assert_eq!(damage[0].offset, offset as u64, "{broken}");
            assert!(
                [broken.len(), broken.len() + 1].contains(&(damage[0].bytes as usize)),
                "{broken}"
            );
            let rest: Vec<Own> = read
                .iter()
                .filter(|item| !matches!(item, Own::Damage(_)))
                .cloned()
                .collect();
            assert_eq!(rest, items, "{broken}");
        }
    }
}

#[test]
fn cut_at_every_byte_gives_every_whole_line() {
    let items = recording(Role::Host, "h", 2);
    let text = text(&items);
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    for cut in 1..text.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let read = match collect(pipe(&text.as_bytes()[..cut], 4096)) {
            Ok(read) => read,
            Err(error) => {
                assert!(
                    matches!(error, Error::NotARecording { .. }) && cut < 7,
                    "cut at {cut}: {error}"
                );
                continue;
            }
        };
        let rest: Vec<Own> = read
            .iter()
            .filter(|item| !matches!(item, Own::Damage(_)))
            .cloned()
            .collect();
        assert_eq!(rest, items[..whole], "cut at {cut}");
        let lost = cut - if whole > 0 { ends[whole - 1] } else { 0 };
        assert_eq!(
            read.len() > rest.len(),
            lost > 1 || whole == 0,
            "cut at {cut}"
        );
    }
}

#[test]
fn flipped_bytes_never_stop_a_reader() {
    let items = recording(Role::Host, "h", 4);
    let clean = text(&items).into_bytes();
    for at in 0..clean.len() {
        let mut bytes = clean.clone();
        bytes[at] ^= 0x15;
        let Ok(read) = collect(pipe(&bytes, 1 << 20)) else {
            continue;
        };
        // Text has no checksum: a flip may give another value or name, but costs at most the
        // line it is in and, when it hits the newline, the next.
        let anonymous = |items: &[Own]| -> Vec<Record> {
            records(items)
                .into_iter()
                .map(|record| Record {
                    conn: 0,
                    dev: 0,
                    ..record
                })
                .collect()
        };
        let read = anonymous(&read);
        let same = anonymous(&items)
            .iter()
            .filter(|record| read.contains(record))
            .count();
        assert!(same >= 2, "byte {at}: {same}");
    }
}

#[test]
fn a_live_pipe_is_not_held_back() {
    // Two records and the first half of a third: the two must come without waiting for the rest.
    struct Live(Vec<Vec<u8>>);
    impl Read for Live {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            assert!(
                !self.0.is_empty(),
                "read again while there was something to give"
            );
            let count = out.len().min(self.0[0].len());
            out[..count].copy_from_slice(&self.0[0][..count]);
            self.0[0].drain(..count);
            self.0.retain(|part| !part.is_empty());
            Ok(count)
        }
    }
    for format in [Format::Ndjson, Format::Binary] {
        let items = recording(Role::Host, "h", 3);
        let bytes = write(&items, format);
        let two = write(&items[..8], format).len();
        let parts = vec![bytes[..two + 50].to_vec()];
        let mut reader = ntp_record::Reader::from_read("live", Box::new(Live(parts)));
        let mut count = 0;
        while count < 2 {
            if let Some(Item::Records(records)) = reader.next().expect("reads") {
                count += records.len();
            }
        }
    }
}

#[test]
fn fields_and_kinds_of_the_future_are_ignored() {
    let items = recording(Role::Host, "h", 2);
    let text = text(&items).replace(
        "{\"role\":\"host\",\"machine\"",
        "{\"new\":[{}],\"role\":\"host\",\"machine\"",
    );
    let text = text.replace("\"at\":{", "\"at\":{\"new_point\":5,");
    let text = format!("{}\n{}", "{\"ntp\":\"news\",\"a\":1}", text);
    assert_eq!(read(text.as_bytes()), items);
}

#[test]
fn a_newer_format_is_refused() {
    let text = text(&recording(Role::Host, "h", 2)).replace("\"format\":1", "\"format\":3");
    let error = collect(pipe(text.as_bytes(), 4096))
        .err()
        .map(|error| error.to_string());
    assert!(
        error
            .is_some_and(|error| error.contains("format version 3 is newer than the 1 known here"))
    );
}

#[test]
fn nothing_kept_by_a_filter_is_empty() {
    let error = collect(pipe(b"\n\n", 4096))
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("pipe: empty: nothing was recorded, or a filter let nothing through")
    );
}
