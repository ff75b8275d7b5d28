//! gzip and zstd: undone unseen, and a cut costs what is behind it.

mod common;

use common::*;
use ntp_record::{Damage, Format, Role};
use std::io::Write;
use std::process::{Command, Stdio};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).expect("compressed");
    out.finish().expect("compressed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("compressed")
}

type Compress = fn(&[u8]) -> Vec<u8>;

const KINDS: [(&str, Compress); 2] = [("gzip", gzip), ("zstd", zstd)];

fn split(items: Vec<Own>) -> (Vec<Own>, Vec<Damage>) {
    let mut rest = Vec::new();
    let mut damage = Vec::new();
    for item in items {
        match item {
            Own::Damage(x) => damage.push(x),
            item => rest.push(item),
        }
    }
    (rest, damage)
}

#[test]
fn compressed_files_and_pipes_give_what_was_written() {
    let items = recording(Role::Host, "h", 300);
    for format in [Format::Binary, Format::Ndjson] {
        let bytes = write(&items, format);
        for (name, compress) in KINDS {
            let packed = compress(&bytes);
            let (_file, reader) = file(&packed).expect("opens");
            assert_eq!(collect(reader).expect("reads"), items, "{name}");
            for step in [1, 1000, 1 << 20] {
                assert_eq!(
                    collect(pipe(&packed, step)).expect("reads"),
                    items,
                    "{name}, step {step}"
                );
            }
        }
    }
}

#[test]
fn members_of_any_kind_follow_each_other() {
    let parts = [
        recording(Role::Host, "a", 20),
        recording(Role::Host, "b", 3),
        recording(Role::Host, "c", 1),
    ];
    let bytes = parts.clone().map(|items| write(&items, Format::Binary));
    let packed = [
        gzip(&bytes[0]),
        gzip(&bytes[1]),
        zstd(&bytes[1]),
        gzip(&[]),
        zstd(&bytes[0]),
        bytes[2].clone(),
    ]
    .concat();
    let expected = [0, 1, 1, 0, 2].map(|index| parts[index].clone()).concat();
    assert_eq!(read(&packed), expected);
    assert_eq!(collect(pipe(&packed, 5)).expect("reads"), expected);
}

#[test]
fn compressed_twice_is_undone_once_and_said_so() {
    let packed = gzip(&gzip(&write(
        &recording(Role::Host, "a", 2),
        Format::Binary,
    )));
    let error = collect(pipe(&packed, 1000))
        .err()
        .map(|error| error.to_string());
    assert!(error.is_some_and(|error| {
        error.starts_with("pipe: not a recording: begins with `\\x1f\\x8b\\x08")
    }));
}

#[test]
fn cut_anywhere_gives_what_came_before() {
    let items = recording(Role::Host, "h", 60);
    let bytes = write(&items, Format::Binary);
    for (name, compress) in KINDS {
        let packed = compress(&bytes);
        let mut best = 0;
        // Fewer than four bytes could be anything.
        for cut in (4..packed.len()).step_by(13) {
            let (rest, damage) =
                match file(&packed[..cut]).and_then(|(_file, reader)| collect(reader)) {
                    Ok(read) => split(read),
                    Err(error) => panic!("{name}, cut at {cut}: {error}"),
                };
            assert_eq!(rest, items[..rest.len()], "{name}, cut at {cut}");
            // A gzip trailer or a zstd checksum may be missing behind all the data.
            assert_eq!(damage.len(), 1, "{name}, cut at {cut}");
            assert!(
                damage[0].cause.ends_with("stream is cut off"),
                "{name}, cut at {cut}: {}",
                damage[0].cause
            );
            assert!(rest.len() >= best, "{name}, cut at {cut}");
            best = rest.len();
        }
        // A block of zstd is longer than all of this: only a flush ends one early.
        assert!(best > items.len() / 2 || name == "zstd", "{name}: {best}");
    }
}

#[test]
fn a_stream_flushed_each_second_is_whole_up_to_the_last_flush() {
    let items = recording(Role::Host, "h", 60);
    let bytes = write(&items, Format::Binary);
    let half = write(&items[..30], Format::Binary).len();
    let lost = |what: &str| {
        let cause = format!("the {what} stream is cut off");
        [Damage {
            offset: half as u64,
            bytes: 0,
            cause,
        }]
    };

    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(&bytes[..half]).expect("compressed");
    out.flush().expect("compressed");
    let flushed = out.get_ref().len();
    out.write_all(&bytes[half..]).expect("compressed");
    let packed = out.finish().expect("compressed");
    let (rest, damage) = split(read(&packed[..flushed]));
    assert_eq!((&rest[..], &damage[..]), (&items[..30], &lost("gzip")[..]));

    let mut out = zstd::Encoder::new(Vec::new(), 3).expect("encoder");
    out.write_all(&bytes[..half]).expect("compressed");
    out.flush().expect("compressed");
    let flushed = out.get_ref().len();
    out.write_all(&bytes[half..]).expect("compressed");
    let packed = out.finish().expect("compressed");
    let (rest, damage) = split(read(&packed[..flushed]));
    assert_eq!((&rest[..], &damage[..]), (&items[..30], &lost("zstd")[..]));
}

#[test]
fn a_member_behind_one_that_was_cut_off_is_found() {
    let (a, b) = (
        recording(Role::Host, "a", 60),
        recording(Role::Host, "b", 40),
    );
    for (name, compress) in KINDS {
        let (first, second) = (
            compress(&write(&a, Format::Binary)),
            compress(&write(&b, Format::Binary)),
        );
        for tenth in 1..10 {
            let packed = [&first[..first.len() * tenth / 10], &second].concat();
            for step in [100, 1 << 20] {
                let (rest, damage) = split(collect(pipe(&packed, step)).expect("reads"));
                assert!(!damage.is_empty());
                let whole = rest.len() - b.len();
                assert_eq!(rest[..whole], a[..whole], "{name}, {tenth} tenths");
                assert_eq!(rest[whole..], b, "{name}, {tenth} tenths");
            }
        }
    }
}

#[test]
fn damage_inside_a_member_costs_what_is_behind_it() {
    let (a, b) = (
        recording(Role::Host, "a", 200),
        recording(Role::Host, "b", 5),
    );
    for (name, compress) in KINDS {
        let first = compress(&write(&a, Format::Binary));
        let second = compress(&write(&b, Format::Binary));
        for at in (20..first.len() - 20).step_by(first.len() / 50) {
            let mut packed = [first.clone(), second.clone()].concat();
            packed[at] ^= 0xa5;
            let (rest, damage) = split(read(&packed));
            assert!(!damage.is_empty(), "{name}, byte {at}");
            // b is behind the damage and whole; of a nothing is made up.
            assert!(rest.ends_with(&b), "{name}, byte {at}");
            let mut written = a.iter();
            for item in &rest[..rest.len() - b.len()] {
                assert!(written.any(|other| other == item), "{name}, byte {at}");
            }
        }
    }
}

#[test]
fn the_real_programs_are_understood() {
    let items = recording(Role::Host, "h", 50);
    let bytes = write(&items, Format::Binary);
    for program in ["gzip", "zstd"] {
        let child = Command::new(program)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let mut stdin = child.stdin.take().expect("stdin");
        let input = bytes.clone();
        let feed = std::thread::spawn(move || stdin.write_all(&input));
        let out = child.wait_with_output().expect("output").stdout;
        feed.join().expect("feeder").expect("input");
        assert_eq!(read(&out), items, "{program}");
    }
}
