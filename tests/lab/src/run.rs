//! `lab run`: one recording with two sides, from boot to the files it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, FromArgMatches, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::boot::{BootOpts, with_tools};
use crate::facts::{Facts, ToolRun};
use crate::fio::Fio;
use crate::guest::Guest;
use crate::link::GuestLost;
use crate::say;

/// The subsystem the target serves.
const NQN: &str = "nqn.2024-01.lab:drive";
const SERVICE: u16 = 4420;

/// What a namespace is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Drive {
    /// A null_blk device, served as a block device.
    Null,
    /// A file on a null_blk device that keeps what is written.
    File,
}

/// A scenario: which machines, drive, network and load.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct RunOpts {
    /// Family of the kernel: 6.1, 6.12
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// One guest that is host and target, or one guest each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub machines: u8,
    /// Transport
    #[arg(long, default_value = "tcp", value_parser = ["tcp"])]
    pub transport: String,
    /// Access pattern, as fio names it
    #[arg(long, default_value = "randread")]
    pub rw: String,
    /// Size of a command
    #[arg(long, default_value = "4k")]
    pub bs: String,
    /// Commands in flight a job
    #[arg(long, default_value_t = 1)]
    pub iodepth: u32,
    /// Jobs
    #[arg(long, default_value_t = 1)]
    pub jobs: u32,
    /// How long fio runs
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// What the target's namespace is made of
    #[arg(long, value_enum, default_value_t = Drive::Null)]
    pub drive: Drive,
    /// The drive answers after this many microseconds (and 65 to 210 of its timer's)
    #[arg(long, value_name = "US", default_value_t = 60)]
    pub drive_delay: u64,
    /// Delay of each direction of the network in microseconds; two values:
    /// from host to target, and back
    #[arg(long, value_name = "US[,US]", value_delimiter = ',', num_args = 1)]
    pub net_delay: Vec<u64>,
    /// Record one of N commands (-s of ntp-capture)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub sample: u64,
    /// More options of the connection, as /dev/nvme-fabrics takes them
    #[arg(long, value_name = "OPTS", default_value = "")]
    pub connect: String,
    /// More arguments for fio
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub fio: String,
    /// More arguments for ntp-probe
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub probe_args: String,
    /// More arguments for ntp-capture
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub capture_args: String,
    /// When a guest is lost, boot again, at most N times; the lost one's
    /// console stays as NAME.console.lost1
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// Folder of the built tools; beside this program if not given
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub bin: Option<PathBuf>,
    /// Folder for what the run leaves
    #[arg(short, long, value_name = "DIR")]
    #[serde(skip)]
    pub out: PathBuf,
}

impl RunOpts {
    /// The defaults of the command line.
    pub fn new(out: impl Into<PathBuf>) -> Result<RunOpts> {
        let out: PathBuf = out.into();
        let command = RunOpts::augment_args(clap::Command::new("run").no_binary_name(true));
        let args = ["-o".into(), out.into_os_string()];
        Ok(RunOpts::from_arg_matches(
            &command.try_get_matches_from(args)?,
        )?)
    }

    /// Delays of the network, out and back, in microseconds.
    fn delays(&self) -> Result<(u64, u64)> {
        match self.net_delay[..] {
            [] => Ok((0, 0)),
            [both] => Ok((both, both)),
            [out, back] => Ok((out, back)),
            _ => bail!(
                "--net-delay: {} values; give one or two",
                self.net_delay.len()
            ),
        }
    }
}

/// The guests of a run: with one machine the host is the target too.
struct Machines {
    host: Guest,
    target: Option<Guest>,
}

impl Machines {
    fn target(&mut self) -> &mut Guest {
        self.target.as_mut().unwrap_or(&mut self.host)
    }
}

