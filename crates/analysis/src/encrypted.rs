//! Why two captures have no packets in common: what passes the device is encrypted anew.

use std::collections::{BTreeMap, HashMap};

use probe::encryption::{Encryption, encryption};
use probe::flow::Flow;

use crate::ingest::Ahead;

/// Returns what encrypts at least half of the flows of TCP and UDP on one side, if packets of a sample show it.
pub(crate) fn encrypted(sample: &[Vec<Ahead>; 2]) -> Option<Encryption> {
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
pub(crate) fn most_common(of: impl Iterator<Item = Option<Encryption>>) -> Option<Encryption> {
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
