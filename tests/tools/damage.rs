//! Damaged and lost input through the built tools: what is whole is used, the
//! loss is named, the status is 1. The reader itself is tested with many more
//! cases in ntp-record/tests/damage.rs.

use super::bad_input::crc32c;
use ntp_tests::tools::{Run, shell};
use std::fs;
use std::path::{Path, PathBuf};

/// Cases of each kind of damage.
const SEEDS: u64 = 20;

/// The recordings of a case, uncompressed, and what the tools make of them.
struct Files {
    dir: tempfile::TempDir,
    host: Vec<u8>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/read-write-4k");
        let case = case.display();
        let script = format!(
            "zstd -dqc {case}/host.ntp > host && zstd -dqc {case}/target.ntp > target &&
             ntp-join -o joined host target && ntp-stages -o rows joined &&
             ntp-join --format ndjson -o lines host target"
        );
        shell(dir.path(), &script).expect(0);
        let host = fs::read(dir.path().join("host")).expect("recording");
        Files { dir, host }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).expect("file");
        path
    }
}

/// A number below `end` that the seed stands for (splitmix64).
fn below(seed: u64, end: usize) -> usize {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ z >> 31) % end as u64) as usize
}

/// Records in the whole chunks of the first `cut` bytes, by ntp(5).
fn whole_records(stream: &[u8], cut: usize) -> usize {
    let number = |at: usize| {
        u32::from_le_bytes([stream[at], stream[at + 1], stream[at + 2], stream[at + 3]]) as usize
    };
    let (mut at, mut records) = (0, 0);
    while at + 24 <= cut && at + 24 + number(at + 8) <= cut {
        let length = number(at + 8);
        records += if stream[at + 4] == 2 { length / 176 } else { 0 };
        at += 24 + length.next_multiple_of(8);
    }
    records
}

/// Status 1; every line is the tool's, and one says `word` of `object`.
#[track_caller]
fn told(run: Run, tool: &str, object: &str, word: &str) -> Run {
    let run = run.expect(1);
    let mut lines = run.stderr.lines();
    assert!(
        lines
            .clone()
            .all(|line| line.starts_with(&format!("{tool}: "))),
        "{}: {}",
        run.command,
        run.stderr
    );
    assert!(
        lines.any(|line| line.contains(object) && line.contains(word)),
        "{}: {}",
        run.command,
        run.stderr
    );
    run
}

