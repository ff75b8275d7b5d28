//! The tarball alone: static tools, in a root that holds nothing else.

use ntp_tests::machine::{Machine, alone, boot};
use ntp_tests::results;
use std::path::Path;
use std::process::Command;

/// Makes the tarball, and records, joins and reports with what is in it.
fn bare(kernel: &str) {
    let _one = alone();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new("make").arg("dist").current_dir(&root).status();
    assert!(made.expect("make").success());
    let name = concat!("ntp-", env!("CARGO_PKG_VERSION"), "-x86_64-linux.tar.gz");
    let tarball = root.join("dist").join(name);

    let out = tempfile::tempdir().expect("folder");
    let mut opts = boot(kernel, out.path());
    opts.files.push((tarball, "lab/dist.tar.gz".into()));
    let mut m = Machine::of(&opts, out);
    let script = "mkdir -p /bare && tar -xzf /lab/dist.tar.gz -C /bare && mv /bare/ntp-* /bare/ntp &&
        mkdir /bare/proc /bare/sys /bare/tmp && mount -t proc p /bare/proc && mount -t sysfs s /bare/sys &&
        d=$(null_blk lab 60000 1024) && nvmet_subsys nqn.2024-01.lab:drive $d &&
        nvmet_port 1 127.0.0.1 4420 nqn.2024-01.lab:drive &&
        c=$(nvme_connect nqn.2024-01.lab:drive 127.0.0.1 4420) && disk=$(nvme_disk $c 1) || exit
        [ ! -d /lab/btf ] || cp -r /lab/btf /bare/tmp/btf; [ ! -d /lab/btf ] || BTF='--btf /tmp/btf'
        ls /bare /bare/ntp /bare/ntp/bin
        cd /bare && for side in host target; do
            chroot /bare /ntp/bin/ntp-probe -r $side $BTF | tail -n 1
        done
        for side in host target; do
            chroot /bare /ntp/bin/ntp-capture -r $side $BTF -s 1 -i 0 -d 30 -o /tmp/$side.ntp 2> /bare/tmp/$side.err &
        done
        wait_for 60 grep -q recording /bare/tmp/host.err && wait_for 60 grep -q recording /bare/tmp/target.err || exit
        fio_run $disk --rw=randread --bs=4k --iodepth=4 --number_ios=400 || exit
        wait
        chroot /bare /ntp/bin/ntp-join /tmp/host.ntp /tmp/target.ntp > joined.ntp &&
        chroot /bare /ntp/bin/ntp-stages /joined.ntp > rows && chroot /bare /ntp/bin/ntp-fmt /rows";
    let said = m.sh(180, script);
    println!("{said}");
    assert_eq!(said.matches("load: ok").count(), 2, "{said}");
    assert!(said.contains("400 commands (of 400 counted"), "{said}");
    assert!(said.contains("all with the target's side"), "{said}");
    results::note(
        &format!("{kernel}, the tarball alone"),
        "recorded, joined and reported: 400 commands",
    );
    m.end();
}

#[test]
#[ignore = "make lab-all"]
fn bare_5_10() {
    bare("5.10");
}

#[test]
#[ignore = "make lab-all"]
fn bare_6_12() {
    bare("6.12");
}
