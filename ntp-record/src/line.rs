//! Lines of the NDJSON encoding: how a command looks in JSON.
//!
//! A command's line stands alone: it carries the names and what the header
//! says of it, so that a filter may drop every other line.

use crate::flag_names::{FlagNames, Str};
use crate::header::{Connection, Header, Role, Stack, Transport};
use crate::joined::Joined;
use crate::num::Big;
use crate::point::{self, POINTS, Point};
use crate::record::Record;
use crate::stream::Segment;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// What a line says of the recording its command comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Origin<'a> {
    pub(crate) role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<Transport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Stack>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<u32>,
}

impl<'a> Origin<'a> {
    /// What all of `headers` agree on.
    fn common(role: Role, headers: &'a [Header]) -> Self {
        fn same<'a, T: PartialEq>(
            headers: &'a [Header],
            get: impl Fn(&'a Header) -> T,
        ) -> Option<T> {
            let mut values = headers.iter().map(get);
            let first = values.next()?;
            values.all(|value| value == first).then_some(first)
        }
        Origin {
            role: Some(role),
            machine: same(headers, |header| header.machine.as_str()),
            transport: same(headers, |header| header.transport),
            stack: same(headers, |header| header.stack),
            sampling: same(headers, |header| header.sampling),
        }
    }

    /// Whether nothing the line says contradicts `header`.
    pub(crate) fn agrees(&self, header: &Header) -> bool {
        let Origin {
            role,
            machine,
            transport,
            stack,
            sampling,
        } = *self;
        role.is_none_or(|role| role == header.role)
            && machine.is_none_or(|machine| machine == header.machine)
            && transport.is_none_or(|transport| transport == header.transport)
            && stack.is_none_or(|stack| stack == header.stack)
            && sampling.is_none_or(|sampling| sampling == header.sampling)
    }

    /// A header for lines that lost theirs; see [`Header::is_rebuilt`].
    pub(crate) fn header(&self) -> Result<Header, String> {
        let missing =
            |name: &str| format!("a command without `{name}`, and no header line before it");
        Ok(Header {
            role: self.role.ok_or_else(|| missing("role"))?,
            transport: self.transport.ok_or_else(|| missing("transport"))?,
            stack: self.stack.ok_or_else(|| missing("stack"))?,
            sampling: self.sampling.ok_or_else(|| missing("sampling"))?,
            salt: 0,
            filters: Vec::new(),
            machine: self.machine.unwrap_or_default().to_owned(),
            kernel: String::new(),
            arch: String::new(),
            machine_id: String::new(),
            boot_id: String::new(),
            version: String::new(),
            start_ns: 0,
            wall_minus_mono_ns: 0,
            hooks: Vec::new(),
            missing: Default::default(),
        })
    }
}

#[derive(Serialize)]
struct RecordOut<'a> {
    #[serde(flatten)]
    origin: Origin<'a>,
    op: &'static str,
    opcode: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<Ends<'a>>,
    conn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<u32>,
    dev: u32,
    cid: u16,
    nsid: u32,
    slba: Big<u64>,
    length: u16,
    bytes: u32,
    status: u16,
    flags: FlagNames,
    retries: u8,
    r2ts: u8,
    pdus: u8,
    cpus: [u16; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_ns: Option<Text>,
    at: Times<'a>,
}

impl<'a> RecordOut<'a> {
    /// `headers` are those of the recordings the record may be of.
    fn new(segment: &'a Segment, role: Role, headers: &'a [Header], record: &'a Record) -> Self {
        // Every field by name: a new one must not be forgotten here.
        let &Record {
            slba,
            bytes,
            nsid,
            conn,
            dev,
            cid,
            status,
            flags,
            present: _,
            submit_cpu,
            send_cpu,
            complete_cpu,
            length,
            opcode,
            retries,
            r2ts,
            pdus,
            reserved: _,
            at: _,
        } = record;
        let device = segment.device(dev);
        let connection = segment.connection(conn);
        let source = connection.and_then(|connection| connection.source);
        let zero = (0..POINTS as u8).find_map(|index| record.time_at(index));
        RecordOut {
            origin: Origin::common(role, headers),
            op: record.op(),
            opcode,
            device: device.map(|device| device.name.as_str()),
            path: device
                .map(|device| device.path.as_str())
                .filter(|path| !path.is_empty()),
            connection: connection.map(Ends),
            conn,
            source,
            dev,
            cid,
            nsid,
            slba: Big(slba),
            length,
            bytes,
            status,
            flags: FlagNames(flags),
            retries,
            r2ts,
            pdus,
            cpus: [submit_cpu, send_cpu, complete_cpu],
            origin_ns: zero.map(Text),
            at: Times {
                points: point::of(role, transport(headers, source)),
                zero: zero.unwrap_or_default(),
                record,
            },
        }
    }
}