/// Boots, exports, connects, records both sides while fio runs, and leaves
/// everything in `opts.out`. An error: it could not be run ([`GuestLost`] in
/// its chain: a guest died). [`Facts::problems`] says what else went wrong.
pub fn run(opts: &RunOpts) -> Result<Facts> {
    let mut lost = Vec::new();
    loop {
        let e = match once(opts) {
            Ok(mut facts) => {
                facts.lost = lost;
                let path = opts.out.join("facts.json");
                fs::write(&path, serde_json::to_vec_pretty(&facts)?)
                    .with_context(|| format!("`{}`", path.display()))?;
                return Ok(facts);
            }
            Err(e) => e,
        };
        let Some(guest) = e.chain().find_map(|c| c.downcast_ref::<GuestLost>()) else {
            return Err(e);
        };
        if lost.len() >= opts.retries as usize {
            return Err(e);
        }
        lost.push(guest.to_string());
        let kept = guest
            .console
            .with_extension(format!("console.lost{}", lost.len()));
        fs::rename(&guest.console, &kept).with_context(|| format!("`{}`", kept.display()))?;
        say(format_args!(
            "{guest}, now `{}`; booting again",
            kept.display()
        ));
    }
}

/// One try of [`run`].
fn once(opts: &RunOpts) -> Result<Facts> {
    let began = Instant::now();
    let (out, back) = opts.delays()?;
    fs::create_dir_all(&opts.out).with_context(|| format!("`{}`", opts.out.display()))?;
    let mut machines = boot(opts)?;
    let boot_seconds = began.elapsed().as_secs_f64();
    let mut tools = Vec::new();
    let result = scenario(opts, &mut machines, (out, back), &mut tools);
    // Whatever happened, what the guests have is worth having.
    let mut pulled = Ok(());
    for guest in [machines.target.as_mut(), Some(&mut machines.host)]
        .into_iter()
        .flatten()
    {
        pulled = pulled.and(pull_all(guest, &opts.out));
    }
    let (disk, target) = result?;
    pulled?;
    let summary = Fio::read(&opts.out.join("fio.json"))?.summary();
    fs::write(opts.out.join("fio.txt"), summary + "\n")?;
    let kernel = machines.host.kernel().clone();
    for guest in [machines.target, Some(machines.host)].into_iter().flatten() {
        guest.poweroff()?;
    }
    Ok(Facts {
        options: opts.clone(),
        release: kernel.release,
        package: format!("{} {}", kernel.package, kernel.version),
        disk,
        target,
        one_clock: opts.machines == 1,
        drive_delay_ns: opts.drive_delay * 1000,
        net_delay_out_ns: out * 1000,
        net_delay_back_ns: back * 1000,
        tools,
        lost: Vec::new(),
        boot_seconds,
        total_seconds: began.elapsed().as_secs_f64(),
    })
}

fn boot(opts: &RunOpts) -> Result<Machines> {
    let mut boot = with_tools(BootOpts::new(&opts.kernel), opts.bin.as_deref())?;
    boot.out_dir = Some(opts.out.clone());
    if opts.machines == 1 {
        return Ok(Machines {
            host: Guest::boot(&boot)?,
            target: None,
        });
    }
    let (target, host) = Guest::pair(&boot)?;
    Ok(Machines {
        host,
        target: Some(target),
    })
}

