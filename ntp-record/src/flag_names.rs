//! Flags in JSON.

use crate::record::Flags;
use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Flags as a list of names; a bit without a name is `bit12`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FlagNames(pub(crate) u16);

impl Serialize for FlagNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut names = serializer.serialize_seq(Some(self.0.count_ones() as usize))?;
        for bit in (0..16).filter(|bit| self.0 >> bit & 1 != 0) {
            match Flags::ALL.iter().find(|(flag, _)| *flag as u16 == 1 << bit) {
                Some((_, name)) => names.serialize_element(name)?,
                None => names.serialize_element(&format!("bit{bit}"))?,
            }
        }
        names.end()
    }
}

impl<'de> Deserialize<'de> for FlagNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = FlagNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of flags")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<FlagNames, A::Error> {
                let mut bits = 0;
                while let Some(name) = names.next_element::<Str<'de>>()? {
                    let known = Flags::ALL.iter().find(|(_, known)| *known == name.0);
                    let bit = known.map(|(flag, _)| *flag as u16).or_else(|| {
                        let number: u32 = name.0.strip_prefix("bit")?.parse().ok()?;
                        1u16.checked_shl(number)
                    });
                    bits |= bit.unwrap_or(0);
                }
                Ok(FlagNames(bits))
            }
        }
        deserializer.deserialize_seq(Names)
    }
}

/// A string that is borrowed where JSON allows.
#[derive(Deserialize)]
pub(crate) struct Str<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);
