//! A small NVMe/TCP target in user space, whose manners can be chosen: how it
//! splits data over PDUs, how many R2Ts it sends, whether it interleaves the
//! data of several commands. Data read is zeroes, data written is thrown away.
//! It tells when it received and answered each command.

mod admin;
mod pdu;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use admin::{Answer, Connect, Controller, FABRICS, status};
use pdu::{Data, Framer, Pdu, Sender, broken, flag, kind, u16_at, u32_at, u64_at};

/// What the target does.
#[derive(Debug, Clone, Args)]
pub struct TargetOpts {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4430")]
    pub listen: SocketAddr,
    /// Size of the namespace, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub bytes: u64,
    /// Size of a block: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = block)]
    pub block: u32,
    /// Most data in a C2HData PDU; 0: all of a command's
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = dwords)]
    pub c2h_bytes: usize,
    /// Most data asked for by an R2T; 0: all of a command's
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = dwords)]
    pub r2t_bytes: usize,
    /// Most R2Ts of a command outstanding at once, if the host allows as many
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub r2ts: u32,
    /// Most data in an H2CData PDU (MAXH2CDATA); Linux hosts want 4096 or more
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = dwords)]
    pub maxh2c: usize,
    /// Most write data in a capsule, a multiple of 16
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = dwords)]
    pub inline_bytes: usize,
    /// End reads by the SUCCESS flag of their last C2HData PDU, where the host does without SQ flow control
    #[arg(long)]
    pub success: bool,
    /// Send a PDU of each command in flight in turn
    #[arg(long)]
    pub interleave: bool,
    /// No write to the socket crosses a multiple of this in the stream; 0: no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub write_bytes: usize,
    /// Time from having an I/O command, and its data, to the answer, us
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub delay_us: u64,
    /// Write a line of JSON for each command
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

fn block(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("use 512 or 4096".to_owned()),
    }
}

fn dwords(text: &str) -> Result<usize, String> {
    let n: usize = text.parse().map_err(|e| format!("{e}"))?;
    if n.is_multiple_of(4) {
        Ok(n)
    } else {
        Err("use a multiple of 4".to_owned())
    }
}

/// A command, as the target saw it. Times are nanoseconds of CLOCK_MONOTONIC;
/// one that did not come to pass is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// The host's end of the connection.
    pub peer: String,
    /// Queue; 0 is the admin queue.
    pub qid: u16,
    /// Command id.
    pub cid: u16,
    /// Opcode.
    pub opcode: u8,
    /// First block, as it stands in command dwords 10 and 11.
    pub slba: u64,
    /// Number of blocks minus one, as it stands in command dword 12.
    pub nlb: u16,
    /// Right after the read that brought the capsule's last byte.
    pub received_ns: u64,
    /// Right before the write of the first R2T.
    pub r2t_ns: u64,
    /// Right after the read that brought the last byte of data asked for.
    pub data_done_ns: u64,
    /// Right before the write of the answer's first PDU, data or completion.
    pub answered_ns: u64,
    /// Right before the write of the answer's second PDU.
    pub second_ns: u64,
    /// Right before the write of the answer's last PDU.
    pub last_ns: u64,
    /// C2HData PDUs sent.
    pub c2h_pdus: u32,
    /// R2Ts sent.
    pub r2ts: u32,
    /// H2CData PDUs received.
    pub h2c_pdus: u32,
    /// Ended by the SUCCESS flag, without a completion.
    pub success: bool,
    /// Status field of the completion, without the phase bit.
    pub status: u16,
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the monotonic clock");
    Duration::from(now).as_nanos() as u64
}

