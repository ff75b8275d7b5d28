//! The admin and fabrics commands that the Linux host needs to bring up a
//! controller with one namespace (NVM Express base specification 2.0, 5 and 6).

use super::pdu::{u16_at, u32_at, u64_at};

/// Status field of a completion, without the phase bit.
pub(super) mod status {
    pub(crate) const SUCCESS: u16 = 0;
    pub(crate) const INVALID_OPCODE: u16 = DO_NOT_RETRY | 0x01;
    pub(crate) const INVALID_FIELD: u16 = DO_NOT_RETRY | 0x02;
    pub(crate) const INVALID_NAMESPACE: u16 = DO_NOT_RETRY | 0x0b;
    pub(crate) const SGL_LENGTH: u16 = DO_NOT_RETRY | 0x0f;
    pub(crate) const LBA_RANGE: u16 = DO_NOT_RETRY | 0x80;
    const DO_NOT_RETRY: u16 = 1 << 14;
}

/// Opcode of the fabrics commands, on any queue.
pub(super) const FABRICS: u8 = 0x7f;
const PAGE: usize = 4096;
/// Entries of a queue; also the most commands at once.
const ENTRIES: u16 = 128;

/// Answer to a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Dwords 0 and 1 of the completion.
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
}

impl Answer {
    fn result(result: u64) -> Option<Answer> {
        Some(Answer {
            result,
            ..Answer::default()
        })
    }

    fn data(data: Vec<u8>) -> Option<Answer> {
        Some(Answer {
            data,
            ..Answer::default()
        })
    }

    pub(super) fn failed(status: u16) -> Option<Answer> {
        Some(Answer {
            status,
            ..Answer::default()
        })
    }
}

/// What a controller tells of itself, and its registers.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) subnqn: Vec<u8>,
    /// Tells this target from others on one host.
    pub(super) serial: u32,
    pub(super) blocks: u64,
    /// Bytes of a block: 1 << this.
    pub(super) block_shift: u8,
    pub(super) inline_bytes: u32,
    pub(super) config: u32,
}

impl Controller {
    /// Answers a command of the admin queue; `None`: it is held for ever.
    pub(super) fn admin(&self, sqe: &[u8]) -> Option<Answer> {
        let cdw10 = u32_at(sqe, 40);
        match sqe[0] {
            // Get log page, 0's based dwords: nothing was logged.
            0x02 => Answer::data(vec![0; (cdw10 as usize >> 16) * 4 + 4]),
            0x06 => self.identify(u32_at(sqe, 4), (cdw10 & 0xff) as u8),
            // Abort: not aborted.
            0x08 => Answer::result(1),
            // Set features: as many queues as asked for, everything else too.
            0x09 if cdw10 & 0xff == 0x07 => Answer::result(u64::from(u32_at(sqe, 44))),
            0x09 | 0x0a => Answer::result(0),
            // Asynchronous event request: there are no events.
            0x0c => None,
            // Keep alive.
            0x18 => Answer::result(0),
            _ => Answer::failed(status::INVALID_OPCODE),
        }
    }

    /// Answers a property command (fabrics types 0 and 4).
    pub(super) fn property(&mut self, sqe: &[u8]) -> Option<Answer> {
        let (offset, set) = (u32_at(sqe, 44), sqe[4] == 0);
        match (offset, set) {
            // Capabilities: contiguous queues, 7.5 s to be ready, NVM commands.
            (0x00, false) => Answer::result(u64::from(ENTRIES - 1) | 1 << 16 | 15 << 24 | 1 << 37),
            (0x08, false) => Answer::result(u64::from(VERSION)),
            (0x14, false) => Answer::result(u64::from(self.config)),
            (0x14, true) => {
                self.config = u64_at(sqe, 48) as u32;
                Answer::result(0)
            }
            // Status: ready when enabled, shut down when told to.
            (0x1c, false) => {
                let shutdown = self.config >> 14 & 3 != 0;
                Answer::result(u64::from(self.config & 1) | u64::from(shutdown) << 3)
            }
            _ => Answer::failed(status::INVALID_FIELD),
        }
    }

    fn identify(&self, nsid: u32, cns: u8) -> Option<Answer> {
        if matches!(cns, 0x00 | 0x03) && nsid != 1 {
            return Answer::failed(status::INVALID_NAMESPACE);
        }
        let mut page = vec![0; PAGE];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        match cns {
            0x00 => {
                for size in [0, 8, 16] {
                    put(size, &self.blocks.to_le_bytes());
                }
                put(128 + 2, &[self.block_shift]);
            }
            0x01 => {
                put(
                    4,
                    format!("{:<20}", format!("{:08x}", self.serial)).as_bytes(),
                );
                put(24, format!("{:<40}", "lab-target").as_bytes());
                put(64, format!("{:<8}", "1").as_bytes());
                put(78, &self.id.to_le_bytes());
                put(80, &VERSION.to_le_bytes());
                put(111, &[1]); // an I/O controller
                put(320, &100u16.to_le_bytes()); // keep alive in steps of 10 s
                put(512, &[0x66, 0x44]); // entries of 64 and of 16 bytes
                put(514, &ENTRIES.to_le_bytes());
                put(516, &1u32.to_le_bytes()); // namespaces
                put(536, &(1u32 | 1 << 20).to_le_bytes()); // SGLs, also with an offset
                put(768, &self.subnqn);
                put(1792, &(4 + self.inline_bytes / 16).to_le_bytes());
                put(1796, &1u32.to_le_bytes());
                put(1803, &[1]); // one SGL descriptor
            }
            0x02 if nsid < 1 => put(0, &1u32.to_le_bytes()),
            0x02 => {}
            0x03 => {
                // A UUID.
                put(0, &[3, 16]);
                put(4, &self.serial.to_be_bytes());
                put(8, &[0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1]);
            }
            _ => return Answer::failed(status::INVALID_FIELD),
        }
        Answer::data(page)
    }
}

/// 1.3, the last version that asks for no more than the above.
const VERSION: u32 = 0x0001_0300;

/// A Connect command (fabrics type 1).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connect {
    pub(super) qid: u16,
    pub(super) entries: u16,
    /// The host does without SQ flow control, so that SUCCESS is allowed.
    pub(super) no_flow_control: bool,
    pub(super) subnqn: Vec<u8>,
}

impl Connect {
    /// Reads the command and its data; `None` when the data is too short.
    pub(super) fn parse(sqe: &[u8], data: &[u8]) -> Option<Connect> {
        let nqn = data.get(256..512)?;
        let len = nqn.iter().position(|b| *b == 0).unwrap_or(nqn.len());
        Some(Connect {
            qid: u16_at(sqe, 42),
            entries: u16_at(sqe, 44).saturating_add(1),
            no_flow_control: sqe[46] & 1 << 2 != 0,
            subnqn: nqn[..len].to_vec(),
        })
    }
}
