//! What the tools say about real recordings, to the letter.

use ntp_record::point::{host, target};
use ntp_record::{Flags, Role, Transport};
use ntp_tests::tools::shell;
use ntp_tests::truth;
use std::path::{Path, PathBuf};

const CASES: &[&str] = &["read-write-4k", "write-64k-r2t", "write-64k-tls"];

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("cases")
        .join(case)
}

/// Compares with the file beside the recordings; one that is missing fails.
#[track_caller]
fn golden(case: &str, file: &str, script: &str) {
    let path = folder(case).join(file);
    let said = shell(&folder(case), script).expect(0).text();
    if std::env::var_os("NTP_BLESS").is_some() {
        std::fs::write(&path, &said).expect("golden");
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e} (NTP_BLESS=1 makes it)", path.display()));
    assert!(
        said == expected,
        "{} differs (NTP_BLESS=1 rewrites it); `{script}` now says:\n{said}",
        path.display()
    );
}

#[test]
fn reports() {
    for case in CASES {
        golden(
            case,
            "report.txt",
            "ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt",
        );
        golden(
            case,
            "detail.txt",
            "ntp-join target.ntp host.ntp | ntp-stages | ntp-fmt --detail",
        );
        golden(
            case,
            "rows.csv",
            "ntp-join host.ntp target.ntp | ntp-stages --format csv",
        );
        golden(case, "host.txt", "ntp-stages host.ntp | ntp-fmt --detail");
        golden(
            case,
            "target.txt",
            "ntp-stages target.ntp | ntp-fmt --detail",
        );
    }
}

/// Plain, gzip, zstd, standard input, lines, lines through jq: the same rows, byte for byte.
#[test]
fn every_encoding_gives_the_same_rows() {
    let dir = tempfile::tempdir().expect("folder");
    for case in CASES {
        let c = folder(case).display().to_string();
        shell(
            dir.path(),
            &format!(
                "zstd -dqfc {c}/host.ntp > host.ntp && zstd -dqfc {c}/target.ntp > target.ntp"
            ),
        )
        .expect(0);
        let plain = shell(dir.path(), "ntp-join host.ntp target.ntp | ntp-stages")
            .expect(0)
            .stdout;
        assert!(plain.len() > 1000);
        for script in [
            "ntp-join -o j.ntp host.ntp target.ntp && ntp-stages j.ntp",
            "gzip -kf host.ntp target.ntp && ntp-join host.ntp.gz target.ntp.gz | ntp-stages",
            "zstd -qf host.ntp target.ntp && ntp-join target.ntp.zst host.ntp.zst | ntp-stages -",
            "cat host.ntp | ntp-join - target.ntp | ntp-stages",
            "ntp-join host.ntp target.ntp | gzip | ntp-stages",
            "ntp-join --format ndjson host.ntp target.ntp | ntp-stages",
            "ntp-join --format ndjson host.ntp target.ntp | jq -c . | ntp-stages",
            "ntp-join --format ndjson host.ntp target.ntp | jq -c . | zstd -q | ntp-stages",
        ] {
            let rows = shell(dir.path(), script).expect(0).stdout;
            assert!(rows == plain, "{case}: {script}");
        }
        // One after the other in one stream: the same commands, whatever was
        // known of the clocks when each was read.
        let one = shell(
            dir.path(),
            "cat host.ntp target.ntp | ntp-join - | ntp-stages | ntp-fmt",
        );
        let one = one.expect(0).text();
        let two = shell(
            dir.path(),
            "ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt",
        );
        let last = |text: &str| text.lines().last().map(str::to_owned);
        assert_eq!(last(&one), last(&two.expect(0).text()), "{case}");
        // A filter that drops header and names still gives the same commands.
        let script = "ntp-join --format ndjson host.ntp target.ntp | jq -c 'select(.op == \"write\")' \
                      | ntp-stages | ntp-fmt";
        let filtered = shell(dir.path(), script).expect(0).text();
        assert!(
            filtered.contains("== write") && !filtered.contains("== read"),
            "{filtered}"
        );
    }
}

/// Under TLS the drivers are seen as ever; only which packet brought a PDU is hidden.
#[test]
fn tls_hides_arrivals_and_nothing_else() {
    let recording = |side, role| {
        let file = folder("write-64k-tls").join(side);
        truth::recording(&file, role).expect(side).records
    };
    for (records, hidden) in [
        (
            recording("host.ntp", Role::Host),
            &[host::R2T_ARRIVED, host::RESP_ARRIVED][..],
        ),
        (
            recording("target.ntp", Role::Target),
            &[
                target::ARRIVED,
                target::PDU_READ,
                target::DATA_ARRIVED,
                target::DATA_READ,
            ],
        ),
    ] {
        assert_eq!(records.len(), 311);
        assert!(records.iter().all(|r| r.has(Flags::Tls)));
        for point in ntp_record::point::of(hidden[0].side, Transport::Tcp) {
            let expected = if hidden.contains(point) { 0.0 } else { 1.0 };
            assert_eq!(truth::share(&records, *point), expected, "{point:?}");
        }
    }
    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("joined.ntp");
    let script = format!("ntp-join -o {} host.ntp target.ntp", file.display());
    shell(&folder("write-64k-tls"), &script).expect(0);
    let joined = truth::joined(&file).expect("joined");
    assert_eq!(joined.pairs.len(), 311);
    assert_eq!(truth::strangers(&joined), 0);
    assert_eq!(truth::at_another_time(&joined), 0);
    assert_eq!(truth::out_of_order(&joined.pairs), []);
}
