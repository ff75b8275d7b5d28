//! The NDJSON encoding: reads values one after the other, whether each has a
//! line of its own or is spread over several (`jq` without `-c`).

use crate::binary::{Kind, MAJOR};
use crate::bytes::Bytes;
use crate::error::{Error, quote};
use crate::header::{Header, Role};
use crate::joined::Joined;
use crate::line::{self, LineIn};
use crate::names::Names;
use crate::record::Record;
use crate::stream::{Damage, Item, JoinHeader, Segment};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

/// What the lines that are no commands call themselves.
const TAGS: &[(Kind, &str)] = &[
    (Kind::Header, "header"),
    (Kind::Connection, "connection"),
    (Kind::Device, "device"),
    (Kind::Counts, "counts"),
    (Kind::Totals, "totals"),
    (Kind::JoinHeader, "join_header"),
    (Kind::JoinTotals, "join_totals"),
];

/// Commands given out at once at most.
const BATCH: usize = 1024;
/// Longest value believed, bytes.
const MAX_VALUE: usize = 16 << 20;
/// Give up on an input when so much of its beginning is no line of ours, bytes.
const SNIFF: u64 = 1 << 20;

/// Reads NDJSON.
#[derive(Default)]
pub(crate) struct NdjsonReader {
    /// Items to give before the batch.
    front: VecDeque<Item<'static>>,
    records: Vec<Record>,
    joined: Vec<Joined>,
    /// The batch was given and may be reused.
    given: bool,
    /// Item to give after the batch.
    after: Option<Item<'static>>,
    header: Option<Header>,
    join_header: Option<JoinHeader>,
    names: Names,
    /// Damage not yet told.
    lost: Option<Damage>,
    /// A line of ours was read.
    good: bool,
    /// Inside a broken line whose end was not yet seen.
    skipping: bool,
    begins: Vec<u8>,
    /// Newlines before what was not yet consumed.
    lines: u64,
    /// Bytes at hand in which a value did not end: worth another look when a
    /// newline came after them.
    unended: usize,
    /// Nothing will come after what is at hand.
    eof: bool,
}

/// What came of trying to read one value.
enum Step {
    /// Taken in, this many bytes.
    Taken(usize),
    /// To be read again after what is queued was given out.
    Later,
    /// Its end is not at hand.
    Incomplete,
    /// No line of ours: where the next one may begin, and why.
    Broken(usize, String),
    /// A header of a newer format.
    Newer(u32),
}