/// Serves hosts until the listener fails. One thread a connection answers,
/// another reads; a connection that breaks ends alone, with a message.
pub fn serve(listener: &TcpListener, opts: &TargetOpts) -> io::Result<()> {
    let shared = Arc::new(Shared {
        opts: opts.clone(),
        log: opts
            .log
            .as_ref()
            .map(File::create)
            .transpose()?
            .map(Mutex::new),
        controllers: AtomicU16::new(0),
    });
    loop {
        let (stream, peer) = listener.accept()?;
        let shared = shared.clone();
        thread::spawn(move || {
            if let Err(e) = Connection::run(&shared, &stream, peer) {
                eprintln!("lab-target: {peer}: {e}");
            }
            // The reader may hold it open.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
    }
}

struct Shared {
    opts: TargetOpts,
    log: Option<Mutex<File>>,
    controllers: AtomicU16,
}

impl Shared {
    fn log(&self, entry: &Logged) -> io::Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = log.lock().unwrap_or_else(|e| e.into_inner());
        file.write_all(&line)
    }
}

/// A command in flight.
struct Flight {
    log: Logged,
    answer: Answer,
    /// Bytes of zeroes to send after `answer.data`.
    zeroes: usize,
    sent: usize,
    /// Data of a write: all of it, asked for so far, arrived.
    bytes: usize,
    asked: usize,
    got: usize,
    /// Not answered before.
    due_ns: u64,
}

/// What an R2T asked for.
struct Asked {
    cid: u16,
    next: usize,
    end: usize,
}

struct Connection<'a> {
    opts: &'a TargetOpts,
    shared: &'a Shared,
    peer: String,
    out: Sender<&'a TcpStream>,
    controller: Controller,
    qid: u16,
    entries: u16,
    head: u16,
    no_flow_control: bool,
    host_r2ts: u32,
    next_ttag: u16,
    /// R2Ts out, by transfer tag; writes that wait for data, by command id.
    asked: HashMap<u16, Asked>,
    waiting: HashMap<u16, Flight>,
    /// In the order in which they are due, and those that are being answered.
    ready: VecDeque<Flight>,
    active: VecDeque<Flight>,
}

impl<'a> Connection<'a> {
    /// Until the host closes.
    fn run(shared: &'a Shared, stream: &'a TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let opts = &shared.opts;
        let mut framer = Framer::new(stream.try_clone()?);
        let Some(request) = framer.next()? else {
            return Ok(());
        };
        let mut connection = Connection {
            opts,
            shared,
            peer: peer.to_string(),
            out: Sender::new(stream, opts.write_bytes),
            controller: Controller {
                id: 0,
                subnqn: Vec::new(),
                serial: 0x1ab0_0000 | u32::from(opts.listen.port()),
                blocks: opts.bytes / u64::from(opts.block),
                block_shift: opts.block.trailing_zeros() as u8,
                inline_bytes: opts.inline_bytes as u32,
                config: 0,
            },
            qid: 0,
            entries: 1,
            head: 0,
            no_flow_control: false,
            host_r2ts: 1,
            next_ttag: 0,
            asked: HashMap::new(),
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            active: VecDeque::new(),
        };
        connection.initialize(&request)?;
        let (tx, rx) = channel();
        thread::spawn(move || {
            // Ends when the host has closed, when it is not understood, or
            // when nobody listens any more.
            while let Some(pdu) = framer.next().transpose() {
                let broken = pdu.is_err();
                if tx.send(pdu).is_err() || broken {
                    return;
                }
            }
        });
        connection.answer_all(&rx)
    }

    fn initialize(&mut self, request: &Pdu) -> io::Result<()> {
        if request.kind != kind::IC_REQ {
            return Err(broken("the first PDU is no ICReq"));
        }
        let digests = request.head[11];
        self.host_r2ts = u32_at(&request.head, 12).saturating_add(1);
        let mut fields = [0; 120];
        fields[3] = digests;
        fields[4..8].copy_from_slice(&(self.opts.maxh2c as u32).to_le_bytes());
        self.out.send(kind::IC_RESP, 0, &fields, Data::None)?;
        self.out.hdgst = digests & 1 != 0;
        self.out.ddgst = digests & 2 != 0;
        Ok(())
    }

