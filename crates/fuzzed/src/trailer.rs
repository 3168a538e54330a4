//! Times behind a frame or in it: there is one, or none, and what lies around it is the frame.

use capture::{Packet, Reader, Trailer};
use units::Nanos;

/// The first four bytes are the seconds of the capture.
pub fn run(bytes: &[u8]) -> bool {
    let Some((seconds, frame)) = bytes.split_first_chunk() else { return false };
    let ts = Nanos(u64::from(u32::from_be_bytes(*seconds)) * 1_000_000_000);
    let packet = Packet { ts, orig_len: frame.len() as u32, data: frame, offset: 0 };
    let longer = Packet { orig_len: packet.orig_len + 1, ..packet };
    let mut found = false;
    for trailer in Trailer::ALL {
        assert_eq!(trailer.read(&longer), None, "it was not captured");
        let Some((stamp, kept)) = trailer.read(&packet) else { continue };
        found = true;
        let own: Vec<u8> = kept.into_iter().flat_map(|part| &frame[part]).copied().collect();
        assert!(own.len() + 8 <= frame.len(), "a time has bytes");
        assert!(stamp.0.abs_diff(ts.0) <= 31 * 24 * 3600 * 1_000_000_000, "{stamp:?}");
        assert!(Trailer::of([packet].into_iter()).is_some(), "it is found");
        read_stamped(trailer, packet, (stamp, &own));
    }
    found
}

/// Reads a capture of the packet, by the time behind it or in it.
fn read_stamped(trailer: Trailer, packet: Packet<'_>, (stamp, own): (Nanos, &[u8])) {
    let seconds = (packet.ts.0 / 1_000_000_000) as u32;
    let mut file = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 1 << 18, 1].map(u32::to_le_bytes).concat();
    file.extend([seconds, 0, packet.orig_len, packet.orig_len].map(u32::to_le_bytes).concat());
    file.extend(packet.data);
    let reader = Reader::from_bytes("fuzz", file).expect("a capture");
    let mut reader = reader.stamped_by(trailer);
    assert_eq!(reader.next_quick(), None, "that is not quick to tell");
    let read = reader.next().expect("a capture").expect("a packet");
    assert_eq!((read.ts, read.data, read.orig_len as usize), (stamp, own, own.len()));
    assert_eq!(reader.next().expect("a capture"), None);
    let stamps = reader.info().stamps.expect("times are those behind frames");
    assert_eq!((stamps.kind, stamps.without, stamps.drift_ppt), (trailer.kind, 0, None));
}
