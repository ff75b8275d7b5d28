//! The binary encoding: what is written is read, and damage costs what it hits.

mod common;

use common::*;
use ntp_record::{Damage, Error, Format, Item, Reader, Role, Writer};

/// Where the chunks of a stream begin, from the lengths in their heads.
fn chunk_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        assert_eq!(&bytes[at..at + 4], b"NTP\x1a");
        starts.push(at);
        let length =
            u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("4 bytes")) as usize;
        at += 24 + length.div_ceil(8) * 8;
    }
    assert_eq!(at, bytes.len());
    starts
}

fn is_damage(item: &Own) -> bool {
    matches!(item, Own::Damage(_))
}

fn without_damage(items: Vec<Own>) -> Vec<Own> {
    items.into_iter().filter(|item| !is_damage(item)).collect()
}

fn damaged_bytes(items: &[Own]) -> u64 {
    items
        .iter()
        .map(|item| {
            if let Own::Damage(damage) = item {
                damage.bytes
            } else {
                0
            }
        })
        .sum()
}

#[test]
fn the_first_bytes_are_those_of_the_man_page() {
    let bytes = write(&[Own::Device(device(1))], Format::Binary);
    let payload = br#"{"id":1,"name":"nvme1n1","path":"nvme1c1n1","nsid":1,"subnqn":"nqn.sub"}"#;
    assert_eq!(&bytes[0..12], b"NTP\x1a\x04\x00\x01\x00\x48\x00\x00\x00");
    assert_eq!(payload.len(), 0x48);
    assert_eq!(bytes[24..96], payload[..]);
    assert_eq!(bytes.len(), 96);
    // CRC-32C by its definition: reflected, polynomial 0x1edc6f41.
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 }
            })
        })
    };
    assert_eq!(crc(b"123456789"), 0xe306_9283);
    assert_eq!(bytes[12..16], crc(payload).to_le_bytes());
    assert_eq!(bytes[16..20], [0; 4]);
    assert_eq!(bytes[20..24], crc(&bytes[..20]).to_le_bytes());
}

#[test]
fn file_and_pipe_give_what_was_written() {
    for items in [
        recording(Role::Host, "h", 50),
        recording(Role::Target, "t", 3),
        join(40),
    ] {
        let bytes = write(&items, Format::Binary);
        let (_file, reader) = file(&bytes).expect("opens");
        assert_eq!(collect(reader).expect("reads"), items);
        for step in [1, 7, 4096, 1 << 20] {
            assert_eq!(
                collect(pipe(&bytes, step)).expect("reads"),
                items,
                "step {step}"
            );
        }
    }
}

#[test]
fn records_of_a_file_are_not_copied() {
    let bytes = write(&recording(Role::Host, "h", 5), Format::Binary);
    let (_file, mut reader) = file(&bytes).expect("opens");
    let mut previous: Option<usize> = None;
    while let Some(item) = reader.next().expect("reads") {
        if let Item::Records(records) = item {
            let address = records.as_ptr() as usize;
            // One record a chunk: the next one lies a head and a record further in the same map.
            assert!(previous.is_none_or(|previous| address == previous + 176 + 24));
            previous = Some(address);
        }
    }
    assert!(previous.is_some());
}

#[test]
fn large_batches_become_several_chunks() {
    let mut random = Random(1);
    let records: Vec<_> = (0..10_000).map(|_| record(&mut random)).collect();
    let mut out = Writer::new(Vec::new(), Format::Binary);
    out.records(&records).expect("written");
    let bytes = out.into_inner();
    assert!(
        chunk_starts(&bytes)
            .windows(2)
            .all(|pair| pair[1] - pair[0] <= 1 << 20)
    );
    let read: Vec<_> = read(&bytes);
    assert_eq!(
        read,
        records
            .iter()
            .map(|record| Own::Record(Box::new(*record)))
            .collect::<Vec<_>>()
    );
}

#[test]
fn concatenation_is_a_recording_of_both() {
    let (a, b) = (recording(Role::Host, "a", 4), recording(Role::Host, "b", 3));
    let bytes = [write(&a, Format::Binary), write(&b, Format::Binary)].concat();
    assert_eq!(read(&bytes), [a, b].concat());
}

#[test]
fn a_misaligned_stream_is_read_too() {
    let a = recording(Role::Host, "a", 4);
    let bytes = write(&a, Format::Binary);
    for shift in 1..8 {
        // Garbage before the first chunk shifts everything.
        let bytes = [&b"????????"[..shift], &bytes].concat();
        let lost = Damage {
            offset: 0,
            bytes: shift as u64,
            cause: "not a chunk".into(),
        };
        let expected = [vec![Own::Damage(lost)], a.clone()].concat();
        let (_file, reader) = file(&bytes).expect("opens");
        assert_eq!(collect(reader).expect("reads"), expected);
        assert_eq!(collect(pipe(&bytes, 1000)).expect("reads"), expected);
    }
}

