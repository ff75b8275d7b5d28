//! A guest: boots it, runs scripts in it, moves files, ends it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::cache::{Cache, Prepared};
use crate::console::Console;
use crate::cpio::Tree;
use crate::qemu::{Machine, Net};
use crate::wire::{CHUNK, Frame, Kind, PushHead, take_frame, write_frame};

/// How long a guest may take from QEMU's start to its agent's first word; the
/// usual is 5 s, on a machine that compiles at the same time more.
const BOOT: Duration = Duration::from_secs(90);

/// How often a wait looks at the console and at QEMU.
const TICK: Duration = Duration::from_millis(100);

/// How a guest is made.
#[derive(Debug, Clone)]
pub struct BootOpts {
    /// Family of the kernel, such as `6.1`.
    pub kernel: String,
    /// Name in messages and of the console's file.
    pub name: String,
    /// CPUs.
    pub smp: u32,
    /// Memory.
    pub mem_mib: u32,
    /// More words for the kernel's command line.
    pub append: String,
    /// A cable to another guest; [`Guest::pair`] lays one.
    pub net: Option<Net>,
    /// Files put into the guest: path here, path there. Modes are kept.
    pub files: Vec<(PathBuf, String)>,
    /// Where `NAME.console` goes; else it is kept only if the guest is lost.
    pub out_dir: Option<PathBuf>,
    /// Where `lab-agent` is; [`default_bin_dir`] if not given.
    pub bin_dir: Option<PathBuf>,
}

impl BootOpts {
    /// A guest of that kernel with two CPUs and 2 GiB.
    pub fn new(kernel: &str) -> BootOpts {
        BootOpts {
            kernel: kernel.to_owned(),
            name: "guest".to_owned(),
            smp: 2,
            mem_mib: 2048,
            append: String::new(),
            net: None,
            files: Vec::new(),
            out_dir: None,
            bin_dir: None,
        }
    }
}

/// What a script printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 and the signal's number when a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The output, or an error with what it wrote to standard error.
    pub fn ok(self) -> Result<Output> {
        if self.status != 0 {
            let said = if self.stderr.trim().is_empty() {
                &self.stdout
            } else {
                &self.stderr
            };
            bail!("script: ended with {}: {}", self.status, said.trim());
        }
        Ok(self)
    }
}

/// A guest that is no more, or no longer to be trusted.
#[derive(Debug, Clone, thiserror::Error)]
#[error("guest `{name}`: {cause}; see `{}`", console.display())]
pub struct GuestLost {
    /// Which.
    pub name: String,
    /// What was seen.
    pub cause: String,
    /// The console's file, which stays.
    pub console: PathBuf,
}

/// A running guest. Dropping it kills it.
#[derive(Debug)]
pub struct Guest {
    name: String,
    qemu: Child,
    port: UnixStream,
    received: Vec<u8>,
    console: Console,
    keep_console: bool,
    lost: Option<GuestLost>,
    prepared: Prepared,
    // Sockets and the initramfs; goes when the last user does.
    _scratch: Vec<Arc<TempDir>>,
}

impl Guest {
    /// Boots one guest and waits until it takes requests.
    pub fn boot(opts: &BootOpts) -> Result<Guest> {
        let mut guest = Guest::start(opts, Vec::new())?;
        guest.greet()?;
        Ok(guest)
    }

    /// Boots two guests of one CPU each, joined by a cable: target (`eth0` is
    /// 10.9.0.2) and host (10.9.0.1), MTU 9000. Names and files are those of
    /// `opts`, with `target` and `host` as the names.
    pub fn pair(opts: &BootOpts) -> Result<(Guest, Guest)> {
        let cable = Arc::new(short_tempdir()?);
        let [t, h] = ["t", "h"].map(|end| cable.path().join(end));
        let machine = |name: &str, local: &Path, remote: &Path, last: u8| BootOpts {
            name: name.to_owned(),
            smp: 1,
            net: Some(Net {
                local: local.to_owned(),
                remote: remote.to_owned(),
                mac: format!("52:54:00:00:00:{last:02x}"),
            }),
            ..opts.clone()
        };
        let mut target = Guest::start(&machine("target", &t, &h, 2), vec![cable.clone()])?;
        let mut host = Guest::start(&machine("host", &h, &t, 1), vec![cable])?;
        for (guest, last) in [(&mut target, 2), (&mut host, 1)] {
            guest.greet()?;
            let up =
                format!("ip addr add 10.9.0.{last}/24 dev eth0 && ip link set eth0 mtu 9000 up");
            guest.sh(&up, Duration::from_secs(30))?.ok()?;
        }
        // Answered: both ends of the cable are there.
        host.sh(
            "wait_for 20 ping -c 1 -W 1 10.9.0.2 > /dev/null",
            Duration::from_secs(60),
        )?
        .ok()
        .context("pair: the target does not answer the host")?;
        Ok((target, host))
    }

