//! BTF of modules that have none, from the debug information of the same
//! build, by pahole. What is made is for one build of a module: it is refused
//! for another.

use anyhow::{Context, Result, bail};
use ntp_ebpf::btf::{KernelBtf, Raw};
use ntp_ebpf::facts::{build_file, build_id};
use ntp_ebpf::hooks::Object;
use ntp_record::tool::Status;
use object::Object as _;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where distributions put debug information.
const DEBUG: &str = "/usr/lib/debug";
const KERNEL_BTF: &str = "/sys/kernel/btf";

/// Makes `dir`/MODULE for each module of `object` that has no BTF.
///
/// # Errors
/// A module is not loaded, its debug information is not found or of another
/// build, or pahole is missing or fails: nothing is left of that module.
pub(crate) fn make(
    object: &Object,
    dir: &Path,
    debug: Option<&Path>,
    out: &mut impl Write,
) -> Result<Status> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for module in object.modules {
        if Path::new(KERNEL_BTF).join(module).exists() {
            writeln!(out, "{module}: the kernel has its BTF")?;
            continue;
        }
        let Some(runs) = build_id(Path::new("/"), module) else {
            bail!(
                "module {module} is not loaded, or has no build id: modprobe {}",
                module.replace('_', "-")
            );
        };
        let file = find(module, &runs, debug)?;
        let made = dir.join(module);
        encode(&file, &made).with_context(|| format!("{}", file.display()))?;
        fs::write(build_file(&made), format!("{runs}\n"))?;
        writeln!(out, "{module}: {} from {}", made.display(), file.display())?;
    }
    writeln!(out, "use it with --btf {}", dir.display())?;
    Ok(Status::Done)
}

/// The debug information of a build of a module.
fn find(module: &str, build: &str, given: Option<&Path>) -> Result<PathBuf> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let places = match given {
        Some(path) if path.is_file() => vec![path.to_owned()],
        Some(path) => files(path, module),
        None => {
            let debug = Path::new(DEBUG);
            let (first, rest) = build.split_at(build.len().min(2));
            let mut places = files(&debug.join("lib/modules").join(release), module);
            places.extend(files(&debug.join("usr/lib/modules").join(release), module));
            places.push(debug.join(format!(".build-id/{first}/{rest}.debug")));
            places
        }
    };
    let mut other = None;
    let mut unreadable = None;
    for place in places.into_iter().filter(|place| place.is_file()) {
        match elf_build_id(&place) {
            Ok(id) if id == build => return Ok(place),
            Ok(id) => other = Some((place, id)),
            // A folder may hold more of that name, such as the BTF made before.
            Err(error) => unreadable = Some(error),
        }
    }
    if let (None, Some(error)) = (&other, unreadable) {
        return Err(error);
    }
    match other {
        Some((place, id)) => bail!(
            "{}: of the build {id}, and {build} of {module} is loaded: install the debug \
             information of the kernel that runs",
            place.display()
        ),
        None => bail!(
            "{}: no debug information of {module}: install that of the kernel (Debian: \
             linux-image-{release}-dbg), or name it with --debug",
            given.unwrap_or(Path::new(DEBUG)).display()
        ),
    }
}

/// Files below a folder that may be a module's, whichever way it is spelled.
fn files(dir: &Path, module: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().replace('-', "_");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => todo.push(path),
                _ if ["", ".ko", ".ko.debug", ".debug"]
                    .iter()
                    .any(|end| name == format!("{module}{end}")) =>
                {
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found
}

fn elf_build_id(path: &Path) -> Result<String> {
    let name = || path.display().to_string();
    let bytes = fs::read(path).with_context(name)?;
    let elf = object::File::parse(&*bytes)
        .with_context(|| format!("{}: not a module's debug information", path.display()))?;
    let id = elf.build_id().with_context(name)?;
    let id = id.with_context(|| format!("{}: has no build id", path.display()))?;
    Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Has pahole write split BTF, and reads it as recording will.
fn encode(debug: &Path, made: &Path) -> Result<()> {
    let base = Path::new(KERNEL_BTF).join("vmlinux");
    let unfinished = made.with_extension("unfinished");
    let ran = Command::new("pahole")
        .arg("--btf_encode_detached")
        .arg(&unfinished)
        .arg("--btf_base")
        .arg(&base)
        .arg(debug)
        .output();
    let ran = match ran {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            bail!("pahole: not found: install it (Debian, Fedora: the package dwarves)")
        }
        ran => ran.context("pahole")?,
    };
    let read = || -> Result<()> {
        if !ran.status.success() || !unfinished.is_file() {
            let said = String::from_utf8_lossy(&ran.stderr);
            bail!(
                "pahole: {}: {} (1.22 or later is needed)",
                ran.status,
                said.lines().next().unwrap_or("made nothing")
            );
        }
        let mut kernel = KernelBtf::read(Path::new(KERNEL_BTF))?;
        kernel.add("module", Raw::read(&unfinished)?, false)?;
        Ok(fs::rename(&unfinished, made)?)
    };
    read().inspect_err(|_| {
        // What is left of it is of no use; that it may not be there is no error.
        let _ = fs::remove_file(&unfinished);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_however_it_is_spelled() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("kernel/drivers/nvme/host");
        fs::create_dir_all(&deep).unwrap();
        for name in ["nvme-tcp.ko", "nvme_tcp.ko.debug", "nvme-tcpx.ko", "tcp.ko"] {
            fs::write(deep.join(name), "").unwrap();
        }
        let mut found = files(dir.path(), "nvme_tcp");
        found.sort();
        assert_eq!(
            found,
            [deep.join("nvme-tcp.ko"), deep.join("nvme_tcp.ko.debug")]
        );
    }

    #[test]
    fn debug_information_of_another_build_is_refused() {
        let own = std::env::current_exe().unwrap();
        let e = find("nvme_tcp", "00", Some(&own)).unwrap_err().to_string();
        // The test's own binary has a build id or none: neither is that of a module.
        assert!(
            e.contains("and 00 of nvme_tcp is loaded") || e.contains("has no build id"),
            "{e}"
        );
        let none = tempfile::tempdir().unwrap();
        let e = find("nvme_tcp", "00", Some(none.path())).unwrap_err();
        assert!(e.to_string().contains("no debug information of nvme_tcp"));
    }
}
