//! Names and ids of lines that may have lost the lines which name them.

use crate::header::{Connection, Device};
use crate::line::{Ends, LineIn, parse_ends};
use crate::record::Record;
use crate::stream::Item;
use std::collections::{HashMap, VecDeque};

/// Gives each name an id that is its own within the segment: the id its lines
/// carry, unless another name has it (`cat` of two filtered recordings).
#[derive(Default)]
pub(crate) struct Names {
    connections: Ids,
    devices: Ids,
    /// Buffer for a key.
    key: String,
}

impl Names {
    /// Takes in a connection named by its own line.
    pub(crate) fn connection(&mut self, connection: &Connection) {
        self.connections
            .name(connection.id, Ends(connection).to_string());
    }

    /// Takes in a device named by its own line.
    pub(crate) fn device(&mut self, device: &Device) {
        self.devices
            .name(device.id, device_key(&device.name, &device.path));
    }

    /// Gives the record of a line its ids; names that are new go to `items`.
    pub(crate) fn resolve(
        &mut self,
        line: &LineIn<'_>,
        record: &mut Record,
        items: &mut VecDeque<Item<'static>>,
    ) {
        if !line.connection.is_empty() {
            let (id, new) = self.connections.id(record.conn, &line.connection);
            record.conn = id;
            if new {
                let whole = || Connection {
                    local: line.connection.as_ref().into(),
                    ..Connection::default()
                };
                let connection = parse_ends(&line.connection).unwrap_or_else(whole);
                items.push_back(Item::Connection(Connection {
                    id,
                    source: line.source,
                    ..connection
                }));
            }
        }
        if !line.device.is_empty() {
            self.key.clear();
            self.key.push_str(&line.device);
            self.key.push('\0');
            self.key.push_str(&line.path);
            let (id, new) = self.devices.id(record.dev, &self.key);
            record.dev = id;
            if new {
                let (name, path) = (line.device.as_ref().into(), line.path.as_ref().into());
                items.push_back(Item::Device(Device {
                    id,
                    name,
                    path,
                    nsid: record.nsid,
                    ..Device::default()
                }));
            }
        }
    }
}

fn device_key(name: &str, path: &str) -> String {
    format!("{name}\0{path}")
}

/// Ids of one kind of name.
#[derive(Default)]
struct Ids {
    /// By the id in the lines: the names that carry it, with the id given to each.
    by_wanted: HashMap<u32, Vec<(String, u32)>>,
    taken: std::collections::HashSet<u32>,
    next: u32,
}

impl Ids {
    /// A line that gives `name` the id `id`; renames it if it had another name.
    fn name(&mut self, id: u32, name: String) {
        let names = self.by_wanted.entry(id).or_default();
        names.retain(|(other, given)| *given != id && *other != name);
        names.push((name, id));
        self.taken.insert(id);
    }

    /// Id for a name whose lines carry `wanted`, and whether it is new.
    fn id(&mut self, wanted: u32, name: &str) -> (u32, bool) {
        let names = self.by_wanted.entry(wanted).or_default();
        if let Some((_, id)) = names.iter().find(|(other, _)| other == name) {
            return (*id, false);
        }
        let mut id = wanted;
        if self.taken.contains(&id) {
            // Far from ids that a later line may carry.
            id = self.next.max(1 << 31);
            while self.taken.contains(&id) {
                id = id.wrapping_add(1);
            }
            self.next = id.wrapping_add(1);
        }
        names.push((name.to_owned(), id));
        self.taken.insert(id);
        (id, true)
    }
}
