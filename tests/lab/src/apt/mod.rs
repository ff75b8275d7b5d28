//! A private apt: the machine's own sources and keys, but lists, downloads and
//! package status of its own in the cache folder. Needs no root and changes
//! nothing of the system; apt verifies what it fetches.

mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::say;

/// The private apt.
pub(crate) struct Apt {
    dir: PathBuf,
    /// Code name of the release this machine runs.
    pub(crate) codename: String,
    suites: Suites,
}

/// What lists it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suites {
    /// Of the release this machine runs.
    Own,
    /// Of other releases' kernels.
    Kernels,
}

/// A package that the archive has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Bytes to download.
    pub(crate) size: u64,
    /// Names of the packages it cannot do without, the first of alternatives.
    pub(crate) depends: Vec<String>,
}

impl Apt {
    /// Sets it up in `dir`, from the machine's configuration as it is now.
    pub(crate) fn open(dir: &Path, suites: Suites) -> Result<Apt> {
        let os = fs::read_to_string("/etc/os-release").context("`/etc/os-release`")?;
        let codename = sources::codename(&os)
            .context("/etc/os-release: no VERSION_CODENAME; the lab needs a Debian release")?;
        let apt = Apt {
            dir: dir.to_owned(),
            codename,
            suites,
        };
        for d in ["lists/partial", "cache/archives/partial", "debs"] {
            fs::create_dir_all(dir.join(d)).with_context(|| format!("`{}`", dir.display()))?;
        }
        apt.configure(true)?;
        Ok(apt)
    }

    fn configure(&self, backports: bool) -> Result<()> {
        let all = sources::read_all(Path::new("/etc/apt"))?;
        let mut chosen = sources::choose(&all, &self.codename, backports)?;
        if self.suites == Suites::Kernels {
            chosen = sources::of_kernels(&chosen);
        }
        let dir = self
            .dir
            .to_str()
            .context("cache folder: its name is not UTF-8")?;
        // An empty status: dependencies are resolved in full, so that what is
        // unpacked depends on no package of this machine. The hooks of the
        // machine's configuration would work on its own lists and cache.
        let mut conf = format!(
            "Dir::State::lists \"{dir}/lists\";\n\
             Dir::State::status \"{dir}/status\";\n\
             Dir::Cache \"{dir}/cache\";\n\
             Dir::Etc::sourcelist \"{dir}/lab.sources\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\n\
             Acquire::Languages \"none\";\n\
             APT::Install-Recommends \"false\";\n\
             APT::Get::Assume-Yes \"true\";\n"
        );
        for hook in [
            "APT::Update::Pre-Invoke",
            "APT::Update::Post-Invoke",
            "APT::Update::Post-Invoke-Success",
            "DPkg::Pre-Invoke",
            "DPkg::Post-Invoke",
            "Acquire::IndexTargets::deb::DEP-11",
        ] {
            conf += &format!("#clear {hook};\n");
        }
        // Root would hand downloads to a user who cannot see the cache folder.
        if nix::unistd::geteuid().is_root() {
            conf += "APT::Sandbox::User \"root\";\n";
        }
        for (name, text) in [
            ("status", ""),
            ("lab.sources", &sources::render(&chosen)),
            ("apt.conf", &conf),
        ] {
            let path = self.dir.join(name);
            fs::write(&path, text).with_context(|| format!("`{}`", path.display()))?;
        }
        Ok(())
    }

