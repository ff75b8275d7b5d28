//! From facts to what is hooked and how: a pure function, so that `ntp-probe`
//! and `ntp-capture` cannot disagree and tests need no kernel.

use crate::facts::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, Facts, ModuleBtf};
use crate::hooks::{Hook, How, Kind, Need, Object, Pick, Site};
use ntp_record::Point;
use ntp_record::header::HookState;
use std::collections::BTreeMap;
use std::fmt;

/// A site that will be hooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Function or tracepoint.
    pub site: &'static Site,
    /// Module it lies in on this kernel.
    pub module: &'static str,
    /// How.
    pub how: How,
}

/// What becomes of one hook.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Row of the table.
    pub hook: &'static Hook,
    /// Where it is hooked; empty when absent.
    pub attach: Vec<Attach>,
    /// Sites not hooked, with the reason.
    pub absent: Vec<(&'static Site, String)>,
    /// Function or tracepoint this hook is used instead of.
    pub stands_for: Option<&'static str>,
    /// What is used instead of this hook.
    pub replaced_by: Option<&'static str>,
}

impl Planned {
    /// Whether it is hooked anywhere.
    pub fn present(&self) -> bool {
        !self.attach.is_empty()
    }

    /// Whether it is hooked by kprobes only.
    fn by_kprobe(&self) -> bool {
        self.present() && self.attach.iter().all(|a| a.how == How::Kprobe)
    }

    /// Why it is absent, in one line.
    pub fn why(&self) -> String {
        let mut reasons: Vec<&str> = self.absent.iter().map(|(_, r)| r.as_str()).collect();
        reasons.dedup();
        reasons.join(", ")
    }
}

/// Something in the way of recording, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind of obstacle.
    pub kind: ProblemKind,
    /// What is wrong: `object: cause`.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// Kinds of [`Problem`]. With [`ProblemKind::Permission`] nobody knows what
/// the kernel offers (exit status 2); with the others the answer is no (1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// This process may not load programs.
    Permission,
    /// The driver is not loaded; it may be later.
    NotLoaded,
    /// The kernel lacks something.
    Kernel,
}

/// What will be hooked on this machine, and what will be missing.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Object to load.
    pub object: &'static Object,
    /// Hooks in the order of attaching; a stand-in that is not needed is left
    /// out.
    pub hooks: Vec<Planned>,
    /// Points nothing will give, by name, with the reason.
    pub missing: BTreeMap<&'static str, String>,
    /// What is in the way; empty when this machine can be recorded.
    pub problems: Vec<Problem>,
    /// Things worth saying that are in nobody's way.
    pub notes: Vec<String>,
}

/// How functions are to be hooked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Functions {
    /// By trampoline, where the kernel can.
    #[default]
    Best,
    /// By kprobe throughout, to compare.
    Kprobes,
}

impl std::str::FromStr for Functions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best" => Ok(Functions::Best),
            "kprobe" => Ok(Functions::Kprobes),
            _ => Err(format!("`{text}`: use best or kprobe")),
        }
    }
}

impl Plan {
    /// Makes the plan for one object.
    pub fn new(object: &'static Object, facts: &Facts, functions: Functions) -> Self {
        let mut hooks: Vec<Planned> = Vec::new();
        let place = |hook: &'static Hook| place(hook, facts, functions);
        for hook in object.hooks {
            let Some(main) = hook.stands_for else {
                hooks.push(place(hook));
                continue;
            };
            let Some(main) = hooks.iter_mut().find(|p| p.hook.key() == main) else {
                continue;
            };
            let rather = hook.over_kprobe && functions == Functions::Best && main.by_kprobe();
            if main.present() && !rather {
                continue;
            }
            let mut planned = place(hook);
            if planned.present() {
                planned.stands_for = main.hook.sites.first().map(|s| s.name);
                main.replaced_by = Some(hook.handler);
                let kprobes = main.attach.drain(..);
                main.absent
                    .extend(kprobes.map(|a| (a.site, MISSES.to_owned())));
            }
            // Where it cannot be had either, its absence is told, unless the kprobe is there.
            if planned.present() || !main.present() {
                hooks.push(planned);
            }
        }
        let missing = missing(object, &hooks);
        let (problems, notes) = judge(object, &hooks, facts);
        Plan {
            object,
            hooks,
            missing,
            problems,
            notes,
        }
    }

