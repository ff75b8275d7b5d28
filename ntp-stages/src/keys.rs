//! What commands can be grouped by.
//!
//! A record holds small numbers; their names come with the stream. A key is
//! taken from a command as numbers (one look at memory each) and turned into
//! names once per group.

use crate::command::Command;
use crate::machines;
use ntp_record::header::Count;
use ntp_record::record::op_name;
use ntp_record::row::{KeyValue, View};
use ntp_record::{Flags, Header, Role, Segment};

/// Something to group by.
#[derive(Clone, Copy, Debug)]
pub struct KeyDef {
    /// Name on the command line and in rows.
    pub name: &'static str,
    /// What it is, for the help.
    pub meaning: &'static str,
    /// The number a command has.
    raw: fn(&Command<'_>) -> u32,
    /// What the number means in a segment.
    name_of: fn(&Segment, View, u32) -> KeyValue,
    /// The number a counter of all commands has; `None` when commands are not counted by this.
    counted: Option<fn(&Count) -> u32>,
}

/// Everything commands can be grouped by.
pub const KEYS: &[KeyDef] = &[
    KeyDef {
        name: "op",
        meaning: "command (read, write, flush ...)",
        raw: |c| opcode(c.main().opcode, c.main().has(Flags::Admin)),
        name_of: |_, _, raw| op(raw),
        counted: Some(|c| opcode(c.opcode, c.admin)),
    },
    KeyDef {
        name: "size",
        meaning: "bytes per command",
        raw: |c| c.main().bytes,
        name_of: number,
        counted: Some(|c| c.bytes),
    },
    KeyDef {
        name: "device",
        meaning: "disk, on the host where it was recorded",
        raw: |c| c.main().dev,
        name_of: |s, _, raw| text(s.device(raw).map(|d| d.name.as_str())),
        counted: Some(|c| c.dev),
    },
    KeyDef {
        name: "path",
        meaning: "path device below a multipath disk",
        raw: |c| c.main().dev,
        name_of: |s, _, raw| {
            text(s.device(raw).map(|d| {
                if d.path.is_empty() {
                    d.name.as_str()
                } else {
                    d.path.as_str()
                }
            }))
        },
        counted: Some(|c| c.dev),
    },
    KeyDef {
        name: "host",
        meaning: "host, by name or address",
        raw: conn,
        name_of: host,
        counted: None,
    },
    KeyDef {
        name: "target",
        meaning: "target, by name or address",
        raw: |c| c.last().conn,
        name_of: target,
        counted: None,
    },
    KeyDef {
        name: "connection",
        meaning: "both ends of the connection",
        raw: conn,
        name_of: |s, _, raw| match s.connection(raw) {
            Some(c) => KeyValue::Text(format!("{}-{}", c.local, c.remote)),
            None => KeyValue::Unknown,
        },
        counted: None,
    },
    KeyDef {
        name: "qid",
        meaning: "NVMe queue",
        raw: conn,
        name_of: |s, _, raw| {
            s.connection(raw)
                .map_or(KeyValue::Unknown, |c| KeyValue::Number(c.qid.into()))
        },
        counted: None,
    },
    KeyDef {
        name: "hostnqn",
        meaning: "host NQN",
        raw: conn,
        name_of: |s, _, raw| text(s.connection(raw).map(|c| c.hostnqn.as_str())),
        counted: None,
    },
    KeyDef {
        name: "subnqn",
        meaning: "subsystem NQN",
        raw: conn,
        name_of: |s, _, raw| text(s.connection(raw).map(|c| c.subnqn.as_str())),
        counted: None,
    },
    KeyDef {
        name: "nsid",
        meaning: "namespace id",
        raw: |c| c.main().nsid,
        name_of: number,
        counted: None,
    },
    KeyDef {
        name: "cpu",
        meaning: "CPU that submitted the command",
        raw: |c| c.main().submit_cpu.into(),
        name_of: number,
        counted: None,
    },
    KeyDef {
        name: "send-cpu",
        meaning: "CPU that sent the capsule (target: the response)",
        raw: |c| c.main().send_cpu.into(),
        name_of: number,
        counted: None,
    },
    KeyDef {
        name: "complete-cpu",
        meaning: "CPU that completed the command (target: saw the drive done)",
        raw: |c| c.main().complete_cpu.into(),
        name_of: number,
        counted: None,
    },
    KeyDef {
        name: "status",
        meaning: "NVMe status, 0 is success",
        raw: |c| c.main().status.into(),
        name_of: number,
        counted: None,
    },
];

/// Numbers of a command's key, in the order of [`By`]; the rest is 0.
pub type Raw = [u32; MAX];
/// Keys that can be given at once.
const MAX: usize = 8;

/// The keys of a report.
#[derive(Clone, Debug)]
pub struct By(Vec<&'static KeyDef>);

impl Default for By {
    fn default() -> Self {
        By(KEYS[..3].iter().collect())
    }
}

impl By {
    /// Reads names separated by commas.
    ///
    /// # Errors
    /// A name that is none, given twice, or too many of them: one line that lists what there is.
    pub fn parse(text: &str) -> Result<By, String> {
        let mut by: Vec<&'static KeyDef> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                let all: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
                return Err(format!(
                    "`{name}` is no key: use some of {}",
                    all.join(", ")
                ));
            };
            if by.iter().any(|other| other.name == key.name) {
                return Err(format!("`{name}` is given twice"));
            }
            by.push(key);
        }
        if by.len() > MAX {
            return Err(format!("{} keys are too many: use up to {MAX}", by.len()));
        }
        Ok(By(by))
    }