    fn command(&self, tool: &str, args: &[&str]) -> Result<String> {
        let out = Command::new(tool)
            .arg("-c")
            .arg(self.dir.join("apt.conf"))
            .args(args)
            .current_dir(self.dir.join("debs"))
            .env("LC_ALL", "C.UTF-8")
            .output()
            .with_context(|| format!("{tool}: not started; the lab needs apt"))?;
        if !out.status.success() {
            let err = String::from_utf8_lossy(&out.stderr);
            let lines: Vec<&str> = err.lines().filter(|l| l.starts_with("E:")).collect();
            bail!("{tool} {}: {}", args.join(" "), lines.join("; "));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Fetches the package lists when there are none, or anew.
    pub(crate) fn update(&self, anew: bool) -> Result<()> {
        if self.has_lists()? && !anew {
            return Ok(());
        }
        if self.suites == Suites::Kernels {
            say(format_args!(
                "fetching the lists of other releases' kernels"
            ));
            // One of the suites may be gone from the archive.
            return match self.command("apt-get", &["update", "-q"]) {
                Err(e) if !self.has_lists()? => Err(e),
                Ok(_) | Err(_) => Ok(()),
            };
        }
        say(format_args!(
            "fetching the package lists of {}",
            self.codename
        ));
        let failed = ["update", "-q", "-o", "APT::Update::Error-Mode=any"];
        if let Err(e) = self.command("apt-get", &failed) {
            // An archived release, or a mirror without backports.
            self.configure(false)?;
            if self.command("apt-get", &failed).is_err() {
                return Err(e);
            }
            say(format_args!(
                "{}-backports: not there, going on without",
                self.codename
            ));
        }
        Ok(())
    }

    fn has_lists(&self) -> Result<bool> {
        let mut lists = fs::read_dir(self.dir.join("lists"))?.flatten();
        Ok(lists.any(|e| e.file_name().to_string_lossy().contains("_Packages")))
    }

    /// Whether the package lists were fetched more than an hour ago.
    pub(crate) fn lists_are_old(&self) -> bool {
        let hour = std::time::Duration::from_secs(3600);
        let age = |dir: &Path| fs::metadata(dir).ok()?.modified().ok()?.elapsed().ok();
        age(&self.dir.join("lists")).is_none_or(|a| a > hour)
    }

    /// Names of packages that begin with `prefix`; some may only be mentioned
    /// by others.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let out = self.command("apt-cache", &["pkgnames", prefix])?;
        Ok(out.lines().map(str::to_owned).collect())
    }

    /// Every version the archive has of a package, the newest first.
    pub(crate) fn versions(&self, name: &str) -> Result<Vec<Package>> {
        // An unknown name is an error to apt-cache, and an answer to the lab.
        let out = self
            .command("apt-cache", &["show", name])
            .unwrap_or_default();
        let mut found: Vec<Package> = Vec::new();
        for stanza in out.split("\n\n") {
            let get = |field: &str| {
                stanza
                    .lines()
                    .find_map(|l| l.strip_prefix(field)?.strip_prefix(": "))
            };
            if let (Some(version), Some(size)) = (get("Version"), get("Size")) {
                found.push(Package {
                    name: name.to_owned(),
                    version: version.to_owned(),
                    size: size.parse().unwrap_or(0),
                    depends: get("Depends").map(first_names).unwrap_or_default(),
                });
            }
        }
        Ok(found)
    }

    /// Downloads one package, in that version; gives the file.
    pub(crate) fn fetch(&self, p: &Package) -> Result<PathBuf> {
        let dir = self.dir.join("debs");
        // apt-get encodes an epoch's colon; the rest is as it is.
        let prefix = format!("{}_{}_", p.name, p.version.replace(':', "%3a"));
        let find = || -> Result<Option<PathBuf>> {
            let starts = |f: &PathBuf| {
                let name = f.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&prefix) && name.ends_with(".deb")
            };
            Ok(fs::read_dir(&dir)?.flatten().map(|e| e.path()).find(starts))
        };
        // apt-get renames only what it has verified.
        if let Some(have) = find()? {
            return Ok(have);
        }
        let mib = p.size >> 20;
        say(format_args!(
            "fetching {} {} ({mib} MiB)",
            p.name, p.version
        ));
        self.command(
            "apt-get",
            &["download", "-q", &format!("{}={}", p.name, p.version)],
        )?;
        find()?.with_context(|| format!("{}: apt-get left no file", p.name))
    }

    /// Downloads packages with all they depend on; gives the files.
    pub(crate) fn fetch_closure(&self, what: &str, names: &[String]) -> Result<Vec<PathBuf>> {
        let with = |option: &str| -> Result<String> {
            let mut args = vec!["install", "-q", option];
            args.extend(names.iter().map(String::as_str));
            self.command("apt-get", &args)
        };
        let files: Vec<PathBuf> = with("--simulate")?
            .lines()
            .filter_map(file_of)
            .map(|f| self.dir.join("cache/archives").join(f))
            .collect();
        // 'URI' FILE SIZE HASH, of what is not there yet.
        let uris = with("--print-uris")?;
        let sizes: Vec<u64> = uris
            .lines()
            .filter(|l| l.starts_with('\''))
            .filter_map(|l| l.split_whitespace().nth(2)?.parse().ok())
            .collect();
        if !sizes.is_empty() {
            let mib = sizes.iter().sum::<u64>() >> 20;
            say(format_args!(
                "fetching {what} ({} packages, {mib} MiB)",
                sizes.len()
            ));
            with("--download-only")?;
        }
        match files.iter().find(|f| !f.exists()) {
            Some(missing) => bail!("`{}`: apt-get left no such file", missing.display()),
            None => Ok(files),
        }
    }

    /// Removes what was downloaded; it has been unpacked.
    pub(crate) fn clean(&self) -> Result<()> {
        self.command("apt-get", &["clean"]).map(drop)
    }
}

/// Names in a list such as `a | b, c (= 1)`: a and c.
fn first_names(depends: &str) -> Vec<String> {
    let name = |d: &str| d.split_whitespace().next().map(str::to_owned);
    depends.split(',').filter_map(name).collect()
}

/// The file of a package, from a line `Inst NAME (VERSION ARCHIVE.. [ARCH])`.
fn file_of(line: &str) -> Option<String> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
    let version = rest.split(' ').next()?;
    let arch = rest.split_once('[')?.1.split_once(']')?.0;
    // An epoch's colon is encoded; the rest is as it is.
    Some(format!("{name}_{}_{arch}.deb", version.replace(':', "%3a")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_needed() {
        let list = "dracut | initramfs-tools (>= 0.1), linux-base (= 7.3-1), kmod";
        assert_eq!(first_names(list), ["dracut", "linux-base", "kmod"]);
    }

    #[test]
    fn files_of_a_simulated_installation() {
        let line = "Inst seabios (1:1.16.3-2~bpo12+1 Debian Backports:old [all]) []";
        assert_eq!(
            file_of(line).as_deref(),
            Some("seabios_1%3a1.16.3-2~bpo12+1_all.deb")
        );
        assert_eq!(file_of("Conf seabios (1.16.3-2 Debian [all])"), None);
        assert_eq!(file_of("The following packages:"), None);
    }
}
