//! A host of a few lines against the target, over a real connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    opts: TargetOpts,
}

/// A PDU from the target: type, flags, header from byte 8 on, the rest.
type Answered = (u8, u8, Vec<u8>, Vec<u8>);

struct Host {
    stream: TcpStream,
    log: tempfile::NamedTempFile,
}

impl Host {
    /// A target with these options, and a connection to it.
    fn new(args: &[&str], maxr2t: u32, digests: u8) -> Host {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut opts = Cli::parse_from([&["target"], args].concat()).opts;
        opts.log = Some(log.path().to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::spawn(move || serve(&listener, &opts));
        let mut host = Host { stream, log };
        let mut request = vec![0; 120];
        request[3] = digests;
        request[4..8].copy_from_slice(&maxr2t.to_le_bytes());
        host.send(0, 0, &request, &[]);
        let (kind, _, fields, _) = host.receive();
        assert_eq!((kind, fields[3]), (1, digests));
        host
    }

    /// Connects it as queue 1; bit 2 of `attributes` is no SQ flow control.
    fn queue(mut self, attributes: u8) -> Host {
        let mut sqe = sqe(0x7f, 7, 0, 0, 0);
        sqe[4] = 1;
        sqe[42] = 1;
        sqe[44] = 127;
        sqe[46] = attributes;
        let mut data = [0; 1024];
        data[16] = 3;
        data[256..259].copy_from_slice(b"nqn");
        self.send(4, 0, &sqe, &data);
        let (kind, _, fields, _) = self.receive();
        assert_eq!(
            (kind, fields[0], &fields[12..16]),
            (5, 3, &[7, 0, 0, 0][..])
        );
        self
    }

    fn send(&mut self, kind: u8, flags: u8, fields: &[u8], data: &[u8]) {
        let pdu = pdu(kind, flags, fields, data);
        self.stream.write_all(&pdu).unwrap();
    }

    fn receive(&mut self) -> Answered {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head).unwrap();
        let mut rest = vec![0; u32_at(&head, 4) as usize - 8];
        self.stream.read_exact(&mut rest).unwrap();
        let data = rest.split_off(usize::from(head[2]) - 8);
        (head[0], head[1], rest, data)
    }

    /// H2CData for an R2T; gives what it asked for: offset and length.
    fn give(&mut self, r2t: &Answered) -> (u32, u32) {
        assert_eq!(r2t.0, 9);
        let (offset, len) = (u32_at(&r2t.2, 4), u32_at(&r2t.2, 8));
        let mut fields = r2t.2.clone();
        fields[4..8].copy_from_slice(&offset.to_le_bytes());
        self.send(6, flag::LAST, &fields, &vec![0; len as usize]);
        (offset, len)
    }

    /// The log's line of a command.
    fn logged(&self, cid: u16) -> Logged {
        // The line comes after the answer.
        for _ in 0..1000 {
            let text = std::fs::read_to_string(self.log.path()).unwrap();
            let whole = text.lines().filter(|l| l.ends_with('}'));
            let mut lines = whole.map(|l| serde_json::from_str::<Logged>(l).unwrap());
            if let Some(line) = lines.find(|l| l.cid == cid) {
                return line;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("command {cid} is not in the log");
    }
}

fn pdu(kind: u8, flags: u8, fields: &[u8], data: &[u8]) -> Vec<u8> {
    let head = 8 + fields.len() as u8;
    let pdo = if data.is_empty() { 0 } else { head };
    let mut pdu = vec![kind, flags, head, pdo];
    pdu.extend((u32::from(head) + data.len() as u32).to_le_bytes());
    pdu.extend(fields);
    pdu.extend(data);
    pdu
}

fn sqe(opcode: u8, cid: u16, slba: u64, blocks: u16, bytes: u32) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4] = 1;
    sqe[32..36].copy_from_slice(&bytes.to_le_bytes());
    sqe[40..48].copy_from_slice(&slba.to_le_bytes());
    sqe[48..50].copy_from_slice(&blocks.wrapping_sub(1).to_le_bytes());
    sqe
}

