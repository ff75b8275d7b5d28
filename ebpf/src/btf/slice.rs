//! One small self-contained BTF out of vmlinux's and the modules'.
//!
//! The relocation code (aya-obj) wants one BTF and looks through all of it for
//! each of our types. A kernel has 150 000 types and our programs name a few
//! dozen, so only those of the same name and what they contain are copied,
//! renumbered from 1.

use super::raw::{Raw, Type, kind, u32_at};
use super::{BtfError, KernelBtf};
use std::collections::{HashMap, HashSet};

/// A type's name without its flavour: `request___old` is a `request`.
fn plain(name: &[u8]) -> &[u8] {
    name.windows(3)
        .position(|w| w == b"___")
        .map_or(name, |at| &name[..at])
}

/// Kinds our programs can name in a relocation.
fn nameable(k: u8) -> bool {
    matches!(
        k,
        kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::TYPEDEF
    )
}

impl KernelBtf {
    /// BTF that holds every type named in `object` (BTF of a compiled
    /// program), of vmlinux and of the modules added, with all they contain.
    /// What they point to is left out: relocation does not follow pointers.
    ///
    /// # Errors
    /// `object` is not BTF.
    pub fn slice(&self, object: Vec<u8>) -> Result<Vec<u8>, BtfError> {
        let object = Raw::parse("program", object)?;
        let names: HashSet<&[u8]> = (0..object.len())
            .filter_map(|i| object.get(i).filter(|t| nameable(t.kind)))
            .filter_map(|t| object.string(t.name))
            .map(plain)
            .filter(|n| !n.is_empty())
            .collect();
        let sources: Vec<&Raw> = std::iter::once(&self.base)
            .chain(self.modules.iter().map(|m| &m.raw))
            .collect();
        let mut out = Slice {
            kernel: self,
            ids: HashMap::new(),
            order: Vec::new(),
        };
        for raw in &sources {
            for i in 0..raw.len() {
                let Some(t) = raw.get(i).filter(|t| nameable(t.kind)) else {
                    continue;
                };
                if self
                    .string(raw, t.name)
                    .is_some_and(|n| names.contains(plain(n)))
                {
                    out.keep(raw, i);
                }
            }
        }
        out.close();
        Ok(out.write())
    }
}

/// Identity of a type: the blob it is stored in and its position there.
type Key = (*const Raw, u32);

struct Slice<'a> {
    kernel: &'a KernelBtf,
    /// New id of each type kept.
    ids: HashMap<Key, u32>,
    /// Types kept, by new id minus 1.
    order: Vec<(&'a Raw, u32)>,
}

impl<'a> Slice<'a> {
    fn keep(&mut self, raw: &'a Raw, i: u32) {
        let next = self.order.len() as u32 + 1;
        if let std::collections::hash_map::Entry::Vacant(v) = self.ids.entry((raw, i)) {
            v.insert(next);
            self.order.push((raw, i));
        }
    }

    /// Where the type that `raw` calls `id` is stored; `None` is void.
    fn locate(&self, raw: &'a Raw, id: u32) -> Option<(&'a Raw, u32)> {
        match id.checked_sub(self.kernel.base.len() + 1) {
            Some(own) => Some((raw, own)),
            None => Some((&self.kernel.base, id.checked_sub(1)?)),
        }
    }

    /// Keeps what the kept types contain.
    fn close(&mut self) {
        let mut done = 0;
        while let Some(&(raw, i)) = self.order.get(done) {
            done += 1;
            let Some(t) = raw.get(i).filter(|t| t.kind != kind::PTR) else {
                continue;
            };
            for at in t.types() {
                if let Some((raw, i)) = self.locate(raw, u32_at(t.bytes, at)) {
                    self.keep(raw, i);
                }
            }
        }
    }

    fn write(&self) -> Vec<u8> {
        let mut types = Vec::new();
        let mut strs = Strings {
            bytes: vec![0],
            at: HashMap::from([(&b""[..], 0)]),
        };
        for &(raw, i) in &self.order {
            let Some(t) = raw.get(i) else { continue };
            let start = types.len();
            types.extend_from_slice(t.bytes);
            let mut put = |at: usize, v: u32| {
                types[start + at..start + at + 4].copy_from_slice(&v.to_le_bytes());
            };
            for at in t.strings() {
                let name = self
                    .kernel
                    .string(raw, u32_at(t.bytes, at))
                    .unwrap_or_default();
                put(at, strs.add(name));
            }
            for at in t.types() {
                put(at, self.new_id(raw, &t, at));
            }
        }
        let (tl, sl) = (types.len() as u32, strs.bytes.len() as u32);
        let mut out = Vec::with_capacity(24 + types.len() + strs.bytes.len());
        for v in [0x0001_eb9f_u32, 24, 0, tl, tl, sl] {
            out.extend_from_slice(&v.to_le_bytes());
        }
        out.extend_from_slice(&types);
        out.extend_from_slice(&strs.bytes);
        out
    }

    /// New id of the type referred to at `at`; void when it was left out.
    fn new_id(&self, raw: &'a Raw, t: &Type<'_>, at: usize) -> u32 {
        self.locate(raw, u32_at(t.bytes, at))
            .and_then(|(raw, i)| self.ids.get(&(raw as *const Raw, i)))
            .copied()
            .unwrap_or(0)
    }
}

struct Strings<'a> {
    bytes: Vec<u8>,
    at: HashMap<&'a [u8], u32>,
}

impl<'a> Strings<'a> {
    fn add(&mut self, s: &'a [u8]) -> u32 {
        *self.at.entry(s).or_insert_with(|| {
            let at = self.bytes.len() as u32;
            self.bytes.extend_from_slice(s);
            self.bytes.push(0);
            at
        })
    }
}