    /// Whether this machine can be recorded, as far as facts tell.
    pub fn possible(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether records end at the return of a function.
    pub(crate) fn has_exit(&self) -> bool {
        self.hooks.iter().any(|p| p.hook.ends && p.present())
    }

    /// Takes out a site that turned out not to be hookable, with what that
    /// costs; false when recording cannot go without.
    pub(crate) fn drop_site(&mut self, hook: &Hook, site: &Site, why: &str) -> bool {
        let Some(p) = self.hooks.iter_mut().find(|p| p.hook.key() == hook.key()) else {
            return false;
        };
        if let Some(at) = p.attach.iter().position(|a| a.site == site) {
            let a = p.attach.remove(at);
            p.absent.push((a.site, why.to_owned()));
        }
        let enough = p.present() || p.hook.need == Need::Optional;
        self.missing = missing(self.object, &self.hooks);
        enough
    }

    /// State of every hook for the stream's header, one entry a site.
    pub fn states(&self) -> Vec<HookState> {
        let mut out = Vec::new();
        for p in &self.hooks {
            let state = |site: &Site, how: &str, note: String| HookState {
                program: p.hook.handler.to_owned(),
                function: site.name.to_owned(),
                how: how.to_owned(),
                note,
            };
            for a in &p.attach {
                let note = p
                    .stands_for
                    .map_or(String::new(), |f| format!("stands in for {f}"));
                out.push(state(a.site, a.how.name(), note));
            }
            for (site, why) in &p.absent {
                out.push(state(site, "absent", p.replacement(why)));
            }
        }
        out
    }
}

impl Planned {
    /// A reason of absence with what is used instead.
    pub fn replacement(&self, why: &str) -> String {
        match (
            self.replaced_by,
            self.hook.fallback.filter(|_| !self.present()),
        ) {
            (Some(by), _) => format!("{why}; {by} stands in"),
            (None, Some(by)) => format!("{why}; {by} stands in"),
            (None, None) => why.to_owned(),
        }
    }
}

/// Finds where a hook can be hooked.
fn place(hook: &'static Hook, facts: &Facts, functions: Functions) -> Planned {
    let mut p = Planned {
        hook,
        attach: vec![],
        absent: vec![],
        stands_for: None,
        replaced_by: None,
    };
    for site in hook.sites {
        if hook.pick == Pick::First && p.present() {
            break;
        }
        match way(hook, site, facts, functions) {
            Ok(how) => p.attach.push(Attach {
                site,
                module: facts.home(site),
                how,
            }),
            Err(why) => p.absent.push((site, why)),
        }
    }
    p
}

/// Why a kprobe is not used that could be.
const MISSES: &str = "a kprobe misses some interrupts";

/// How a site can be hooked, or why it cannot.
fn way(hook: &Hook, site: &Site, facts: &Facts, functions: Functions) -> Result<How, String> {
    let kind = hook.kind;
    let fits = |args: Option<u32>| match (hook.args, args) {
        (Some(want), Some(has)) if want != has => {
            Err(format!("has {has} arguments here, not {want}"))
        }
        _ => Ok(()),
    };
    if facts
        .modules
        .get(site.module)
        .is_some_and(|m| !m.loaded && !m.built_in)
    {
        return Err(format!("{} is not loaded", site.module));
    }
    if kind == Kind::Tracepoint {
        let Some(args) = facts.tracepoints.get(site.name) else {
            return Err("no such tracepoint".into());
        };
        return fits(*args).map(|()| How::RawTp);
    }
    let Some(f) = facts.function(site) else {
        return Err(match facts.renamed(site) {
            // The compiler changes the arguments of such copies.
            Some(copy) => format!("the compiler made {copy} of it"),
            None => "not in this kernel, or inlined".into(),
        });
    };
    fits(f.args)?;
    if f.traceable == Some(false) {
        return Err("not traceable".into());
    }
    // The id of a module's BTF object can be had with CAP_SYS_ADMIN only.
    let ids = facts.home(site) == "vmlinux" || facts.has_cap(CAP_SYS_ADMIN);
    let misses = hook.every && facts.preemptible && f.copies == 1;
    let able = functions == Functions::Best && !matches!(facts.trampoline, Some(Err(_))) && !misses;
    if f.btf && ids && able {
        return Ok(if kind == Kind::Exit {
            How::Fexit
        } else {
            How::Fentry
        });
    }
    match f.copies {
        _ if !facts.may_kprobe() => Err(NEEDS_ADMIN.into()),
        _ if kind == Kind::Exit => Err("its return can be hooked by fexit only".into()),
        1 => Ok(How::Kprobe),
        n => Err(format!("{n} functions have this name")),
    }
}

/// Points of the object's side and transport that no hook will give.
fn missing(object: &Object, hooks: &[Planned]) -> BTreeMap<&'static str, String> {
    let mut out = BTreeMap::new();
    for point in ntp_record::point::of(object.role, object.transport) {
        if let Some(why) = point_missing(*point, hooks) {
            out.insert(point.name, why);
        }
    }
    out
}

