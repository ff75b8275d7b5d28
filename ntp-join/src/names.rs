//! Who recorded what: machines, recordings, connections and devices of all inputs.

use crate::pace::Pace;
use crate::shelf::Held;
use crate::store::Store;
use ntp_record::header::{Connection, Device, Header, Role};
use std::collections::{HashMap, VecDeque};

/// Clock of one boot of one machine; recordings with the same boot id share it.
pub struct Domain {
    /// Boot id; empty when the recording does not say, and then shared with nobody.
    pub boot_id: String,
    /// Name in messages.
    pub machine: String,
    /// Common time minus this clock, ns; first by wall clock, then by the commands.
    pub shift: i64,
    /// Domains with the same group move together.
    pub group: usize,
}

/// One segment of one input.
pub struct Recording {
    /// Its header, or what could be made of records without one.
    pub header: Header,
    /// By number.
    pub domain: usize,
    /// First and last moment of the recording, ns of the domain's clock.
    pub start: i64,
    /// `None` while it is being read.
    pub end: Option<i64>,
    /// Input it comes from, by number.
    pub input: usize,
    /// How far it was read.
    pub pace: Pace<Held>,
}

/// A connection of the other side that a connection may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Connection, by number.
    pub conn: u32,
    /// Pair of clocks, by number.
    pub clock: u32,
}

/// How soon command ids come back.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// By command id: when the last command with it was over, ns.
    over: Vec<i64>,
    seen: u32,
    least: i64,
}

impl Turns {
    /// Ids from here on carry a generation.
    const IDS: u16 = 1 << 12;
    /// Fewer turns tell nothing.
    const ENOUGH: u32 = 64;

    /// Takes in a command, in order of their ends.
    pub fn note(&mut self, cid: u16, sent: i64, over: i64) {
        if cid >= Self::IDS {
            return;
        }
        let at = usize::from(cid);
        if self.over.len() <= at {
            self.over.resize(at + 1, i64::MIN);
        }
        let last = &mut self.over[at];
        if *last != i64::MIN && sent >= *last {
            let turn = sent - *last;
            self.least = if self.seen == 0 {
                turn
            } else {
                self.least.min(turn)
            };
            self.seen = self.seen.saturating_add(1);
        }
        *last = over.max(*last);
    }

    /// The shortest time between the end of a command and the next one with
    /// its id, ns; 0 while too few were seen.
    pub fn least(&self) -> i64 {
        if self.seen < Self::ENOUGH {
            0
        } else {
            self.least
        }
    }
}

/// A pair that was found, as far as the order of a connection needs it.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// When the host sent the capsule, ns.
    pub sent: i64,
    /// [`crate::limits::TargetTimes::order`].
    pub order: i64,
    /// Hash of the key.
    pub key: u64,
}

/// Numbers by id.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Of small ids, one more; 0 for none.
    low: Vec<u32>,
    high: HashMap<u32, u32>,
}

impl Numbers {
    /// Ids from here on are not small; recorders count from 1.
    const LOW: u32 = 1 << 12;

    /// The number of an id.
    #[inline]
    pub fn get(&self, id: u32) -> Option<u32> {
        match self.low.get(id as usize) {
            Some(number) => number.checked_sub(1),
            None => self.high.get(&id).copied(),
        }
    }

    /// Gives an id its number.
    pub fn insert(&mut self, id: u32, number: u32) {
        if id >= Self::LOW {
            self.high.insert(id, number);
            return;
        }
        if self.low.len() <= id as usize {
            self.low.resize(id as usize + 1, 0);
        }
        self.low[id as usize] = number + 1;
    }

    /// Whether an id has this number.
    pub fn holds(&self, number: u32) -> bool {
        self.low.contains(&(number + 1)) || self.high.values().any(|other| *other == number)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Numbers::default();
    }
}

/// A connection of one recording.
pub struct Conn {
    /// By number.
    pub recording: usize,
    /// Clock, by number.
    pub domain: usize,
    /// Side.
    pub role: Role,
    /// Names; the id is that of the joined stream.
    pub info: Connection,
    /// What it may be on the other side.
    pub over: Vec<Over>,
    /// Sampling and salt of the finest of `over`, when that is coarser than its own.
    pub coarser: Option<(u32, u32)>,
    /// Whether `over` rests on names and keys, not on both addresses.
    pub weak: bool,
    /// The one it is, known by the first pair: for each recording of the other side one.
    pub partner: Vec<(usize, u32)>,
    /// Whether more than one recording, or stretch of one, has it.
    pub several: bool,
    /// Whether its name is written.
    pub named: bool,
    /// Pairs found.
    pub matched: u64,
    /// Records read.
    pub records: u64,
    /// Whether command ids carry a generation, so that one comes back only
    /// after 16 uses of its tag (Linux from 5.14).
    pub generations: bool,
    /// How soon a command id comes back on a host connection.
    pub turns: Turns,
    /// The last pairs of a host connection.
    pub recent: VecDeque<Passed>,
    /// Host records that wait for a connection or a clock.
    pub pending: VecDeque<Held>,
    /// Number of pending records at which connections of other addresses are tried again.
    pub next_try: usize,
    /// Target records that wait for their host record.
    pub store: Store,
}

/// A device of one recording.
pub struct Dev {
    /// Names, with the id of the input.
    pub info: Device,
    /// Whether its name is written.
    pub named: bool,
}

/// Address without what may differ in writing: `[::1]:4420`, IPv4-mapped as IPv4.
pub fn canonical(address: &str) -> String {
    address
        .parse::<std::net::SocketAddr>()
        .map(|address| {
            std::net::SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
        })
        .unwrap_or_else(|_| address.to_ascii_lowercase())
}

