//! What happens to recordings when things go wrong: connections, drives and
//! recorders that come, go and die. Nothing hangs, nothing stays attached, no
//! command is joined across a reconnect, and the books stay exact.

use crate::{KERNELS, OTHERS};
use ntp_lab::Fio;
use ntp_record::{Flags, Item, Reader, Record, Role};
use ntp_tests::check::{self, Sides};
use ntp_tests::machine::{Machine, NQN, alone};
use ntp_tests::results;
use std::path::Path;

/// A file-backed drive (1) and a plain one (2), served on two ports.
const SERVED: &str = "
under=$(null_blk under 60000 96 1) && file=$(file_drive $under 32) && d=$(null_blk lab 60000 1024) &&
nvmet_subsys nqn.2024-01.lab:drive $file $d && nvmet_port 1 127.0.0.1 4420 nqn.2024-01.lab:drive && modprobe nvme-tcp
echo 4 > /sys/module/nvme_core/parameters/io_timeout";

fn connect(options: &str) -> String {
    format!(
        "nvme_disconnect {NQN}
        c=$(nvme_connect {NQN} 127.0.0.1 4420 '{options}') || exit
        file=$(nvme_disk $c 1) && D=$(nvme_disk $c 2) || exit\n"
    )
}

fn fio(seconds: u32, more: &str) -> String {
    format!("fio_run $D --rw=randrw --bs=4k --iodepth=8 --time_based --runtime={seconds} {more}")
}

fn with(records: &[Record], flag: Flags) -> usize {
    records.iter().filter(|r| r.has(flag)).count()
}

/// Records a script, and checks what always holds.
#[track_caller]
fn ran(kernel: &str, m: &mut Machine, name: &str, script: &str) -> Sides {
    let what = format!("{kernel}, {name}");
    let dir = m.record("life", "-s 1", script);
    let sides = check::pairs(&what, &dir);
    let h = &sides.host;
    let n = sides.joined.pairs.len();
    let connections =
        |r: &ntp_tests::truth::Recording| r.connections.values().filter(|c| c.qid > 0).count();
    results::note(
        &what,
        &format!(
            "{} commands, {n} matched of {}, {} I/O connections on the host, {} on the target; {} retried, {} timed out, {} cancelled; lost {:?}; unfinished {}",
            h.records.len(),
            sides.inside,
            connections(h),
            connections(&sides.target),
            with(&h.records, Flags::Retried),
            with(&h.records, Flags::TimedOut),
            with(&h.records, Flags::Cancelled),
            h.totals
                .lost
                .iter()
                .filter(|(_, n)| **n > 0)
                .collect::<Vec<_>>(),
            h.totals.unfinished
        ),
    );
    // Every command that was answered while both recorded has its partner.
    assert!(
        n as f64 >= 0.999 * sides.inside as f64,
        "{what}: {:?}",
        sides.joined.totals
    );
    assert_eq!(
        h.totals.lost["ring_full"] + h.totals.lost["inflight_full"],
        0,
        "{what}"
    );
    // What was cancelled is marked, and never joined.
    assert!(
        sides
            .joined
            .pairs
            .iter()
            .all(|p| !p.host.has(Flags::Cancelled)),
        "{what}"
    );
    // A report can be made of it.
    check::rows(&what, &dir, n);
    sides
}

