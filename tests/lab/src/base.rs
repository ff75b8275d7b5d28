//! The part of an initramfs that stays the same from boot to boot: busybox,
//! the real tools, their libraries, and one kernel's modules.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cpio::Tree;
use crate::modules;
use crate::sysroot::{Sysroot, unpack};

/// Programs: path in the sysroot, path in the guest. All of a guest's
/// programs are in /usr/bin; /bin, /sbin and /usr/sbin lead there.
const PROGRAMS: &[(&str, &str)] = &[
    ("bin/kmod", "usr/bin/kmod"),
    ("bin/ip", "usr/bin/ip"),
    ("bin/ss", "usr/bin/ss"),
    ("sbin/dmsetup", "usr/bin/dmsetup"),
    ("sbin/tc", "usr/bin/tc"),
    ("usr/bin/chrt", "usr/bin/chrt"),
    // Busybox has an env of its own, without --default-signal.
    ("usr/bin/env", "usr/bin/genv"),
    ("usr/bin/fio", "usr/bin/fio"),
    ("usr/bin/rdma", "usr/bin/rdma"),
    // Busybox has one that keeps the user.
    ("usr/bin/setpriv", "usr/bin/setpriv"),
    ("usr/sbin/nvme", "usr/bin/nvme"),
];

/// Names of kmod; the kernel itself runs /sbin/modprobe.
const KMOD: &[&str] = &["depmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod"];

/// Libraries the freshly built tools need, besides what the programs do.
const FOR_TOOLS: &[&str] = &[
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
];

/// A kernel, ready to be put into a guest.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` prints it.
    pub(crate) release: String,
    /// The boot image.
    pub(crate) image: PathBuf,
}

/// Unpacks a kernel's packages below `work`, and writes the initramfs to `out`.
pub(crate) fn build(
    sysroot: &Sysroot,
    debs: &[PathBuf],
    work: &Path,
    out: &Path,
) -> Result<Kernel> {
    let tree = work.join("kernel");
    for deb in debs {
        unpack(deb, &tree, modules::LEFT_OUT)?;
    }
    // From 7.x on below usr; depmod looks in lib.
    if !tree.join("lib/modules").exists() && tree.join("usr/lib/modules").exists() {
        fs::create_dir_all(tree.join("lib"))?;
        fs::rename(tree.join("usr/lib/modules"), tree.join("lib/modules"))?;
    }
    let release = only_entry(&tree.join("lib/modules"))?;
    let chosen = work.join("chosen");
    choose_modules(sysroot, &tree, &release, &chosen)?;

    let mut cpio = skeleton();
    add_busybox(sysroot, &mut cpio)?;
    add_programs(sysroot, &mut cpio)?;
    add_dir(
        &mut cpio,
        &chosen,
        &format!("lib/modules/{release}"),
        "usr/",
    )?;
    let file = fs::File::create(out).with_context(|| format!("`{}`", out.display()))?;
    let mut file = BufWriter::new(file);
    cpio.write(&mut file)?;
    file.flush()?;

    let image = [
        format!("boot/vmlinuz-{release}"),
        format!("lib/modules/{release}/vmlinuz"),
    ]
    .map(|p| tree.join(p))
    .into_iter()
    .find(|p| p.exists())
    .with_context(|| format!("kernel {release}: no vmlinuz in its packages"))?;
    Ok(Kernel { release, image })
}