#[test]
fn cut_at_every_byte_gives_every_whole_chunk() {
    let items = recording(Role::Host, "h", 3);
    let bytes = write(&items, Format::Binary);
    let mut starts = chunk_starts(&bytes);
    assert_eq!(starts.len(), items.len());
    starts.push(bytes.len());
    for cut in 1..bytes.len() {
        let whole = starts[1..].iter().filter(|end| **end <= cut).count();
        // Padding carries nothing: without it the chunk is whole.
        let length =
            u32::from_le_bytes(bytes[starts[whole] + 8..][..4].try_into().expect("4 bytes"))
                as usize;
        let in_padding = cut >= starts[whole] + 24 + length;
        let (_file, reader) = file(&bytes[..cut]).expect("opens");
        let read = collect(reader).expect("reads");
        assert_eq!(read, collect(pipe(&bytes[..cut], 100)).expect("reads"));
        if in_padding {
            assert_eq!(read, items[..=whole]);
            continue;
        }
        let lost = cut - starts[whole];
        assert_eq!(damaged_bytes(&read), lost as u64, "cut at {cut}");
        assert_eq!(without_damage(read.clone()), items[..whole], "cut at {cut}");
        if lost > 0 {
            let Some(Own::Damage(damage)) = read.last() else {
                panic!("no damage told, cut at {cut}")
            };
            assert_eq!(damage.offset, starts[whole] as u64);
            assert_eq!(damage.cause, "cut off in the middle of a chunk");
        }
    }
}

#[test]
fn a_cut_recording_before_another_loses_only_the_cut_chunk() {
    let (a, b) = (recording(Role::Host, "a", 3), recording(Role::Host, "b", 3));
    let bytes = write(&a, Format::Binary);
    let starts = chunk_starts(&bytes);
    let cut = starts[8] - 11;
    let bytes = [&bytes[..cut], &write(&b, Format::Binary)].concat();
    let read = read(&bytes);
    assert_eq!(damaged_bytes(&read), (cut - starts[7]) as u64);
    assert_eq!(without_damage(read), [&a[..7], &b[..]].concat());
}

#[test]
fn a_flipped_byte_costs_the_chunk_it_is_in() {
    let items = recording(Role::Target, "t", 4);
    let bytes = write(&items, Format::Binary);
    let mut starts = chunk_starts(&bytes);
    starts.push(bytes.len());
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x55;
        let hit = starts
            .iter()
            .rposition(|start| *start <= at)
            .expect("in a chunk");
        let length =
            u32::from_le_bytes(bytes[starts[hit] + 8..][..4].try_into().expect("4 bytes")) as usize;
        let read = collect(pipe(&bytes, 1 << 20)).expect("reads");
        if at >= starts[hit] + 24 && at >= starts[hit] + 24 + length {
            assert_eq!(read, items, "padding means nothing");
            continue;
        }
        let mut expected = items.clone();
        expected.remove(hit);
        assert_eq!(without_damage(read.clone()), expected, "byte {at}");
        assert_eq!(
            damaged_bytes(&read),
            (starts[hit + 1] - starts[hit]) as u64,
            "byte {at}"
        );
        if at % 16 == 0 {
            let (_file, reader) = file(&bytes).expect("opens");
            assert_eq!(collect(reader).expect("reads"), read);
        }
    }
}

#[test]
fn random_damage_never_stops_a_reader() {
    let items = recording(Role::Host, "h", 20);
    let clean = write(&items, Format::Binary);
    let mut random = Random(99);
    for _ in 0..300 {
        let mut bytes = clean.clone();
        for _ in 0..random.below(8) + 1 {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => drop(bytes.drain(at..(at + random.below(300) as usize).min(bytes.len()))),
                _ => drop(bytes.splice(
                    at..at,
                    (0..random.below(50)).map(|_| 0x4e).collect::<Vec<u8>>(),
                )),
            }
        }
        match collect(pipe(&bytes, 1 << 20)) {
            // Nothing is made up: what is read was written, in this order.
            Ok(read) => {
                let mut written = items.iter();
                for item in without_damage(read) {
                    assert!(written.any(|other| *other == item));
                }
            }
            Err(error) => assert!(matches!(error, Error::NotARecording { .. }), "{error}"),
        }
    }
}

#[test]
fn a_segment_without_its_header_is_not_taken_for_the_one_before() {
    let (a, b) = (
        recording(Role::Host, "a", 2),
        recording(Role::Target, "b", 2),
    );
    let first = write(&a, Format::Binary);
    let mut second = write(&b, Format::Binary);
    second[30] ^= 1;
    let whole = second.len() as u64;
    let read = read(&[first, second].concat());
    assert_eq!(damaged_bytes(&read), whole);
    assert_eq!(without_damage(read), a);
}

#[test]
fn unknown_kinds_and_newer_minors_are_read_past() {
    let items = recording(Role::Host, "h", 1);
    let bytes = write(&items, Format::Binary);
    let starts = chunk_starts(&bytes);
    let mut bytes = bytes;
    // A kind of the future.
    bytes[starts[1] + 4..starts[1] + 6].copy_from_slice(&999u16.to_le_bytes());
    reseal(&mut bytes, starts[1]);
    for start in &starts {
        bytes[start + 7] = 9;
        reseal(&mut bytes, *start);
    }
    let mut expected = items;
    expected.remove(1);
    assert_eq!(read(&bytes), expected);
}

