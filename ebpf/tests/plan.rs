//! The plan for real kernels, and for real kernels with something missing.

use ntp_ebpf::facts::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, ModuleBtf};
use ntp_ebpf::hooks::{How, Kind, OBJECTS, object};
use ntp_ebpf::plan::{Functions, Planned, ProblemKind};
use ntp_ebpf::{Facts, Plan};
use ntp_record::{Role, Transport};
use std::path::PathBuf;

fn facts(kernel: &str, role: Role) -> Facts {
    let name = match role {
        Role::Host => format!("{kernel}-host.json"),
        Role::Target => format!("{kernel}-target.json"),
    };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/facts")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn plan(role: Role, facts: &Facts) -> Plan {
    Plan::new(object(role, Transport::Tcp), facts, Functions::Best)
}

fn rdma_facts(kernel: &str, role: Role) -> Facts {
    facts(&format!("{kernel}-rdma"), role)
}

fn rdma_plan(role: Role, facts: &Facts) -> Plan {
    Plan::new(object(role, Transport::Rdma), facts, Functions::Best)
}

/// Facts with the BTF of modules from files.
fn with_files(mut f: Facts) -> Facts {
    for m in f.modules.values_mut() {
        m.btf = ModuleBtf::File("/b".into());
    }
    f
}

fn hook<'a>(p: &'a Plan, handler: &str, kind: Kind) -> &'a Planned {
    p.hooks
        .iter()
        .find(|h| h.hook.key() == (handler_static(p, handler), kind))
        .unwrap()
}

fn handler_static(p: &Plan, handler: &str) -> &'static str {
    p.object
        .hooks
        .iter()
        .map(|h| h.handler)
        .find(|h| *h == handler)
        .unwrap()
}