fn skeleton() -> Tree {
    let mut t = Tree::default();
    for dir in [
        "dev",
        "etc",
        "lab",
        "mnt",
        "out",
        "proc",
        "run",
        "sys",
        "tmp",
        "var",
        "usr/lib64",
    ] {
        t.dir(dir);
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/bin"),
        ("usr/sbin", "bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        ("var/run", "../run"),
    ] {
        t.link(link, target);
    }
    t.bytes("etc/passwd", 0o644, *b"root:x:0:0:root:/:/bin/sh\n");
    t.bytes("etc/group", 0o644, *b"root:x:0:\n");
    t.bytes("etc/hosts", 0o644, *b"127.0.0.1 localhost\n");
    t
}

fn add_busybox(sysroot: &Sysroot, cpio: &mut Tree) -> Result<()> {
    let busybox = sysroot.dir.join("bin/busybox");
    let out = Command::new(&busybox)
        .arg("--list")
        .output()
        .with_context(|| format!("`{}`", busybox.display()))?;
    for applet in String::from_utf8_lossy(&out.stdout).split_whitespace() {
        if applet != "busybox" {
            cpio.link(&format!("usr/bin/{applet}"), "busybox");
        }
    }
    cpio.file("usr/bin/busybox", 0o755, &busybox);
    Ok(())
}

/// After busybox: the real programs take the place of its applets.
fn add_programs(sysroot: &Sysroot, cpio: &mut Tree) -> Result<()> {
    let mut from = Vec::new();
    for (path, guest) in PROGRAMS {
        cpio.file(guest, 0o755, &sysroot.dir.join(path));
        from.push(*path);
    }
    for name in KMOD {
        cpio.link(&format!("usr/bin/{name}"), "kmod");
    }
    let mut libs = sysroot.libraries(&from)?;
    libs.extend(
        FOR_TOOLS
            .iter()
            .map(|l| format!("lib/x86_64-linux-gnu/{l}")),
    );
    for lib in libs {
        let guest = match lib.strip_prefix("usr/") {
            Some(_) => lib.clone(),
            None => format!("usr/{lib}"),
        };
        cpio.file(&guest, 0o755, &sysroot.dir.join(&lib));
    }
    Ok(())
}

/// Puts the modules a guest needs into `chosen`, unpacked, with their index.
fn choose_modules(sysroot: &Sysroot, tree: &Path, release: &str, chosen: &Path) -> Result<()> {
    depmod(sysroot, tree, release)?;
    let from = tree.join("lib/modules").join(release);
    let to = chosen.join("lib/modules").join(release);
    let files = modules::closure(&fs::read_to_string(from.join("modules.dep"))?);
    // The packages from 7.x on do not say what is built in.
    if let Ok(builtin) = fs::read_to_string(from.join("modules.builtin"))
        && let Some(module) = modules::missing(&files, &builtin)
    {
        bail!("kernel {release}: has no module {module}");
    }
    for file in &files {
        // A kernel in a guest has no time to unpack modules.
        let plain = to.join(file.strip_suffix(".xz").unwrap_or(file));
        if let Some(dir) = plain.parent() {
            fs::create_dir_all(dir)?;
        }
        if file.ends_with(".xz") {
            let status = sysroot
                .command("usr/bin/xz")
                .arg("-dc")
                .arg(from.join(file))
                .stdout(fs::File::create(&plain)?)
                .status()?;
            if !status.success() {
                bail!("`{file}`: not unpacked: xz {status}");
            }
        } else {
            fs::copy(from.join(file), &plain)?;
        }
    }
    for name in [
        "modules.builtin",
        "modules.builtin.modinfo",
        "modules.order",
    ] {
        let text = match fs::read(from.join(name)) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e.into()),
        };
        if name == "modules.order" {
            let text = String::from_utf8_lossy(&text).replace(".ko.xz\n", ".ko\n");
            fs::write(to.join(name), text)?;
        } else {
            fs::write(to.join(name), text)?;
        }
    }
    depmod(sysroot, chosen, release)
}

fn depmod(sysroot: &Sysroot, tree: &Path, release: &str) -> Result<()> {
    let out = sysroot
        .command_as("bin/kmod", "depmod")
        .arg("-b")
        .arg(tree)
        .arg(release)
        .output()?;
    if !out.status.success() {
        bail!(
            "depmod: {release}: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(())
}

/// Every file below `root`/`path`, at `prefix` in the guest.
fn add_dir(cpio: &mut Tree, root: &Path, path: &str, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(root.join(path)).with_context(|| format!("`{path}`"))? {
        let entry = entry?;
        let below = format!("{path}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add_dir(cpio, root, &below, prefix)?;
        } else {
            cpio.file(&format!("{prefix}{below}"), 0o644, &entry.path());
        }
    }
    Ok(())
}

fn only_entry(dir: &Path) -> Result<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .with_context(|| format!("`{}`", dir.display()))?
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => bail!("`{}`: not one kernel's modules", dir.display()),
    }
}