    fn start(opts: &BootOpts, mut scratch: Vec<Arc<TempDir>>) -> Result<Guest> {
        let prepared = Cache::open()?.prepare(&opts.kernel)?;
        let tmp = short_tempdir()?;
        let initrd = tmp.path().join("initrd");
        write_initrd(opts, &prepared, &initrd)?;
        let console = match &opts.out_dir {
            Some(dir) => {
                fs::create_dir_all(dir).with_context(|| format!("`{}`", dir.display()))?;
                dir.join(format!("{}.console", opts.name))
            }
            None => std::env::temp_dir().join(format!(
                "{}-{}.console",
                tmp.path().file_name().unwrap_or_default().to_string_lossy(),
                opts.name
            )),
        };
        let socket = tmp.path().join("port");
        let mut command = Machine {
            kernel: &prepared,
            initrd: &initrd,
            console: &console,
            port: &socket,
            smp: opts.smp,
            mem_mib: opts.mem_mib,
            append: &opts.append,
            net: opts.net.as_ref(),
        }
        .command()?;
        let said = fs::File::create(tmp.path().join("qemu"))?;
        let mut qemu = command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .context("qemu: not started")?;
        let port = match connect(&socket, &mut qemu, tmp.path()) {
            Ok(port) => port,
            Err(e) => {
                end(&mut qemu);
                return Err(e);
            }
        };
        scratch.push(Arc::new(tmp));
        Ok(Guest {
            name: opts.name.clone(),
            qemu,
            port,
            received: Vec::new(),
            console: Console::new(console),
            keep_console: opts.out_dir.is_some(),
            lost: None,
            prepared,
            _scratch: scratch,
        })
    }

    /// Waits for the agent's first word.
    fn greet(&mut self) -> Result<()> {
        let end = Instant::now() + BOOT;
        self.send(Kind::Hello, b"")?;
        match self.receive(end, "boot")? {
            Frame {
                kind: Kind::Ready, ..
            } => Ok(()),
            f => Err(self.lose(format!("agent: {:?} in place of a greeting", f.kind))),
        }
    }

    /// The name it was booted under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel it runs.
    pub fn kernel(&self) -> &Prepared {
        &self.prepared
    }

    /// The file its console is written to.
    pub fn console(&self) -> &Path {
        &self.console.path
    }

    /// The lines of its console that tell of trouble; none is as it should be.
    pub fn console_problems(&self) -> Vec<String> {
        self.console.problems()
    }

