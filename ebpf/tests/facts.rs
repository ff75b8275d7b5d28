//! Reading facts, from a file system made for the test.

use ntp_ebpf::Machine;
use ntp_ebpf::facts::{CAP_BPF, CAP_SYS_ADMIN, ModuleBtf};
use ntp_ebpf::hooks::object;
use ntp_record::{Role, Transport};
use std::path::Path;

/// BTF of one type: an int named `u32`.
fn btf() -> Vec<u8> {
    let mut out = vec![0x9f, 0xeb, 1, 0];
    for w in [24u32, 0, 16, 16, 5, 1, 1 << 24, 4, 32] {
        out.extend(w.to_le_bytes());
    }
    out.extend(b"\0u32\0");
    out
}

/// Split BTF without a type of its own.
fn empty_split() -> Vec<u8> {
    let mut out = vec![0x9f, 0xeb, 1, 0];
    for w in [24u32, 0, 0, 0, 1] {
        out.extend(w.to_le_bytes());
    }
    out.push(0);
    out
}

fn put(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// A host with the driver loaded, kptr_restrict hiding addresses.
fn machine(root: &Path) {
    put(root, "proc/sys/kernel/osrelease", "6.1.0-test\n");
    put(root, "proc/sys/kernel/kptr_restrict", "2\n");
    put(
        root,
        "proc/self/status",
        "Name:\tx\nCapEff:\t0000008000200000\nCapBnd:\t0\n",
    );
    put(
        root,
        "sys/kernel/security/lockdown",
        "none [integrity] confidentiality\n",
    );
    put(root, "sys/kernel/btf/vmlinux", btf());
    put(root, "sys/kernel/btf/nvme_tcp", empty_split());
    put(root, "sys/module/nvme_tcp/initstate", "live\n");
    put(root, "sys/module/nvme_core/parameters/io_timeout", "30\n");
    put(
        root,
        "proc/kallsyms",
        "0000000000000000 T skb_copy_bits\n\
         0000000000000000 T sock_sendmsg\n\
         0000000000000000 t sock_sendmsg\t[other]\n\
         0000000000000000 D nvme_tcp_timeout\t[nvme_tcp]\n\
         0000000000000000 t nvme_tcp_recv_skb\t[nvme_tcp]\n\
         0000000000000000 t nvme_tcp_recv_skb.cold\t[nvme_tcp]\n\
         0000000000000000 t nvme_tcp_data_ready.isra.0\t[nvme_tcp]\n\
         0000000000000000 t nvme_tcp_recv_skb.part.0\t[nvme_tcp]\n\
         0000000000000000 t nvme_tcp_data_ready\t[elsewhere]\n\
         0000000000000000 T __traceiter_nvme_setup_cmd\n\
         0000000000000000 T __traceiter_sched_switch\n\
         0000000000000000 d __tracepoint_nvme_complete_rq\n",
    );
    put(
        root,
        "sys/kernel/tracing/available_filter_functions",
        "sock_sendmsg\nnvme_tcp_recv_skb [nvme_tcp]\n",
    );
}

fn host() -> &'static ntp_ebpf::hooks::Object {
    object(Role::Host, Transport::Tcp)
}

