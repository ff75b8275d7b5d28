//! Damage at random: what no damage touched is given back, nothing is made up,
//! and each loss is named. What is whole is found by reading ntp(5), not by the
//! code under test: see [`chunks`].
//!
//! Each case is its seed; a failure names it.

mod common;

use common::*;
use ntp_record::{Damage, Error, Format, Item, Reader, Role, Writer};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::io::{BufRead, Read, Write};
use std::ops::Range;
use zerocopy::IntoBytes;

/// Cases of each kind of damage.
const SEEDS: u64 = 1000;

/// Something a stream says: a command as bytes, or an object as JSON.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Command(Vec<u8>),
    Object(u16, Value),
}

/// A chunk as ntp(5) describes it.
#[derive(Clone, Debug)]
struct Chunk {
    /// Head to payload, and to the end of the padding.
    bytes: Range<usize>,
    padded: usize,
    kind: u16,
    segment: u32,
}

impl Chunk {
    fn is_header(&self) -> bool {
        matches!(self.kind, 1 | 7)
    }

    fn pieces(&self, stream: &[u8]) -> Vec<Piece> {
        let payload = &stream[self.bytes.start + 24..self.bytes.end];
        let commands = |size| {
            payload
                .chunks(size)
                .map(|command| Piece::Command(command.into()))
        };
        match self.kind {
            2 => commands(176).collect(),
            8 => commands(368).collect(),
            kind => vec![Piece::Object(
                kind,
                serde_json::from_slice(payload).expect("JSON"),
            )],
        }
    }
}

/// The chunks of an undamaged stream.
fn chunks(stream: &[u8]) -> Vec<Chunk> {
    let number = |at: usize, size: usize| {
        stream[at..at + size]
            .iter()
            .rev()
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte))
    };
    let mut all = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        assert_eq!(stream[at..at + 4], *b"NTP\x1a");
        let length = number(at + 8, 4) as usize;
        let padded = at + 24 + length.next_multiple_of(8);
        all.push(Chunk {
            bytes: at..at + 24 + length,
            padded,
            kind: number(at + 4, 2) as u16,
            segment: number(at + 16, 4),
        });
        at = padded;
    }
    all
}

fn pieces<'a>(stream: &[u8], chunks: impl IntoIterator<Item = &'a Chunk>) -> Vec<Piece> {
    chunks
        .into_iter()
        .flat_map(|chunk| chunk.pieces(stream))
        .collect()
}

/// What a reader makes of a stream.
fn read_all(mut reader: Reader) -> Result<(Vec<Piece>, Vec<Damage>), Error> {
    fn object<T: serde::Serialize>(kind: u16, value: &T) -> Vec<Piece> {
        vec![Piece::Object(
            kind,
            serde_json::to_value(value).expect("JSON"),
        )]
    }
    let (mut all, mut lost) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next()? {
        all.extend(match &item {
            Item::Header(x) => object(1, x),
            Item::Records(x) => x
                .iter()
                .map(|x| Piece::Command(x.as_bytes().into()))
                .collect(),
            Item::Connection(x) => object(3, x),
            Item::Device(x) => object(4, x),
            Item::Counts(x) => object(5, x),
            Item::Totals(x) => object(6, x),
            Item::JoinHeader(x) => object(7, x),
            Item::Joined(x) => x
                .iter()
                .map(|x| Piece::Command(x.as_bytes().into()))
                .collect(),
            Item::JoinTotals(x) => object(9, x),
            Item::Damage(x) => {
                lost.push(x.clone());
                Vec::new()
            }
        });
    }
    let bytes: u64 = lost.iter().map(|damage| damage.bytes).sum();
    assert_eq!(reader.damaged_bytes(), bytes);
    Ok((all, lost))
}

/// By a file or by a pipe in reads of any size, as the seed has it.
fn read_somehow(random: &mut Random, bytes: &[u8]) -> Result<(Vec<Piece>, Vec<Damage>), Error> {
    match random.below(4) {
        0 => file(bytes).and_then(|(_file, reader)| read_all(reader)),
        1 => read_all(pipe(bytes, 1 << 20)),
        _ => read_all(pipe(bytes, 1 + random.below(9000) as usize)),
    }
}

