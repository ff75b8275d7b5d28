//! Compiles bpf/*.bpf.c with clang and lists the objects for src/objects.rs.
//!
//! Only the build needs clang; the objects are embedded and relocated at run
//! time against the BTF of the kernel that runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=LLVM_STRIP");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => {
            return Err(format!(
                "architecture {other:?}: only x86_64 and aarch64 are supported"
            ));
        }
    };
    let mut sources = Vec::new();
    for entry in fs::read_dir("bpf").map_err(|e| format!("bpf: {e}"))? {
        let path = entry.map_err(|e| format!("bpf: {e}"))?.path();
        println!("cargo:rerun-if-changed={}", path.display());
        if path.to_string_lossy().ends_with(".bpf.c") {
            sources.push(path);
        }
    }
    sources.sort();
    let mut list = String::new();
    for source in &sources {
        let stem = source
            .file_name()
            .map_or(String::new(), |n| n.to_string_lossy().into_owned());
        let stem = stem.trim_end_matches(".bpf.c");
        let object = out.join(format!("{stem}.bpf.o"));
        compile(source, &object, arch)?;
        list += &format!(
            "/// Compiled bpf/{stem}.bpf.c.\n\
             pub(crate) const {}: &[u8] = aya::include_bytes_aligned!(concat!(env!(\"OUT_DIR\"), \"/{stem}.bpf.o\"));\n",
            stem.to_uppercase()
        );
    }
    fs::write(out.join("objects.rs"), list).map_err(|e| format!("objects.rs: {e}"))
}

pub(crate) fn compile(source: &Path, object: &Path, arch: &str) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        .args(["-Wno-unused-function", "-ffile-prefix-map=.=", "-fdebug-compilation-dir=."])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .map_err(|e| {
            format!(
                "{clang}: {e}: install clang (14 or newer; `apt install clang`) or name one in CLANG"
            )
        })?;
    if !status.success() {
        return Err(format!("{clang}: {}: {status}", source.display()));
    }
    // DWARF is most of the object and of no use at run time; .BTF and .BTF.ext
    // stay. Without llvm-strip the binary is only larger.
    let strip = env::var("LLVM_STRIP").unwrap_or_else(|_| clang.replace("clang", "llvm-strip"));
    let _ = Command::new(strip).arg("-g").arg(object).status();
    Ok(())
}
