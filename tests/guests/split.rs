//! Answers in shapes the Linux target never gives: data in many PDUs, of several
//! commands in turn, several R2Ts a write, PDUs cut by TCP. The target's own log
//! says what it did, to the PDU.

use crate::KERNELS;
use ntp_record::Role;
use ntp_tests::machine::{Machine, alone};
use ntp_tests::{check, played, results};

/// Name, options of the connection, options of the target, sizes of writes.
const SHAPES: &[(&str, &str, &str, &str)] = &[
    (
        "many PDUs in turn, SUCCESS flag, several R2Ts",
        "disable_sqflow",
        "--c2h-bytes 8192 --r2t-bytes 65536 --maxh2c 16384 --interleave --success --delay-us 300",
        "4k 64k 1M",
    ),
    (
        "many PDUs, several R2Ts",
        "",
        "--c2h-bytes 8192 --r2t-bytes 65536 --maxh2c 16384",
        "4k 64k 1M",
    ),
    (
        "digests, PDUs cut by TCP",
        "hdr_digest,data_digest",
        "--c2h-bytes 32768 --r2t-bytes 32768 --interleave --write-bytes 1460 --inline-bytes 8192",
        "4k 64k",
    ),
];

fn split(kernel: &str, shapes: &[(&str, &str, &str, &str)]) {
    let _one = alone();
    let mut m = Machine::boot(kernel);
    for (name, options, target, writes) in shapes {
        let what = format!("{kernel}, {name}");
        let script = format!(
            "rm -f /out/*; modprobe nvme-tcp
            target_start target --listen 127.0.0.1:4430 {target}
            c=$(nvme_connect nqn.2024-01.lab:split 127.0.0.1 4430 '{options}') && d=$(nvme_disk $c 1) || exit
            capture_start host -r host -t tcp -s 1 -i 0
            for bs in 4k 128k 1M; do FIO_OUT=/out/r$bs.json fio_depths $d --rw=randread --bs=$bs || exit; done
            for bs in {writes}; do FIO_OUT=/out/w$bs.json fio_depths $d --rw=randwrite --bs=$bs || exit; done
            capture_stop host || exit
            nvme_disconnect nqn.2024-01.lab:split
            target_stop target"
        );
        m.sh(400, &script);
        let dir = m.files("split");
        let recording = check::recording(&dir, "host.ntp", Role::Host);
        let log = played::log(&dir.join("target.log")).expect("log");
        let found = played::compare(&log, &recording);
        let several: u32 = recording
            .records
            .iter()
            .map(|r| u32::from(r.r2ts > 1))
            .sum();
        results::note(
            &what,
            &format!(
                "{} commands as the target logged them, {} answered by several PDUs ({} with a late first), {several} writes with several R2Ts, absent {:?}",
                found.matched, found.several, found.late, found.absent
            ),
        );
        assert!(
            found.matched > 200 && found.several > 50 && several > 10,
            "{what}: {found:?}"
        );
        assert!(
            found.violations.is_empty(),
            "{what}: {:#?}",
            found.violations
        );
        // TCP may hold a first packet back; that is not what most of them see.
        assert!(found.late * 10 < found.several * 3, "{what}: {found:?}");
        let absent: usize = found.absent.values().sum();
        assert!(absent * 20 < found.matched, "{what}: {found:?}");
    }
    m.end();
}

#[test]
fn split_6_12() {
    split(KERNELS[1], &SHAPES[..1]);
}

#[test]
#[ignore = "make lab-all"]
fn split_more_6_12() {
    split(KERNELS[1], &SHAPES[1..]);
}

#[test]
#[ignore = "make lab-all"]
fn split_all_6_1() {
    split(KERNELS[0], SHAPES);
}
