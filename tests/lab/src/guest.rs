//! A guest: boots it, runs scripts in it, moves files, ends it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::boot::{BootOpts, short_tempdir, write_initrd};
use crate::cache::{Cache, Prepared};
use crate::console::Console;
use crate::link::Link;
use crate::qemu::{Machine, Net};
use crate::wire::{CHUNK, Frame, Kind, PushHead};

/// How long a guest may take from QEMU's start to its agent's first word; the
/// usual is 5 s, on a machine that compiles at the same time more.
const BOOT: Duration = Duration::from_secs(180);

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

/// A running guest. Dropping it kills it.
#[derive(Debug)]
pub struct Guest {
    link: Link,
    prepared: Prepared,
    initrd: PathBuf,
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
        Guest::pair_apart(opts, Duration::ZERO)
    }

    /// The same, the host booted so much later: a machine's CLOCK_MONOTONIC
    /// begins when it boots.
    pub fn pair_apart(opts: &BootOpts, apart: Duration) -> Result<(Guest, Guest)> {
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
        thread::sleep(apart);
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
            name: &opts.name,
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
        let said = tmp.path().join("qemu");
        let to = fs::File::create(&said).with_context(|| format!("`{}`", said.display()))?;
        let qemu = command
            .stdin(Stdio::null())
            .stdout(to.try_clone()?)
            .stderr(to)
            .spawn()
            .context("qemu: not started")?;
        let keep = opts.out_dir.is_some();
        let console = Console::new(console);
        let link = Link::open(&opts.name, qemu, console, keep, &socket, &said)?;
        scratch.push(Arc::new(tmp));
        Ok(Guest {
            link,
            prepared,
            initrd,
            _scratch: scratch,
        })
    }

    /// Waits for the agent's first word.
    fn greet(&mut self) -> Result<()> {
        let end = Instant::now() + BOOT;
        self.link.send(Kind::Hello, b"")?;
        match self.link.receive(end, "boot")? {
            Frame {
                kind: Kind::Ready, ..
            } => {
                // As large as all else together, and read by now.
                fs::remove_file(&self.initrd)
                    .with_context(|| format!("`{}`", self.initrd.display()))
            }
            f => Err(self
                .link
                .lose(format!("agent: {:?} in place of a greeting", f.kind))),
        }
    }

    /// The name it was booted under.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// The kernel it runs.
    pub fn kernel(&self) -> &Prepared {
        &self.prepared
    }

    /// The file its console is written to.
    pub fn console(&self) -> &Path {
        &self.link.console.path
    }

    /// The lines of its console that tell of trouble; none is as it should be.
    pub fn console_problems(&self) -> Vec<String> {
        self.link.console.problems()
    }

    /// Runs a script (with the functions of `guest/lib.sh`) and waits for its
    /// end; what it leaves in the background runs on. A script that is not
    /// done by then is killed, which is an error, but the guest remains.
    pub fn sh(&mut self, script: &str, timeout: Duration) -> Result<Output> {
        self.link.send(Kind::Run, script.as_bytes())?;
        let mut deadline = Instant::now() + timeout;
        let mut killed = false;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let frame = match self.link.receive_until(deadline)? {
                Some(frame) => frame,
                None if killed => {
                    return Err(self
                        .link
                        .lose(format!("no answer {timeout:?} after a script began")));
                }
                None => {
                    self.link.send(Kind::Kill, b"")?;
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
                            self.link.name,
                            out.stderr.trim()
                        );
                    }
                    return Ok(out);
                }
                kind => return Err(self.link.unexpected(kind, &frame.payload)),
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
        self.link.send(Kind::Push, &serde_json::to_vec(&head)?)?;
        let mut buf = vec![0; CHUNK];
        let mut left = head.len;
        while left > 0 {
            let want = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            file.read_exact(&mut buf[..want]).with_context(named)?;
            self.link.send(Kind::Data, &buf[..want])?;
            left -= want as u64;
        }
        match self
            .link
            .receive(Instant::now() + Duration::from_secs(60), "push")?
        {
            Frame {
                kind: Kind::End, ..
            } => Ok(()),
            f => Err(self
                .link
                .unexpected(f.kind, &f.payload)
                .context(to.to_owned())),
        }
    }

    /// Copies a file out of the guest.
    pub fn pull(&mut self, from: &str, to: &Path) -> Result<()> {
        let named = || format!("`{}`", to.display());
        self.link.send(Kind::Pull, from.as_bytes())?;
        let mut file = io::BufWriter::new(fs::File::create(to).with_context(named)?);
        loop {
            let f = self
                .link
                .receive(Instant::now() + Duration::from_secs(60), "pull")?;
            match f.kind {
                Kind::Data => file.write_all(&f.payload).with_context(named)?,
                Kind::End => return file.flush().with_context(named),
                kind => {
                    return Err(self
                        .link
                        .unexpected(kind, &f.payload)
                        .context(from.to_owned()));
                }
            }
        }
    }

    /// Copies every file of a folder of the guest into one here.
    pub fn pull_all(&mut self, from: &str, to: &Path) -> Result<()> {
        fs::create_dir_all(to).with_context(|| format!("`{}`", to.display()))?;
        let list = format!("cd {from} && for f in *; do [ ! -f \"$f\" ] || echo \"$f\"; done");
        for name in self
            .sh(&list, Duration::from_secs(30))?
            .ok()?
            .stdout
            .lines()
        {
            self.pull(&format!("{from}/{name}"), &to.join(name))?;
        }
        Ok(())
    }

    /// Ends the guest in order; an error if its console tells of trouble.
    pub fn poweroff(mut self) -> Result<()> {
        self.link.send(Kind::Poweroff, b"")?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.link.qemu.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(self.link.lose("did not power off within 20 s".to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        match self.link.console.trouble() {
            Some(line) => Err(self.link.lose(line)),
            None => Ok(()),
        }
    }
}
