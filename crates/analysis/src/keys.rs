//! The key bytes of the worst packets, by a second pass over the capture.

use std::collections::HashMap;

use capture::Reader;
use probe::key::{Keyed, Keyer, MatchOn};

use crate::error::Error;
use crate::worst::Worst;

/// The bytes by which each of `worst` was matched, from the capture before the device; empty where
/// the capture no longer holds the packet.
///
/// # Errors
/// When the capture cannot be read.
pub fn worst_keys(
    mut pre: Reader,
    match_on: &MatchOn,
    worst: &[Worst],
) -> Result<Vec<Vec<u8>>, Error> {
    let keyer = Keyer::new(match_on);
    let mut wanted: HashMap<(u64, u64), usize> = HashMap::with_capacity(worst.len());
    wanted.extend(worst.iter().enumerate().map(|(i, packet)| ((packet.pre_ns, packet.tag), i)));
    let mut keys = vec![Vec::new(); worst.len()];
    let mut times: Vec<u64> = worst.iter().map(|packet| packet.pre_ns).collect();
    times.sort_unstable();
    while let Some(packet) = pre.next()? {
        if times.binary_search(&packet.ts.0).is_err() {
            continue;
        }
        let Keyed::Key(key) = keyer.key(packet.data, packet.orig_len) else { continue };
        if let Some(&i) = wanted.get(&(packet.ts.0, key.hi)) {
            keyer.bytes(packet.data, packet.orig_len, &mut keys[i]);
        }
    }
    Ok(keys)
}