/// A line that is no command.
#[expect(clippy::large_enum_variant, reason = "taken apart at once")]
enum Tagged {
    Item(Item<'static>),
    /// Of a kind that did not exist when this was built.
    Unknown,
    Newer(u32),
}

impl NdjsonReader {
    pub(crate) fn next<'a>(&'a mut self, bytes: &mut Bytes) -> Result<Option<Item<'a>>, Error> {
        if std::mem::take(&mut self.given) {
            self.records.clear();
            self.joined.clear();
        }
        if !self.queued() {
            self.gather(bytes)?;
        }
        if let Some(item) = self.front.pop_front() {
            return Ok(Some(item));
        }
        if !self.records.is_empty() {
            self.given = true;
            return Ok(Some(Item::Records(&self.records)));
        }
        if !self.joined.is_empty() {
            self.given = true;
            return Ok(Some(Item::Joined(&self.joined)));
        }
        Ok(self.after.take())
    }

    fn batch(&self) -> usize {
        self.records.len() + self.joined.len()
    }

    fn queued(&self) -> bool {
        !self.front.is_empty() || self.batch() > 0 || self.after.is_some()
    }

    /// Reads values until there is something to give: a full batch, or what
    /// is at hand without waiting for more.
    fn gather(&mut self, bytes: &mut Bytes) -> Result<(), Error> {
        if self.begins.is_empty() {
            self.begins = bytes.peek()[..bytes.peek().len().min(8)].to_vec();
        }
        while self.batch() < BATCH && self.after.is_none() {
            if self.skipping {
                if !self.skip(bytes)? {
                    if self.queued() {
                        return Ok(());
                    }
                    self.eof = !bytes.fill()?;
                }
                continue;
            }
            let blank = bytes
                .peek()
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            if blank > 0 {
                self.consume(bytes, blank);
                continue;
            }
            let step = match bytes.peek() {
                [] => Step::Incomplete,
                text if self.ends_later(text) => Step::Incomplete,
                text => self.step(text),
            };
            match step {
                Step::Taken(count) => {
                    self.front
                        .extend(bytes.explain(self.lost.take()).map(Item::Damage));
                    self.consume(bytes, count);
                    self.good = true;
                }
                Step::Later => return Ok(()),
                Step::Broken(count, cause) => self.lose(bytes, count, &cause)?,
                // First what stands before it; it is read again then.
                Step::Newer(_) if self.queued() => return Ok(()),
                Step::Newer(major) => {
                    let (name, offset) = (bytes.name().to_owned(), bytes.offset());
                    return Err(Error::NewerMajor {
                        name,
                        offset,
                        major,
                        known: MAJOR,
                    });
                }
                Step::Incomplete if bytes.peek().len() > MAX_VALUE => {
                    self.skipping = true;
                    self.lose(bytes, 1, "is longer than any that is written")?;
                }
                Step::Incomplete => {
                    self.unended = bytes.peek().len();
                    if self.queued() {
                        return Ok(());
                    }
                    if self.eof && self.unended == 0 {
                        return self.end(bytes);
                    }
                    if self.eof {
                        // What follows the line may be whole.
                        self.skipping = true;
                        self.lose(bytes, 1, "is cut off")?;
                    } else {
                        self.eof = !bytes.fill()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a value that begins here has not ended yet: without a look at
    /// it, since it was looked at before.
    fn ends_later(&self, text: &[u8]) -> bool {
        let unended = self.unended.min(text.len());
        unended > 0 && !self.eof && text.len() <= MAX_VALUE && !text[unended..].contains(&b'\n')
    }

    fn step(&mut self, text: &[u8]) -> Step {
        let text = &text[..text.len().min(MAX_VALUE + 1)];
        let mut values = serde_json::Deserializer::from_slice(text).into_iter::<LineIn<'_>>();
        let fault = match values.next() {
            None => return Step::Incomplete,
            Some(Ok(line)) if line.ntp.is_empty() => {
                let count = values.byte_offset();
                return self.command(&line).map_or_else(
                    |cause| Step::Broken(count, format!("is {cause}")),
                    |taken| {
                        if taken {
                            Step::Taken(count)
                        } else {
                            Step::Later
                        }
                    },
                );
            }
            Some(Ok(_)) => String::new(),
            Some(Err(fault)) if fault.is_eof() => return Step::Incomplete,
            Some(Err(fault)) if fault.is_data() => plain(&fault),
            Some(Err(fault)) => return self.broken(&fault),
        };
        // A whole value, but no command: find where it ends.
        let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(IgnoredAny)) => {}
            Some(Err(fault)) if !fault.is_eof() => return self.broken(&fault),
            _ => return Step::Incomplete,
        }
        let count = values.byte_offset();
        match self.tagged(&text[..count], fault) {
            Ok(Tagged::Newer(major)) => Step::Newer(major),
            Ok(Tagged::Unknown) => Step::Taken(count),
            Ok(Tagged::Item(item)) => {
                self.after = Some(item);
                Step::Taken(count)
            }
            Err(cause) => Step::Broken(count, cause),
        }
    }

    /// Nobody knows where this value ends: its line is lost.
    fn broken(&mut self, fault: &serde_json::Error) -> Step {
        self.skipping = true;
        Step::Broken(1, plain(fault))
    }

    /// Takes in a command; false when what is queued must be given out first.
    fn command(&mut self, line: &LineIn<'_>) -> Result<bool, String> {
        if let (Some(host), Some(target)) = (&line.host, &line.target) {
            if !self.records.is_empty() {
                return Ok(false);
            }
            return self.pair(line, host, target);
        }
        if !self.joined.is_empty() {
            return Ok(false);
        }
        let origin = line.origin();
        if !self
            .header
            .as_ref()
            .is_some_and(|header| origin.agrees(header))
        {
            if !self.records.is_empty() {
                return Ok(false);
            }
            let header = origin.header()?;
            // Before a new segment is opened: is it a command at all?
            line.record(header.role)?;
            self.open(Some(header.clone()), None);
            self.front.push_back(Item::Header(header));
        }
        let role = self
            .header
            .as_ref()
            .map_or(Role::Host, |header| header.role);
        let mut record = line.record(role)?;
        self.names.resolve(line, &mut record, &mut self.front);
        self.records.push(record);
        Ok(true)
    }

    fn pair(
        &mut self,
        line: &LineIn<'_>,
        host: &LineIn<'_>,
        target: &LineIn<'_>,
    ) -> Result<bool, String> {
        let (from, to) = (host.origin(), target.origin());
        let known = self.join_header.as_ref().is_some_and(|header| {
            header.hosts.iter().any(|host| from.agrees(host))
                && header.targets.iter().any(|target| to.agrees(target))
        });
        let mut joined = Joined {
            host: host.record(Role::Host)?,
            target: target.record(Role::Target)?,
            offset_ns: line
                .offset_ns
                .ok_or("a joined command without `offset_ns`")?
                .0,
            offset_bound_ns: line.offset_bound_ns.map_or(u64::MAX, |bound| bound.0),
        };
        if !known {
            if !self.joined.is_empty() {
                return Ok(false);
            }
            let header = JoinHeader {
                version: String::new(),
                hosts: vec![from.header()?],
                targets: vec![to.header()?],
            };
            self.open(None, Some(header.clone()));
            self.front.push_back(Item::JoinHeader(header));
        }
        self.names.resolve(host, &mut joined.host, &mut self.front);
        self.names
            .resolve(target, &mut joined.target, &mut self.front);
        self.joined.push(joined);
        Ok(true)
    }

    /// Opens a segment.
    fn open(&mut self, header: Option<Header>, join_header: Option<JoinHeader>) {
        (self.header, self.join_header, self.names) = (header, join_header, Names::default());
    }

    /// Reads a line that is no command; `fault` is why it is none.
    fn tagged(&mut self, text: &[u8], fault: String) -> Result<Tagged, String> {
        #[derive(Deserialize)]
        struct Tag<'a> {
            #[serde(borrow, default)]
            ntp: Cow<'a, str>,
            format: Option<u32>,
        }
        fn read<T: DeserializeOwned>(
            text: &[u8],
            item: fn(T) -> Item<'static>,
        ) -> Result<Item<'static>, String> {
            serde_json::from_slice(text)
                .map(item)
                .map_err(|fault| plain(&fault))
        }
        let tag: Tag<'_> = serde_json::from_slice(text).map_err(|cause| plain(&cause))?;
        if tag.ntp.is_empty() {
            return Err(fault);
        }
        let Some((kind, _)) = TAGS.iter().find(|(_, name)| *name == tag.ntp) else {
            return Ok(Tagged::Unknown);
        };
        if let Some(format) = tag.format.filter(|format| *format > u32::from(MAJOR)) {
            return Ok(Tagged::Newer(format));
        }
        let item = match kind {
            Kind::Header => read(text, Item::Header),
            Kind::Connection => read(text, Item::Connection),
            Kind::Device => read(text, Item::Device),
            Kind::Counts => read(text, Item::Counts),
            Kind::Totals => read(text, Item::Totals),
            Kind::JoinHeader => read(text, Item::JoinHeader),
            Kind::JoinTotals => read(text, Item::JoinTotals),
            Kind::Records | Kind::Joined => return Ok(Tagged::Unknown),
        };
        match &item {
            Ok(Item::Header(header)) => self.open(Some(header.clone()), None),
            Ok(Item::JoinHeader(header)) => self.open(None, Some(header.clone())),
            Ok(Item::Connection(connection)) => self.names.connection(connection),
            Ok(Item::Device(device)) => self.names.device(device),
            Ok(Item::Totals(_) | Item::JoinTotals(_)) => self.open(None, None),
            // What follows a header that cannot be read is not of the segment before it.
            Err(_) if matches!(kind, Kind::Header | Kind::JoinHeader) => self.open(None, None),
            _ => {}
        }
        item.map(Tagged::Item)
    }

    fn consume(&mut self, bytes: &mut Bytes, count: usize) {
        // In bytes, which cannot overflow so soon: sixteen are counted at once.
        let newlines = |part: &[u8]| part.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
        let parts = bytes.peek()[..count].chunks(255);
        self.lines += parts.map(|part| u64::from(newlines(part))).sum::<u64>();
        self.unended = 0;
        bytes.consume(count);
    }

    fn lose(&mut self, bytes: &mut Bytes, count: usize, what: &str) -> Result<(), Error> {
        let (offset, line) = (bytes.offset(), self.lines + 1);
        let lost = self.lost.get_or_insert_with(|| Damage {
            offset,
            bytes: 0,
            cause: format!("line {line} {what}"),
        });
        lost.bytes = offset + count as u64 - lost.offset;
        self.consume(bytes, count);
        if !self.good && !self.begins.starts_with(TAGGED) && bytes.offset() > SNIFF {
            return Err(self.no_recording(bytes));
        }
        Ok(())
    }

    /// Drops the rest of a broken line: up to its newline, or to another
    /// stream that was appended to one cut off in the middle of a line. False
    /// when more must be read to find either.
    fn skip(&mut self, bytes: &mut Bytes) -> Result<bool, Error> {
        let rest = bytes.peek();
        let text = &rest[..rest.len().min(MAX_VALUE)];
        let newline = text.iter().position(|byte| *byte == b'\n');
        let line = &text[..newline.unwrap_or(text.len())];
        let last = self.eof && text.len() == rest.len();
        let end = find(line, TAGGED)
            .or(newline.map(|at| at + 1))
            .or(last.then_some(text.len()));
        let more = text.len() < rest.len();
        self.skipping = end.is_none();
        // The next stream may begin in what is here and end in what comes.
        let kept = text.len().saturating_sub(TAGGED.len() - 1);
        self.lose(bytes, end.unwrap_or(kept), "")?;
        Ok(end.is_some() || more)
    }

    fn end(&mut self, bytes: &mut Bytes) -> Result<(), Error> {
        self.lost = bytes.explain(self.lost.take());
        if !self.good && !self.begins.starts_with(TAGGED) {
            return Err(match self.lost {
                Some(_) => self.no_recording(bytes),
                None => Error::Empty {
                    name: bytes.name().into(),
                },
            });
        }
        self.after = self.lost.take().map(Item::Damage);
        Ok(())
    }

    fn no_recording(&self, bytes: &Bytes) -> Error {
        let begins = quote(&self.begins);
        Error::NotARecording {
            name: bytes.name().into(),
            begins,
        }
    }
}

