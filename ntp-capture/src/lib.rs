//! Records one side of NVMe over Fabrics to a stream.
//!
//! The way of a record: the kernel programs put a finished [`ntp_record::Record`]
//! into a ring buffer, [`recording`] moves it to the output in chunks. Nothing
//! is computed per record here but the progress lines ([`progress`]).

mod header;
mod limits;
mod options;
mod output;
mod progress;
mod recording;
mod source;

pub use options::Options;

use anyhow::{Result, bail};
use limits::Limits;
use ntp_ebpf::{Machine, Plan, Session, hooks};
use ntp_record::tool::{Status, warn};
use output::Output;
use recording::End;
use source::{Kernel, Source};

/// Name of the tool in its messages.
pub const TOOL: &str = "ntp-capture";

/// Records as the options say, until they, a signal, or a closed pipe end it.
///
/// # Errors
/// The machine cannot be recorded, or the output cannot be opened. An output
/// that fails later is reported and gives [`Status::Missing`]: what was written
/// until then stays.
pub fn run(options: &Options) -> Result<Status> {
    let role = options.role.into();
    let object = hooks::object(role, options.transport.into());
    // Signals count from here on: attaching takes a while.
    let limits = Limits::new(options.duration, options.interval)?;
    check_devices(options, role)?;
    Output::check(options)?;

    let machine = Machine::here(object, options.btf.as_deref())?;
    let plan = Plan::new(object, &machine.facts, options.hooks);
    if let Some(problem) = plan.problems.first() {
        bail!("{problem}; ntp-probe tells more");
    }
    let mut session = Session::load(&machine, plan, &options.programs())?;
    session.attach()?;
    // Not before it can be written to: an older recording of that name stays
    // when this one cannot begin.
    let mut output = Output::open(options)?;
    for note in session.notes() {
        warn(TOOL, note);
    }
    for (point, why) in &session.plan().missing {
        warn(TOOL, format_args!("{point} is not recorded: {why}"));
    }
    let header = header::make(options, session.plan())?;
    let mut kernel = Kernel::new(session)?;
    warn(
        TOOL,
        format_args!(
            "recording as {}, one command in {}{}; {}",
            options.role.name(),
            options.sample,
            match &options.output {
                Some(file) if file != "-" => format!(", to {file}"),
                _ => String::new(),
            },
            match options.duration {
                Some(d) => format!("for {} s", d.as_secs_f64()),
                None => "Ctrl-C to stop".into(),
            }
        ),
    );
    let mut progress = progress::Progress::new(&header, options);
    let end = recording::run(&mut kernel, &mut output, &header, &limits, &mut progress);
    kernel.close();
    finish(end?, options, output, &mut progress)
}

/// Closes the output and says on standard error what became of the recording.
fn finish(
    end: End,
    options: &Options,
    output: Output,
    progress: &mut progress::Progress,
) -> Result<Status> {
    let name = output.name().to_owned();
    let mut failed = end.failed;
    if failed.is_none() {
        failed = output.finish().err();
    }
    if let Some(error) = &failed
        && ntp_record::tool::broken_pipe(error)
    {
        return Ok(Status::Done);
    }
    progress.summary(&end.totals, options, &name);
    let lost: u64 = end.totals.lost.values().sum();
    if let Some(error) = failed {
        warn(
            TOOL,
            format_args!(
                "{}; the recording ends there, what was written until then stays readable",
                ntp_record::tool::message(&error)
            ),
        );
        return Ok(Status::Missing);
    }
    Ok(if lost > 0 {
        Status::Missing
    } else {
        Status::Done
    })
}

/// A device that is not there cannot be recorded; better said now than after an empty recording.
fn check_devices(options: &Options, role: ntp_record::Role) -> Result<()> {
    if options.session.len() > ntp_ebpf::MAX_DEVICES {
        bail!("--session: at most {} devices", ntp_ebpf::MAX_DEVICES);
    }
    for name in &options.session {
        let known = match role {
            ntp_record::Role::Host => host_devices(),
            ntp_record::Role::Target => target_devices(),
        };
        if !known.contains(name) {
            let here = match role {
                ntp_record::Role::Host => "NVMe disks here",
                ntp_record::Role::Target => "exported here",
            };
            let list = if known.is_empty() {
                "none".into()
            } else {
                known.join(", ")
            };
            bail!("{name}: no such device; {here}: {list}");
        }
    }
    Ok(())
}

/// NVMe disks and, below multipath, their path devices.
fn host_devices() -> Vec<String> {
    let mut names: Vec<String> = entries("/sys/block")
        .filter(|n| n.starts_with("nvme"))
        .collect();
    names.sort();
    names
}

/// Backing paths of the namespaces that the kernel target exports.
fn target_devices() -> Vec<String> {
    let subsystems = "/sys/kernel/config/nvmet/subsystems";
    let mut names = Vec::new();
    for subsystem in entries(subsystems) {
        let namespaces = format!("{subsystems}/{subsystem}/namespaces");
        for nsid in entries(&namespaces) {
            let path = std::fs::read_to_string(format!("{namespaces}/{nsid}/device_path"));
            names.extend(path.ok().map(|p| p.trim().to_owned()));
        }
    }
    names.sort();
    names
}

fn entries(folder: &str) -> impl Iterator<Item = String> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()))
}
