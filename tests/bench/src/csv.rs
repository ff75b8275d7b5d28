//! Records as a table of text, for a database to read.

use anyhow::{Context, Result, bail};
use ntp_record::record::Record;
use ntp_record::{Item, Reader, Role, Transport, point};
use std::collections::HashMap;
use std::io::{BufWriter, Write};

/// Writes a line for each record of a recording to standard output. Columns:
/// the port of the host's end of the connection, which both sides know, what
/// the command was, and the time of each point, empty for one not passed.
///
/// # Errors
/// When the recording is damaged, or the output cannot be written.
pub(crate) fn write(recording: &str) -> Result<()> {
    let mut reader = Reader::open(recording)?;
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    let mut role = Role::Host;
    let mut ports: HashMap<u32, u32> = HashMap::new();
    while let Some(item) = reader.next()? {
        match item {
            Item::Header(header) => {
                role = header.role;
                let points = point::of(role, Transport::Tcp)
                    .iter()
                    .map(|point| point.name);
                let names: Vec<&str> = COLUMNS.into_iter().chain(points).collect();
                writeln!(out, "{}", names.join(","))?;
            }
            Item::Connection(connection) => {
                let end = match role {
                    Role::Host => &connection.local,
                    Role::Target => &connection.remote,
                };
                let port = end.rsplit(':').next().and_then(|port| port.parse().ok());
                ports.insert(connection.id, port.context("a connection without a port")?);
            }
            Item::Records(records) => {
                for record in records {
                    line(&mut out, ports[&record.conn], record)?;
                }
            }
            Item::Damage(damage) => bail!("{recording}: {damage}"),
            _ => {}
        }
    }
    out.flush()?;
    Ok(())
}

/// Columns before those of the points.
const COLUMNS: [&str; 6] = ["connection", "cid", "slba", "opcode", "bytes", "dev"];

fn line(out: &mut impl Write, port: u32, record: &Record) -> Result<()> {
    let Record {
        cid,
        slba,
        opcode,
        bytes,
        dev,
        ..
    } = record;
    write!(out, "{port},{cid},{slba},{opcode},{bytes},{dev}")?;
    for index in 0..point::POINTS as u8 {
        match record.time_at(index) {
            Some(ns) => write!(out, ",{ns}")?,
            None => write!(out, ",")?,
        }
    }
    writeln!(out)?;
    Ok(())
}
