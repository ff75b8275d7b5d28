//! Whose commands are in a joined stream, and the one time of several machines.
//!
//! Each boot of each machine has a monotonic clock of its own. Differences are
//! taken on one clock; but when recordings ran, and in which interval a command
//! ended, is a matter of common time: that of the wall clocks.

use ntp_record::{Connection, Header, JoinHeader, Role, Segment};
use rustc_hash::FxHashMap;

/// Headers of one side of a joined stream.
pub fn headers(join: &JoinHeader, role: Role) -> &[Header] {
    match role {
        Role::Host => &join.hosts,
        Role::Target => &join.targets,
    }
}

/// Header of the recording that a connection of that side is of; `None` when
/// the stream does not tell.
pub fn header_of(segment: &Segment, conn: u32, role: Role) -> Option<&Header> {
    if let Some(header) = &segment.header {
        return (header.role == role).then_some(header);
    }
    let headers = headers(segment.join_header.as_ref()?, role);
    match (headers, source(segment.connection(conn))) {
        (headers, Some(source)) => headers.get(source),
        ([only], None) => Some(only),
        (_, None) => None,
    }
}

fn source(connection: Option<&Connection>) -> Option<usize> {
    usize::try_from(connection?.source?).ok()
}

/// Whether two recordings are of one clock.
pub fn one_boot(a: &Header, b: &Header) -> bool {
    !a.boot_id.is_empty() && a.boot_id == b.boot_id
}

/// Whether two recordings are of one machine, as far as they say.
pub fn one_machine(a: &Header, b: &Header) -> bool {
    one_boot(a, b) || !a.machine_id.is_empty() && a.machine_id == b.machine_id
}

/// Turns the times of a segment's hosts into one clock: that of the host that
/// booted first, so that no time before another's boot is lost.
#[derive(Debug, Default)]
pub struct CommonTime {
    /// By host of the join header: what its time is behind the common one, ns;
    /// `None` when it is not known.
    behind: Vec<Option<u64>>,
    /// Of connections that do not say which host's they are.
    unsaid: Option<u64>,
    by_connection: FxHashMap<u32, Option<u64>>,
}

/// Connections remembered at most; more are looked up again.
const REMEMBERED: usize = 1 << 16;

impl CommonTime {
    /// A joined segment begins. Gives when the first of its recordings began,
    /// and the wall clock less the common one, ns.
    pub fn begin(&mut self, join: &JoinHeader) -> (Option<u64>, i64) {
        let hosts = join.hosts.as_slice();
        // One boot is one clock, wherever its wall clock went meanwhile.
        let wall = |host: &Header| {
            let first = hosts.iter().find(|first| one_boot(first, host));
            first.unwrap_or(host).wall_minus_mono_ns
        };
        let told = || hosts.iter().filter(|host| !host.is_rebuilt());
        let earliest = told().map(wall).min();
        *self = CommonTime::default();
        if let [only] = hosts {
            (self.behind, self.unsaid) = (vec![Some(0)], Some(0));
            let start = (!only.is_rebuilt()).then_some(only.start_ns);
            return (start, only.wall_minus_mono_ns);
        }
        let behind = |host: &Header| {
            let since = i128::from(wall(host)) - i128::from(earliest?);
            (!host.is_rebuilt()).then_some(u64::try_from(since).ok()?)
        };
        self.behind = hosts.iter().map(behind).collect();
        self.unsaid = match self.behind.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other == first) => *first,
            _ => None,
        };
        let starts = hosts.iter().zip(&self.behind);
        let start = starts
            .filter_map(|(host, behind)| Some(host.start_ns.saturating_add((*behind)?)))
            .min();
        (start, earliest.unwrap_or(0))
    }

    /// A segment of one machine begins: its times are what they are.
    pub fn alone(&mut self) {
        *self = CommonTime {
            unsaid: Some(0),
            ..CommonTime::default()
        };
    }

    /// What the times of a host's connection are behind the common time, ns;
    /// `None` when nobody knows.
    pub fn behind(&mut self, segment: &Segment, conn: u32) -> Option<u64> {
        match self.by_connection.get(&conn) {
            Some(behind) => *behind,
            None => {
                let behind = match source(segment.connection(conn)) {
                    Some(source) if !self.behind.is_empty() => {
                        self.behind.get(source).copied().flatten()
                    }
                    _ => self.unsaid,
                };
                if self.by_connection.len() >= REMEMBERED {
                    self.by_connection.clear();
                }
                self.by_connection.insert(conn, behind);
                behind
            }
        }
    }

    /// Connection numbers mean something else from here on.
    pub fn forget_names(&mut self) {
        self.by_connection.clear();
    }
}
