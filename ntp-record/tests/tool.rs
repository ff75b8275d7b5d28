//! Manners: messages, exit status, output files.

use anyhow::Context;
use ntp_record::Format;
use ntp_record::tool::{self, Commit, OutFile};
use std::fs;
use std::io::{self, Write};

fn entries(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("folder")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_gets_its_name_when_it_is_whole() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.ntp");
    fs::write(&path, "before").expect("written");
    let name = path.to_str().expect("path");

    let mut out = OutFile::create(Some(name), Commit::AtEnd, Format::Binary).expect("created");
    out.write_all(b"half").expect("written");
    assert_eq!(fs::read(&path).expect("read"), b"before");
    drop(out);
    assert_eq!(fs::read(&path).expect("read"), b"before");
    assert_eq!(entries(folder.path()), ["a.ntp"]);

    let mut out = OutFile::create(Some(name), Commit::AtEnd, Format::Binary).expect("created");
    out.write_all(b"whole").expect("written");
    out.finish().expect("finished");
    assert_eq!(fs::read(&path).expect("read"), b"whole");
    assert_eq!(entries(folder.path()), ["a.ntp"]);
}

#[test]
fn a_file_written_in_place_keeps_what_came_before_a_failure() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.ntp");
    let mut out = OutFile::create(path.to_str(), Commit::InPlace, Format::Binary).expect("created");
    out.write_all(b"half").expect("written");
    out.flush().expect("flushed");
    assert_eq!(fs::read(&path).expect("read"), b"half");
    drop(out);
    assert_eq!(fs::read(&path).expect("read"), b"half");
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let mut out =
        OutFile::create(Some("/dev/null"), Commit::AtEnd, Format::Binary).expect("created");
    out.write_all(b"x").expect("written");
    out.finish().expect("finished");
    assert!(!fs::metadata("/dev/null").expect("there").is_file());
}

#[test]
fn failures_to_open_name_the_file() {
    let error = |path: &str| {
        let error = OutFile::create(Some(path), Commit::AtEnd, Format::Binary).err();
        error.map(|error| tool::message(&error)).unwrap_or_default()
    };
    assert_eq!(error("/nowhere/a"), "/nowhere/a: no such file or directory");
    assert_eq!(error("/tmp"), "/tmp: is a directory: name a file in it");
}

#[test]
fn a_full_disk_is_told_with_its_name() {
    let Ok(mut out) = OutFile::create(Some("/dev/full"), Commit::AtEnd, Format::Binary) else {
        eprintln!("skipped: no /dev/full");
        return;
    };
    out.write_all(b"x").expect("buffered");
    let error = out.flush().expect_err("full");
    assert_eq!(error.to_string(), "/dev/full: no space left on device");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_closed_pipe_is_seen_through_any_context() {
    let pipe = || io::Error::from_raw_os_error(nix::libc::EPIPE);
    let error = Err::<(), _>(pipe())
        .context("standard output")
        .context("writing")
        .err();
    assert!(error.is_some_and(|error| tool::broken_pipe(&error)));
    let other = Err::<(), _>(io::Error::other("x")).context("y").err();
    assert!(other.is_some_and(|error| !tool::broken_pipe(&error)));
}

#[test]
fn messages_are_one_line_lower_case_without_numbers() {
    let missing = || io::Error::from_raw_os_error(nix::libc::ENOENT);
    let error = Err::<(), _>(missing()).context("a\nb").err();
    let text = error.map(|error| tool::message(&error));
    assert_eq!(text.as_deref(), Some("a b: no such file or directory"));
}

#[test]
fn standard_input_can_be_named_once() {
    assert!(tool::at_most_one_stdin(&["-", "a", "b"]).is_ok());
    assert!(tool::at_most_one_stdin(&["-", "a", "-"]).is_err());
}

#[test]
fn binary_to_a_terminal_is_refused() {
    let Ok(pty) = nix::pty::openpty(None, None) else {
        eprintln!("skipped: no pseudo terminal");
        return;
    };
    let path = nix::unistd::ttyname(&pty.slave).expect("name");
    let path = path.to_str().expect("path");
    let error = OutFile::create(Some(path), Commit::InPlace, Format::Binary).expect_err("refused");
    assert_eq!(
        tool::message(&error),
        format!("{path} is a terminal: redirect it, name a file with -o, or use --format ndjson")
    );
    assert!(OutFile::create(Some(path), Commit::InPlace, Format::Ndjson).is_ok());
}
