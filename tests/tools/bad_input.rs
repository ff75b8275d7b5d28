//! Bad input: one line on standard error that names the tool and the object,
//! the designed exit status, nothing left behind under the final name.

use ntp_tests::tools::{Run, bin_dir, run, run_with, shell};
use std::fs;
use std::path::{Path, PathBuf};

const READERS: &[&str] = &["ntp-join", "ntp-stages", "ntp-fmt"];

fn case(file: &str) -> String {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/read-write-4k");
    cases.join(file).display().to_string()
}

/// One line, `tool: ... object ...`, nothing on standard output.
#[track_caller]
fn one_line(run: Run, tool: &str, status: i32, object: &str) {
    let run = run.expect(status);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}: {}", run.command, run.stderr);
    assert!(
        lines[0].starts_with(&format!("{tool}: ")),
        "{}: {}",
        run.command,
        lines[0]
    );
    assert!(lines[0].contains(object), "{}: {}", run.command, lines[0]);
    assert!(!lines[0].ends_with('.'), "{}", lines[0]);
    assert!(run.stdout.is_empty(), "{}: {}", run.command, run.text());
}

#[test]
fn what_is_no_recording() {
    let dir = tempfile::tempdir().expect("folder");
    let make = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("file");
        path.display().to_string()
    };
    let mut newer = shell(Path::new("."), &format!("zstd -dqc {}", case("host.ntp")))
        .expect(0)
        .stdout;
    // Major version: byte 6 of the first chunk's head; the head's checksum covers it.
    newer[6] += 1;
    let crc = crc32c(&newer[..20]);
    newer[20..24].copy_from_slice(&crc.to_le_bytes());
    let files = [
        make("empty", b""),
        make("text", b"root:x:0:0\n"),
        make("random", &[0x9c; 5000]),
        make("newer", &newer),
        dir.path().display().to_string(),
        dir.path().join("missing").display().to_string(),
    ];
    for tool in READERS {
        for file in &files {
            one_line(run(tool, &[file]), tool, 2, file);
        }
        one_line(run_with(tool, &["-"], Some(b"")), tool, 2, "standard input");
        one_line(
            run_with(tool, &["-"], Some(b"nonsense")),
            tool,
            2,
            "standard input",
        );
    }
    let version = run("ntp-stages", &[&files[3]]).stderr;
    assert!(version.contains("version"), "{version}");
}

