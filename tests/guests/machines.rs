//! Machines of their own, with clocks of their own: far apart, drifting, two
//! hosts on one target.

use crate::KERNELS;
use ntp_lab::Guest;
use ntp_record::Role;
use ntp_record::row::{Clock, Row};
use ntp_tests::machine::{EXPORT, NQN, alone, boot, sh};
use ntp_tests::tools::shell;
use ntp_tests::{check, results, truth};
use std::path::Path;
use std::time::Duration;

/// Serves in `t`, connects in `h`; gives the disk.
fn serve(t: &mut Guest, h: &mut Guest, options: &str) -> String {
    sh(
        t,
        60,
        &format!("{EXPORT} && nvmet_port 1 10.9.0.2 4420 {NQN}"),
    );
    disk(h, options)
}

fn disk(h: &mut Guest, options: &str) -> String {
    let script = format!("c=$(nvme_connect {NQN} 10.9.0.2 4420 '{options}') && nvme_disk $c 1");
    sh(h, 60, &script).trim().to_owned()
}

/// Rows of all of `joined.ntp`.
fn rows(dir: &Path) -> Vec<Row> {
    let text = shell(dir, "ntp-stages joined.ntp").expect(0).text();
    text.lines()
        .map(|l| serde_json::from_str(l).expect("row"))
        .collect()
}

fn component(rows: &[Row], name: &str) -> (f64, f64) {
    let find = |row: &Row| match row {
        Row::Component(c) if c.component == name => {
            Some((c.time.mean_ns? / 1e3, c.bound_ns? as f64 / 1e3))
        }
        _ => None,
    };
    rows.iter().find_map(find).expect("component")
}

/// Clocks two minutes apart, one of them 200 ppm fast, and another delay each way.
fn drifting(kernel: &str) {
    let _one = alone();
    let out = tempfile::tempdir().expect("folder");
    let dir = out.path();
    let (mut t, mut h) =
        Guest::pair_apart(&boot(kernel, dir), Duration::from_secs(130)).expect("boot");
    let disk = serve(&mut t, &mut h, "");
    // Frequency in units of 2^-16 ppm.
    sh(&mut t, 30, "adjtimex -f $((200 * 65536)) > /dev/null");
    let mut means = Vec::new();
    for (out_us, back_us) in [(0, 0), (3000, 1000)] {
        sh(&mut h, 30, &format!("netem eth0 {out_us}"));
        sh(&mut t, 30, &format!("netem eth0 {back_us}"));
        sh(
            &mut t,
            120,
            "capture_start target -r target -t tcp -i 0 -s 1",
        );
        sh(&mut h, 120, "capture_start host -t tcp -i 0 -s 1");
        sh(
            &mut h,
            180,
            &format!("fio_run {disk} --rw=randread --bs=4k --iodepth=2 --time_based --runtime=12"),
        );
        sh(&mut h, 120, "capture_stop host");
        sh(&mut t, 120, "capture_stop target");
        h.pull("/out/host.ntp", &dir.join("host.ntp"))
            .expect("host.ntp");
        t.pull("/out/target.ntp", &dir.join("target.ntp"))
            .expect("target.ntp");
        shell(dir, "ntp-join -o joined.ntp host.ntp target.ntp").expect(0);
        let joined = truth::joined(&dir.join("joined.ntp")).expect("joined");
        let what = format!("{kernel}, two machines, 200 ppm, {out_us} us out, {back_us} us back");
        let records = check::recording(dir, "host.ntp", Role::Host).records.len();
        assert!(
            joined.pairs.len() as f64 >= 0.999 * records as f64,
            "{what}: {} of {records}",
            joined.pairs.len()
        );
        assert_eq!(truth::strangers(&joined), 0, "{what}");
        let rows = rows(dir);
        let clock: &Clock = rows
            .iter()
            .find_map(|r| match r {
                Row::Clock(c) => Some(c),
                _ => None,
            })
            .expect("clock");
        let (to, to_bound) = component(&rows, "host to target (estimated)");
        let (from, from_bound) = component(&rows, "target to host (estimated)");
        results::note(
            &what,
            &format!(
                "{} of {records} joined; target {:.1} s ahead, drift {:.1} ppm; out {to:.0} +-{to_bound:.0} us, back {from:.0} +-{from_bound:.0} us",
                joined.pairs.len(),
                clock.offset_ns as f64 / 1e9,
                clock.drift_ppm.expect("drift")
            ),
        );
        assert!(clock.offset_ns > 120_000_000_000, "{what}: {clock:?}");
        assert!(
            (clock.drift_ppm.expect("drift") - 200.0).abs() < 20.0,
            "{what}: {clock:?}"
        );
        means.push([(to, to_bound), (from, from_bound)]);
    }
    for (way, injected) in [3000.0, 1000.0].into_iter().enumerate() {
        let [(base, base_bound), (with, with_bound)] = [means[0][way], means[1][way]];
        let rise = with - base;
        println!("{kernel}: way {way}: {base:.0} to {with:.0} us, rise {rise:.0} us of {injected}");
        assert!(
            (rise - injected).abs() <= base_bound + with_bound,
            "{kernel}: way {way}"
        );
        // Never less than what was put in, whatever the clocks are taken for.
        assert!(with + with_bound >= injected, "{kernel}: way {way}");
    }
    h.poweroff().expect("host: no oops, no stall");
    t.poweroff().expect("target: no oops, no stall");
}

