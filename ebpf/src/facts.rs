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
    /// Tracepoints of the hooks that the kernel has.
    pub tracepoints: BTreeSet<String>,
    /// Symbols could be read; without them presence is unknown.
    pub symbols: bool,
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

    /// The module a site's function really lies in: its own, or `vmlinux` when
    /// it is built in.
    pub fn home(&self, site: &Site) -> &'static str {
        match self.modules.get(site.module) {
            Some(m) if m.built_in => "vmlinux",
            _ => site.module,
        }
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
            caps: caps(&text(root, "proc/self/status")),
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
                function.btf = btf.func(module, name).is_some_and(|g| g.in_kernel);
            }
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
            btf.add(name, Raw::read(&path)?, false)?;
            m.btf = ModuleBtf::File(path);
        }
    }
    Ok(Some(btf))
}

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
                f.tracepoints.insert(tp.to_owned());
            }
            continue;
        }
        let Some((name, sites)) = functions.get_key_value(name) else {
            continue;
        };
        *copies.entry(name).or_default() += 1;
        let module = fields
            .next()
            .map_or("vmlinux", |m| m.trim_matches(['[', ']']));
        if sites.iter().any(|s| f.home(s) == module) {
            f.functions.entry(format!("{module}:{name}")).or_default();
        }
    }
    for (key, function) in &mut f.functions {
        let name = key.split_once(':').map_or("", |(_, n)| n);
        function.copies = copies.get(name).copied().unwrap_or(0);
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