/// CRC-32C by the bit, from its definition (RFC 3720, 12.1).
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn recordings_that_do_not_fit() {
    let host = case("host.ntp");
    let other = case("../write-64k-r2t/target.ntp");
    let second = case("../write-64k-r2t/host.ntp");
    // Two of one role, one alone, two that have nothing in common: an answer, and it is no.
    for (args, word) in [
        (vec![&host, &second], "target"),
        (vec![&host], "only one recording"),
        (vec![&host, &other], "connection"),
    ] {
        let run = run("ntp-join", &args).expect(1);
        assert!(run.stderr.contains(word), "{}: {}", run.command, run.stderr);
        assert!(
            run.stderr.lines().all(|l| l.starts_with("ntp-join: ")),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_recording_given_twice() {
    let host = case("host.ntp");
    let args = [&host, &case("target.ntp"), &host];
    one_line(run("ntp-join", &args), "ntp-join", 2, "give it once");
}

#[test]
fn usage() {
    for tool in [
        "ntp-probe",
        "ntp-capture",
        "ntp-join",
        "ntp-stages",
        "ntp-fmt",
    ] {
        one_line(
            run(tool, &["--no-such-option"]),
            tool,
            2,
            "--no-such-option",
        );
        let help = run(tool, &["--help"]).expect(0);
        assert!(
            help.stderr.is_empty() && help.text().contains("Usage"),
            "{tool}"
        );
        run(tool, &["--version"]).expect(0);
    }
    one_line(
        run("ntp-stages", &["--by", "colour", &case("host.ntp")]),
        "ntp-stages",
        2,
        "colour",
    );
    one_line(
        run("ntp-join", &["-", "-"]),
        "ntp-join",
        2,
        "standard input",
    );
    one_line(
        run("ntp-capture", &["-s", "0"]),
        "ntp-capture",
        2,
        "--sample",
    );
    let missing = ["--session", "nvme99n1"];
    one_line(run("ntp-capture", &missing), "ntp-capture", 2, "nvme99n1");
}

/// Without rights the tools say which are missing. Copied, because the build
/// folder need not be open to others.
#[test]
fn no_rights() {
    let dir = PathBuf::from(shell(Path::new("/"), "mktemp -d").expect(0).text().trim());
    let d = dir.display();
    let bin = bin_dir().display();
    shell(
        &dir,
        &format!("cp {bin}/ntp-probe {bin}/ntp-capture . && chmod 755 {d}"),
    )
    .expect(0);
    for tool in ["ntp-probe", "ntp-capture"] {
        let drop = "setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs";
        // Who runs this without root has none to drop.
        let script = format!("[ $(id -u) = 0 ] && as='{drop}'; $as ./{tool}");
        one_line(shell(&dir, &script), tool, 2, "cap_bpf");
    }
    fs::remove_dir_all(dir).expect("folder");
}

#[test]
fn nothing_half_written_is_left() {
    let dir = tempfile::tempdir().expect("folder");
    let out = dir.path().join("out");
    let o = out.display().to_string();
    for args in [vec!["/missing"], vec!["/etc/passwd"]] {
        for tool in READERS {
            run(tool, &[&["-o", &o], &args[..]].concat()).expect(2);
            assert!(!out.exists(), "{tool}");
        }
    }
    // It cannot record here (no driver, or no rights), or -o would be a recording.
    let run = run("ntp-capture", &["-t", "rdma", "-o", &o]).expect(2);
    assert!(!out.exists(), "{}", run.stderr);
    let left: Vec<_> = fs::read_dir(dir.path()).expect("folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A recording cannot be made again: an output that would replace it is refused.
#[test]
fn an_input_is_not_overwritten() {
    let dir = tempfile::tempdir().expect("folder");
    let script = format!(
        "cp {} host.ntp && cp {} target.ntp",
        case("host.ntp"),
        case("target.ntp")
    );
    shell(dir.path(), &script).expect(0);
    for script in [
        "ntp-join host.ntp target.ntp -o host.ntp",
        "ntp-join host.ntp target.ntp -o ./target.ntp",
        "ntp-stages host.ntp -o host.ntp",
        "ntp-fmt host.ntp -o host.ntp",
    ] {
        let tool = script.split(' ').next().expect("tool");
        one_line(shell(dir.path(), script), tool, 2, "would be overwritten");
    }
    let script = format!(
        "cmp host.ntp {} && cmp target.ntp {}",
        case("host.ntp"),
        case("target.ntp")
    );
    shell(dir.path(), &script).expect(0);
}

/// What reads a tool's output may go away: quiet, status 0 of the tool.
#[test]
fn closed_pipes() {
    let (host, target) = (case("host.ntp"), case("target.ntp"));
    for script in [
        format!("ntp-join {host} {target} 2>/dev/null | true; echo ${{PIPESTATUS[0]}}"),
        format!("ntp-stages {host} | true; echo ${{PIPESTATUS[0]}}"),
        format!("ntp-stages {host} | ntp-fmt --detail | true; echo ${{PIPESTATUS[*]}}"),
        format!("ntp-stages {host} > /dev/full; echo $?"),
    ] {
        let run = shell(Path::new("/"), &script).expect(0);
        let full = script.contains("/dev/full");
        let expected = if full { "2" } else { "0" };
        assert!(
            run.text().trim().split(' ').all(|s| s == expected),
            "{script}: {}",
            run.text()
        );
        assert_eq!(run.stderr.is_empty(), !full, "{script}: {}", run.stderr);
    }
}

/// Cut anywhere: what is whole is reported, the loss is named, the status says so.
#[test]
fn cut_recordings() {
    let dir = tempfile::tempdir().expect("folder");
    shell(
        dir.path(),
        &format!("zstd -dqc {} > whole.ntp", case("host.ntp")),
    )
    .expect(0);
    let whole = fs::read(dir.path().join("whole.ntp")).expect("recording");
    for percent in [30, 60, 90, 99] {
        let cut = whole.len() * percent / 100;
        fs::write(dir.path().join("cut.ntp"), &whole[..cut]).expect("file");
        let run = run(
            "ntp-stages",
            &[&dir.path().join("cut.ntp").display().to_string()],
        );
        let run = run.expect(1);
        assert!(
            run.stderr.contains("cut off"),
            "{percent} %: {}",
            run.stderr
        );
        assert!(!run.stdout.is_empty(), "{percent} %");
    }
}
