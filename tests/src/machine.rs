//! A guest that serves drives to itself, and its recordings.

use crate::tools::bin_dir;
use ntp_lab::{BootOpts, Guest, with_tools};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The subsystem that most scenarios serve.
pub const NQN: &str = "nqn.2024-01.lab:drive";

/// Makes a drive of 1 GiB that answers after 60 us, and a subsystem of it.
pub const EXPORT: &str = "d=$(null_blk lab 60000 1024) && nvmet_subsys nqn.2024-01.lab:drive $d";

/// One emulator at a time: two of them on two CPUs measure each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static EMULATOR: Mutex<()> = Mutex::new(());
    EMULATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a guest with the built tools is booted.
pub fn boot(kernel: &str, out: &Path) -> BootOpts {
    let mut opts = with_tools(BootOpts::new(kernel), Some(bin_dir())).expect("tools");
    opts.out_dir = Some(out.to_owned());
    opts.files.extend(kept_btf(kernel));
    opts
}

/// Where BTF of modules that have none is kept, a folder a kernel.
pub const KEPT_BTF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/btf");

/// What is kept of a kernel's, as files of a guest.
fn kept_btf(kernel: &str) -> Vec<(PathBuf, String)> {
    let prepared = ntp_lab::Cache::open().and_then(|cache| cache.prepare(kernel));
    let dir = Path::new(KEPT_BTF).join(prepared.expect("kernel").release);
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let in_guest = |name: &std::ffi::OsStr| format!("lab/btf/{}", name.to_string_lossy());
    (files.map(|f| (f.path(), in_guest(&f.file_name())))).collect()
}

/// Runs a script that must succeed; gives what it printed.
#[track_caller]
pub fn sh(guest: &mut Guest, seconds: u64, script: &str) -> String {
    let output = guest
        .sh(script, Duration::from_secs(seconds))
        .expect("guest");
    assert_eq!(
        output.status, 0,
        "\n{script}\nstdout:\n{}\nstderr:\n{}",
        output.stdout, output.stderr
    );
    output.stdout
}

/// A guest that is host and target, and the folder for what it leaves.
#[derive(Debug)]
pub struct Machine {
    /// The guest.
    pub guest: Guest,
    out: tempfile::TempDir,
}

impl Machine {
    /// Boots one; nothing is served yet.
    pub fn boot(kernel: &str) -> Self {
        let out = tempfile::tempdir().expect("folder");
        Machine::of(&boot(kernel, out.path()), out)
    }

    /// Boots one as told, `out` being the folder for what it leaves.
    pub fn of(opts: &BootOpts, out: tempfile::TempDir) -> Self {
        let guest = Guest::boot(opts).expect("boot");
        Machine { guest, out }
    }

    /// Boots one that serves a drive over loopback; gives its disk.
    pub fn serving(kernel: &str) -> (Self, String) {
        let mut machine = Machine::boot(kernel);
        let script = format!(
            "{EXPORT} && nvmet_port 1 127.0.0.1 4420 {NQN} &&
            c=$(nvme_connect {NQN} 127.0.0.1 4420) && nvme_disk $c 1"
        );
        let disk = machine.sh(120, &script).trim().to_owned();
        (machine, disk)
    }

    /// Runs a script that must succeed; gives what it printed.
    #[track_caller]
    pub fn sh(&mut self, seconds: u64, script: &str) -> String {
        sh(&mut self.guest, seconds, script)
    }

    /// Records both sides while a script runs; gives the folder of the files.
    /// A recorder may end with status 1, lost commands: its books say how many.
    #[track_caller]
    pub fn record(&mut self, name: &str, capture: &str, load: &str) -> PathBuf {
        // Both at once: loading and detaching programs takes an emulated machine seconds.
        let start = |side| format!("capture_start {side} -r {side} -t tcp -i 0 {capture}");
        let script = format!(
            "rm -f /out/*
            ({}) & t=$!; {} || exit; wait $t || exit
            {load}
            s=$?
            (capture_stop target) & t=$!; capture_stop host; h=$?; wait $t; t=$?
            [ $h -le 1 ] && [ $t -le 1 ] ||
                {{ tail -n 20 /out/host.err /out/target.err; die \"host ended with $h, target with $t\"; }}
            exit $s",
            start("target"),
            start("host")
        );
        self.sh(400, &script);
        self.files(name)
    }

    /// What the guest has in /out, in a folder of that name here.
    #[track_caller]
    pub fn files(&mut self, name: &str) -> PathBuf {
        let dir = self.out.path().join(name);
        self.guest.pull_all("/out", &dir).expect("files");
        dir
    }

    /// Disconnects and ends the guest, whose console must tell of no trouble.
    #[track_caller]
    pub fn end(mut self) {
        self.sh(60, "nvme_disconnect");
        self.guest.poweroff().expect("no oops, no stall");
    }
}