fn point_missing(point: Point, hooks: &[Planned]) -> Option<String> {
    let reason = |p: &Planned| {
        let names: Vec<&str> = p.absent.iter().map(|(s, _)| s.name).collect();
        format!("{}: {}", names.join(", "), p.why())
    };
    let givers: Vec<&Planned> = hooks
        .iter()
        .filter(|p| p.hook.gives.contains(&point))
        .collect();
    if !givers
        .iter()
        .any(|p| p.present() || p.hook.fallback.is_some())
    {
        let why: Vec<String> = givers.iter().map(|p| reason(p)).collect();
        return Some(why.join("; "));
    }
    let unhelped = hooks
        .iter()
        .filter(|p| p.hook.helps.contains(&point) && !p.present() && p.replaced_by.is_none());
    let why: Vec<String> = unhelped.map(reason).collect();
    (!why.is_empty()).then(|| why.join("; "))
}

/// What suffices. The ids of modules' BTF need CAP_SYS_ADMIN; before 5.11 maps
/// and programs are locked memory, the limit of which CAP_SYS_RESOURCE raises.
const CAPS: &str = "cap_bpf,cap_perfmon,cap_sys_admin,cap_sys_resource";

/// How to give a tool what it needs.
fn grant() -> String {
    format!("run it as root (sudo), or give it {CAPS}+ep with setcap")
}

/// Why a function is not hooked that could be, with more rights.
const NEEDS_ADMIN: &str =
    "needs cap_sys_admin (or for kprobes, kernel.perf_event_paranoid of 2 or less)";