/// Transport of the recording a record is of; recordings that were joined may differ.
fn transport(headers: &[Header], source: Option<u32>) -> Transport {
    source
        .and_then(|source| headers.get(source as usize))
        .or(headers.first())
        .map_or(Transport::Tcp, |header| header.transport)
}

/// Writes the line of a record, without the newline.
pub(crate) fn record(
    out: &mut Vec<u8>,
    segment: &Segment,
    record: &Record,
) -> serde_json::Result<()> {
    let header = segment
        .header
        .as_ref()
        .ok_or_else(|| serde_json::Error::custom("a record before a header"))?;
    let headers = std::slice::from_ref(header);
    serde_json::to_writer(out, &RecordOut::new(segment, header.role, headers, record))
}

/// Writes the line of a joined command, without the newline.
pub(crate) fn joined(
    out: &mut Vec<u8>,
    segment: &Segment,
    joined: &Joined,
) -> serde_json::Result<()> {
    #[derive(Serialize)]
    struct JoinedOut<'a> {
        op: &'static str,
        opcode: u8,
        bytes: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        device: Option<&'a str>,
        offset_ns: Big<i64>,
        offset_bound_ns: Option<Big<u64>>,
        host: RecordOut<'a>,
        target: RecordOut<'a>,
    }
    let header = segment
        .join_header
        .as_ref()
        .ok_or_else(|| serde_json::Error::custom("a command before a header"))?;
    let Joined {
        host,
        target,
        offset_ns,
        offset_bound_ns,
    } = joined;
    let line = JoinedOut {
        op: host.op(),
        opcode: host.opcode,
        bytes: host.bytes,
        device: segment.device(host.dev).map(|device| device.name.as_str()),
        offset_ns: Big(*offset_ns),
        offset_bound_ns: Some(*offset_bound_ns)
            .filter(|bound| *bound != u64::MAX)
            .map(Big),
        host: RecordOut::new(segment, Role::Host, &header.hosts, host),
        target: RecordOut::new(segment, Role::Target, &header.targets, target),
    };
    serde_json::to_writer(out, &line)
}

/// A connection in a command's line: `local-remote/qid`.
pub(crate) struct Ends<'a>(pub(crate) &'a Connection);

impl fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection {
            local, remote, qid, ..
        } = self.0;
        write!(f, "{local}-{remote}/{qid}")
    }
}

impl Serialize for Ends<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The connection that [`Ends`] wrote; `None` when it did not.
pub(crate) fn parse_ends(text: &str) -> Option<Connection> {
    let (ends, qid) = text.rsplit_once('/')?;
    let qid = qid.parse().ok()?;
    // An interface name in a link-local address may contain a dash as well.
    let (local, remote) = ends
        .match_indices('-')
        .map(|(at, _)| (&ends[..at], &ends[at + 1..]))
        .find(|(local, _)| {
            local
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        })
        .or_else(|| ends.split_once('-'))?;
    Some(Connection {
        local: local.into(),
        remote: remote.into(),
        qid,
        ..Connection::default()
    })
}

/// A number that is always a string.
struct Text(u64);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Times of a record relative to its first point, ns, by the point's name.
struct Times<'a> {
    points: &'static [Point],
    zero: u64,
    record: &'a Record,
}

impl Serialize for Times<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.record.present.count_ones() as usize))?;
        for point in self.points {
            if let Some(time) = self.record.time(*point) {
                map.serialize_entry(point.name, &Big(time.wrapping_sub(self.zero) as i64))?;
            }
        }
        map.end()
    }
}

