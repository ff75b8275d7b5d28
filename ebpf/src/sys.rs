//! bpf(2) and perf_event_open(2), the few calls the loader needs.
//!
//! Every descriptor is an [`OwnedFd`]: closing it undoes what it stands for,
//! so a killed process leaves nothing attached.

use aya_obj::generated::{
    bpf_attach_type, bpf_attr, bpf_btf_info, bpf_cmd, bpf_func_info, bpf_insn, bpf_line_info,
    bpf_prog_info, bpf_prog_type, perf_event_attr,
};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

fn zeroed() -> bpf_attr {
    // SAFETY: a union of plain integers and arrays; all zero is valid, and what
    // the kernel wants for fields not used.
    unsafe { std::mem::zeroed() }
}

fn bpf(cmd: bpf_cmd, attr: &mut bpf_attr) -> io::Result<RawFd> {
    // SAFETY: attr is as large as we say, and pointers put into it by the
    // callers below live until the call returns.
    let r = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            cmd as libc::c_long,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r as RawFd)
    }
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: a descriptor the kernel has just returned, owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Loads BTF of a program.
pub(crate) fn btf_load(btf: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.__bindgen_anon_7.btf = btf.as_ptr() as u64;
    attr.__bindgen_anon_7.btf_size = btf.len() as u32;
    bpf(bpf_cmd::BPF_BTF_LOAD, &mut attr).map(own)
}

/// Writes element 0 of a map that has one, `value` being its whole value.
pub(crate) fn map_set_first(map: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    let key = 0u32;
    let mut attr = zeroed();
    attr.__bindgen_anon_2.map_fd = map.as_raw_fd() as u32;
    attr.__bindgen_anon_2.key = std::ptr::from_ref(&key) as u64;
    attr.__bindgen_anon_2.__bindgen_anon_1.value = value.as_ptr() as u64;
    bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Makes a map constant, so that the verifier can drop branches on it.
pub(crate) fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = zeroed();
    attr.__bindgen_anon_2.map_fd = map.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_MAP_FREEZE, &mut attr).map(drop)
}

/// The kernel's BTF object of a module. Needs CAP_SYS_ADMIN.
pub(crate) fn module_btf(module: &str) -> io::Result<OwnedFd> {
    let mut id = 0;
    loop {
        let mut attr = zeroed();
        attr.__bindgen_anon_6.__bindgen_anon_1.start_id = id;
        bpf(bpf_cmd::BPF_BTF_GET_NEXT_ID, &mut attr)?;
        // SAFETY: an integer of the union, set by the call that succeeded.
        id = unsafe { attr.__bindgen_anon_6.next_id };
        let mut attr = zeroed();
        attr.__bindgen_anon_6.__bindgen_anon_1.btf_id = id;
        let fd = match bpf(bpf_cmd::BPF_BTF_GET_FD_BY_ID, &mut attr) {
            Ok(fd) => own(fd),
            // Gone since we got its id.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(e) => return Err(e),
        };
        if is_module_btf(&fd, module)? {
            return Ok(fd);
        }
    }
}

fn is_module_btf(fd: &OwnedFd, module: &str) -> io::Result<bool> {
    let mut name = [0u8; 64];
    // SAFETY: plain integers; all zero is valid.
    let mut info: bpf_btf_info = unsafe { std::mem::zeroed() };
    info.name = name.as_mut_ptr() as u64;
    info.name_len = name.len() as u32;
    let mut attr = zeroed();
    attr.info.bpf_fd = fd.as_raw_fd() as u32;
    attr.info.info = std::ptr::from_mut(&mut info) as u64;
    attr.info.info_len = size_of::<bpf_btf_info>() as u32;
    match bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr) {
        Ok(_) => {}
        // A longer name than any we look for.
        Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => return Ok(false),
        Err(e) => return Err(e),
    }
    let found = CStr::from_bytes_until_nul(&name).is_ok_and(|n| n.to_bytes() == module.as_bytes());
    Ok(info.kernel_btf == 1 && found)
}

