//! PDUs of NVMe/TCP (NVM Express TCP transport specification 1.0, 3.6) off and
//! onto a connection, with digests.

use std::io::{self, IoSlice, Read, Write};

use super::now_ns;

/// What a PDU is: byte 0 of its header.
pub(super) mod kind {
    pub(crate) const IC_REQ: u8 = 0x00;
    pub(crate) const IC_RESP: u8 = 0x01;
    pub(crate) const H2C_TERM: u8 = 0x02;
    pub(crate) const CAPSULE: u8 = 0x04;
    pub(crate) const RESPONSE: u8 = 0x05;
    pub(crate) const H2C_DATA: u8 = 0x06;
    pub(crate) const C2H_DATA: u8 = 0x07;
    pub(crate) const R2T: u8 = 0x09;
}

/// Flags of a PDU: byte 1 of its header.
pub(super) mod flag {
    pub(crate) const HEADER_DIGEST: u8 = 1 << 0;
    pub(crate) const DATA_DIGEST: u8 = 1 << 1;
    pub(crate) const LAST: u8 = 1 << 2;
    pub(crate) const SUCCESS: u8 = 1 << 3;
}

/// Bytes of a header that every PDU has.
const COMMON: usize = 8;
const DIGEST: usize = 4;
/// Data of capsules is kept, up to this; the rest of what hosts send is not.
const MAX_CAPSULE_DATA: usize = 1 << 20;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// A peer that does not keep to the specification: the connection ends.
pub(super) fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A PDU that came.
#[derive(Debug)]
pub(super) struct Pdu {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// The header, of the length that its kind has.
    pub(super) head: Vec<u8>,
    /// Data of a capsule; that of other PDUs is gone.
    pub(super) data: Vec<u8>,
    /// Right after the read that brought its last byte.
    pub(super) at_ns: u64,
}

/// Takes a stream of bytes apart.
pub(super) struct Framer<R> {
    input: R,
    buf: Vec<u8>,
    from: usize,
    to: usize,
    /// Right after the last read.
    read_ns: u64,
}

impl<R: Read> Framer<R> {
    pub(super) fn new(input: R) -> Self {
        Framer {
            input,
            buf: vec![0; 256 << 10],
            from: 0,
            to: 0,
            read_ns: 0,
        }
    }

    /// The next PDU, whole; `None` when the peer closed between two.
    pub(super) fn next(&mut self) -> io::Result<Option<Pdu>> {
        if self.from == self.to && !self.fill()? {
            return Ok(None);
        }
        let (kind, flags, hlen, pdo, plen) = {
            let h = self.need(COMMON)?;
            let plen = u32_at(h, 4) as usize;
            (h[0], h[1], usize::from(h[2]), usize::from(h[3]), plen)
        };
        let hdgst = if flags & flag::HEADER_DIGEST != 0 {
            DIGEST
        } else {
            0
        };
        let expected = match kind {
            kind::IC_REQ => 128,
            kind::CAPSULE => 72,
            kind::H2C_DATA | kind::H2C_TERM => 24,
            _ => return Err(broken(format!("PDU type {kind:#x}"))),
        };
        if hlen != expected || plen < hlen + hdgst {
            return Err(broken(format!(
                "PDU type {kind:#x}: header of {hlen}, {plen} in all"
            )));
        }
        let head = self.need(hlen + hdgst)?;
        if hdgst > 0 && crc32c::crc32c(&head[..hlen]) != u32_at(head, hlen) {
            return Err(broken("header digest is wrong"));
        }
        let head = head[..hlen].to_vec();
        self.from += hlen + hdgst;
        let data = self.data(kind, flags, plen - hlen - hdgst, pdo, hlen + hdgst)?;
        Ok(Some(Pdu {
            kind,
            flags,
            head,
            data,
            at_ns: self.read_ns,
        }))
    }

