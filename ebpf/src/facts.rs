//! What this machine has: reads only, judges nothing.
//!
//! [`crate::plan`] decides from it. Facts can be written and read as JSON, so
//! that those of real kernels serve as test data.

use crate::btf::{BtfError, KernelBtf, Raw};
use crate::error::LoadError;
use crate::hooks::{Kind, Object, Site};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Facts about a kernel, as far as one object's hooks need them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `uname -r`.
    pub kernel: String,
    /// vmlinux BTF can be read.
    pub kernel_btf: bool,
    /// Modules of the object, and what is known of each.
    pub modules: BTreeMap<String, Module>,
    /// Functions of the hooks that the kernel has, by module and name.
    pub functions: BTreeMap<String, Function>,
    /// Functions of the hooks that have no symbol of their own, by module and
    /// name: a copy the compiler made, such as `NAME.isra.0`.
    #[serde(default)]
    pub renamed: BTreeMap<String, String>,
    /// Tracepoints of the hooks that the kernel has, and how many arguments
    /// each has, as far as BTF tells.
    pub tracepoints: BTreeMap<String, Option<u32>>,
    /// Symbols could be read; without them presence is unknown.
    pub symbols: bool,
    /// Tasks lose the CPU in the middle of kernel code, and so of a trampoline's
    /// program, which the kernel then skips for whoever runs there meanwhile.
    /// True where that cannot be found out.
    #[serde(default)]
    pub preemptible: bool,
    /// A real-time kernel of which the ring buffer takes a lock that sleeps, which
    /// no program may (before 6.12, where no update brought bpf_ringbuf's raw lock).
    #[serde(default)]
    pub ring_sleeps: bool,
    /// A BPF trampoline can be attached (tried): `None` when nobody tried.
    pub trampoline: Option<Result<(), String>>,
    /// Effective capabilities, a bit each.
    pub caps: u64,
    /// Kernel lockdown mode; empty when there is none.
    pub lockdown: String,
    /// kernel.kptr_restrict.
    pub kptr_restrict: Option<u32>,
    /// net.core.bpf_jit_enable.
    pub jit: Option<u32>,
    /// kernel.perf_event_paranoid. Above 2, which Debian and Ubuntu add,
    /// kprobes need CAP_SYS_ADMIN.
    #[serde(default)]
    pub perf_event_paranoid: Option<i32>,
}

/// A kernel module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Loaded as a module.
    pub loaded: bool,
    /// Part of the kernel image.
    pub built_in: bool,
    /// Where its BTF is.
    pub btf: ModuleBtf,
}

/// BTF of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModuleBtf {
    /// None.
    #[default]
    Absent,
    /// The kernel has it.
    Kernel,
    /// Given as a file.
    File(PathBuf),
}

/// A function in the symbol table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Symbols of that name in the whole kernel; a kprobe by name needs one.
    pub copies: u32,
    /// Listed by tracefs as traceable; `None` when the list cannot be read.
    pub traceable: Option<bool>,
    /// Its BTF is known, to the kernel too.
    pub btf: bool,
    /// How many arguments it has, as far as BTF tells.
    #[serde(default)]
    pub args: Option<u32>,
}

/// CAP_SYS_ADMIN.
pub const CAP_SYS_ADMIN: u32 = 21;
/// CAP_PERFMON.
pub const CAP_PERFMON: u32 = 38;
/// CAP_BPF.
pub const CAP_BPF: u32 = 39;

impl Facts {
    /// Whether a capability is effective.
    pub fn has_cap(&self, cap: u32) -> bool {
        self.caps >> cap & 1 != 0
    }

    /// Whether this process may make kprobes.
    pub fn may_kprobe(&self) -> bool {
        self.has_cap(CAP_SYS_ADMIN) || self.perf_event_paranoid.is_none_or(|level| level <= 2)
    }

