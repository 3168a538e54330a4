//! What holds for every capture: it is read as it was written, and no damage makes a reader panic.

use crate::common::{Bytes, Owned, drain, stored, written};
use capture::{ByteOrder, Compression, Format, Reader};
use proptest::prelude::*;
use units::Nanos;

const WRITTEN: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zstd];
const READ: [Compression; 6] = [
    Compression::None,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Xz,
    Compression::Lz4,
    Compression::Bzip2,
];
const PCAP_END_NS: u64 = 4_294_967_295_999_999_999;

fn packet() -> impl Strategy<Value = Owned> {
    let data = prop::collection::vec(any::<u8>(), 0..200);
    (0..=PCAP_END_NS, 1..2_000u32, data).prop_map(|(ts, more, data)| Owned {
        ts: Nanos(ts),
        orig_len: data.len() as u32 + more % 3 * more + u32::from(data.is_empty()),
        data,
    })
}

fn packets() -> impl Strategy<Value = Vec<Owned>> {
    prop::collection::vec(packet(), 0..30)
}

/// The same packets in a capture of another make: big-endian, or with tailing options.
fn foreign(packets: &[Owned], format: Format, order: ByteOrder) -> Vec<u8> {
    let start = match format {
        Format::Pcap => Bytes::new(order).pcap(0xa1b2_3c4d, 1),
        _ => Bytes::new(order).section().interface(1, |options| options.option(9, &[9])),
    };
    let add = |bytes: Bytes, packet: &Owned| match format {
        Format::Pcap => {
            let (seconds, fraction) = (packet.ts.0 / 1_000_000_000, packet.ts.0 % 1_000_000_000);
            bytes.record(seconds as u32, fraction as u32, packet.orig_len, &packet.data)
        }
        _ => bytes.block(6, |body| {
            let (high, low) = ((packet.ts.0 >> 32) as u32, packet.ts.0 as u32);
            let words = [0, high, low, packet.data.len() as u32, packet.orig_len];
            let padding = packet.data.len().next_multiple_of(4) - packet.data.len();
            let body = body.words(&words).raw(&packet.data).raw(&[0; 3][..padding]);
            body.option(1, b"a comment").option(0, &[])
        }),
    };
    packets.iter().fold(start, add).bytes
}

/// Reads what may be damaged: the packets up to where it ends, and whether it says that it ended
/// early.
fn survey(bytes: Vec<u8>) -> (Vec<Owned>, bool) {
    let mut reader = match Reader::from_bytes("damaged", bytes) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!error.to_string().contains("thread died"), "the decompressor panicked");
            return (vec![], true);
        }
    };
    let (packets, error) = drain(&mut reader);
    let died = error.as_ref().is_some_and(|error| error.to_string().contains("thread died"));
    assert!(!died, "the decompressor panicked");
    let warned = error.is_some() || reader.cut().is_some();
    (packets, warned)
}

proptest! {
    #[test]
    fn what_is_written_is_read(packets in packets()) {
        for format in [Format::Pcap, Format::PcapNg] {
            for compression in WRITTEN {
                let bytes = written(&packets, format, compression);
                prop_assert_eq!(survey(bytes), (packets.clone(), false));
            }
            for compression in READ {
                let bytes = stored(&packets, format, compression);
                prop_assert_eq!(survey(bytes), (packets.clone(), false));
            }
        }
    }

    #[test]
    fn what_others_write_is_read(packets in packets()) {
        for format in [Format::Pcap, Format::PcapNg] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let bytes = foreign(&packets, format, order);
                prop_assert_eq!(survey(bytes), (packets.clone(), false));
            }
        }
    }

    #[test]
    fn flipped_bytes_never_panic(
        packets in packets(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=u8::MAX), 1..4),
    ) {
        for format in [Format::Pcap, Format::PcapNg] {
            for compression in READ {
                let mut bytes = stored(&packets, format, compression);
                for (at, flip) in &flips {
                    let at = at.index(bytes.len());
                    bytes[at] ^= flip;
                }
                survey(bytes);
            }
        }
    }

    #[test]
    fn bytes_behind_any_magic_never_panic(
        magic in prop::sample::select(vec![
            &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..],
            &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
            &[0x28, 0xb5, 0x2f, 0xfd],
            &[0x1f, 0x8b, 8, 0],
            &[0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4, 0xe6, 0xd6, 0xb4, 0x46],
            &[0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7],
            b"BZh9\x31\x41\x59\x26\x53\x59",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        survey([magic, &rest].concat());
    }
}

/// At every byte: what is left is a prefix, and a shorter one is not passed off as the whole.
#[test]
fn truncation_at_every_byte_is_noticed() {
    let packets: Vec<_> = (0..6u8)
        .map(|seq| Owned {
            ts: Nanos(u64::from(seq) << 33),
            orig_len: 64,
            data: vec![seq; usize::from(seq) * 7],
        })
        .collect();
    for format in [Format::Pcap, Format::PcapNg] {
        for compression in READ {
            let whole = stored(&packets, format, compression);
            for len in 0..whole.len() {
                let (left, warned) = survey(whole[..len].into());
                assert!(left == packets[..left.len()], "{format} {compression} {len}");
                // A plain capture that ends between two packets can not be told from a whole one.
                let clean = || {
                    let again = stored(&packets[..left.len()], format, compression);
                    compression == Compression::None && again.len() == len
                        || format == Format::PcapNg && len == 28
                };
                assert!(warned || clean(), "{format} {compression} {len}");
            }
            assert_eq!(survey(whole), (packets.clone(), false));
        }
    }
}

/// Every value of every byte of the headers, one at a time.
#[test]
fn every_flip_of_a_small_capture_is_survived() {
    let packets = [Owned { ts: Nanos(1 << 40), orig_len: 60, data: vec![1, 2, 3] }];
    for format in [Format::Pcap, Format::PcapNg] {
        let whole = written(&packets, format, Compression::None);
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut bytes = whole.clone();
                bytes[at] = value;
                assert!(survey(bytes).0.len() <= 1);
            }
        }
    }
}
