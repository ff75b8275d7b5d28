//! What the tools must show on real kernels: NVMe/TCP recorded in guests under
//! emulation, joined and reported by the built binaries.
//!
//! Many scenarios share a boot. Figures are printed: run with `--nocapture`.

use ntp_lab::{BootOpts, Fio, Guest, with_tools};
use ntp_record::point::{host, target};
use ntp_record::{Flags, Role};
use ntp_tests::tools::{self, bin_dir, run, shell};
use ntp_tests::truth::{self, Recording};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

const KERNELS: [&str; 2] = ["6.1", "6.12"];
const NQN: &str = "nqn.2024-01.lab:drive";

/// One emulator at a time: two of them on two CPUs measure each other.
static EMULATOR: Mutex<()> = Mutex::new(());

/// A guest that serves a drive to itself, and its disk.
struct Machine {
    guest: Guest,
    disk: String,
    out: tempfile::TempDir,
}

fn boot(kernel: &str, out: &Path) -> BootOpts {
    let mut opts = with_tools(BootOpts::new(kernel), Some(bin_dir())).expect("tools");
    opts.out_dir = Some(out.to_owned());
    opts
}

/// Runs a script that must succeed.
#[track_caller]
fn sh(guest: &mut Guest, seconds: u64, script: &str) -> String {
    let output = guest
        .sh(script, Duration::from_secs(seconds))
        .expect("guest");
    assert_eq!(
        output.status, 0,
        "\n{script}\nstdout:\n{}\nstderr:\n{}",
        output.stdout, output.stderr
    );
    output.stdout
}

const EXPORT: &str = "d=$(null_blk lab 60000 1024) && nvmet_subsys nqn.2024-01.lab:drive $d";

impl Machine {
    fn new(kernel: &str) -> Self {
        let out = tempfile::tempdir().expect("folder");
        let mut guest = Guest::boot(&boot(kernel, out.path())).expect("boot");
        sh(
            &mut guest,
            60,
            &format!("{EXPORT} && nvmet_port 1 127.0.0.1 4420 {NQN}"),
        );
        let disk = format!("c=$(nvme_connect {NQN} 127.0.0.1 4420) && nvme_disk $c 1");
        let disk = sh(&mut guest, 60, &disk).trim().to_owned();
        Machine { guest, disk, out }
    }

    /// Records both sides while fio runs; gives the folder of the files.
    fn record(&mut self, name: &str, fio: &str, capture: &str) -> PathBuf {
        for side in ["target", "host"] {
            let start = format!("capture_start {side} -r {side} -t tcp -i 0 {capture}");
            sh(&mut self.guest, 120, &start);
        }
        let fio = format!("fio_run {} --time_based {fio}", self.disk);
        sh(&mut self.guest, 180, &fio);
        for side in ["host", "target"] {
            sh(&mut self.guest, 120, &format!("capture_stop {side}"));
        }
        let dir = self.out.path().join(name);
        std::fs::create_dir_all(&dir).expect("folder");
        self.guest.pull_all("/out", &dir).expect("files");
        dir
    }

    fn end(mut self) {
        sh(&mut self.guest, 60, &format!("nvme_disconnect {NQN}"));
        self.guest.poweroff().expect("no oops, no stall");
    }
}

/// Both recordings, with exact books: what was seen was recorded, what was
/// recorded is there.
fn recordings(dir: &Path) -> (Recording, Recording) {
    let read = |name, role| {
        let r = truth::recording(&dir.join(name), role).expect(name);
        let t = &r.totals;
        assert_eq!(t.written, r.records.len() as u64, "{name}");
        let lost: u64 = t.lost.values().sum();
        assert_eq!(t.sampled, t.written + lost + t.unfinished, "{name}: {t:?}");
        assert!(t.seen >= t.sampled, "{name}: {t:?}");
        let counted: u64 = t.groups.iter().map(|g| g.commands).sum();
        assert_eq!(counted, t.seen, "{name}: {t:?}");
        r
    };
    (
        read("host.ntp", Role::Host),
        read("target.ntp", Role::Target),
    )
}