    /// The module a site's function really lies in: its own, or `vmlinux` when
    /// it is built in.
    pub fn home(&self, site: &Site) -> &'static str {
        match self.modules.get(site.module) {
            Some(m) if m.built_in => "vmlinux",
            _ => site.module,
        }
    }

    /// What the compiler made of a site's function that the kernel has not.
    pub fn renamed(&self, site: &Site) -> Option<&str> {
        let key = format!("{}:{}", self.home(site), site.name);
        self.renamed.get(&key).map(String::as_str)
    }

    /// A site's function, when the kernel has it.
    pub fn function(&self, site: &Site) -> Option<&Function> {
        self.functions
            .get(&format!("{}:{}", self.home(site), site.name))
    }
}

/// A machine: facts, and the type information they were read from.
#[derive(Debug)]
pub struct Machine {
    /// Facts.
    pub facts: Facts,
    /// BTF; `None` when vmlinux's cannot be read.
    pub btf: Option<KernelBtf>,
}

impl Machine {
    /// Reads what `object` needs to know of the machine below `root` (`/`).
    /// `btf_dir` holds split BTF files, one a module, for modules without.
    ///
    /// # Errors
    /// Only for what the user gave: a BTF file that is damaged or made for
    /// another kernel. What the machine lacks is a fact, not an error.
    pub fn read(root: &Path, object: &Object, btf_dir: Option<&Path>) -> Result<Self, BtfError> {
        let mut f = Facts {
            kernel: line(root, "proc/sys/kernel/osrelease"),
            lockdown: lockdown(&line(root, "sys/kernel/security/lockdown")),
            kptr_restrict: line(root, "proc/sys/kernel/kptr_restrict").parse().ok(),
            jit: line(root, "proc/sys/net/core/bpf_jit_enable").parse().ok(),
            perf_event_paranoid: line(root, "proc/sys/kernel/perf_event_paranoid")
                .parse()
                .ok(),
            caps: caps(&text(root, "proc/self/status")),
            preemptible: preemptible(
                &line(root, "proc/sys/kernel/version"),
                &line(root, "sys/kernel/debug/sched/preempt"),
            ),
            ..Facts::default()
        };
        for m in object.modules {
            f.modules.insert((*m).to_owned(), module(root, m));
        }
        let btf = read_btf(root, &mut f, btf_dir)?;
        f.kernel_btf = btf.is_some();
        read_symbols(root, object, &mut f);
        read_traceable(root, &mut f);
        if let Some(btf) = &btf {
            for (key, function) in &mut f.functions {
                let Some((module, name)) = key.split_once(':') else {
                    continue;
                };
                let known = btf.func(module, name);
                function.btf = known.is_some_and(|g| g.in_kernel);
                function.args = known.map(|g| g.params);
            }
            read_arguments(object, btf, &mut f.tracepoints);
            f.ring_sleeps = line(root, "proc/sys/kernel/version").contains("PREEMPT_RT")
                && btf.member_type("bpf_ringbuf", "spinlock") == Some("spinlock_t");
        }
        Ok(Machine { facts: f, btf })
    }

    /// This machine: [`Machine::read`] of `/`, and one attempt to attach an
    /// empty program to a function only the kernel's own tests call.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn here(object: &Object, btf_dir: Option<&Path>) -> Result<Self, LoadError> {
        if let Some(dir) = btf_dir.filter(|dir| !dir.is_dir()) {
            return Err(LoadError::Option(format!(
                "{}: not a folder; --btf takes the folder that holds one file a module",
                dir.display()
            )));
        }
        let mut m = Self::read(Path::new("/"), object, btf_dir)?;
        // The attempt is charged to the limit, too.
        crate::sys::raise_memlock();
        let able = m.facts.has_cap(CAP_SYS_ADMIN)
            || m.facts.has_cap(CAP_BPF) && m.facts.has_cap(CAP_PERFMON);
        if let (true, Some(btf)) = (able, &m.btf) {
            m.facts.trampoline = btf
                .func("vmlinux", "bpf_fentry_test1")
                .map(|f| crate::sys::try_trampoline(f.id).map_err(|e| e.to_string()));
        }
        Ok(m)
    }
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn line(root: &Path, path: &str) -> String {
    text(root, path).trim().to_owned()
}

