//! The tool as people call it. What it finds depends on the machine; how it
//! says so does not.

use clap::CommandFactory;
use std::process::{Command, Output, Stdio};

fn probe(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ntp-probe"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Exit status 2 and one line on standard error, nothing on standard output.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let out = probe(args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    assert_eq!(text(&out.stdout), "");
    assert!(
        err.starts_with("ntp-probe: ") && err.matches('\n').count() == 1,
        "{err}"
    );
    assert!(words.iter().all(|w| err.contains(w)), "{err}");
}

#[test]
fn a_btf_folder_that_is_none_is_refused() {
    refused(
        &["--btf", "/no/such/folder"],
        &["/no/such/folder: not a folder"],
    );
    refused(
        &["--btf", env!("CARGO_BIN_EXE_ntp-probe")],
        &["not a folder"],
    );
}

#[test]
fn wrong_usage_is_status_2() {
    for args in [&["-r", "both"][..], &["--no-such"], &["extra"]] {
        assert_eq!(probe(args).status.code(), Some(2));
    }
}

#[test]
fn an_answer_ends_with_the_load_and_agrees_with_the_status() {
    for (role, transport) in [
        ("host", "tcp"),
        ("target", "tcp"),
        ("host", "rdma"),
        ("target", "rdma"),
    ] {
        let out = probe(&["-r", role, "-t", transport]);
        let (answer, err) = (text(&out.stdout), text(&out.stderr));
        let last = answer.lines().last().unwrap_or_default();
        match out.status.code() {
            Some(0) => assert_eq!(last, "load: ok"),
            Some(1) => assert!(last.starts_with("load: failed: "), "{answer}"),
            // No permission: which one, and what to do.
            Some(2) => assert!(err.contains("sudo") && answer.is_empty(), "{err}"),
            other => panic!("{other:?}: {err}"),
        }
    }
}

#[test]
fn a_closed_pipe_is_quiet() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ntp-probe"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    // Without permission it has no answer to write.
    if out.status.code() != Some(2) {
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    }
}

#[test]
fn the_manual_page_has_every_option() {
    let page = include_str!("../../man/ntp-probe.1").replace("\\-", "-");
    let mut command = ntp_probe::Options::command();
    command.build();
    for arg in command.get_arguments() {
        let long = arg.get_long().unwrap();
        assert!(
            page.contains(&format!("--{long}")),
            "--{long} is not in man/ntp-probe.1"
        );
        if let Some(short) = arg.get_short() {
            assert!(
                page.contains(&format!("-{short}")),
                "-{short} is not in man/ntp-probe.1"
            );
        }
    }
}
