//! Any bytes as type information: of the kernel, of a module, of a program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ntp_ebpf::btf::{KernelBtf, Raw};

fuzz_target!(|data: &[u8]| {
    // Two lengths, then three blobs.
    let [a, b, c, d, blobs @ ..] = data else {
        return;
    };
    let (base, rest) = split(blobs, u16::from_le_bytes([*a, *b]));
    let (module, object) = split(rest, u16::from_le_bytes([*c, *d]));
    let Ok(base) = Raw::parse("base", base.to_vec()) else {
        return;
    };
    let mut kernel = KernelBtf::new(base);
    if let Ok(module) = Raw::parse("module", module.to_vec()) {
        let _ = kernel.add("module", module, true);
    }
    for module in ["vmlinux", "module"] {
        let _ = kernel.func(module, "nvmet_req_init");
    }
    if let Ok(slice) = kernel.slice(object.to_vec()) {
        Raw::parse("slice", slice).expect("what was written is read");
    }
});

fn split(bytes: &[u8], at: u16) -> (&[u8], &[u8]) {
    bytes.split_at(usize::from(at).min(bytes.len()))
}