/// How a line begins that is no command: nothing else does, in a line or in
/// the middle of one (a joined command's has those of two records in it).
const TAGGED: &[u8] = b"{\"ntp\":";

/// Where `what` begins in `text`.
fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// What serde_json found, without its position: that is counted from the
/// beginning of the value, not of the input.
fn plain(fault: &serde_json::Error) -> String {
    let text = fault.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(text, _)| text);
    format!("cannot be understood: {text}")
}

pub(crate) fn write_record(
    out: &mut Vec<u8>,
    segment: &Segment,
    record: &Record,
) -> io::Result<()> {
    Ok(line::record(out, segment, record)?)
}

pub(crate) fn write_joined(
    out: &mut Vec<u8>,
    segment: &Segment,
    joined: &Joined,
) -> io::Result<()> {
    Ok(line::joined(out, segment, joined)?)
}

/// Writes a line that is no command, without the newline.
pub(crate) fn write_tagged<T: Serialize>(
    out: &mut Vec<u8>,
    kind: Kind,
    value: &T,
) -> io::Result<()> {
    let Some((_, name)) = TAGS.iter().find(|(tagged, _)| *tagged == kind) else {
        return Ok(());
    };
    #[derive(Serialize)]
    struct Line<'a, T> {
        ntp: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<u8>,
        #[serde(flatten)]
        value: &'a T,
    }
    let format = matches!(kind, Kind::Header | Kind::JoinHeader).then_some(MAJOR);
    Ok(serde_json::to_writer(
        out,
        &Line {
            ntp: name,
            format,
            value,
        },
    )?)
}
