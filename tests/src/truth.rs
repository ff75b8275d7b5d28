//! The truth about recordings made on one machine: both sides have one clock,
//! so the order of any two points is known. Written from the points' meaning,
//! not from the code of ntp-join and ntp-stages.

use anyhow::{Context, Result, bail, ensure};
use ntp_record::point::{host, target};
use ntp_record::{
    Connection, Device, Flags, Header, Item, JoinTotals, Joined, Reader, Record, Role, Totals,
};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// A recording, read whole.
#[derive(Debug)]
pub struct Recording {
    /// The header of its only segment.
    pub header: Header,
    /// Every record.
    pub records: Vec<Record>,
    /// The connections that records name, by id.
    pub connections: HashMap<u32, Connection>,
    /// The devices that records name, by id.
    pub devices: HashMap<u32, Device>,
    /// The totals of its only segment.
    pub totals: Totals,
}

/// A joined stream, read whole.
#[derive(Debug)]
pub struct Pairs {
    /// Every pair.
    pub pairs: Vec<Joined>,
    /// The connections of both sides, by id.
    pub connections: HashMap<u32, Connection>,
    /// What became of every record.
    pub totals: JoinTotals,
}

/// Reads a recording; anything damaged or missing is an error.
pub fn recording(path: &Path, role: Role) -> Result<Recording> {
    let mut reader = Reader::open(&path.display().to_string())?;
    let (mut records, mut connections, mut devices) = (Vec::new(), HashMap::new(), HashMap::new());
    let (mut headers, mut all_totals) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next()? {
        match item {
            Item::Header(h) => headers.push(h),
            Item::Connection(c) => drop(connections.insert(c.id, c)),
            Item::Device(d) => drop(devices.insert(d.id, d)),
            Item::Records(r) => records.extend_from_slice(r),
            Item::Totals(t) => all_totals.push(t),
            Item::Damage(damage) => bail!("damaged: {damage:?}"),
            _ => {}
        }
    }
    let (Some(header), Some(totals)) = (headers.pop(), all_totals.pop()) else {
        bail!("{} headers, {} totals", headers.len(), all_totals.len());
    };
    ensure!(
        headers.is_empty() && all_totals.is_empty(),
        "more than one segment"
    );
    ensure!(header.role == role, "role {:?}", header.role);
    Ok(Recording {
        header,
        records,
        connections,
        devices,
        totals,
    })
}

/// Reads a joined stream.
pub fn joined(path: &Path) -> Result<Pairs> {
    let mut reader = Reader::open(&path.display().to_string())?;
    let (mut pairs, mut connections, mut totals) = (Vec::new(), HashMap::new(), None);
    while let Some(item) = reader.next()? {
        match item {
            Item::Joined(joined) => pairs.extend_from_slice(joined),
            Item::Connection(c) => drop(connections.insert(c.id, c)),
            Item::JoinTotals(t) => totals = Some(t),
            Item::Damage(damage) => bail!("damaged: {damage:?}"),
            _ => {}
        }
    }
    Ok(Pairs {
        pairs,
        connections,
        totals: totals.context("no totals")?,
    })
}

/// The points of a joined command in the order in which they happened, on one
/// clock, with those that were not taken left out.
pub fn path(pair: &Joined) -> Vec<(&'static str, u64)> {
    let r2t = pair.host.has(Flags::R2t) || pair.target.has(Flags::R2t);
    let mut way = vec![
        host::BLOCK_START,
        host::DRIVER_START,
        host::SEND_BEGIN,
        target::ARRIVED,
        target::PDU_READ,
        target::RECEIVED,
    ];
    if r2t {
        way.extend([
            target::R2T_QUEUED,
            target::R2T_SEND,
            host::R2T_ARRIVED,
            host::R2T_READ,
            host::DATA_SEND_BEGIN,
            target::DATA_ARRIVED,
            target::DATA_READ,
        ]);
    }
    way.extend([
        target::EXECUTE,
        target::BIO_SUBMIT,
        target::DRIVE_ISSUE,
        target::DRIVE_DONE,
        target::BIO_DONE,
        target::RESP_QUEUED,
        target::SEND_BEGIN,
        host::RESP_ARRIVED,
        host::RESP_READ,
        host::RESP_LAST,
        host::COMPLETED,
        host::COMPLETE_RQ,
        host::BLOCK_DONE,
    ]);
    way.into_iter()
        .filter_map(|point| {
            let record = match point.side {
                Role::Host => &pair.host,
                Role::Target => &pair.target,
            };
            Some((point.name, record.time(point)?))
        })
        .collect()
}

/// Joined commands of which a point comes before one it must follow, with the
/// first such pair of points.
pub fn out_of_order(pairs: &[Joined]) -> Vec<(usize, &'static str, &'static str)> {
    let wrong = |(i, pair): (usize, &Joined)| {
        let path = path(pair);
        let at = path.windows(2).find(|two| two[1].1 < two[0].1)?;
        Some((i, at[0].0, at[1].0))
    };
    pairs.iter().enumerate().filter_map(wrong).collect()
}

/// Pairs that cannot be one command: another key, not the two ends of one
/// connection, or a target record used twice.
pub fn strangers(joined: &Pairs) -> usize {
    let key = |r: &Record| (r.cid, r.opcode, r.nsid, r.slba, r.length);
    let ends = |id: u32| joined.connections.get(&id).map(|c| (&c.local, &c.remote));
    let mut used = HashSet::new();
    let mut strange = |pair: &&Joined| {
        let (host, target) = (ends(pair.host.conn), ends(pair.target.conn));
        let same = host.is_some() && host == target.map(|(local, remote)| (remote, local));
        let seen = pair.target.time(target::RECEIVED);
        let twice = !used.insert((pair.target.conn, key(&pair.target), seen));
        key(&pair.host) != key(&pair.target) || !same || twice
    };
    joined.pairs.iter().filter(|pair| strange(pair)).count()
}

/// Pairs of which the target did not see the command while it was in flight on
/// the host, on one clock. A command id is in use once at a time on a
/// connection: a pair that is neither this nor one of [`strangers`] is right.
pub fn at_another_time(joined: &Pairs) -> usize {
    let apart = |pair: &&Joined| {
        let begin = pair.host.time(host::SEND_BEGIN);
        let end = pair.host.time(host::COMPLETED);
        let seen = pair.target.time(target::RECEIVED);
        !(begin <= seen && (end.is_none() || seen <= end))
    };
    joined.pairs.iter().filter(apart).count()
}

/// Share of records that have a point.
pub fn share(records: &[Record], point: ntp_record::Point) -> f64 {
    let with = records.iter().filter(|r| r.time(point).is_some()).count();
    with as f64 / records.len().max(1) as f64
}

/// Mean time between two points of one side over the records that have both, us.
pub fn mean_us(records: &[Record], from: ntp_record::Point, to: ntp_record::Point) -> Result<f64> {
    let times: Vec<i128> = records
        .iter()
        .filter_map(|r| Some(i128::from(r.time(to)?) - i128::from(r.time(from)?)))
        .collect();
    let n = i128::try_from(times.len())?;
    (n > 0)
        .then(|| times.iter().sum::<i128>() as f64 / n as f64 / 1e3)
        .context("no records")
}