fn ways(p: &Plan) -> Vec<How> {
    let mut all: Vec<How> = p
        .hooks
        .iter()
        .flat_map(|h| &h.attach)
        .map(|a| a.how)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn planned(p: &Plan) -> Vec<&str> {
    p.hooks.iter().map(|h| h.hook.handler).collect()
}

#[test]
fn kernels_with_module_btf_give_every_point_by_trampolines() {
    for kernel in ["6.1", "6.1-rt", "6.12", "7.3"] {
        for role in [Role::Host, Role::Target] {
            let (mut tcp, mut rdma) = (facts(kernel, role), rdma_facts(kernel, role));
            (tcp.preemptible, rdma.preemptible) = (false, false);
            for p in [plan(role, &tcp), rdma_plan(role, &rdma)] {
                let name = format!("{kernel} {}", p.object.name);
                assert!(p.possible(), "{name}: {:?}", p.problems);
                assert!(p.missing.is_empty(), "{name}: {:?}", p.missing);
                assert_eq!(ways(&p), [How::RawTp, How::Fentry, How::Fexit], "{name}");
                let last = p.hooks.last().unwrap();
                assert!(last.hook.last && last.present());
            }
        }
    }
}

#[test]
fn sendpage_where_it_is_else_sendmsg_never_both() {
    let p = plan(Role::Host, &facts("6.1", Role::Host));
    assert!(!planned(&p).contains(&"h_sendmsg"));
    let sites = &hook(&p, "h_sendpage", Kind::Entry).attach;
    let names: Vec<&str> = sites.iter().map(|a| a.site.name).collect();
    assert_eq!(names, ["kernel_sendpage", "sock_no_sendpage"]);

    let p = plan(Role::Host, &facts("6.12", Role::Host));
    for kind in [Kind::Entry, Kind::Exit] {
        let main = hook(&p, "h_sendpage", kind);
        assert!(!main.present());
        assert_eq!(main.replaced_by, Some("h_sendmsg"));
        let other = hook(&p, "h_sendmsg", kind);
        assert_eq!(other.stands_for, Some("kernel_sendpage"));
        assert_eq!(other.attach.len(), 1);
    }
}

#[test]
fn the_target_does_not_hook_sock_no_sendpage() {
    let p = plan(Role::Target, &facts("6.1", Role::Target));
    let sites = &hook(&p, "t_sendpage", Kind::Entry).attach;
    assert_eq!(
        sites.iter().map(|a| a.site.name).collect::<Vec<_>>(),
        ["kernel_sendpage"]
    );
}

#[test]
fn without_block_bio_queue_the_request_has_the_time() {
    let mut f = facts("6.1", Role::Host);
    assert!(hook(&plan(Role::Host, &f), "h_bio_queue", Kind::Tracepoint).present());
    f.tracepoints.remove("block_bio_queue");
    let p = plan(Role::Host, &f);
    assert!(!hook(&p, "h_bio_queue", Kind::Tracepoint).present());
    assert!(!p.missing.contains_key("block_start"));
    let state = p
        .states()
        .into_iter()
        .find(|s| s.program == "h_bio_queue")
        .unwrap();
    assert_eq!(state.how, "absent");
    assert_eq!(
        state.note,
        "no such tracepoint; request.start_time_ns stands in"
    );
}

#[test]
fn modules_without_btf_are_a_problem_until_files_are_given() {
    // 5.10 has kernel BTF but none for modules.
    let mut f = facts("5.10", Role::Target);
    let p = plan(Role::Target, &f);
    let what: Vec<&str> = p.problems.iter().map(|p| p.what.as_str()).collect();
    assert_eq!(
        what,
        ["module nvmet_tcp has no BTF", "module nvmet has no BTF"]
    );
    assert!(
        p.problems
            .iter()
            .all(|p| p.remedy.contains("ntp-probe --make-btf DIR"))
    );

    f = with_files(f);
    let p = plan(Role::Target, &f);
    assert!(p.possible(), "{:?}", p.problems);
    // Functions of vmlinux still by trampoline, those of modules by kprobe.
    let init = hook(&p, "t_init", Kind::Entry);
    assert_eq!(init.attach[0].how, How::Kprobe);
    assert_eq!(
        hook(&p, "t_sendpage", Kind::Entry).attach[0].how,
        How::Fentry
    );
}

#[test]
fn a_renamed_function_is_hooked_under_its_other_name() {
    // Early 5.10 called nvmet_tcp_build_pdu_iovec so.
    let mut f = facts("5.10", Role::Target);
    let v = f.functions.remove("nvmet_tcp:nvmet_tcp_build_pdu_iovec");
    f.functions
        .insert("nvmet_tcp:nvmet_tcp_map_pdu_iovec".into(), v.unwrap());
    let h2c = plan(Role::Target, &f);
    let h2c = hook(&h2c, "t_h2c_data", Kind::Entry);
    assert_eq!(h2c.attach.len(), 1);
    assert_eq!(h2c.attach[0].site.name, "nvmet_tcp_map_pdu_iovec");
}

#[test]
fn a_tracepoint_with_another_argument_in_front_has_a_program_of_its_own() {
    // 5.10: block_bio_queue(q, bio), and block_rq_issue(rq) as later.
    for (role, main, other) in [
        (Role::Host, "h_bio_queue", "h_bio_queue_q"),
        (Role::Target, "t_bio_queue", "t_bio_queue_q"),
    ] {
        let p = plan(role, &facts("5.10", role));
        let absent = hook(&p, main, Kind::Tracepoint);
        assert_eq!(absent.why(), "has 2 arguments here, not 1");
        assert_eq!(absent.replaced_by, Some(other));
        assert!(hook(&p, other, Kind::Tracepoint).present());
        assert!(p.missing.is_empty(), "{:?}", p.missing);
        let p = plan(role, &facts("6.1", role));
        assert!(hook(&p, main, Kind::Tracepoint).present());
        assert!(!planned(&p).contains(&other));
    }
    let mut f = facts("5.10", Role::Target);
    f.tracepoints.insert("block_rq_issue".into(), Some(2));
    let p = plan(Role::Target, &f);
    assert!(hook(&p, "t_rq_issue_q", Kind::Tracepoint).present());
}

#[test]
fn a_function_with_other_arguments_is_not_hooked_where_they_count() {
    let mut f = facts("6.1", Role::Host);
    let send = f.functions.get_mut("vmlinux:kernel_sendpage").unwrap();
    assert_eq!(send.args, Some(5));
    send.args = Some(4);
    let p = plan(Role::Host, &f);
    let exit = hook(&p, "h_sendpage", Kind::Exit);
    assert_eq!(exit.why(), "has 4 arguments here, not 5");
    // Of an entry only the first argument is read.
    assert_eq!(hook(&p, "h_sendpage", Kind::Entry).attach.len(), 2);
}

#[test]
fn a_function_the_compiler_inlined_or_changed_costs_its_points_and_says_which() {
    let mut f = facts("6.12", Role::Target);
    let key = "nvmet_tcp:nvmet_tcp_build_pdu_iovec";
    f.functions.remove(key);
    let p = plan(Role::Target, &f);
    assert!(p.possible());
    assert!(p.missing.is_empty(), "t_recv_pdu gives them too");
    let h2c = hook(&p, "t_h2c_data", Kind::Entry);
    assert_eq!(h2c.why(), "not in this kernel, or inlined");

    f.renamed
        .insert(key.into(), "nvmet_tcp_build_pdu_iovec.isra.0".into());
    let p = plan(Role::Target, &f);
    assert_eq!(
        hook(&p, "t_h2c_data", Kind::Entry).absent[0].1,
        "the compiler made nvmet_tcp_build_pdu_iovec.isra.0 of it"
    );

    // A file's BTF: only the functions of modules are hooked by kprobe, and that is said.
    let p = plan(Role::Host, &with_files(facts("5.10", Role::Host)));
    assert!(p.possible());
    // nvme_core is hooked by tracepoints only: its BTF's origin costs nothing.
    assert_eq!(p.notes.len(), 1, "{:?}", p.notes);
    assert!(p.notes[0].starts_with("nvme_tcp: BTF from a file"));
    assert!(p.missing.is_empty(), "{:?}", p.missing);
}

#[test]
fn a_command_is_counted_by_kprobe_where_a_program_may_be_preempted() {
    for (kernel, how) in [
        ("6.1", How::Fentry),
        ("6.12", How::Fentry),
        ("6.1-rt", How::Kprobe),
        ("7.3", How::Kprobe),
    ] {
        let p = plan(Role::Target, &facts(kernel, Role::Target));
        assert_eq!(
            hook(&p, "t_init", Kind::Entry).attach[0].how,
            how,
            "{kernel}"
        );
        assert_eq!(
            hook(&p, "t_queue_resp", Kind::Entry).attach[0].how,
            How::Fentry
        );
    }
}

#[test]
fn kprobes_throughout_when_asked_for() {
    let object = object(Role::Target, Transport::Tcp);
    let p = Plan::new(object, &facts("6.12", Role::Target), Functions::Kprobes);
    assert!(p.possible());
    assert_eq!(ways(&p), [How::RawTp, How::Kprobe]);
    let missing: Vec<&str> = p.missing.keys().copied().collect();
    assert_eq!(missing, ["send_end"]);
}

#[test]
fn a_helper_missing_costs_the_points_it_helps_with() {
    let mut f = facts("6.12", Role::Host);
    f.functions.remove("nvme_tcp:nvme_tcp_data_ready");
    let p = plan(Role::Host, &f);
    assert!(p.possible());
    let missing: Vec<&str> = p.missing.keys().copied().collect();
    assert_eq!(missing, ["r2t_arrived", "resp_arrived"]);
}

#[test]
fn without_trampolines_entries_go_by_kprobe_and_exits_are_missing() {
    let mut f = facts("6.1", Role::Host);
    f.trampoline = Some(Err("Unknown error 524".into()));
    let p = plan(Role::Host, &f);
    assert!(p.possible());
    assert_eq!(ways(&p), [How::RawTp, How::Kprobe]);
    let missing: Vec<&str> = p.missing.keys().copied().collect();
    assert_eq!(missing, ["data_send_end", "send_end"]);
    assert!(p.notes.iter().any(|n| n.contains("524")), "{:?}", p.notes);
}

#[test]
fn a_required_hook_missing_is_a_problem() {
    let mut f = facts("6.12", Role::Target);
    f.functions.remove("vmlinux:sock_sendmsg");
    let p = plan(Role::Target, &f);
    assert_eq!(p.problems.len(), 1, "{:?}", p.problems);
    assert_eq!(p.problems[0].kind, ProblemKind::Kernel);
    assert!(
        p.problems[0].what.starts_with("kernel_sendpage: "),
        "{}",
        p.problems[0].what
    );

    let mut f = facts("6.12", Role::Host);
    f.tracepoints.remove("nvme_setup_cmd");
    let p = plan(Role::Host, &f);
    assert_eq!(p.problems[0].what, "nvme_setup_cmd: no such tracepoint");
}

#[test]
fn the_driver_not_loaded_is_said_once_with_the_command() {
    let mut f = facts("6.12", Role::Target);
    for m in f.modules.values_mut() {
        m.loaded = false;
    }
    f.functions.retain(|k, _| k.starts_with("vmlinux:"));
    let p = plan(Role::Target, &f);
    assert_eq!(p.problems.len(), 1, "{:?}", p.problems);
    assert_eq!(p.problems[0].kind, ProblemKind::NotLoaded);
    assert_eq!(
        p.problems[0].to_string(),
        "module nvmet_tcp is not loaded: modprobe nvmet-tcp"
    );
}

#[test]
fn a_built_in_driver_is_found_in_vmlinux() {
    let mut f = facts("6.12", Role::Target);
    for m in f.modules.values_mut() {
        (m.loaded, m.built_in, m.btf) = (false, true, ModuleBtf::Absent);
    }
    let functions = std::mem::take(&mut f.functions);
    for (key, v) in functions {
        let name = key.split_once(':').unwrap().1.to_owned();
        f.functions.insert(format!("vmlinux:{name}"), v);
    }
    let p = plan(Role::Target, &f);
    assert!(p.possible(), "{:?}", p.problems);
    assert!(p.missing.is_empty());
    assert!(
        p.hooks
            .iter()
            .flat_map(|h| &h.attach)
            .filter(|a| a.how != How::RawTp)
            .all(|a| a.module == "vmlinux")
    );
}

#[test]
fn capabilities_are_named_and_sys_admin_stands_for_both() {
    let mut f = facts("6.12", Role::Host);
    f.caps = 0;
    let p = plan(Role::Host, &f);
    let what: Vec<&str> = p.problems.iter().map(|p| p.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "capability cap_bpf is missing",
            "capability cap_perfmon is missing"
        ]
    );
    assert!(p.problems.iter().all(|p| p.kind == ProblemKind::Permission));

    f.caps = 1 << CAP_SYS_ADMIN;
    assert!(plan(Role::Host, &f).possible());

    // Ids of module BTF need CAP_SYS_ADMIN: kprobes on modules without it.
    f.caps = 1 << CAP_BPF | 1 << CAP_PERFMON;
    f.perf_event_paranoid = Some(2);
    let p = plan(Role::Host, &f);
    assert!(p.possible());
    assert_eq!(
        hook(&p, "h_recv_skb", Kind::Entry).attach[0].how,
        How::Kprobe
    );
    assert_eq!(
        hook(&p, "h_copy_bits", Kind::Entry).attach[0].how,
        How::Fentry
    );
}