/// Joins, and checks what must hold for every joined command on one clock.
#[track_caller]
fn check(what: &str, dir: &Path, commands: u64) -> Recording {
    let (h, t) = recordings(dir);
    shell(dir, "ntp-join -o joined.ntp host.ntp target.ntp").expect(0);
    let (pairs, totals) = truth::joined(&dir.join("joined.ntp")).expect("joined");
    let bad = truth::out_of_order(&pairs);
    // ntp-join leaves out what contradicts the clock: on one clock that must be nothing,
    // or commands out of order would only be missing.
    for left in [&totals.host_left, &totals.target_left] {
        assert_eq!(left["contradicts_clock"], 0, "{what}: {left:?}");
        assert_eq!(left["ambiguous"], 0, "{what}: {left:?}");
    }
    let wrong = truth::wrong_pairs(&pairs);
    // A command that began and ended while both sides recorded has a partner.
    let from = h.start_ns.max(t.start_ns);
    let to = h.totals.end_ns.min(t.totals.end_ns);
    let inside = h.records.iter().filter(|r| {
        let begin = r.time(host::DRIVER_START);
        begin >= Some(from) && r.time(host::BLOCK_DONE).is_some_and(|end| end <= to)
    });
    let inside = inside.count();
    println!(
        "{what}: {} host, {} target, {} joined of {inside} inside both, {} out of order, {wrong} wrong pairs",
        h.records.len(),
        t.records.len(),
        pairs.len(),
        bad.len()
    );
    assert!(
        h.records.len() as u64 >= commands,
        "{what}: {} records",
        h.records.len()
    );
    assert_eq!(bad, [], "{what}");
    assert_eq!(wrong, 0, "{what}");
    assert!(pairs.len() as f64 >= 0.999 * inside as f64, "{what}");
    for point in [
        host::SEND_BEGIN,
        host::RESP_ARRIVED,
        host::RESP_READ,
        host::COMPLETED,
    ] {
        let share = truth::share(&h.records, point);
        assert!(share > 0.99, "{what}: host {} in {share}", point.name);
    }
    for point in [
        target::ARRIVED,
        target::EXECUTE,
        target::DRIVE_ISSUE,
        target::SEND_BEGIN,
    ] {
        let share = truth::share(&t.records, point);
        assert!(share > 0.99, "{what}: target {} in {share}", point.name);
    }
    sums(what, dir, pairs.len());
    h
}

/// Components sum to the end-to-end time to the nanosecond, by the tools' own
/// check of every command and by the exact totals of the rows.
fn sums(what: &str, dir: &Path, pairs: usize) {
    let rows = shell(dir, "ntp-stages joined.ntp").expect(0).text();
    let rows: Vec<serde_json::Value> = rows
        .lines()
        .map(|l| serde_json::from_str(l).expect("row"))
        .collect();
    let of = |kind: &str| {
        rows.iter()
            .filter(move |r| r["row"] == kind)
            .collect::<Vec<_>>()
    };
    let totals = of("totals")[0];
    assert_eq!(totals["sum_mismatches"], 0, "{what}: {totals}");
    assert_eq!(totals["out_of_order"], 0, "{what}: {totals}");
    assert_eq!(totals["in_order"], pairs, "{what}: {totals}");
    for group in of("group") {
        let n = group["latency"]["n"].as_f64().expect("n");
        let whole = group["latency"]["mean_ns"].as_f64().expect("mean") * n;
        let parts: f64 = of("component")
            .iter()
            .filter(|c| c["group"] == group["group"] && c["kind"] == "sum")
            .map(|c| c["n"].as_f64().expect("n") * c["mean_ns"].as_f64().expect("mean"))
            .sum();
        assert!((whole - parts).abs() < 1.0, "{what}: {whole} {parts}");
    }
    println!(
        "{what}: sums exact for {pairs} commands, wire negative in {}",
        totals["wire_negative"]
    );
}

/// fio starts its clock before the block layer sees the command and stops it
/// after; its completion latency starts when the submitting call has returned.
/// At a depth above 1 fio also counts the time until it looks for a completion,
/// here the time it takes to submit the others: its completion latency is then
/// no lower bound.
fn within_fio(what: &str, dir: &Path, h: &Recording, alone: bool) {
    let fio = Fio::read(&dir.join("fio.json")).expect("fio");
    let mean = truth::mean_us(&h.records, host::BLOCK_START, host::BLOCK_DONE).expect("mean");
    println!(
        "{what}: fio clat {:.1} us <= ntp {mean:.1} us <= fio lat {:.1} us; {} I/Os of fio, {} seen",
        fio.clat_us, fio.lat_us, fio.ios, h.totals.seen
    );
    assert!(h.totals.seen >= fio.ios, "{what}");
    assert!(!alone || fio.clat_us <= mean * 1.02, "{what}");
    assert!(mean <= fio.lat_us * 1.02, "{what}");
}

