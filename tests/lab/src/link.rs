//! The line to a guest's agent, and the watch over the guest behind it: a
//! wait ends when the answer comes, when its time is over, or as soon as QEMU
//! or the console says that none will come.

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::console::Console;
use crate::wire::{Frame, Kind, take_frame, write_frame};

/// How often a wait looks at the console and at QEMU.
const TICK: Duration = Duration::from_millis(100);

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

/// The line, with the guest's process. Dropping it kills the guest.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) qemu: Child,
    pub(crate) console: Console,
    /// Whether the console's file outlives the guest.
    pub(crate) keep_console: bool,
    port: UnixStream,
    received: Vec<u8>,
    lost: Option<GuestLost>,
}

impl Link {
    /// Reaches the agent's port of a QEMU that has just been started; what
    /// QEMU says goes to `said`.
    pub(crate) fn open(
        name: &str,
        mut qemu: Child,
        console: Console,
        keep_console: bool,
        socket: &Path,
        said: &Path,
    ) -> Result<Link> {
        match connect(socket, &mut qemu, said) {
            Ok(port) => Ok(Link {
                name: name.to_owned(),
                qemu,
                console,
                keep_console,
                port,
                received: Vec::new(),
                lost: None,
            }),
            Err(e) => {
                end(&mut qemu);
                Err(e)
            }
        }
    }

    pub(crate) fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
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

    pub(crate) fn receive(&mut self, deadline: Instant, what: &str) -> Result<Frame> {
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
    pub(crate) fn receive_until(&mut self, deadline: Instant) -> Result<Option<Frame>> {
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

    pub(crate) fn unexpected(&mut self, kind: Kind, payload: &[u8]) -> anyhow::Error {
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
    pub(crate) fn lose(&mut self, cause: String) -> anyhow::Error {
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

impl Drop for Link {
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

fn connect(socket: &Path, qemu: &mut Child, said: &Path) -> Result<UnixStream> {
    for _ in 0..500 {
        if let Ok(port) = UnixStream::connect(socket) {
            port.set_read_timeout(Some(TICK))?;
            port.set_write_timeout(Some(Duration::from_secs(60)))?;
            return Ok(port);
        }
        if let Some(status) = qemu.try_wait()? {
            let said = fs::read_to_string(said).unwrap_or_default();
            bail!("qemu: {status}: {}", said.trim());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("qemu: no socket after 5 s")
}