fn connections(kernel: &str) {
    let _one = alone();
    let mut m = Machine::boot(kernel);
    m.sh(120, SERVED);

    let script = format!(
        "{}{}; nvme_disconnect {NQN}; usleep 300000\n{}{}",
        connect("nr_io_queues=1"),
        fio(2, ""),
        connect("nr_io_queues=1"),
        fio(2, "")
    );
    let sides = ran(kernel, &mut m, "disconnected and connected again", &script);
    let mut conns: Vec<u32> = sides.joined.pairs.iter().map(|p| p.host.conn).collect();
    conns.sort_unstable();
    conns.dedup();
    assert_eq!(conns.len(), 2, "{kernel}: one connection before, one after");

    // A disk that goes while it is read: fio fails, the recording does not.
    let script = format!(
        "{}({}) & f=$!; sleep 2; nvme_disconnect {NQN}; wait $f; true",
        connect(""),
        fio(5, "")
    );
    ran(kernel, &mut m, "disconnected under load", &script);

    let script = format!(
        "{}({}) & f=$!; sleep 2; echo 1 > /sys/class/nvme/$c/reset_controller; wait $f",
        connect(""),
        fio(6, "")
    );
    let sides = ran(kernel, &mut m, "controller reset under load", &script);
    let qids = sides
        .host
        .connections
        .values()
        .filter(|c| c.qid == 1)
        .count();
    assert_eq!(qids, 2, "{kernel}: queue 1 before and after the reset");

    // The target goes and comes back; the host tries again each second.
    let unlink = format!("rm $CONFIG/nvmet/ports/1/subsystems/{NQN}");
    let link = format!("ln -s $CONFIG/nvmet/subsystems/{NQN} $CONFIG/nvmet/ports/1/subsystems/");
    let script = format!(
        "{}({}) & f=$!; sleep 2; {unlink}; sleep 2; {link}; wait $f",
        connect("reconnect_delay=1,ctrl_loss_tmo=60"),
        fio(8, "")
    );
    let sides = ran(kernel, &mut m, "target gone and back under load", &script);
    assert!(
        sides
            .host
            .connections
            .values()
            .filter(|c| c.qid == 1)
            .count()
            >= 2,
        "{kernel}"
    );

    // The target goes for good, and the host gives up after 3 s. 5.10 does not survive that, recorded
    // or not: nvme_requeue_work() sends over a socket that was released (kernel_sendpage).
    if kernel != "5.10" {
        let script = format!(
            "{}({}) & f=$!; sleep 2; {unlink}; wait $f; wait_for 20 test ! -e /sys/class/nvme/$c; {link}",
            connect("reconnect_delay=1,ctrl_loss_tmo=3"),
            fio(20, "")
        );
        ran(kernel, &mut m, "controller lost", &script);
    }

    // What was recorded while connecting is what a kernel reads to find partitions.
    let script = format!("{}true", connect(""));
    let sides = ran(kernel, &mut m, "connected while recording", &script);
    let scans = sides
        .host
        .records
        .iter()
        .map(|r| (r.op(), r.bytes))
        .fold(String::new(), |s, r| s + &format!("{r:?} "));
    println!("{kernel}: reads of the kernel's own: {scans}");
    assert!(sides.host.totals.seen > 0, "{kernel}");

    // No program is left: the drivers can go, and come back.
    m.sh(60, &format!("nvme_disconnect {NQN}; nvmet_clear; rmmod nvme_tcp && rmmod nvmet_tcp && modprobe nvme_tcp && modprobe nvmet_tcp"));
    m.end();
}

fn drives(kernel: &str) {
    let _one = alone();
    let mut m = Machine::boot(kernel);
    m.sh(120, SERVED);

    // A namespace grows, and is read where it was not before.
    let script = format!(
        "{}before=$(cat /sys/block/${{file#/dev/}}/size)
        truncate -s 50331648 /mnt/drive/image
        echo 1 > $CONFIG/nvmet/subsystems/{NQN}/namespaces/1/revalidate_size
        wait_for 10 grown || die 'not grown'
        FIO_OUT=/out/grown.json fio_run $file --rw=randread --bs=4k --iodepth=4 --offset=40m --size=4m --number_ios=100
        {}",
        connect(""), fio(2, "")
    );
    let script =
        format!("grown() {{ [ $(cat /sys/block/${{file#/dev/}}/size) -gt $before ]; }}\n{script}");
    let sides = ran(kernel, &mut m, "namespace resized", &script);
    let beyond = sides
        .joined
        .pairs
        .iter()
        .filter(|p| {
            // A file's blocks are those of its file system.
            let block = u64::from(p.host.bytes) / (u64::from(p.host.length) + 1);
            p.host.nsid == 1 && p.host.slba * block >= 40 << 20
        })
        .count();
    assert!(beyond >= 100, "{kernel}: {beyond} reads of what was added");

    let enable = |on| format!("echo {on} > $CONFIG/nvmet/subsystems/{NQN}/namespaces/2/enable");
    let script = format!(
        "{}({}) & f=$!; sleep 2; {}; wait $f; {}",
        connect(""),
        fio(6, ""),
        enable(0),
        enable(1)
    );
    ran(kernel, &mut m, "namespace removed under load", &script);

    // The drive answers nothing for 7 s; commands time out after 4.
    m.sh(60, &format!("nvme_disconnect {NQN}; nvmet_clear; d=$(dm_delay slow /dev/lab 0 0 || dm_delay slow /dev/nullb1 0 0) && nvmet_subsys {NQN} /mnt/drive/image $d && nvmet_port 1 127.0.0.1 4420 {NQN}"));
    let script = format!(
        "{}({}) & f=$!; sleep 2; dmsetup suspend --noflush slow; sleep 7; dmsetup resume slow; wait $f",
        connect("reconnect_delay=1"),
        fio(14, "--iodepth=4")
    );
    let sides = ran(kernel, &mut m, "commands that time out", &script);
    let timed_out = with(&sides.host.records, Flags::TimedOut);
    assert!(timed_out > 0, "{kernel}: {timed_out} timed out");
    m.end();
}

