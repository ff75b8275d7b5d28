//! Boots guests: what the other crates' end-to-end tests stand on.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ntp_lab::{BootOpts, Guest, RunOpts, is_lost, run};

/// Guests want a CPU each: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const SOON: Duration = Duration::from_secs(60);

fn options() -> BootOpts {
    let mut opts = BootOpts::new("6.1");
    opts.bin_dir = Path::new(env!("CARGO_BIN_EXE_lab-agent"))
        .parent()
        .map(Path::to_owned);
    opts
}

fn random(len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let source = fs::File::open("/dev/urandom").unwrap();
    source.take(len).read_to_end(&mut bytes).unwrap();
    bytes
}

fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// In place of ntp-capture: says that it records, and ends on SIGINT with the
/// status it is given.
const FAKE_CAPTURE: &str = "\
#!/bin/sh
[ \"$1\" = die ] && { echo 'no such kernel' >&2; exit 3; }
trap 'echo end; exit $2' INT
echo start
echo 'ntp-capture: recording' >&2
while :; do usleep 10000; done
";

#[test]
fn a_guest_runs_scripts_and_moves_files() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let fake = program(dir.path(), "ntp-capture", FAKE_CAPTURE);
    let mut opts = options();
    opts.files.push((fake, "lab/ntp-capture".to_owned()));
    let mut g = Guest::boot(&opts).unwrap();

    let release = g.kernel().release.clone();
    let out = g.sh("uname -r", SOON).unwrap();
    assert_eq!((out.status, out.stdout.trim()), (0, release.as_str()));
    assert!(release.starts_with("6.1."), "{release}");
    let out = g.sh("echo so; echo why >&2; exit 7", SOON).unwrap();
    assert_eq!(
        (out.status, &*out.stdout, &*out.stderr),
        (7, "so\n", "why\n")
    );

    // A process in the background neither holds up its script nor dies with
    // it; a script that does not end is killed and the guest goes on.
    g.sh("(sleep 1; echo later > /tmp/later) & echo now", SOON)
        .unwrap()
        .ok()
        .unwrap();
    let e = g.sh("sleep 100", Duration::from_secs(1)).unwrap_err();
    assert!(!is_lost(&e) && format!("{e}").contains("not done"), "{e}");
    let out = g
        .sh("wait_for 5 test -f /tmp/later && cat /tmp/later", SOON)
        .unwrap();
    assert_eq!(out.stdout, "later\n");

    moves_files(&mut g, dir.path());
    captures_start_and_stop(&mut g);
    a_block_device_is_served(&mut g);

    assert_eq!(g.console_problems(), [""; 0]);
    let e = g
        .sh("sleep 0.2; echo c > /proc/sysrq-trigger; sleep 9", SOON)
        .unwrap_err();
    assert!(is_lost(&e), "{e}");
    let said = format!("{e}");
    assert!(
        said.contains("panic") || said.contains("BUG") || said.contains("Oops"),
        "{said}"
    );
    assert!(said.contains(g.console().to_str().unwrap()), "{said}");
    assert!(!g.console_problems().is_empty());
    // It stays lost, and what it left is for whoever looks into it.
    assert!(is_lost(&g.sh("true", SOON).unwrap_err()));
    let console = g.console().to_owned();
    drop(g);
    fs::remove_file(console).unwrap();
}

fn moves_files(g: &mut Guest, dir: &Path) {
    let (there, back) = (dir.join("there"), dir.join("back"));
    let bytes = random(20 << 20);
    fs::write(&there, &bytes).unwrap();
    let began = Instant::now();
    g.push(&there, "/tmp/new/folder/file").unwrap();
    g.pull("/tmp/new/folder/file", &back).unwrap();
    println!("20 MiB there and back: {:?}", began.elapsed());
    assert!(
        fs::read(&back).unwrap() == bytes,
        "not the bytes that were sent"
    );
    let e = g.pull("/no/such", &back).unwrap_err();
    assert!(
        !is_lost(&e) && format!("{e:#}").contains("/no/such"),
        "{e:#}"
    );
    assert!(g.push(&there, "/proc/no").is_err());
    assert_eq!(
        g.sh("echo still here", SOON).unwrap().stdout,
        "still here\n"
    );
}

