//! Writes a stream, in either encoding.

use crate::binary::{HEAD, Head, Kind, MAJOR, MINOR, padding};
use crate::header::{Connection, Counts, Device, Header, Totals};
use crate::joined::{JoinTotals, Joined};
use crate::ndjson;
use crate::record::Record;
use crate::stream::{Format, Item, JoinHeader, Segment};
use serde::Serialize;
use std::io::{self, Write};
use zerocopy::IntoBytes;

/// Writes a stream: a header first, names before the records that use them,
/// totals at the end.
///
/// Each call writes whole chunks (or lines) to `W` and keeps nothing back.
pub struct Writer<W: Write> {
    out: W,
    format: Format,
    /// What a chunk head says of its segment.
    tag: u32,
    /// Names for NDJSON lines.
    segment: Segment,
    line: Vec<u8>,
}

/// Records in a chunk at most, so that a reader's memory is bounded.
const BATCH: usize = 1024;

impl<W: Write> Writer<W> {
    /// Writes to `out`, which should be buffered.
    pub fn new(out: W, format: Format) -> Self {
        Writer {
            out,
            format,
            tag: 0,
            segment: Segment::default(),
            line: Vec::new(),
        }
    }

    /// Opens the segment of one recording.
    ///
    /// # Errors
    /// Those of the output, here and below.
    pub fn header(&mut self, header: &Header) -> io::Result<()> {
        self.segment.apply(&Item::Header(header.clone()));
        self.json(Kind::Header, header)
    }

    /// Opens a segment of joined commands.
    pub fn join_header(&mut self, header: &JoinHeader) -> io::Result<()> {
        self.segment.apply(&Item::JoinHeader(header.clone()));
        self.json(Kind::JoinHeader, header)
    }

    /// Names a connection.
    pub fn connection(&mut self, connection: &Connection) -> io::Result<()> {
        self.segment.apply(&Item::Connection(connection.clone()));
        self.json(Kind::Connection, connection)
    }

    /// Names a device.
    pub fn device(&mut self, device: &Device) -> io::Result<()> {
        self.segment.apply(&Item::Device(device.clone()));
        self.json(Kind::Device, device)
    }

    /// Commands of one machine, in chunks of a few thousand.
    pub fn records(&mut self, records: &[Record]) -> io::Result<()> {
        match self.format {
            Format::Binary => records
                .chunks(BATCH)
                .try_for_each(|batch| self.chunk(Kind::Records, batch.as_bytes())),
            Format::Ndjson => records.iter().try_for_each(|record| {
                ndjson::write_record(&mut self.line, &self.segment, record)?;
                self.line()
            }),
        }
    }

    /// Commands of both machines, in chunks of a few thousand.
    pub fn joined(&mut self, joined: &[Joined]) -> io::Result<()> {
        match self.format {
            Format::Binary => joined
                .chunks(BATCH)
                .try_for_each(|batch| self.chunk(Kind::Joined, batch.as_bytes())),
            Format::Ndjson => joined.iter().try_for_each(|joined| {
                ndjson::write_joined(&mut self.line, &self.segment, joined)?;
                self.line()
            }),
        }
    }

    /// Counters of all commands.
    pub fn counts(&mut self, counts: &Counts) -> io::Result<()> {
        self.json(Kind::Counts, counts)
    }

    /// Closes the segment of one recording.
    pub fn totals(&mut self, totals: &Totals) -> io::Result<()> {
        self.json(Kind::Totals, totals)
    }

    /// Closes a segment of joined commands.
    pub fn join_totals(&mut self, totals: &JoinTotals) -> io::Result<()> {
        self.json(Kind::JoinTotals, totals)
    }

    /// Writes an item as it was read; damage is not written.
    pub fn item(&mut self, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Header(header) => self.header(header),
            Item::JoinHeader(header) => self.join_header(header),
            Item::Connection(connection) => self.connection(connection),
            Item::Device(device) => self.device(device),
            Item::Records(records) => self.records(records),
            Item::Joined(joined) => self.joined(joined),
            Item::Counts(counts) => self.counts(counts),
            Item::Totals(totals) => self.totals(totals),
            Item::JoinTotals(totals) => self.join_totals(totals),
            Item::Damage(_) => Ok(()),
        }
    }

    /// Hands everything on to where it goes.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The output underneath.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn json<T: Serialize>(&mut self, kind: Kind, value: &T) -> io::Result<()> {
        match self.format {
            Format::Binary => {
                let payload = serde_json::to_vec(value)?;
                if matches!(kind, Kind::Header | Kind::JoinHeader) {
                    self.tag = crc32c::crc32c(&payload);
                }
                self.chunk(kind, &payload)
            }
            Format::Ndjson => {
                ndjson::write_tagged(&mut self.line, kind, value)?;
                self.line()
            }
        }
    }

    fn chunk(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let head = Head {
            kind: kind as u16,
            major: MAJOR,
            minor: MINOR,
            length,
            crc: crc32c::crc32c(payload),
            segment: self.tag,
        };
        const { assert!(HEAD.is_multiple_of(8)) };
        self.out.write_all(&head.to_bytes())?;
        self.out.write_all(payload)?;
        self.out.write_all(&[0; 8][..padding(payload.len())])
    }

    fn line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}
