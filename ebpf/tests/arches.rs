//! The programs for each architecture, compiled as build.rs does. They read
//! arguments of kprobes from registers, and differ in nothing else.

#[path = "../build.rs"]
#[expect(dead_code, reason = "only the compiler is called")]
mod build;

use aya_obj::Object;
use aya_obj::btf::Btf;
use ntp_ebpf::btf::{KernelBtf, Raw};
use ntp_ebpf::hooks::OBJECTS;
use std::fs;
use std::path::Path;

/// Registers as kernels of both architectures have them: arch/x86/include/asm/ptrace.h,
/// arch/arm64/include/uapi/asm/ptrace.h. All other types are as the program has them.
fn kernel(program: &Path) -> String {
    format!(
        "#define pt_regs own_regs
         #define user_pt_regs own_user_regs
         #include \"{}\"
         #undef pt_regs
         #undef user_pt_regs
         struct pt_regs {{
             unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
             unsigned long orig_ax, ip, cs, flags, sp, ss;
         }} x86;
         struct user_pt_regs {{
             u64 regs[31], sp, pc, pstate;
         }} arm64;",
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(program)
            .display()
    )
}

/// Where the first five arguments are in them, bytes: di, si, dx, cx, r8, and x0 to x4.
const ARGUMENTS: [(i32, i32); 5] = [(112, 0), (104, 8), (96, 16), (88, 24), (72, 32)];

fn compiled(source: &Path, arch: &str) -> Object {
    let out = tempfile::tempdir().unwrap();
    let object = out.path().join("object");
    build::compile(source, &object, arch).unwrap();
    Object::parse(&fs::read(object).unwrap()).unwrap()
}

fn btf(object: &Object) -> Vec<u8> {
    object.btf.as_ref().map(Btf::to_bytes).unwrap()
}

/// The programs of an object as they would be loaded into that kernel.
fn relocated(source: &Path, arch: &str, kernel: &KernelBtf) -> Object {
    let mut object = compiled(source, arch);
    let slice = kernel.slice(btf(&object)).unwrap();
    let target = Btf::parse(&slice, object.endianness).unwrap();
    object.relocate_btf(&target).unwrap();
    object
}

#[test]
fn kprobes_find_their_arguments_in_the_registers_of_each_architecture() {
    for object in OBJECTS {
        let source = format!("bpf/{}.bpf.c", object.name);
        let source = Path::new(&source);
        let types = tempfile::Builder::new().suffix(".c").tempfile().unwrap();
        fs::write(&types, kernel(source)).unwrap();
        let types = btf(&compiled(types.path(), "x86"));
        let kernel = KernelBtf::new(Raw::parse("vmlinux", types).unwrap());

        let x86 = relocated(source, "x86", &kernel);
        let arm64 = relocated(source, "arm64", &kernel);
        assert!(x86.programs.keys().any(|name| name.ends_with("_kp")));
        for (name, program) in &x86.programs {
            let other = &arm64.programs[name];
            let x86 = &x86.functions[&program.function_key()].instructions;
            let arm64 = &arm64.functions[&other.function_key()].instructions;
            assert_eq!(x86.len(), arm64.len(), "{name}");
            let mut read = Vec::new();
            for (a, b) in x86.iter().zip(arm64) {
                assert_eq!((a.code, a.off), (b.code, b.off), "{name}");
                if a.imm != b.imm {
                    read.push((a.imm, b.imm));
                }
            }
            let kprobe = name.ends_with("_kp");
            let expected = if kprobe { &ARGUMENTS[..] } else { &[] };
            assert_eq!(read, expected, "{name}");
        }
    }
}
