//! ntp(5) says what the code does.

mod common;

use common::*;
use ntp_record::point;
use ntp_record::{Flags, Format, Joined, Record, Role, Transport};
use std::mem::offset_of;

/// Rows of the list that stands after `title` in the page.
fn table(title: &str) -> Vec<Vec<String>> {
    let page = include_str!("../../man/ntp.5");
    let (_, rest) = page.split_once(title).expect("title");
    let (_, list) = rest.split_once(".Bl -column").expect("list");
    let (list, _) = list.split_once(".El").expect("end of list");
    list.lines()
        .filter_map(|line| line.strip_prefix(".It "))
        .filter(|line| !line.starts_with("Em "))
        .map(|line| line.split(" Ta ").map(str::to_owned).collect())
        .collect()
}

#[test]
fn kinds_are_those_written() {
    let items = [recording(Role::Host, "h", 1), join(1)].concat();
    let mut written: Vec<(u16, &str)> = items
        .iter()
        .filter_map(|item| {
            let bytes = write(std::slice::from_ref(item), Format::Binary);
            let name = match item {
                Own::Header(_) => "header",
                Own::JoinHeader(_) => "join_header",
                Own::Connection(_) => "connection",
                Own::Device(_) => "device",
                Own::Record(_) => "records",
                Own::Joined(_) => "joined",
                Own::Counts(_) => "counts",
                Own::Totals(_) => "totals",
                Own::JoinTotals(_) => "join_totals",
                Own::Damage(_) => return None,
            };
            Some((u16::from_le_bytes([bytes[4], bytes[5]]), name))
        })
        .collect();
    written.sort();
    written.dedup();
    let documented: Vec<(u16, String)> = table("The kinds:")
        .iter()
        .map(|row| (row[0].parse().expect("number"), row[1].clone()))
        .collect();
    let written: Vec<(u16, String)> = written
        .into_iter()
        .map(|(kind, name)| (kind, name.to_owned()))
        .collect();
    assert_eq!(documented, written);
}

#[test]
fn fields_lie_where_the_page_says() {
    macro_rules! fields {
        ($type:ty: $($field:ident),*) => {{
            let size = |at: usize, all: &[usize]| {
                all.iter().copied().filter(|other| *other > at).min().unwrap_or(size_of::<$type>()) - at
            };
            let all = [$(offset_of!($type, $field)),*];
            let mut rows = vec![$((offset_of!($type, $field), stringify!($field))),*];
            rows.sort();
            rows.into_iter()
                .map(|(at, name)| vec![at.to_string(), size(at, &all).to_string(), name.to_owned()])
                .collect::<Vec<_>>()
        }};
    }
    let of_page = |title| {
        table(title)
            .into_iter()
            .map(|row| row[..3].to_vec())
            .collect::<Vec<_>>()
    };
    let record = fields!(Record: slba, bytes, nsid, conn, dev, cid, status, flags, present, submit_cpu,
        send_cpu, complete_cpu, length, opcode, retries, r2ts, pdus, reserved, at);
    assert_eq!(of_page(".Ss Records"), record);
    let joined = fields!(Joined: host, target, offset_ns, offset_bound_ns);
    assert_eq!(of_page(".Ss Joined commands"), joined);
}

#[test]
fn points_and_flags_are_all_there() {
    for (title, role, transport) in [
        ("The points of a host over TCP", Role::Host, Transport::Tcp),
        (
            "The points of a target over TCP",
            Role::Target,
            Transport::Tcp,
        ),
        (
            "The points of a host over RDMA",
            Role::Host,
            Transport::Rdma,
        ),
        (
            "The points of a target over RDMA",
            Role::Target,
            Transport::Rdma,
        ),
    ] {
        let points: Vec<Vec<String>> = point::of(role, transport)
            .iter()
            .map(|point| {
                vec![
                    point.index.to_string(),
                    point.name.into(),
                    point.meaning.into(),
                ]
            })
            .collect();
        assert_eq!(table(title), points);
    }
    let flags: Vec<(u32, String)> = Flags::ALL
        .iter()
        .map(|(flag, name)| ((*flag as u16).trailing_zeros(), (*name).to_owned()))
        .collect();
    let documented: Vec<(u32, String)> = table("The flags, by bit")
        .iter()
        .map(|row| (row[0].parse().expect("number"), row[1].clone()))
        .collect();
    assert_eq!(documented, flags);
}

#[test]
fn objects_have_the_keys_of_the_page() {
    let page = include_str!("../../man/ntp.5");
    let (_, objects) = page.split_once(".Ss JSON objects").expect("section");
    let (objects, _) = objects.split_once(".Sh NDJSON").expect("section");
    let section = |name: &str| {
        let (_, rest) = objects
            .split_once(&format!(".It {name}\n"))
            .expect("object");
        rest.split("\n.It ").next().unwrap_or_default().to_owned()
    };
    let items = [recording(Role::Host, "h", 0), join(0)].concat();
    for item in items {
        let name = match item {
            Own::Header(_) => "header",
            Own::JoinHeader(_) => "join_header",
            Own::Connection(_) => "connection",
            Own::Device(_) => "device",
            Own::Counts(_) => "counts",
            Own::Totals(_) => "totals",
            Own::JoinTotals(_) => "join_totals",
            _ => continue,
        };
        let line = write(&[item], Format::Ndjson);
        let object: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(object["ntp"], name);
        for key in object.as_object().expect("object").keys() {
            let named = ["ntp", "format"].contains(&key.as_str())
                || section(name)
                    .lines()
                    .any(|line| line.split(' ').nth(1) == Some(key));
            assert!(named, "{name}: {key}");
        }
    }
}