fn one_machine(kernel: &str) {
    let _one = EMULATOR.lock();
    let mut m = Machine::new(kernel);
    for depth in [1, 32] {
        let what = format!("{kernel}, 4 KiB reads, depth {depth}");
        let fio = format!("--rw=randread --bs=4k --iodepth={depth} --runtime=4");
        let dir = m.record(&format!("read{depth}"), &fio, "-s 1");
        let h = check(&what, &dir, 500);
        within_fio(&what, &dir, &h, depth == 1);
    }
    batches(kernel, &mut m);
    probed(kernel, &mut m);
    sampled(kernel, &mut m);
    encodings(kernel, &mut m);
    interrupted(kernel, &mut m);
    m.end();
}

/// Submitted eight at a time, each command begins when its own bio comes, not
/// when the first one's did.
fn batches(kernel: &str, m: &mut Machine) {
    let what = format!("{kernel}, 4 KiB reads, eight at a time");
    let fio = "--rw=randread --bs=4k --iodepth=8 --iodepth_batch=8 --iodepth_batch_complete_min=8 --runtime=3";
    let dir = m.record("batches", fio, "-s 1");
    let h = check(&what, &dir, 200);
    within_fio(&what, &dir, &h, false);
    let mut starts: Vec<_> = h
        .records
        .iter()
        .filter_map(|r| r.time(host::BLOCK_START))
        .collect();
    let n = starts.len();
    starts.sort_unstable();
    starts.dedup();
    println!("{what}: {} starts of {n} commands", starts.len());
    assert_eq!(starts.len(), n, "{what}: commands share a start");
    assert_eq!(h.totals.misses["start_of_request"], 0, "{what}");
}

/// Every program loads in the first way tried, and no point is missing.
fn probed(kernel: &str, m: &mut Machine) {
    for side in ["host", "target"] {
        let said = sh(&mut m.guest, 120, &format!("ntp-probe -r {side} -t tcp"));
        println!(
            "{kernel}, ntp-probe -r {side}: {}",
            said.lines().last().unwrap_or_default()
        );
        assert!(said.ends_with("load: ok\n"), "{said}");
        assert!(said.contains("the report will have every point"), "{said}");
        assert!(!said.contains("note:"), "{said}");
    }
}

/// Both sides choose the same commands, and about one in N.
fn sampled(kernel: &str, m: &mut Machine) {
    let what = format!("{kernel}, one command in 8");
    let dir = m.record(
        "sampled",
        "--rw=randread --bs=4k --iodepth=8 --runtime=4",
        "-s 8",
    );
    let h = check(&what, &dir, 50);
    let share = h.totals.sampled as f64 / h.totals.seen as f64;
    println!(
        "{what}: {} of {} ({share:.4})",
        h.totals.sampled, h.totals.seen
    );
    // Four standard deviations of a fair choice.
    let p: f64 = 1.0 / 8.0;
    let deviation = (p * (1.0 - p) / h.totals.seen as f64).sqrt();
    assert!((share - p).abs() < 4.0 * deviation, "{what}: {share}");
}

/// The same commands through every encoding of ntp-capture.
fn encodings(kernel: &str, m: &mut Machine) {
    let script = format!(
        "mkfifo /tmp/fifo && gzip < /tmp/fifo > /out/pipe.ntp & g=$!
        capture_start plain -t tcp -s 1 -i 0
        capture_start zstd -t tcp -s 1 -i 0 -z
        capture_start lines -t tcp -s 1 -i 0 --format ndjson
        capture_start fifo -t tcp -s 1 -i 0 -o /tmp/fifo
        fio_run {} --rw=randrw --bs=4k --iodepth=4 --number_ios=400 --norandommap > /dev/null
        for c in plain zstd lines fifo; do capture_stop $c || exit 1; done
        wait $g",
        m.disk
    );
    sh(&mut m.guest, 180, &script);
    let dir = m.out.path().join("encodings");
    std::fs::create_dir_all(&dir).expect("folder");
    m.guest.pull_all("/out", &dir).expect("files");
    let keys = |name: &str| {
        let r = truth::recording(&dir.join(name), Role::Host).expect(name);
        let keys: HashSet<_> = r
            .records
            .iter()
            .map(|r| (r.cid, r.opcode, r.nsid, r.slba, r.length, r.bytes))
            .collect();
        println!("{kernel}, {name}: {} records", r.records.len());
        keys
    };
    let plain = keys("plain.ntp");
    assert!(plain.len() >= 390, "{}", plain.len());
    for other in ["zstd.ntp", "lines.ntp", "pipe.ntp"] {
        assert_eq!(plain, keys(other), "{other}");
    }
    same_rows(&dir);
}

