//! Where the time went, against what was put in: delays of drive and network,
//! hogged workers, and clocks of which the difference is known.

use crate::{KERNELS, OTHERS};
use ntp_record::Role;
use ntp_record::point::{host, target};
use ntp_tests::check::{self, Checked, USUAL};
use ntp_tests::clock::{self, Clock};
use ntp_tests::machine::{Machine, NQN, alone};
use ntp_tests::results;
use ntp_tests::tools::shell;
use ntp_tests::truth;
use std::collections::BTreeMap;
use std::path::Path;

const STAGES: [&str; 5] = [
    "host block layer",
    "host driver",
    "network",
    "target driver",
    "storage",
];

/// A target in a network namespace, with a fast drive (60 us) and a slow one
/// (2060 us) as namespaces 1 and 2 of each controller.
const APART: &str = "
fast=$(null_blk fast 60000 1024) && slow=$(null_blk slow 2060000 1024) &&
netns_target && nvmet_subsys nqn.2024-01.lab:drive $fast $slow &&
in_tgt 'nvmet_port 1 10.9.0.2 4420 nqn.2024-01.lab:drive'";

/// Connects with these options; `$fast` and `$slow` are then the disks.
fn connected(options: &str) -> String {
    format!(
        "nvme_disconnect {NQN}\n\
         c=$(nvme_connect {NQN} 10.9.0.2 4420 '{options}') || exit\n\
         fast=$(nvme_disk $c 1) && slow=$(nvme_disk $c 2) || exit\n"
    )
}

fn netem(out: u64, back: u64) -> String {
    format!("netem h0 {out} && in_tgt 'netem t0 {back}' || exit\n")
}

type Means = BTreeMap<&'static str, f64>;

fn means(checked: &Checked) -> Means {
    STAGES.map(|s| (s, checked.stage_us(s))).into()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Difference of each stage's mean, the median over the pairs of runs.
fn raised(pairs: &[(Means, Means)]) -> Means {
    let of = |s| median(pairs.iter().map(|(base, with)| with[s] - base[s]).collect());
    STAGES.map(|s| (s, of(s))).into()
}

/// One stage rises by what was put in, the others stay.
fn only(what: &str, raised: &Means, stage: &str, by: f64) {
    results::note(what, &format!("{raised:.0?} us"));
    for (name, change) in raised {
        if *name == stage {
            assert!(
                (change - by).abs() <= by / 10.0,
                "{what}: {name} {change:.0} us, not {by}"
            );
        } else {
            assert!(
                change.abs() < 300.0,
                "{what}: {name} changed by {change:.0} us"
            );
        }
    }
}

fn delays(kernel: &str) {
    let _one = alone();
    let mut m = Machine::boot(kernel);
    m.sh(
        120,
        &format!(
            "{APART} || exit\n{}echo $fast > /run/fast; echo $slow > /run/slow",
            connected("")
        ),
    );
    let load = |disk: &str, seconds: u64| {
        format!(
            "fio_run $(cat /run/{disk}) --rw=randread --bs=4k --iodepth=1 --time_based --runtime={seconds}"
        )
    };
    let mut run = |name: &str, (out, back): (u64, u64), disk: &str, seconds| {
        m.sh(60, &netem(out, back));
        let dir = m.record(name, "-s 1", &load(disk, seconds));
        let checked = check::one_clock(&format!("{kernel}, {name}"), &dir, 100, USUAL);
        (dir, means(&checked))
    };
    let (mut drive, mut network) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        // A packet that is held back at all costs a timer and a wake-up on its way: in both runs.
        let (_, base) = run("base", (1000, 1000), "fast", 2);
        drive.push((
            base.clone(),
            run("drive 2000 us slower", (1000, 1000), "slow", 2).1,
        ));
        network.push((
            base,
            run("network 3000 us slower each way", (4000, 4000), "fast", 3).1,
        ));
    }
    only(
        &format!("{kernel}, drive delayed by 2000 us"),
        &raised(&drive),
        "storage",
        2000.0,
    );
    only(
        &format!("{kernel}, network delayed by 2 x 3000 us"),
        &raised(&network),
        "network",
        6000.0,
    );
    // One direction only: no estimate may take it for a difference of the clocks beyond its bound.
    for (name, delays) in [("3000 us out", (3000, 0)), ("3000 us back", (0, 3000))] {
        let (dir, _) = run(name, delays, "fast", 3);
        clocks(&format!("{kernel}, {name}"), &dir);
    }
    m.end();
}

