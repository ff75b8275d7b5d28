//! The report, as text and as JSON, from one struct.

use crate::Load;
use anyhow::Result;
use ntp_ebpf::facts::{Facts, Module, ModuleBtf};
use ntp_ebpf::hooks::{How, Kind, Need, Site};
use ntp_ebpf::plan::{Plan, Planned};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What ntp-probe found.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    /// Kernel release.
    kernel: &'a str,
    /// vmlinux BTF can be read.
    kernel_btf: bool,
    /// How functions are hooked.
    function_hooks: String,
    /// Object of the role and transport.
    object: &'a str,
    /// Per module: `present`, `built in`, `from FILE`, `absent`, `not loaded`.
    module_btf: BTreeMap<&'a str, String>,
    hooks: Vec<Line<'a>>,
    /// Points the recording will lack, with the reason.
    missing: &'a BTreeMap<&'static str, String>,
    notes: &'a [String],
    problems: Vec<Problem<'a>>,
    /// `ok`, or `failed: ` and the reason.
    load: String,
    /// What the plan was made from.
    facts: &'a Facts,
}

/// One site of one hook.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// `ok`, or `--` when it is not hooked.
    state: &'static str,
    program: String,
    /// `raw_tp`, `fentry`, ... or `absent`.
    how: &'static str,
    /// `tracepoint` or `function`.
    kind: &'static str,
    /// Function or tracepoint.
    function: &'a str,
    required: bool,
    note: String,
}

#[derive(Debug, Serialize)]
struct Problem<'a> {
    what: &'a str,
    remedy: &'a str,
}

impl<'a> Report<'a> {
    pub(crate) fn new(facts: &'a Facts, plan: &'a Plan, load: &Load, notes: &'a [String]) -> Self {
        Report {
            kernel: &facts.kernel,
            kernel_btf: facts.kernel_btf,
            function_hooks: function_hooks(facts, plan),
            object: plan.object.name,
            module_btf: plan
                .object
                .modules
                .iter()
                .map(|m| (*m, module_btf(facts.modules.get(*m))))
                .collect(),
            hooks: plan.hooks.iter().flat_map(lines).collect(),
            missing: &plan.missing,
            notes,
            problems: plan
                .problems
                .iter()
                .map(|p| Problem {
                    what: &p.what,
                    remedy: &p.remedy,
                })
                .collect(),
            load: match load {
                Load::Ok => "ok".into(),
                Load::Failed(why) => format!("failed: {why}"),
            },
            facts,
        }
    }

    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    pub(crate) fn text(&self) -> String {
        let mut s = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut s);
        s
    }

    fn write(&self, s: &mut String) -> std::fmt::Result {
        writeln!(s, "kernel: {}", self.kernel)?;
        writeln!(
            s,
            "kernel BTF: {}",
            if self.kernel_btf { "yes" } else { "no" }
        )?;
        for (module, btf) in &self.module_btf {
            writeln!(s, "module BTF {module}: {btf}")?;
        }
        writeln!(s, "function hooks: {}\n", self.function_hooks)?;
        writeln!(s, "{}", self.object)?;
        let name = |l: &Line<'_>| match l.kind {
            "tracepoint" => format!("tracepoint {}", l.function),
            _ => l.function.to_owned(),
        };
        let program = self
            .hooks
            .iter()
            .map(|l| l.program.len())
            .max()
            .unwrap_or(0);
        let function = self.hooks.iter().map(|l| name(l).len()).max().unwrap_or(0);
        for l in &self.hooks {
            let mut tail = Vec::new();
            if l.required {
                tail.push("(required)".to_owned());
            }
            if !l.note.is_empty() {
                tail.push(format!("({})", l.note));
            }
            let line = format!(
                "  {}  {:program$}  {:function$}  {}",
                l.state,
                l.program,
                name(l),
                tail.join(" ")
            );
            writeln!(s, "{}", line.trim_end())?;
        }
        if self.missing.is_empty() {
            writeln!(s, "\nthe report will have every point")?;
        } else {
            writeln!(s, "\nthe report will lack:")?;
            let width = self.missing.keys().map(|k| k.len()).max().unwrap_or(0);
            for (point, why) in self.missing {
                writeln!(s, "  {point:width$}  {why}")?;
            }
        }
        for note in self.notes {
            writeln!(s, "note: {note}")?;
        }
        for p in &self.problems {
            writeln!(s, "problem: {}: {}", p.what, p.remedy)?;
        }
        writeln!(s, "load: {}", self.load)
    }
}

