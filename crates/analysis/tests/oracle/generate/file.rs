//! Packets as the bytes of a capture file, without the project's own writer.

use crate::reference::Packet;

const SECOND: u64 = 1_000_000_000;

/// A nanosecond pcap of Ethernet frames.
pub fn pcap(packets: &[Packet]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    for Packet { ts, orig_len, data } in packets {
        for word in [(ts / SECOND) as u32, (ts % SECOND) as u32, data.len() as u32, *orig_len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(data);
    }
    file
}