#[test]
fn facts_are_what_the_files_say() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let f = Machine::read(dir.path(), host(), None).unwrap().facts;
    assert_eq!(f.kernel, "6.1.0-test");
    assert_eq!(f.lockdown, "integrity");
    assert_eq!(f.kptr_restrict, Some(2));
    assert_eq!(f.jit, None, "no such file is not 0");
    assert!(f.has_cap(CAP_BPF) && f.has_cap(CAP_SYS_ADMIN) && !f.has_cap(CAP_BPF - 1));
    assert!(f.kernel_btf && f.symbols);

    let (tcp, core) = (&f.modules["nvme_tcp"], &f.modules["nvme_core"]);
    assert!(tcp.loaded && !tcp.built_in && tcp.btf == ModuleBtf::Kernel);
    assert!(!core.loaded && core.built_in && core.btf == ModuleBtf::Absent);

    // Not the data symbol, not the cold part, not another module's function.
    let names: Vec<&str> = f.functions.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "nvme_tcp:nvme_tcp_recv_skb",
            "vmlinux:skb_copy_bits",
            "vmlinux:sock_sendmsg"
        ]
    );
    assert_eq!(f.functions["vmlinux:sock_sendmsg"].copies, 2);
    assert_eq!(f.functions["vmlinux:sock_sendmsg"].traceable, Some(true));
    assert_eq!(f.functions["vmlinux:skb_copy_bits"].traceable, Some(false));
    // A copy of a function that is there too is no loss.
    let renamed: Vec<_> = f.renamed.values().collect();
    assert_eq!(renamed, ["nvme_tcp_data_ready.isra.0"]);
    assert_eq!(f.tracepoints.keys().collect::<Vec<_>>(), ["nvme_setup_cmd"]);
}

#[test]
fn what_cannot_be_read_is_unknown_not_absent() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    std::fs::remove_dir_all(dir.path().join("sys/kernel/tracing")).unwrap();
    let f = Machine::read(dir.path(), host(), None).unwrap().facts;
    assert!(f.functions.values().all(|v| v.traceable.is_none()));
    std::fs::remove_file(dir.path().join("proc/kallsyms")).unwrap();
    let f = Machine::read(dir.path(), host(), None).unwrap().facts;
    assert!(!f.symbols && f.functions.is_empty());
}

#[test]
fn nothing_at_all_is_read_without_complaint() {
    let dir = tempfile::tempdir().unwrap();
    let m = Machine::read(dir.path(), host(), None).unwrap();
    assert!(m.btf.is_none() && !m.facts.kernel_btf);
}

#[test]
fn btf_files_stand_in_for_modules_without_and_damaged_ones_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    std::fs::remove_file(dir.path().join("sys/kernel/btf/nvme_tcp")).unwrap();
    let given = dir.path().join("given");
    put(&given, "nvme_tcp", empty_split());
    let f = Machine::read(dir.path(), host(), Some(&given))
        .unwrap()
        .facts;
    assert_eq!(
        f.modules["nvme_tcp"].btf,
        ModuleBtf::File(given.join("nvme_tcp"))
    );

    put(&given, "nvme_tcp", &empty_split()[..20]);
    let e = Machine::read(dir.path(), host(), Some(&given))
        .unwrap_err()
        .to_string();
    assert!(
        e.starts_with(&given.join("nvme_tcp").display().to_string()),
        "{e}"
    );
    assert!(e.contains("20 bytes are too few"), "{e}");
}

#[test]
fn facts_survive_json() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let f = Machine::read(dir.path(), host(), None).unwrap().facts;
    let text = serde_json::to_string(&f).unwrap();
    assert_eq!(serde_json::from_str::<ntp_ebpf::Facts>(&text).unwrap(), f);
}

#[test]
fn btf_made_for_another_build_of_a_module_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, files) = (dir.path().join("root"), dir.path().join("btf"));
    machine(&root);
    std::fs::remove_file(root.join("sys/kernel/btf/nvme_tcp")).unwrap();
    // An ELF note: lengths of name and id, type 3, name, id.
    let note = [
        4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xab, 1,
    ];
    put(&root, "sys/module/nvme_tcp/notes/.note.gnu.build-id", note);
    put(&files, "nvme_tcp", empty_split());
    // Nobody knows of which build it is; then: of this one; then: of another.
    assert!(Machine::read(&root, host(), Some(&files)).is_ok());
    put(&files, "nvme_tcp.build-id", "ab01\n");
    let m = Machine::read(&root, host(), Some(&files)).unwrap();
    assert_eq!(
        m.facts.modules["nvme_tcp"].btf,
        ModuleBtf::File(files.join("nvme_tcp"))
    );
    put(&files, "nvme_tcp.build-id", "ab02\n");
    let e = Machine::read(&root, host(), Some(&files)).unwrap_err();
    assert!(e.to_string().contains("made for the build ab02"), "{e}");
}