/// Two hosts use the same few command ids and blocks of one target at once; one
/// of them is the target's own machine.
fn two_hosts(kernel: &str) {
    let _one = alone();
    let out = tempfile::tempdir().expect("folder");
    let dir = out.path();
    let (mut t, mut h) = Guest::pair(&boot(kernel, dir)).expect("boot");
    let options = "nr_io_queues=1,queue_size=16";
    let far = serve(&mut t, &mut h, options);
    let near = disk(&mut t, options);
    sh(
        &mut t,
        120,
        "capture_start target -r target -t tcp -i 0 -s 1; capture_start near -t tcp -i 0 -s 1",
    );
    sh(&mut h, 120, "capture_start far -t tcp -i 0 -s 1");
    let load = |disk: &str| {
        format!(
            "fio_run {disk} --rw=randrw --bs=4k --size=32k --norandommap --randrepeat=1 --iodepth=8 --time_based --runtime=5"
        )
    };
    sh(
        &mut t,
        30,
        &format!(
            "({}) > /dev/null 2>&1 & echo $! > /run/fio.pid",
            load(&near)
        ),
    );
    sh(&mut h, 180, &load(&far));
    sh(
        &mut t,
        60,
        "gone() { ! kill -0 $(cat /run/fio.pid) 2> /dev/null; }; wait_for 40 gone",
    );
    sh(&mut h, 120, "capture_stop far");
    sh(&mut t, 120, "capture_stop near; capture_stop target");
    h.pull("/out/far.ntp", &dir.join("far.ntp"))
        .expect("far.ntp");
    for name in ["near.ntp", "target.ntp"] {
        t.pull(&format!("/out/{name}"), &dir.join(name))
            .expect(name);
    }
    let near = check::recording(dir, "near.ntp", Role::Host).records.len();
    let far = check::recording(dir, "far.ntp", Role::Host).records.len();
    shell(dir, "ntp-join -o joined.ntp near.ntp far.ntp target.ntp").expect(0);
    let joined = truth::joined(&dir.join("joined.ntp")).expect("joined");
    let what = format!("{kernel}, two hosts, the same 8 blocks and 15 command ids");
    results::note(
        &what,
        &format!(
            "{} of {near} + {far} joined, {} wrong",
            joined.pairs.len(),
            truth::strangers(&joined)
        ),
    );
    assert!(near > 500 && far > 500, "{what}");
    assert!(
        joined.pairs.len() as f64 >= 0.999 * (near + far) as f64,
        "{what}: {:?}",
        joined.totals
    );
    assert_eq!(truth::strangers(&joined), 0, "{what}");
    let text = shell(dir, "ntp-stages --by op,host joined.ntp | ntp-fmt")
        .expect(0)
        .text();
    println!("{text}");
    h.poweroff().expect("host: no oops, no stall");
    t.poweroff().expect("target: no oops, no stall");
}

#[test]
#[ignore = "make lab-all"]
fn drifting_6_1() {
    drifting(KERNELS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn drifting_6_12() {
    drifting(KERNELS[1]);
}

#[test]
fn two_hosts_6_1() {
    two_hosts(KERNELS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn two_hosts_6_12() {
    two_hosts(KERNELS[1]);
}
