//! When the generator's packets shall leave.

use crate::ticks::Ticks;
use probe::schedule::Departures;
use std::sync::Arc;
use units::Nanos;

/// When packets shall leave, counted from the first.
#[derive(Clone, Debug)]
pub enum Times {
    /// By a pattern.
    Pattern(Departures),
    /// As a capture has them.
    Capture(Arc<[Nanos]>),
}

/// When packets shall leave, from a moment on.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub times: Times,
    /// For how long.
    pub lasts: Nanos,
    pub ticks: Ticks,
    /// The moment.
    pub start_tsc: u64,
}

impl Schedule {
    /// The times in ticks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { times, lasts, ticks, start_tsc } = self.clone();
        let (pattern, captured) = match times {
            Times::Pattern(departures) => (Some(departures), None),
            Times::Capture(departures) => (None, Some(departures)),
        };
        let captured = captured.into_iter().flat_map(|all| (0..all.len()).map(move |at| all[at]));
        let all = pattern.into_iter().flatten().chain(captured);
        all.take_while(move |at| *at < lasts).map(move |at| start_tsc + ticks.ticks(at))
    }
}