/// The mode in brackets: `none [integrity] confidentiality`.
fn lockdown(s: &str) -> String {
    s.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(mode, _)| mode.to_owned())
        .filter(|mode| mode != "none")
        .unwrap_or_default()
}

/// From the kernel's version line (`#1 SMP PREEMPT_DYNAMIC ...`) and the model
/// chosen at boot, in parentheses (`none (voluntary) full`), where debugfs tells.
fn preemptible(version: &str, chosen: &str) -> bool {
    let built = |model: &str| version.split_whitespace().any(|word| word == model);
    if built("PREEMPT_DYNAMIC") {
        return !(chosen.contains("(none)") || chosen.contains("(voluntary)"));
    }
    ["PREEMPT", "PREEMPT_RT", "PREEMPT_LAZY"]
        .into_iter()
        .any(built)
}

fn caps(status: &str) -> u64 {
    status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|v| u64::from_str_radix(v.trim(), 16).ok())
        .unwrap_or(0)
}

fn module(root: &Path, name: &str) -> Module {
    // A built-in one has a folder here too (for its parameters), but neither
    // sections nor a state.
    let dir = root.join("sys/module").join(name);
    let loaded = fs::read_to_string(dir.join("initstate")).is_ok_and(|s| s.trim() == "live");
    Module {
        loaded,
        built_in: !loaded && dir.is_dir(),
        btf: ModuleBtf::Absent,
    }
}

fn read_btf(root: &Path, f: &mut Facts, dir: Option<&Path>) -> Result<Option<KernelBtf>, BtfError> {
    let kernel = root.join("sys/kernel/btf");
    let given = dir.map(|d| d.join("vmlinux")).filter(|p| p.is_file());
    let mut btf = match (KernelBtf::read(&kernel), given) {
        (Ok(b), _) => b,
        (Err(_), Some(path)) => KernelBtf::new(Raw::read(&path)?),
        (Err(_), None) => return Ok(None),
    };
    for (name, m) in &mut f.modules {
        let own = kernel.join(name);
        let file = dir.map(|d| d.join(name)).filter(|p| p.is_file());
        if own.is_file() {
            // Damaged kernel BTF is as good as none; a given file may help.
            if Raw::read(&own)
                .and_then(|raw| btf.add(name, raw, true))
                .is_ok()
            {
                m.btf = ModuleBtf::Kernel;
                continue;
            }
        }
        if let Some(path) = file {
            same_build(root, name, &path)?;
            btf.add(name, Raw::read(&path)?, false)?;
            m.btf = ModuleBtf::File(path);
        }
    }
    Ok(Some(btf))
}