/// A recording as the recorder writes it: in batches, with counts between them.
fn recorded(role: Role, machine: &str, batches: u64, format: Format) -> Vec<u8> {
    let mut random = Random(batches + 7);
    let mut out = Writer::new(Vec::new(), format);
    out.header(&header(role, machine)).expect("written");
    for id in 1..=3 {
        out.connection(&connection(id)).expect("written");
        out.device(&device(id)).expect("written");
    }
    for batch in 0..batches {
        let records: Vec<_> = (0..1 + random.below(40))
            .map(|_| record(&mut random))
            .collect();
        out.records(&records).expect("written");
        if batch % 4 == 3 {
            let (at_ns, groups) = (batch, totals().groups);
            out.counts(&ntp_record::Counts { at_ns, groups })
                .expect("written");
        }
    }
    out.totals(&totals()).expect("written");
    out.into_inner()
}

/// Joined commands in batches.
fn joined(batches: usize, format: Format) -> Vec<u8> {
    let mut out = Writer::new(Vec::new(), format);
    let mut batch = Vec::new();
    for item in join(batches * 20) {
        match item {
            Own::JoinHeader(x) => out.join_header(&x),
            Own::Connection(x) => out.connection(&x),
            Own::Device(x) => out.device(&x),
            Own::Joined(x) => {
                batch.push(*x);
                let full = batch.len() == 20;
                let some = if full {
                    std::mem::take(&mut batch)
                } else {
                    Vec::new()
                };
                out.joined(&some)
            }
            Own::JoinTotals(x) => out.join_totals(&x),
            _ => Ok(()),
        }
        .expect("written");
    }
    out.into_inner()
}

/// Streams to damage: a host and a target one after the other, joined commands.
fn streams(format: Format) -> [Vec<u8>; 2] {
    let host = recorded(Role::Host, "h", 14, format);
    let target = recorded(Role::Target, "t", 9, format);
    [[host, target].concat(), joined(12, format)]
}

/// Flips one to eight bits; where.
fn flip(random: &mut Random, bytes: &mut [u8]) -> Vec<usize> {
    let flips = 1 + random.below(8);
    let mut flip = |_| {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        at
    };
    (0..flips).map(&mut flip).collect()
}

/// Whether `some` are among `all`, in this order.
fn in_order<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|one| rest.any(|other| other == one))
}

#[test]
fn a_stream_cut_anywhere_gives_every_whole_chunk() {
    for stream in streams(Format::Binary) {
        let chunks = chunks(&stream);
        assert!(chunks.len() > 15);
        for seed in 1..=SEEDS {
            let mut random = Random(seed);
            let cut = 1 + random.below(stream.len() as u64 - 1) as usize;
            let (read, lost) = read_somehow(&mut random, &stream[..cut]).expect("reads");
            let whole = chunks.iter().filter(|chunk| chunk.bytes.end <= cut).count();
            assert!(read == pieces(&stream, &chunks[..whole]), "seed {seed}");
            // What is cut off: nothing, or only padding, or a part of the next chunk.
            let begin = chunks
                .get(whole)
                .map_or(stream.len(), |chunk| chunk.bytes.start);
            let expected: Vec<Damage> = (cut > begin)
                .then(|| Damage {
                    offset: begin as u64,
                    bytes: (cut - begin) as u64,
                    cause: "cut off in the middle of a chunk".into(),
                })
                .into_iter()
                .collect();
            assert_eq!(lost, expected, "seed {seed}");
        }
    }
}

#[test]
fn flipped_bits_cost_the_chunks_they_hit() {
    for stream in streams(Format::Binary) {
        let chunks = chunks(&stream);
        for seed in 1..=SEEDS {
            let mut random = Random(seed);
            let mut bytes = stream.clone();
            let flips = flip(&mut random, &mut bytes);
            let (read, lost) = read_somehow(&mut random, &bytes).expect("reads");
            let mut segment = None;
            let mut missing = 0;
            let whole = chunks.iter().filter(|chunk| {
                // Of a bit flipped twice, nothing is left.
                let hit = bytes[chunk.bytes.clone()] != stream[chunk.bytes.clone()];
                if !hit && (chunk.is_header() || segment.is_none()) {
                    segment = Some(chunk.segment);
                }
                // Its own header is lost, another one was read last.
                let stray = segment.is_some_and(|segment| segment != chunk.segment);
                let lost = hit || stray;
                missing += if lost {
                    chunk.padded - chunk.bytes.start
                } else {
                    0
                };
                !lost
            });
            let whole = pieces(&stream, whole);
            assert!(read == whole, "seed {seed}: {flips:?}");
            let told: u64 = lost.iter().map(|damage| damage.bytes).sum();
            assert_eq!(told, missing as u64, "seed {seed}: {flips:?}: {lost:?}");
            assert!(lost.iter().all(|damage| !damage.cause.is_empty()));
        }
    }
}

