//! Which kernel modules go into a guest: those named here and what they
//! depend on, as depmod finds it. A small initramfs boots sooner.

use std::collections::{BTreeSet, HashMap};

/// Modules by name, or, with a slash at the end, whole folders. Crypto and
/// packet schedulers are asked for by names that no dependency shows.
const WANTED: &[&str] = &[
    "arch/x86/crypto/",
    "brd",
    "crypto/",
    "configfs",
    "dm-delay",
    "dm-flakey",
    "dm-mod",
    "dummy",
    "ext4",
    "ib_core",
    "ib_uverbs",
    "ifb",
    "lib/crypto/",
    "libcrc32c",
    "loop",
    "net/sched/",
    "null_blk",
    "nvme",
    "nvme-fabrics",
    "nvme-loop",
    "nvme-rdma",
    "nvme-tcp",
    "nvmet",
    "nvmet-rdma",
    "nvmet-tcp",
    "rdma_cm",
    "rdma_rxe",
    "rdma_ucm",
    "tls",
    "veth",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "virtio_pci",
    "virtio_rng",
];

/// Folders of drivers that nothing wanted depends on, and that make up most
/// of a kernel: left packed.
pub(crate) const LEFT_OUT: &[&str] = &[
    "*/drivers/gpu",
    "*/drivers/iio",
    "*/drivers/media",
    "*/drivers/net/ethernet",
    "*/drivers/net/wireless",
    "*/drivers/scsi",
    "*/drivers/staging",
    "*/drivers/usb",
    "*/kernel/sound",
];

/// Modules without which a guest is of no use; one that is in neither list of
/// files (`modules.builtin`: built into the kernel) is named.
pub(crate) fn missing(files: &BTreeSet<String>, builtin: &str) -> Option<&'static str> {
    let names: BTreeSet<String> = files
        .iter()
        .map(String::as_str)
        .chain(builtin.lines())
        .map(name)
        .collect();
    [
        "nvme_tcp",
        "nvmet_tcp",
        "null_blk",
        "virtio_console",
        "virtio_net",
        "veth",
        "sch_netem",
    ]
    .into_iter()
    .find(|m| !names.contains(*m))
}

/// The files wanted, out of a `modules.dep`, with their dependencies.
pub(crate) fn closure(modules_dep: &str) -> BTreeSet<String> {
    let deps: HashMap<&str, &str> = modules_dep
        .lines()
        .filter_map(|l| l.split_once(':'))
        .collect();
    let mut todo: Vec<&str> = deps.keys().copied().filter(|f| wanted(f)).collect();
    let mut out = BTreeSet::new();
    while let Some(file) = todo.pop() {
        if out.insert(file.to_owned()) {
            todo.extend(
                deps.get(file)
                    .into_iter()
                    .flat_map(|d| d.split_whitespace()),
            );
        }
    }
    out
}

fn wanted(file: &str) -> bool {
    WANTED.iter().any(|w| match w.strip_suffix('/') {
        Some(_) => file
            .strip_prefix("kernel/")
            .is_some_and(|f| f.starts_with(w)),
        None => name(file) == w.replace('-', "_"),
    })
}

/// `kernel/drivers/nvme/host/nvme-tcp.ko.xz` is `nvme_tcp`.
fn name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split('.').next().unwrap_or(base).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_along_and_others_do_not() {
        let dep = "\
kernel/drivers/nvme/host/nvme-tcp.ko.xz: kernel/drivers/nvme/host/nvme-fabrics.ko.xz kernel/drivers/nvme/host/nvme-core.ko.xz
kernel/drivers/nvme/host/nvme-fabrics.ko.xz: kernel/drivers/nvme/host/nvme-core.ko.xz
kernel/drivers/nvme/host/nvme-core.ko.xz: kernel/block/t10-pi.ko.xz
kernel/block/t10-pi.ko.xz:
kernel/crypto/xor.ko.xz:
kernel/drivers/crypto/ccp/ccp.ko.xz:
kernel/fs/btrfs/btrfs.ko.xz: kernel/crypto/xor.ko.xz
";
        let files = closure(dep);
        let names: Vec<String> = files.iter().map(|f| name(f)).collect();
        assert_eq!(
            names,
            ["t10_pi", "xor", "nvme_core", "nvme_fabrics", "nvme_tcp"]
        );
        assert_eq!(missing(&files, ""), Some("nvmet_tcp"));
        assert_eq!(missing(&files, "kernel/nvmet-tcp.ko\n"), Some("null_blk"));
    }
}
