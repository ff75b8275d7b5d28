//! NDJSON (in the making).

use crate::binary::Kind;
use crate::bytes::Bytes;
use crate::error::Error;
use crate::joined::Joined;
use crate::record::Record;
use crate::stream::{Item, Segment};
use serde::Serialize;
use std::io;

#[derive(Default)]
pub(crate) struct NdjsonReader {}

impl NdjsonReader {
    pub(crate) fn next<'a>(&'a mut self, bytes: &'a mut Bytes) -> Result<Option<Item<'a>>, Error> {
        Err(Error::Io {
            name: bytes.name().into(),
            cause: io::Error::other("NDJSON is not read yet"),
        })
    }
}

pub(crate) fn write_record(_: &mut Vec<u8>, _: &Segment, _: &Record) -> io::Result<()> {
    Err(io::Error::other("NDJSON is not written yet"))
}

pub(crate) fn write_joined(_: &mut Vec<u8>, _: &Segment, _: &Joined) -> io::Result<()> {
    Err(io::Error::other("NDJSON is not written yet"))
}

pub(crate) fn write_tagged<T: Serialize>(_: &mut Vec<u8>, _: Kind, _: &T) -> io::Result<()> {
    Err(io::Error::other("NDJSON is not written yet"))
}
