//! The object made fit for this kernel: constants set, types relocated, maps
//! made. After this only the instructions go to the kernel.

use crate::btf::KernelBtf;
use crate::error::{LoadError, chain};
use crate::plan::Plan;
use crate::sys;
use aya::maps::{Map, MapData, MapError};
use aya_obj::btf::Btf;
use aya_obj::generated::bpf_map_type;
use aya_obj::{EbpfSectionKind, Object};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What the programs record; see the constants in `bpf/core.h`.
#[derive(Clone, Debug)]
pub struct Options {
    /// N of the sampling 1/N, from 1.
    pub sample: u32,
    /// Salt of the sampling hash.
    pub salt: u32,
    /// Record the admin queue too.
    pub admin: bool,
    /// Bytes of a command, inclusive.
    pub size: std::ops::RangeInclusive<u32>,
    /// Opcodes; empty is all.
    pub opcodes: Vec<u8>,
    /// Devices by name; empty is all. On the target the path of the backing
    /// device or file.
    pub devices: Vec<String>,
    /// Entries or bytes of maps, by name, instead of what the object says.
    pub map_sizes: Vec<(&'static str, u32)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sample: 100,
            salt: 0,
            admin: false,
            size: 0..=u32::MAX,
            opcodes: Vec::new(),
            devices: Vec::new(),
            map_sizes: Vec::new(),
        }
    }
}

/// Device filters the programs have room for.
pub const MAX_DEVICES: usize = 8;
/// Bytes of a device filter, with its NUL.
const DEVICE: usize = 32;

/// An object ready to load.
pub(crate) struct Prepared {
    pub(crate) object: Object,
    pub(crate) btf: Option<OwnedFd>,
    pub(crate) maps: HashMap<String, Map>,
    /// What the programs were told in `cfg_send_exit`.
    pub(crate) send_exit: bool,
}

pub(crate) fn prepare(
    plan: &Plan,
    kernel: &KernelBtf,
    options: &Options,
) -> Result<Prepared, LoadError> {
    let bad = |what: String| LoadError::Object {
        object: plan.object.name,
        what,
    };
    let mut object = Object::parse(plan.object.code).map_err(|e| bad(chain(&e)))?;
    let send_exit = plan.has_exit();
    let constants = constants(options, send_exit)?;
    object
        .patch_map_data(
            constants
                .iter()
                .map(|(n, v)| (*n, (v.as_slice(), true)))
                .collect(),
        )
        .map_err(|e| bad(chain(&e)))?;
    let own = object
        .btf
        .as_ref()
        .map(Btf::to_bytes)
        .ok_or_else(|| bad("no BTF".into()))?;
    let btf = object_btf(&mut object).map_err(bad)?;
    let target = Btf::parse(&kernel.slice(own)?, object.endianness).map_err(|e| bad(chain(&e)))?;
    object.relocate_btf(&target).map_err(|e| bad(chain(&e)))?;
    let maps = make_maps(&mut object, btf.as_ref().map(AsFd::as_fd), options)?;
    link(&mut object, &maps).map_err(bad)?;
    let mut typed = HashMap::new();
    for (name, (_, data)) in maps {
        let map = Map::from_map_data(data).map_err(|e| LoadError::Map {
            map: name.clone(),
            what: chain(&e),
        })?;
        typed.insert(name, map);
    }
    Ok(Prepared {
        object,
        btf,
        maps: typed,
        send_exit,
    })
}

