//! What is asked of a pair.

use probe::key::MatchOn;
use units::Nanos;

use crate::basis::Clocks;
use crate::error::Error;
use crate::matcher::MAX_WINDOW;

/// How a pair is analysed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What makes a packet the same before and after the device.
    pub match_on: MatchOn,
    /// Of what [`MatchOn::Auto`] tries, the most specific that may be taken: what an
    /// [`Error::KeyChanges`] names.
    pub joined_by: Option<MatchOn>,
    /// How long a packet may take.
    pub window: Nanos,
    /// How much of the beginning is left out.
    pub trim: Nanos,
    /// How many of the worst packets are kept.
    pub worst: usize,
    /// How many packets may wait for their counterpart before the analysis gives up.
    pub max_in_flight: usize,
    /// What is taken for granted of the two clocks.
    pub clocks: Clocks,
    /// Whether both captures began before the traffic and ended behind it: what is missing is lost.
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
            whole: false,
        }
    }
}
