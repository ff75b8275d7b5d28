//! What a guest is made of: its options, the tools in it, its initramfs.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::cache::Prepared;
use crate::cpio::Tree;
use crate::qemu::Net;

/// The programs that scripts run in guests.
const TOOLS: [&str; 3] = ["ntp-probe", "ntp-capture", "lab-target"];

/// How a guest is made.
#[derive(Debug, Clone)]
pub struct BootOpts {
    /// Family of the kernel, such as `6.1`.
    pub kernel: String,
    /// Name in messages and of the console's file.
    pub name: String,
    /// CPUs.
    pub smp: u32,
    /// Memory.
    pub mem_mib: u32,
    /// More words for the kernel's command line.
    pub append: String,
    /// A cable to another guest; [`crate::Guest::pair`] lays one.
    pub net: Option<Net>,
    /// Files put into the guest: path here, path there. Modes are kept.
    pub files: Vec<(PathBuf, String)>,
    /// Where `NAME.console` goes; else it is kept only if the guest is lost.
    pub out_dir: Option<PathBuf>,
    /// Where `lab-agent` is; [`default_bin_dir`] if not given.
    pub bin_dir: Option<PathBuf>,
}

impl BootOpts {
    /// A guest of that kernel with two CPUs and 2 GiB.
    pub fn new(kernel: &str) -> BootOpts {
        BootOpts {
            kernel: kernel.to_owned(),
            name: "guest".to_owned(),
            smp: 2,
            mem_mib: 2048,
            append: String::new(),
            net: None,
            files: Vec::new(),
            out_dir: None,
            bin_dir: None,
        }
    }
}

/// Where the built programs are: beside the one that runs, or, for a test,
/// one folder above it.
pub fn default_bin_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("lab: where am I")?;
    let mut dirs = exe.ancestors().skip(1).take(2);
    dirs.find(|d| d.join("lab-agent").exists())
        .map(Path::to_owned)
        .with_context(|| {
            format!(
                "lab-agent: not beside `{}`; run cargo build -p ntp-lab",
                exe.display()
            )
        })
}

/// The tools of a folder (or [`default_bin_dir`]) as files of a guest's /lab.
/// One that is not built is not there, which the scripts that need it find.
pub fn with_tools(mut opts: BootOpts, bin: Option<&Path>) -> Result<BootOpts> {
    let bin = match bin {
        Some(dir) => dir.to_owned(),
        None => default_bin_dir()?,
    };
    for tool in TOOLS {
        if bin.join(tool).exists() {
            opts.files.push((bin.join(tool), format!("lab/{tool}")));
        }
    }
    // The agent may be of another build than the tools.
    if bin.join("lab-agent").exists() {
        opts.bin_dir = Some(bin);
    }
    Ok(opts)
}

/// Unix sockets' paths end at 108 bytes, whatever TMPDIR says.
pub(crate) fn short_tempdir() -> Result<TempDir> {
    let dir = std::env::temp_dir();
    let dir = if dir.as_os_str().len() > 60 {
        PathBuf::from("/tmp")
    } else {
        dir
    };
    tempfile::Builder::new()
        .prefix("lab-")
        .tempdir_in(&dir)
        .with_context(|| format!("`{}`", dir.display()))
}

pub(crate) fn write_initrd(opts: &BootOpts, prepared: &Prepared, to: &Path) -> Result<()> {
    let bin = match &opts.bin_dir {
        Some(dir) => dir.clone(),
        None => default_bin_dir()?,
    };
    let agent = bin.join("lab-agent");
    if !agent.exists() {
        bail!(
            "`{}`: not there; run cargo build -p ntp-lab",
            agent.display()
        );
    }
    let mut tree = Tree::default();
    tree.bytes("init", 0o755, include_str!("../guest/init"));
    tree.bytes("lab/lib.sh", 0o644, include_str!("../guest/lib.sh"));
    tree.file("lab/lab-agent", 0o755, &agent);
    for (from, path) in &opts.files {
        let meta = fs::metadata(from).with_context(|| format!("`{}`", from.display()))?;
        tree.file(path, meta.permissions().mode() & 0o777, from);
    }
    fs::copy(prepared.base(), to).with_context(|| format!("`{}`", prepared.base().display()))?;
    let file = fs::OpenOptions::new().append(true).open(to)?;
    let mut file = io::BufWriter::new(file);
    tree.write(&mut file)?;
    file.flush()?;
    Ok(())
}