/// Makes the checksum of a head right again.
fn reseal(bytes: &mut [u8], start: usize) {
    let crc = crc32c::crc32c(&bytes[start..start + 20]);
    bytes[start + 20..start + 24].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_newer_major_is_refused_with_advice() {
    let items = recording(Role::Host, "h", 1);
    let mut bytes = write(&items, Format::Binary);
    let start = chunk_starts(&bytes)[7];
    bytes[start + 6] = 2;
    reseal(&mut bytes, start);
    let mut reader = pipe(&bytes, 4096);
    let error = loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("not refused"),
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.to_string(),
        format!(
            "pipe: byte {start}: format version 2 is newer than the 1 known here: \
             read it with the ntp version that wrote it, or a newer one"
        )
    );
}

#[test]
fn a_length_beyond_belief_is_damage_and_not_memory() {
    let items = recording(Role::Host, "h", 1);
    let mut bytes = write(&items, Format::Binary);
    let starts = chunk_starts(&bytes);
    bytes[starts[3] + 8..starts[3] + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    reseal(&mut bytes, starts[3]);
    let read = read(&bytes);
    let mut expected = items;
    expected.remove(3);
    assert_eq!(damaged_bytes(&read), (starts[4] - starts[3]) as u64);
    assert_eq!(without_damage(read), expected);
}

#[test]
fn a_chunk_with_a_good_checksum_and_bad_content_is_damage() {
    let mut out = write(&recording(Role::Host, "h", 1), Format::Binary);
    let before = out.len();
    for (kind, payload) in [(4u16, &b"{}......"[..]), (2, &b"not 176."[..])] {
        let mut head = Vec::from(*b"NTP\x1a");
        head.extend(kind.to_le_bytes());
        head.extend([1, 0]);
        head.extend((payload.len() as u32).to_le_bytes());
        head.extend(crc32c::crc32c(payload).to_le_bytes());
        head.extend_from_slice(&out[before - 8..before - 4]);
        head.truncate(16);
        head.extend_from_slice(&out[16..20]);
        head.extend(crc32c::crc32c(&head).to_le_bytes());
        out.extend(head);
        out.extend(payload);
    }
    let read = read(&out);
    assert_eq!(damaged_bytes(&read), 64);
    assert_eq!(read.iter().filter(|item| is_damage(item)).count(), 2);
}

#[test]
fn without_totals_a_recording_is_known_to_be_cut_off() {
    let items = recording(Role::Host, "h", 1);
    let drain = |bytes: &[u8]| {
        let mut reader = pipe(bytes, 4096);
        while reader.next().expect("reads").is_some() {}
        (reader.ended_cleanly(), reader.without_totals())
    };
    let whole = write(&items, Format::Binary);
    let cut = write(&items[..items.len() - 1], Format::Binary);
    assert_eq!(drain(&whole), (true, 0));
    assert_eq!(drain(&cut), (false, 1));
    assert_eq!(drain(&[cut.clone(), whole.clone()].concat()), (false, 1));
    assert_eq!(drain(&[cut.clone(), cut].concat()), (false, 2));
    assert_eq!(drain(&[whole.clone(), whole].concat()), (true, 0));
}

#[test]
fn what_is_no_recording_is_refused_by_name() {
    let refusal = |bytes: &[u8]| {
        let by_pipe = collect(pipe(bytes, 10))
            .err()
            .map(|error| error.to_string());
        let by_file = match file(bytes) {
            Ok((file, reader)) => collect(reader).err().map(|error| {
                error
                    .to_string()
                    .replace(file.path().to_str().expect("path"), "pipe")
            }),
            Err(error) => {
                let text = error.to_string();
                text.split_once(": ")
                    .map(|(_, rest)| format!("pipe: {rest}"))
            }
        };
        assert_eq!(by_pipe, by_file);
        by_pipe.unwrap_or_default()
    };
    assert_eq!(
        refusal(b""),
        "pipe: empty: nothing was recorded, or a filter let nothing through"
    );
    assert_eq!(
        refusal(b"\x7fELF and more"),
        "pipe: not a recording: begins with `\\x7fELF and`; ntp-capture and ntp-join write what is read here"
    );
    assert_eq!(
        refusal(b"{\"json\":\"of others\"}\n"),
        "pipe: not a recording: begins with `{\"json\":`; ntp-capture and ntp-join write what is read here"
    );
    assert!(refusal(&[0; 3 << 20]).starts_with("pipe: not a recording: begins with `\\x00"));
}

#[test]
fn a_missing_file_and_a_directory_say_so() {
    let error = |path: &str| Reader::open(path).err().map(|error| error.to_string());
    assert_eq!(
        error("/nowhere/a.ntp").as_deref(),
        Some("/nowhere/a.ntp: no such file or directory")
    );
    assert_eq!(
        error("/").as_deref(),
        Some("/: is a directory: name the recordings in it")
    );
}
