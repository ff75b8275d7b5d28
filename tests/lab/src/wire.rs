//! What the host and the agent in the guest say to each other over the
//! virtio-serial port: frames of one byte kind, four bytes length (little
//! endian) and the payload. The one definition for both ends.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Name of the virtio-serial port, as the guest's sysfs shows it.
pub const PORT_NAME: &str = "ntp-lab";

/// The longest payload either end sends; a longer one is a broken stream.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// How much of a file goes into one frame.
pub const CHUNK: usize = 256 << 10;

/// Bytes of a frame before its payload.
pub const HEAD: usize = 5;

/// The kind of a frame. Values are fixed: both ends may be of different builds
/// when a cache is old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Host to guest: are you there? Answered by [`Kind::Ready`].
    Hello = 1,
    /// Host to guest: run the payload as a shell script.
    Run = 2,
    /// Host to guest: kill the script that runs.
    Kill = 3,
    /// Host to guest: [`PushHead`]; its bytes follow as [`Kind::Data`].
    Push = 4,
    /// Host to guest: send the file whose path is the payload.
    Pull = 5,
    /// Host to guest: end the agent, upon which init powers off.
    Poweroff = 6,
    /// Guest to host: the agent takes requests; the payload is the kernel's
    /// release.
    Ready = 16,
    /// Guest to host: a piece of the script's standard output.
    Stdout = 17,
    /// Guest to host: a piece of the script's standard error.
    Stderr = 18,
    /// Guest to host: the script ended; the payload is its status, four bytes.
    Exit = 19,
    /// Either way: a piece of a file.
    Data = 20,
    /// Guest to host: the file is complete (pulled or pushed).
    End = 21,
    /// Guest to host: the request failed; the payload says why.
    Failed = 22,
}

impl Kind {
    /// The kind that a byte of the stream stands for.
    pub fn from_byte(b: u8) -> Option<Kind> {
        use Kind::*;
        [
            Hello, Run, Kill, Push, Pull, Poweroff, Ready, Stdout, Stderr, Exit, Data, End, Failed,
        ]
        .into_iter()
        .find(|k| *k as u8 == b)
    }
}

/// The payload of [`Kind::Push`].
#[derive(Debug, Serialize, Deserialize)]
pub struct PushHead {
    /// Where the file goes in the guest; its folder is made.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Bytes that follow.
    pub len: u64,
}

/// One message.
#[derive(Debug)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// Writes one frame.
pub fn write_frame(w: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    // One write for the head and small payloads: each write to the port is an
    // exit of the virtual machine.
    let mut buf = Vec::with_capacity(HEAD + payload.len());
    buf.push(kind as u8);
    buf.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    buf.extend_from_slice(payload);
    w.write_all(&buf)
}

/// Reads one frame; blocks until it is whole.
pub fn read_frame(r: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0u8; HEAD];
    r.read_exact(&mut head)?;
    let (kind, len) = parse_head(&head)?;
    let mut payload = vec![0; len];
    r.read_exact(&mut payload)?;
    Ok(Frame { kind, payload })
}

/// Takes one whole frame off the front of `buf`, if there is one.
pub fn take_frame(buf: &mut Vec<u8>) -> io::Result<Option<Frame>> {
    let Some(head) = buf.first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let (kind, len) = parse_head(head)?;
    if buf.len() < HEAD + len {
        return Ok(None);
    }
    let rest = buf.split_off(HEAD + len);
    let payload = std::mem::replace(buf, rest).split_off(HEAD);
    Ok(Some(Frame { kind, payload }))
}

fn parse_head(head: &[u8; HEAD]) -> io::Result<(Kind, usize)> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let [k, len @ ..] = *head;
    let kind = Kind::from_byte(k).ok_or_else(|| bad(format!("frame of unknown kind {k}")))?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_PAYLOAD {
        return Err(bad(format!(
            "frame of {len} bytes, more than {MAX_PAYLOAD}"
        )));
    }
    Ok((kind, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut buf = Vec::new();
        write_frame(&mut buf, Kind::Run, b"true").unwrap();
        write_frame(&mut buf, Kind::End, b"").unwrap();
        let f = read_frame(&mut &buf[..]).unwrap();
        assert_eq!((f.kind, &f.payload[..]), (Kind::Run, &b"true"[..]));

        let f = take_frame(&mut buf).unwrap().unwrap();
        assert_eq!((f.kind, &f.payload[..]), (Kind::Run, &b"true"[..]));
        assert_eq!(take_frame(&mut buf).unwrap().unwrap().kind, Kind::End);
        assert!(take_frame(&mut buf).unwrap().is_none());
    }

    #[test]
    fn half_a_frame_waits_and_a_wrong_one_is_an_error() {
        let mut buf = vec![Kind::Data as u8, 4, 0, 0, 0, 1];
        assert!(take_frame(&mut buf).unwrap().is_none());
        assert_eq!(buf.len(), 6);
        assert!(take_frame(&mut vec![99, 0, 0, 0, 0]).is_err());
        assert!(take_frame(&mut vec![Kind::Data as u8, 0, 0, 0, 0xff]).is_err());
    }
}
