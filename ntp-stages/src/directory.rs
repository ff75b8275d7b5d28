//! Which group a command belongs to.

use crate::command::Command;
use crate::keys::{By, Raw};
use ntp_record::Segment;
use ntp_record::row::{KeyValue, View};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// What the commands of a group share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which machines saw them.
    pub view: View,
    /// Values of the keys; `None`: the group of what found no group of its own.
    pub values: Option<Vec<KeyValue>>,
}

/// Groups by key. A number stays with its key for the whole input.
#[derive(Debug)]
pub struct Directory {
    by: By,
    most: usize,
    entries: Vec<Entry>,
    by_key: HashMap<(View, Option<Vec<KeyValue>>), u32>,
    /// The same by the numbers of the current segment.
    by_raw: FxHashMap<(View, Raw), u32>,
}

/// Raw keys remembered at most; more are looked up by name again.
const REMEMBERED: usize = 1 << 16;

impl Directory {
    /// Groups by these keys, `most` of them and one more for the rest of each view.
    pub fn new(by: By, most: usize) -> Self {
        Directory {
            by,
            most,
            entries: Vec::new(),
            by_key: HashMap::new(),
            by_raw: FxHashMap::default(),
        }
    }

    /// Number of the command's group.
    pub fn find(&mut self, segment: &Segment, command: &Command<'_>) -> u32 {
        let key = (command.view(), self.by.raw(command));
        match self.by_raw.get(&key) {
            Some(number) => *number,
            None => self.look_up(segment, key),
        }
    }

    fn look_up(&mut self, segment: &Segment, (view, raw): (View, Raw)) -> u32 {
        let mut key = (view, Some(self.by.values(segment, view, &raw)));
        if self.entries.len() >= self.most && !self.by_key.contains_key(&key) {
            key.1 = None;
        }
        let number = *self.by_key.entry(key.clone()).or_insert_with(|| {
            self.entries.push(Entry {
                view: key.0,
                values: key.1,
            });
            (self.entries.len() - 1) as u32
        });
        if self.by_raw.len() >= REMEMBERED {
            self.by_raw.clear();
        }
        self.by_raw.insert((view, raw), number);
        number
    }

    /// Numbers of records mean something else from here on.
    pub fn forget_names(&mut self) {
        self.by_raw.clear();
    }

    /// A group's entry.
    pub fn entry(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    /// The keys.
    pub fn by(&self) -> &By {
        &self.by
    }

    /// Groups there may be.
    pub fn most(&self) -> usize {
        self.most
    }
}