/// The same recording with the target on another clock: the estimate is within
/// its bound of the truth for every command, and so are both directions.
fn clocks(what: &str, dir: &Path) {
    let truth = truth::joined(&dir.join("joined.ntp")).expect("joined");
    let way = |from: fn(&ntp_record::Joined) -> Option<(u64, u64)>| {
        let times: Vec<f64> = truth
            .pairs
            .iter()
            .filter_map(from)
            .map(|(a, b)| b as f64 - a as f64)
            .collect();
        times.iter().sum::<f64>() / times.len() as f64 / 1e3
    };
    let out = way(|p| {
        Some((
            p.host.time(host::SEND_BEGIN)?,
            p.target.time(target::ARRIVED)?,
        ))
    });
    let back = way(|p| {
        Some((
            p.target.time(target::SEND_BEGIN)?,
            p.host.time(host::RESP_ARRIVED)?,
        ))
    });
    for clock in [
        Clock {
            ahead_ns: 0,
            drift_ppm: 0,
        },
        Clock {
            ahead_ns: 754_321_000_000,
            drift_ppm: 0,
        },
        Clock {
            ahead_ns: 3_600_000_000_000,
            drift_ppm: 200,
        },
        Clock {
            ahead_ns: 86_400_000_000_000,
            drift_ppm: -200,
        },
    ] {
        clock::on_another_clock(&dir.join("target.ntp"), &dir.join("far.ntp"), clock)
            .expect("far.ntp");
        shell(dir, "ntp-join -o far-joined.ntp host.ntp far.ntp").expect(0);
        let far = truth::joined(&dir.join("far-joined.ntp")).expect("joined");
        assert_eq!(
            far.pairs.len(),
            truth.pairs.len(),
            "{what}: {:?}",
            far.totals
        );
        let errors: Vec<_> = far.pairs.iter().map(|p| clock::error(p, clock)).collect();
        let worst = errors.iter().map(|(e, _)| *e).max().unwrap_or(0);
        let bound = errors.iter().map(|(_, b)| *b).max().unwrap_or(0);
        let beyond = errors.iter().filter(|(e, b)| e > b).count();
        assert_eq!(
            beyond, 0,
            "{what}: {clock:?}: beyond its bound in {beyond}, worst {worst} ns"
        );
        let rows = shell(dir, "ntp-stages far-joined.ntp").expect(0).text();
        let estimate = |name: &str| {
            rows.lines()
                .map(|l| serde_json::from_str::<serde_json::Value>(l).expect("row"))
                .find(|r| r["component"] == name)
                .map(|r| {
                    (
                        r["mean_ns"].as_f64().expect("mean") / 1e3,
                        r["bound_ns"].as_f64().expect("bound") / 1e3,
                    )
                })
                .expect(name)
        };
        let (to, to_bound) = estimate("host to target (estimated)");
        let (from, from_bound) = estimate("target to host (estimated)");
        results::note(
            &format!(
                "{what}, clock {} s ahead, {} ppm",
                clock.ahead_ns / 1_000_000_000,
                clock.drift_ppm
            ),
            &format!(
                "offset wrong by at most {:.1} us, bound {:.1} us; out {to:.0} us (true {out:.0}), \
                 back {from:.0} us (true {back:.0}), bound {to_bound:.0} us",
                worst as f64 / 1e3,
                bound as f64 / 1e3
            ),
        );
        assert!(
            (to - out).abs() <= to_bound,
            "{what}: out {to} us, true {out} us, bound {to_bound}"
        );
        assert!(
            (from - back).abs() <= from_bound,
            "{what}: back {from} us, true {back} us, bound {from_bound}"
        );
    }
}

/// A guest with a queue worker of which the CPU is held.
struct Hogged<'a> {
    kernel: &'a str,
    m: Machine,
}