/// What a connection or a device is called by all recordings of one boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    domain: usize,
    role: Role,
    sampling: u32,
    salt: u32,
    /// Whether the recording's header is lost.
    pub rebuilt: bool,
    words: String,
}

impl Name {
    fn new(recording: &Recording, words: String) -> Self {
        let Recording { header, domain, .. } = recording;
        Name {
            domain: *domain,
            role: header.role,
            sampling: header.sampling,
            salt: header.salt,
            rebuilt: header.is_rebuilt(),
            words,
        }
    }

    /// `None` for a connection without addresses, but where ids are all there is.
    pub fn of_connection(recording: &Recording, info: &Connection) -> Option<Self> {
        let Connection {
            id,
            local,
            remote,
            qid,
            cntlid,
            instance,
            hostnqn,
            subnqn,
            ..
        } = info;
        let words = if !local.is_empty() && !remote.is_empty() {
            format!("{local} {remote} {qid} {cntlid} {instance} {hostnqn} {subnqn}")
        } else if recording.header.is_rebuilt() {
            format!("connection {id}")
        } else {
            return None;
        };
        Some(Name::new(recording, words))
    }

    /// The same for a device without a name.
    pub fn of_device(recording: &Recording, info: &Device) -> Option<Self> {
        let Device {
            id,
            name,
            path,
            nsid,
            subnqn,
        } = info;
        let words = if !name.is_empty() {
            format!("device {nsid} {name} {path} {subnqn}")
        } else if recording.header.is_rebuilt() {
            format!("device {id}")
        } else {
            return None;
        };
        Some(Name::new(recording, words))
    }
}

/// Both addresses in one writing, the host's first; `None` while one is not known.
pub fn pair_name(role: Role, info: &Connection) -> Option<(String, String)> {
    let (host, target) = match role {
        Role::Host => (&info.local, &info.remote),
        Role::Target => (&info.remote, &info.local),
    };
    (!host.is_empty() && !target.is_empty()).then(|| (canonical(host), canonical(target)))
}

/// Both ends equal, seen from either side.
pub fn strong(host: &Connection, target: &Connection) -> bool {
    !host.local.is_empty()
        && !host.remote.is_empty()
        && canonical(&host.local) == canonical(&target.remote)
        && canonical(&host.remote) == canonical(&target.local)
}

/// Nothing but the addresses speaks against it.
pub fn weak(host: &Connection, target: &Connection) -> bool {
    let same = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
    host.qid == target.qid
        && same(&host.hostnqn, &target.hostnqn)
        && same(&host.subnqn, &target.subnqn)
        && (host.cntlid == 0 || target.cntlid == 0 || host.cntlid == target.cntlid)
}

/// Short name of a connection in messages.
pub fn ends(connection: &Connection) -> String {
    let known = |address: &str| {
        if address.is_empty() {
            "?".to_owned()
        } else {
            canonical(address)
        }
    };
    format!(
        "{}-{}/{}",
        known(&connection.local),
        known(&connection.remote),
        connection.qid
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(local: &str, remote: &str, qid: u16) -> Connection {
        Connection {
            local: local.into(),
            remote: remote.into(),
            qid,
            ..Connection::default()
        }
    }

    #[test]
    fn addresses_are_compared_in_one_writing() {
        let host = connection("[::ffff:10.0.0.1]:41000", "[fd00:0:0::2]:4420", 1);
        let target = connection("[fd00::2]:4420", "10.0.0.1:41000", 1);
        assert!(strong(&host, &target));
        assert!(!strong(
            &host,
            &connection("[fd00::2]:4420", "10.0.0.1:41001", 1)
        ));
        assert!(!strong(&connection("", "", 1), &connection("", "", 1)));
    }

    #[test]
    fn the_shortest_turn_counts_once_enough_were_seen() {
        let mut turns = Turns::default();
        for i in 0..65i64 {
            // Used for 50 of every 100 + i ns; another id in between.
            turns.note(3, i * 100 + i, i * 100 + i + 50);
            turns.note(4, i * 100 + 60, i * 100 + 61);
        }
        // 64 turns of id 3, of 51 ns each, and 64 of id 4, of 99 ns each.
        assert_eq!(turns.least(), 51);
        turns.note(3, 6_520, 6_530);
        assert_eq!(turns.least(), 6_520 - 6_514);
        // A record out of order, or with a generation, changes nothing.
        turns.note(3, 100, 150);
        turns.note(0x1003, 6_531, 6_532);
        assert_eq!(turns.least(), 6);
        assert_eq!(Turns::default().least(), 0);
    }

    #[test]
    fn names_that_are_known_must_agree() {
        let host = Connection {
            hostnqn: "nqn.a".into(),
            cntlid: 3,
            ..connection("10.0.0.1:1", "10.0.0.2:4420", 2)
        };
        let other = connection("192.168.0.2:4420", "192.168.0.9:77", 2);
        assert!(weak(&host, &other));
        assert!(weak(
            &host,
            &Connection {
                cntlid: 3,
                ..other.clone()
            }
        ));
        assert!(!weak(
            &host,
            &Connection {
                cntlid: 4,
                ..other.clone()
            }
        ));
        assert!(!weak(
            &host,
            &Connection {
                hostnqn: "nqn.b".into(),
                ..other.clone()
            }
        ));
        assert!(!weak(&host, &Connection { qid: 1, ..other }));
    }
}
