//! What recording costs, beside bpftrace taking the same moments: IOPS and CPU
//! time of one load with each, and the kernel's own account of the programs.
//! Host and target are one guest.
//!
//!     cargo bench -p ntp-tests --bench recording -- [KERNEL...] [--rounds=N]

use anyhow::{Context, Result, ensure};
use ntp_lab::{BootOpts, Cache, Guest, with_tools};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

const KERNELS: [&str; 2] = ["6.12", "6.1"];
const ROUNDS: usize = 5;

/// A drive of 1 GiB that answers after 60 us, served over loopback.
const SERVE: &str = "
d=$(null_blk lab 60000 1024) && nvmet_subsys nqn.2024-01.lab:drive $d &&
nvmet_port 1 127.0.0.1 4420 nqn.2024-01.lab:drive &&
c=$(nvme_connect nqn.2024-01.lab:drive 127.0.0.1 4420) && nvme_disk $c 1";

const LOAD: &str = "--rw=randread --bs=4k --iodepth=8 --time_based --runtime=4";

/// A way to record, or none.
struct Way {
    name: &'static str,
    start: &'static str,
    stop: &'static str,
}

macro_rules! ntp {
    ($name:literal, $n:literal) => {
        Way {
            name: $name,
            start: concat!(
                "capture_start target -r target -t tcp -i 0 -s ",
                $n,
                " && capture_start host -r host -t tcp -i 0 -s ",
                $n
            ),
            stop: "capture_stop host && capture_stop target",
        }
    };
}

const NONE: usize = 0;
const UNSAMPLED: usize = 1;
const SAMPLED: usize = 3;
const PEER: usize = 4;
const WAYS: [Way; 5] = [
    Way {
        name: "none",
        start: "true",
        stop: "true",
    },
    ntp!("one in 1000", 1000),
    ntp!("one in 100", 100),
    ntp!("every command", 1),
    Way {
        name: "bpftrace",
        start: "peers_start $DISK",
        stop: "peer_stop host && peer_stop target",
    },
];

/// One run of the load.
struct Run {
    iops: f64,
    cpu_us: f64,
    programs: Programs,
}

/// The programs of one way, by side and name.
type Programs = BTreeMap<(String, String), Cost>;

/// What one program does.
#[derive(Clone, Default)]
struct Cost {
    /// For each command.
    hits: f64,
    /// Mean ns of a hit in each window of a tenth of a second. The emulator is
    /// interrupted by whatever else runs on this machine, in one program of
    /// thousands, for milliseconds: a mean over all would be made of that.
    windows: Vec<f64>,
}

impl Cost {
    fn ns(&self) -> f64 {
        median(self.windows.iter().copied())
    }
}

/// ns of a side's programs for each command.
fn ns_per_command(programs: &Programs, side: &str) -> f64 {
    let of_side = programs.iter().filter(|((s, _), _)| s == side);
    of_side.fold(0.0, |sum, (_, c)| sum + c.hits * c.ns())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => f64::NAN,
        n => (all[(n - 1) / 2] + all[n / 2]) / 2.0,
    }
}

/// ns and hits of every program at one moment, by side and id.
type Counters = HashMap<(String, u64), (u64, u64)>;

/// What `watch_programs` wrote.
fn counters(text: &str) -> Result<Vec<Counters>> {
    let mut all = Vec::new();
    for line in text.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["window"] => all.push(Counters::new()),
            ["program", side, id, ns, hits] => {
                let now = all.last_mut().context("windows")?;
                now.insert((side.to_owned(), id.parse()?), (ns.parse()?, hits.parse()?));
            }
            _ => anyhow::bail!("windows: `{line}`"),
        }
    }
    Ok(all)
}

/// The programs' costs out of all windows, for so many commands.
fn costs(all: &[Counters], names: &HashMap<u64, String>, ios: f64) -> Programs {
    let mut out = Programs::new();
    for pair in all.windows(2) {
        for (key, (ns, hits)) in &pair[1] {
            let (old_ns, old_hits) = pair[0].get(key).copied().unwrap_or_default();
            if *hits > old_hits {
                let name = names.get(&key.1).cloned().unwrap_or_default();
                let cost = out.entry((key.0.clone(), name)).or_default();
                let hits = (hits - old_hits) as f64;
                cost.hits += hits / ios;
                cost.windows.push((ns - old_ns) as f64 / hits);
            }
        }
    }
    out
}

