//! Packets of which no counterpart was found, on either side, so that they can be looked at again.

use probe::key::Key;

use crate::counts::Counts;

/// Packets of each kind that are kept; of others nothing more will be known.
const MOST: usize = 1 << 20;
/// Fewest packets left on either side for a second look.
const FEWEST: u64 = 3;
/// Largest number of lost packets for each packet that nobody sent: fewer explain little.
const SHARE: u64 = 100;

/// A packet, by its time and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Trace {
    pub ts: u64,
    hi: u64,
    lo: u32,
}

impl Trace {
    pub fn new(ts: u64, key: Key) -> Self {
        Self { ts, hi: key.hi, lo: key.lo as u32 }
    }
}

/// Packets without a counterpart. Some that seemed lost may have turned out to be late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residue {
    /// Lost before the device, and unknown behind it.
    pub unmatched: [Traces; 2],
    /// Seen behind the device before they were sent: in front of it, and behind it.
    pub negative: [Traces; 2],
}

/// Some packets of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Vec<Trace>);

impl Traces {
    pub fn push(&mut self, ts: u64, key: Key) {
        if self.0.len() < MOST {
            self.0.push(Trace::new(ts, key));
        }
    }

    pub fn sort(&mut self) {
        self.0.sort_unstable();
    }

    /// Returns true if the packet is one of them, which are sorted.
    pub fn contain(&self, trace: &Trace) -> bool {
        self.0.binary_search(trace).is_ok()
    }
}

impl Residue {
    /// Returns true if a packet that is left behind the device may be one that is left before it, damaged;
    /// `local` of those behind it are control traffic.
    pub fn may_be_damaged(counts: &Counts, local: u64) -> bool {
        let unknown = counts.post_unknown.saturating_sub(local);
        counts.lost > 0 && unknown > 0 && unknown >= counts.lost / SHARE
    }

    /// Returns true if what is left on both sides may be the same packets.
    pub fn is_considerable(counts: &Counts) -> bool {
        let (lost, unknown) = (counts.lost, counts.post_unknown);
        let early = counts.negative.min(counts.post_negative);
        (lost >= FEWEST && unknown >= FEWEST.max(lost / SHARE)) || early >= FEWEST
    }
}
