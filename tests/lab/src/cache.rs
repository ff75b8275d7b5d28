//! The cache folder: what guests are made of, fetched once. Everything in it
//! is made under another name and renamed when complete, under a lock, so that
//! a run that was killed leaves nothing that looks finished.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::apt::{Apt, Suites};
use crate::sysroot::{self, Sysroot};
use crate::{base, kernels, say};

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

/// A kernel that can be booted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prepared {
    /// The family asked for, such as `6.1`.
    pub family: String,
    /// The package it is from.
    pub package: String,
    /// That package's version.
    pub version: String,
    /// What `uname -r` prints.
    pub release: String,
    /// The folder of its boot image and initramfs.
    #[serde(skip)]
    pub(crate) dir: PathBuf,
    /// The folder of QEMU and the guests' programs.
    #[serde(skip)]
    pub(crate) sysroot: PathBuf,
}

impl Prepared {
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.dir.join("base.cpio")
    }
}

impl Cache {
    /// The folder is `$NTP_LAB_CACHE`, else `ntp-lab` in the user's cache
    /// folder; it is made if it is not there.
    pub fn open() -> Result<Cache> {
        let var = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let dir = var("NTP_LAB_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("ntp-lab")))
            .or_else(|| var("HOME").map(|d| d.join(".cache/ntp-lab")))
            .context("cache folder: neither HOME nor NTP_LAB_CACHE is set; set one")?;
        fs::create_dir_all(&dir).with_context(|| format!("cache folder `{}`", dir.display()))?;
        let dir = dir.canonicalize()?;
        Ok(Cache { dir })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a kernel ready to boot; fetches what is missing.
    pub fn prepare(&self, family: &str) -> Result<Prepared> {
        let names = Names::of(family)?;
        if let Some(p) = self.ready(&names) {
            return Ok(p);
        }
        let lock = self.lock()?;
        // Another run may have made it while this one waited.
        if let Some(p) = self.ready(&names) {
            return Ok(p);
        }
        self.sweep()?;
        let root = Sysroot {
            dir: self.dir.join(&names.sysroot),
        };
        self.make_sysroot(&root)?;
        let apt = self.archive(family)?;
        let (package, debs) = again(&apt, || {
            let image = kernels::choose(&apt, family)?;
            let parts = kernels::parts(&apt, &image)?;
            let debs: Result<Vec<PathBuf>> = parts.iter().map(|p| apt.fetch(p)).collect();
            Ok((image, debs?))
        })?;
        say(format_args!("making the guest of {}", package.name));
        let work = self.scratch()?;
        let made = self.scratch()?;
        let kernel = base::build(&root, &debs, work.path(), &made.path().join("base.cpio"))?;
        fs::rename(&kernel.image, made.path().join("vmlinuz"))?;
        let meta = Prepared {
            family: family.to_owned(),
            package: package.name,
            version: package.version,
            release: kernel.release,
            dir: PathBuf::new(),
            sysroot: PathBuf::new(),
        };
        fs::write(
            made.path().join("meta.json"),
            serde_json::to_vec_pretty(&meta)?,
        )?;
        let dir = self.dir.join(&names.guest);
        fs::rename(made.keep(), &dir)?;
        self.forget_older(family, &names)?;
        drop(lock);
        self.ready(&names)
            .with_context(|| format!("`{}`: vanished", dir.display()))
    }

    /// The archive that has a family's kernels.
    pub(crate) fn archive(&self, family: &str) -> Result<Apt> {
        let own = Apt::open(&self.dir.join("apt"), Suites::Own)?;
        match family != kernels::NEWEST && kernels::has(&own, family)? {
            true => Ok(own),
            false => Apt::open(&self.dir.join("apt-kernels"), Suites::Kernels),
        }
    }

    fn make_sysroot(&self, root: &Sysroot) -> Result<()> {
        if root.dir.exists() {
            return Ok(());
        }
        let apt = Apt::open(&self.dir.join("apt"), Suites::Own)?;
        apt.update(false)?;
        let made = again(&apt, || {
            let made = self.scratch()?;
            Sysroot::build(&apt, made.path())?;
            Ok(made)
        })?;
        Ok(fs::rename(made.keep(), &root.dir)?)
    }

    /// What is there already, if it is whole.
    fn ready(&self, names: &Names) -> Option<Prepared> {
        let dir = self.dir.join(&names.guest);
        let sysroot = self.dir.join(&names.sysroot);
        let meta = fs::read(dir.join("meta.json")).ok()?;
        let mut p: Prepared = serde_json::from_slice(&meta).ok()?;
        (p.dir, p.sysroot) = (dir, sysroot);
        (p.sysroot.exists() && p.base().exists() && p.image().exists()).then_some(p)
    }

    pub(crate) fn lock(&self) -> Result<Flock<fs::File>> {
        let path = self.dir.join("lock");
        let open = || fs::File::create(&path).with_context(|| format!("`{}`", path.display()));
        match Flock::lock(open()?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(lock),
            Err(_) => {
                say(format_args!("waiting for another run that fills the cache"));
                Flock::lock(open()?, FlockArg::LockExclusive)
                    .map_err(|(_, e)| anyhow::anyhow!("`{}`: not locked: {e}", path.display()))
            }
        }
    }

    /// A folder to make something in, on the same file system.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix("tmp-")
            .tempdir_in(&self.dir)
            .with_context(|| format!("`{}`", self.dir.display()))
    }

    /// Removes what runs that were killed left; nobody else holds the lock.
    pub(crate) fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("tmp-") {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes guests of this family, and sysroots, that an older lab made.
    fn forget_older(&self, family: &str, names: &Names) -> Result<()> {
        let prefix = format!("guest-{family}-");
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let old = (name.starts_with(&prefix) && name != names.guest)
                || (name.starts_with("sysroot-") && name != names.sysroot);
            if old {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Does it once more with new lists: those that are older than the archive
/// name files that are gone.
pub(crate) fn again<T>(apt: &Apt, attempt: impl Fn() -> Result<T>) -> Result<T> {
    attempt().or_else(|e| {
        if !apt.lists_are_old() {
            return Err(e);
        }
        say(format_args!("{e:#}; trying again with new package lists"));
        apt.update(true)?;
        attempt()
    })
}

/// Names of the folders, which change with everything that goes into them.
struct Names {
    sysroot: String,
    guest: String,
}

impl Names {
    fn of(family: &str) -> Result<Names> {
        let os = fs::read_to_string("/etc/os-release").context("`/etc/os-release`")?;
        let root = digest(&[&sysroot::fingerprint(&os)]);
        let pin = kernels::pin(family)
            .map(|(n, v)| format!("{n} {v}"))
            .unwrap_or_default();
        let guest = digest(&[
            &root,
            &pin,
            include_str!("base.rs"),
            include_str!("modules.rs"),
        ]);
        // A family comes from the command line: no path is made of it.
        let safe: String = family
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '.' })
            .collect();
        Ok(Names {
            sysroot: format!("sysroot-{root}"),
            guest: format!("guest-{safe}-{guest}"),
        })
    }
}

/// FNV-1a: names only, against mistakes and not against an enemy.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for b in parts.iter().flat_map(|p| p.bytes().chain([0])) {
        h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{h:016x}")
}
