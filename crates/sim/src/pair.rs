//! A small pair of captures in memory.

use crate::error::Error;
use crate::scenario::Scenario;
use crate::simulation::{Event, Side, Simulation};
use crate::truth::{Totals, Truth};
use units::Nanos;

/// A packet as a capture holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimPacket {
    /// Its timestamp.
    pub ts: Nanos,
    /// Its length on the wire.
    pub orig_len: u32,
    /// Captured bytes.
    pub data: Vec<u8>,
}

/// Both captures, and the truth about every packet before the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// The packets before the device.
    pub pre: Vec<SimPacket>,
    /// The packets behind it.
    pub post: Vec<SimPacket>,
    /// The truth about each of `pre`.
    pub truth: Vec<Truth>,
    /// The truth about all of them.
    pub totals: Totals,
}

/// Runs a scenario to its end and keeps everything; [`Scenario::cut_bytes`], which is about files,
/// does nothing here.
///
/// # Errors
/// When the scenario cannot be: see [`Scenario::check`].
pub fn simulate(scenario: &Scenario) -> Result<Pair, Error> {
    let mut simulation = Simulation::new(scenario)?;
    let mut pair = Pair::default();
    while let Some(Event { side, ts, orig_len, data, truth }) = simulation.next_event() {
        let packet = SimPacket { ts, orig_len, data: data.into() };
        match side {
            Side::Pre => pair.pre.push(packet),
            Side::Post => pair.post.push(packet),
        }
        pair.truth.extend(truth);
    }
    pair.totals = *simulation.totals();
    Ok(pair)
}