/// The lines of a text, with the offset at which each begins.
fn lines(text: &[u8]) -> Vec<(usize, &[u8])> {
    let mut at = 0;
    text.split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            let begin = at;
            at += line.len();
            (begin, line)
        })
        .collect()
}

#[test]
fn lines_cut_anywhere_give_every_whole_line() {
    for text in streams(Format::Ndjson) {
        let all = read_all(pipe(&text, 1 << 20)).expect("reads").0;
        let ends: Vec<usize> = lines(&text)
            .iter()
            .map(|(at, line)| at + line.len() - 1)
            .collect();
        assert_eq!(all.len(), ends.len());
        for seed in 1..=SEEDS {
            let mut random = Random(seed);
            let cut = 8 + random.below(text.len() as u64 - 8) as usize;
            let (read, lost) = read_somehow(&mut random, &text[..cut]).expect("reads");
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert!(read == all[..whole], "seed {seed}");
            let begin = if whole > 0 { ends[whole - 1] + 1 } else { 0 };
            let expected: Vec<_> = (cut > begin)
                .then(|| (begin as u64, format!("line {} is cut off", whole + 1)))
                .into_iter()
                .collect();
            let told: Vec<_> = lost
                .into_iter()
                .map(|lost| (lost.offset, lost.cause))
                .collect();
            assert_eq!(told, expected, "seed {seed}");
        }
    }
}

/// Ids are given anew when a name that they stood for was damaged.
fn anonymous(piece: &Piece) -> Piece {
    match piece {
        Piece::Command(bytes) => {
            let mut bytes = bytes.clone();
            bytes.chunks_mut(176).for_each(|record| {
                record
                    .iter_mut()
                    .skip(16)
                    .take(8)
                    .for_each(|byte| *byte = 0)
            });
            Piece::Command(bytes)
        }
        object => object.clone(),
    }
}

#[test]
fn flipped_bits_in_text_cost_at_most_the_lines_they_hit() {
    for text in streams(Format::Ndjson) {
        let all = read_all(pipe(&text, 1 << 20)).expect("reads").0;
        let original = lines(&text);
        for seed in 1..=SEEDS {
            let mut random = Random(seed);
            let mut bytes = text.clone();
            let flips = flip(&mut random, &mut bytes);
            let (read, lost) = read_somehow(&mut random, &bytes).expect("reads");
            let read: Vec<Piece> = read.iter().map(anonymous).collect();
            // A newline that is gone takes the line behind it, too.
            let untouched: Vec<Piece> = original
                .iter()
                .zip(&all)
                .filter(|((at, line), _)| {
                    let from = at.saturating_sub(1);
                    bytes[from..at + line.len()] == text[from..at + line.len()]
                })
                .map(|(_, piece)| anonymous(piece))
                .collect();
            assert!(in_order(&untouched, &read), "seed {seed}: {flips:?}");
            // Text has no checksum, so a line that is still JSON may be taken; others are named.
            for (number, (at, line)) in lines(&bytes).into_iter().enumerate() {
                let line = line.trim_ascii();
                let told = || {
                    lost.iter().any(|damage| {
                        let (from, to) = (damage.offset, damage.offset + damage.bytes);
                        from < (at + line.len()) as u64 && to > at as u64
                    })
                };
                let broken =
                    !line.is_empty() && serde_json::from_slice::<IgnoredAny>(line).is_err();
                assert!(
                    !broken || told(),
                    "seed {seed}: {flips:?}: line {}: {lost:?}",
                    number + 1
                );
            }
            for damage in &lost {
                let line = 1 + bytes[..damage.offset as usize]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                assert!(
                    damage.cause.starts_with(&format!("line {line} ")),
                    "seed {seed}: {damage:?}"
                );
            }
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("compressed");
    out.finish().expect("compressed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = zstd::Encoder::new(Vec::new(), 1).expect("encoder");
    out.include_checksum(true).expect("encoder");
    // Flushed now and then, as the recorder does.
    for part in bytes.chunks(100_000) {
        out.write_all(part).expect("compressed");
        out.flush().expect("compressed");
    }
    out.finish().expect("compressed")
}

/// What a decoder makes of the bytes, given to it a few at a time; and how many
/// it had taken when it ended or failed.
fn decoded(bytes: &[u8], decode: Decode) -> (Vec<u8>, usize) {
    let mut taken = 0;
    let mut all = Vec::new();
    let few = Few {
        bytes,
        taken: &mut taken,
    };
    let mut part = [0; 4096];
    let mut decoder = decode(Box::new(few));
    while let Ok(count @ 1..) = decoder.read(&mut part) {
        all.extend_from_slice(&part[..count]);
    }
    drop(decoder);
    (all, taken)
}

/// Bytes given out a few at a time, and counted.
struct Few<'a> {
    bytes: &'a [u8],
    taken: &'a mut usize,
}

impl Read for Few<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let few = out.len().min(64);
        let count = self.bytes.read(&mut out[..few])?;
        *self.taken += count;
        Ok(count)
    }
}