/// Offset, length and whether it is the last, of a data PDU of that command.
fn data(pdu: &Answered, cid: u16) -> (u32, u32, bool) {
    assert_eq!((pdu.0, u16_at(&pdu.2, 0)), (7, cid));
    assert_eq!(pdu.3.len(), u32_at(&pdu.2, 8) as usize);
    (u32_at(&pdu.2, 4), u32_at(&pdu.2, 8), pdu.1 & 4 != 0)
}

/// Command id and status of a completion.
fn completion(pdu: &Answered) -> (u16, u16) {
    assert_eq!(pdu.0, 5);
    (u16_at(&pdu.2, 12), u16_at(&pdu.2, 14) >> 1)
}

#[test]
fn a_read_is_split_and_ended_by_a_completion() {
    let mut host = Host::new(&["--c2h-bytes", "4096", "--success"], 0, 0).queue(0);
    host.send(4, 0, &sqe(2, 9, 5, 20, 10240), &[]);
    assert_eq!(data(&host.receive(), 9), (0, 4096, false));
    assert_eq!(data(&host.receive(), 9), (4096, 4096, false));
    let third = host.receive();
    assert_eq!(data(&third, 9), (8192, 2048, true));
    // The host has flow control: SUCCESS is not allowed.
    assert_eq!(third.1 & flag::SUCCESS, 0);
    assert_eq!(completion(&host.receive()), (9, 0));
    let log = host.logged(9);
    assert_eq!((log.qid, log.opcode, log.slba, log.nlb), (1, 2, 5, 19));
    assert_eq!((log.c2h_pdus, log.r2ts, log.h2c_pdus), (3, 0, 0));
    assert_eq!(log.peer, host.stream.local_addr().unwrap().to_string());
    let times = [log.received_ns, log.answered_ns, log.second_ns, log.last_ns];
    assert!(times.is_sorted() && times[0] > 0, "{log:?}");
}

#[test]
fn a_read_is_ended_by_the_success_flag_where_the_host_allows_it() {
    let mut host = Host::new(&["--c2h-bytes", "4096", "--success"], 0, 0).queue(1 << 2);
    host.send(4, 0, &sqe(2, 9, 0, 16, 8192), &[]);
    let (first, second) = (host.receive(), host.receive());
    assert_eq!((first.1, second.1), (0, flag::LAST | flag::SUCCESS));
    host.send(4, 0, &sqe(0, 10, 0, 0, 0), &[]);
    assert_eq!(completion(&host.receive()), (10, 0));
    let log = host.logged(9);
    assert!(log.success && log.c2h_pdus == 2, "{log:?}");
}

#[test]
fn a_write_is_asked_for_piece_by_piece() {
    let args = ["--r2t-bytes", "4096", "--r2ts", "9", "--delay-us", "30000"];
    // 0's based: the host takes two at once.
    let mut host = Host::new(&args, 1, 0).queue(0);
    host.send(4, 0, &sqe(1, 4, 0, 32, 16384), &[]);
    let (first, second) = (host.receive(), host.receive());
    assert_ne!(u16_at(&first.2, 2), u16_at(&second.2, 2), "transfer tags");
    assert_eq!(host.give(&second), (4096, 4096));
    let third = host.receive();
    assert_eq!(host.give(&first), (0, 4096));
    let fourth = host.receive();
    assert_eq!(host.give(&third), (8192, 4096));
    assert_eq!(host.give(&fourth), (12288, 4096));
    assert_eq!(completion(&host.receive()), (4, 0));
    let log = host.logged(4);
    assert_eq!((log.c2h_pdus, log.r2ts, log.h2c_pdus), (0, 4, 4));
    assert!(log.answered_ns >= log.data_done_ns + 30_000_000, "{log:?}");
    assert!(
        log.r2t_ns >= log.received_ns && log.r2t_ns < log.data_done_ns,
        "{log:?}"
    );
}

