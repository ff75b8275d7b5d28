//! Type information of the running kernel: vmlinux and its modules.
//!
//! Two things are read from it: which types the programs' field accesses are
//! to be relocated against ([`KernelBtf::slice`]), and which functions a
//! program can be attached to by BTF id ([`KernelBtf::func`]).

mod raw;
mod slice;
#[cfg(test)]
mod tests;

pub use raw::{BtfError, Raw, kind};
use std::path::Path;

/// BTF of a module.
#[derive(Debug)]
struct Module {
    name: String,
    raw: Raw,
    /// The kernel has it too, so that programs can attach by id.
    in_kernel: bool,
}

/// vmlinux's BTF and the split BTF of some modules.
#[derive(Debug)]
pub struct KernelBtf {
    base: Raw,
    modules: Vec<Module>,
}

/// A function in BTF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Func {
    /// Id in the numbering of its module's split BTF, as the kernel wants it
    /// beside that module's BTF object.
    pub id: u32,
    /// Parameters.
    pub params: u32,
    /// The kernel itself has this BTF.
    pub in_kernel: bool,
}

impl KernelBtf {
    /// From vmlinux's BTF.
    pub fn new(base: Raw) -> Self {
        KernelBtf {
            base,
            modules: Vec::new(),
        }
    }

    /// Reads `vmlinux` below `dir` (`/sys/kernel/btf`).
    ///
    /// # Errors
    /// Unreadable or malformed.
    pub fn read(dir: &Path) -> Result<Self, BtfError> {
        Ok(Self::new(Raw::read(&dir.join("vmlinux"))?))
    }

    /// Adds a module's split BTF. `in_kernel` says that the kernel has it.
    ///
    /// # Errors
    /// It refers to types or strings vmlinux does not have: made for another
    /// kernel.
    pub fn add(&mut self, module: &str, raw: Raw, in_kernel: bool) -> Result<(), BtfError> {
        let (types, strs) = (
            self.base.len() + 1 + raw.len(),
            self.base.strings_len().saturating_add(raw.strings_len()),
        );
        for i in 0..raw.len() {
            let Some(t) = raw.get(i) else { continue };
            let over = |limit: u32, what: &'static str, at: usize| {
                let value = raw::u32_at(t.bytes, at);
                (value >= limit).then(|| BtfError::OtherKernel {
                    name: raw.name().to_owned(),
                    offset: raw.offset(i) + at,
                    what,
                    value,
                    limit,
                })
            };
            if let Some(e) = t
                .types()
                .find_map(|at| over(types, "type", at))
                .or_else(|| t.strings().find_map(|at| over(strs, "string", at)))
            {
                return Err(e);
            }
        }
        self.modules.push(Module {
            name: module.to_owned(),
            raw,
            in_kernel,
        });
        Ok(())
    }

    /// Whether BTF of this module (or `vmlinux`) is here.
    pub fn has(&self, module: &str) -> bool {
        module == "vmlinux" || self.modules.iter().any(|m| m.name == module)
    }

    /// Whether the kernel itself has BTF of this module.
    pub fn in_kernel(&self, module: &str) -> bool {
        module == "vmlinux" || self.modules.iter().any(|m| m.name == module && m.in_kernel)
    }

    /// A function of a module (or of `vmlinux`); `None` when absent, or when
    /// two functions have the name and BTF cannot tell them apart.
    pub fn func(&self, module: &str, name: &str) -> Option<Func> {
        let (raw, first, in_kernel) = if module == "vmlinux" {
            (&self.base, 1, true)
        } else {
            let m = self.modules.iter().find(|m| m.name == module)?;
            (&m.raw, self.base.len() + 1, m.in_kernel)
        };
        let mut hits = (0..raw.len()).filter_map(|i| {
            let t = raw.get(i).filter(|t| t.kind == kind::FUNC)?;
            (self.string(raw, t.name)? == name.as_bytes()).then_some((i, t))
        });
        let (i, t) = hits.next()?;
        if hits.next().is_some() {
            return None;
        }
        let proto = self.resolve(raw, raw::u32_at(t.bytes, 8))?;
        (proto.kind == kind::FUNC_PROTO).then_some(Func {
            id: first + i,
            params: proto.vlen as u32,
            in_kernel,
        })
    }

    /// Name of the type of a member of a structure of vmlinux's.
    pub fn member_type(&self, structure: &str, member: &str) -> Option<&str> {
        let raw = &self.base;
        let named = |at: u32, name: &str| self.string(raw, at) == Some(name.as_bytes());
        let structure = (0..raw.len())
            .filter_map(|i| raw.get(i))
            .find(|t| t.kind == kind::STRUCT && named(t.name, structure))?;
        let at = (0..structure.vlen)
            .map(|i| raw::HEAD + i * structure.layout().elem)
            .find(|at| named(raw::u32_at(structure.bytes, *at), member))?;
        let of = self.resolve(raw, raw::u32_at(structure.bytes, at + 4))?;
        std::str::from_utf8(self.string(raw, of.name)?).ok()
    }

    /// The type `id` as `raw` numbers it.
    fn resolve<'a>(&'a self, raw: &'a Raw, id: u32) -> Option<raw::Type<'a>> {
        match id.checked_sub(self.base.len() + 1) {
            Some(own) => raw.get(own),
            None => self.base.get(id.checked_sub(1)?),
        }
    }

    /// The string `offset` as `raw` counts.
    fn string<'a>(&'a self, raw: &'a Raw, offset: u32) -> Option<&'a [u8]> {
        if std::ptr::eq(raw, &self.base) {
            return raw.string(offset);
        }
        match offset.checked_sub(self.base.strings_len()) {
            Some(own) => raw.string(own),
            None => self.base.string(offset),
        }
    }
}