#[test]
fn where_kprobes_need_cap_sys_admin_too_it_is_asked_for() {
    let less = |role| {
        let mut f = facts("6.12", role);
        f.caps = 1 << CAP_BPF | 1 << CAP_PERFMON;
        // As Debian sets it.
        f.perf_event_paranoid = Some(3);
        plan(role, &f)
    };
    // A host can be recorded without its functions of modules, a target cannot.
    let p = less(Role::Host);
    assert!(p.possible(), "{:?}", p.problems);
    assert!(p.missing["resp_arrived"].contains("cap_sys_admin"));
    assert!(
        p.notes[0].contains("perf_event_paranoid being 3"),
        "{:?}",
        p.notes
    );
    let p = less(Role::Target);
    assert_eq!(p.problems[0].kind, ProblemKind::Permission);
    assert!(p.problems[0].what.contains("needs cap_sys_admin"));
}

#[test]
fn an_interpreter_is_named() {
    let mut f = facts("6.12", Role::Host);
    f.jit = Some(0);
    let p = plan(Role::Host, &f);
    assert!(p.possible());
    assert!(p.notes[0].contains("bpf_jit_enable is 0"), "{:?}", p.notes);
}

#[test]
fn lockdown_by_integrity_is_fine_by_confidentiality_is_not() {
    let mut f = facts("6.12", Role::Host);
    f.lockdown = "integrity".into();
    assert!(plan(Role::Host, &f).possible());
    f.lockdown = "confidentiality".into();
    let p = plan(Role::Host, &f);
    assert_eq!(p.problems.len(), 1);
    assert!(p.problems[0].what.contains("lockdown"));
}