fn function_hooks(facts: &Facts, plan: &Plan) -> String {
    let used = |how| {
        plan.hooks
            .iter()
            .flat_map(|p| &p.attach)
            .any(|a| a.how == how)
    };
    let tried = match &facts.trampoline {
        Some(Ok(())) => "they can attach now".to_owned(),
        Some(Err(e)) => format!("fentry cannot attach: {e}"),
        None => "attaching was not tried".to_owned(),
    };
    match (used(How::Fentry) || used(How::Fexit), used(How::Kprobe)) {
        (true, false) => format!("fentry/fexit ({tried})"),
        (true, true) => format!("fentry/fexit where BTF allows, else kprobes ({tried})"),
        (false, true) => format!("kprobes ({tried})"),
        (false, false) => format!("none ({tried})"),
    }
}

fn module_btf(m: Option<&Module>) -> String {
    match m {
        None => "not loaded".into(),
        Some(m) if m.built_in => "built in".into(),
        Some(m) if !m.loaded => "not loaded".into(),
        Some(m) => match &m.btf {
            ModuleBtf::Kernel => "present".into(),
            ModuleBtf::File(path) => format!("from {}", path.display()),
            ModuleBtf::Absent => "absent".into(),
        },
    }
}

/// The lines of a hook: sites hooked, then sites not hooked.
fn lines(p: &Planned) -> Vec<Line<'_>> {
    let required = p.hook.need == Need::Required;
    let line = |site: &'static Site, program: String, how: &'static str, note: String| Line {
        state: if how == "absent" { "--" } else { "ok" },
        program,
        how,
        kind: if p.hook.kind == Kind::Tracepoint {
            "tracepoint"
        } else {
            "function"
        },
        function: site.name,
        required,
        note,
    };
    let used_for = p
        .stands_for
        .map_or(String::new(), |f| format!("for {f}: absent, used"));
    let ok = p.attach.iter().map(|a| {
        line(
            a.site,
            p.hook.program(a.how),
            a.how.name(),
            used_for.clone(),
        )
    });
    let absent = p.absent.iter().map(|(site, why)| {
        let how = match p.hook.kind {
            Kind::Tracepoint => How::RawTp,
            Kind::Entry => How::Fentry,
            Kind::Exit => How::Fexit,
        };
        line(site, p.hook.program(how), "absent", p.replacement(why))
    });
    ok.chain(absent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ntp_ebpf::hooks::object;
    use ntp_ebpf::plan::Functions;
    use ntp_record::{Role, Transport};

    /// Facts that ntp-ebpf's tests keep.
    fn facts(name: &str) -> Facts {
        let path = format!(
            "{}/../ebpf/tests/facts/{name}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// The report on a machine.
    fn of(facts: &Facts, role: Role, load: &Load, json: bool) -> String {
        over(Transport::Tcp, facts, role, load, json)
    }

    fn over(transport: Transport, facts: &Facts, role: Role, load: &Load, json: bool) -> String {
        let object = object(role, transport);
        let plan = Plan::new(object, facts, Functions::Best);
        let r = Report::new(facts, &plan, load, &plan.notes);
        if json { r.json().unwrap() } else { r.text() }
    }

    fn report(name: &str, role: Role, load: &Load, json: bool) -> String {
        of(&facts(name), role, load, json)
    }

    #[test]
    fn a_host_of_6_1() {
        let text = report("6.1-host", Role::Host, &Load::Ok, false);
        let head = "kernel: 6.1.0-57-amd64\n\
            kernel BTF: yes\n\
            module BTF nvme_core: present\n\
            module BTF nvme_tcp: present\n\
            function hooks: fentry/fexit (they can attach now)\n\
            \n\
            host_tcp\n";
        assert!(text.starts_with(head), "{text}");
        for line in [
            "\n  ok  h_recv_skb_fe    nvme_tcp_recv_skb\n",
            "\n  ok  h_sendpage_fe    kernel_sendpage                 (required)\n",
            "\n  ok  h_setup          tracepoint nvme_setup_cmd       (required)\n",
            "\n  ok  h_bio_queue      tracepoint block_bio_queue\n",
        ] {
            assert!(text.contains(line), "{line:?} not in\n{text}");
        }
        assert!(
            text.ends_with("\nthe report will have every point\nload: ok\n"),
            "{text}"
        );
    }

    #[test]
    fn a_host_over_rdma() {
        let mut facts = facts("6.12-rdma-host");
        let report =
            |facts: &Facts, load: &Load| over(Transport::Rdma, facts, Role::Host, load, false);
        let text = report(&facts, &Load::Ok);
        for line in [
            "\nmodule BTF nvme_rdma: present\n",
            "\nhost_rdma\n",
            "\n  ok  h_post_fe       nvme_rdma_post_send             (required)\n",
            "\n  ok  h_send_done_fe  nvme_rdma_send_done\n",
            "\nthe report will have every point\nload: ok\n",
        ] {
            assert!(text.contains(line), "{line:?} not in\n{text}");
        }

        let driver = facts.modules.get_mut("nvme_rdma").unwrap();
        driver.loaded = false;
        facts.functions.retain(|k, _| k.starts_with("vmlinux:"));
        let text = report(
            &facts,
            &Load::Failed("module nvme_rdma is not loaded".into()),
        );
        for line in [
            "\nmodule BTF nvme_rdma: not loaded\n",
            "\nproblem: module nvme_rdma is not loaded: modprobe nvme-rdma\n",
        ] {
            assert!(text.contains(line), "{line:?} not in\n{text}");
        }
    }

    #[test]
    fn a_stand_in_names_what_it_is_for_and_the_other_way_round() {
        let text = report("6.12-host", Role::Host, &Load::Ok, false);
        let squeezed: Vec<String> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "-- h_sendpage_fe kernel_sendpage (required) (not in this kernel, or inlined; h_sendmsg stands in)",
            "ok h_sendmsg_fe sock_sendmsg (required) (for kernel_sendpage: absent, used)",
        ] {
            assert!(
                squeezed.iter().any(|l| l == line),
                "{line:?} not in\n{text}"
            );
        }
    }

    #[test]
    fn what_will_be_missing_and_what_stands_in_the_way_are_listed() {
        let load = Load::Failed("module nvmet_tcp has no BTF".into());
        let text = report("5.10-target", Role::Target, &load, false);
        assert!(text.contains("\nmodule BTF nvmet_tcp: absent\n"), "{text}");
        assert!(
            text.contains("\nproblem: module nvmet_tcp has no BTF: install the kernel's debug")
        );
        assert!(text.ends_with("\nload: failed: module nvmet_tcp has no BTF\n"));
        let mut facts = facts("6.12-host");
        facts.functions.remove("nvme_tcp:nvme_tcp_data_ready");
        let text = of(&facts, Role::Host, &Load::Ok, false);
        assert!(text.contains(
            "\nthe report will lack:\n  \
             r2t_arrived   nvme_tcp_data_ready: not in this kernel, or inlined\n"
        ));
    }

    #[test]
    fn json_says_the_same() {
        let text = report("6.12-host", Role::Host, &Load::Ok, true);
        assert_eq!(text.matches('\n').count(), 1);
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(v["load"], "ok");
        assert_eq!(v["module_btf"]["nvme_tcp"], "present");
        let hooks = v["hooks"].as_array().unwrap();
        let used = hooks
            .iter()
            .find(|h| h["program"] == "h_sendmsg_fe")
            .unwrap();
        assert_eq!(used["state"], "ok");
        assert_eq!(used["how"], "fentry");
        assert_eq!(used["required"], true);
        let facts: Facts = serde_json::from_value(v["facts"].clone()).unwrap();
        assert!(facts.tracepoints.contains_key("block_bio_queue"));
    }
}
