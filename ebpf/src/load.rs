//! From a plan to programs in the kernel.
//!
//! aya makes the maps and aya-obj parses and relocates; loading and attaching
//! is done here, because aya cannot attach to a module's function by BTF id.
//! Nothing is pinned: whatever ends this process detaches everything.

use crate::btf::KernelBtf;
use crate::error::LoadError;
use crate::facts::Machine;
use crate::hooks::{Hook, How};
use crate::plan::{Attach, Plan};
use crate::prepare::{Options, prepare};
use crate::sys::{self, ProgLoad};
use aya::maps::Map;
use aya_obj::Object;
use aya_obj::generated::{bpf_attach_type, bpf_prog_type};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A program in the kernel, attached or not.
#[derive(Debug)]
struct Loaded {
    hook: &'static Hook,
    at: Attach,
    program: OwnedFd,
    link: Option<OwnedFd>,
}

/// Programs and maps in the kernel. Dropping it detaches everything.
pub struct Session {
    plan: Plan,
    object: Object,
    object_btf: Option<OwnedFd>,
    module_btf: HashMap<&'static str, OwnedFd>,
    maps: HashMap<String, Map>,
    loaded: Vec<Loaded>,
    notes: Vec<String>,
}

impl Session {
    /// Loads every program of the plan; attaches none. A program the kernel
    /// refuses is loaded in the other way the table knows, or left out when
    /// recording can go without: [`Session::notes`] says so.
    ///
    /// # Errors
    /// The plan has problems, an option is out of range, or the kernel refuses
    /// a required program.
    pub fn load(machine: &Machine, plan: Plan, options: &Options) -> Result<Self, LoadError> {
        if let Some(p) = plan.problems.first() {
            return Err(LoadError::Plan(p.to_string()));
        }
        let Some(btf) = &machine.btf else {
            return Err(LoadError::Plan("this kernel has no BTF".into()));
        };
        sys::raise_memlock();
        let mut notes = plan.notes.clone();
        let mut plan = plan;
        loop {
            let prepared = prepare(&plan, btf, options)?;
            let mut s = Session {
                object: prepared.object,
                object_btf: prepared.btf,
                module_btf: HashMap::new(),
                maps: prepared.maps,
                loaded: Vec::new(),
                notes: Vec::new(),
                plan,
            };
            s.load_all(btf)?;
            notes.append(&mut s.notes);
            // The programs were told whether a send's return ends a record.
            if s.plan.has_exit() == prepared.send_exit {
                s.notes = notes;
                return Ok(s);
            }
            plan = s.plan;
        }
    }

    /// Attaches what was loaded, in the order of the table; the hook that
    /// begins records comes last, so that none lacks its first points.
    ///
    /// # Errors
    /// A required hook cannot be attached.
    pub fn attach(&mut self) -> Result<(), LoadError> {
        let mut loaded = std::mem::take(&mut self.loaded);
        loaded.sort_by_key(|l| l.hook.last);
        for mut l in loaded {
            match attach(l.program.as_fd(), &l.at) {
                Ok(fd) => {
                    l.link = Some(fd);
                    self.loaded.push(l);
                }
                Err(e) => {
                    let other = self.attach_otherwise(l, &e)?;
                    self.loaded.extend(other);
                }
            }
        }
        Ok(())
    }

    /// Detaches the hooks that begin records; those in flight can still end.
    pub fn stop_sampling(&mut self) {
        for l in self.loaded.iter_mut().filter(|l| l.hook.last) {
            l.link = None;
        }
    }

    /// Detaches everything; maps stay readable.
    pub fn detach(&mut self) {
        self.stop_sampling();
        for l in self.loaded.iter_mut().rev() {
            l.link = None;
        }
    }

    /// A map by name, for aya's typed maps; each can be taken once.
    ///
    /// # Errors
    /// No such map, or taken already.
    pub fn take_map(&mut self, name: &str) -> Result<Map, LoadError> {
        self.maps.remove(name).ok_or_else(|| LoadError::Map {
            map: name.to_owned(),
            what: "no such map".into(),
        })
    }