    /// Runs a script (with the functions of `guest/lib.sh`) and waits for its
    /// end; what it leaves in the background runs on. A script that is not
    /// done by then is killed, which is an error, but the guest remains.
    pub fn sh(&mut self, script: &str, timeout: Duration) -> Result<Output> {
        self.send(Kind::Run, script.as_bytes())?;
        let mut deadline = Instant::now() + timeout;
        let mut killed = false;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let frame = match self.receive_until(deadline)? {
                Some(frame) => frame,
                None if killed => {
                    return Err(self.lose(format!("no answer {timeout:?} after a script began")));
                }
                None => {
                    self.send(Kind::Kill, b"")?;
                    killed = true;
                    deadline = Instant::now() + Duration::from_secs(20);
                    continue;
                }
            };
            match frame.kind {
                Kind::Stdout => stdout.extend(frame.payload),
                Kind::Stderr => stderr.extend(frame.payload),
                Kind::Exit => {
                    let status = i32::from_le_bytes(frame.payload.try_into().unwrap_or_default());
                    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
                    let out = Output {
                        status,
                        stdout: text(stdout),
                        stderr: text(stderr),
                    };
                    if killed {
                        bail!(
                            "guest `{}`: script not done after {timeout:?}: {}",
                            self.name,
                            out.stderr.trim()
                        );
                    }
                    return Ok(out);
                }
                kind => return Err(self.unexpected(kind, &frame.payload)),
            }
        }
    }

    /// Copies a file into the guest; its mode comes along.
    pub fn push(&mut self, from: &Path, to: &str) -> Result<()> {
        let named = || format!("`{}`", from.display());
        let mut file = fs::File::open(from).with_context(named)?;
        let meta = file.metadata().with_context(named)?;
        let head = PushHead {
            path: to.to_owned(),
            mode: meta.permissions().mode() & 0o777,
            len: meta.len(),
        };
        self.send(Kind::Push, &serde_json::to_vec(&head)?)?;
        let mut buf = vec![0; CHUNK];
        let mut left = head.len;
        while left > 0 {
            let want = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            file.read_exact(&mut buf[..want]).with_context(named)?;
            self.send(Kind::Data, &buf[..want])?;
            left -= want as u64;
        }
        match self.receive(Instant::now() + Duration::from_secs(60), "push")? {
            Frame {
                kind: Kind::End, ..
            } => Ok(()),
            f => Err(self.unexpected(f.kind, &f.payload).context(to.to_owned())),
        }
    }

    /// Copies a file out of the guest.
    pub fn pull(&mut self, from: &str, to: &Path) -> Result<()> {
        let named = || format!("`{}`", to.display());
        self.send(Kind::Pull, from.as_bytes())?;
        let mut file = io::BufWriter::new(fs::File::create(to).with_context(named)?);
        loop {
            let f = self.receive(Instant::now() + Duration::from_secs(60), "pull")?;
            match f.kind {
                Kind::Data => file.write_all(&f.payload).with_context(named)?,
                Kind::End => return file.flush().with_context(named),
                kind => return Err(self.unexpected(kind, &f.payload).context(from.to_owned())),
            }
        }
    }

    /// Ends the guest in order; an error if its console tells of trouble.
    pub fn poweroff(mut self) -> Result<()> {
        self.send(Kind::Poweroff, b"")?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.qemu.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(self.lose("did not power off within 20 s".to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        match self.console.trouble() {
            Some(line) => Err(self.lose(line)),
            None => Ok(()),
        }
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone().into());
        }
        // The write time-out makes a guest that no longer reads an error.
        match write_frame(&mut self.port, kind, payload) {
            Ok(()) => Ok(()),
            Err(e) => {
                let cause = self
                    .cause_of_end()
                    .unwrap_or_else(|| format!("takes no data: {e}"));
                Err(self.lose(cause))
            }
        }
    }

    fn receive(&mut self, deadline: Instant, what: &str) -> Result<Frame> {
        match self.receive_until(deadline)? {
            Some(frame) => Ok(frame),
            None => {
                let last = self.console.last_line();
                Err(self.lose(format!(
                    "{what}: no answer in time; its console ends `{last}`"
                )))
            }
        }
    }

    /// The next frame, or none by then; an error as soon as the console or
    /// QEMU says that none will come.
    fn receive_until(&mut self, deadline: Instant) -> Result<Option<Frame>> {
        let mut buf = vec![0; 64 << 10];
        loop {
            match take_frame(&mut self.received) {
                Ok(Some(f)) => return Ok(Some(f)),
                Ok(None) => {}
                Err(e) => return Err(self.lose(format!("agent: {e}"))),
            }
            match self.port.read(&mut buf) {
                Ok(0) => {
                    let cause = self.cause_of_end();
                    return Err(self.lose(cause.unwrap_or_else(|| "ended by itself".to_owned())));
                }
                Ok(n) => self.received.extend_from_slice(&buf[..n]),
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    if let Some(line) = self.console.trouble() {
                        return Err(self.lose(line));
                    }
                    if Instant::now() > deadline {
                        return Ok(None);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.lose(format!("qemu's socket: {e}"))),
            }
        }
    }

    /// Why QEMU has gone, or is about to: the console's word, then its status.
    fn cause_of_end(&mut self) -> Option<String> {
        for _ in 0..20 {
            if let Ok(Some(status)) = self.qemu.try_wait() {
                let said = self
                    .console
                    .trouble()
                    .unwrap_or_else(|| self.console.last_line());
                return Some(format!("qemu ended ({status}); console: {said}"));
            }
            thread::sleep(TICK);
        }
        self.console.trouble()
    }

    fn unexpected(&mut self, kind: Kind, payload: &[u8]) -> anyhow::Error {
        match kind {
            Kind::Failed => {
                anyhow::anyhow!(
                    "guest `{}`: {}",
                    self.name,
                    String::from_utf8_lossy(payload)
                )
            }
            kind => self.lose(format!("agent: {kind:?} out of turn")),
        }
    }

    /// Gives the guest up, and says why from now on.
    fn lose(&mut self, cause: String) -> anyhow::Error {
        // A kernel that has just begun to panic still has a trace to print.
        for _ in 0..10 {
            if self.console.trouble().is_none() || matches!(self.qemu.try_wait(), Ok(Some(_))) {
                break;
            }
            thread::sleep(TICK);
        }
        end(&mut self.qemu);
        self.keep_console = true;
        let lost = GuestLost {
            name: self.name.clone(),
            cause,
            console: self.console.path.clone(),
        };
        self.lost.get_or_insert(lost).clone().into()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.qemu);
        if !self.keep_console {
            let _ = fs::remove_file(&self.console.path);
        }
    }
}