/// A recorder that is killed, stopped, started twice, or has no driver to record.
fn recorders(kernel: &str) {
    let _one = alone();
    let mut m = Machine::boot(kernel);

    // Before the driver is there: refused in one line that says what to do.
    let said = m.sh(60, "for r in host target; do ntp-capture -r $r -t tcp > /dev/null 2> /tmp/said; echo $? $(wc -l < /tmp/said) $(cat /tmp/said); done");
    println!("{kernel}: {said}");
    for (line, module) in said.lines().zip(["nvme-tcp", "nvmet-tcp"]) {
        assert!(line.starts_with("2 1 ntp-capture: "), "{line}");
        assert!(line.contains(&format!("modprobe {module}")), "{line}");
    }

    m.sh(120, SERVED);
    m.sh(60, &format!("{}echo $D > /run/D", connect("")));
    let load =
        |more: &str| format!("fio_run $(cat /run/D) --rw=randread --bs=4k --iodepth=8 {more}");

    // kill -9: what was written until a second before is there, and nothing stays attached.
    let script = format!(
        "rm -f /out/*; capture_start target -r target -t tcp -s 1 -i 0; capture_start host -t tcp -s 1 -i 0
        ({}) & f=$!; sleep 4; cut -d' ' -f1 /proc/uptime > /out/killed.at
        kill -KILL $(cat /run/lab/host.pid); kill -KILL $(cat /run/lab/target.pid); wait $f
        # The kernel detaches what a dead process had attached; in a guest it takes its time.
        wait_for 60 test -f /run/lab/host.rc; wait_for 60 test -f /run/lab/target.rc
        nvme_disconnect {NQN}; nvmet_clear; rmmod nvme_tcp && rmmod nvmet_tcp",
        load("--time_based --runtime=5")
    );
    m.sh(120, &script);
    killed(kernel, &m.files("killed"));

    // Started twice at once, each to its end.
    m.sh(120, &format!("nvmet_subsys {NQN} /mnt/drive/image $(cat /run/plain 2> /dev/null || ls /dev/lab /dev/nullb1 2> /dev/null | head -n 1) && nvmet_port 1 127.0.0.1 4420 {NQN}"));
    m.sh(60, &format!("{}echo $D > /run/D", connect("")));
    let script = format!(
        "rm -f /out/*; for n in a b; do capture_start $n -t tcp -s 1 -i 0; done; {}
        capture_stop a; {}; capture_stop b",
        load("--number_ios=300"),
        load("--number_ios=200")
    );
    m.sh(120, &script);
    let dir = m.files("twice");
    for (name, ios) in [("a.ntp", 300), ("b.ntp", 500)] {
        let r = check::recording(&dir, name, Role::Host);
        assert_eq!(
            (r.totals.seen, r.records.len()),
            (ios, ios as usize),
            "{kernel}: {name}"
        );
    }

    // A stopped reader of a small buffer: what is lost is counted to the command.
    let script = format!(
        "rm -f /out/*; capture_start target -r target -t tcp -s 1 -i 0; capture_start host -t tcp -s 1 -i 0 --buffer 64KiB
        {0}; kill -STOP $(cat /run/lab/host.pid); FIO_OUT=/out/fio2.json {1}; kill -CONT $(cat /run/lab/host.pid)
        capture_stop host; s=$?; capture_stop target; [ $s = 1 ]",
        load("--number_ios=200"), load("--number_ios=2000")
    );
    m.sh(120, &script);
    lost(kernel, &m.files("lost"));
    m.end();
}

