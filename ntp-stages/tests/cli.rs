//! The binary: what it reads, what it says, how it ends.

mod util;

use ntp_record::point::host as h;
use ntp_record::{Format, Item, Record, Role, Writer};
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use util::*;

fn ntp_stages() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ntp-stages"))
}

fn run(args: &[&str], input: &[u8]) -> Output {
    let mut child = ntp_stages()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feed = std::thread::spawn(move || {
        // A tool that refuses its input need not read it.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    output
}

#[track_caller]
fn refused(output: &Output, with: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(with), "{said}");
    assert!(output.stdout.is_empty());
}

/// A recording of 100 reads.
fn recording(format: Format) -> Vec<u8> {
    let read = |i: u64| {
        let way = Way::new(read(), START + i * 1_000_000, h::BLOCK_START);
        way.step(400, h::DRIVER_START)
            .step(70_000 + i as i64, h::COMPLETED)
            .record
    };
    let records: Vec<Record> = (0..100).map(read).collect();
    let mut writer = Writer::new(Vec::new(), format);
    for item in names(Role::Host, 10) {
        writer.item(&item).unwrap();
    }
    for some in records.chunks(10) {
        writer.records(some).unwrap();
    }
    writer
        .item(&Item::Totals(totals(
            START + 1_000_000_000,
            &[(2, 4096, 1000)],
        )))
        .unwrap();
    writer.into_inner()
}

#[test]
fn file_pipe_and_encoding_give_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.ntp");
    let path = path.to_str().unwrap();
    std::fs::write(path, recording(Format::Binary)).unwrap();
    let file = run(&[path], b"");
    assert_eq!(
        file.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&file.stderr)
    );
    assert!(file.stdout.starts_with(b"{\"row\":\"report\""));
    assert_eq!(String::from_utf8_lossy(&file.stderr), "");
    for (args, input) in [
        (&[][..], Format::Binary),
        (&["-"][..], Format::Binary),
        (&[][..], Format::Ndjson),
    ] {
        let pipe = run(args, &recording(input));
        assert!(pipe.stdout == file.stdout, "{args:?}");
    }
    let out = folder.path().join("rows");
    let to_file = run(&["-o", out.to_str().unwrap(), path], b"");
    assert!(to_file.stdout.is_empty());
    assert!(std::fs::read(&out).unwrap() == file.stdout);
}

#[test]
fn csv_has_units_and_one_line_a_row() {
    let csv = run(&["--format", "csv"], &recording(Format::Binary));
    let text = String::from_utf8(csv.stdout).unwrap();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|head| *head == name).unwrap();
    let group: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(
        (
            group[column("op")],
            group[column("size_bytes")],
            group[column("device")]
        ),
        ("read", "4096", "nvme0n1")
    );
    // 100 reads of 70 400 to 70 499 ns.
    assert_eq!(
        (group[column("n")], group[column("mean_ns")]),
        ("100", "70449.5")
    );
    assert_eq!(
        (group[column("commands")], group[column("rate_per_s")]),
        ("1000", "1000.0")
    );
    // What a side cannot see is empty, not 0.
    let drive = text
        .lines()
        .find(|line| line.contains("handoff to nvme_complete_rq"))
        .unwrap();
    let drive: Vec<&str> = drive.split(',').collect();
    assert_eq!(
        (
            drive[column("n")],
            drive[column("mean_ns")],
            drive[column("missing")]
        ),
        ("0", "", "100")
    );
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    refused(
        &run(&["/nowhere/host.ntp"], b""),
        "ntp-stages: /nowhere/host.ntp: no such file",
    );
    refused(&run(&[folder], b""), "is a directory");
    refused(&run(&[], b""), "ntp-stages: standard input: empty");
    refused(
        &run(&[], b"GIF89a"),
        "ntp-stages: standard input: not a recording",
    );
    refused(
        &run(&["--by", "color"], b""),
        "`color` is no key: use some of op, size, device",
    );
    refused(&run(&["-i", "0"], b""), "`0` is no interval");
    refused(
        &run(&["--format", "parquet"], b""),
        "`parquet` is no format: use ndjson or csv",
    );
    let missing = format!("{folder}/missing/rows");
    refused(
        &run(&["-o", &missing], &recording(Format::Binary)),
        &missing,
    );
}