/// Values of the programs' constants, by name, as bytes in memory.
fn constants(o: &Options, send_exit: bool) -> Result<Vec<(&'static str, Vec<u8>)>, LoadError> {
    if o.sample == 0 {
        return Err(LoadError::Option(
            "sampling: 1 in 0: give a number from 1".into(),
        ));
    }
    let mut ops = [if o.opcodes.is_empty() { u64::MAX } else { 0 }; 4];
    for op in &o.opcodes {
        ops[usize::from(op >> 6)] |= 1 << (op & 63);
    }
    if o.devices.len() > MAX_DEVICES {
        return Err(LoadError::Option(format!(
            "{} devices: at most {MAX_DEVICES} can be chosen; leave the choice out to record all",
            o.devices.len()
        )));
    }
    let mut devices = [[0u8; DEVICE]; MAX_DEVICES];
    for (slot, name) in devices.iter_mut().zip(&o.devices) {
        // The programs compare the end of a longer path.
        let name = name.as_bytes();
        let tail = &name[name.len().saturating_sub(DEVICE - 1)..];
        slot[..tail.len()].copy_from_slice(tail);
    }
    Ok(vec![
        ("cfg_sample_n", o.sample.to_ne_bytes().into()),
        ("cfg_salt", o.salt.to_ne_bytes().into()),
        ("cfg_admin", vec![o.admin.into()]),
        ("cfg_send_exit", vec![send_exit.into()]),
        ("cfg_size_min", o.size.start().to_ne_bytes().into()),
        ("cfg_size_max", o.size.end().to_ne_bytes().into()),
        (
            "cfg_ops",
            ops.iter().flat_map(|w| w.to_ne_bytes()).collect(),
        ),
        ("cfg_devs", vec![o.devices.len() as u8]),
        ("cfg_dev", devices.concat()),
    ])
}

/// Loads the object's own BTF, as this kernel understands it; `None` when the
/// kernel takes none.
fn object_btf(object: &mut Object) -> Result<Option<OwnedFd>, String> {
    let Some(features) = aya::features().btf() else {
        return Ok(None);
    };
    let Some(btf) = object
        .fixup_and_sanitize_btf(features)
        .map_err(|e| chain(&e))?
    else {
        return Ok(None);
    };
    let fd = sys::btf_load(&btf.to_bytes()).map_err(|e| format!("BTF of the programs: {e}"))?;
    Ok(Some(fd))
}

/// A map as the object describes it, and in the kernel.
type Made = (aya_obj::Map, MapData);

fn make_maps(
    object: &mut Object,
    btf: Option<BorrowedFd<'_>>,
    options: &Options,
) -> Result<HashMap<String, Made>, LoadError> {
    let mut maps = HashMap::new();
    for (name, mut map) in object.maps.drain() {
        if let Some((_, size)) = options.map_sizes.iter().find(|(n, _)| *n == name) {
            map.set_max_entries(*size);
        }
        if map.map_type() == bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32 {
            map.set_max_entries(whole_pages(map.max_entries(), sys::page_size()));
        }
        let fail = |what: String| LoadError::Map {
            map: name.clone(),
            what,
        };
        let constant = map.section_kind() == EbpfSectionKind::Rodata;
        let data = map.data().to_vec();
        let made = MapData::create(map.clone(), &name, btf).map_err(|e| match sys::memlock() {
            // The capabilities that maps need were looked at before.
            Some(limit) if denied(&e) => LoadError::Memlock { limit },
            _ => fail(chain(&e)),
        })?;
        if !data.is_empty() {
            sys::map_set_first(made.fd().as_fd(), &data).map_err(|e| fail(e.to_string()))?;
        }
        if constant {
            sys::map_freeze(made.fd().as_fd()).map_err(|e| fail(e.to_string()))?;
        }
        maps.insert(name, (map, made));
    }
    Ok(maps)
}

/// The kernel takes ring buffers of whole pages only, which are larger on some
/// machines than on that where a size was chosen. Both are powers of two.
fn whole_pages(bytes: u32, page: u32) -> u32 {
    bytes.max(page)
}

/// Whether the kernel refused for want of a right.
fn denied(e: &MapError) -> bool {
    match e {
        MapError::CreateError { io_error, .. } => io_error.raw_os_error() == Some(libc::EPERM),
        _ => false,
    }
}

