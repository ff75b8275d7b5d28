//! The command line of QEMU: everything the lab knows about which emulation
//! holds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::cache::Prepared;
use crate::say;
use crate::sysroot::Sysroot;
use crate::wire::PORT_NAME;

/// One end of a cable between two guests: datagrams over a pair of unix
/// sockets (the older socket netdev over TCP adds 45 ms).
#[derive(Debug, Clone)]
pub struct Net {
    /// Socket of this end; at most about 100 bytes, as for any unix socket.
    pub local: PathBuf,
    /// Socket of the other end.
    pub remote: PathBuf,
    /// Hardware address.
    pub mac: String,
}

/// What a machine is made of.
pub(crate) struct Machine<'a> {
    pub(crate) name: &'a str,
    pub(crate) kernel: &'a Prepared,
    pub(crate) initrd: &'a Path,
    pub(crate) console: &'a Path,
    pub(crate) port: &'a Path,
    pub(crate) smp: u32,
    pub(crate) mem_mib: u32,
    pub(crate) append: &'a str,
    pub(crate) net: Option<&'a Net>,
}

/// `panic=-1` with `-no-reboot` ends QEMU at a panic; without `tsc=reliable`
/// 6.1 falls to a slow clock with two CPUs.
const APPEND: &str = "console=ttyS0 quiet panic=-1 oops=panic tsc=reliable";

impl Machine<'_> {
    /// The command that boots it.
    pub(crate) fn command(&self) -> Result<Command> {
        let (mut c, smp) = emulator(
            &Sysroot {
                dir: self.kernel.sysroot.clone(),
            },
            self.smp,
        )?;
        c.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        c.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
        c.args(["-m", &self.mem_mib.to_string(), "-smp", &smp.to_string()]);
        c.arg("-kernel")
            .arg(self.kernel.image())
            .arg("-initrd")
            .arg(self.initrd);
        c.arg("-append")
            .arg(format!("{APPEND} lab.name={} {}", self.name, self.append).trim_end());
        c.arg("-serial")
            .arg(format!("file:{}", escaped(self.console)));
        c.args(["-device", "virtio-serial-pci", "-chardev"]);
        c.arg(format!(
            "socket,id=lab,path={},server=on,wait=off",
            escaped(self.port)
        ));
        c.arg("-device")
            .arg(format!("virtserialport,chardev=lab,name={PORT_NAME}"));
        // A drive behind a real NVMe controller, for targets that want one.
        c.args([
            "-blockdev",
            "driver=null-co,node-name=drive,size=1073741824,read-zeroes=on",
        ]);
        c.args(["-device", "nvme,serial=lab,drive=drive"]);
        if let Some(net) = self.net {
            c.arg("-netdev").arg(format!(
                "dgram,id=n0,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                escaped(&net.local),
                escaped(&net.remote)
            ));
            c.arg("-device")
                .arg(format!("virtio-net-pci,netdev=n0,romfile=,mac={}", net.mac));
        }
        Ok(c)
    }
}

/// The sysroot's QEMU, or an installed one, and the number of CPUs it holds.
fn emulator(root: &Sysroot, smp: u32) -> Result<(Command, u32)> {
    let program = "usr/bin/qemu-system-x86_64";
    if root.has(program) {
        let mut c = root.command(program);
        for dir in ["usr/share/qemu", "usr/share/seabios"] {
            c.arg("-L").arg(root.dir.join(dir));
        }
        return Ok((c, smp));
    }
    let installed = "qemu-system-x86_64";
    if Command::new(installed).arg("--version").output().is_err() {
        bail!("qemu: the archive has no version 10 and none is installed; install qemu-system-x86");
    }
    if smp > 1 {
        say(format_args!(
            "the archive has no QEMU 10: the installed one, with one CPU a guest"
        ));
    }
    Ok((Command::new(installed), 1))
}

/// In QEMU's options a comma in a value is doubled.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
