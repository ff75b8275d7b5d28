//! The binary encoding: chunks, described to the byte in ntp(5).

use crate::bytes::Bytes;
use crate::error::Error;
use crate::joined::Joined;
use crate::record::{RECORD_SIZE, Record};
use crate::stream::{Damage, Item};
use serde::de::DeserializeOwned;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const _: () = assert!(
    cfg!(target_endian = "little"),
    "records are little-endian and never translated"
);

/// First bytes of each chunk.
pub(crate) const MAGIC: [u8; 4] = *b"NTP\x1a";
/// Version of the format; a reader refuses a higher one.
pub(crate) const MAJOR: u8 = 1;
/// Additions that an older reader may ignore.
pub(crate) const MINOR: u8 = 0;
/// Size of a chunk's head, bytes.
pub(crate) const HEAD: usize = 24;
/// Longest payload believed, bytes: a damaged length must not be allocated.
pub(crate) const MAX_PAYLOAD: usize = 64 << 20;
/// How far into an input a first good chunk is looked for, bytes.
pub(crate) const SNIFF: usize = 1 << 20;

/// Records given out at once.
const AT_ONCE: usize = 256;

/// What a chunk holds. Part of the format: explicit, append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Header = 1,
    Records = 2,
    Connection = 3,
    Device = 4,
    Counts = 5,
    Totals = 6,
    JoinHeader = 7,
    Joined = 8,
    JoinTotals = 9,
}

impl Kind {
    pub(crate) const ALL: &[Kind] = &[
        Kind::Header,
        Kind::Records,
        Kind::Connection,
        Kind::Device,
        Kind::Counts,
        Kind::Totals,
        Kind::JoinHeader,
        Kind::Joined,
        Kind::JoinTotals,
    ];

    fn of(number: u16) -> Option<Kind> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| *kind as u16 == number)
    }

    fn opens_segment(self) -> bool {
        matches!(self, Kind::Header | Kind::JoinHeader)
    }
}

/// Head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u16,
    pub(crate) major: u8,
    pub(crate) minor: u8,
    /// Bytes of payload, without padding.
    pub(crate) length: u32,
    /// CRC-32C of the payload.
    pub(crate) crc: u32,
    /// CRC-32C of the payload of the header that opened the segment, so that
    /// a segment whose header is lost is not taken for part of the one before.
    pub(crate) segment: u32,
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEAD] {
        let Head {
            kind,
            major,
            minor,
            length,
            crc,
            segment,
        } = self;
        let mut out = [0; HEAD];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&kind.to_le_bytes());
        out[6] = major;
        out[7] = minor;
        out[8..12].copy_from_slice(&length.to_le_bytes());
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out[16..20].copy_from_slice(&segment.to_le_bytes());
        let own = crc32c::crc32c(&out[..20]);
        out[20..24].copy_from_slice(&own.to_le_bytes());
        out
    }

    /// The head at the beginning of `bytes`, if there is a whole and good one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; HEAD] = bytes.first_chunk()?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[0..4] != MAGIC || crc32c::crc32c(&bytes[..20]) != u32_at(20) {
            return None;
        }
        Some(Head {
            kind: u16::from_le_bytes([bytes[4], bytes[5]]),
            major: bytes[6],
            minor: bytes[7],
            length: u32_at(8),
            crc: u32_at(12),
            segment: u32_at(16),
        })
    }
}

/// Bytes after a payload of this length, so that the next head is aligned.
pub(crate) fn padding(length: usize) -> usize {
    length.wrapping_neg() % 8
}

