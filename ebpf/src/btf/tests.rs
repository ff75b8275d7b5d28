use super::raw::{Raw, u32_at};
use super::*;

/// Writes BTF by hand: each type is its words.
#[derive(Default)]
struct Blob {
    words: Vec<u32>,
    strs: Vec<u8>,
    /// Length of vmlinux's strings, for split BTF.
    base: u32,
}

impl Blob {
    fn base() -> Self {
        Blob {
            strs: vec![0],
            ..Blob::default()
        }
    }

    fn split(base: &Blob) -> Self {
        Blob {
            base: base.strs.len() as u32,
            ..Blob::default()
        }
    }

    fn s(&mut self, name: &str) -> u32 {
        let at = self.base + self.strs.len() as u32;
        self.strs.extend_from_slice(name.as_bytes());
        self.strs.push(0);
        at
    }

    fn t(&mut self, name: &str, kind: u32, vlen: u32, word: u32, rest: &[u32]) {
        let name = if name.is_empty() { 0 } else { self.s(name) };
        self.words.extend([name, kind << 24 | vlen, word]);
        self.words.extend(rest);
    }

    fn bytes(&self) -> Vec<u8> {
        let types = self.words.len() as u32 * 4;
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for w in [24, 0, types, types, self.strs.len() as u32]
            .iter()
            .chain(&self.words)
        {
            out.extend(w.to_le_bytes());
        }
        out.extend(&self.strs);
        out
    }
}

/// vmlinux: 1 u32, 2 struct request { tag @0, len @32 }, 3 *request,
/// 4 struct other { r @0 }.
fn vmlinux() -> Blob {
    let mut b = Blob::base();
    b.t("u32", 1, 0, 4, &[32]);
    let (tag, len) = (b.s("tag"), b.s("len"));
    b.t("request", 4, 2, 8, &[tag, 1, 0, len, 1, 32]);
    b.t("", 2, 0, 2, &[]);
    let r = b.s("r");
    b.t("other", 4, 1, 8, &[r, 2, 0]);
    b
}

/// Module: 5 struct cmd { rq: 3 @0, cid: 6 @64 }, 6 typedef id -> 1,
/// 7 void (rq: 3, u32), 8 func go -> 7.
fn module(base: &Blob) -> Blob {
    let mut m = Blob::split(base);
    let (rq, cid) = (m.s("rq"), m.s("cid"));
    m.t("cmd", 4, 2, 16, &[rq, 3, 0, cid, 6, 64]);
    m.t("id", 8, 0, 1, &[]);
    m.t("", 13, 2, 0, &[rq, 3, 0, 1]);
    m.t("go", 12, 0, 7, &[]);
    m
}

fn kernel() -> KernelBtf {
    let base = vmlinux();
    let mut k = KernelBtf::new(Raw::parse("vmlinux", base.bytes()).unwrap());
    k.add("m", Raw::parse("m", module(&base).bytes()).unwrap(), true)
        .unwrap();
    k
}