    /// Names of the keys.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|key| key.name.to_owned()).collect()
    }

    /// Numbers of a command's key.
    pub fn raw(&self, command: &Command<'_>) -> Raw {
        let mut raw = Raw::default();
        for (raw, key) in raw.iter_mut().zip(&self.0) {
            *raw = (key.raw)(command);
        }
        raw
    }

    /// Whether CPUs are among the keys.
    pub fn by_cpu(&self) -> bool {
        self.0.iter().any(|key| key.name.ends_with("cpu"))
    }

    /// What the numbers mean in a segment.
    pub fn values(&self, segment: &Segment, view: View, raw: &Raw) -> Vec<KeyValue> {
        self.0
            .iter()
            .zip(raw)
            .map(|(key, raw)| (key.name_of)(segment, view, *raw))
            .collect()
    }

    /// Numbers of a counter's key; `None` when commands are not counted by these keys.
    pub fn raw_of_count(&self, count: &Count) -> Option<Raw> {
        let mut raw = Raw::default();
        for (raw, key) in raw.iter_mut().zip(&self.0) {
            *raw = key.counted?(count);
        }
        Some(raw)
    }
}

fn opcode(opcode: u8, admin: bool) -> u32 {
    u32::from(opcode) | u32::from(admin) << 8
}

/// Name of a command; one without a name of its own shows its opcode.
fn op(raw: u32) -> KeyValue {
    let name = op_name(raw as u8, raw >> 8 != 0);
    KeyValue::Text(match name {
        "io" | "admin" => format!("{name}-{:#04x}", raw as u8),
        name => name.to_owned(),
    })
}

fn number(_: &Segment, _: View, raw: u32) -> KeyValue {
    KeyValue::Number(raw.into())
}

fn text(name: Option<&str>) -> KeyValue {
    match name {
        Some(name) if !name.is_empty() => KeyValue::Text(name.to_owned()),
        _ => KeyValue::Unknown,
    }
}

fn conn(command: &Command<'_>) -> u32 {
    command.main().conn
}

/// The host of a host's connection (or of a target's, when only that was
/// recorded): its machine's name where only one can be meant, else its address.
pub fn host(segment: &Segment, view: View, conn: u32) -> KeyValue {
    machine(segment, view != View::Target, conn, Role::Host)
}

/// The target of a target's connection (or of a host's, when only that was
/// recorded), as [`host`].
pub fn target(segment: &Segment, view: View, conn: u32) -> KeyValue {
    machine(segment, view != View::Host, conn, Role::Target)
}

/// `own` tells whether the connection is one of the machine asked for.
fn machine(segment: &Segment, own: bool, conn: u32, role: Role) -> KeyValue {
    let header = machines::header_of(segment, conn, role).filter(|_| own);
    let others = segment.join_header.as_ref();
    let others = others.map_or(&[][..], |join| machines::headers(join, role));
    let alone = |header: &&Header| {
        !others.iter().any(|other| {
            other != *header
                && other.machine == header.machine
                && !machines::one_machine(other, header)
        })
    };
    if let Some(header) = header.filter(|h| !h.machine.is_empty()).filter(alone) {
        return KeyValue::Text(header.machine.clone());
    }
    let end = segment
        .connection(conn)
        .map(|c| if own { &c.local } else { &c.remote });
    text(end.map(|end| {
        end.rsplit_once(':')
            .map_or(end.as_str(), |(address, _)| address)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ntp_record::Record;

    #[test]
    fn keys_are_read_from_their_names() {
        assert_eq!(
            By::parse("op,size,device").unwrap().names(),
            By::default().names()
        );
        assert_eq!(By::parse("qid, cpu").unwrap().names(), ["qid", "cpu"]);
        let error = By::parse("op,color").unwrap_err();
        assert!(
            error.starts_with("`color` is no key: use some of op, size, device, path"),
            "{error}"
        );
        assert_eq!(By::parse("op,op").unwrap_err(), "`op` is given twice");
        assert!(By::parse("").unwrap_err().starts_with("`` is no key"));
        assert!(
            By::parse("op,size,device,path,host,target,qid,cpu,status")
                .unwrap_err()
                .contains("up to 8")
        );
    }

    #[test]
    fn unnamed_opcodes_stay_apart() {
        assert_eq!(op(0x02), KeyValue::Text("read".into()));
        assert_eq!(op(0x7f), KeyValue::Text("io-0x7f".into()));
        assert_eq!(op(0x102), KeyValue::Text("admin-0x02".into()));
    }

    #[test]
    fn a_host_without_a_name_is_its_address() {
        let mut segment = Segment::default();
        let connection = ntp_record::Connection {
            id: 7,
            local: "[fe80::1]:51000".into(),
            remote: "10.0.0.2:4420".into(),
            ..Default::default()
        };
        segment.connections.insert(7, connection);
        let record = Record {
            conn: 7,
            ..Record::default()
        };
        let by = By::parse("host,target,device").unwrap();
        let raw = by.raw(&Command::alone(&record, Role::Host));
        let values = by.values(&segment, View::Host, &raw);
        assert_eq!(
            values,
            [
                KeyValue::Text("[fe80::1]".into()),
                KeyValue::Text("10.0.0.2".into()),
                KeyValue::Unknown
            ]
        );
        let swapped = by.values(&segment, View::Target, &raw);
        assert_eq!(swapped[0], KeyValue::Text("10.0.0.2".into()));
    }
}