#[test]
fn a_name_of_several_functions_needs_btf() {
    let mut f = facts("6.12", Role::Host);
    let v = f.functions.get_mut("nvme_tcp:nvme_tcp_timeout").unwrap();
    v.copies = 2;
    assert!(hook(&plan(Role::Host, &f), "h_timeout", Kind::Entry).present());
    f.functions
        .get_mut("nvme_tcp:nvme_tcp_timeout")
        .unwrap()
        .btf = false;
    let p = plan(Role::Host, &f);
    assert_eq!(
        hook(&p, "h_timeout", Kind::Entry).why(),
        "2 functions have this name"
    );
}

#[test]
fn a_tracepoint_is_used_rather_than_a_kprobe_in_interrupts() {
    let mut f = facts("5.10", Role::Target);
    for module in ["nvmet", "nvmet_tcp"] {
        let file = ModuleBtf::File(format!("/btf/{module}").into());
        f.modules.get_mut(module).unwrap().btf = file;
    }
    let object = object(Role::Target, Transport::Tcp);
    let p = plan(Role::Target, &f);
    let tracepoint = hook(&p, "t_complete", Kind::Tracepoint);
    assert_eq!(tracepoint.stands_for, Some("nvmet_bio_done"));
    assert!(!hook(&p, "t_bio_done", Kind::Entry).present());
    assert!(p.missing.is_empty(), "{:?}", p.missing);
    let states = p.states();
    let absent = states.iter().find(|s| s.function == "nvmet_bio_done");
    let note = &absent.unwrap().note;
    assert_eq!(
        note,
        "a kprobe misses some interrupts; t_complete stands in"
    );

    // A comparison with kprobes is one; and better a kprobe than nothing.
    let kprobes = Plan::new(object, &f, Functions::Kprobes);
    f.tracepoints.remove("nvmet_req_complete");
    for p in [kprobes, plan(Role::Target, &f)] {
        assert!(hook(&p, "t_bio_done", Kind::Entry).present());
        assert!(!planned(&p).contains(&"t_complete"));
    }
    // With a trampoline there is nothing to stand in for.
    let p = plan(Role::Target, &facts("6.12", Role::Target));
    assert!(!planned(&p).contains(&"t_complete"));
    // Over RDMA an interrupt of the drive posts the response, too.
    let p = rdma_plan(Role::Target, &with_files(rdma_facts("5.10", Role::Target)));
    let post = hook(&p, "t_post", Kind::Entry);
    assert!(!post.present());
    assert_eq!(post.replaced_by, Some("t_answer"));
    assert!(hook(&p, "t_complete", Kind::Tracepoint).present());
    let p = rdma_plan(Role::Target, &rdma_facts("6.12", Role::Target));
    assert!(!planned(&p).contains(&"t_answer"));
}

