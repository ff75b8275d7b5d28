//! Says whether this machine can be recorded, hook by hook: makes the plan
//! that ntp-capture would, loads its programs, attaches none.

mod make_btf;
mod report;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use ntp_ebpf::hooks::{self, Object};
use ntp_ebpf::plan::{Functions, ProblemKind};
use ntp_ebpf::{Facts, Machine, Plan, Session};
use ntp_record::tool::Status;
use ntp_record::{Role, Transport};
use report::Report;
use std::io::Write;
use std::path::PathBuf;

/// Can this machine be recorded? Lists every hook, loads the programs,
/// attaches none
#[derive(Debug, Parser)]
#[command(
    name = "ntp-probe",
    version,
    after_help = "Examples:\n  \
        sudo ntp-probe                    a host over TCP\n  \
        sudo ntp-probe -r target          a target over TCP\n  \
        sudo ntp-probe -t rdma            a host over RDMA\n  \
        sudo ntp-probe -r target --json   for a program to read\n  \
        sudo ntp-probe --make-btf DIR     BTF of the modules that have none\n\n\
        Exit status: 0 it can be recorded; 1 it cannot; 2 it could not be found out\n\
        (usage, permission)."
)]
pub struct Options {
    /// Side of this machine
    #[arg(short, long, value_enum, default_value = "host")]
    pub role: RoleArg,

    /// Transport
    #[arg(short, long, value_enum, default_value = "tcp")]
    pub transport: TransportArg,

    /// Folder with BTF of modules that have none of their own, as DIR/MODULE
    #[arg(long, value_name = "DIR")]
    pub btf: Option<PathBuf>,

    /// Make BTF of the modules that have none, in this folder, from their debug information
    #[arg(long, value_name = "DIR", conflicts_with_all = ["btf", "json"])]
    pub make_btf: Option<PathBuf>,

    /// Debug information for --make-btf: a module's file, or a folder of them
    #[arg(long, value_name = "PATH", requires = "make_btf")]
    pub debug: Option<PathBuf>,

    /// How functions are hooked: best, or kprobe throughout, to compare
    #[arg(long, value_name = "HOW", default_value = "best")]
    pub hooks: Functions,

    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,

    /// The whole log of the verifier for a program it refuses, on standard error
    #[arg(short, long)]
    pub verbose: bool,
}

/// [`Role`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArg {
    /// Sends commands
    Host,
    /// Has the drive
    Target,
}

/// [`Transport`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TransportArg {
    /// NVMe/TCP
    Tcp,
    /// NVMe/RDMA
    Rdma,
}

/// What became of loading.
#[derive(Debug)]
pub(crate) enum Load {
    /// Every program of the plan.
    Ok,
    /// Not tried, or refused, with the reason.
    Failed(String),
}

/// Runs the tool: facts, plan, load, report to `out`.
///
/// # Errors
/// Usage, permission, or a write that fails (exit status 2).
pub fn run(options: &Options, out: &mut impl Write) -> Result<Status> {
    let object = object(options);
    if let Some(dir) = &options.make_btf {
        return make_btf::make(object, dir, options.debug.as_deref(), out);
    }
    let machine = Machine::here(object, options.btf.as_deref())?;
    let plan = Plan::new(object, &machine.facts, options.hooks);
    if let Some(p) = plan
        .problems
        .iter()
        .find(|p| p.kind == ProblemKind::Permission)
    {
        let all: Vec<&str> = plan
            .problems
            .iter()
            .filter(|q| q.kind == ProblemKind::Permission)
            .map(|q| q.what.as_str())
            .collect();
        bail!("{}: {}", all.join(", "), p.remedy);
    }
    let (plan, load, notes) = load(&machine, plan, options.verbose)?;
    report(&machine.facts, &plan, &load, &notes, options.json, out)?;
    Ok(match load {
        Load::Ok => Status::Done,
        Load::Failed(_) => Status::Missing,
    })
}

fn object(options: &Options) -> &'static Object {
    let role = match options.role {
        RoleArg::Host => Role::Host,
        RoleArg::Target => Role::Target,
    };
    let transport = match options.transport {
        TransportArg::Tcp => Transport::Tcp,
        TransportArg::Rdma => Transport::Rdma,
    };
    hooks::object(role, transport)
}

/// Loads the plan's programs. Returns the plan as loading corrected it; an
/// error when more rights are needed to find out.
fn load(machine: &Machine, plan: Plan, verbose: bool) -> Result<(Plan, Load, Vec<String>)> {
    if let Some(p) = plan.problems.first() {
        let why = p.what.clone();
        return Ok((plan, Load::Failed(why), Vec::new()));
    }
    Ok(
        match Session::load(machine, plan.clone(), &ntp_ebpf::Options::default()) {
            Ok(s) => (s.plan().clone(), Load::Ok, s.notes().to_vec()),
            Err(e) if e.is_permission() => return Err(e.into()),
            Err(e) => {
                if let (true, Some(log)) = (verbose, e.log()) {
                    eprint!("{log}");
                }
                (plan, Load::Failed(e.to_string()), Vec::new())
            }
        },
    )
}

fn report(
    facts: &Facts,
    plan: &Plan,
    load: &Load,
    notes: &[String],
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let report = Report::new(facts, plan, load, notes);
    let text = if json { report.json()? } else { report.text() };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