impl Hogged<'_> {
    /// Connects, and has what arrives for the host and for the target handled by these CPUs.
    fn connect(&mut self, options: &str, host: u16, target: u16) {
        let script = format!(
            "{}echo $fast > /run/fast; rps h0 {host} && in_tgt 'rps t0 {target}'",
            connected(options)
        );
        self.m.sh(60, &script);
    }

    /// The CPU of the queue's worker: what another CPU submits is sent there.
    fn worker(&mut self, options: &str, more: &str) -> u16 {
        self.connect(options, 1, 1);
        let dir = self.m.record(
            "worker",
            "-s 1",
            &load(1, &format!("{more} --number_ios=50")),
        );
        let host = check::recording(&dir, "host.ntp", Role::Host);
        let on = |cpu| host.records.iter().filter(|r| r.send_cpu == cpu).count();
        u16::from(on(1) > on(0))
    }

    /// Stages with the CPU free and with it held for 4 ms of every 8.
    fn pair(&mut self, name: &str, cpu: u16, load: &str) -> (Checked, Checked, Means) {
        let name = format!("{}, {name}", self.kernel);
        let load = format!("{load} --time_based --runtime=3");
        let free = self.m.record("free", "-s 1", &load);
        let free = check::one_clock(&format!("{name}, free"), &free, 50, USUAL);
        let held = format!("hog {cpu} 4; {load}; s=$?; hog_end; [ $s = 0 ]");
        let held = self.m.record("held", "-s 1", &held);
        let held = check::one_clock(&format!("{name}, held"), &held, 50, USUAL);
        let change: Means = STAGES
            .map(|s| (s, held.stage_us(s) - free.stage_us(s)))
            .into();
        results::note(&name, &format!("{change:.0?} us"));
        (free, held, change)
    }
}

fn load(cpu: u16, more: &str) -> String {
    format!("fio_run $(cat /run/fast) --rw=randread --bs=4k --cpus_allowed={cpu} {more}")
}

/// A real-time task holds the CPU of a queue's worker, of the host's and of the target's.
fn hogged(kernel: &str) {
    let _one = alone();
    let mut h = Hogged {
        kernel,
        m: Machine::boot(kernel),
    };
    h.m.sh(120, APART);

    // What another CPU submits waits for the worker; a polled queue reads its own responses.
    let (options, polled) = (
        "nr_io_queues=1,nr_poll_queues=1",
        "--ioengine=io_uring --hipri",
    );
    let worker = h.worker(options, polled);
    let other = 1 - worker;
    h.connect(options, other, other);
    let (_, _, change) = h.pair(
        "the host worker's CPU held, polled queue",
        worker,
        &load(other, polled),
    );
    let submission = change["host driver"];
    assert!(submission > 800.0, "{kernel}: {change:?}");
    for stage in ["network", "target driver", "storage"] {
        assert!(
            change[stage] < submission / 2.0,
            "{kernel}: {stage}: {change:?}"
        );
    }

    // Without polling the worker also reads the responses: that wait is the host's receive path, not the wire.
    let options = "nr_io_queues=1";
    let worker = h.worker(options, "");
    let other = 1 - worker;
    h.connect(options, other, other);
    let (free, held, change) = h.pair("the host worker's CPU held", worker, &load(other, ""));
    let rise = |name: &str| held.component_us(name) - free.component_us(name);
    let submission = rise("host driver, submission");
    // The worker may lose its CPU inside the send call: that part of the wire is told apart.
    let sending = rise("inside the host's send calls, capsule");
    let wire = rise("network: wire and NICs (computed)") - sending;
    let receive = rise("network: host receive path");
    println!(
        "{kernel}: host submission {submission:.0}, send calls {sending:.0}, wire {wire:.0}, host receive path {receive:.0} us more"
    );
    // A command alone in its queue follows the response before it, which the worker read: it often
    // finds the worker awake, and both waits together are those of a random arrival, 1000 us.
    assert!(
        submission > 400.0 && receive > 0.0 && submission + receive > 800.0,
        "{kernel}: {change:?}"
    );
    assert!(wire < submission / 2.0, "{kernel}: wire {wire}, {change:?}");

    // The target's worker runs where its packets come in; the host sends from its own worker's CPU.
    h.connect(options, worker, other);
    let (free, held, change) = h.pair("the target worker's CPU held", other, &load(worker, ""));
    let rise = |name: &str| held.component_us(name) - free.component_us(name);
    let waited = rise("network: target receive path") + change["target driver"];
    println!("{kernel}: target receive path and driver {waited:.0} us more");
    assert!(waited > 800.0, "{kernel}: {change:?}");
    for stage in ["host block layer", "host driver", "storage"] {
        assert!(
            change[stage] < waited / 2.0,
            "{kernel}: {stage}: {change:?}"
        );
    }

    // One queue, eight jobs: they wait in front of the worker, and Little's law says how many.
    let eight = load(worker, "--numjobs=8 --iodepth=2");
    let (_, held, _) = h.pair(
        "eight jobs, one queue, the target worker's CPU held",
        other,
        &eight,
    );
    let group = held.groups().next().expect("group");
    let largest = group.largest.clone().expect("largest");
    println!(
        "{kernel}: L {:?}, largest {largest}, {:?}",
        group.l, group.largest_share
    );
    let named = largest.starts_with("network") || largest.starts_with("target driver");
    assert!(named, "{kernel}: {largest}");
    little(kernel, &held);
    h.m.end();
}

