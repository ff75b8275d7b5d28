//! Where commands go: what is found out for one holds for all that look like it.

use crate::batch::Ends;
use crate::command::Command;

/// All of a command that decides where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looks([u64; 5]);

impl Looks {
    /// Of a command; its CPUs matter when commands are grouped `by_cpu`.
    #[inline(always)]
    pub(crate) fn of(command: &Command<'_>, by_cpu: bool) -> Self {
        let (main, last) = (command.main(), command.last());
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let four = |of: [u16; 4]| (of.iter().rev()).fold(0, |all, one| all << 16 | u64::from(*one));
        let opcode = u16::from_le_bytes([main.opcode, main.retries]);
        // Never 0: what is looked for is not taken for a free place.
        let view = command.view() as u16 + 1;
        let cpus = match by_cpu {
            true => [main.submit_cpu, main.send_cpu, main.complete_cpu, view],
            false => [0, 0, 0, view],
        };
        Looks([
            pair(main.bytes, main.nsid),
            pair(main.conn, main.dev),
            four([main.status, main.flags, main.present, opcode]),
            pair(last.conn, 0) | four([0, 0, last.flags, last.present]),
            four(cpus),
        ])
    }

    /// All numbers at once: mostly they are the same.
    #[inline(always)]
    fn same(&self, other: &Looks) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |all, (one, other)| all | (one ^ other)) == 0
    }

    #[inline(always)]
    fn place(&self) -> usize {
        let mixed = (self.0.iter()).fold(0, |all: u64, one| all.rotate_left(9) ^ one);
        let mixed = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (u64::BITS - PLACES.trailing_zeros())) as usize
    }
}

/// Where a command goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    /// Number of its group.
    pub(crate) group: u32,
    /// Number of its plan, and the slots where that begins and ends.
    pub(crate) plan: u32,
    pub(crate) begin: u8,
    pub(crate) end: u8,
    /// See [`CommonTime::behind`](crate::machines::CommonTime::behind).
    pub(crate) behind: Option<u64>,
    /// Of a joined one: see [`Clocks::find`](crate::clocks::Clocks::find).
    pub(crate) clocks: usize,
    /// How it ended.
    pub(crate) ends: Ends,
    /// Batch of the one before it.
    pub(crate) batch: u32,
}

/// Routes found out of late: commands come in few kinds at a time.
#[derive(Debug)]
pub(crate) struct Routes {
    places: Box<[(Looks, Route)]>,
    used: bool,
}

/// Routes kept.
const PLACES: usize = 1024;

impl Default for Routes {
    fn default() -> Self {
        Routes {
            places: vec![Default::default(); PLACES].into(),
            used: false,
        }
    }
}

impl Routes {
    /// Where commands go that look so; found out when it is not known.
    #[inline(always)]
    pub(crate) fn find<E>(
        &mut self,
        looks: &Looks,
        find_out: impl FnOnce() -> Result<Route, E>,
    ) -> Result<&mut Route, E> {
        let (known, route) = &mut self.places[looks.place()];
        if !known.same(looks) {
            *route = find_out()?;
            *known = *looks;
            self.used = true;
        }
        Ok(route)
    }

    /// What was found out holds no more.
    pub(crate) fn clear(&mut self) {
        if self.used {
            self.places.fill(Default::default());
            self.used = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{By, KEYS};
    use ntp_record::{Record, Role};

    fn found(routes: &mut Routes, looks: &Looks, group: u32) -> u32 {
        let route = Route {
            group,
            ..Route::default()
        };
        routes.find(looks, || Ok::<_, ()>(route)).unwrap().group
    }

    #[test]
    fn a_route_is_that_of_the_very_looks() {
        let mut routes = Routes::default();
        let looks = |n: u32| Looks([n.into(), 0, 0, 0, 1]);
        for n in 0..10_000 {
            assert_eq!(found(&mut routes, &looks(n), n), n);
        }
        assert_eq!(found(&mut routes, &looks(9_999), 1), 9_999);
        routes.clear();
        assert_eq!(found(&mut routes, &looks(9_999), 1), 1);
        assert!(routes.find(&looks(7), || Err(())).is_err());
    }
    /// Every way to make a command differ from another.
    const CHANGES: &[fn(&mut Record)] = &[
        |r| r.slba += 1,
        |r| r.bytes += 1,
        |r| r.nsid += 1,
        |r| r.conn += 1,
        |r| r.dev += 1,
        |r| r.cid += 1,
        |r| r.status += 1,
        |r| r.flags ^= 1,
        |r| r.flags ^= 1 << 15,
        |r| r.present ^= 1,
        |r| r.present ^= 1 << 15,
        |r| r.submit_cpu += 1,
        |r| r.send_cpu += 1,
        |r| r.complete_cpu += 1,
        |r| r.length += 1,
        |r| r.opcode += 1,
        |r| r.retries += 1,
        |r| r.r2ts += 1,
        |r| r.pdus += 1,
    ];

    #[test]
    fn what_goes_elsewhere_looks_different() {
        let record = Record::default();
        let command = Command::joined(&record, &record);
        for key in KEYS {
            let by = By::parse(key.name).unwrap();
            let looks = |command: &Command<'_>| Looks::of(command, by.by_cpu());
            for change in CHANGES {
                let mut other = record;
                change(&mut other);
                let changed = [
                    Command::joined(&other, &record),
                    Command::joined(&record, &other),
                    Command::alone(&other, Role::Host),
                    Command::alone(&other, Role::Target),
                ];
                for changed in &changed {
                    let same = by.raw(changed) == by.raw(&command)
                        && changed.kind() == command.kind()
                        && Ends::of(changed.main()) == Ends::of(command.main());
                    assert!(same || looks(changed) != looks(&command), "{changed:?}");
                }
            }
        }
    }
}
