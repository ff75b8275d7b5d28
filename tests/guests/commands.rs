//! Every kind of command over every kind of connection.

use crate::{KERNELS, OTHERS};
use ntp_record::Flags;
use ntp_tests::check::Checked;
use ntp_tests::machine::{Machine, alone};
use ntp_tests::scenario::{COMMANDS, Scenario};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs scenarios in one guest; a name in NTP_SCENARIO picks some.
fn run(kernel: &str, samplings: &[u64], chosen: impl Fn(&Scenario) -> bool) {
    let _one = alone();
    let mut machine = Machine::boot(kernel);
    let only = std::env::var("NTP_SCENARIO").unwrap_or_default();
    let mut failed = Vec::new();
    for scenario in COMMANDS
        .iter()
        .filter(|s| chosen(s) && !s.not_on.contains(&kernel) && s.name.contains(&only))
    {
        // The others are worth knowing too: a boot is long.
        let ran = catch_unwind(AssertUnwindSafe(|| {
            for (what, checked) in scenario.run(kernel, &mut machine, samplings) {
                shows(scenario.name, &what, &checked);
            }
        }));
        if ran.is_err() {
            failed.push(scenario.name);
        }
    }
    assert!(failed.is_empty(), "failed on {kernel}: {failed:?}");
    machine.end();
}

/// What a scenario is there to show, beyond what holds for all.
fn shows(name: &str, what: &str, checked: &Checked) {
    let host = &checked.host;
    let conns: BTreeSet<u32> = host.records.iter().map(|r| r.conn).collect();
    let devices: BTreeSet<&str> = host
        .records
        .iter()
        .map(|r| host.devices[&r.dev].name.as_str())
        .collect();
    match name {
        "R2T writes of 64 KiB" | "R2T writes of 1 MiB" => {
            let of = |name: &str| -> u64 {
                let named = checked.components().filter(|c| c.component == name);
                named.map(|c| c.time.n).sum()
            };
            for component in [
                "network: wire and NICs, capsule and R2T (computed)",
                "target driver, R2T waiting for the worker",
                "host driver, sending the data",
                "network: wire and NICs, data and response (computed)",
            ] {
                assert_eq!(
                    of(component),
                    checked.joined.pairs.len() as u64,
                    "{what}: {component}"
                );
            }
            assert!(host.records.iter().all(|r| r.r2ts == 1), "{what}");
        }
        "offsets above 2^32 blocks" => {
            assert!(host.records.iter().all(|r| r.slba > 1 << 32), "{what}");
        }
        "several queues" => assert!(conns.len() >= 3, "{what}: {conns:?}"),
        "several namespaces" => assert_eq!(devices.len(), 3, "{what}: {devices:?}"),
        "several controllers of one host" | "two host NQNs, the same few blocks" => {
            assert_eq!(devices.len(), 2, "{what}: {devices:?}");
            let nqns: BTreeSet<_> = host.connections.values().map(|c| &c.hostnqn).collect();
            assert_eq!(
                nqns.len(),
                if name.starts_with("two") { 2 } else { 1 },
                "{what}"
            );
        }
        "multipath over two ports" => {
            // The head's name, and under it a path of each controller.
            assert_eq!(devices.len(), 1, "{what}: {devices:?}");
            let paths: BTreeSet<_> = host.devices.values().map(|d| &d.path).collect();
            println!("{what}: {devices:?} by {paths:?}");
            assert_eq!(paths.len(), 2, "{what}: {paths:?}");
        }
        "reads and writes with flushes" => {
            let flushes = host.records.iter().filter(|r| r.op() == "flush").count();
            assert!(flushes > 10, "{what}: {flushes} flushes");
        }
        "every other command" => {
            // Both sides tell the same end of each.
            for pair in &checked.joined.pairs {
                assert_eq!(pair.host.status, pair.target.status, "{what}: {pair:?}");
                assert!(!pair.host.has(Flags::Retried), "{what}: {pair:?}");
            }
        }
        _ => {}
    }
}

#[test]
fn telling_commands_6_1() {
    run(KERNELS[0], &[1], |s| s.always);
}

#[test]
fn telling_commands_6_12() {
    run(KERNELS[1], &[1], |s| s.always);
}

#[test]
#[ignore = "make lab-all"]
fn telling_commands_sampled_6_1() {
    run(KERNELS[0], &[16], |s| s.always);
}

#[test]
#[ignore = "make lab-all"]
fn telling_commands_sampled_6_12() {
    run(KERNELS[1], &[16], |s| s.always);
}

#[test]
#[ignore = "make lab-all"]
fn other_commands_6_1() {
    run(KERNELS[0], &[1, 16], |s| !s.always);
}

#[test]
#[ignore = "make lab-all"]
fn other_commands_6_12() {
    run(KERNELS[1], &[1, 16], |s| !s.always);
}

#[test]
#[ignore = "make lab-all"]
fn all_commands_5_10() {
    run(OTHERS[0], &[1], |_| true);
}

#[test]
#[ignore = "make lab-all"]
fn telling_commands_6_1_rt() {
    run(OTHERS[1], &[1], |s| s.always);
}

#[test]
#[ignore = "make lab-all"]
fn all_commands_7_3() {
    run(OTHERS[2], &[1], |_| true);
}