impl BufRead for Few<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        Ok(&self.bytes[..self.bytes.len().min(64)])
    }

    fn consume(&mut self, count: usize) {
        self.bytes.consume(count);
        *self.taken += count;
    }
}

type Decode = for<'a> fn(Box<dyn BufRead + 'a>) -> Box<dyn Read + 'a>;
type Pack = (&'static str, fn(&[u8]) -> Vec<u8>, Decode);

/// Name and both ways.
const PACKS: [Pack; 2] = [
    ("gzip", gzip, |read| {
        Box::new(flate2::bufread::GzDecoder::new(read))
    }),
    ("zstd", zstd, |read| {
        match zstd::Decoder::with_buffer(read) {
            Ok(decoder) => Box::new(decoder),
            Err(_) => Box::new(std::io::empty()),
        }
    }),
];

/// Bytes without which nobody knows what begins.
const MAGIC: usize = 4;
/// What a decoder was given last is lost when it finds damage there, bytes.
const LAST: usize = 1 << 10;

/// A cut or damaged member gives the chunks that come out of its decoder.
fn compressed(damage: impl Fn(&mut Random, &mut Vec<u8>, usize), cases: u64) {
    for stream in streams(Format::Binary) {
        let chunks = chunks(&stream);
        let all = pieces(&stream, &chunks);
        for (name, pack, decode) in PACKS {
            let packed = pack(&stream);
            for seed in 1..=cases {
                let mut random = Random(seed);
                let mut bytes = packed.clone();
                damage(&mut random, &mut bytes, MAGIC);
                let (read, lost) = read_somehow(&mut random, &bytes).expect("reads");
                let (out, taken) = decoded(&bytes, decode);
                let same = out == stream && read == all;
                let out = match taken < bytes.len() {
                    true => decoded(&bytes[..taken.saturating_sub(LAST)], decode).0,
                    false => out,
                };
                let whole: Vec<Piece> = pieces(
                    &stream,
                    chunks.iter().take_while(|chunk| {
                        out.get(chunk.bytes.clone()) == Some(&stream[chunk.bytes.clone()])
                    }),
                );
                assert!(
                    read.len() >= whole.len(),
                    "{name}, seed {seed}: {} of {}",
                    read.len(),
                    whole.len()
                );
                assert!(in_order(&read, &all), "{name}, seed {seed}");
                // Of a header that says when it was packed, nobody misses a bit.
                assert!(!lost.is_empty() || same, "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_compressed_stream_cut_anywhere_gives_what_can_be_decoded() {
    compressed(
        |random, bytes, head| {
            let cut = head as u64 + random.below((bytes.len() - head) as u64);
            bytes.truncate(cut as usize);
        },
        SEEDS,
    );
}

#[test]
fn flipped_bits_in_a_compressed_stream_cost_what_cannot_be_decoded() {
    compressed(
        |random, bytes, head| drop(flip(random, &mut bytes[head..])),
        SEEDS,
    );
}

#[test]
fn a_stream_behind_one_that_was_cut_off_is_whole() {
    for format in [Format::Binary, Format::Ndjson] {
        let first = recorded(Role::Host, "a", 2, format);
        let second = recorded(Role::Target, "b", 2, format);
        let expected = read_all(pipe(&second, 4096)).expect("reads").0;
        // Of a chunk's padding every byte, of long lines some.
        let step = if format == Format::Binary { 1 } else { 11 };
        for cut in (8..first.len()).step_by(step) {
            let bytes = [&first[..cut], &second].concat();
            let (read, lost) = read_all(pipe(&bytes, 1000)).expect("reads");
            assert!(read.ends_with(&expected), "{format}, cut at {cut}");
            assert!(lost.len() <= 1, "{format}, cut at {cut}: {lost:?}");
        }
    }
}

#[test]
fn what_follows_a_header_that_cannot_be_understood_is_of_no_other_recording() {
    // A stack of the future, with a checksum that is right.
    let first = recorded(Role::Host, "a", 2, Format::Binary);
    let mut second = recorded(Role::Target, "b", 2, Format::Binary);
    let head = chunks(&second)[0].bytes.clone();
    let at = second
        .windows(5)
        .position(|five| five == b"linux")
        .expect("a stack");
    second[at..at + 5].copy_from_slice(b"minix");
    let crc = crc32c::crc32c(&second[24..head.end]);
    second[12..16].copy_from_slice(&crc.to_le_bytes());
    for chunk in chunks(&second) {
        let begin = chunk.bytes.start;
        second[begin + 16..begin + 20].copy_from_slice(&crc.to_le_bytes());
        let own = crc32c::crc32c(&second[begin..begin + 20]);
        second[begin + 20..begin + 24].copy_from_slice(&own.to_le_bytes());
    }
    let bytes = [&first[..], &second, &first].concat();
    let (read, lost) = read_all(pipe(&bytes, 1 << 20)).expect("reads");
    let once = pieces(&first, &chunks(&first));
    assert_eq!(read, [once.clone(), once].concat());
    let told: u64 = lost.iter().map(|damage| damage.bytes).sum();
    assert_eq!(told, second.len() as u64);
    assert!(
        lost[0].cause.contains("unknown variant `minix`"),
        "{lost:?}"
    );

    // The same in text: lines that say whose they are are no other's.
    let first = recorded(Role::Host, "a", 2, Format::Ndjson);
    let second = String::from_utf8(recorded(Role::Host, "a", 2, Format::Ndjson)).expect("text");
    let (header, rest) = second.split_once('\n').expect("lines");
    for header in [
        header.replace("\"linux\"", "\"minix\""),
        header[1..].to_owned(),
    ] {
        let text = format!("{}{header}\n{rest}", String::from_utf8_lossy(&first));
        let (read, lost) = read_all(pipe(text.as_bytes(), 1 << 20)).expect("reads");
        assert_eq!(lost.len(), 1, "{lost:?}");
        let headers = read
            .iter()
            .filter(|piece| matches!(piece, Piece::Object(1, _)));
        let versions: Vec<_> = headers
            .map(|piece| match piece {
                Piece::Object(_, header) => header["version"].clone(),
                Piece::Command(_) => Value::Null,
            })
            .collect();
        // The second was rebuilt from the lines of its commands.
        assert_eq!(versions, ["0.1.0", ""]);
    }
}

#[test]
fn no_more_is_lost_than_there_was() {
    // The last chunk means nothing, and its padding is cut off.
    let mut bytes = recorded(Role::Host, "h", 1, Format::Binary);
    let (begin, segment) = (bytes.len(), bytes[16..20].to_vec());
    bytes.extend(b"NTP\x1a\x04\x00\x01\x00\x03\x00\x00\x00");
    bytes.extend(crc32c::crc32c(b"[1]").to_le_bytes());
    bytes.extend(segment);
    bytes.extend(crc32c::crc32c(&bytes[begin..]).to_le_bytes());
    bytes.extend(b"[1]");
    let (_, lost) = read_all(pipe(&bytes, 4096)).expect("reads");
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].offset, lost[0].bytes), (begin as u64, 27));
}

#[test]
fn a_first_byte_that_is_damaged_costs_no_more() {
    let bytes = recorded(Role::Host, "h", 4, Format::Binary);
    let text = recorded(Role::Host, "h", 4, Format::Ndjson);
    for wrong in 0..=255 {
        let mut bytes = bytes.clone();
        bytes[0] = wrong;
        let all = chunks(&recorded(Role::Host, "h", 4, Format::Binary));
        let whole = if wrong == b'N' { &all[..] } else { &all[1..] };
        let (read, _) = read_all(pipe(&bytes, 4096)).expect("reads");
        assert_eq!(read, pieces(&bytes, whole), "{wrong}");

        let mut text = text.clone();
        text[0] = wrong;
        let (read, lost) = read_all(pipe(&text, 4096)).expect("reads");
        let commands = |read: &[Piece]| {
            read.iter()
                .filter(|piece| matches!(piece, Piece::Command(_)))
                .count()
        };
        let all = read_all(pipe(&recorded(Role::Host, "h", 4, Format::Ndjson), 4096))
            .expect("reads")
            .0;
        assert_eq!(commands(&read), commands(&all), "{wrong}");
        assert_eq!(lost.len(), usize::from(wrong != b'{'), "{wrong}");
    }
}

/// Endless bytes, and no memory for them.
struct Endless {
    begin: &'static [u8],
    then: u8,
    left: usize,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if !self.begin.is_empty() {
            let count = self.begin.len().min(out.len());
            out[..count].copy_from_slice(&self.begin[..count]);
            self.begin = &self.begin[count..];
            return Ok(count);
        }
        let count = self.left.min(out.len());
        out[..count].fill(self.then);
        self.left -= count;
        Ok(count)
    }
}

#[test]
fn inputs_made_to_hurt_end_soon_and_in_words() {
    let deep = [&b"{\"role\":"[..], &b"[".repeat(1 << 20)].concat();
    let hosts = b"{\"host\":".repeat(1 << 18);
    let words = |bytes: &[u8]| match read_all(pipe(bytes, 4096)) {
        Ok((read, lost)) => {
            assert!(read.is_empty());
            lost.first()
                .map(|damage| damage.cause.clone())
                .unwrap_or_default()
        }
        Err(error) => error.to_string(),
    };
    for (bytes, said) in [
        (&b""[..], "empty"),
        (b"N", "cut off in the middle of a chunk"),
        (b"NTP", "cut off in the middle of a chunk"),
        (b"NTP\x1a", "cut off in the middle of a chunk"),
        (b"{", "not a recording"),
        (b"{\"nt", "not a recording"),
        (b"\x1f", "not a recording"),
        (b"\x1f\x8b", "not a recording"),
        (b"\x1f\x8b\x08\x00", "the gzip stream is cut off"),
        (b"\x28\xb5\x2f", "not a recording"),
        (b"\x28\xb5\x2f\xfd", "the zstd stream is cut off"),
        (&[0; 5000], "not a recording"),
        (&deep, "not a recording"),
        (&hosts, "not a recording"),
    ] {
        assert!(
            words(bytes).contains(said),
            "{bytes:.20?}: {}",
            words(bytes)
        );
    }
    // A line without end: as NDJSON, as a recording's, as what is neither.
    for (begin, said) in [
        (
            &b"{\"ntp\":\""[..],
            "line 1 is longer than any that is written",
        ),
        (b"{\"machine\":\"", "not a recording"),
        (b"a", "not a recording"),
    ] {
        let endless = Endless {
            begin,
            then: b'a',
            left: 300 << 20,
        };
        let said_of = match read_all(Reader::from_read("pipe", Box::new(endless))) {
            Ok((_, lost)) => lost[0].cause.clone(),
            Err(error) => error.to_string(),
        };
        assert!(said_of.contains(said), "{said_of}");
    }
}

#[test]
fn a_zstd_window_beyond_reason_is_told_and_not_allocated() {
    // RFC 8878: magic, a descriptor without content size, a window of 2^(10 + 21) bytes.
    let frame = [&b"\x28\xb5\x2f\xfd\x00"[..], &[21 << 3], &[1, 0, 0]].concat();
    let stream = recorded(Role::Host, "h", 1, Format::Binary);
    let (read, lost) = read_all(pipe(&[&frame, &zstd(&stream)[..]].concat(), 4096)).expect("reads");
    assert_eq!(read, pieces(&stream, &chunks(&stream)));
    assert!(lost[0].cause.contains("--long"), "{lost:?}");
}