/// Where the next magic begins in `bytes`.
pub(crate) fn find_magic(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == MAGIC[0]) {
        if bytes[from + at..].starts_with(&MAGIC) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Whether a whole head that is right begins somewhere in `bytes`.
pub(crate) fn has_head(bytes: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = find_magic(&bytes[from..]) {
        if Head::parse(&bytes[from + at..]).is_some() {
            return true;
        }
        from += at + 1;
    }
    false
}

/// Reads chunks, and finds the next good one after damage.
#[derive(Default)]
pub(crate) struct BinaryReader {
    /// Bytes of the chunk given out last, to be dropped at the next step.
    pending: usize,
    /// Records of that chunk that are still to be given out.
    rest: Range<usize>,
    /// Damage not yet told.
    lost: Option<Damage>,
    /// Segment of the last header.
    segment: Option<u32>,
    /// The one before it.
    previous: Option<u32>,
    /// Copies of records that are not aligned in the input.
    records: Vec<Record>,
    joined: Vec<Joined>,
}

enum Found {
    End,
    Damage(Damage),
    Chunk(Kind, Range<usize>),
}

impl BinaryReader {
    pub(crate) fn next<'a>(&'a mut self, bytes: &'a mut Bytes) -> Result<Option<Item<'a>>, Error> {
        if !self.rest.is_empty() {
            return Ok(Some(self.records(bytes)));
        }
        bytes.consume(std::mem::take(&mut self.pending));
        let (kind, range) = loop {
            match self.find(bytes)? {
                Found::End => return Ok(None),
                Found::Damage(damage) => return Ok(Some(Item::Damage(damage))),
                Found::Chunk(Kind::Records | Kind::Joined, range) if range.is_empty() => {
                    bytes.consume(std::mem::take(&mut self.pending));
                }
                Found::Chunk(kind, range) => break (kind, range),
            }
        };
        if kind == Kind::Records && range.len().is_multiple_of(RECORD_SIZE) {
            self.rest = range;
            return Ok(Some(self.records(bytes)));
        }
        let offset = bytes.offset();
        let payload = &bytes.peek()[range];
        let item = match kind {
            Kind::Header => json(payload, Item::Header),
            Kind::Connection => json(payload, Item::Connection),
            Kind::Device => json(payload, Item::Device),
            Kind::Counts => json(payload, Item::Counts),
            Kind::Totals => json(payload, Item::Totals),
            Kind::JoinHeader => json(payload, Item::JoinHeader),
            Kind::JoinTotals => json(payload, Item::JoinTotals),
            Kind::Records => array(payload, &mut self.records, Item::Records),
            Kind::Joined => array(payload, &mut self.joined, Item::Joined),
        };
        if kind.opens_segment() && item.is_err() {
            // What follows has no header: it is not of the segment before it.
            self.segment = self.previous;
        }
        let lost = |cause| Damage {
            offset,
            bytes: self.pending as u64,
            cause: format!("a chunk that cannot be understood: {cause}"),
        };
        Ok(Some(item.unwrap_or_else(|cause| Item::Damage(lost(cause)))))
    }

    /// Gives out the next records of a chunk: not all at once, so that whoever
    /// reads several inputs side by side finds them in the cache.
    fn records<'a>(&'a mut self, bytes: &'a mut Bytes) -> Item<'a> {
        let Range { start, end } = self.rest;
        let next = end.min(start + AT_ONCE * RECORD_SIZE);
        self.rest = next..end;
        let payload = &bytes.peek()[start..next];
        in_place_or_copied(payload, &mut self.records, Item::Records)
    }

    /// Goes to the next chunk that is whole and of a known kind.
    fn find(&mut self, bytes: &mut Bytes) -> Result<Found, Error> {
        loop {
            if !bytes.want(HEAD)? {
                return Ok(self.end(bytes));
            }
            let Some(head) = Head::parse(bytes.peek()) else {
                self.resync(bytes, "not a chunk")?;
                continue;
            };
            let length = head.length as usize;
            if head.major > MAJOR {
                if let Some(damage) = bytes.explain(self.lost.take()) {
                    return Ok(Found::Damage(damage));
                }
                let (name, offset) = (bytes.name().to_owned(), bytes.offset());
                return Err(Error::NewerMajor {
                    name,
                    offset,
                    major: head.major.into(),
                    known: MAJOR,
                });
            }
            if length > MAX_PAYLOAD {
                self.resync(bytes, "a chunk longer than any that is written")?;
                continue;
            }
            if !bytes.want(HEAD + length)? {
                self.resync(bytes, "cut off in the middle of a chunk")?;
                continue;
            }
            let range = HEAD..HEAD + length;
            if crc32c::crc32c(&bytes.peek()[range.clone()]) != head.crc {
                self.resync(bytes, "checksum does not match")?;
                continue;
            }
            let whole = whole(bytes, HEAD + length)?;
            let kind = Kind::of(head.kind);
            let stray = self.segment.is_some_and(|segment| segment != head.segment);
            if stray && kind.is_some_and(|kind| !kind.opens_segment()) {
                self.lose(bytes, whole, "belongs to a recording whose header is lost");
                continue;
            }
            if let Some(damage) = bytes.explain(self.lost.take()) {
                return Ok(Found::Damage(damage));
            }
            let Some(kind) = kind else {
                bytes.consume(whole);
                continue;
            };
            if kind.opens_segment() || self.segment.is_none() {
                self.previous = self.segment.replace(head.segment);
            }
            self.pending = whole;
            return Ok(Found::Chunk(kind, range));
        }
    }

    /// Drops bytes up to where the next chunk may begin.
    fn resync(&mut self, bytes: &mut Bytes, cause: &str) -> Result<(), Error> {
        let rest = &bytes.peek()[1..];
        let skip = match find_magic(rest) {
            Some(at) => 1 + at,
            // A magic may be cut by the end of what is at hand.
            None => 1 + rest.len().saturating_sub(MAGIC.len() - 1),
        };
        self.lose(bytes, skip, cause);
        Ok(())
    }

    fn lose(&mut self, bytes: &mut Bytes, count: usize, cause: &str) {
        let offset = bytes.offset();
        let lost = self.lost.get_or_insert_with(|| Damage {
            offset,
            bytes: 0,
            cause: cause.into(),
        });
        lost.bytes += count as u64;
        bytes.consume(count);
    }

    /// Fewer bytes are left than a head has.
    fn end(&mut self, bytes: &mut Bytes) -> Found {
        let left = bytes.peek().len();
        if left > 0 {
            self.lose(bytes, left, "cut off in the middle of a chunk");
        }
        bytes
            .explain(self.lost.take())
            .map_or(Found::End, Found::Damage)
    }
}

/// Size of a chunk with its padding, from its size without. The padding of the
/// last chunk may be cut off: nothing is lost then, whether the input ends or
/// another stream follows.
fn whole(bytes: &mut Bytes, size: usize) -> Result<usize, Error> {
    let padded = size + padding(size);
    bytes.want(padded)?;
    let behind = &bytes.peek()[size..];
    let next = (0..padding(size).min(behind.len())).find(|at| {
        let begins = &behind[*at..behind.len().min(at + MAGIC.len())];
        MAGIC.starts_with(begins)
    });
    Ok(next.map_or(padded.min(size + behind.len()), |at| size + at))
}

fn json<T: DeserializeOwned>(
    payload: &[u8],
    item: fn(T) -> Item<'static>,
) -> Result<Item<'static>, String> {
    serde_json::from_slice(payload)
        .map(item)
        .map_err(|cause| cause.to_string())
}

/// The payload as a slice of records, if it is one.
fn array<'a, T>(
    payload: &'a [u8],
    copy: &'a mut Vec<T>,
    item: fn(&'a [T]) -> Item<'a>,
) -> Result<Item<'a>, String>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Default + Clone,
{
    if !payload.len().is_multiple_of(size_of::<T>()) {
        return Err("its length is no multiple of a record's".into());
    }
    Ok(in_place_or_copied(payload, copy, item))
}

/// Whole records: where they lie when they are aligned there, else a copy.
fn in_place_or_copied<'a, T>(
    payload: &'a [u8],
    copy: &'a mut Vec<T>,
    item: fn(&'a [T]) -> Item<'a>,
) -> Item<'a>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Default + Clone,
{
    if let Ok(records) = <[T]>::ref_from_bytes(payload) {
        return item(records);
    }
    copy.clear();
    copy.resize(payload.len() / size_of::<T>(), T::default());
    copy.as_mut_slice().as_mut_bytes().copy_from_slice(payload);
    item(copy)
}
