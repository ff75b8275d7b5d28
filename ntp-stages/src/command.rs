//! One command, as one or both machines saw it.

use crate::paths::When;
use ntp_record::row::View;
use ntp_record::{Flags, Point, Record, Role};

/// Number of timestamps of both sides together.
pub(crate) const SLOTS: usize = 32;

/// Place of a point's timestamp: 0 to 15 host, 16 to 31 target.
pub(crate) fn slot(point: Point) -> u8 {
    match point.side {
        Role::Host => point.index,
        Role::Target => point.index + 16,
    }
}

/// One command as one or both machines saw it.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    sides: [&'a Record; 2],
    view: View,
}

impl<'a> Command<'a> {
    /// A command of one recording.
    pub fn alone(record: &'a Record, role: Role) -> Self {
        let view = if role == Role::Host {
            View::Host
        } else {
            View::Target
        };
        Command {
            sides: [record, record],
            view,
        }
    }

    /// A joined command.
    pub fn joined(host: &'a Record, target: &'a Record) -> Self {
        Command {
            sides: [host, target],
            view: View::Joined,
        }
    }

    /// Which machines saw it.
    pub fn view(&self) -> View {
        self.view
    }

    /// The record that says what the command was and how it ended: the host's where there is one.
    pub fn main(&self) -> &'a Record {
        self.sides[0]
    }

    /// The target's record where there is one, else the host's.
    pub fn last(&self) -> &'a Record {
        self.sides[1]
    }

    /// Timestamp of a slot, on the clock of its machine.
    #[inline]
    pub fn at(&self, slot: u8) -> u64 {
        self.sides[usize::from(slot >> 4) & 1].at[usize::from(slot & 15)]
    }

    /// What its plan depends on.
    pub(crate) fn kind(&self) -> Kind {
        let [host, target] = self.sides;
        let flags = host.flags | target.flags;
        let (host_points, target_points) = match self.view {
            View::Joined => (host.present, target.present),
            View::Host => (host.present, 0),
            View::Target => (0, target.present),
        };
        let mut when = 0;
        if flags & Flags::InCapsule as u16 != 0 {
            when |= When::InCapsule as u8;
        }
        // Bits 1:0 of an opcode are the direction of its data: 10b is controller to host.
        if host.opcode & 3 != 2 {
            when |= When::NoDataIn as u8;
        }
        if flags & Flags::Retried as u16 != 0 {
            when |= When::Retried as u8;
        }
        Kind {
            present: u32::from(target_points) << 16 | u32::from(host_points),
            view: self.view,
            r2t: flags & Flags::R2t as u16 != 0,
            passthrough: flags & Flags::Passthrough as u16 != 0,
            tls: flags & Flags::Tls as u16 != 0,
            when,
        }
    }
}

/// What a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) present: u32,
    pub(crate) view: View,
    pub(crate) r2t: bool,
    pub(crate) passthrough: bool,
    pub(crate) tls: bool,
    /// Bits of [`When`].
    pub(crate) when: u8,
}