/// A program to load.
pub(crate) struct ProgLoad<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: bpf_prog_type,
    pub(crate) attach: bpf_attach_type,
    pub(crate) insns: &'a [bpf_insn],
    pub(crate) license: &'a CStr,
    /// BTF of the program, with the records that refer to it.
    pub(crate) btf: Option<(BorrowedFd<'a>, &'a [bpf_func_info], &'a [bpf_line_info])>,
    /// Function to attach to by BTF: the module's BTF object (`None` for
    /// vmlinux) and the id.
    pub(crate) target: Option<(Option<BorrowedFd<'a>>, u32)>,
}

/// Loads a program; when refused, again with the verifier's log, which comes
/// with the error.
pub(crate) fn prog_load(p: &ProgLoad<'_>) -> Result<OwnedFd, (io::Error, String)> {
    match prog_load_log(p, &mut []) {
        Ok(fd) => Ok(fd),
        // Not the verifier's decision: a log would say nothing.
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => Err((e, String::new())),
        Err(first) => {
            let mut log = vec![0u8; 4 << 20];
            match prog_load_log(p, &mut log) {
                Ok(fd) => Ok(fd),
                Err(second) => {
                    let text = CStr::from_bytes_until_nul(&log)
                        .map(|c| c.to_string_lossy().into_owned())
                        .unwrap_or_default();
                    // A log that did not fit is no reason to refuse.
                    let full = second.raw_os_error() == Some(libc::ENOSPC);
                    Err((if full { first } else { second }, text))
                }
            }
        }
    }
}

fn prog_load_log(p: &ProgLoad<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    // SAFETY: this member of the union is all integers, set to zero above.
    let u = unsafe { &mut attr.__bindgen_anon_3 };
    // 15 bytes and a NUL.
    for (to, from) in u.prog_name.iter_mut().take(15).zip(p.name.bytes()) {
        *to = from as _;
    }
    u.prog_type = p.kind as u32;
    u.expected_attach_type = p.attach as u32;
    u.insns = p.insns.as_ptr() as u64;
    u.insn_cnt = p.insns.len() as u32;
    u.license = p.license.as_ptr() as u64;
    if let Some((fd, funcs, lines)) = p.btf {
        u.prog_btf_fd = fd.as_raw_fd() as u32;
        u.func_info = funcs.as_ptr() as u64;
        u.func_info_cnt = funcs.len() as u32;
        u.func_info_rec_size = size_of::<bpf_func_info>() as u32;
        u.line_info = lines.as_ptr() as u64;
        u.line_info_cnt = lines.len() as u32;
        u.line_info_rec_size = size_of::<bpf_line_info>() as u32;
    }
    if let Some((object, id)) = p.target {
        u.attach_btf_id = id;
        if let Some(fd) = object {
            u.__bindgen_anon_1.attach_btf_obj_fd = fd.as_raw_fd() as u32;
        }
    }
    if !log.is_empty() {
        u.log_buf = log.as_mut_ptr() as u64;
        u.log_size = log.len() as u32;
        u.log_level = 1;
    }
    bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr).map(own)
}

/// How often the kernel did not run a program, because it, or another one of
/// a kind that excludes it, was already running on the CPU; `None` before 5.12,
/// which does not count it. Of kprobes 6.7 is the first to count, and none counts
/// those that the kprobe itself missed (kprobe_running() in kprobe_ftrace_handler).
pub(crate) fn prog_misses(prog: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    // SAFETY: plain integers; all zero is valid, and asks for no array.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut attr = zeroed();
    attr.info.bpf_fd = prog.as_raw_fd() as u32;
    attr.info.info = std::ptr::from_mut(&mut info) as u64;
    attr.info.info_len = size_of::<bpf_prog_info>() as u32;
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    let end = std::mem::offset_of!(bpf_prog_info, recursion_misses) + size_of::<u64>();
    // SAFETY: the kernel has set this member of the union to the length it wrote.
    let written = unsafe { attr.info.info_len } as usize;
    Ok((written >= end).then_some(info.recursion_misses))
}