/// One recording, in every encoding a shell can make of it, gives the same rows.
fn same_rows(dir: &Path) {
    let rows = |script: &str| shell(dir, script).expect(0).stdout;
    let plain = rows("ntp-stages plain.ntp");
    assert!(plain.len() > 1000);
    for script in [
        "cat plain.ntp | ntp-stages",
        "cat plain.ntp | ntp-stages -",
        "gzip -c plain.ntp | ntp-stages",
        "gzip -c plain.ntp > plain.gz && ntp-stages plain.gz",
        "zstd -q -c plain.ntp | ntp-stages",
    ] {
        assert!(plain == rows(script), "{script}");
    }
    // The lines of ntp-capture itself, as they are and through jq.
    let lines = rows("ntp-stages lines.ntp");
    assert!(lines == rows("jq -c . lines.ntp | ntp-stages"), "jq");
    assert!(
        lines == rows("jq -c . lines.ntp | gzip | ntp-stages"),
        "jq, gzip"
    );
}

/// Ctrl-C on `ntp-capture | gzip > f` reaches both; the file reads to its last second.
fn interrupted(kernel: &str, m: &mut Machine) {
    let script = format!(
        "cd /out
        cat > /tmp/pipeline <<'END'
trap : INT
ntp-capture -t tcp -s 1 -i 0 2> ctrlc.err | gzip > ctrlc.ntp
END
        # The shell ignores SIGINT for what it puts in the background.
        /usr/bin/genv --default-signal=INT setsid sh /tmp/pipeline & p=$!
        wait_for 60 grep -q recording ctrlc.err
        fio_run {} --rw=randread --bs=4k --iodepth=4 --time_based --runtime=5 > /dev/null & f=$!
        sleep 4
        cut -d' ' -f1 /proc/uptime > ctrlc.at
        kill -INT -$p
        wait $p
        wait $f",
        m.disk
    );
    sh(&mut m.guest, 180, &script);
    let dir = m.out.path().join("interrupted");
    std::fs::create_dir_all(&dir).expect("folder");
    m.guest.pull_all("/out", &dir).expect("files");
    let at = std::fs::read_to_string(dir.join("ctrlc.at")).expect("time");
    let at: f64 = at.trim().parse().expect("seconds");
    let mut reader = ntp_record::Reader::open(&dir.join("ctrlc.ntp").display().to_string())
        .expect("what gzip wrote until it was interrupted");
    let (mut last, mut n) = (0, 0);
    while let Some(item) = reader.next().expect("readable") {
        if let ntp_record::Item::Records(records) = item {
            n += records.len();
            last = records
                .iter()
                .filter_map(|r| r.time(host::BLOCK_DONE))
                .fold(last, u64::max);
        }
    }
    let missing = at - last as f64 / 1e9;
    println!("{kernel}, Ctrl-C on the pipeline: {n} records, the last {missing:.2} s before it");
    // gzip may keep what came after the last flush, one second at most, and a
    // block of its own.
    assert!(n > 100 && missing < 2.5, "{n} records, {missing} s");
    let said = std::fs::read_to_string(dir.join("ctrlc.err")).expect("messages");
    assert!(!said.contains("panic"), "{said}");
}

#[test]
fn one_machine_6_1() {
    one_machine(KERNELS[0]);
}

#[test]
fn one_machine_6_12() {
    one_machine(KERNELS[1]);
}