#[test]
fn a_reader_of_pdus_that_is_inlined_is_told_by_its_socket_call() {
    let mut f = facts("6.12", Role::Target);
    f.functions.remove("nvmet_tcp:nvmet_tcp_try_recv_pdu");
    let p = plan(Role::Target, &f);
    assert!(p.missing.is_empty(), "{:?}", p.missing);
    let call = hook(&p, "t_recvmsg", Kind::Entry);
    assert_eq!(call.stands_for, Some("nvmet_tcp_try_recv_pdu"));
}

#[test]
fn over_rdma_5_10_lacks_only_the_return_of_the_post() {
    for role in [Role::Host, Role::Target] {
        let f = rdma_facts("5.10", role);
        let p = rdma_plan(role, &f);
        let what: Vec<&str> = p.problems.iter().map(|p| p.what.as_str()).collect();
        let modules = p.object.modules.iter();
        let said: Vec<String> = modules.map(|m| format!("module {m} has no BTF")).collect();
        assert_eq!(what, said);

        let p = rdma_plan(role, &with_files(f));
        assert!(p.possible(), "{:?}", p.problems);
        let missing: Vec<&str> = p.missing.keys().copied().collect();
        assert_eq!(missing, ["send_end"], "{role:?}");
    }
}

#[test]
fn over_rdma_no_program_waits_for_a_return_to_end_a_record() {
    for o in OBJECTS {
        let ends: Vec<_> = o.hooks.iter().filter(|h| h.ends).collect();
        assert!(ends.iter().all(|h| h.kind == Kind::Exit));
        assert_eq!(ends.is_empty(), o.name != "target_tcp", "{}", o.name);
    }
    // Whatever becomes of the exit, the record ends where the send is done.
    let mut f = rdma_facts("6.12", Role::Target);
    f.functions
        .get_mut("nvmet_rdma:nvmet_rdma_queue_response")
        .unwrap()
        .args = Some(2);
    let p = rdma_plan(Role::Target, &f);
    assert!(p.possible());
    let exit = hook(&p, "t_post", Kind::Exit);
    assert_eq!(exit.why(), "has 2 arguments here, not 1");
    f.functions.remove("nvmet_rdma:nvmet_rdma_send_done");
    let p = rdma_plan(Role::Target, &f);
    assert_eq!(p.problems.len(), 1, "{:?}", p.problems);
    assert!(p.problems[0].what.starts_with("nvmet_rdma_send_done: "));
}

