//! Whole reports, from recordings made by hand to the text people read.
//!
//! The figures in `golden/` were checked by hand against the component times
//! below; ntp-stages has tests of the figures themselves.

#[path = "../../ntp-stages/tests/util/mod.rs"]
mod util;

use clap::Parser;
use ntp_fmt::cli::{self, Args};
use ntp_record::point::{host as h, target as t};
use ntp_record::row::Row;
use ntp_record::tool::Status;
use ntp_record::{Flags, Item, Joined, Record, Role};
use ntp_stages::{By, Options};
use util::*;

/// Environment variable that has golden files written instead of compared.
const BLESS: &str = "NTP_BLESS";

fn ndjson(rows: &[Row]) -> Vec<u8> {
    let line = |row: &Row| serde_json::to_string(row).unwrap() + "\n";
    rows.iter().map(line).collect::<String>().into_bytes()
}

fn run(input: &[u8], args: &[&str]) -> (anyhow::Result<Status>, String) {
    let args = Args::parse_from(std::iter::once(&"ntp-fmt").chain(args));
    let mut out = Vec::new();
    let color = args.color == cli::Color::Always;
    let status = cli::format("rows", &mut &input[..], &args, color, &mut out);
    (status, String::from_utf8(out).unwrap())
}

fn report(rows: &[Row], args: &[&str]) -> String {
    let (status, text) = run(&ndjson(rows), args);
    assert_eq!(status.unwrap(), Status::Done);
    text
}

#[track_caller]
fn golden(name: &str, got: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let want = std::fs::read_to_string(&path)
        .unwrap_or_else(|cause| panic!("{path}: {cause}; {BLESS}=1 writes it"));
    assert!(
        want == got,
        "{path} differs; check it, then {BLESS}=1 writes it\n--- want\n{want}--- got\n{got}"
    );
}

/// 1200 joined reads of 100 us and some, one in a hundred negative on the wire.
fn reads() -> Vec<Joined> {
    (0..1200u64)
        .map(|i| {
            let more = (i % 10) as i64 * 100;
            let odd = i % 100 == 7;
            let times = ReadTimes {
                host: [400, 2600],
                wire_out: if odd { -3000 } else { 5000 },
                target: [5200, 650, 100, 500, 58_000 + more, 100, 300, 1500],
                wire_back: if odd { 1000 } else { 5800 },
                host_back: [3800, 0, 690, 100, 70],
            };
            joined_read(
                times,
                START + 1_000_000 + i * 10_000_000,
                250_000_000_000 + i as i64 * 100,
                4200,
            )
        })
        .collect()
}

fn joined_rows() -> Vec<Row> {
    let joined = reads();
    let mut items = joined_names(100);
    items.push(Item::Joined(&joined));
    let mut totals = join_totals(1201, 1850, 1200);
    totals.host_inside = 1200;
    totals.host_left = [
        ("target_not_recording".to_owned(), 1),
        ("ambiguous".to_owned(), 0),
    ]
    .into();
    totals.target_left = [("host_not_recording".to_owned(), 650)].into();
    items.push(Item::JoinTotals(totals));
    rows(&items)
}

/// Reads of a host whose last hook is absent, and writes that waited for an R2T, some failed.
fn host_rows() -> Vec<Row> {
    let read_at = |i: u64| {
        Way::new(read(), START + i * 1_000_000, h::BLOCK_START)
            .step(400, h::DRIVER_START)
            .step(2600, h::SEND_BEGIN)
            .pass(3_000)
            .step(75_000, h::RESP_ARRIVED)
            .step(3_800, h::RESP_READ)
            .step(0, h::RESP_LAST)
            .step(700, h::COMPLETED)
            .step(100, h::COMPLETE_RQ)
            .record
    };
    let write_at = |i: u64| {
        let record = Record {
            status: if i == 0 { 0x281 } else { 0 },
            ..write(Flags::R2t)
        };
        Way::new(record, START + 500_000 + i * 2_000_000, h::BLOCK_START)
            .step(500, h::DRIVER_START)
            .step(3_000, h::SEND_BEGIN)
            .step(40_000, h::R2T_ARRIVED)
            .step(2_000, h::R2T_READ)
            .step(5_000, h::DATA_SEND_BEGIN)
            .step(20_000, h::DATA_SEND_END)
            .step(130_000, h::RESP_ARRIVED)
            .step(4_000, h::RESP_READ)
            .step(0, h::RESP_LAST)
            .step(1_500, h::COMPLETED)
            .step(200, h::COMPLETE_RQ)
            .record
    };
    let records: Vec<Record> = (0..40).map(read_at).chain((0..10).map(write_at)).collect();
    let mut items = names(Role::Host, 10);
    if let Some(Item::Header(header)) = items.first_mut() {
        header.missing.insert(
            "block_done".into(),
            "no tracepoint block_rq_complete".into(),
        );
    }
    items.push(Item::Records(&records));
    items.push(Item::Totals(totals(
        START + 2_000_000_000,
        &[(2, 4096, 412), (1, 131_072, 97)],
    )));
    rows(&items)
}

