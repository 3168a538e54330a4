//! Packets that came out damaged: one without a counterpart on either side that differ in a few bytes, of which the
//! packet's own checksums tell.

use std::collections::HashMap;

use probe::damage::{Damage, damage, is_damaged};
use probe::flow::Flow;
use probe::key::MatchOn;

use crate::ingest::Ahead;

/// Damaged packets behind the device that are compared: of more, checksums tell nothing, as a card fills them in.
const MOST: usize = 4096;

/// A packet that came out damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Time before the device, in ns.
    pub pre_ns: u64,
    /// Time behind it, in ns.
    pub post_ns: u64,
    /// Its flow before the device.
    pub flow: Flow,
    /// Its length on the wire before the device, in bytes.
    pub size_bytes: u32,
    /// How it differs.
    pub damage: Damage,
}

/// Packets behind the device that may be damaged, and those before it that they may be.
pub(crate) struct Suspects<'a> {
    match_on: &'a MatchOn,
    /// The longest time from one to the other, in ns.
    longest_ns: u64,
    /// In order of time.
    seen: Vec<Ahead>,
    /// Each with the place of the one behind the device.
    found: Vec<(usize, Corruption)>,
    /// Candidates of each packet behind the device.
    counts: HashMap<usize, usize>,
}

impl<'a> Suspects<'a> {
    /// Returns those of `seen` whose checksums do not fit.
    pub fn new(seen: Vec<Ahead>, match_on: &'a MatchOn, longest_ns: u64) -> Self {
        let mut seen = if seen.len() > MOST { Vec::new() } else { seen };
        seen.sort_by_key(|packet| packet.ts().0);
        Self { match_on, longest_ns, seen, found: Vec::new(), counts: HashMap::new() }
    }

    /// Returns true if a packet behind the device is kept, beside `kept` others.
    pub fn wants(data: &[u8], orig_len: u32, kept: usize) -> bool {
        kept <= MOST && is_damaged(data, orig_len)
    }

    /// Compares a packet before the device that did not come out, sent at `ts`.
    pub fn compare(&mut self, ts: u64, data: &[u8], orig_len: u32) {
        let first = self.seen.partition_point(|packet| packet.ts().0 < ts);
        let in_time = |packet: &&Ahead| packet.ts().0 - ts <= self.longest_ns;
        let mut told = Vec::new();
        for (place, packet) in self.seen[first..].iter().take_while(in_time).enumerate() {
            let seen = (&packet.data[..], packet.orig_len());
            if let Some(damage) = damage((data, orig_len), seen, self.match_on) {
                let flow = Flow::of(data, orig_len);
                let (pre_ns, post_ns, size_bytes) = (ts, packet.ts().0, orig_len);
                told.push((
                    first + place,
                    Corruption { pre_ns, post_ns, flow, size_bytes, damage },
                ));
            }
        }
        for (place, _) in &told {
            *self.counts.entry(*place).or_default() += 1;
        }
        // One that may be several is none of them.
        if told.len() == 1 {
            self.found.append(&mut told);
        }
    }

    /// Returns the packets that are damaged for certain, in order of time before the device.
    pub fn certain(mut self) -> Vec<Corruption> {
        self.found.retain(|(place, _)| self.counts[place] == 1);
        let mut found: Vec<_> = self.found.into_iter().map(|(_, corruption)| corruption).collect();
        found.sort_by_key(|corruption| corruption.pre_ns);
        found
    }
}