#[test]
fn cut_anywhere() {
    let files = Files::new();
    for seed in 1..=SEEDS {
        let cut = 1 + below(seed, files.host.len() - 1);
        files.write("cut", &files.host[..cut]);
        let stages = shell(files.path(), "ntp-stages cut");
        let stages = told(stages, "ntp-stages", "cut: ", "cut off");
        let records = whole_records(&files.host, cut);
        // The last row of all.
        let totals = stages.text();
        let totals = totals.lines().last().expect("totals");
        assert!(
            totals.contains(&format!(r#""host":{records},"target":0"#)),
            "seed {seed}: {records}: {totals}"
        );
        let join = shell(
            files.path(),
            "ntp-join -o out target cut; s=$?; rm -f out; exit $s",
        );
        let join = told(join, "ntp-join", "cut: ", "cut off");
        let summary = format!("{records} host, ");
        let header = whole_records(&files.host, cut) > 0;
        assert!(
            !header || join.stderr.contains(&summary),
            "seed {seed}: {}",
            join.stderr
        );
    }
}

#[test]
fn flipped_anywhere() {
    let files = Files::new();
    let lines = fs::read(files.path().join("lines")).expect("lines");
    for seed in 1..=SEEDS {
        let mut bytes = files.host.clone();
        let at = below(seed, bytes.len());
        bytes[at] ^= 1 << (seed % 8);
        files.write("bad", &bytes);
        let stages = shell(files.path(), "ntp-stages bad");
        told(stages, "ntp-stages", "bad: byte ", "lost");
        let join = shell(files.path(), "ntp-join bad target > out");
        told(join, "ntp-join", "bad: byte ", "lost");

        // A brace that is none breaks a line.
        let mut lines = lines.clone();
        let line = 2 + below(seed, lines.split(|byte| *byte == b'\n').count() - 3);
        let begin = lines
            .split_inclusive(|byte| *byte == b'\n')
            .take(line - 1)
            .map(<[u8]>::len)
            .sum::<usize>();
        lines[begin] ^= 1 << (seed % 7);
        files.write("bad", &lines);
        let stages = shell(files.path(), "ntp-stages bad");
        told(
            stages,
            "ntp-stages",
            "bad: byte ",
            &format!("line {line} cannot be understood"),
        );
    }
}

#[test]
fn compressed_and_cut() {
    let files = Files::new();
    for pack in ["gzip", "zstd -q"] {
        let name = pack.split(' ').next().expect("name");
        shell(files.path(), &format!("{pack} -c host > packed")).expect(0);
        let packed = fs::read(files.path().join("packed")).expect("packed");
        for seed in 1..=SEEDS / 4 {
            let cut = packed.len() / 2 + below(seed, packed.len() / 2);
            files.write("packed", &packed[..cut]);
            let run = shell(files.path(), "ntp-stages packed");
            told(
                run,
                "ntp-stages",
                "packed: byte ",
                &format!("{name} stream is cut off"),
            );
            let run = shell(files.path(), "ntp-join packed target > out");
            told(
                run,
                "ntp-join",
                "packed: byte ",
                &format!("{name} stream is cut off"),
            );
        }
    }
}

/// What a machine leaves that lost power: zeros where the end should be.
#[test]
fn zeros_behind_the_end() {
    let files = Files::new();
    let lines = fs::read(files.path().join("lines")).expect("lines");
    for bytes in [&files.host, &lines] {
        files.write("zeros", &[&bytes[..], &[0; 9000]].concat());
        let run = shell(files.path(), "ntp-stages zeros");
        let run = told(run, "ntp-stages", "zeros: byte ", "9000 bytes lost");
        files.write("whole", bytes);
        let whole = shell(files.path(), "ntp-stages whole").expect(0);
        let groups = |run: &Run| {
            let text = run.text();
            let groups = text.lines().filter(|row| row.contains(r#""row":"group""#));
            groups.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(groups(&run), groups(&whole));
    }
}

/// Whoever writes our input dies without a word.
#[test]
fn killed_upstream() {
    let files = Files::new();
    for (file, tool, read) in [
        ("host", "ntp-join", "ntp-join - target > out"),
        ("joined", "ntp-stages", "ntp-stages"),
        ("lines", "ntp-stages", "ntp-stages"),
        ("rows", "ntp-fmt", "ntp-fmt"),
    ] {
        let script = format!(
            "size=$(stat -c %s {file}); bash -c \"head -c $((size / 2)) {file}; kill -9 \\$\\$\" 2>/dev/null | {read}"
        );
        told(
            shell(files.path(), &script),
            tool,
            "standard input: ",
            "cut off",
        );
    }
}

/// Whoever reads our output goes away: quiet, status 0.
#[test]
fn closed_pipes() {
    let files = Files::new();
    for script in [
        "ntp-join host target | head -c 10",
        "ntp-join --format ndjson host target | head -1",
        "ntp-stages joined | head -1",
        "ntp-stages --format csv joined | head -1",
        "ntp-fmt rows | head -1",
        "ntp-fmt --format csv rows | head -1",
        "ntp-fmt --format json rows | head -1",
        "ntp-fmt --format markdown rows | head -1",
        "ntp-fmt --help | head -1",
    ] {
        let run = shell(files.path(), script).expect(0);
        assert!(!run.stdout.is_empty(), "{script}");
        // A table has no rows for warnings: they may be said, and what was joined when the
        // pipe took it all. That nobody listens may not.
        assert!(!run.stderr.contains("pipe"), "{script}: {}", run.stderr);
        let may_speak = script.contains("--format csv joined") || script.starts_with("ntp-join");
        assert!(
            run.stderr.is_empty() || may_speak,
            "{script}: {}",
            run.stderr
        );
    }
    // It may say what cannot be recorded here, and that is its status, but not that nobody listens.
    let run = shell(files.path(), "ntp-probe -r host | head -c 1");
    assert!((0..=2).contains(&run.status), "{}", run.status);
    assert!(!run.stderr.contains("pipe"), "{}", run.stderr);
}

/// A full disk: one line that names the output, status 2.
#[test]
fn full_disks() {
    let files = Files::new();
    for (tool, script) in [
        ("ntp-join", "ntp-join host target"),
        ("ntp-join", "ntp-join --format ndjson host target"),
        ("ntp-stages", "ntp-stages joined"),
        ("ntp-stages", "ntp-stages --format csv joined"),
        ("ntp-fmt", "ntp-fmt rows"),
        ("ntp-fmt", "ntp-fmt --format csv rows"),
        ("ntp-fmt", "ntp-fmt --format json rows"),
        ("ntp-fmt", "ntp-fmt --format markdown rows"),
    ] {
        for (to, name) in [
            ("> /dev/full", "standard output"),
            ("-o /dev/full", "/dev/full"),
        ] {
            let run = shell(files.path(), &format!("{script} {to}")).expect(2);
            let last = run.stderr.lines().last().unwrap_or_default();
            assert_eq!(
                last,
                format!("{tool}: {name}: no space left on device"),
                "{script} {to}"
            );
            // Warnings that a table has no rows for come before.
            assert!(
                run.stderr.lines().count() == 1 || script.ends_with("csv joined"),
                "{}",
                run.stderr
            );
        }
    }
    for tool in [
        "ntp-probe",
        "ntp-capture",
        "ntp-join",
        "ntp-stages",
        "ntp-fmt",
    ] {
        let run = shell(files.path(), &format!("{tool} --help > /dev/full")).expect(2);
        assert_eq!(
            run.stderr,
            format!("{tool}: standard output: no space left on device\n")
        );
    }
    let run = shell(files.path(), "ntp-probe -r host > /dev/full").expect(2);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

/// What an input claims is not allocated, what it repeats is not kept.
#[test]
fn memory_is_bounded() {
    let files = Files::new();
    // A chunk of 4 GiB less a little, with a head that is right.
    let mut huge = Vec::from(*b"NTP\x1a\x02\x00\x01\x00\xf0\xff\xff\xff\0\0\0\0\0\0\0\0");
    huge.extend(crc32c(&huge).to_le_bytes());
    files.write("huge", &[&files.host[..], &huge, &files.host].concat());
    // 256 MiB of address space for input of 300 MB and claims of more.
    let limited = |script: &str| shell(files.path(), &format!("ulimit -v 262144; {script}"));
    let run = limited("ntp-stages huge");
    let run = told(
        run,
        "ntp-stages",
        "huge: byte ",
        "longer than any that is written: 24 bytes lost",
    );
    let twice = 2 * whole_records(&files.host, files.host.len());
    assert!(
        run.text().contains(&format!(r#""host":{twice},"#)),
        "{}",
        run.stderr
    );
    let endless = "{ cat lines; printf '{\"op\":\"'; head -c 300000000 /dev/zero | tr '\\0' a; echo; tail -1 lines; }";
    let run = limited(&format!("{endless} | ntp-stages"));
    told(
        run,
        "ntp-stages",
        "standard input: byte ",
        "longer than any that is written",
    );
    let run = limited(&format!("{endless} | gzip -1 | ntp-stages"));
    told(
        run,
        "ntp-stages",
        "standard input: byte ",
        "longer than any that is written",
    );
    let endless = "{ cat rows; head -c 300000000 /dev/zero | tr '\\0' a; }";
    let run = limited(&format!("{endless} | ntp-fmt"));
    told(
        run,
        "ntp-fmt",
        "standard input: line ",
        "longer than any row",
    );
    // No line at all: refused before it is read whole.
    for tool in ["ntp-stages", "ntp-join", "ntp-fmt"] {
        let run = limited(&format!("head -c 300000000 /dev/zero | {tool} -")).expect(2);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}