    fn answer_all(&mut self, rx: &Receiver<io::Result<Pdu>>) -> io::Result<()> {
        loop {
            // No longer than until the next answer is due.
            let wait = match self.ready.front() {
                _ if !self.active.is_empty() => 0,
                Some(flight) => flight.due_ns.saturating_sub(now_ns()),
                None => u64::MAX,
            };
            match rx.recv_timeout(Duration::from_nanos(wait)) {
                Ok(pdu) => self.take(&pdu?)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let now = now_ns();
            while self.ready.front().is_some_and(|f| f.due_ns <= now) {
                self.active.extend(self.ready.pop_front());
            }
            if let Some(flight) = self.active.pop_front() {
                match self.turn(flight)? {
                    Some(flight) if self.opts.interleave => self.active.push_back(flight),
                    Some(flight) => self.active.push_front(flight),
                    None => {}
                }
            }
        }
    }

    fn take(&mut self, pdu: &Pdu) -> io::Result<()> {
        match pdu.kind {
            kind::CAPSULE => self.command(&pdu.head[8..], pdu),
            kind::H2C_DATA => self.data(pdu),
            kind => Err(broken(format!("PDU type {kind:#x} from a host"))),
        }
    }

    fn command(&mut self, sqe: &[u8], pdu: &Pdu) -> io::Result<()> {
        let mut flight = Flight {
            log: Logged {
                peer: self.peer.clone(),
                qid: self.qid,
                cid: u16_at(sqe, 2),
                opcode: sqe[0],
                slba: u64_at(sqe, 40),
                nlb: u16_at(sqe, 48),
                received_ns: pdu.at_ns,
                ..Logged::default()
            },
            answer: Answer::default(),
            zeroes: 0,
            sent: 0,
            bytes: 0,
            asked: 0,
            got: 0,
            due_ns: pdu.at_ns,
        };
        let answer = match (sqe[0], self.qid) {
            (FABRICS, _) => self.fabrics(sqe, &pdu.data),
            (_, 0) => self.controller.admin(sqe),
            _ => {
                flight.due_ns += self.opts.delay_us * 1000;
                Some(self.io(sqe, &mut flight))
            }
        };
        // Held for ever.
        let Some(answer) = answer else { return Ok(()) };
        flight.answer = answer;
        if flight.answer.status != status::SUCCESS {
            (flight.bytes, flight.zeroes) = (0, 0);
        }
        flight.got = pdu.data.len();
        flight.asked = flight.got;
        if flight.got < flight.bytes {
            self.ask(&mut flight)?;
            if self.waiting.insert(flight.log.cid, flight).is_some() {
                return Err(broken("a command id is used twice"));
            }
        } else {
            self.ready.push_back(flight);
        }
        Ok(())
    }

    fn fabrics(&mut self, sqe: &[u8], data: &[u8]) -> Option<Answer> {
        match sqe[4] {
            0x00 | 0x04 => self.controller.property(sqe),
            0x01 => {
                let Some(connect) = Connect::parse(sqe, data) else {
                    return Answer::failed(status::SGL_LENGTH);
                };
                self.qid = connect.qid;
                self.entries = connect.entries;
                self.no_flow_control = connect.no_flow_control;
                self.controller.id = match connect.qid {
                    0 => 1 + self.shared.controllers.fetch_add(1, Ordering::Relaxed),
                    _ => u16_at(data, 16),
                };
                self.controller.subnqn = connect.subnqn;
                Some(Answer {
                    result: u64::from(self.controller.id),
                    ..Answer::default()
                })
            }
            _ => Answer::failed(status::INVALID_OPCODE),
        }
    }

    /// What an I/O command is answered; how much data it moves.
    fn io(&self, sqe: &[u8], flight: &mut Flight) -> Answer {
        let blocks = u64::from(flight.log.nlb) + 1;
        let bytes = (blocks as usize) << self.controller.block_shift;
        let end = flight.log.slba.checked_add(blocks);
        let status = match sqe[0] {
            0x00 => status::SUCCESS,
            0x01 | 0x02 if end.is_none_or(|end| end > self.controller.blocks) => status::LBA_RANGE,
            0x01 | 0x02 if u32_at(sqe, 32) as usize != bytes => status::SGL_LENGTH,
            0x01 => {
                flight.bytes = bytes;
                status::SUCCESS
            }
            0x02 => {
                flight.zeroes = bytes;
                status::SUCCESS
            }
            _ => status::INVALID_OPCODE,
        };
        Answer {
            status,
            ..Answer::default()
        }
    }

    /// Sends R2Ts as long as more may be outstanding.
    fn ask(&mut self, flight: &mut Flight) -> io::Result<()> {
        let most = self.opts.r2ts.clamp(1, self.host_r2ts) as usize;
        let cid = flight.log.cid;
        let mut out = self.asked.values().filter(|a| a.cid == cid).count();
        while flight.asked < flight.bytes && out < most {
            let left = flight.bytes - flight.asked;
            let len = piece(left, self.opts.r2t_bytes);
            while self.asked.contains_key(&self.next_ttag) {
                self.next_ttag = self.next_ttag.wrapping_add(1);
            }
            let ttag = self.next_ttag;
            self.next_ttag = ttag.wrapping_add(1);
            let fields = data_fields(cid, ttag, flight.asked, len);
            let at = self.out.send(kind::R2T, 0, &fields, Data::None)?;
            if flight.log.r2ts == 0 {
                flight.log.r2t_ns = at;
            }
            flight.log.r2ts += 1;
            let (next, end) = (flight.asked, flight.asked + len);
            self.asked.insert(ttag, Asked { cid, next, end });
            flight.asked = end;
            out += 1;
        }
        Ok(())
    }

    /// Data that was asked for came.
    fn data(&mut self, pdu: &Pdu) -> io::Result<()> {
        let (cid, ttag) = (u16_at(&pdu.head, 8), u16_at(&pdu.head, 10));
        let (offset, len) = (
            u32_at(&pdu.head, 12) as usize,
            u32_at(&pdu.head, 16) as usize,
        );
        let last = pdu.flags & flag::LAST != 0;
        let asked = self.asked.get_mut(&ttag).filter(|a| a.cid == cid);
        let asked = asked.ok_or_else(|| broken("data that nobody asked for"))?;
        let over = len > self.opts.maxh2c || len > asked.end - asked.next;
        if over || offset != asked.next || last != (offset + len == asked.end) {
            return Err(broken(format!(
                "H2CData of {len} at {offset}, last {last}: asked for {} to {}",
                asked.next, asked.end
            )));
        }
        asked.next += len;
        if last {
            self.asked.remove(&ttag);
        }
        let mut flight = self.waiting.remove(&cid).expect("an R2T is of a command");
        flight.got += len;
        flight.log.h2c_pdus += 1;
        if flight.got == flight.bytes {
            flight.log.data_done_ns = pdu.at_ns;
            flight.due_ns = pdu.at_ns + self.opts.delay_us * 1000;
            self.ready.push_back(flight);
        } else {
            self.ask(&mut flight)?;
            self.waiting.insert(cid, flight);
        }
        Ok(())
    }

    /// Sends one PDU of a command's answer; `None` when that was the last.
    fn turn(&mut self, mut flight: Flight) -> io::Result<Option<Flight>> {
        let all = flight.answer.data.len() + flight.zeroes;
        let (from, cid) = (flight.sent, flight.log.cid);
        let at = if from < all {
            let len = piece(all - from, self.opts.c2h_bytes);
            let mut flags = 0;
            if from + len == all {
                flags |= flag::LAST;
                if self.opts.success && self.no_flow_control && self.qid > 0 {
                    flags |= flag::SUCCESS;
                    flight.log.success = true;
                }
            }
            let data = match flight.zeroes {
                0 => Data::Bytes(&flight.answer.data[from..from + len]),
                _ => Data::Zeroes(len),
            };
            let fields = data_fields(cid, 0, from, len);
            flight.sent += len;
            flight.log.c2h_pdus += 1;
            self.out.send(kind::C2H_DATA, flags, &fields, data)?
        } else {
            let mut fields = [0; 16];
            fields[..8].copy_from_slice(&flight.answer.result.to_le_bytes());
            self.head = (self.head + 1) % self.entries;
            let head = if self.no_flow_control {
                u16::MAX
            } else {
                self.head
            };
            let words = [head, self.qid, cid, flight.answer.status << 1];
            for (field, word) in fields[8..].chunks_mut(2).zip(words) {
                field.copy_from_slice(&word.to_le_bytes());
            }
            flight.log.status = flight.answer.status;
            self.out.send(kind::RESPONSE, 0, &fields, Data::None)?
        };
        if flight.log.answered_ns == 0 {
            flight.log.answered_ns = at;
        } else if flight.log.second_ns == 0 {
            flight.log.second_ns = at;
        }
        flight.log.last_ns = at;
        if from < all && !flight.log.success {
            return Ok(Some(flight));
        }
        self.shared.log(&flight.log)?;
        Ok(None)
    }
}

/// How much of what is left goes into one PDU; a limit of 0 is none.
fn piece(left: usize, limit: usize) -> usize {
    if limit == 0 { left } else { left.min(limit) }
}

/// Bytes 8 to 23 of the header of C2HData and R2T.
fn data_fields(cid: u16, ttag: u16, offset: usize, len: usize) -> [u8; 16] {
    let mut fields = [0; 16];
    fields[..2].copy_from_slice(&cid.to_le_bytes());
    fields[2..4].copy_from_slice(&ttag.to_le_bytes());
    fields[4..8].copy_from_slice(&(offset as u32).to_le_bytes());
    fields[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    fields
}
