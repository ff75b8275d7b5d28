//! `lab shell`: a guest to try things in.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::boot::{BootOpts, with_tools};
use crate::guest::{Guest, Output};

/// Which guest, and what in it.
#[derive(Debug, Clone, Args)]
pub struct ShellOpts {
    /// Family of the kernel: 6.1, 6.12
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// CPUs
    #[arg(long, default_value_t = 2)]
    pub smp: u32,
    /// Files to put into the guest's /lab; a directory here is not
    #[arg(long, value_name = "FILE")]
    pub put: Vec<PathBuf>,
    /// Copy the guest's /out to this folder at the end; the console goes there too
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How long a script may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    /// Folder of the built tools; beside this program if not given
    #[arg(long, value_name = "DIR")]
    pub bin: Option<PathBuf>,
}

/// Boots a guest and runs standard input in it: on a terminal line by line,
/// else as one script. Gives the status of the last one.
pub fn shell(opts: &ShellOpts) -> Result<i32> {
    let mut boot = with_tools(BootOpts::new(&opts.kernel), opts.bin.as_deref())?;
    boot.smp = opts.smp;
    boot.out_dir = opts.out.clone();
    for file in &opts.put {
        let name = file
            .file_name()
            .with_context(|| format!("`{}`", file.display()))?;
        boot.files
            .push((file.clone(), format!("lab/{}", name.to_string_lossy())));
    }
    let mut guest = Guest::boot(&boot)?;
    let timeout = Duration::from_secs(opts.timeout);
    let mut status = 0;
    if io::stdin().is_terminal() {
        for line in prompted(guest.kernel().release.clone()) {
            status = show(&guest.sh(&line?, timeout)?)?;
        }
    } else {
        let mut script = String::new();
        io::stdin()
            .read_to_string(&mut script)
            .context("standard input")?;
        status = show(&guest.sh(&script, timeout)?)?;
    }
    if let Some(dir) = &opts.out {
        guest.pull_all("/out", dir)?;
    }
    guest.poweroff()?;
    Ok(status)
}

/// Lines of standard input, with a prompt before each. Each is a script of its
/// own: a `cd` or a variable does not last.
fn prompted(release: String) -> impl Iterator<Item = io::Result<String>> {
    let mut lines = io::stdin().lock().lines();
    let prompt = format!("{release}# ");
    std::iter::from_fn(move || {
        eprint!("{prompt}");
        lines.next()
    })
}

fn show(out: &Output) -> Result<i32> {
    io::stdout().write_all(out.stdout.as_bytes())?;
    io::stderr().write_all(out.stderr.as_bytes())?;
    Ok(out.status)
}