fn end(qemu: &mut Child) {
    // Both fail only for a child that has been waited for.
    let _ = qemu.kill();
    let _ = qemu.wait();
}

/// Where the built programs are: beside the one that runs, or, for a test,
/// one folder above it.
pub fn default_bin_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("lab: where am I")?;
    let mut dirs = exe.ancestors().skip(1).take(2);
    dirs.find(|d| d.join("lab-agent").exists())
        .map(Path::to_owned)
        .with_context(|| {
            format!(
                "lab-agent: not beside `{}`; run cargo build -p ntp-lab",
                exe.display()
            )
        })
}

/// Unix sockets' paths end at 108 bytes, whatever TMPDIR says.
fn short_tempdir() -> Result<TempDir> {
    let dir = std::env::temp_dir();
    let dir = if dir.as_os_str().len() > 60 {
        PathBuf::from("/tmp")
    } else {
        dir
    };
    tempfile::Builder::new()
        .prefix("lab-")
        .tempdir_in(&dir)
        .with_context(|| format!("`{}`", dir.display()))
}

fn write_initrd(opts: &BootOpts, prepared: &Prepared, to: &Path) -> Result<()> {
    let bin = match &opts.bin_dir {
        Some(dir) => dir.clone(),
        None => default_bin_dir()?,
    };
    let agent = bin.join("lab-agent");
    if !agent.exists() {
        bail!(
            "`{}`: not there; run cargo build -p ntp-lab",
            agent.display()
        );
    }
    let mut tree = Tree::default();
    tree.bytes("init", 0o755, include_str!("../guest/init"));
    tree.bytes("lab/lib.sh", 0o644, include_str!("../guest/lib.sh"));
    tree.file("lab/lab-agent", 0o755, &agent);
    for (from, path) in &opts.files {
        let meta = fs::metadata(from).with_context(|| format!("`{}`", from.display()))?;
        tree.file(path, meta.permissions().mode() & 0o777, from);
    }
    fs::copy(prepared.base(), to).with_context(|| format!("`{}`", prepared.base().display()))?;
    let file = fs::OpenOptions::new().append(true).open(to)?;
    let mut file = io::BufWriter::new(file);
    tree.write(&mut file)?;
    file.flush()?;
    Ok(())
}

fn connect(socket: &Path, qemu: &mut Child, tmp: &Path) -> Result<UnixStream> {
    for _ in 0..500 {
        if let Ok(port) = UnixStream::connect(socket) {
            port.set_read_timeout(Some(TICK))?;
            port.set_write_timeout(Some(Duration::from_secs(60)))?;
            return Ok(port);
        }
        if let Some(status) = qemu.try_wait()? {
            let said = fs::read_to_string(tmp.join("qemu")).unwrap_or_default();
            bail!("qemu: {status}: {}", said.trim());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("qemu: no socket after 5 s")
}