    /// How often the kernel skipped each handler since it was loaded, by
    /// [`Hook::skipped`], because a program was running on that CPU already. Kernels count it from 5.12
    /// on, and never all of a kprobe's: a handler of which nothing is known is left
    /// out, as is 0 for a kprobe.
    pub fn misses(&self) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        for l in &self.loaded {
            match sys::prog_misses(l.program.as_fd()) {
                Ok(Some(n)) if n > 0 || l.at.how != How::Kprobe => {
                    *out.entry(l.hook.skipped()).or_default() += n;
                }
                _ => {}
            }
        }
        out
    }

    /// The plan, corrected by what loading and attaching taught.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Things worth a line on standard error.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn load_all(&mut self, btf: &KernelBtf) -> Result<(), LoadError> {
        let hooks: Vec<_> = self
            .plan
            .hooks
            .iter()
            .flat_map(|p| p.attach.iter().map(|a| (p.hook, a.clone())))
            .collect();
        for (hook, mut at) in hooks {
            let id = btf.func(at.module, at.site.name).map(|f| f.id);
            let mut program = self.load_one(hook, &at, id);
            if let (Err(e), Some(how)) = (&program, at.how.without_btf()) {
                self.notes
                    .push(format!("{} replaced by {}: {e}", at.how.name(), how.name()));
                at.how = how;
                self.rehow(hook, &at);
                program = self.load_one(hook, &at, None);
            }
            match program {
                Ok(program) => self.loaded.push(Loaded {
                    hook,
                    at,
                    program,
                    link: None,
                }),
                Err(e) if self.plan.drop_site(hook, at.site, &e.to_string()) => {
                    self.notes.push(e.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Notes in the plan that a site is hooked in another way.
    fn rehow(&mut self, hook: &Hook, at: &Attach) {
        let sites = self
            .plan
            .hooks
            .iter_mut()
            .filter(|p| p.hook.key() == hook.key());
        for a in sites
            .flat_map(|p| &mut p.attach)
            .filter(|a| a.site == at.site)
        {
            a.how = at.how;
        }
    }

    /// Loads the program of a handler for one site. `id` is the function's in
    /// its module's BTF.
    fn load_one(
        &mut self,
        hook: &Hook,
        at: &Attach,
        id: Option<u32>,
    ) -> Result<OwnedFd, LoadError> {
        let name = hook.program(at.how);
        let fail = |cause: io::Error, log: String| LoadError::Program {
            program: name.clone(),
            function: at.site.name.to_owned(),
            cause,
            log,
        };
        let other = |what: &str| fail(io::Error::other(what.to_owned()), String::new());
        let target = match at.how {
            How::RawTp | How::Kprobe => None,
            How::Fentry | How::Fexit => {
                if at.module != "vmlinux" && !self.module_btf.contains_key(at.module) {
                    let fd = sys::module_btf(at.module).map_err(|e| fail(e, String::new()))?;
                    self.module_btf.insert(at.module, fd);
                }
                let id = id.ok_or_else(|| other("not in BTF"))?;
                Some((self.module_btf.get(at.module).map(AsFd::as_fd), id))
            }
        };
        let program = self
            .object
            .programs
            .get(&name)
            .ok_or_else(|| other("not in the object"))?;
        let function = self
            .object
            .functions
            .get(&program.function_key())
            .ok_or_else(|| other("has no code"))?;
        let (kind, attach) = kind(at.how);
        let (funcs, lines) = (&function.func_info.func_info, &function.line_info.line_info);
        sys::prog_load(&ProgLoad {
            name: &name,
            kind,
            attach,
            insns: &function.instructions,
            license: &program.license,
            btf: self
                .object_btf
                .as_ref()
                .map(|fd| (fd.as_fd(), &funcs[..], &lines[..])),
            target,
        })
        .map_err(|(cause, log)| fail(cause, log))
    }

    /// After a site could not be attached: attaches it the other way, or gives
    /// it up (`None`) when recording can go without.
    fn attach_otherwise(
        &mut self,
        l: Loaded,
        why: &io::Error,
    ) -> Result<Option<Loaded>, LoadError> {
        let mut error = LoadError::attach(l.hook, &l.at, why);
        if let Some(how) = l.at.how.without_btf() {
            self.notes.push(format!(
                "{} replaced by {}: {error}",
                l.at.how.name(),
                how.name()
            ));
            let at = Attach {
                how,
                ..l.at.clone()
            };
            self.rehow(l.hook, &at);
            let program = self.load_one(l.hook, &at, None)?;
            match attach(program.as_fd(), &at) {
                Ok(fd) => {
                    return Ok(Some(Loaded {
                        at,
                        program,
                        link: Some(fd),
                        ..l
                    }));
                }
                Err(e) => error = LoadError::attach(l.hook, &at, &e),
            }
        }
        // Too late for the programs to learn that no send's return is seen.
        if l.hook.ends || !self.plan.drop_site(l.hook, l.at.site, &error.to_string()) {
            return Err(error);
        }
        self.notes.push(error.to_string());
        Ok(None)
    }
}

fn kind(how: How) -> (bpf_prog_type, bpf_attach_type) {
    // Those that are not trampolines ignore the attach type.
    let none = bpf_attach_type::BPF_CGROUP_INET_INGRESS;
    match how {
        How::RawTp => (bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT, none),
        How::Kprobe => (bpf_prog_type::BPF_PROG_TYPE_KPROBE, none),
        How::Fentry => (
            bpf_prog_type::BPF_PROG_TYPE_TRACING,
            bpf_attach_type::BPF_TRACE_FENTRY,
        ),
        How::Fexit => (
            bpf_prog_type::BPF_PROG_TYPE_TRACING,
            bpf_attach_type::BPF_TRACE_FEXIT,
        ),
    }
}

fn attach(program: BorrowedFd<'_>, at: &Attach) -> io::Result<OwnedFd> {
    match at.how {
        How::RawTp => sys::raw_tracepoint(program, Some(at.site.name)),
        How::Fentry | How::Fexit => sys::raw_tracepoint(program, None),
        How::Kprobe => sys::kprobe(program, at.site.name),
    }
}