#[test]
fn a_command_over_rdma_is_counted_by_kprobe_where_a_program_may_be_preempted() {
    for (kernel, how) in [
        ("6.1", How::Fentry),
        ("6.12", How::Fentry),
        ("6.1-rt", How::Kprobe),
        ("7.3", How::Kprobe),
    ] {
        let p = rdma_plan(Role::Target, &rdma_facts(kernel, Role::Target));
        let init = &hook(&p, "t_init", Kind::Entry).attach[0];
        assert_eq!((init.site.module, init.how), ("nvmet", how), "{kernel}");
    }
}

#[test]
fn the_driver_of_rdma_not_loaded_is_named() {
    for (role, words) in [
        (
            Role::Host,
            "module nvme_rdma is not loaded: modprobe nvme-rdma",
        ),
        (
            Role::Target,
            "module nvmet_rdma is not loaded: modprobe nvmet-rdma",
        ),
    ] {
        let mut f = rdma_facts("6.12", role);
        for m in f.modules.values_mut() {
            m.loaded = false;
        }
        f.functions.retain(|k, _| k.starts_with("vmlinux:"));
        let p = rdma_plan(role, &f);
        assert_eq!(p.problems.len(), 1, "{:?}", p.problems);
        assert_eq!(p.problems[0].to_string(), words);
    }
}

#[test]
fn a_completion_that_is_not_seen_costs_its_points() {
    let mut f = rdma_facts("6.12", Role::Host);
    f.functions.remove("nvme_rdma:nvme_rdma_send_done");
    f.functions.remove("nvme_rdma:nvme_rdma_inv_rkey_done");
    let p = rdma_plan(Role::Host, &f);
    assert!(p.possible());
    let missing: Vec<&str> = p.missing.keys().copied().collect();
    assert_eq!(missing, ["inv_done", "send_done", "send_late"]);
}

#[test]
fn a_real_time_kernel_whose_ring_buffer_sleeps_is_refused() {
    let mut f = facts("6.1-rt", Role::Host);
    assert!(!f.ring_sleeps);
    f.ring_sleeps = true;
    let p = plan(Role::Host, &f);
    assert_eq!(p.problems[0].kind, ProblemKind::Kernel);
    assert!(p.problems[0].what.contains("ring buffer sleeps"));
}

#[test]
fn every_hook_planned_has_a_state_for_the_header() {
    for kernel in ["6.1", "6.12", "7.3"] {
        let p = plan(Role::Host, &facts(kernel, Role::Host));
        let sites: usize = p
            .hooks
            .iter()
            .map(|h| h.attach.len() + h.absent.len())
            .sum();
        let states = p.states();
        assert_eq!(states.len(), sites);
        assert!(
            states
                .iter()
                .all(|s| (s.how == "absent") != s.note.is_empty()
                    || s.note.starts_with("stands in for "))
        );
    }
}
