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

pub mod header;
pub mod joined;
pub mod point;
pub mod record;

pub use header::{Connection, Counts, Device, Header, Role, Stack, Totals, Transport};
pub use joined::{Joined, JoinTotals};
pub use point::Point;
pub use record::{Flags, Record};