struct Bench {
    guest: Guest,
    disk: String,
    out: tempfile::TempDir,
}

impl Bench {
    fn boot(kernel: &str) -> Result<Bench> {
        let out = tempfile::tempdir()?;
        let mut opts = with_tools(BootOpts::new(kernel), None)?;
        opts.mem_mib = 3072;
        opts.out_dir = Some(out.path().to_owned());
        opts.files.extend(Cache::open()?.programs(
            &["bpftrace", "bpftool"],
            &["usr/bin/bpftrace", "usr/sbin/bpftool"],
        )?);
        let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/bench"));
        for file in ["held", "peer.sh", "peer-host.bt", "peer-target.bt"] {
            opts.files.push((here.join(file), format!("lab/{file}")));
        }
        let mut guest = Guest::boot(&opts)?;
        let disk = guest.sh(SERVE, Duration::from_secs(120))?.ok()?.stdout;
        Ok(Bench {
            guest,
            disk: disk.trim().to_owned(),
            out,
        })
    }

    fn file(&mut self, name: &str) -> Result<String> {
        let here = self.out.path().join(name);
        self.guest.pull(&format!("/out/{name}"), &here)?;
        Ok(std::fs::read_to_string(&here)?)
    }

    /// Reads that fio did, and a second.
    fn reads(&mut self, name: &str) -> Result<(f64, f64)> {
        let json: Value = serde_json::from_str(&self.file(name)?)?;
        let read = &json["jobs"][0]["read"];
        let number = |field: &str| read[field].as_f64().context(field.to_owned());
        Ok((number("total_ios")?, number("iops")?))
    }

    /// Runs the load under one way to record: until the emulator has translated
    /// what attaching changed, as it is, and with the kernel timing the
    /// programs, which costs by itself.
    fn run(&mut self, way: &Way) -> Result<Run> {
        let script = format!(
            "DISK={}\n. /lab/peer.sh\nrm -f /out/* /run/lab/*.pid\n{} || exit\n\
             FIO_OUT=/out/warm.json fio_run $DISK {LOAD} || exit\n\
             grep '^cpu ' /proc/stat\nfio_run $DISK {LOAD} || exit\ngrep '^cpu ' /proc/stat\n\
             echo 1 > /proc/sys/kernel/bpf_stats_enabled\n\
             touch /run/lab/watch\nwatch_programs &\nusleep 300000\n\
             FIO_OUT=/out/timed.json fio_run $DISK {LOAD} || exit\n\
             rm -f /run/lab/watch\nusleep 300000\n\
             echo 0 > /proc/sys/kernel/bpf_stats_enabled\n\
             bpftool prog show -j > /out/programs.json\n{} || exit",
            self.disk, way.start, way.stop
        );
        let said = self.guest.sh(&script, Duration::from_secs(300))?.ok()?;
        let (ios, iops) = self.reads("fio.json")?;
        let (timed, _) = self.reads("timed.json")?;
        let (warm, _) = self.reads("warm.json")?;
        let mut busy = Vec::new();
        for line in said.stdout.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                // In 10 ms.
                ["cpu", user, nice, system, _idle, _iowait, irq, softirq, ..] => busy.push(
                    [user, nice, system, irq, softirq]
                        .iter()
                        .map(|n| n.parse::<u64>())
                        .sum::<Result<u64, _>>()?,
                ),
                ["lines", side, seen] => {
                    let (seen, reads) = (seen.parse::<f64>()?, warm + ios + timed);
                    ensure!(seen >= reads, "bpftrace, {side}: {seen} of {reads} reads");
                    eprintln!("bpftrace, {side}: {seen} lines of {reads} reads");
                }
                _ => {}
            }
        }
        ensure!(busy.len() == 2, "no CPU times: {}", said.stdout);
        let names: Value = serde_json::from_str(&self.file("programs.json")?)?;
        let names = names.as_array().context("programs.json")?;
        let name = |p: &Value| Some((p["id"].as_u64()?, p["name"].as_str()?.to_owned()));
        let names: HashMap<u64, String> = names.iter().filter_map(name).collect();
        let run = Run {
            iops,
            cpu_us: (busy[1] - busy[0]) as f64 * 10_000.0 / ios,
            programs: costs(&counters(&self.file("windows")?)?, &names, timed),
        };
        eprintln!(
            "{}: {:.0} IOPS, {:.0} us of CPU each; programs: host {:.0}, target {:.0} ns a command",
            way.name,
            run.iops,
            run.cpu_us,
            ns_per_command(&run.programs, "host"),
            ns_per_command(&run.programs, "target")
        );
        Ok(run)
    }
}