/// Two machines: clocks apart by the difference of their boots, nothing known
/// of them but what the commands tell.
fn two_machines(kernel: &str) {
    let _one = EMULATOR.lock();
    let out = tempfile::tempdir().expect("folder");
    let (mut t, mut h) = Guest::pair(&boot(kernel, out.path())).expect("boot");
    sh(
        &mut t,
        60,
        &format!("{EXPORT} && nvmet_port 1 10.9.0.2 4420 {NQN}"),
    );
    let disk = format!("c=$(nvme_connect {NQN} 10.9.0.2 4420) && nvme_disk $c 1");
    let disk = sh(&mut h, 60, &disk).trim().to_owned();
    let dir = out.path();
    for depth in [1, 32] {
        let what = format!("{kernel}, two machines, depth {depth}");
        sh(
            &mut t,
            120,
            "capture_start target -r target -t tcp -i 0 -s 1",
        );
        sh(&mut h, 120, "capture_start host -r host -t tcp -i 0 -s 1");
        let load = format!("--rw=randread --bs=4k --iodepth={depth} --time_based --runtime=4");
        sh(&mut h, 180, &format!("fio_run {disk} {load}"));
        sh(&mut h, 120, "capture_stop host");
        sh(&mut t, 120, "capture_stop target");
        h.pull_all("/out", dir).expect("files");
        t.pull("/out/target.ntp", &dir.join("target.ntp"))
            .expect("target.ntp");
        let (host_side, target_side) = recordings(dir);
        let joined = shell(dir, "ntp-join -o joined.ntp host.ntp target.ntp").expect(0);
        let (pairs, _) = truth::joined(&dir.join("joined.ntp")).expect("joined");
        println!(
            "{what}: {} host, {} target, {} joined\n{}",
            host_side.records.len(),
            target_side.records.len(),
            pairs.len(),
            joined.stderr
        );
        // The target recorded before the host began and after it ended.
        assert!(
            pairs.len() as f64 >= 0.999 * host_side.records.len() as f64,
            "{what}"
        );
        assert!(host_side.records.len() > 300, "{what}");
        // Whatever the offset is, the target held the command for less than the host waited.
        for pair in &pairs {
            let time = |r: &ntp_record::Record, p| r.time(p).expect("point");
            let waited = time(&pair.host, host::COMPLETED) - time(&pair.host, host::SEND_BEGIN);
            let held =
                time(&pair.target, target::SEND_BEGIN) - time(&pair.target, target::RECEIVED);
            assert!(held <= waited, "{what}: held {held}, waited {waited}");
            assert_ne!(pair.offset_bound_ns, u64::MAX, "{what}: no bound");
            assert!(!pair.host.has(Flags::R2t));
        }
        sums(&what, dir, pairs.len());
    }
    sh(&mut h, 60, &format!("nvme_disconnect {NQN}"));
    h.poweroff().expect("host: no oops, no stall");
    t.poweroff().expect("target: no oops, no stall");
}

#[test]
fn two_machines_6_1() {
    two_machines(KERNELS[0]);
}

#[test]
fn two_machines_6_12() {
    two_machines(KERNELS[1]);
}

/// The report a person sees, from the files of a real run.
#[test]
fn the_report_names_every_stage() {
    let _one = EMULATOR.lock();
    let dir = tempfile::tempdir().expect("folder");
    let mut opts = ntp_lab::RunOpts::new(dir.path()).expect("options");
    opts.bin = Some(tools::bin_dir().to_owned());
    opts.kernel = KERNELS[1].into();
    opts.seconds = 3;
    let facts = ntp_lab::run(&opts).expect("run");
    assert_eq!(facts.problems(), Vec::<String>::new());
    let text = shell(
        dir.path(),
        "ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt",
    )
    .expect(0);
    let text = text.text();
    println!("{text}");
    for stage in [
        "host block layer",
        "host driver",
        "network",
        "target driver",
        "storage",
        "largest:",
        "matched",
    ] {
        assert!(text.contains(stage), "{stage}:\n{text}");
    }
    for side in ["host", "target"] {
        let alone = shell(dir.path(), &format!("ntp-stages {side}.ntp | ntp-fmt"))
            .expect(0)
            .text();
        assert!(
            alone.contains("not recorded") || side == "target",
            "{alone}"
        );
    }
    run(
        "ntp-fmt",
        &[dir.path().join("host.ntp").display().to_string()],
    )
    .expect(2);
}
