//! The binary: what it refuses, what it says, how it ends.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const ROWS: &str = concat!(
    r#"{"row":"report","hosts":[],"targets":[],"sampling":100,"by":["op"]}"#,
    "\n",
    r#"{"row":"group","group":0,"key":{"op":"read"},"view":"host","latency":{"n":3,"mean_ns":1000.0},"with_target":0,"failed":0,"retried":0,"timed_out":0,"cancelled":0}"#,
    "\n",
);
const END: &str = concat!(
    r#"{"row":"totals","host":3,"target":0,"host_left":{},"target_left":{},"reported":3,"left_out":{},"sum_mismatches":0,"wire_negative":0,"out_of_order":0,"in_order":0,"in_order_of":0,"late":0,"lost":{},"misses":{},"unfinished":0,"segments":1,"cut_off":0,"damaged":0,"damaged_bytes":0}"#,
    "\n",
);

fn run(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ntp-fmt"));
    child
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn ends(output: &Output, status: i32, with: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(with), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn what_holds_no_rows_is_refused() {
    assert_eq!(
        ends(
            &run(&[], ""),
            2,
            "ntp-fmt: standard input: empty: ntp-stages wrote no rows"
        ),
        ""
    );
    ends(
        &run(&[], "NTP\x1a\0\0"),
        2,
        "a recording, not rows: use ntp-stages FILE | ntp-fmt",
    );
    ends(
        &run(&[], "{\"ntp\":\"header\"}\n"),
        2,
        "a recording, not rows",
    );
    ends(
        &run(&[], "row,from_s\n"),
        2,
        "a table, not rows: run ntp-stages without --format csv",
    );
    ends(
        &run(&[], "hello\n"),
        2,
        "no rows: ntp-stages writes what is read here",
    );
    ends(
        &run(&["/nowhere/rows"], ""),
        2,
        "ntp-fmt: /nowhere/rows: no such file",
    );
    ends(&run(&["/"], ""), 2, "ntp-fmt: /: is a directory");
    ends(
        &run(&["--format", "html"], ""),
        2,
        "`html` is no format: use one of text, markdown, csv, json",
    );
}

#[test]
fn rows_without_an_end_are_reported_and_told() {
    let text = ends(&run(&[], ROWS), 1, "cut off: the rows have no end");
    assert!(
        text.contains("== read: 3 commands, host side only"),
        "{text}"
    );
    let whole = ends(&run(&[], &format!("{ROWS}{END}")), 0, "");
    assert!(whole.ends_with("records: 3 host\n"), "{whole}");
    assert!(run(&[], &format!("{ROWS}{END}")).stderr.is_empty());
}

#[test]
fn broken_rows_are_left_out_and_unknown_kinds_are_no_matter() {
    let broken = format!("{ROWS}{{\"row\":\"stage\",\n{END}");
    ends(&run(&[], &broken), 1, "line 3: broken row: ");
    let orphan = r#"{"row":"stage","group":7,"stage":"network","title":"network","per_command_ns":1.0,"share":null,"l":null,"n":1}"#;
    ends(
        &run(&[], &format!("{ROWS}{orphan}\n{END}")),
        1,
        "line 3: a row of group 7, which has not come",
    );
    ends(
        &run(&["--format", "csv"], &format!("{ROWS}{orphan}\n{END}")),
        1,
        "line 3: a row of group 7, which has not come",
    );
    let newer = format!("{ROWS}{{\"row\":\"histogram\",\"group\":0}}\n{END}");
    ends(&run(&[], &newer), 0, "");
}

#[test]
fn a_first_row_that_is_broken_costs_no_other() {
    let broken = &ROWS[1..];
    for format in ["text", "csv", "json"] {
        let args = ["--format", format];
        let report = ends(
            &run(&args, &format!("{broken}{END}")),
            1,
            "line 1: broken row: ",
        );
        assert!(report.contains("read"), "{report}");
        let whole = ends(&run(&args, &format!("{ROWS}{END}")), 0, "");
        // The columns of a table are known without it.
        assert!(format != "csv" || report == whole, "{report}");
    }
    // When nothing follows, there is one line, and it says what the input is not.
    let none = run(&[], "{\"row\":\nx\n");
    assert_eq!(ends(&none, 2, "no rows"), "");
    assert_eq!(String::from_utf8_lossy(&none.stderr).lines().count(), 1);
}

#[test]
fn a_report_behind_one_that_was_cut_off_is_whole() {
    let second = format!("{ROWS}{END}");
    let whole = ends(&run(&["--format", "csv"], &second), 0, "");
    let group = whole.lines().last().unwrap();
    for cut in 8..ROWS.len() {
        let both = format!("{}{second}", &ROWS[..cut]);
        let table = ends(&run(&["--format", "csv"], &both), 1, "");
        assert!(
            table.ends_with(&format!("{group}\n")),
            "cut at {cut}: {table}"
        );
    }
    // A row of the second report is not about a group of the first.
    let (report, _) = ROWS.split_once('\n').unwrap();
    let orphan = r#"{"row":"stage","group":0,"stage":"network","title":"network","per_command_ns":1.0,"share":null,"l":null,"n":1}"#;
    let both = format!("{ROWS}{END}{report}\n{orphan}\n{END}");
    for format in ["text", "csv"] {
        ends(
            &run(&["--format", format], &both),
            1,
            "line 5: a row of group 0, which has not come",
        );
    }
}

#[test]
fn a_row_without_end_is_one_broken_row() {
    // Its second half would be a row of its own.
    let stage = r#"{"row":"stage","group":0,"stage":"network","title":"network","per_command_ns":1.0,"share":null,"l":null,"n":1}"#;
    let long = "x".repeat((16 << 20) + 1);
    let text = ends(
        &run(&[], &format!("{ROWS}{long}{stage}\n{END}")),
        1,
        "line 3: longer than any row",
    );
    assert!(!text.contains("network"), "{text}");
}

#[test]
fn what_was_not_measured_is_never_zero() {
    let text = ends(&run(&["--detail"], &format!("{ROWS}{END}")), 0, "");
    assert!(text.contains("mean 1.00, p50 n/a, p99 n/a"), "{text}");
    assert!(!text.contains("0.00"), "{text}");
}

#[test]
fn a_file_is_there_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.txt");
    let name = path.to_str().unwrap();
    ends(&run(&["-o", name], "hello\n"), 2, "no rows");
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    ends(&run(&["-o", name], &format!("{ROWS}{END}")), 0, "");
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .starts_with("recorded on")
    );
}
