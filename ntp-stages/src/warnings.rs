//! Everything a report warns of, in one place.

use ntp_record::cause::{self, Book};
use ntp_record::row;
use std::fmt;

/// A thing a reader of the figures should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// Components do not add up.
    SumMismatch { commands: u64 },
    /// Percentiles that few commands cannot carry.
    FewSamples {
        group: u32,
        n: u64,
        percentiles: Vec<String>,
        sampling_to_use: Option<u32>,
    },
    /// Points in the wrong order on one machine.
    OutOfOrder { times: u64 },
    /// Negative computed wire.
    WireNegative { times: u64 },
    /// Effects before causes.
    NotInOrder { commands: u64, of: u64 },
    /// Parts of the input were lost.
    Damaged { parts: u64, bytes: u64 },
    /// Recordings without an end.
    CutOff { recordings: u64, of: u64 },
    /// Records that were lost while recording.
    Lost { cause: String, records: u64 },
    /// Records that are half a command.
    LeftOut { what: String, records: u64 },
    /// More kinds of commands than groups.
    TooManyGroups { commands: u64, most: usize },
    /// The stream does not say how many were sampled.
    SamplingUnknown,
    /// Recordings with different sampling.
    SamplingDiffers { least: u32, most: u32 },
    /// Records that came too late for their interval.
    Late { records: u64 },
    /// Commands of a host whose clock the stream does not tell.
    Unplaced { commands: u64 },
    /// Joined commands without a bound of the clocks' difference.
    NoBound { commands: u64 },
}

impl Warning {
    /// The warning as a row.
    pub(crate) fn row(&self) -> row::Warning {
        let (code, group) = match self {
            Warning::SumMismatch { .. } => ("sum-mismatch", None),
            Warning::FewSamples { group, .. } => ("few-samples", Some(*group)),
            Warning::OutOfOrder { .. } => ("out-of-order", None),
            Warning::WireNegative { .. } => ("wire-negative", None),
            Warning::NotInOrder { .. } => ("not-in-order", None),
            Warning::Damaged { .. } => ("damaged", None),
            Warning::CutOff { .. } => ("cut-off", None),
            Warning::Lost { .. } => ("lost", None),
            Warning::LeftOut { .. } => ("left-out", None),
            Warning::TooManyGroups { .. } => ("too-many-groups", None),
            Warning::SamplingUnknown => ("sampling-unknown", None),
            Warning::SamplingDiffers { .. } => ("sampling-differs", None),
            Warning::Late { .. } => ("late", None),
            Warning::Unplaced { .. } => ("unplaced", None),
            Warning::NoBound { .. } => ("no-bound", None),
        };
        row::Warning {
            code: code.to_owned(),
            group,
            text: self.to_string(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::SumMismatch { commands } => {
                write!(
                    f,
                    "components of {commands} commands do not add up to their end-to-end time: this is a bug of ntp-stages"
                )
            }
            Warning::FewSamples {
                n,
                percentiles,
                sampling_to_use,
                ..
            } => {
                let commands = match n {
                    1 => "1 command is".to_owned(),
                    n => format!("{n} commands are"),
                };
                let percentiles = percentiles.join(", ");
                write!(
                    f,
                    "{commands} too few for {percentiles}: fewer than 10 lie beyond; "
                )?;
                match sampling_to_use {
                    Some(sampling) => write!(f, "-s {sampling} would do, or a longer recording"),
                    None => write!(f, "record longer"),
                }
            }
            Warning::OutOfOrder { times } => {
                write!(
                    f,
                    "{times} times are negative: points out of order on one machine; they are in all figures"
                )
            }
            Warning::WireNegative { times } => {
                write!(
                    f,
                    "{times} times of the computed wire are negative; they are in all figures"
                )
            }
            Warning::NotInOrder { commands, of } => {
                write!(
                    f,
                    "{commands} of {of} joined commands break the order of cause and effect by more than the bound of the clocks"
                )
            }
            Warning::Damaged { parts: 0, bytes } => {
                write!(
                    f,
                    "{bytes} bytes of the recordings were damaged and skipped"
                )
            }
            Warning::Damaged { parts, bytes } => {
                write!(
                    f,
                    "{parts} damaged parts of the input were skipped, {bytes} bytes"
                )
            }
            Warning::CutOff { recordings, of } => {
                write!(
                    f,
                    "{recordings} of {of} recordings have no end: what was lost in them is not known"
                )
            }
            Warning::Lost { cause, records } => {
                write!(
                    f,
                    "{records} sampled commands were lost while recording, {}",
                    cause::words(Book::Lost, cause)
                )
            }
            Warning::LeftOut { what, records } => {
                write!(
                    f,
                    "{records} records are incomplete and left out: {what} is missing"
                )
            }
            Warning::TooManyGroups { commands, most } => {
                write!(
                    f,
                    "{commands} commands are in the group of others: there are more than {most} groups; use fewer keys in --by"
                )
            }
            Warning::SamplingUnknown => {
                write!(
                    f,
                    "the stream does not say how many commands were sampled: no rates"
                )
            }
            Warning::SamplingDiffers { least, most } => {
                write!(
                    f,
                    "recordings differ in sampling, 1 in {least} to 1 in {most}: means weigh each record alike"
                )
            }
            Warning::Late { records } => {
                write!(
                    f,
                    "{records} records came after their interval had been written: they are in the totals only"
                )
            }
            Warning::Unplaced { commands } => {
                write!(
                    f,
                    "the stream does not tell which host's clock {commands} commands are timed by: they are in no interval, and there is no estimated rate; join the recordings as files of their own"
                )
            }
            Warning::NoBound { commands } => {
                write!(
                    f,
                    "the clocks of {commands} joined commands could not be compared: not in the directions of the wire"
                )
            }
        }
    }
}
