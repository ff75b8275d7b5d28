//! The lab's hand in a guest: takes requests from the host over a
//! virtio-serial port, runs scripts, moves files. Started by the guest's init,
//! which powers off when it ends; so a host that went away ends its guests.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use ntp_lab::wire::{CHUNK, Frame, Kind, PORT_NAME, PushHead, read_frame, write_frame};

/// Where the script that runs and its output are.
const WORK: &str = "/run/lab";

enum Event {
    Frame(Frame),
    HostGone,
    Exited(io::Result<ExitStatus>),
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("lab-agent: {e}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> io::Result<()> {
    fs::create_dir_all(WORK)?;
    let mut port = open_port()?;
    let (tx, rx) = sync_channel(8);
    let reader = Patient(port.try_clone()?);
    let frames = tx.clone();
    thread::spawn(move || read_frames(reader, &frames));
    while let Ok(Event::Frame(f)) = rx.recv() {
        let done = match f.kind {
            Kind::Hello => {
                let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
                write_frame(&mut port, Kind::Ready, release.trim().as_bytes())?;
                Ok(())
            }
            Kind::Run => match run(&f.payload, &mut port, &tx, &rx)? {
                Some(answer) => answer,
                None => break,
            },
            Kind::Push => push(&f.payload, &mut port, &rx),
            Kind::Pull => pull(&f.payload, &mut port),
            Kind::Poweroff => break,
            // A kill that came after the script's end, or data of a push
            // that failed half-way.
            _ => Ok(()),
        };
        if let Err(e) = done {
            write_frame(&mut port, Kind::Failed, e.to_string().as_bytes())?;
        }
    }
    Ok(())
}

/// The port's device. No udev here: sysfs says which one it is, and the
/// driver may still be at work.
fn open_port() -> io::Result<File> {
    for _ in 0..500 {
        for entry in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
        {
            let dir = entry?.path();
            let name = fs::read_to_string(dir.join("name")).unwrap_or_default();
            if let (PORT_NAME, Some(node)) = (name.trim(), dir.file_name()) {
                let path = Path::new("/dev").join(node);
                return OpenOptions::new().read(true).write(true).open(path);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "no virtio-serial port of the lab after 5 s",
    ))
}

/// The port reads as ended as long as nobody is at its other end: before the
/// first byte that means "not yet".
struct Patient(File);

impl Patient {
    fn first(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buf)? {
                0 => thread::sleep(Duration::from_millis(20)),
                n => return Ok(n),
            }
        }
    }
}

fn read_frames(mut reader: Patient, tx: &SyncSender<Event>) {
    let mut one = [0u8; 1];
    if reader.first(&mut one).is_ok() {
        let mut r = (&one[..]).chain(&mut reader.0);
        while let Ok(f) = read_frame(&mut r) {
            if tx.send(Event::Frame(f)).is_err() {
                return;
            }
        }
    }
    // An error here only says that nobody listens any more.
    let _ = tx.send(Event::HostGone);
}

/// Runs a script; its output goes through files, not pipes, so that what it
/// leaves running does not keep the request open. `None`: the host is gone.
#[allow(clippy::type_complexity)]
fn run(
    script: &[u8],
    port: &mut File,
    tx: &SyncSender<Event>,
    rx: &Receiver<Event>,
) -> io::Result<Option<io::Result<()>>> {
    let work = Path::new(WORK);
    let (path, out, err) = (
        work.join("script"),
        work.join("stdout"),
        work.join("stderr"),
    );
    let spawned = (|| {
        fs::write(&path, script)?;
        Command::new("/bin/sh")
            .args(["-c", ". /lab/lib.sh; . \"$0\""])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(fresh(&out)?)
            .stderr(fresh(&err)?)
            .process_group(0)
            .spawn()
    })();
    let mut child = match spawned {
        Ok(c) => c,
        Err(e) => return Ok(Some(Err(e))),
    };
    let group = Pid::from_raw(child.id() as i32);
    let done = tx.clone();
    thread::spawn(move || {
        let _ = done.send(Event::Exited(child.wait()));
    });
    let status = loop {
        match rx.recv() {
            Ok(Event::Exited(status)) => break status?,
            Ok(Event::Frame(Frame {
                kind: Kind::Kill, ..
            })) => {
                // No such group: it has ended by itself, and says so next.
                let _ = killpg(group, Signal::SIGKILL);
            }
            Ok(Event::Frame(_)) => {}
            Ok(Event::HostGone) | Err(_) => return Ok(None),
        }
    };
    send_file(&out, port, Kind::Stdout)?;
    send_file(&err, port, Kind::Stderr)?;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    write_frame(port, Kind::Exit, &code.to_le_bytes())?;
    Ok(Some(Ok(())))
}

/// A new file under the name: what an earlier script left running may still
/// write to the old one.
fn fresh(path: &PathBuf) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    OpenOptions::new().create_new(true).append(true).open(path)
}

fn send_file(path: &Path, port: &mut File, kind: Kind) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buf = vec![0; CHUNK];
    loop {
        match file.read(&mut buf)? {
            0 => return Ok(()),
            n => write_frame(port, kind, &buf[..n])?,
        }
    }
}

fn pull(path: &[u8], port: &mut File) -> io::Result<()> {
    let path = PathBuf::from(String::from_utf8_lossy(path).into_owned());
    send_file(&path, port, Kind::Data)?;
    write_frame(port, Kind::End, b"")
}

fn push(head: &[u8], port: &mut File, rx: &Receiver<Event>) -> io::Result<()> {
    let head: PushHead = serde_json::from_slice(head)?;
    let path = Path::new(&head.path);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(head.mode)
        .open(path)?;
    let mut left = head.len;
    while left > 0 {
        let Ok(Event::Frame(Frame {
            kind: Kind::Data,
            payload,
        })) = rx.recv()
        else {
            return Err(io::Error::other("push broken off"));
        };
        file.write_all(&payload)?;
        left = left.saturating_sub(payload.len() as u64);
    }
    drop(file);
    write_frame(port, Kind::End, b"")
}
