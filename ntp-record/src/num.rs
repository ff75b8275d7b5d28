//! Integers in JSON that survive tools which know doubles only (jq 1.6).
//!
//! Up to 2^53 a number is written as a number, above as a string; both are
//! read, and a double that is a whole number too.

use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Largest magnitude below which every integer is a double.
const EXACT: u64 = 1 << 53;

/// An integer type that can be wider than a double's fraction.
pub(crate) trait Wide:
    Copy + TryFrom<u64> + TryFrom<i64> + std::str::FromStr + fmt::Display
{
    fn magnitude(self) -> u64;
    fn number<S: Serializer>(self, serializer: S) -> Result<S::Ok, S::Error>;
}

impl Wide for u64 {
    fn magnitude(self) -> u64 {
        self
    }

    fn number<S: Serializer>(self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self)
    }
}

impl Wide for i64 {
    fn magnitude(self) -> u64 {
        self.unsigned_abs()
    }

    fn number<S: Serializer>(self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self)
    }
}

/// Wraps a value so that it is written and read as above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Big<T>(pub(crate) T);

impl<T: Wide> Serialize for Big<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.magnitude() <= EXACT {
            self.0.number(serializer)
        } else {
            serializer.collect_str(&self.0)
        }
    }
}

impl<'de, T: Wide> Deserialize<'de> for Big<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number<T>(PhantomData<T>);

        impl<T: Wide> Visitor<'_> for Number<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or one in a string")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
                T::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
                T::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
                // Beyond 2^53 a double is one of several integers: nobody knows which.
                if value.fract() == 0.0 && value.abs() <= EXACT as f64 {
                    return self.visit_i64(value as i64);
                }
                Err(E::invalid_value(Unexpected::Float(value), &self))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
                value
                    .parse()
                    .map_err(|_| E::invalid_value(Unexpected::Str(value), &self))
            }
        }

        deserializer.deserialize_any(Number(PhantomData)).map(Big)
    }
}

/// For `#[serde(with = "crate::num::big")]` on a `u64` or `i64`.
pub(crate) mod big {
    use super::{Big, Deserialize, Deserializer, Serialize, Serializer, Wide};

    pub(crate) fn serialize<T: Wide, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Big(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Wide, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Big::deserialize(deserializer).map(|Big(value)| value)
    }
}

/// For `#[serde(with = "crate::num::map")]` on a map to `u64`.
pub(crate) mod map {
    use super::{BTreeMap, Big, Deserializer, MapAccess, SerializeMap, Serializer, Visitor, fmt};

    pub(crate) fn serialize<S: Serializer>(
        values: &BTreeMap<String, u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(values.len()))?;
        for (name, value) in values {
            map.serialize_entry(name, &Big(*value))?;
        }
        map.end()
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, u64>, D::Error> {
        struct Counters;

        impl<'de> Visitor<'de> for Counters {
            type Value = BTreeMap<String, u64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of counters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut values = BTreeMap::new();
                while let Some((name, Big(value))) = map.next_entry::<String, Big<u64>>()? {
                    values.insert(name, value);
                }
                Ok(values)
            }
        }

        deserializer.deserialize_map(Counters)
    }
}
