//! What must hold for every capture, whatever its bytes.

use capture::{Compression, Format, Info, Packet, Reader, Writer};
use units::Nanos;

type Owned = (Nanos, u32, Vec<u8>);

/// Reads `bytes` to their end and checks what was read; tells whether they are a capture of
/// `format` at all. Compressed ones are not: the decompressors have fuzzers of their own.
pub fn survey(bytes: &[u8], format: Format) -> bool {
    let Ok(mut reader) = Reader::from_bytes("fuzz", bytes.into()) else { return false };
    let Info { format: found, compression, .. } = reader.info();
    if (found, compression) != (format, Compression::None) {
        return false;
    }
    let packets = drain(&mut reader, bytes);
    if let Some(cut) = reader.cut() {
        assert_eq!(cut.packets, packets.len() as u64);
        assert!(cut.offset < bytes.len() as u64, "{cut}");
    }
    assert!(reader.consumed_bytes() <= bytes.len() as u64);
    assert_eq!(rewritten(&packets), packets);
    true
}

/// All packets, up to the end or to an error; both must stay what they are.
fn drain(reader: &mut Reader, bytes: &[u8]) -> Vec<Owned> {
    let mut packets = Vec::new();
    let mut next_offset = 0;
    loop {
        match reader.next() {
            Ok(Some(packet)) => {
                next_offset = check(packet, next_offset, bytes);
                packets.push((packet.ts, packet.orig_len, packet.data.into()));
            }
            Ok(None) => {
                assert!(matches!(reader.next(), Ok(None)));
                return packets;
            }
            Err(error) => {
                let again = reader.next().expect_err("the error comes again");
                assert_eq!(again.to_string(), error.to_string());
                return packets;
            }
        }
    }
}

/// Where the next record can start at the earliest.
fn check(packet: Packet<'_>, next_offset: u64, bytes: &[u8]) -> u64 {
    let Packet { orig_len, data, offset, .. } = packet;
    assert!(offset >= next_offset && data.len() <= orig_len as usize);
    // The packet's bytes lie behind its header: 16 bytes in pcap, 28 in pcapng.
    let record = &bytes[offset as usize..];
    let stored = |head: usize| record.get(head..head + data.len()) == Some(data);
    assert!(stored(16) || stored(28));
    offset + 16 + data.len() as u64
}

/// The packets after a round through this crate's own writer, which can hold any of them.
fn rewritten(packets: &[Owned]) -> Vec<Owned> {
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, Compression::None).expect("memory");
    for (ts, orig_len, data) in packets {
        writer.write(*ts, *orig_len, data).expect("a packet that was read");
    }
    let bytes = writer.into_inner().expect("memory");
    let mut reader = Reader::from_bytes("rewritten", bytes.clone()).expect("a capture");
    let packets = drain(&mut reader, &bytes);
    assert!(reader.cut().is_none());
    packets
}
