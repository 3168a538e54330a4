//! The bytes by which packets are matched: those of the worst, by a second pass over a capture, and
//! those of all packets, for who wants to match them elsewhere.

use std::collections::HashMap;

use capture::Reader;
use probe::key::{Keyed, Keyer, MatchOn, Tap};

use crate::basis::Basis;
use crate::error::Error;
use crate::worst::Worst;

/// Returns the bytes by which each of `worst` was matched, from the capture before the device;
/// empty where the capture no longer holds the packet.
///
/// # Errors
/// When the capture cannot be read.
pub fn worst_keys(
    mut pre: Reader,
    (match_on, basis): (&MatchOn, &Basis),
    worst: &[Worst],
) -> Result<Vec<Vec<u8>>, Error> {
    let keyer = Keyer::new(match_on, Tap::Pre, basis.limit_bytes);
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

/// Packets as columns: when each was captured, and the bytes by which it is matched.
#[derive(Debug, Default)]
pub struct KeyColumns {
    /// Times since 1970 in ns, in the order of the capture.
    pub ts_ns: Vec<u64>,
    /// The key bytes of all packets, one after the other.
    pub bytes: Vec<u8>,
    /// Place at which the key of each packet ends in `bytes`; it begins where the one before ends.
    pub ends: Vec<usize>,
    /// True if the packet has a key.
    pub keyed: Vec<bool>,
}

/// Reads the keys of a capture, some packets at a time.
pub struct Keys {
    reader: Reader,
    keyer: Keyer,
    read: u64,
}

impl Keys {
    /// Returns the keys of `reader` that `keyer` computes.
    #[must_use]
    pub fn new(reader: Reader, keyer: Keyer) -> Self {
        Self { reader, keyer, read: 0 }
    }

    /// Returns the next packets, at most `most`; none at the end.
    ///
    /// # Errors
    /// When the capture cannot be read, or kept too little of a packet.
    pub fn next(&mut self, most: usize) -> Result<KeyColumns, Error> {
        let mut found = KeyColumns::default();
        let mut key = Vec::new();
        while found.ts_ns.len() < most {
            let Some(packet) = self.reader.next()? else { break };
            self.read += 1;
            let keyed = self.keyer.key(packet.data, packet.orig_len);
            if let Keyed::Short { need } = keyed {
                let (offset, got) = (packet.offset, packet.data.len());
                let file = self.reader.info().name;
                return Err(Error::ShortCapture { file, offset, packet: self.read, got, need });
            }
            self.keyer.bytes(packet.data, packet.orig_len, &mut key);
            found.ts_ns.push(packet.ts.0);
            found.bytes.extend_from_slice(&key);
            found.ends.push(found.bytes.len());
            found.keyed.push(keyed != Keyed::None);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::{Scenario, write_pair};

    #[test]
    fn keys_come_in_parts_and_are_those_of_the_keyer() {
        let folder = tempfile::tempdir().unwrap();
        let scenario = Scenario { packets: 100, ..Scenario::default() };
        let (format, compression) = (capture::Format::Pcap, capture::Compression::None);
        let report = &mut |_| std::ops::ControlFlow::Continue(());
        let written = write_pair(&scenario, folder.path(), format, compression, report).unwrap();
        let keyer = Keyer::new(&MatchOn::Frame, Tap::Pre, None);
        let mut keys = Keys::new(Reader::open(&written.pre).unwrap(), keyer.clone());
        let parts: Vec<_> = (0..4).map(|_| keys.next(40).unwrap()).collect();
        assert_eq!(parts.iter().map(|part| part.ts_ns.len()).collect::<Vec<_>>(), [40, 40, 20, 0]);
        let mut reader = Reader::open(&written.pre).unwrap();
        let mut key = Vec::new();
        for part in &parts {
            let mut begin = 0;
            for (i, &end) in part.ends.iter().enumerate() {
                let packet = reader.next().unwrap().unwrap();
                keyer.bytes(packet.data, packet.orig_len, &mut key);
                assert_eq!((part.ts_ns[i], &part.bytes[begin..end]), (packet.ts.0, &key[..]));
                assert!(part.keyed[i]);
                begin = end;
            }
        }
    }
}