/// Everything that was whole a second before the kill, and a word about the end.
fn killed(kernel: &str, dir: &Path) {
    let at = std::fs::read_to_string(dir.join("killed.at")).expect("time");
    let at: f64 = at.trim().parse().expect("seconds");
    for side in ["host", "target"] {
        let mut reader =
            Reader::open(&dir.join(format!("{side}.ntp")).display().to_string()).expect("file");
        let (mut n, mut last) = (0, 0);
        while let Some(item) = reader.next().expect("readable") {
            if let Item::Records(records) = item {
                n += records.len();
                last = records.iter().flat_map(|r| r.at).fold(last, u64::max);
            }
        }
        let missing = at - last as f64 / 1e9;
        results::note(
            &format!("{kernel}, kill -9, {side}"),
            &format!("{n} records, the last {missing:.2} s before"),
        );
        assert!(
            n > 100 && missing < 2.0,
            "{kernel}: {n} records, {missing} s"
        );
    }
    let joined =
        ntp_tests::tools::shell(dir, "ntp-join -o joined.ntp host.ntp target.ntp").expect(1);
    assert!(
        joined.stderr.contains("cut off") || joined.stderr.contains("no totals"),
        "{}",
        joined.stderr
    );
}

/// The books of a recording that lost commands.
fn lost(kernel: &str, dir: &Path) {
    let h = check::recording(dir, "host.ntp", Role::Host);
    let t = check::recording(dir, "target.ntp", Role::Target);
    let ios: u64 = ["fio.json", "fio2.json"]
        .iter()
        .map(|f| Fio::read(&dir.join(f)).expect("fio").ios)
        .sum();
    let full = h.totals.lost["ring_full"];
    results::note(
        &format!("{kernel}, small buffer, reader stopped"),
        &format!(
            "{ios} I/Os of fio, {} seen, {} sampled, {} written, {full} lost",
            h.totals.seen, h.totals.sampled, h.totals.written
        ),
    );
    assert_eq!(h.totals.seen, ios);
    assert_eq!(h.totals.sampled, ios);
    assert!(full > 1000, "{:?}", h.totals);
    assert_eq!(h.totals.written + full, ios, "{:?}", h.totals);
    // The other side lost nothing, or what skipped programs of a preemptible kernel cost.
    let gone = ios - t.totals.written;
    assert!(gone <= check::skipped(&t), "{:?}", t.totals);
    let said = std::fs::read_to_string(dir.join("host.err")).expect("messages");
    assert!(said.contains(&full.to_string()), "{said}");
    let sides = check::pairs(&format!("{kernel}, with losses"), dir);
    let (written, pairs) = (h.totals.written, sides.joined.pairs.len() as u64);
    assert!((written - gone..=written).contains(&pairs), "{pairs}");
    let left = sides.joined.totals.target_left["not_in_host"];
    assert_eq!(left, t.totals.written - pairs, "{:?}", sides.joined.totals);
}

#[test]
fn connections_6_12() {
    connections(KERNELS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn connections_6_1() {
    connections(KERNELS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn drives_6_12() {
    drives(KERNELS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn drives_6_1() {
    drives(KERNELS[0]);
}

#[test]
fn recorders_6_1() {
    recorders(KERNELS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn recorders_6_12() {
    recorders(KERNELS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn connections_5_10() {
    connections(OTHERS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn recorders_5_10() {
    recorders(OTHERS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn recorders_6_1_rt() {
    recorders(OTHERS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn connections_7_3() {
    connections(OTHERS[2]);
}

#[test]
#[ignore = "make lab-all"]
fn recorders_7_3() {
    recorders(OTHERS[2]);
}
