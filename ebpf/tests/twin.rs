//! The record, the names, the points and the sampling hash exist twice, in
//! `bpf/ntp.h` and in Rust. A C compiler says what the header holds, and that
//! must be what Rust holds.

use ntp_ebpf::shared::{CountKey, RawName, STATS, StatKind};
use ntp_record::record::{Flags, Record};
use ntp_record::sample::{Key, hash, sampled};
use ntp_record::{Role, Transport, point};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    std::fs::read_to_string(crate_dir().join("bpf/ntp.h")).unwrap()
}

/// Compiles and runs a program that includes ntp.h; its output.
fn run_c(body: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("twin.c");
    let program = dir.path().join("twin");
    let text = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"ntp.h\"\nint main(void) {{\n{body}return 0;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    compile(&source, &program);
    let out = Command::new(&program).output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

/// With the first C compiler there is: clang builds the kernel programs, so
/// one is always there.
fn compile(source: &Path, program: &Path) {
    let named = std::env::var("CC").ok();
    let compilers = named.as_deref().into_iter().chain(["cc", "clang"]);
    for cc in compilers {
        let run = Command::new(cc)
            .args(["-Wall", "-Werror", "-O1", "-I"])
            .arg(crate_dir().join("bpf"))
            .arg(source)
            .arg("-o")
            .arg(program)
            .output();
        let Ok(out) = run else { continue };
        assert!(
            out.status.success(),
            "{cc}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        return;
    }
    panic!("no C compiler: neither $CC, cc nor clang can be run");
}

/// `NAME VALUE` lines of a C program.
fn numbers(body: &str) -> BTreeMap<String, usize> {
    run_c(body)
        .lines()
        .map(|l| l.split_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Names of the enumerators in ntp.h that begin with a prefix.
fn enumerators(prefix: &str) -> Vec<String> {
    header()
        .lines()
        .map(str::trim)
        .filter(|l| l.starts_with(prefix))
        .filter_map(|l| l.split([' ', ',', '\t']).next().map(str::to_owned))
        .collect()
}

/// What Rust calls a field, with its offset and size.
macro_rules! fields {
    ($t:ident, $value:expr; $($f:ident),*) => {{
        let value: $t = $value;
        // Every field: a new one fails to compile.
        let $t { $($f),* } = value;
        vec![$((stringify!($f), offset_of!($t, $f), size_of_val(&$f))),*]
    }};
}

fn same_struct(c: &str, size: usize, fields: &[(&str, usize, usize)]) {
    let mut body = format!("printf(\"sizeof %zu\\n\", sizeof(struct {c}));\n");
    for (f, _, _) in fields {
        let _ = writeln!(
            body,
            "printf(\"{f} %zu\\nsizeof.{f} %zu\\n\", offsetof(struct {c}, {f}), sizeof(((struct {c} *)0)->{f}));"
        );
    }
    let got = numbers(&body);
    assert_eq!(got["sizeof"], size, "struct {c}");
    for (f, offset, bytes) in fields {
        assert_eq!(
            (got[*f], got[&format!("sizeof.{f}")]),
            (*offset, *bytes),
            "{c}.{f}"
        );
    }
    // No room for a field that only C knows.
    let sum: usize = fields.iter().map(|(_, _, bytes)| bytes).sum();
    assert_eq!(sum, size, "struct {c} has bytes that are nobody's");
}

#[test]
fn a_record_has_the_same_layout() {
    let f = fields!(Record, Record::default(); slba, bytes, nsid, conn, dev, cid, status, flags,
        present, submit_cpu, send_cpu, complete_cpu, length, opcode, retries, r2ts, pdus,
        reserved, at);
    same_struct("ntp_record", size_of::<Record>(), &f);
}

#[test]
fn a_name_has_the_same_layout() {
    let zero = <RawName as zerocopy::FromBytes>::read_from_bytes(&[0; size_of::<RawName>()]);
    let f = fields!(RawName, zero.unwrap(); kind, id, since_ns, local, remote, local_port,
        remote_port, qid, cntlid, instance, nsid, hostnqn, subnqn, path, name);
    same_struct("ntp_name", size_of::<RawName>(), &f);
}

#[test]
fn a_count_key_has_the_same_layout() {
    let key = CountKey {
        dev: 0,
        bytes: 0,
        opcode: 0,
        admin: 0,
        zero: 0,
    };
    let f = fields!(CountKey, key; dev, bytes, opcode, admin, zero);
    same_struct("ntp_count_key", size_of::<CountKey>(), &f);
}

#[test]
fn points_have_the_same_numbers() {
    for (side, transport, prefix) in [
        (Role::Host, Transport::Tcp, "NTP_H_"),
        (Role::Target, Transport::Tcp, "NTP_T_"),
        (Role::Host, Transport::Rdma, "NTP_RH_"),
        (Role::Target, Transport::Rdma, "NTP_RT_"),
    ] {
        let points = point::of(side, transport);
        let names: Vec<String> = points
            .iter()
            .map(|p| format!("{prefix}{}", p.name.to_uppercase()))
            .collect();
        assert_eq!(enumerators(prefix), names, "same points in the same order");
        let body: String = names
            .iter()
            .map(|n| format!("printf(\"{n} %d\\n\", {n});\n"))
            .collect();
        let got = numbers(&body);
        for (p, name) in points.iter().zip(&names) {
            assert_eq!(got[name], usize::from(p.index), "{name}");
        }
    }
    assert_eq!(
        numbers("printf(\"n %d\\n\", NTP_POINTS);\n")["n"],
        point::POINTS
    );
}

#[test]
fn flags_have_the_same_bits() {
    let names: Vec<String> = Flags::ALL
        .iter()
        .map(|(_, n)| format!("NTP_F_{}", n.to_uppercase()))
        .collect();
    assert_eq!(enumerators("NTP_F_"), names);
    let body: String = names
        .iter()
        .map(|n| format!("printf(\"{n} %d\\n\", {n});\n"))
        .collect();
    let got = numbers(&body);
    for ((flag, _), name) in Flags::ALL.iter().zip(&names) {
        assert_eq!(got[name], usize::from(*flag as u16), "{name}");
    }
}

#[test]
fn counters_have_the_same_order() {
    let names = enumerators("NTP_S_");
    assert_eq!(names.len(), STATS.len());
    assert_eq!(
        numbers("printf(\"n %d\\n\", NTP_STATS);\n")["n"],
        STATS.len()
    );
    for (name, kind) in names.iter().zip(STATS) {
        let expected = match kind {
            StatKind::Seen => "NTP_S_SEEN",
            StatKind::Sampled => "NTP_S_SAMPLED",
            StatKind::Emitted => "NTP_S_EMITTED",
            StatKind::Lost(_) => "NTP_S_LOST_",
            StatKind::Miss(_) => "NTP_S_MISS_",
        };
        assert!(name.starts_with(expected), "{name} is {kind:?}");
    }
}

#[test]
fn the_sampling_hash_gives_the_vectors() {
    let vectors = std::fs::read_to_string(crate_dir().join("../ntp-record/src/vectors.txt"));
    let vectors = vectors.unwrap();
    let mut body = String::from("unsigned long long h;\n");
    let mut want = Vec::new();
    for line in vectors.lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split(' ').collect();
        let [slba, nsid, cid, length, opcode, salt, h, s10, s100, s1000] = f[..] else {
            panic!("{line}: ten fields");
        };
        let _ = writeln!(
            body,
            "h = ntp_hash(0x{salt}, 0x{cid}, 0x{opcode}, 0x{nsid}, 0x{slba}ull, 0x{length});\n\
             printf(\"%016llx %d %d %d\\n\", h, ntp_sampled(h, 10), ntp_sampled(h, 100), ntp_sampled(h, 1000));"
        );
        want.push(format!("{h} {s10} {s100} {s1000}"));
    }
    assert!(want.len() > 200);
    let got = run_c(&body);
    assert_eq!(got.lines().collect::<Vec<_>>(), want);
}

/// Beyond the vectors: ten thousand keys through both.
#[test]
fn the_sampling_hash_is_the_same_for_other_keys() {
    let body = "unsigned long long x = 1;\n\
        for (int i = 0; i < 10000; i++) {\n\
        x = x * 6364136223846793005ull + 1442695040888963407ull;\n\
        unsigned n = 1 + (x >> 50);\n\
        unsigned long long h = ntp_hash(x >> 7, x >> 11, x >> 21, x >> 29, x ^ x >> 33, x >> 40);\n\
        printf(\"%llu %d\\n\", h, ntp_sampled(h, n));\n}\n";
    let mut x = 1u64;
    for line in run_c(body).lines() {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let key = Key {
            slba: x ^ x >> 33,
            nsid: (x >> 29) as u32,
            cid: (x >> 11) as u16,
            length: (x >> 40) as u16,
            opcode: (x >> 21) as u8,
        };
        let h = hash(&key, (x >> 7) as u32);
        let n = 1 + (x >> 50) as u32;
        assert_eq!(line, format!("{h} {}", u32::from(sampled(h, n))));
    }
}
