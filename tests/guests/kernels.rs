//! Kernels from 5.10 to the newest: what each lacks is told, what it has is right.

use crate::{KERNELS, OTHERS};
use ntp_lab::{Cache, Fio};
use ntp_record::{Header, Role};
use ntp_tests::check::{self, USUAL, within_fio};
use ntp_tests::machine::{KEPT_BTF, Machine, NQN, alone, boot};
use ntp_tests::results;
use std::path::{Path, PathBuf};

/// Reads, R2T writes and writes in the capsule, in order and to the command.
fn recorded(kernel: &str) {
    let _one = alone();
    let (mut m, disk) = Machine::serving(kernel);
    for side in ["host", "target"] {
        let said = m.sh(120, &format!("ntp-probe -r {side} -t tcp $BTF"));
        println!("{kernel}, ntp-probe -r {side}:\n{said}");
        assert!(said.ends_with("load: ok\n"), "{said}");
        assert!(said.contains("the report will have every point"), "{said}");
    }
    for (name, fio) in [
        (
            "reads of 4 KiB, depth 1",
            "--rw=randread --bs=4k --iodepth=1",
        ),
        (
            "reads of 4 KiB, depth 32",
            "--rw=randread --bs=4k --iodepth=32",
        ),
        ("writes of 4 KiB", "--rw=randwrite --bs=4k --iodepth=8"),
        (
            "writes of 64 KiB after an R2T",
            "--rw=randwrite --bs=64k --iodepth=8",
        ),
    ] {
        let what = format!("{kernel}, {name}");
        let load = format!("fio_run {disk} --time_based --runtime=3 {fio}");
        let dir = m.record("recorded", "-s 1", &load);
        let checked = check::one_clock(&what, &dir, 200, USUAL);
        within_fio(&what, &dir, &checked.host, fio.ends_with("=1"));
        let fio = Fio::read(&dir.join("fio.json")).expect("fio");
        for (side, r) in [("host", &checked.host), ("target", &checked.target)] {
            println!(
                "{what}: {side}: {} of fio, {} seen; {:?}",
                fio.ios, r.totals.seen, r.totals.misses
            );
            assert_eq!(r.totals.seen, fio.ios, "{what}: {side}");
        }
        let r2t = u8::from(name.contains("R2T"));
        assert!(checked.host.records.iter().all(|r| r.r2ts == r2t), "{what}");
    }
    m.end();
}

/// How a kernel is hooked, what that costs to start, and that nothing of it is left.
fn hooked(kernel: &str) {
    let _one = alone();
    let (mut m, disk) = Machine::serving(kernel);
    for side in ["host", "target"] {
        // The second recording begins as soon as the first has ended.
        let script = format!(
            "rm -f /out/*
            for n in first second; do
                capture_start $n -r {side} -t tcp -s 1 -i 0
                fio_run {disk} --rw=randread --bs=4k --iodepth=4 --number_ios=500
                capture_cost $n > /out/$n.cost; capture_stop $n
            done"
        );
        m.sh(200, &script);
        let dir = m.files("hooked");
        let role = if side == "host" {
            Role::Host
        } else {
            Role::Target
        };
        for name in ["first", "second"] {
            let r = check::recording(&dir, &format!("{name}.ntp"), role);
            assert_eq!(r.totals.seen, 500, "{kernel}: {name}");
            let cost = std::fs::read_to_string(dir.join(format!("{name}.cost"))).expect("cost");
            println!("{kernel}, {side}, {name}: {}", cost.trim());
            if name == "first" {
                results::side(kernel, side, &how(&r.header, &cost));
            }
        }
    }
    m.sh(
        60,
        &format!("nvme_disconnect {NQN}; nvmet_clear; rmmod nvme_tcp && rmmod nvmet_tcp"),
    );
    m.end();
}