/// Puts the maps' descriptors and the subprograms into the programs.
fn link(object: &mut Object, maps: &HashMap<String, Made>) -> Result<(), String> {
    let text: HashSet<usize> = object
        .functions
        .keys()
        .map(|(section, _)| *section)
        .collect();
    let fds = maps
        .iter()
        .map(|(n, (map, made))| (n.as_str(), made.fd().as_fd().as_raw_fd(), map));
    object.relocate_maps(fds, &text).map_err(|e| chain(&e))?;
    object.relocate_calls(&text).map_err(|e| chain(&e))?;
    object.sanitize_functions(aya::features());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::OBJECTS;

    fn value<'a>(all: &'a [(&str, Vec<u8>)], name: &str) -> &'a [u8] {
        &all.iter().find(|(n, _)| *n == name).unwrap().1
    }

    #[test]
    fn every_object_has_every_constant_in_the_size_written() {
        for o in OBJECTS {
            let all = constants(&Options::default(), true).unwrap();
            let mut object = Object::parse(o.code).unwrap();
            let globals = all
                .iter()
                .map(|(n, v)| (*n, (v.as_slice(), true)))
                .collect();
            object.patch_map_data(globals).unwrap();
            // And none that nobody sets: .rodata holds just these.
            let rodata = object
                .maps
                .values()
                .find(|m| m.section_kind() == EbpfSectionKind::Rodata)
                .unwrap();
            assert!(rodata.data().len() >= all.iter().map(|(_, v)| v.len()).sum());
        }
    }

    #[test]
    fn the_maps_values_are_as_large_as_user_space_thinks() {
        for o in OBJECTS {
            let object = Object::parse(o.code).unwrap();
            let map = |n: &str| {
                object
                    .maps
                    .get(n)
                    .unwrap_or_else(|| panic!("{}: {n}", o.name))
            };
            assert_eq!(
                map("inflight").value_size() as usize,
                crate::readout::FLIGHT
            );
            assert_eq!(
                map("counts").key_size() as usize,
                size_of::<crate::shared::CountKey>()
            );
            assert_eq!(
                map("stats").max_entries() as usize,
                crate::shared::STATS.len()
            );
        }
    }

    #[test]
    fn ring_buffers_are_at_least_a_page() {
        assert_eq!(whole_pages(4096, 4096), 4096);
        assert_eq!(whole_pages(4096, 64 << 10), 64 << 10);
        assert_eq!(whole_pages(8 << 20, 64 << 10), 8 << 20);
    }

    #[test]
    fn opcodes_are_a_bit_each() {
        let o = Options {
            opcodes: vec![0, 2, 0x79, 0xff],
            ..Options::default()
        };
        let all = constants(&o, false).unwrap();
        let words: Vec<u64> = value(&all, "cfg_ops")
            .chunks(8)
            .map(|b| u64::from_ne_bytes(b.try_into().unwrap()))
            .collect();
        assert_eq!(words, [0b101, 1 << 57, 0, 1 << 63]);
        let all = constants(&Options::default(), false).unwrap();
        assert!(value(&all, "cfg_ops").iter().all(|b| *b == 0xff));
    }

    #[test]
    fn a_device_longer_than_the_room_is_compared_by_its_end() {
        let long = format!("/dev/disk/by-id/{}end", "x".repeat(40));
        let o = Options {
            devices: vec!["nvme0n1".into(), long],
            ..Options::default()
        };
        let all = constants(&o, false).unwrap();
        assert_eq!(value(&all, "cfg_devs"), [2]);
        let room = value(&all, "cfg_dev");
        assert_eq!(room.len(), MAX_DEVICES * DEVICE);
        assert_eq!(&room[..8], b"nvme0n1\0");
        assert_eq!(
            &room[DEVICE..2 * DEVICE],
            [&b"x".repeat(28)[..], b"end\0"].concat()
        );
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let none = Options {
            sample: 0,
            ..Options::default()
        };
        assert!(
            constants(&none, false)
                .unwrap_err()
                .to_string()
                .contains("1 in 0")
        );
        let many = Options {
            devices: vec!["a".into(); 9],
            ..Options::default()
        };
        assert!(
            constants(&many, false)
                .unwrap_err()
                .to_string()
                .starts_with("9 devices: ")
        );
    }
}
