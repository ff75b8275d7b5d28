//! What flows between the tools: the items of a stream, whatever its encoding.

use crate::header::{Connection, Counts, Device, Header, Role, Totals};
use crate::joined::{JoinTotals, Joined};
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

/// One step of a stream. Slices point into the input and live until the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Item<'a> {
    /// Opens the segment of one recording: forget the names of the one before.
    Header(Header),
    /// Opens the segment of joined commands: forget the names of the one before.
    JoinHeader(JoinHeader),
    /// Names a connection, or says more of one named before.
    Connection(Connection),
    /// Names a device, or says more of one named before.
    Device(Device),
    /// Commands as one machine saw them; never empty.
    Records(&'a [Record]),
    /// Commands as both machines saw them; never empty.
    Joined(&'a [Joined]),
    /// Counters of all commands, sampled or not.
    Counts(Counts),
    /// Closes the segment of one recording.
    Totals(Totals),
    /// Closes the segment of joined commands.
    JoinTotals(JoinTotals),
    /// A part of the input is lost; reading goes on after it.
    Damage(Damage),
}

/// First thing in a joined segment.
///
/// Connection and device ids are unique over a joined segment, both sides
/// together: ntp-join renumbers them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JoinHeader {
    /// Version of the tool that joined.
    pub version: String,
    /// Headers of the host recordings, in the order of the files.
    #[serde(default)]
    pub hosts: Vec<Header>,
    /// Headers of the target recordings, in the order of the files.
    #[serde(default)]
    pub targets: Vec<Header>,
}

impl JoinHeader {
    /// Whether this stands for a header that was filtered out of an NDJSON
    /// stream; see [`Header::is_rebuilt`].
    pub fn is_rebuilt(&self) -> bool {
        self.version.is_empty()
    }
}

/// A part of the input that was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, bytes from the start of the (uncompressed) input.
    pub offset: u64,
    /// Its size, bytes (uncompressed); 0 when the size cannot be known.
    pub bytes: u64,
    /// What is wrong, without a full stop: `cut off in the middle of a chunk`.
    pub cause: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage {
            offset,
            bytes,
            cause,
        } = self;
        match bytes {
            0 => write!(f, "byte {offset}: {cause}: what followed is lost"),
            _ => write!(f, "byte {offset}: {cause}: {bytes} bytes lost"),
        }
    }
}

/// Encoding of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Framed chunks, see ntp(5).
    Binary,
    /// One JSON object a line.
    Ndjson,
}

impl Format {
    /// Names on the command line, with their meaning.
    pub const ALL: &[(&str, Format)] = &[("bin", Format::Binary), ("ndjson", Format::Ndjson)];
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, format)| *format)
            .ok_or_else(|| format!("`{text}` is no format: use bin or ndjson"))
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Binary => "bin",
            Format::Ndjson => "ndjson",
        })
    }
}

/// The names in force: what the records of the current segment refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Header of a recording; `None` in a joined segment, or when it was lost.
    pub header: Option<Header>,
    /// Header of a joined segment.
    pub join_header: Option<JoinHeader>,
    /// Connections by id.
    pub connections: BTreeMap<u32, Connection>,
    /// Devices by id.
    pub devices: BTreeMap<u32, Device>,
    /// Totals, once they were read; `None` at the end means that the recording was cut off.
    pub totals: Option<Totals>,
    /// Totals of a joined segment, once they were read.
    pub join_totals: Option<JoinTotals>,
}

impl Segment {
    /// Takes in an item; a header forgets everything before it.
    pub fn apply(&mut self, item: &Item<'_>) {
        match item {
            Item::Header(header) => {
                *self = Segment {
                    header: Some(header.clone()),
                    ..Segment::default()
                };
            }
            Item::JoinHeader(header) => {
                *self = Segment {
                    join_header: Some(header.clone()),
                    ..Segment::default()
                };
            }
            Item::Connection(connection) => {
                self.connections.insert(connection.id, connection.clone());
            }
            Item::Device(device) => {
                self.devices.insert(device.id, device.clone());
            }
            Item::Totals(totals) => self.totals = Some(totals.clone()),
            Item::JoinTotals(totals) => self.join_totals = Some(totals.clone()),
            Item::Records(_) | Item::Joined(_) | Item::Counts(_) | Item::Damage(_) => {}
        }
    }

    /// Side of the segment's records; `None` in a joined segment, or when the header was lost.
    pub fn role(&self) -> Option<Role> {
        self.header.as_ref().map(|header| header.role)
    }

    /// A connection by its id; `None` when its name was lost.
    pub fn connection(&self, id: u32) -> Option<&Connection> {
        self.connections.get(&id)
    }

    /// A device by its id; `None` when its name was lost.
    pub fn device(&self, id: u32) -> Option<&Device> {
        self.devices.get(&id)
    }
}
