//! Programs for the guests of one use, such as a tracer to compare with. They
//! have a sysroot of their own: the guests of everybody else stay small.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::apt::Apt;
use crate::cache::{Cache, digest};
use crate::say;
use crate::sysroot::{Sysroot, unpack};

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

    /// The packages with their dependencies, unpacked.
    fn unpacked(&self, packages: &[&str]) -> Result<Sysroot> {
        let dir = self.dir().join(format!("extra-{}", digest(packages)));
        let _lock = self.lock()?;
        if !dir.exists() {
            self.sweep()?;
            let apt = Apt::open(&self.dir().join("apt"))?;
            apt.update(false)?;
            let names: Vec<String> = packages.iter().map(|p| (*p).to_owned()).collect();
            let what = packages.join(", ");
            let debs = apt.fetch_closure(&what, &names).or_else(|e| {
                // Lists that are older than the archive name files that are gone.
                if !apt.lists_are_old() {
                    return Err(e);
                }
                say(format_args!("{e:#}; trying again with new package lists"));
                apt.update(true)?;
                apt.fetch_closure(&what, &names)
            })?;
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