#[test]
fn damage_is_told_and_the_rest_is_reported() {
    let mut bytes = recording(Format::Binary);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    let output = run(&[], &bytes);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("ntp-stages: standard input: byte "),
        "{said}"
    );
    let rows = String::from_utf8(output.stdout).unwrap();
    assert!(
        rows.contains(r#""damaged":1"#) && rows.contains(r#""reported":90"#),
        "{rows}"
    );
}

#[test]
fn a_recording_cut_off_between_chunks_is_told() {
    let whole = recording(Format::Binary);
    // The last chunk holds the totals.
    let totals = whole
        .windows(4)
        .rposition(|four| four == b"NTP\x1a")
        .unwrap();
    let output = run(&[], &whole[..totals]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "ntp-stages: standard input: cut off: a recording in it has no totals, so what was lost while recording is not known\n"
    );
    let rows = String::from_utf8(output.stdout).unwrap();
    assert!(rows.contains(r#""reported":100"#), "{rows}");
}

#[test]
fn records_without_their_header_mean_nothing() {
    // The points of a target's record are not those of a host's.
    let mut bytes = recording(Format::Binary);
    bytes[30] ^= 1;
    let output = run(&[], &bytes);
    assert_eq!(output.status.code(), Some(1));
    let rows = String::from_utf8(output.stdout).unwrap();
    assert!(
        rows.contains(r#""reported":0,"left_out":{"the header of their recording":100}"#),
        "{rows}"
    );
}

#[test]
fn a_recording_without_commands_has_no_answer() {
    let mut writer = Writer::new(Vec::new(), Format::Binary);
    names(Role::Host, 10)
        .iter()
        .for_each(|item| writer.item(item).unwrap());
    let output = run(&[], &writer.into_inner());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing to report"));
}

#[test]
fn a_closed_pipe_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.ntp");
    std::fs::write(&path, recording(Format::Binary)).unwrap();
    for format in ["ndjson", "csv"] {
        let mut child = ntp_stages();
        child
            .args(["--format", format])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("pipe"), "{said}");
    }
}

#[test]
fn one_interrupt_is_left_to_the_recorder_and_two_end_it() {
    for interrupts in [1, 2] {
        let mut child = ntp_stages()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = recording(Format::Ndjson);
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let (begin, end) = lines.split_at(50);
        stdin.write_all(&begin.concat()).unwrap();
        // It has its handlers in place before it reads; give it the time to.
        std::thread::sleep(std::time::Duration::from_millis(500));
        for _ in 0..interrupts {
            let id = child.id().to_string();
            assert!(
                // The shell's own: a small system has no other.
                Command::new("sh")
                    .args(["-c", "kill -INT \"$0\"", &id])
                    .status()
                    .unwrap()
                    .success()
            );
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let _ = stdin.write_all(&end.concat());
        drop(stdin);
        let mut rows = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut rows)
            .unwrap();
        let status = child.wait().unwrap();
        match interrupts {
            1 => assert!(
                status.success() && rows.contains(r#""reported":100"#),
                "{rows}"
            ),
            _ => assert_eq!(status.code(), Some(130)),
        }
    }
}

#[test]
fn a_recording_over_rdma_is_refused_not_misread() {
    let mut writer = Writer::new(Vec::new(), Format::Binary);
    for mut item in names(Role::Host, 1) {
        if let Item::Header(header) = &mut item {
            header.transport = ntp_record::Transport::Rdma;
        }
        writer.item(&item).unwrap();
    }
    let bytes = writer.into_inner();
    refused(&run(&[], &bytes), "recorded over RDMA");
}
