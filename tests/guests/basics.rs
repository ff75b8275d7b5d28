//! The main job: reads of 4 KiB on one machine and on two, every encoding, and
//! the report a person sees.

use crate::KERNELS;
use ntp_lab::Guest;
use ntp_record::point::{host, target};
use ntp_record::{Flags, Role};
use ntp_tests::check::{self, USUAL, within_fio};
use ntp_tests::machine::{EXPORT, Machine, NQN, alone, boot, sh};
use ntp_tests::tools::{self, run, shell};
use ntp_tests::truth;
use std::collections::HashSet;
use std::path::Path;

/// A guest that serves a disk to itself.
struct Serving {
    machine: Machine,
    disk: String,
}

impl Serving {
    /// Records both sides while fio runs.
    fn record(&mut self, name: &str, fio: &str, capture: &str) -> std::path::PathBuf {
        let load = format!("fio_run {} --time_based {fio}", self.disk);
        self.machine.record(name, capture, &load)
    }
}

fn one_machine(kernel: &str) {
    let _one = alone();
    let (machine, disk) = Machine::serving(kernel);
    let mut m = Serving { machine, disk };
    for depth in [1, 32] {
        let what = format!("{kernel}, 4 KiB reads, depth {depth}");
        let fio = format!("--rw=randread --bs=4k --iodepth={depth} --runtime=4");
        let dir = m.record(&format!("read{depth}"), &fio, "-s 1");
        let h = check::one_clock(&what, &dir, 500, USUAL).host;
        within_fio(&what, &dir, &h, depth == 1);
    }
    batches(kernel, &mut m);
    probed(kernel, &mut m);
    sampled(kernel, &mut m);
    encodings(kernel, &mut m);
    interrupted(kernel, &mut m);
    m.machine.end();
}

/// Submitted eight at a time, each command begins when its own bio comes, not
/// when the first one's did.
fn batches(kernel: &str, m: &mut Serving) {
    let what = format!("{kernel}, 4 KiB reads, eight at a time");
    let fio = "--rw=randread --bs=4k --iodepth=8 --iodepth_batch=8 --iodepth_batch_complete_min=8 --runtime=3";
    let dir = m.record("batches", fio, "-s 1");
    let h = check::one_clock(&what, &dir, 200, USUAL).host;
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
fn probed(kernel: &str, m: &mut Serving) {
    for side in ["host", "target"] {
        let said = m.machine.sh(120, &format!("ntp-probe -r {side} -t tcp"));
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
fn sampled(kernel: &str, m: &mut Serving) {
    let what = format!("{kernel}, one command in 8");
    let dir = m.record(
        "sampled",
        "--rw=randread --bs=4k --iodepth=8 --runtime=4",
        "-s 8",
    );
    let h = check::one_clock(&what, &dir, 50, USUAL).host;
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
fn encodings(kernel: &str, m: &mut Serving) {
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
    m.machine.sh(180, &script);
    let dir = m.machine.files("encodings");
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
fn interrupted(kernel: &str, m: &mut Serving) {
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
    m.machine.sh(180, &script);
    let dir = m.machine.files("interrupted");
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
    let _one = alone();
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
        let (host_side, target_side) = check::recordings(dir);
        let joined = shell(dir, "ntp-join -o joined.ntp host.ntp target.ntp").expect(0);
        let pairs = truth::joined(&dir.join("joined.ntp"))
            .expect("joined")
            .pairs;
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
        check::rows(&what, dir, pairs.len());
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
    let _one = alone();
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