/// Eight jobs on one queue, and where they wait: of a drive that may do so many
/// bytes a second, in the drive; of a drive of one slot, in the target's driver,
/// whose worker is held in its call until the slot is free (blk_mq_get_tag), and
/// sends no response before it has read what has come (nvmet_tcp_io_work).
fn starved(kernel: &str) {
    let _one = alone();
    let mut m = Machine::boot(kernel);
    for (drive, waits_in) in [
        ("60000 1024 0 mbps=1", "storage"),
        (
            "4000000 1024 0 submit_queues=1 hw_queue_depth=1",
            "target driver",
        ),
    ] {
        m.sh(120, &format!(
            "nvme_disconnect {NQN}; nvmet_clear; n=$(ls $CONFIG/nullb | wc -l)
            d=$(null_blk drive$n {drive}) && nvmet_subsys {NQN} $d &&
            nvmet_port 1 127.0.0.1 4420 {NQN} && c=$(nvme_connect {NQN} 127.0.0.1 4420 nr_io_queues=1) &&
            nvme_disk $c 1 > /run/disk"));
        let dir = m.record(
            "starved",
            "-s 1",
            "fio_run $(cat /run/disk) --rw=randread --bs=4k --time_based --runtime=4 --numjobs=8",
        );
        let what = format!("{kernel}, eight jobs that wait in the {waits_in}");
        let checked = check::one_clock(&what, &dir, 200, USUAL);
        let group = checked.groups().next().expect("group");
        let stages: Vec<String> = STAGES
            .map(|s| format!("{s} {:.0}", checked.stage_us(s)))
            .into();
        results::note(
            &what,
            &format!(
                "largest {:?} ({:.2}), L {:.2}; us: {}",
                group.largest,
                group.largest_share.unwrap_or(0.0),
                group.l.unwrap_or(0.0),
                stages.join(", ")
            ),
        );
        let largest = group.largest.as_deref().unwrap_or_default();
        assert!(largest.starts_with(waits_in), "{what}: {largest}");
        assert!(
            group.largest_share > Some(0.3),
            "{what}: {:?}",
            group.largest_share
        );
        little(&what, &checked);
    }
    m.end();
}

/// Little's law against its definition: the mean number of commands in flight
/// is the time they spent in all, over the time that was recorded.
fn little(what: &str, checked: &Checked) {
    let h = &checked.host;
    let spent: u64 = h
        .records
        .iter()
        .filter_map(|r| Some(r.time(host::BLOCK_DONE)? - r.time(host::BLOCK_START)?))
        .sum();
    let recorded = h.totals.end_ns - h.header.start_ns;
    let truth = spent as f64 / recorded as f64;
    let l: f64 = checked.groups().filter_map(|g| g.l).sum();
    println!("{what}: L {l:.3}, {truth:.3} by its definition");
    assert!(
        (l - truth).abs() < 0.05 * truth,
        "{what}: L {l}, {truth} by its definition"
    );
    let stages: f64 = checked
        .rows
        .iter()
        .filter_map(|r| match r {
            ntp_record::row::Row::Stage(s) => s.l,
            _ => None,
        })
        .sum();
    assert!(
        (stages - l).abs() < 0.01 * l,
        "{what}: stages {stages}, whole {l}"
    );
}

#[test]
#[ignore = "make lab-all"]
fn delays_6_12() {
    delays(KERNELS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn delays_6_1() {
    delays(KERNELS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn hogged_6_1() {
    hogged(KERNELS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn hogged_6_12() {
    hogged(KERNELS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn starved_6_1() {
    starved(KERNELS[0]);
}

#[test]
fn starved_6_12() {
    starved(KERNELS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn delays_5_10() {
    delays(OTHERS[0]);
}

#[test]
#[ignore = "make lab-all"]
fn delays_6_1_rt() {
    delays(OTHERS[1]);
}

#[test]
#[ignore = "make lab-all"]
fn delays_7_3() {
    delays(OTHERS[2]);
}