/// What is in the way, the first thing to mend first.
fn judge(object: &Object, hooks: &[Planned], facts: &Facts) -> (Vec<Problem>, Vec<String>) {
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    let mut problem = |kind, what: String, remedy: String| {
        problems.push(Problem { kind, what, remedy });
    };
    let driver = object.modules.first().copied().unwrap_or_default();
    for (cap, name) in [(CAP_BPF, "cap_bpf"), (CAP_PERFMON, "cap_perfmon")] {
        if !facts.has_cap(cap) && !facts.has_cap(CAP_SYS_ADMIN) {
            problem(
                ProblemKind::Permission,
                format!("capability {name} is missing"),
                grant(),
            );
        }
    }
    if facts.lockdown == "confidentiality" {
        problem(
            ProblemKind::Kernel,
            "kernel lockdown is in confidentiality mode, which forbids reading kernel memory"
                .into(),
            "boot with lockdown=integrity".into(),
        );
    }
    if !facts.kernel_btf {
        problem(
            ProblemKind::Kernel,
            "/sys/kernel/btf/vmlinux: this kernel has no BTF".into(),
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF, or pass --btf DIR with its BTF as \
             DIR/vmlinux"
                .into(),
        );
    }
    if facts.ring_sleeps {
        problem(
            ProblemKind::Kernel,
            "this real-time kernel's BPF ring buffer sleeps, which would stall the machine".into(),
            "boot a newer one (Debian: 6.1) or the one without -rt".into(),
        );
    }
    if !facts.symbols {
        problem(
            ProblemKind::Permission,
            "/proc/kallsyms cannot be read".into(),
            "run it as root (sudo), with /proc mounted".into(),
        );
    }
    let absent = |m: &str| {
        facts
            .modules
            .get(m)
            .is_none_or(|m| !m.loaded && !m.built_in)
    };
    if let Some(m) = object.modules.iter().find(|m| absent(m)) {
        problem(
            ProblemKind::NotLoaded,
            format!("module {m} is not loaded"),
            format!("modprobe {}", driver.replace('_', "-")),
        );
        return (problems, notes);
    }
    let by_kprobe = |m: &str| {
        hooks
            .iter()
            .flat_map(|p| &p.attach)
            .any(|a| a.module == m && a.how == How::Kprobe)
    };
    for m in object.modules {
        let Some(module) = facts.modules.get(*m).filter(|m| !m.built_in) else {
            continue;
        };
        match module.btf {
            ModuleBtf::Absent if facts.kernel_btf => problem(
                ProblemKind::Kernel,
                format!("module {m} has no BTF"),
                "install the kernel's debug information (Debian: linux-image-$(uname -r)-dbg), \
                 make it with ntp-probe --make-btf DIR, and pass --btf DIR"
                    .into(),
            ),
            ModuleBtf::File(_) if by_kprobe(m) => notes.push(format!(
                "{m}: BTF from a file, so its functions are hooked by kprobes, which cost more and \
                 miss some interrupts"
            )),
            ModuleBtf::Absent | ModuleBtf::Kernel | ModuleBtf::File(_) => {}
        }
    }
    for p in hooks {
        let required = p.hook.need == Need::Required && p.hook.stands_for.is_none();
        if required && !p.present() && p.replaced_by.is_none() {
            let names: Vec<&str> = p.hook.sites.iter().map(|s| s.name).collect();
            let what = format!("{}: {}", names.join(", "), p.why());
            match p.absent.iter().any(|(_, why)| why == NEEDS_ADMIN) {
                true => problem(ProblemKind::Permission, what, grant()),
                false => problem(
                    ProblemKind::Kernel,
                    what,
                    "this kernel cannot be recorded".into(),
                ),
            }
        }
    }
    if !facts.has_cap(CAP_SYS_ADMIN) {
        notes.push(match facts.may_kprobe() {
            true => "without cap_sys_admin functions of modules are hooked by kprobes, which cost more \
                     and miss some interrupts"
                .into(),
            false => format!(
                "without cap_sys_admin functions of modules are not hooked, kernel.perf_event_paranoid being {}",
                facts.perf_event_paranoid.unwrap_or_default()
            ),
        });
    }
    if facts.jit == Some(0) {
        notes.push(
            "net.core.bpf_jit_enable is 0: programs are interpreted, which costs many times \
             more: sysctl net.core.bpf_jit_enable=1"
                .into(),
        );
    }
    if let Some(Err(e)) = &facts.trampoline {
        notes.push(format!(
            "fentry cannot attach ({e}): functions are hooked by kprobes"
        ));
    }
    (problems, notes)
}