/// Attaches to a tracepoint by name, or (`None`) a trampoline program to the
/// function it was loaded for.
pub(crate) fn raw_tracepoint(prog: BorrowedFd<'_>, name: Option<&str>) -> io::Result<OwnedFd> {
    let name = name.map(CString::new).transpose()?;
    let mut attr = zeroed();
    attr.raw_tracepoint.prog_fd = prog.as_raw_fd() as u32;
    attr.raw_tracepoint.name = name.as_ref().map_or(0, |n| n.as_ptr() as u64);
    bpf(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(own)
}

/// Of linux/perf_event.h.
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// Runs a program at a function's entry. The probe lives as long as the
/// descriptor, unlike one made through tracefs.
pub(crate) fn kprobe(prog: BorrowedFd<'_>, function: &str) -> io::Result<OwnedFd> {
    let name = CString::new(function)?;
    // SAFETY: plain integers and bit fields; all zero is valid.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.type_ = kprobe_pmu()?;
    attr.__bindgen_anon_3.kprobe_func = name.as_ptr() as u64;
    // SAFETY: attr is as large as it says, and name lives until the call
    // returns. Any process on CPU 0 stands for all of them: the program hangs
    // on the probe, not on the event.
    let r = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_mut(&mut attr),
            -1 as libc::c_long,
            0 as libc::c_long,
            -1 as libc::c_long,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = own(r as RawFd);
    for (request, arg) in [(IOC_SET_BPF, prog.as_raw_fd()), (IOC_ENABLE, 0)] {
        // SAFETY: both take an int, by value.
        if unsafe { libc::ioctl(fd.as_raw_fd(), request as _, arg) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(fd)
}

/// The number of the kprobe PMU.
fn kprobe_pmu() -> io::Result<u32> {
    let path = "/sys/bus/event_source/devices/kprobe/type";
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{path}: {e}"));
    let text = std::fs::read_to_string(path).map_err(named)?;
    let number = text.trim();
    number
        .parse()
        .map_err(|_| named(io::Error::other(format!("`{number}` is not a number"))))
}

/// Bytes of a page: 4 KiB on x86-64, also 16 or 64 on aarch64.
pub(crate) fn page_size() -> u32 {
    // SAFETY: reads no memory of ours. It is known on every Linux, and small.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u32 }
}

/// Lets maps be as large as they must be: before 5.11 they count as locked
/// memory. Later kernels ignore it, so a refusal is no error. Without the right
/// to raise the limit, as far as it allows.
pub(crate) fn raise_memlock() {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads the struct, nothing else.
    if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) } == 0 {
        return;
    }
    // SAFETY: fills the struct, then reads it, nothing else.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
        }
    }
}

/// The limit of locked memory, bytes; `None` for no limit.
pub(crate) fn memlock() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes the struct, nothing else.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Tries what every function hook by trampoline needs: an empty program at the
/// entry of a function that only tests of the kernel call, and off again.
/// `id` is the function's in vmlinux's BTF.
pub(crate) fn try_trampoline(id: u32) -> io::Result<()> {
    // r0 = 0; exit
    let insns = [insn(0xb7), insn(0x95)];
    let prog = prog_load(&ProgLoad {
        name: "ntp_try",
        kind: bpf_prog_type::BPF_PROG_TYPE_TRACING,
        attach: bpf_attach_type::BPF_TRACE_FENTRY,
        insns: &insns,
        license: c"GPL",
        btf: None,
        target: Some((None, id)),
    })
    .map_err(|(e, _)| e)?;
    use std::os::fd::AsFd;
    raw_tracepoint(prog.as_fd(), None).map(drop)
}

fn insn(code: u8) -> bpf_insn {
    // SAFETY: plain integers; all zero is valid.
    let mut i: bpf_insn = unsafe { std::mem::zeroed() };
    i.code = code;
    i
}