/// Flushes on a target whose backend is a file: no bio to see.
fn target_rows() -> Vec<Row> {
    let flush = Record {
        opcode: 0,
        bytes: 0,
        length: 0,
        slba: 0,
        ..read()
    };
    let flush_at = |i: u64| {
        Way::new(flush, START + i * 1_000_000, t::ARRIVED)
            .step(3_000, t::PDU_READ)
            .step(2_000, t::RECEIVED)
            .step(700, t::EXECUTE)
            .step(900_000, t::RESP_QUEUED)
            .step(1_500, t::SEND_BEGIN)
            .step(9_000, t::SEND_END)
            .record
    };
    let records: Vec<Record> = (0..25).map(flush_at).collect();
    let mut items = names(Role::Target, 1);
    items.push(Item::Records(&records));
    items.push(Item::Totals(totals(START + 1_000_000_000, &[(0, 0, 25)])));
    rows(&items)
}

#[test]
fn joined_text() {
    golden("joined.txt", &report(&joined_rows(), &[]));
    golden("joined-detail.txt", &report(&joined_rows(), &["--detail"]));
}

#[test]
fn one_side_alone_text() {
    golden("host-detail.txt", &report(&host_rows(), &["--detail"]));
    golden("target-detail.txt", &report(&target_rows(), &["--detail"]));
}

#[test]
fn other_formats() {
    golden(
        "joined.md",
        &report(&joined_rows(), &["--detail", "--format", "markdown"]),
    );
    golden("joined.csv", &report(&joined_rows(), &["--format", "csv"]));
    golden(
        "joined.json",
        &report(&joined_rows(), &["--format", "json"]),
    );
    golden(
        "joined-color.txt",
        &report(&joined_rows(), &["--color", "always"]),
    );
}

#[test]
fn live_lines() {
    let joined = reads();
    let mut items = joined_names(100);
    items.extend(joined.chunks(100).map(Item::Joined));
    items.push(Item::JoinTotals(join_totals(1200, 1200, 1200)));
    let options = Options {
        interval_ns: Some(4_000_000_000),
        by: By::parse("op,device").unwrap(),
        ..Options::default()
    };
    golden("live.txt", &report(&rows_with(options, &items), &[]));
}

/// The figures of a component in the text: n, mean, L, p50, p99, p99.9.
fn figures_in_text(text: &str, component: &str) -> Vec<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(component))
        .unwrap();
    line.split_whitespace()
        .take(6)
        .map(|figure| figure.trim_start_matches('~').to_owned())
        .collect()
}

#[test]
fn a_figure_is_the_same_in_text_csv_and_json() {
    let rows = joined_rows();
    let text = report(&rows, &["--detail"]);
    let json: serde_json::Value =
        serde_json::from_str(&report(&rows, &["--format", "json"])).unwrap();
    let csv = report(&rows, &["--format", "csv"]);
    let mut table = csv::Reader::from_reader(csv.as_bytes());
    let head = table.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let components = json["groups"][0]["components"].as_array().unwrap();
    assert_eq!(components.len(), 19);
    for component in components {
        let name = component["component"].as_str().unwrap();
        let line = lines
            .iter()
            .find(|line| &line[0] == "component" && line.iter().any(|field| field == name))
            .unwrap();
        let field = |name: &str| &line[head.iter().position(|head| head == name).unwrap()];
        for (key, column) in [
            ("n", "n"),
            ("mean_ns", "mean_ns"),
            ("p50_ns", "p50_ns"),
            ("p999_ns", "p999_ns"),
            ("l", "queue_depth"),
            ("share", "share"),
        ] {
            assert_eq!(component[key].to_string(), field(column), "{name}: {key}");
        }
        let us = |key: &str| format!("{:.2}", component[key].as_f64().unwrap() / 1e3);
        let l = format!("{:.2}", component["l"].as_f64().unwrap());
        let want = [
            component["n"].to_string(),
            us("mean_ns"),
            l,
            us("p50_ns"),
            us("p99_ns"),
            us("p999_ns"),
        ];
        assert_eq!(figures_in_text(&text, name), want, "{name}");
    }
}

#[test]
fn both_tools_write_the_same_table() {
    let joined = reads();
    let mut items = joined_names(100);
    items.extend(joined.chunks(100).map(Item::Joined));
    let rows = rows_with(
        Options {
            interval_ns: Some(4_000_000_000),
            ..Options::default()
        },
        &items,
    );
    let mut direct = ntp_record::row_csv::CsvWriter::new(Vec::new());
    rows.iter().for_each(|row| direct.row(row).unwrap());
    direct.flush().unwrap();
    let (_, through_fmt) = run(&ndjson(&rows), &["--format", "csv"]);
    assert_eq!(
        String::from_utf8(direct.into_inner().unwrap()).unwrap(),
        through_fmt
    );
    // Three intervals and the whole, a group and five stages each.
    assert_eq!(
        through_fmt
            .lines()
            .filter(|line| line.starts_with("stage,"))
            .count(),
        20
    );
}
