//! What can stop a reader, in words people can act on.

use std::io;

/// Why an input cannot be read at all. Damage inside a recording is not an
/// error: see [`crate::Damage`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{name}: {}", tidy(.cause))]
    Io {
        /// File, or `standard input`.
        name: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// A directory where a file is needed.
    #[error("{name}: is a directory: name the recordings in it")]
    Directory {
        /// The directory.
        name: String,
    },
    /// No byte at all.
    #[error("{name}: empty: nothing was recorded, or a filter let nothing through")]
    Empty {
        /// File, or `standard input`.
        name: String,
    },
    /// Neither encoding, and no chunk of a recording near the beginning.
    #[error(
        "{name}: not a recording: begins with {begins}; ntp-capture and ntp-join write what is read here"
    )]
    NotARecording {
        /// File, or `standard input`.
        name: String,
        /// Its first bytes, quoted.
        begins: String,
    },
    /// Written in a format that did not exist when this tool was built.
    #[error(
        "{name}: byte {offset}: format version {major} is newer than the {known} known here: \
         read it with the ntp version that wrote it, or a newer one"
    )]
    NewerMajor {
        /// File, or `standard input`.
        name: String,
        /// Where the chunk begins.
        offset: u64,
        /// Version found.
        major: u32,
        /// Newest version this build reads.
        known: u8,
    },
    /// Standard input named more than once.
    #[error("standard input is named more than once: at most one input can be `-`")]
    TwoStdin,
}

/// An operating system's error in this project's manner: lower case, no number.
pub fn tidy(cause: &io::Error) -> String {
    let mut text = cause.to_string();
    if cause.raw_os_error().is_some()
        && let Some(at) = text.find(" (os error ")
    {
        text.truncate(at);
        text = text.replace(", ", ": ");
    }
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !letters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text,
    }
}

/// The first bytes of an input, for a message.
pub(crate) fn quote(begins: &[u8]) -> String {
    let text: String = begins
        .iter()
        .take(8)
        .map(|byte| match byte {
            b' '..=b'~' => char::from(*byte).to_string(),
            _ => byte.escape_ascii().to_string(),
        })
        .collect();
    format!("`{text}`")
}
