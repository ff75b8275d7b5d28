//! Packages unpacked side by side, with every library they need: QEMU and the
//! guests' programs run from it with its own dynamic linker, whatever this
//! machine has installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::say;

/// Programs that go into guests, or that prepare them.
const TOOLS: [&str; 10] = [
    "busybox-static",
    "coreutils",
    "dmsetup",
    "fio",
    "iproute2",
    "kmod",
    "libgcc-s1",
    "nvme-cli",
    "util-linux",
    "xz-utils",
];

/// QEMU, when a version is there that holds with two CPUs.
const QEMU: [&str; 4] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
];

/// Older ones lose guests with two CPUs while probes are attached.
const QEMU_MAJOR: u64 = 10;

/// Folders of libraries, below the root.
const LIB_DIRS: [&str; 3] = [
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/ceph",
];

const LINKER: &str = "lib64/ld-linux-x86-64.so.2";

/// What makes one sysroot different from another.
pub(crate) fn fingerprint(codename: &str) -> String {
    [
        codename,
        &TOOLS.join(" "),
        &QEMU.join(" "),
        include_str!("sysroot.rs"),
    ]
    .join("\n")
}

/// An unpacked tree of packages.
#[derive(Debug, Clone)]
pub(crate) struct Sysroot {
    pub(crate) dir: PathBuf,
}

impl Sysroot {
    /// Fetches and unpacks into the empty folder `dir`.
    pub(crate) fn build(apt: &Apt, dir: &Path) -> Result<Sysroot> {
        let mut wanted: Vec<String> = TOOLS.iter().map(|t| (*t).to_owned()).collect();
        let what = match newest_qemu(apt)? {
            Some((version, suite)) => {
                wanted.extend(QEMU.iter().map(|q| format!("{q}{suite}")));
                format!("QEMU {version} and the guests' programs")
            }
            None => "the guests' programs".to_owned(),
        };
        let debs = apt.fetch_closure(&what, &wanted)?;
        say(format_args!("unpacking {} packages", debs.len()));
        for deb in &debs {
            unpack(
                deb,
                dir,
                &["./usr/share/doc", "./usr/share/man", "./usr/share/locale"],
            )?;
        }
        apt.clean()?;
        Ok(Sysroot {
            dir: dir.to_owned(),
        })
    }

    /// A program of the sysroot, by its path below the root.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.command_as(program, program)
    }

    /// The same, for programs that look at the name they are called by.
    pub(crate) fn command_as(&self, program: &str, name: &str) -> Command {
        // This machine's linker and the sysroot's C library need not fit.
        let mut c = Command::new(self.dir.join(LINKER));
        c.arg("--argv0")
            .arg(name)
            .arg("--library-path")
            .arg(self.library_path());
        c.arg(self.dir.join(program));
        c
    }

    fn library_path(&self) -> String {
        let dirs = LIB_DIRS.map(|d| self.dir.join(d).display().to_string());
        dirs.join(":")
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.dir.join(path).exists()
    }

    /// The libraries that programs need, by their path below the root, with
    /// the linker.
    pub(crate) fn libraries(&self, programs: &[&str]) -> Result<BTreeSet<String>> {
        let mut libs = BTreeSet::from([LINKER.to_owned()]);
        for program in programs {
            let out = Command::new(self.dir.join(LINKER))
                .arg("--library-path")
                .arg(self.library_path())
                .arg("--list")
                .arg(self.dir.join(program))
                .output()
                .with_context(|| format!("`{}`", self.dir.join(LINKER).display()))?;
            let text = String::from_utf8_lossy(&out.stdout);
            if !out.status.success() || text.contains("not found") {
                bail!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim());
            }
            // NAME => PATH (ADDRESS)
            for path in text
                .lines()
                .filter_map(|l| l.split(" => ").nth(1)?.split(" (").next())
            {
                if let Ok(below) = Path::new(path).strip_prefix(&self.dir) {
                    libs.insert(below.display().to_string());
                }
            }
        }
        Ok(libs)
    }
}

/// The version of QEMU to take, and how to name its suite to apt.
fn newest_qemu(apt: &Apt) -> Result<Option<(String, String)>> {
    let versions = apt.versions(QEMU[0])?;
    let upstream = |v: &str| {
        let v = v.split_once(':').map_or(v, |(_, rest)| rest);
        v.split(['+', '-', '~']).next().unwrap_or(v).to_owned()
    };
    let found = versions.iter().find(|p| {
        let major = upstream(&p.version);
        major.split('.').next().and_then(|m| m.parse::<u64>().ok()) >= Some(QEMU_MAJOR)
    });
    Ok(found.map(|p| {
        let suite = match p.version.contains("~bpo") {
            true => format!("/{}-backports", apt.codename),
            false => String::new(),
        };
        (upstream(&p.version), suite)
    }))
}

/// Unpacks a package's files into `dir`, without those below `leave`.
pub(crate) fn unpack(deb: &Path, dir: &Path, leave: &[&str]) -> Result<()> {
    let leave = leave.iter().map(|l| format!("--exclude={l}"));
    unpack_with(deb, dir, leave)
}

/// Unpacks those of a package's files that match a pattern.
pub(crate) fn unpack_only(deb: &Path, dir: &Path, pattern: &str) -> Result<()> {
    unpack_with(deb, dir, ["--wildcards".into(), pattern.into()])
}

fn unpack_with(deb: &Path, dir: &Path, args: impl IntoIterator<Item = String>) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("`{}`", dir.display()))?;
    let mut source = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .context("dpkg-deb: not started")?;
    let pipe = source.stdout.take().context("dpkg-deb: no output")?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "-C"]).arg(dir);
    tar.args(args);
    let tar = tar.stdin(pipe).status().context("tar: not started")?;
    let source = source.wait()?;
    if !tar.success() || !source.success() {
        bail!("`{}`: not unpacked ({source}, tar {tar})", deb.display());
    }
    Ok(())
}
