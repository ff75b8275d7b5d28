//! BTF as the kernel hands it out: bounds checked once, then read in place.
//!
//! A kernel module's BTF is "split": its type ids and string offsets go on
//! where vmlinux's end, so it can only be read together with vmlinux's.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why type information could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("{path}: {cause}")]
    Read {
        /// File.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The bytes are not BTF this tool can read.
    #[error("{name}: byte {offset}: {what}")]
    Malformed {
        /// File or object.
        name: String,
        /// Offset in it.
        offset: usize,
        /// What is wrong there.
        what: String,
    },
    /// Split BTF that belongs to another kernel.
    #[error(
        "{name}: byte {offset}: refers to {what} {value}, beyond the {limit} of this kernel; \
         make it again for the kernel that runs"
    )]
    OtherKernel {
        /// File or object.
        name: String,
        /// Offset in it.
        offset: usize,
        /// `type` or `string`.
        what: &'static str,
        /// The reference.
        value: u32,
        /// First value out of range.
        limit: u32,
    },
    /// BTF of a module, made for another build of it.
    #[error(
        "{path}: made for the build {made} of {module}, and {runs} is loaded; \
         make it again with ntp-probe --make-btf"
    )]
    OtherBuild {
        /// File.
        path: PathBuf,
        /// Module.
        module: String,
        /// Build id the file was made for.
        made: String,
        /// Build id of the module that is loaded.
        runs: String,
    },
}

/// Kind of a type, the numbers of `BTF_KIND_*` in the kernel's `linux/btf.h`.
pub mod kind {
    #![allow(missing_docs, reason = "the names say it, the kernel documents them")]
    pub const PTR: u8 = 2;
    pub const STRUCT: u8 = 4;
    pub const UNION: u8 = 5;
    pub const ENUM: u8 = 6;
    pub const TYPEDEF: u8 = 8;
    pub const FUNC: u8 = 12;
    pub const FUNC_PROTO: u8 = 13;
    pub const ENUM64: u8 = 19;
}

/// What follows the 12 bytes every type begins with, and where in it strings
/// and types are referred to. Offsets in bytes.
pub(crate) struct Layout {
    /// `size_or_type` of the head is a type id.
    pub(crate) head_type: bool,
    /// Bytes that follow once.
    pub(crate) fixed: usize,
    /// Type ids within those.
    pub(crate) fixed_types: &'static [usize],
    /// Bytes of each of the `vlen` elements after that.
    pub(crate) elem: usize,
    /// String offsets within an element.
    pub(crate) elem_strs: &'static [usize],
    /// Type ids within an element.
    pub(crate) elem_types: &'static [usize],
}

const fn plain(head_type: bool, fixed: usize) -> Layout {
    Layout {
        head_type,
        fixed,
        fixed_types: &[],
        elem: 0,
        elem_strs: &[],
        elem_types: &[],
    }
}

const fn list(
    head_type: bool,
    elem: usize,
    elem_strs: &'static [usize],
    elem_types: &'static [usize],
) -> Layout {
    Layout {
        head_type,
        fixed: 0,
        fixed_types: &[],
        elem,
        elem_strs,
        elem_types,
    }
}

/// By kind; kind 0 is void and never stored.
pub(crate) const LAYOUTS: [Layout; 20] = [
    plain(false, 0),
    plain(false, 4), // INT
    plain(true, 0),  // PTR
    Layout {
        fixed: 12,
        fixed_types: &[0, 4],
        ..plain(false, 0)
    }, // ARRAY
    list(false, 12, &[0], &[4]), // STRUCT
    list(false, 12, &[0], &[4]), // UNION
    list(false, 8, &[0], &[]), // ENUM
    plain(false, 0), // FWD
    plain(true, 0),  // TYPEDEF
    plain(true, 0),  // VOLATILE
    plain(true, 0),  // CONST
    plain(true, 0),  // RESTRICT
    plain(true, 0),  // FUNC
    list(true, 8, &[0], &[4]), // FUNC_PROTO
    plain(true, 4),  // VAR
    list(false, 12, &[], &[0]), // DATASEC
    plain(false, 0), // FLOAT
    plain(true, 4),  // DECL_TAG
    plain(true, 0),  // TYPE_TAG
    list(false, 12, &[0], &[]), // ENUM64
];

/// Bytes every type begins with: name, info, size or type.
pub(crate) const HEAD: usize = 12;

/// The little-endian u32 at `at`; 0 beyond the end. Callers stay within what
/// [`Raw::parse`] has checked.
pub(crate) fn u32_at(d: &[u8], at: usize) -> u32 {
    at.checked_add(4)
        .and_then(|end| d.get(at..end))
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

/// One BTF blob.
#[derive(Debug)]
pub struct Raw {
    name: String,
    data: Vec<u8>,
    strs: Range<usize>,
    /// Offset in `data` of each type, in order of ids.
    index: Vec<u32>,
}

/// One type of a [`Raw`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type<'a> {
    /// From the head to the end of its elements.
    pub(crate) bytes: &'a [u8],
    /// Offset of the name.
    pub(crate) name: u32,
    /// Kind.
    pub(crate) kind: u8,
    /// Elements.
    pub(crate) vlen: usize,
}