fn names(raw: &Raw) -> Vec<(u8, String)> {
    (0..raw.len())
        .map(|i| {
            let t = raw.get(i).unwrap();
            (
                t.kind,
                String::from_utf8(raw.string(t.name).unwrap().to_vec()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn finds_a_function_by_its_id_in_the_modules_numbering() {
    let k = kernel();
    assert_eq!(
        k.func("m", "go"),
        Some(Func {
            id: 8,
            params: 2,
            in_kernel: true
        })
    );
    assert_eq!(k.func("m", "g"), None);
    assert_eq!(k.func("vmlinux", "go"), None);
    assert_eq!(k.func("n", "go"), None);
}

#[test]
fn a_name_two_functions_share_is_nobodys() {
    let base = vmlinux();
    let mut m = module(&base);
    m.t("go", 12, 0, 7, &[]);
    let mut k = KernelBtf::new(Raw::parse("vmlinux", base.bytes()).unwrap());
    k.add("m", Raw::parse("m", m.bytes()).unwrap(), true)
        .unwrap();
    assert_eq!(k.func("m", "go"), None);
}

#[test]
fn slice_holds_what_the_program_names_and_what_that_contains() {
    let mut object = Blob::base();
    object.t("cmd___old", 4, 0, 0, &[]);
    let out = Raw::parse("slice", kernel().slice(object.bytes()).unwrap()).unwrap();
    // The struct, its members' types (pointer, typedef, int), not the pointee.
    let got = names(&out);
    assert_eq!(
        got,
        [
            (4, "cmd".into()),
            (2, String::new()),
            (8, "id".into()),
            (1, "u32".into())
        ]
    );
    let cmd = out.get(0).unwrap().bytes;
    // members: name, type, offset in bits
    assert_eq!(out.string(u32_at(cmd, 12)).unwrap(), b"rq");
    assert_eq!((u32_at(cmd, 16), u32_at(cmd, 20)), (2, 0));
    assert_eq!(out.string(u32_at(cmd, 24)).unwrap(), b"cid");
    assert_eq!((u32_at(cmd, 28), u32_at(cmd, 32)), (3, 64));
    assert_eq!(
        u32_at(out.get(1).unwrap().bytes, 8),
        0,
        "the pointer leads nowhere"
    );
    assert_eq!(
        u32_at(out.get(2).unwrap().bytes, 8),
        4,
        "the typedef leads to u32"
    );
}

#[test]
fn slice_takes_the_same_name_from_every_module() {
    let base = vmlinux();
    let mut k = kernel();
    let mut other = Blob::split(&base);
    // A pointer of its own in front: ids of the two modules overlap.
    other.t("", 2, 0, 1, &[]);
    let x = other.s("x");
    other.t("cmd", 4, 1, 4, &[x, 5, 0]);
    k.add("n", Raw::parse("n", other.bytes()).unwrap(), false)
        .unwrap();
    let mut object = Blob::base();
    object.t("cmd", 4, 0, 0, &[]);
    let out = Raw::parse("slice", k.slice(object.bytes()).unwrap()).unwrap();
    let cmds: Vec<_> = names(&out)
        .into_iter()
        .filter(|(_, n)| n == "cmd")
        .collect();
    assert_eq!(cmds.len(), 2);
    let second = out.get(1).unwrap().bytes;
    assert_eq!(out.string(u32_at(second, 12)).unwrap(), b"x");
    let member = out.get(u32_at(second, 16) - 1).unwrap();
    assert_eq!(
        member.kind,
        kind::PTR,
        "x is module n's type 5, not module m's"
    );
}

#[test]
fn every_kind_is_as_long_as_the_kernel_says() {
    // Words after the head, from the kernel's Documentation/bpf/btf.rst.
    let rest: [(u32, u32, usize); 19] = [
        (1, 0, 1),
        (2, 0, 0),
        (3, 0, 3),
        (4, 3, 9),
        (5, 3, 9),
        (6, 3, 6),
        (7, 0, 0),
        (8, 0, 0),
        (9, 0, 0),
        (10, 0, 0),
        (11, 0, 0),
        (12, 2, 0),
        (13, 3, 6),
        (14, 0, 1),
        (15, 3, 9),
        (16, 0, 0),
        (17, 0, 1),
        (18, 0, 0),
        (19, 3, 9),
    ];
    let mut b = Blob::base();
    for (kind, vlen, words) in rest {
        // FUNC keeps its linkage in vlen; nothing follows.
        b.t("", kind, vlen, 0, &vec![0; words]);
        b.t("", kind | 0x80, vlen, 0, &vec![0; words]); // kind_flag set
    }
    let raw = Raw::parse("all", b.bytes()).unwrap();
    let kinds: Vec<u8> = (0..raw.len()).map(|i| raw.get(i).unwrap().kind).collect();
    let want: Vec<u8> = (1..=19).flat_map(|k| [k, k]).collect();
    assert_eq!(kinds, want);
}

#[test]
fn more_than_65535_elements() {
    let mut b = Blob::base();
    let n = 0x1_0001;
    b.t("big", 6, n, 4, &vec![0; n as usize * 2]);
    b.t("after", 1, 0, 4, &[32]);
    let raw = Raw::parse("big", b.bytes()).unwrap();
    assert_eq!(names(&raw), [(6, "big".into()), (1, "after".into())]);
    assert_eq!(raw.get(0).unwrap().vlen, 65537);
}

#[test]
fn an_unknown_kind_is_named_with_its_place() {
    let mut b = Blob::base();
    b.t("u32", 1, 0, 4, &[32]);
    b.t("x", 20, 0, 0, &[]);
    let e = Raw::parse("/b", b.bytes()).unwrap_err().to_string();
    // 24 bytes of header, 16 of the int.
    assert_eq!(e, "/b: byte 40: type kind 20 is newer than this tool");
}

#[test]
fn cut_off_anywhere_is_an_error_and_never_a_panic() {
    let whole = vmlinux().bytes();
    assert!(Raw::parse("b", whole.clone()).is_ok());
    for n in 0..whole.len() {
        let e = Raw::parse("b", whole[..n].to_vec()).expect_err("cut off");
        assert!(e.to_string().starts_with("b: byte "), "{e}");
    }
}

#[test]
fn damage_anywhere_never_panics() {
    let base = vmlinux();
    let split = module(&base).bytes();
    let mut object = Blob::base();
    object.t("cmd", 4, 0, 0, &[]);
    for at in 0..split.len() {
        for bit in 0..8 {
            let mut bytes = split.clone();
            bytes[at] ^= 1 << bit;
            let mut k = KernelBtf::new(Raw::parse("vmlinux", base.bytes()).unwrap());
            let Ok(raw) = Raw::parse("m", bytes) else {
                continue;
            };
            if k.add("m", raw, true).is_ok() {
                let _ = k.func("m", "go");
                let _ = k.slice(object.bytes()).unwrap();
            }
        }
    }
}

#[test]
fn split_btf_of_another_kernel_is_refused() {
    let base = vmlinux();
    let mut m = Blob::split(&base);
    m.t("p", 2, 0, 9, &[]);
    let mut k = KernelBtf::new(Raw::parse("vmlinux", base.bytes()).unwrap());
    let e = k
        .add("m", Raw::parse("/d/m", m.bytes()).unwrap(), false)
        .unwrap_err()
        .to_string();
    // vmlinux has types 0 to 4, the module one more.
    assert_eq!(
        e,
        "/d/m: byte 32: refers to type 9, beyond the 6 of this kernel; \
         make it again for the kernel that runs"
    );
    assert!(!k.has("m"));
}

#[test]
fn what_is_not_btf_says_what_it_is() {
    let say = |b: &[u8]| Raw::parse("f", b.to_vec()).unwrap_err().to_string();
    let pad = |b: &[u8]| [b, &[0; 32]].concat();
    assert!(say(b"").contains("0 bytes are too few"));
    assert!(say(&pad(b"\x7fELF")).contains("ELF file"));
    assert!(say(&pad(&[0xeb, 0x9f, 1])).contains("big-endian"));
    assert!(say(&pad(&[0x9f, 0xeb, 2])).contains("version 2"));
    assert!(say(&pad(b"# no")).contains("not BTF"));
}

#[test]
fn the_type_of_a_member_has_its_name() {
    let btf = KernelBtf::new(Raw::parse("vmlinux", vmlinux().bytes()).unwrap());
    assert_eq!(btf.member_type("request", "tag"), Some("u32"));
    assert_eq!(btf.member_type("request", "none"), None);
    assert_eq!(btf.member_type("none", "tag"), None);
}
