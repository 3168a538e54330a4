//! Settings of the analysis of a pair.

use probe::key::MatchOn;
use units::Nanos;

use crate::basis::Clocks;
use crate::doubts::Doubts;
use crate::error::Error;
use crate::matcher::MAX_WINDOW;

/// The settings of the analysis of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Key by which a packet is the same before and after the device.
    pub match_on: MatchOn,
    /// Most specific key of those of [`MatchOn::Auto`] that may be taken: the one that an
    /// [`Error::KeyChanges`] names.
    pub joined_by: Option<MatchOn>,
    /// Longest time that a packet may take.
    pub window: Nanos,
    /// Duration of the beginning that is left out.
    pub trim: Nanos,
    /// Number of worst packets to keep.
    pub worst: usize,
    /// Number of packets that may wait for their counterpart before the analysis gives up.
    pub max_in_flight: usize,
    /// Assumption about the two clocks.
    pub clocks: Clocks,
    /// Times at which one of the clocks is in doubt.
    pub doubts: Doubts,
    /// True if both captures began before the traffic and ended behind it: what is missing is lost.
    pub whole: bool,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if (Nanos(1)..=MAX_WINDOW).contains(&self.window) {
            return Ok(());
        }
        Err(Error::Window { got: self.window, max: MAX_WINDOW })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            match_on: MatchOn::Auto,
            joined_by: None,
            window: Nanos(5_000_000_000),
            trim: Nanos(0),
            worst: 5000,
            max_in_flight: 1 << 24,
            clocks: Clocks::Detect,
            doubts: Doubts::default(),
            whole: false,
        }
    }
}
