//! What the fuzz targets share: streams made of any bytes, and one form for
//! what a reader makes of them.

use ntp_record::{Damage, Error, Format, Item, Reader, Writer};
use std::io::{self, Cursor, Read};

/// Gives at most `step` bytes a read, as a slow pipe does.
struct Drip {
    bytes: Cursor<Vec<u8>>,
    step: usize,
}

impl Read for Drip {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(self.step);
        self.bytes.read(&mut out[..count])
    }
}

/// A reader over bytes, as from a pipe.
pub fn reader(bytes: &[u8], step: usize) -> Reader {
    let bytes = Cursor::new(bytes.to_vec());
    Reader::from_read("fuzz", Box::new(Drip { bytes, step }))
}

/// Everything a reader gives: the stream written again, each record in a chunk
/// of its own, and the damage. Without names where their place does not matter:
/// in text they stand before the batch of commands in which they are first used.
///
/// # Errors
/// Those of the reader.
pub fn decode(mut reader: Reader, names: bool) -> Result<(Vec<u8>, Vec<Damage>), Error> {
    let mut out = Writer::new(Vec::new(), Format::Binary);
    let mut lost = Vec::new();
    while let Some(item) = reader.next()? {
        match item {
            Item::Records(records) => records
                .iter()
                .try_for_each(|record| out.records(std::slice::from_ref(record))),
            Item::Joined(joined) => joined
                .iter()
                .try_for_each(|joined| out.joined(std::slice::from_ref(joined))),
            Item::Damage(damage) => {
                lost.push(damage);
                Ok(())
            }
            Item::Connection(_) | Item::Device(_) if !names => Ok(()),
            item => out.item(&item),
        }
        .expect("memory takes all");
    }
    Ok((out.into_inner(), lost))
}

/// Makes the checksums of a binary stream right, so that what a fuzzer does to
/// a payload is read and not refused.
pub fn reseal(bytes: &mut [u8]) {
    let mut segment = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(4).position(|four| four == b"NTP\x1a") {
        at += found;
        let Some(head) = bytes.get(at..at + 24) else {
            return;
        };
        let word = |from: usize| {
            u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
        };
        let opens = matches!(head[4..6], [1 | 7, 0]);
        let left = bytes.len() - at - 24;
        let length = left.min(word(8) as usize);
        let crc = crc32c::crc32c(&bytes[at + 24..at + 24 + length]);
        if opens {
            segment = crc;
        }
        let head = &mut bytes[at..at + 24];
        head[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        head[12..16].copy_from_slice(&crc.to_le_bytes());
        head[16..20].copy_from_slice(&segment.to_le_bytes());
        let own = crc32c::crc32c(&head[..20]);
        head[20..24].copy_from_slice(&own.to_le_bytes());
        at += 24 + length;
    }
}

/// How to read an input, from its first byte, and the input: whether its
/// checksums are made right, and bytes a read.
pub fn manner(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (manner, bytes) = data.split_first()?;
    let mut bytes = bytes.to_vec();
    if manner & 1 == 1 {
        reseal(&mut bytes);
    }
    Some((bytes, 1 + usize::from(manner >> 1) * 13))
}