fn captures_start_and_stop(g: &mut Guest) {
    g.sh("capture_start one record 5", SOON)
        .unwrap()
        .ok()
        .unwrap();
    let out = g.sh("capture_stop one", SOON).unwrap();
    assert_eq!(out.status, 5, "{out:?}");
    let out = g.sh("cat /out/one.ntp /out/one.err", SOON).unwrap();
    assert_eq!(out.stdout, "start\nend\nntp-capture: recording\n");
    let out = g.sh("capture_start two die", SOON).unwrap();
    assert_eq!(out.status, 1);
    assert!(
        out.stderr.contains("ended with 3: no such kernel"),
        "{out:?}"
    );
}

fn a_block_device_is_served(g: &mut Guest) {
    let script = "\
        set -e
        a=$(null_blk a 60000 64); b=$(null_blk b 60000 32)
        netns_target
        nvmet_subsys t $a $b
        in_tgt 'nvmet_port 1 10.9.0.2 4420 t 8192; netem t0 1000'
        c=$(nvme_connect t 10.9.0.2 4420 nr_io_queues=1)
        for n in 2 1; do blockdev --getsize64 $(nvme_disk $c $n); done
        fio_run $(nvme_disk $c 1) --rw=randread --bs=4k --runtime=1 --time_based
        grep -q total_ios /out/fio.json
        nvme_disconnect t
        ! [ -e /sys/class/nvme/$c ]";
    let out = g.sh(script, Duration::from_secs(60)).unwrap().ok().unwrap();
    assert_eq!(out.stdout, format!("{}\n{}\n", 32 << 20, 64 << 20));
}

#[test]
fn two_guests_reach_each_other() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let mut opts = options();
    opts.out_dir = Some(dir.path().to_owned());
    let (mut target, mut host) = Guest::pair(&opts).unwrap();
    // The largest that fits one frame of MTU 9000.
    let out = host
        .sh("ping -c 5 -i 0.1 -s 8972 10.9.0.2", SOON)
        .unwrap()
        .ok()
        .unwrap();
    assert!(
        out.stdout.contains("5 packets received, 0% packet loss"),
        "{out:?}"
    );
    let out = target.sh("nproc; ip -o -4 addr show eth0", SOON).unwrap();
    assert!(
        out.stdout.starts_with("1\n") && out.stdout.contains("10.9.0.2/24"),
        "{out:?}"
    );
    host.poweroff().unwrap();
    target.poweroff().unwrap();
    assert!(dir.path().join("host.console").exists());
}

/// With stand-ins for the tools: what a run does around them.
#[test]
fn a_run_leaves_both_sides_and_names_what_failed() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (bin, out) = (dir.path().join("bin"), dir.path().join("out"));
    fs::create_dir(&bin).unwrap();
    program(
        &bin,
        "ntp-capture",
        &FAKE_CAPTURE
            .replace("echo start", "echo \"$@\"")
            .replace("$2", "0"),
    );
    program(
        &bin,
        "ntp-probe",
        "#!/bin/sh\necho \"$@\"; echo no BTF >&2; [ \"$2\" = host ]\n",
    );
    let mut opts = RunOpts::new(&out).unwrap();
    opts.bin = Some(bin);
    opts.net_delay = vec![2000, 4000];
    opts.seconds = 1;
    opts.capture_args = "--op read".to_owned();
    let facts = run(&opts).unwrap();

    assert_eq!(facts.problems(), ["probe target: ended with 1: no BTF"]);
    assert_eq!(
        (facts.net_delay_out_ns, facts.net_delay_back_ns),
        (2_000_000, 4_000_000)
    );
    let read =
        |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(read("host.ntp"), "-r host -t tcp -s 1 --op read\nend\n");
    assert_eq!(read("target.ntp"), "-r target -t tcp -s 1 --op read\nend\n");
    assert_eq!(read("probe-target.txt"), "-r target -t tcp\n");
    assert!(read("facts.json").contains("\"one_clock\": true"));
    // Both delays are in every command: 6 ms and more.
    let fio: serde_json::Value = serde_json::from_str(&read("fio.json")).unwrap();
    let mean = fio["jobs"][0]["read"]["lat_ns"]["mean"].as_f64().unwrap();
    assert!((6e6..30e6).contains(&mean), "{mean} ns");
}
