//! Whether two reports of the same commands agree.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Count and mean (ns) by operation, size and device, and component.
type Means = BTreeMap<(String, u64, String, String), (u64, f64)>;

/// What is compared: name in the peer's report, and in ours.
const COMPONENTS: &[(&str, &str)] = &[
    ("latency", "latency"),
    ("host_block", "host block layer, submission"),
    ("host_driver", "host driver, submission"),
    ("wire", "network: wire and NICs (computed)"),
    ("target_receive", "network: target receive path"),
    ("handoff", "target driver, handing to the block layer"),
    ("target_block", "target block layer, submission"),
    ("drive", "drive"),
    (
        "response_wait",
        "target driver, response waiting for the worker",
    ),
    ("host_receive", "network: host receive path"),
];

/// A row of ntp-stages.
#[derive(Deserialize)]
#[serde(tag = "row", rename_all = "snake_case")]
enum Row {
    Group {
        group: u32,
        key: Key,
        latency: Figures,
    },
    Component {
        group: u32,
        component: String,
        #[serde(flatten)]
        figures: Figures,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Deserialize)]
struct Key {
    op: String,
    size: u64,
    device: String,
}

#[derive(Deserialize)]
struct Figures {
    n: u64,
    mean_ns: f64,
}

/// A row of the peer.
#[derive(Deserialize)]
struct PeerRow {
    opcode: u8,
    bytes: u64,
    dev: u32,
    #[serde(flatten)]
    values: BTreeMap<String, serde_json::Value>,
}

fn ours(rows: &str) -> Result<Means> {
    let mut keys: BTreeMap<u32, Key> = BTreeMap::new();
    let mut means = Means::new();
    let mut add = |key: &Key, component: &str, figures: &Figures| {
        let Key { op, size, device } = key.clone();
        means.insert(
            (op, size, device, component.to_owned()),
            (figures.n, figures.mean_ns),
        );
    };
    for line in rows.lines() {
        match serde_json::from_str(line).with_context(|| line.to_owned())? {
            Row::Group {
                group,
                key,
                latency,
            } => {
                add(&key, "latency", &latency);
                keys.insert(group, key);
            }
            Row::Component {
                group,
                component,
                figures,
            } => {
                let key = keys.get(&group).context("a component before its group")?;
                let peer = COMPONENTS.iter().find(|(_, ours)| *ours == component);
                if let Some((name, _)) = peer {
                    add(key, name, &figures);
                }
            }
            Row::Other => {}
        }
    }
    Ok(means)
}

fn peers(rows: &str) -> Result<Means> {
    let mut means = Means::new();
    for line in rows.lines() {
        let row: PeerRow = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let op = if row.opcode == 1 { "write" } else { "read" };
        for (name, _) in COMPONENTS {
            let figure = |what: &str| row.values.get(&format!("{name}_{what}"));
            let n = figure("n")
                .and_then(serde_json::Value::as_u64)
                .context("no count")?;
            if n == 0 {
                continue;
            }
            let mean = figure("mean")
                .and_then(serde_json::Value::as_f64)
                .context("no mean")?;
            let device = format!("nvme{}n1", row.dev);
            means.insert(
                (op.to_owned(), row.bytes, device, (*name).to_owned()),
                (n, mean),
            );
        }
    }
    Ok(means)
}

/// Compares the rows of ntp-stages with those of the peer; gives the number of
/// means compared.
///
/// # Errors
/// Another set of groups and components, another count, or a mean that differs
/// by more than one part in 10^9.
pub(crate) fn compare(our_rows: &str, peer_rows: &str) -> Result<usize> {
    let (ours, peers) = (ours(our_rows)?, peers(peer_rows)?);
    let of = |means: &Means| means.keys().cloned().collect::<Vec<_>>();
    if of(&ours) != of(&peers) {
        bail!(
            "the reports have other groups or components: {:?}, {:?}",
            of(&ours),
            of(&peers)
        );
    }
    for (key, (n, mean)) in &ours {
        let (their_n, their_mean) = peers[key];
        if *n != their_n || (mean - their_mean).abs() > mean.abs() * 1e-9 {
            bail!("{key:?}: {n} of {mean} ns, the peer says {their_n} of {their_mean} ns");
        }
    }
    Ok(ours.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"row":"report","by":["op"]}
{"row":"group","group":3,"key":{"op":"read","size":4096,"device":"nvme2n1"},"latency":{"n":2,"mean_ns":10.5}}
{"row":"component","group":3,"component":"drive","n":2,"mean_ns":4.0}
{"row":"component","group":3,"component":"something else","n":2,"mean_ns":4.0}"#;

    fn peer(drive: f64) -> String {
        let none = COMPONENTS
            .iter()
            .map(|(name, _)| format!("\"{name}_n\":0,\"{name}_mean\":null"));
        let none: Vec<String> = none.collect();
        let row = format!(
            "{{\"opcode\":2,\"bytes\":4096,\"dev\":2,{}}}",
            none.join(",")
        );
        row.replace(
            "\"latency_n\":0,\"latency_mean\":null",
            "\"latency_n\":2,\"latency_mean\":10.5",
        )
        .replace(
            "\"drive_n\":0,\"drive_mean\":null",
            &format!("\"drive_n\":2,\"drive_mean\":{drive}"),
        )
    }

    #[test]
    fn a_difference_is_seen() {
        assert_eq!(compare(OURS, &peer(4.0)).expect("the same"), 2);
        assert!(compare(OURS, &peer(4.000_001)).is_err());
        assert!(compare(OURS, "").is_err());
    }
}
