//! What must hold for every capture, whatever its bytes.

use std::io::Write;

use capture::{Compression, Format, Info, Packet, Reader, Writer};
use units::Nanos;

/// Time, length on the wire, and what was captured of a packet.
pub type Owned = (Nanos, u32, Vec<u8>);

/// What a made Ethernet header takes the place of, of each link type.
const HEADERS: [usize; 4] = [0, 4, 16, 20];
const ETHERNET_HEADER: usize = 14;

/// Reads `bytes` to their end and checks what was read; tells whether they are a capture of
/// `format` at all. Compressed ones are not: they have a target of their own.
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

/// Whether what a reader hands out, to its end or to an error, is the beginning of `expected`; and
/// if it is less, that it says so.
pub fn assert_beginning(bytes: Vec<u8>, expected: &[Owned], is_whole: bool) {
    let Ok(mut reader) = Reader::from_bytes("fuzz", bytes) else {
        assert!(!is_whole);
        return;
    };
    let mut count = 0;
    let ended = loop {
        match reader.next() {
            Ok(Some(Packet { ts, orig_len, data, .. })) => {
                assert_eq!((ts, orig_len, data.to_vec()), expected[count]);
                count += 1;
            }
            Ok(None) => break reader.cut().is_none(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(ended, is_whole);
    assert!(!is_whole || count == expected.len());
}

/// Bytes as the tool of a compressor stores them.
pub fn compress(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::None => bytes.into(),
        Compression::Gzip => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
            encoder.include_checksum(true).expect("an option");
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        Compression::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(0);
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("an encoder");
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
        Compression::Bzip2 => {
            let level = bzip2::Compression::fast();
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
    }
}

/// The same pcapng blocks with the length of each at its end as at its start: a mutation seldom hits
/// both.
pub fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    let big = bytes.get(8..12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
    let mut rest = &mut mended[..];
    while let Some(&[a, b, c, d]) = rest.get(4..8) {
        let word = [a, b, c, d];
        let len = if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) } as usize;
        if len < 12 || len > rest.len() {
            break;
        }
        let (block, behind) = rest.split_at_mut(len);
        block[len - 4..].copy_from_slice(&word);
        rest = behind;
    }
    mended
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
    // The packet's bytes lie behind its header: 8 bytes in mscap, 16 in pcap, 24 in snoop, 28 in pcapng, and in
    // ERF 18 with 8 for each extension.
    let record = &bytes[offset as usize..];
    let stored = |head: usize, data: &[u8]| record.get(head..head + data.len()) == Some(data);
    let made = |head: usize| {
        let (header, payload) = data.split_at_checked(ETHERNET_HEADER).unwrap_or_default();
        header.starts_with(&[0; 12]) && HEADERS.iter().any(|more| stored(head + more, payload))
    };
    let mut heads = [8, 16, 24, 28].into_iter().chain((18..record.len()).step_by(8));
    assert!(heads.any(|head| stored(head, data) || made(head)));
    offset + 8 + data.len().saturating_sub(ETHERNET_HEADER) as u64
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