/// Columns of a side: its hooks by kind, what stands in, what is missing, time
/// from the start of the process to the recording's, and memory.
fn how(header: &Header, cost: &str) -> Vec<String> {
    let by = |how: &[&str]| {
        let hooks = header.hooks.iter();
        hooks
            .filter(|h| how.contains(&h.how.as_str()))
            .count()
            .to_string()
    };
    let list = |of: Vec<String>| match of.is_empty() {
        true => "none".to_owned(),
        false => of.join(", "),
    };
    let stand_ins = header
        .hooks
        .iter()
        .filter(|h| h.how != "absent" && !h.note.is_empty());
    let fields: Vec<&str> = cost.split_whitespace().collect();
    let number = |name: &str| -> f64 {
        let at = fields.iter().position(|f| *f == name).expect(name);
        fields[at + 1].parse().expect("number")
    };
    let mib = |kib: f64| format!("{:.1} MiB", kib / 1024.0);
    assert!(number("process") < 65536.0, "{cost}");
    vec![
        by(&["fentry", "fexit"]),
        by(&["kprobe"]),
        by(&["raw_tp"]),
        list(
            stand_ins
                .map(|h| format!("{}: {}", h.function, h.note))
                .collect(),
        ),
        list(header.missing.keys().cloned().collect()),
        format!("{:.1} s", header.start_ns as f64 / 1e9 - number("started")),
        mib(number("process")),
        mib(number("maps")),
    ]
}

#[test]
#[ignore = "make lab-all"]
fn hooked_everywhere() {
    for kernel in KERNELS.iter().chain(&OTHERS) {
        hooked(kernel);
    }
}

#[test]
fn recorded_5_10() {
    recorded(OTHERS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn recorded_6_1_rt() {
    recorded(OTHERS[1]);
}

#[test]
fn recorded_7_3() {
    recorded(OTHERS[2]);
}

/// The file below a folder whose path ends so.
fn find(dir: &Path, end: &str) -> PathBuf {
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(path).expect("folder").flatten();
            todo.extend(inside.map(|entry| entry.path()));
        } else if path.to_string_lossy().ends_with(end) {
            return path;
        }
    }
    panic!("{}: no {end}", dir.display());
}

/// The remedy that the problem names: BTF made from the -dbg package in a guest,
/// the same as what is kept for the other tests.
#[test]
#[ignore = "make lab-all"]
fn btf_made_of_debug_information() {
    let _one = alone();
    let kernel = OTHERS[0];
    let cache = Cache::open().expect("cache");
    let debug = cache.debug_information(kernel).expect("debug information");
    let pahole = cache.programs(&["dwarves"], &["usr/bin/pahole"]);
    let out = tempfile::tempdir().expect("folder");
    let mut opts = boot(kernel, out.path());
    opts.files.retain(|(_, to)| !to.starts_with("lab/btf/"));
    opts.files.extend(pahole.expect("pahole"));
    for module in [
        "host/nvme-core",
        "host/nvme-tcp",
        "host/nvme-rdma",
        "target/nvmet",
        "target/nvmet-tcp",
        "target/nvmet-rdma",
    ] {
        let file = format!("{module}.ko");
        let found = find(&debug, &format!("/drivers/nvme/{file}"));
        opts.files.push((found, format!("debug/{file}")));
    }
    let mut m = Machine::of(&opts, out);
    m.sh(60, "modprobe -a nvme-tcp nvmet-tcp nvme-rdma nvmet-rdma");

    let said = m.sh(60, "ntp-probe; echo status $?");
    assert!(said.contains("ntp-probe --make-btf DIR"), "{said}");
    assert!(said.ends_with("status 1\n"), "{said}");
    let script = "for t in tcp rdma; do for r in host target; do
        ntp-probe -r $r -t $t --make-btf /out --debug /debug && ntp-probe -r $r -t $t --btf /out || exit
    done; done";
    let said = m.sh(300, script);
    println!("{said}");
    assert_eq!(said.matches("load: ok").count(), 4, "{said}");

    // Of another build, and none at all.
    let said = m.sh(
        60,
        "mkdir /other && cp /out/nvme* /other && echo 00 > /other/nvme_tcp.build-id
        ntp-probe --btf /other 2>&1; echo status $?
        ntp-probe --make-btf /none --debug /debug/nothing 2>&1; echo status $?",
    );
    assert_eq!(said.matches("status 2").count(), 2, "{said}");
    assert!(said.contains("made for the build 00 of nvme_tcp"), "{said}");
    assert!(said.contains("no debug information of nvme_tcp"), "{said}");

    let made = m.files("made");
    let mut same = 0;
    for kept in
        std::fs::read_dir(Path::new(KEPT_BTF).join(&m.guest.kernel().release)).expect("kept")
    {
        let kept = kept.expect("kept").path();
        let new = made.join(kept.file_name().expect("name"));
        assert!(
            std::fs::read(&new).expect("made") == std::fs::read(&kept).expect("kept"),
            "{}",
            kept.display()
        );
        same += 1;
    }
    results::note(
        &format!("{kernel}, BTF from the -dbg package"),
        &format!("{same} files, those that are kept"),
    );
    m.end();
}
