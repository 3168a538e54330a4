//! What can be wrong with a trace.

use std::io;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A page contradicts the format or itself.
    #[error("{file}: byte {offset}: {what}: got {got}, expected {expected}")]
    Corrupt {
        /// The file.
        file: String,
        /// Where, from the beginning of the file.
        offset: u64,
        /// What is wrong.
        what: &'static str,
        /// The value that is there.
        got: u64,
        /// The values that are right.
        expected: String,
    },
    /// The kernel describes an event in a way that is not understood.
    #[error("format of {event}: {what}")]
    Format {
        /// The event, as far as it is known.
        event: String,
        /// What is missing.
        what: String,
    },
}

impl Error {
    /// Returns the stable code of the error, which programs compare instead of the message.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "trace-io",
            Self::Corrupt { .. } => "trace-corrupt",
            Self::Format { .. } => "trace-format",
        }
    }
}