/// The load's own figures, each round against its own run without recording.
fn throughput(rounds: &[Vec<Run>]) {
    println!("| recording | IOPS | of none | CPU us per I/O | of none |");
    println!("|---|---:|---:|---:|---:|");
    for (w, way) in WAYS.iter().enumerate() {
        let of = |f: &dyn Fn(&[Run]) -> f64| median(rounds.iter().map(|r| f(r)));
        println!(
            "| {} | {:.0} | {:.2} | {:.0} | {:.2} |",
            way.name,
            of(&|r| r[w].iops),
            of(&|r| r[w].iops / r[NONE].iops),
            of(&|r| r[w].cpu_us),
            of(&|r| r[w].cpu_us / r[NONE].cpu_us),
        );
    }
}

/// All rounds' windows of one way together.
fn together(rounds: &[Vec<Run>], way: usize) -> Programs {
    let mut out = Programs::new();
    for run in rounds.iter().map(|r| &r[way]) {
        for (key, cost) in &run.programs {
            let all = out.entry(key.clone()).or_default();
            all.hits += cost.hits / rounds.len() as f64;
            all.windows.extend(&cost.windows);
        }
    }
    out
}

/// What a command costs, and how that compares.
fn commands(ways: &[Programs; 3]) {
    println!(
        "| side | unsampled ns | sampled ns | bpftrace ns | unsampled : bpftrace | sampled : bpftrace |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    for side in ["host", "target"] {
        let [unsampled, sampled, peer] = ways.each_ref().map(|w| ns_per_command(w, side));
        println!(
            "| {side} | {unsampled:.0} | {sampled:.0} | {peer:.0} | {:.2} | {:.2} |",
            unsampled / peer,
            sampled / peer
        );
    }
}

/// Every program that a command passes.
fn programs(ways: &[Programs; 3]) {
    println!("| side | program | hits per command | ns per hit, unsampled | ns per hit, sampled |");
    println!("|---|---|---:|---:|---:|");
    let [unsampled, sampled, peer] = ways;
    let once = |c: &Cost| c.hits > 0.05;
    for (key @ (side, name), cost) in sampled.iter().filter(|(_, c)| once(c)) {
        let less = unsampled.get(key).map_or(f64::NAN, Cost::ns);
        println!(
            "| {side} | {name} | {:.2} | {less:.0} | {:.0} |",
            cost.hits,
            cost.ns()
        );
    }
    for ((side, name), cost) in peer.iter().filter(|(_, c)| once(c)) {
        println!(
            "| {side} | bpftrace: {name} | {:.2} | | {:.0} |",
            cost.hits,
            cost.ns()
        );
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let rounds: usize = match args.iter().find_map(|a| a.strip_prefix("--rounds=")) {
        Some(n) => n.parse().context("--rounds")?,
        None => ROUNDS,
    };
    let mut kernels: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|a| !a.starts_with('-'))
        .collect();
    if kernels.is_empty() {
        kernels.extend(KERNELS);
    }
    for kernel in kernels {
        eprintln!("{kernel}: booting");
        let mut bench = Bench::boot(kernel)?;
        let release = bench.guest.kernel().release.clone();
        // The first run finds everything cold.
        bench.run(&WAYS[NONE])?;
        let mut all = Vec::new();
        for round in 0..rounds {
            eprintln!("{kernel}: round {} of {rounds}", round + 1);
            let mut runs: Vec<Option<Run>> = WAYS.iter().map(|_| None).collect();
            // Another comes first every round.
            for w in (0..WAYS.len()).map(|i| (i + round) % WAYS.len()) {
                runs[w] = Some(bench.run(&WAYS[w])?);
            }
            all.push(runs.into_iter().flatten().collect::<Vec<Run>>());
        }
        let ways = [UNSAMPLED, SAMPLED, PEER].map(|w| together(&all, w));
        println!("\n### Linux {release}, {rounds} rounds\n");
        throughput(&all);
        println!();
        commands(&ways);
        println!();
        programs(&ways);
        bench.guest.poweroff()?;
    }
    Ok(())
}
