//! The truth about recordings made on one machine: both sides have one clock,
//! so the order of any two points is known. Written from the points' meaning,
//! not from the code of ntp-join and ntp-stages.

use anyhow::{Context, Result, bail};
use ntp_record::point::{host, target};
use ntp_record::{Flags, Item, JoinTotals, Joined, Reader, Record, Role, Totals};
use std::collections::HashMap;
use std::path::Path;

/// A recording, read whole.
#[derive(Debug, Default)]
pub struct Recording {
    /// Every record.
    pub records: Vec<Record>,
    /// The totals of its only segment.
    pub totals: Totals,
    /// When it began, ns of its clock.
    pub start_ns: u64,
}

/// Reads a recording; anything damaged or missing is an error.
pub fn recording(path: &Path, role: Role) -> Result<Recording> {
    let mut reader = Reader::open(&path.display().to_string())?;
    let mut recording = Recording::default();
    let (mut headers, mut totals) = (0, 0);
    while let Some(item) = reader.next()? {
        match item {
            Item::Header(header) => {
                anyhow::ensure!(header.role == role, "role {:?}", header.role);
                recording.start_ns = header.start_ns;
                headers += 1;
            }
            Item::Records(records) => recording.records.extend_from_slice(records),
            Item::Totals(t) => {
                recording.totals = t;
                totals += 1;
            }
            Item::Damage(damage) => bail!("damaged: {damage:?}"),
            _ => {}
        }
    }
    anyhow::ensure!(
        headers == 1 && totals == 1,
        "{headers} headers, {totals} totals"
    );
    Ok(recording)
}

/// Reads a joined stream: the pairs, and what became of every record.
pub fn joined(path: &Path) -> Result<(Vec<Joined>, JoinTotals)> {
    let mut reader = Reader::open(&path.display().to_string())?;
    let (mut all, mut totals) = (Vec::new(), None);
    while let Some(item) = reader.next()? {
        match item {
            Item::Joined(joined) => all.extend_from_slice(joined),
            Item::JoinTotals(t) => totals = Some(t),
            Item::Damage(damage) => bail!("damaged: {damage:?}"),
            _ => {}
        }
    }
    Ok((all, totals.context("no totals")?))
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

/// Pairs that cannot be one command: another key, or the target did not see it
/// while it was in flight on the host, or a target record used twice.
pub fn wrong_pairs(pairs: &[Joined]) -> usize {
    let key = |r: &Record| (r.cid, r.opcode, r.nsid, r.slba, r.length);
    let mut used = HashMap::new();
    let mut wrong = 0;
    for pair in pairs {
        let begin = pair.host.time(host::SEND_BEGIN);
        let end = pair.host.time(host::COMPLETED);
        let seen = pair.target.time(target::RECEIVED);
        let inside = begin <= seen && (end.is_none() || seen <= end);
        let twice = used.insert((key(&pair.target), seen), ()).is_some();
        wrong += usize::from(key(&pair.host) != key(&pair.target) || !inside || twice);
    }
    wrong
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