    /// Takes what is behind the header; gives what is kept of it.
    fn data(
        &mut self,
        kind: u8,
        flags: u8,
        left: usize,
        pdo: usize,
        head: usize,
    ) -> io::Result<Vec<u8>> {
        let ddgst = if flags & flag::DATA_DIGEST != 0 && left > 0 {
            DIGEST
        } else {
            0
        };
        let keep = kind == kind::CAPSULE;
        let pad = if left > 0 { pdo.wrapping_sub(head) } else { 0 };
        let mut len = left.wrapping_sub(pad).wrapping_sub(ddgst);
        if pad > left || len > left || keep && len > MAX_CAPSULE_DATA {
            return Err(broken(format!("PDU type {kind:#x}: data at {pdo}")));
        }
        self.need(pad)?;
        self.from += pad;
        let (mut kept, mut crc) = (Vec::new(), 0);
        while len > 0 {
            self.need(1)?;
            let piece = &self.buf[self.from..self.to];
            let piece = &piece[..piece.len().min(len)];
            if ddgst > 0 {
                crc = crc32c::crc32c_append(crc, piece);
            }
            if keep {
                kept.extend_from_slice(piece);
            }
            len -= piece.len();
            self.from += piece.len();
        }
        if ddgst > 0 && u32_at(self.need(DIGEST)?, 0) != crc {
            return Err(broken("data digest is wrong"));
        }
        self.from += ddgst;
        Ok(kept)
    }

    /// The next `len` bytes, without taking them.
    fn need(&mut self, len: usize) -> io::Result<&[u8]> {
        while self.to - self.from < len {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&self.buf[self.from..self.from + len])
    }

    /// One read; false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        // What is left is less than a header.
        self.buf.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        let n = match self.input.read(&mut self.buf[self.to..]) {
            // Linux hosts close without lingering.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => 0,
            n => n?,
        };
        self.read_ns = now_ns();
        self.to += n;
        Ok(n > 0)
    }
}

/// Data of a PDU to send.
pub(super) enum Data<'a> {
    None,
    Zeroes(usize),
    Bytes(&'a [u8]),
}

/// Puts PDUs onto a connection.
pub(super) struct Sender<W> {
    output: W,
    pub(super) hdgst: bool,
    pub(super) ddgst: bool,
    /// No write crosses a multiple of this in the stream; 0: no limit.
    write_bytes: usize,
    sent: usize,
    zeroes: Vec<u8>,
}

impl<W: Write> Sender<W> {
    pub(super) fn new(output: W, write_bytes: usize) -> Self {
        Sender {
            output,
            hdgst: false,
            ddgst: false,
            write_bytes,
            sent: 0,
            zeroes: Vec::new(),
        }
    }

    /// Sends a PDU of which `fields` is the header from byte 8 on; gives the
    /// time right before its first write.
    pub(super) fn send(
        &mut self,
        kind: u8,
        flags: u8,
        fields: &[u8],
        data: Data<'_>,
    ) -> io::Result<u64> {
        if let Data::Zeroes(len) = data {
            self.zeroes.resize(self.zeroes.len().max(len), 0);
        }
        let body = match data {
            Data::None => &[],
            Data::Zeroes(len) => &self.zeroes[..len],
            Data::Bytes(bytes) => bytes,
        };
        let hlen = COMMON + fields.len();
        let hdgst = self.hdgst && kind != kind::IC_RESP;
        let ddgst = self.ddgst && !body.is_empty();
        let data_at = hlen + if hdgst { DIGEST } else { 0 };
        let plen = data_at + body.len() + if ddgst { DIGEST } else { 0 };
        let mut flags = flags;
        let mut pdo = 0;
        if hdgst {
            flags |= flag::HEADER_DIGEST;
        }
        if ddgst {
            flags |= flag::DATA_DIGEST;
        }
        if !body.is_empty() {
            pdo = byte(data_at)?;
        }
        let mut head = vec![kind, flags, byte(hlen)?, pdo];
        let plen = u32::try_from(plen).map_err(|_| broken("PDU of 4 GiB"))?;
        head.extend(plen.to_le_bytes());
        head.extend(fields);
        if hdgst {
            head.extend(crc32c::crc32c(&head).to_le_bytes());
        }
        let tail = crc32c::crc32c(if ddgst { body } else { &[] }).to_le_bytes();
        let tail: &[u8] = if ddgst { &tail } else { &[] };

        let mut slices = [&head, body, tail].map(IoSlice::new);
        let mut slices = &mut slices[..];
        IoSlice::advance_slices(&mut slices, 0);
        let begin = now_ns();
        while !slices.is_empty() {
            let n = match self.write_bytes {
                0 => self.output.write_vectored(slices)?,
                limit => {
                    let room = limit - self.sent % limit;
                    let piece = &slices[0];
                    self.output.write(&piece[..piece.len().min(room)])?
                }
            };
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.sent += n;
            IoSlice::advance_slices(&mut slices, n);
        }
        Ok(begin)
    }
}

fn byte(len: usize) -> io::Result<u8> {
    u8::try_from(len).map_err(|_| broken("header too long"))
}
