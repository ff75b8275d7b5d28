//! Programs for the guests of one use, such as a tracer to compare with. They
//! have a sysroot of their own: the guests of everybody else stay small.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::apt::{Apt, Suites};
use crate::cache::{Cache, again, digest};
use crate::sysroot::{Sysroot, unpack, unpack_only};

impl Cache {
    /// Files of `programs` (paths below the root, as packaged) with the
    /// libraries they need, for [`BootOpts::files`](crate::BootOpts): path
    /// here, path in the guest, where programs are in /usr/bin. Fetches
    /// `packages` with all they depend on, once.
    ///
    /// # Errors
    /// A package cannot be fetched, or does not hold such a program.
    pub fn programs(&self, packages: &[&str], programs: &[&str]) -> Result<Vec<(PathBuf, String)>> {
        let root = self.unpacked(packages)?;
        let mut files = Vec::new();
        for program in programs {
            let name = program.rsplit('/').next().unwrap_or(program);
            files.push((root.dir.join(program), format!("usr/bin/{name}")));
        }
        for lib in root.libraries(programs)? {
            let below = lib.strip_prefix("usr/").unwrap_or(&lib);
            files.push((root.dir.join(&lib), format!("usr/{below}")));
        }
        Ok(files)
    }

    /// A folder with the debug information of a kernel's NVMe modules, from
    /// its -dbg package. Fetches that once: 800 MB, of which little is kept.
    ///
    /// # Errors
    /// The package cannot be fetched.
    pub fn debug_information(&self, kernel: &str) -> Result<PathBuf> {
        let prepared = self.prepare(kernel)?;
        let dir = self.dir().join(format!("debug-{}", prepared.release));
        let _lock = self.lock()?;
        if !dir.exists() {
            self.sweep()?;
            let apt = self.archive(kernel)?;
            let name = format!("{}-dbg", prepared.package);
            let versions = apt.versions(&name)?;
            let same = (versions.into_iter()).find(|p| p.version == prepared.version);
            let package = same.with_context(|| format!("{name}: not in the archive"))?;
            let deb = apt.fetch(&package)?;
            let made = self.scratch()?;
            unpack_only(&deb, made.path(), "*/drivers/nvme/*")?;
            fs::remove_file(deb)?;
            fs::rename(made.keep(), &dir)?;
        }
        Ok(dir)
    }

    /// The packages with their dependencies, unpacked.
    fn unpacked(&self, packages: &[&str]) -> Result<Sysroot> {
        let dir = self.dir().join(format!("extra-{}", digest(packages)));
        let _lock = self.lock()?;
        if !dir.exists() {
            self.sweep()?;
            let apt = Apt::open(&self.dir().join("apt"), Suites::Own)?;
            apt.update(false)?;
            let names: Vec<String> = packages.iter().map(|p| (*p).to_owned()).collect();
            let what = packages.join(", ");
            let debs = again(&apt, || apt.fetch_closure(&what, &names))?;
            let made = self.scratch()?;
            for deb in &debs {
                unpack(deb, made.path(), &["./usr/share"])?;
            }
            apt.clean()?;
            fs::rename(made.keep(), &dir)?;
        }
        Ok(Sysroot { dir })
    }
}