#[test]
fn data_of_commands_in_flight_is_interleaved() {
    let args = ["--c2h-bytes", "4096", "--interleave", "--delay-us", "20000"];
    let mut host = Host::new(&args, 0, 0).queue(0);
    // Both at once, so that both are due at once.
    let reads = [sqe(2, 1, 0, 24, 12288), sqe(2, 2, 0, 16, 8192)];
    let reads = reads.map(|sqe| pdu(4, 0, &sqe, &[]));
    host.stream.write_all(&reads.concat()).unwrap();
    let order: Vec<_> = (0..7)
        .map(|_| {
            let pdu = host.receive();
            (pdu.0, u16_at(&pdu.2, if pdu.0 == 5 { 12 } else { 0 }))
        })
        .collect();
    assert_eq!(
        order,
        [(7, 1), (7, 2), (7, 1), (7, 2), (7, 1), (5, 2), (5, 1)]
    );
}

/// CRC-32C bit by bit (RFC 3720, 12.1).
fn digest(bytes: &[u8]) -> [u8; 4] {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
    let crc = bytes
        .iter()
        .fold(!0, |crc, b| (0..8).fold(crc ^ u32::from(*b), step));
    (!crc).to_le_bytes()
}

#[test]
fn digests_are_made_and_checked() {
    let mut host = Host::new(&["--write-bytes", "10"], 0, 3);
    let read = |flags, damage: u8| {
        let mut pdu = vec![4, flags, 72, 0];
        pdu.extend(76u32.to_le_bytes());
        pdu.extend(sqe(6, 1, 1, 0, 4096));
        let mut crc = digest(&pdu);
        crc[0] ^= damage;
        [pdu, crc.to_vec()].concat()
    };
    host.stream.write_all(&read(1, 0)).unwrap();
    let (kind, flags, fields, data) = host.receive();
    assert_eq!((kind, flags), (7, 3 | flag::LAST));
    // Of the PDU's rest the first four bytes are the header's digest.
    let head = [&[7, flags, 24, 28][..], &4128u32.to_le_bytes(), &fields].concat();
    assert_eq!(data[..4], digest(&head));
    assert_eq!(data[4100..], digest(&data[4..4100]));
    assert_eq!(host.receive().0, 5);
    // One that does not fit ends the connection.
    host.stream.write_all(&read(1, 1)).unwrap();
    assert_eq!(host.stream.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_host_that_breaks_the_rules_is_cut_off() {
    for (len, flags, ttag) in [(512, flag::LAST, 1), (512, 0, 0), (516, flag::LAST, 0)] {
        let mut host = Host::new(&[], 0, 0).queue(0);
        host.send(4, 0, &sqe(1, 4, 0, 1, 512), &[]);
        assert_eq!(host.receive().0, 9);
        let fields = data_fields(4, ttag, 0, len);
        host.send(6, flags, &fields, &vec![0; len]);
        assert_eq!(
            host.stream.read(&mut [0; 8]).unwrap(),
            0,
            "{len} {flags} {ttag}"
        );
    }
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let mut host = Host::new(&["--bytes", "1048576"], 0, 0).queue(0);
    let refused = [
        (sqe(2, 1, 2048, 1, 512), 0x4080),
        (sqe(2, 1, u64::MAX, 1, 512), 0x4080),
        (sqe(2, 1, 2047, 2, 1024), 0x4080),
        (sqe(1, 1, 0, 2, 512), 0x400f),
        (sqe(9, 1, 0, 2, 512), 0x4001),
    ];
    for (sqe, status) in refused {
        host.send(4, 0, &sqe, &[]);
        assert_eq!(completion(&host.receive()), (1, status));
    }
}
