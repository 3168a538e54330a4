//! Errors of traces.

use std::io;

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A page contradicts the format or itself.
    #[error("{file}: byte {offset}: {what}: got {got}, expected {expected}")]
    Corrupt {
        /// The file.
        file: String,
        /// Offset from the beginning of the file, in bytes.
        offset: u64,
        /// Field or property that is wrong.
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
        /// Description of what is missing.
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