/// Everything between boot and end; gives the disk and the target's address.
fn scenario(
    opts: &RunOpts,
    m: &mut Machines,
    (out, back): (u64, u64),
    tools: &mut Vec<ToolRun>,
) -> Result<(String, String)> {
    let apart = opts.machines == 2;
    let in_netns = !apart && (out, back) != (0, 0);
    let address = if apart || in_netns {
        "10.9.0.2"
    } else {
        "127.0.0.1"
    };

    sh(m.target(), &export(opts, address, in_netns), 60).context("target")?;
    let connect = format!("nvme_connect {NQN} {address} {SERVICE} '{}'", opts.connect);
    let disk = format!("c=$({connect}) || exit 1; nvme_disk \"$c\" 1");
    let disk = sh(&mut m.host, &disk, 60)
        .context("connect")?
        .trim()
        .to_owned();
    // After the connection: a delay would only slow that down.
    let host_if = if apart { "eth0" } else { "h0" };
    if out > 0 {
        sh(&mut m.host, &format!("netem {host_if} {out}"), 30)?;
    }
    if back > 0 {
        let netem = if apart {
            format!("netem eth0 {back}")
        } else {
            format!("in_tgt 'netem t0 {back}'")
        };
        sh(m.target(), &netem, 30)?;
    }

    probe(opts, m.target(), "target", tools)?;
    probe(opts, &mut m.host, "host", tools)?;
    let mut recording = Vec::new();
    for side in ["target", "host"] {
        let guest = if side == "target" {
            m.target()
        } else {
            &mut m.host
        };
        let script = format!(
            "capture_start {side} -r {side} -t {} -s {} {}",
            opts.transport, opts.sample, opts.capture_args
        );
        let started = guest.sh(&script, Duration::from_secs(90))?;
        if started.status == 0 {
            recording.push(side);
        } else {
            push_tool(
                tools,
                format!("capture {side}"),
                Some(started.status),
                &started.stderr,
            );
        }
    }

    let fio = format!(
        "fio_run {disk} --rw={} --bs={} --iodepth={} --numjobs={} \
         --time_based --runtime={} --lat_percentiles=1 {}",
        opts.rw, opts.bs, opts.iodepth, opts.jobs, opts.seconds, opts.fio
    );
    let fio = m
        .host
        .sh(&fio, Duration::from_secs(120 + 3 * opts.seconds))?;
    fs::write(opts.out.join("fio.err"), &fio.stderr)?;
    push_tool(tools, "fio".to_owned(), Some(fio.status), &fio.stderr);

    for side in ["host", "target"] {
        if recording.contains(&side) {
            let guest = if side == "target" {
                m.target()
            } else {
                &mut m.host
            };
            let name = format!("capture {side}");
            let stopped = guest.sh(&format!("capture_stop {side}"), Duration::from_secs(180))?;
            let said = guest.sh(
                &format!("tail -n 1 /out/{side}.err"),
                Duration::from_secs(30),
            )?;
            push_tool(tools, name, Some(stopped.status), &said.stdout);
        }
    }
    sh(&mut m.host, &format!("nvme_disconnect {NQN}"), 60).context("disconnect")?;
    Ok((disk, format!("{address}:{SERVICE}")))
}

/// The script that makes the drive and the port.
fn export(opts: &RunOpts, address: &str, in_netns: bool) -> String {
    let ns = opts.drive_delay * 1000;
    let drive = match opts.drive {
        Drive::Null => format!("d=$(null_blk lab {ns} 1024) || exit 1\n"),
        Drive::File => format!(
            "n=$(null_blk lab {ns} 192 1) || exit 1\n\
             d=$(file_drive $n 128) || exit 1\n"
        ),
    };
    let port = format!("nvmet_port 1 {address} {SERVICE} {NQN}");
    let port = match in_netns {
        true => format!("netns_target; in_tgt '{port}'"),
        false => port,
    };
    format!("{drive}nvmet_subsys {NQN} $d\n{port}\n")
}

fn probe(opts: &RunOpts, guest: &mut Guest, side: &str, tools: &mut Vec<ToolRun>) -> Result<()> {
    let script = format!(
        "/lab/ntp-probe -r {side} -t {} {} > /out/probe-{side}.txt 2> /out/probe-{side}.err\n\
         s=$?; tail -n 1 /out/probe-{side}.err; exit $s",
        opts.transport, opts.probe_args
    );
    let ran = guest.sh(&script, Duration::from_secs(120))?;
    push_tool(
        tools,
        format!("probe {side}"),
        Some(ran.status),
        &ran.stdout,
    );
    Ok(())
}

fn push_tool(tools: &mut Vec<ToolRun>, name: String, status: Option<i32>, said: &str) {
    let said = said.trim().lines().next_back().unwrap_or_default();
    let problem = match status {
        Some(0) => None,
        Some(s) => Some(format!("ended with {s}: {said}")),
        None => Some(said.to_owned()),
    };
    tools.push(ToolRun {
        name,
        status,
        problem,
    });
}

/// Runs a script that must succeed; gives what it printed.
fn sh(guest: &mut Guest, script: &str, seconds: u64) -> Result<String> {
    Ok(guest.sh(script, Duration::from_secs(seconds))?.ok()?.stdout)
}

/// Leaves the kernel's messages and everything in the guest's /out in `dir`.
fn pull_all(guest: &mut Guest, dir: &Path) -> Result<()> {
    sh(
        guest,
        &format!("dmesg > /out/{}.dmesg", guest.name().to_owned()),
        30,
    )?;
    guest.pull_all("/out", dir)
}

/// Whether an error means that a guest died, not that nothing could be tried.
pub fn is_lost(e: &anyhow::Error) -> bool {
    e.chain().any(|c| c.is::<GuestLost>())
}