/// Build id of a module that is loaded, as hexadecimal digits; `None` when it
/// has none. From the ELF note the kernel keeps (`kernel/module/sysfs.c`):
/// lengths of name and id, type, `GNU\0`, id.
pub fn build_id(root: &Path, module: &str) -> Option<String> {
    let note = root
        .join("sys/module")
        .join(module)
        .join("notes/.note.gnu.build-id");
    let note = fs::read(note).ok()?;
    let size = u32::from_le_bytes(note.get(4..8)?.try_into().ok()?);
    let id = note.get(16..)?.get(..size as usize)?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file beside a module's BTF that says of which build it is.
pub fn build_file(btf: &Path) -> PathBuf {
    btf.with_extension("build-id")
}

/// Refuses BTF that says that it is of another build than the module loaded.
fn same_build(root: &Path, module: &str, path: &Path) -> Result<(), BtfError> {
    let Ok(made) = fs::read_to_string(build_file(path)) else {
        return Ok(());
    };
    match build_id(root, module) {
        Some(runs) if runs != made.trim() => Err(BtfError::OtherBuild {
            path: path.to_owned(),
            module: module.to_owned(),
            made: made.trim().to_owned(),
            runs,
        }),
        _ => Ok(()),
    }
}

/// What GCC and clang put behind a function's name when they make a copy that
/// takes other arguments, or is only a part.
const COPIES: &[&str] = &["isra.", "constprop.", "part."];

/// Functions and tracepoints of the hooks in /proc/kallsyms; addresses are
/// not needed, so kptr_restrict does not matter.
fn read_symbols(root: &Path, object: &Object, f: &mut Facts) {
    let mut functions: BTreeMap<&str, Vec<&Site>> = BTreeMap::new();
    let mut tracepoints = BTreeSet::new();
    for hook in object.hooks {
        for site in hook.sites {
            match hook.kind {
                Kind::Tracepoint => _ = tracepoints.insert(site.name),
                Kind::Entry | Kind::Exit => functions.entry(site.name).or_default().push(site),
            }
        }
    }
    let symbols = text(root, "proc/kallsyms");
    f.symbols = !symbols.is_empty();
    let mut copies: BTreeMap<&str, u32> = BTreeMap::new();
    for l in symbols.lines() {
        // address, type, name, [module]
        let mut fields = l.split_ascii_whitespace();
        let (Some(kind), Some(name)) = (fields.nth(1), fields.next()) else {
            continue;
        };
        if !matches!(kind, "t" | "T" | "w" | "W") {
            continue;
        }
        // Every tracepoint has a function that calls its probes.
        if let Some(tp) = name.strip_prefix("__traceiter_") {
            if tracepoints.contains(tp) {
                f.tracepoints.insert(tp.to_owned(), None);
            }
            continue;
        }
        let (stem, made) = match name.split_once('.') {
            Some((stem, rest)) => (stem, COPIES.iter().any(|c| rest.starts_with(c))),
            None => (name, false),
        };
        let Some((_, sites)) = functions.get_key_value(stem) else {
            continue;
        };
        let module = fields
            .next()
            .map_or("vmlinux", |m| m.trim_matches(['[', ']']));
        let wanted = sites.iter().any(|s| f.home(s) == module);
        let key = format!("{module}:{stem}");
        if stem == name {
            *copies.entry(stem).or_default() += 1;
            if wanted {
                f.functions.entry(key).or_default();
            }
        } else if made && wanted {
            f.renamed.insert(key, name.to_owned());
        }
    }
    f.renamed.retain(|key, _| !f.functions.contains_key(key));
    for (key, function) in &mut f.functions {
        let name = key.split_once(':').map_or("", |(_, n)| n);
        function.copies = copies.get(name).copied().unwrap_or(0);
    }
}

/// Arguments of tracepoints: those of the function that calls the probes, but
/// for its first, which is the probe's own.
fn read_arguments(
    object: &Object,
    btf: &KernelBtf,
    tracepoints: &mut BTreeMap<String, Option<u32>>,
) {
    let sites = object.hooks.iter().flat_map(|hook| hook.sites);
    for site in sites {
        if let Some(args) = tracepoints.get_mut(site.name) {
            let caller = format!("__traceiter_{}", site.name);
            *args = (btf.func(site.module, &caller)).and_then(|f| f.params.checked_sub(1));
        }
    }
}

fn read_traceable(root: &Path, f: &mut Facts) {
    let list = ["sys/kernel/tracing", "sys/kernel/debug/tracing"]
        .iter()
        .map(|dir| text(root, &format!("{dir}/available_filter_functions")))
        .find(|s| !s.is_empty());
    let Some(list) = list else { return };
    let mut traceable = BTreeSet::new();
    for l in list.lines() {
        let mut fields = l.split_ascii_whitespace();
        let Some(name) = fields.next() else { continue };
        let module = fields
            .next()
            .map_or("vmlinux", |m| m.trim_matches(['[', ']']));
        traceable.insert((module, name));
    }
    for (key, function) in &mut f.functions {
        function.traceable = key.split_once(':').map(|k| traceable.contains(&k));
    }
}

#[cfg(test)]
mod tests {
    use super::preemptible;

    #[test]
    fn preemption_is_what_was_chosen_or_what_is_built_in() {
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-11-14)";
        assert!(!preemptible(dynamic, "none (voluntary) full"));
        assert!(preemptible(dynamic, "full (lazy)"));
        assert!(preemptible(dynamic, ""));
        assert!(preemptible("#1 SMP PREEMPT_RT Debian 6.1.192-3", ""));
        assert!(!preemptible("#1 SMP Debian 5.10.262-1", ""));
    }
}
