//! What the tools say to each other: the record of one command, the streams
//! that carry records, and the manners all five tools share.
//!
//! The data model in one screen:
//!
//! - A [`Record`] is what one machine saw of one NVMe command: what the
//!   command was ([`Record::cid`], [`Record::opcode`], ...), how it ended, and
//!   one timestamp per [`Point`] it passed. A point not passed is absent.
//! - The records of one machine come in a stream that opens with a [`Header`],
//!   names each connection and device before a record refers to it, and closes
//!   with [`Totals`]. Streams can be concatenated: each header opens a new
//!   segment with its own names.
//! - A [`Joined`] is a host record and the target record of the same command,
//!   with the estimated difference of the two clocks.
//! - A [`Row`](row::Row) is a line of a report.
//!
//! The byte layout is described in ntp(5).

mod binary;
mod bytes;
pub mod cause;
mod compress;
pub mod error;
mod flag_names;
pub mod header;
mod input;
pub mod interrupt;
pub mod joined;
mod line;
mod map;
mod names;
mod ndjson;
mod num;
pub mod point;
pub mod record;
pub mod row;
pub mod row_csv;
pub mod sample;
pub mod stream;
pub mod tool;
mod writer;

pub use error::Error;
pub use header::{Connection, Counts, Device, Header, Role, Stack, Totals, Transport};
pub use input::Reader;
pub use joined::{JoinTotals, Joined};
pub use map::Map;
pub use point::Point;
pub use record::{Flags, Record};
pub use stream::{Damage, Format, Item, JoinHeader, Segment};
pub use writer::Writer;
