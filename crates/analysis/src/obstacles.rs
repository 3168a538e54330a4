//! Why two captures have no packets in common: what passes the device is encrypted anew, or was not captured whole.

use std::collections::{BTreeMap, HashMap};

use probe::encryption::{Encryption, encryption};
use probe::flow::Flow;

use crate::error::{CutPackets, Obstacle};
use crate::ingest::Ahead;

/// Packets of a side that are cut if what would tell was not captured: one in so many, at least.
const CUT_SHARE: usize = 10;

/// Returns what a sample shows: whole packets tell what encrypts.
pub(crate) fn obstacle(sample: &[Vec<Ahead>; 2]) -> Option<Obstacle> {
    let cut = [0, 1].into_iter().find_map(|side| cut(side, &sample[side])).map(Obstacle::Cut);
    cut.or_else(|| encrypted(sample).map(Obstacle::Encrypted))
}

fn cut(side: usize, packets: &[Ahead]) -> Option<CutPackets> {
    let sizes = packets.iter().filter(|of| of.data.len() < of.orig_len() as usize);
    let sizes: Vec<usize> = sizes.map(|of| of.data.len()).collect();
    let kept = sizes.iter().copied().max()?;
    let (cut, of) = (sizes.len(), packets.len());
    (cut * CUT_SHARE >= of).then_some(CutPackets { side, cut, of, kept })
}

/// Returns what encrypts at least half of the flows of TCP and UDP on one side, if packets of a sample show it.
fn encrypted(sample: &[Vec<Ahead>; 2]) -> Option<Encryption> {
    sample.iter().find_map(|packets| {
        let mut flows: HashMap<Flow, Option<Encryption>> = HashMap::new();
        for packet in packets {
            let flow = Flow::of(&packet.data, packet.orig_len());
            if flow.from_port.is_some() && flow.to_port.is_some() {
                let found = flows.entry(Flow { tos: 0, ..flow }).or_default();
                *found = found.or_else(|| encryption(&packet.data, packet.orig_len()));
            }
        }
        most_common(flows.into_values())
    })
}

/// Returns the most common of these, if at least half of all are so.
fn most_common(of: impl Iterator<Item = Option<Encryption>>) -> Option<Encryption> {
    let (mut counts, mut all): (BTreeMap<Encryption, usize>, usize) = (BTreeMap::new(), 0);
    for found in of {
        all += 1;
        if let Some(found) = found {
            *counts.entry(found).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (2 * most.1 >= all).then_some(most.0)
}