/// [`Times`] as read: role and transport may stand behind them in the line, so
/// names are looked up on both sides, whatever the transport: none stands for two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TimesIn {
    sides: [Side; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Side {
    present: u16,
    at: [i64; POINTS],
}

impl<'de> Deserialize<'de> for TimesIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = TimesIn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("times by point")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TimesIn, A::Error> {
                let mut times = TimesIn::default();
                while let Some((Str(name), Big(time))) = map.next_entry::<Str<'de>, Big<i64>>()? {
                    for (side, role) in times.sides.iter_mut().zip([Role::Host, Role::Target]) {
                        let mut points = [Transport::Tcp, Transport::Rdma]
                            .into_iter()
                            .flat_map(|transport| point::of(role, transport));
                        if let Some(point) = points.find(|point| point.name == name) {
                            side.present |= 1 << point.index;
                            side.at[usize::from(point.index)] = time;
                        }
                    }
                }
                Ok(times)
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// A command's line as read, of one machine or joined; an empty string is an
/// absent key.
#[derive(Deserialize)]
pub(crate) struct LineIn<'a> {
    /// What a line is that is no command: `header`, ...
    #[serde(borrow, default)]
    pub(crate) ntp: Cow<'a, str>,
    /// Of a joined command.
    #[serde(borrow)]
    pub(crate) host: Option<Box<LineIn<'a>>>,
    /// Of a joined command.
    #[serde(borrow)]
    pub(crate) target: Option<Box<LineIn<'a>>>,
    /// Of a joined command.
    pub(crate) offset_ns: Option<Big<i64>>,
    /// Of a joined command; `null` when there is no bound.
    pub(crate) offset_bound_ns: Option<Big<u64>>,
    role: Option<Role>,
    #[serde(borrow, default)]
    machine: Cow<'a, str>,
    transport: Option<Transport>,
    stack: Option<Stack>,
    sampling: Option<u32>,
    #[serde(borrow, default)]
    pub(crate) device: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) path: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) connection: Cow<'a, str>,
    opcode: Option<u8>,
    bytes: Option<u32>,
    at: Option<TimesIn>,
    origin_ns: Option<Big<u64>>,
    #[serde(default)]
    conn: u32,
    pub(crate) source: Option<u32>,
    #[serde(default)]
    dev: u32,
    #[serde(default)]
    cid: u16,
    #[serde(default)]
    nsid: u32,
    #[serde(default)]
    slba: Big<u64>,
    #[serde(default)]
    length: u16,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    flags: FlagNames,
    #[serde(default)]
    retries: u8,
    #[serde(default)]
    r2ts: u8,
    #[serde(default)]
    pdus: u8,
    #[serde(default)]
    cpus: [u16; 3],
}

impl LineIn<'_> {
    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin {
            role: self.role,
            machine: Some(self.machine.as_ref()).filter(|machine| !machine.is_empty()),
            transport: self.transport,
            stack: self.stack,
            sampling: self.sampling,
        }
    }

    /// The record, with ids as the line has them.
    pub(crate) fn record(&self, role: Role) -> Result<Record, String> {
        let missing = |name: &str| format!("a command without `{name}`");
        let side =
            self.at.as_ref().ok_or_else(|| missing("at"))?.sides[usize::from(role == Role::Target)];
        let zero = match self.origin_ns {
            Some(Big(zero)) => zero,
            None if side.present == 0 => 0,
            None => return Err(missing("origin_ns")),
        };
        let mut at = [0; POINTS];
        for (index, at) in at.iter_mut().enumerate() {
            if side.present >> index & 1 != 0 {
                *at = zero.wrapping_add_signed(side.at[index]);
            }
        }
        let [submit_cpu, send_cpu, complete_cpu] = self.cpus;
        Ok(Record {
            slba: self.slba.0,
            bytes: self.bytes.ok_or_else(|| missing("bytes"))?,
            nsid: self.nsid,
            conn: self.conn,
            dev: self.dev,
            cid: self.cid,
            status: self.status,
            flags: self.flags.0,
            present: side.present,
            submit_cpu,
            send_cpu,
            complete_cpu,
            length: self.length,
            opcode: self.opcode.ok_or_else(|| missing("opcode"))?,
            retries: self.retries,
            r2ts: self.r2ts,
            pdus: self.pdus,
            reserved: 0,
            at,
        })
    }
}