impl Type<'_> {
    pub(crate) fn layout(&self) -> &'static Layout {
        // Raw::parse refused kinds beyond the table.
        &LAYOUTS[usize::from(self.kind).min(LAYOUTS.len() - 1)]
    }

    /// Positions of the string offsets in `bytes`.
    pub(crate) fn strings(&self) -> impl Iterator<Item = usize> {
        let l = self.layout();
        let first = HEAD + l.fixed;
        let elems = (0..self.vlen * usize::from(!l.elem_strs.is_empty()))
            .flat_map(move |i| l.elem_strs.iter().map(move |s| first + i * l.elem + s));
        std::iter::once(0).chain(elems)
    }

    /// Positions of the type ids in `bytes`.
    pub(crate) fn types(&self) -> impl Iterator<Item = usize> {
        let l = self.layout();
        let first = HEAD + l.fixed;
        let elems = (0..self.vlen * usize::from(!l.elem_types.is_empty()))
            .flat_map(move |i| l.elem_types.iter().map(move |t| first + i * l.elem + t));
        l.head_type
            .then_some(8)
            .into_iter()
            .chain(l.fixed_types.iter().map(|t| HEAD + t))
            .chain(elems)
    }
}

impl Raw {
    /// Reads and checks a file of raw BTF.
    ///
    /// # Errors
    /// The file cannot be read, or is not BTF.
    pub fn read(path: &Path) -> Result<Self, BtfError> {
        let data = std::fs::read(path).map_err(|cause| BtfError::Read {
            path: path.to_owned(),
            cause,
        })?;
        Self::parse(&path.display().to_string(), data)
    }

    /// Checks a blob: header, sections within the data, each type whole.
    ///
    /// # Errors
    /// Says at which byte of `name` what is wrong.
    pub fn parse(name: &str, data: Vec<u8>) -> Result<Self, BtfError> {
        let bad = |offset: usize, what: &str| BtfError::Malformed {
            name: name.to_owned(),
            offset,
            what: what.to_owned(),
        };
        if data.len() < 24 {
            return Err(bad(0, &format!("{} bytes are too few for BTF", data.len())));
        }
        match (data[0], data[1], data[2]) {
            (0x9f, 0xeb, 1) => {}
            (0x9f, 0xeb, v) => return Err(bad(2, &format!("BTF version {v}, not 1"))),
            (0xeb, 0x9f, _) => return Err(bad(0, "BTF of a big-endian machine")),
            (0x7f, b'E', _) => {
                return Err(bad(0, "an ELF file, not raw BTF; extract its .BTF section"));
            }
            _ => return Err(bad(0, "not BTF")),
        }
        let header = u32_at(&data, 4) as usize;
        if header < 24 || header > data.len() {
            return Err(bad(4, &format!("a header of {header} bytes")));
        }
        let section = |at: usize, what: &str| {
            let start = header + u32_at(&data, at) as usize;
            let end = start + u32_at(&data, at + 4) as usize;
            if end > data.len() {
                let len = data.len();
                return Err(bad(
                    at,
                    &format!("{what} end at {end}, the data at {len}: cut off"),
                ));
            }
            Ok(start..end)
        };
        let types = section(8, "types")?;
        let strs = section(16, "strings")?;
        if strs.is_empty() || data[strs.end - 1] != 0 {
            return Err(bad(strs.start, "strings do not end with a zero byte"));
        }
        let mut index = Vec::new();
        let mut at = types.start;
        while at < types.end {
            if types.end - at < HEAD {
                return Err(bad(at, "a type is cut off"));
            }
            let (kind, vlen) = info(u32_at(&data, at + 4));
            let Some(l) = LAYOUTS.get(usize::from(kind)).filter(|_| kind != 0) else {
                return Err(bad(
                    at,
                    &format!("type kind {kind} is newer than this tool"),
                ));
            };
            let size = HEAD + l.fixed + l.elem * vlen;
            if types.end - at < size {
                return Err(bad(at, "a type is cut off"));
            }
            index.push(at as u32);
            at += size;
        }
        Ok(Raw {
            name: name.to_owned(),
            data,
            strs,
            index,
        })
    }

    /// File or object it came from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of types stored; void is not.
    pub fn len(&self) -> u32 {
        self.index.len() as u32
    }

    /// Whether it holds no type.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of strings.
    pub(crate) fn strings_len(&self) -> u32 {
        self.strs.len() as u32
    }

    /// Offset in the file of type number `i`, from 0.
    pub(crate) fn offset(&self, i: u32) -> usize {
        self.index.get(i as usize).map_or(0, |o| *o as usize)
    }

    /// Type number `i`, from 0 in the order stored.
    pub(crate) fn get(&self, i: u32) -> Option<Type<'_>> {
        let at = *self.index.get(i as usize)? as usize;
        let (kind, vlen) = info(u32_at(&self.data, at + 4));
        let l = LAYOUTS.get(usize::from(kind))?;
        let bytes = self.data.get(at..at + HEAD + l.fixed + l.elem * vlen)?;
        Some(Type {
            bytes,
            name: u32_at(bytes, 0),
            kind,
            vlen,
        })
    }

    /// Own string at `offset`, without the zero byte.
    pub(crate) fn string(&self, offset: u32) -> Option<&[u8]> {
        let s = self.data.get(self.strs.clone())?.get(offset as usize..)?;
        Some(s.split(|b| *b == 0).next().unwrap_or_default())
    }
}

/// Kind and element count. Kernels with more than 65535 elements or 31 kinds
/// use the bits that were kept zero until then.
fn info(word: u32) -> (u8, usize) {
    ((word >> 24 & 0x7f) as u8, (word & 0x00ff_ffff) as usize)
}
