use std::io;
use std::path::PathBuf;

/// The reason why there is no simulation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scenario asks for what cannot be.
    #[error("{field} is {got}: expected {expected}")]
    Scenario {
        /// The field of the scenario.
        field: &'static str,
        /// Its value.
        got: String,
        /// Values that it may have.
        expected: String,
    },
    /// The text is no latency law.
    #[error(
        "{got:?} is not a latency law: expected constant:TIME, uniform:LOW,HIGH, \
         lognormal:MEDIAN,SIGMA or bimodal:LOW,HIGH,PROBABILITY_OF_HIGH,SIGMA"
    )]
    Law {
        /// The text as given.
        got: String,
    },
    /// The text names no way to rewrite headers.
    #[error("{got:?} is not a way to rewrite headers: expected none, l2 or l3")]
    Rewrite {
        /// The text as given.
        got: String,
    },
    /// The packets cannot be sent as planned.
    #[error(transparent)]
    Schedule(#[from] probe::Error),
    /// A capture cannot be written.
    #[error(transparent)]
    Capture(#[from] capture::Error),
    /// Another file cannot be written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Operation that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The caller wanted no more.
    #[error("interrupted after {packets} packets")]
    Interrupted {
        /// Packets sent until then.
        packets: u64,
    },
}

impl Error {
    /// Returns the stable code of the error, which programs compare instead of the message.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Schedule(error) => error.code(),
            Self::Capture(error) => error.code(),
            Self::Scenario { .. } => "scenario",
            Self::Law { .. } => "latency-law",
            Self::Rewrite { .. } => "rewrite",
            Self::Io { .. } => "simulation-io",
            Self::Interrupted { .. } => "interrupted",
        }
    }
}
