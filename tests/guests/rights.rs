//! What a process may not do here is named, with what helps, in one line; and
//! the capabilities that suffice do.

use ntp_tests::machine::{Machine, alone};

/// A process of this user with these capabilities and no others.
fn as_user(caps: &str) -> String {
    let caps: String = caps.split_whitespace().map(|c| format!(",+{c}")).collect();
    let caps = format!("-all{caps}");
    format!("/usr/bin/setpriv --reuid=1000 --clear-groups --inh-caps={caps} --ambient-caps={caps}")
}

/// Status and last line of a tool.
fn says(m: &mut Machine, what: &str, command: &str) -> String {
    let script = format!("{command} > /tmp/said 2>&1; echo \"$? $(tail -n 1 /tmp/said)\"");
    let said = m.sh(60, &script);
    println!("{what}: {}", said.trim());
    said.trim().to_owned()
}

const PROBE: &str = "/lab/ntp-probe $BTF";
const CAPTURE: &str = "/lab/ntp-capture $BTF -i 0 -d 1 -o /tmp/x.ntp";

fn rights(kernel: &str) {
    let _one = alone();
    let mut m = Machine::boot(kernel);
    m.sh(
        60,
        "modprobe -a nvme-tcp nvmet-tcp && chmod 755 /lab /lab/ntp-*; mount -t securityfs s /sys/kernel/security",
    );
    let old = kernel == "5.10";
    let memlock =
        "2 ntp-probe: locked memory: 65536 bytes are not enough: give it cap_sys_resource";
    let cases = [
        (
            "",
            PROBE,
            "2 ntp-probe: capability cap_bpf is missing, capability cap_perfmon",
        ),
        (
            "",
            CAPTURE,
            "2 ntp-capture: capability cap_bpf is missing: run it as root",
        ),
        (
            "bpf",
            PROBE,
            "2 ntp-probe: capability cap_perfmon is missing",
        ),
        (
            "bpf perfmon",
            PROBE,
            if old { memlock } else { "0 load: ok" },
        ),
        (
            "bpf perfmon sys_resource",
            "/lab/ntp-probe -r target $BTF",
            "2 ntp-probe: nvmet_tcp_queue_response: needs cap_sys_admin",
        ),
        (
            "bpf perfmon sys_admin",
            PROBE,
            if old { memlock } else { "0 load: ok" },
        ),
        ("bpf perfmon sys_admin sys_resource", PROBE, "0 load: ok"),
        (
            "bpf perfmon sys_admin sys_resource",
            CAPTURE,
            "0 ntp-capture: 0 records written",
        ),
    ];
    for (caps, tool, right) in cases {
        let what = format!("{kernel}, capabilities: {caps}");
        let said = says(
            &mut m,
            &what,
            &format!("rm -f /tmp/x.ntp; {} {tool}", as_user(caps)),
        );
        assert!(said.starts_with(right), "{what}: {said}");
    }

    let off = m.sh(60, "echo 0 > /proc/sys/net/core/bpf_jit_enable; ntp-probe $BTF; echo 1 > /proc/sys/net/core/bpf_jit_enable");
    assert!(off.contains("note: net.core.bpf_jit_enable is 0"), "{off}");
    assert!(off.ends_with("load: ok\n"), "{off}");

    // No tracefs, as in a container: nothing depends on it.
    let said = says(
        &mut m,
        &format!("{kernel}, no tracefs"),
        &format!("umount /sys/kernel/tracing /sys/kernel/debug 2> /dev/null; {PROBE}"),
    );
    assert_eq!(said, "0 load: ok");

    // A boot goes only further.
    m.sh(10, "echo integrity > /sys/kernel/security/lockdown");
    for (tool, right) in [(PROBE, "0 load: ok"), (CAPTURE, "0 ntp-capture: 0 records")] {
        let said = says(&mut m, &format!("{kernel}, lockdown integrity"), tool);
        assert!(said.starts_with(right), "{said}");
    }
    m.sh(10, "echo confidentiality > /sys/kernel/security/lockdown");
    for (tool, right) in [
        (
            PROBE,
            "1 load: failed: kernel lockdown is in confidentiality mode",
        ),
        (
            CAPTURE,
            "2 ntp-capture: kernel lockdown is in confidentiality mode",
        ),
    ] {
        let said = says(&mut m, &format!("{kernel}, lockdown confidentiality"), tool);
        assert!(said.starts_with(right), "{said}");
    }
    m.end();
}

#[test]
#[ignore = "make lab-all"]
fn rights_5_10() {
    rights("5.10");
}

#[test]
#[ignore = "make lab-all"]
fn rights_6_12() {
    rights("6.12");
}
