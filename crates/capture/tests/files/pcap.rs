//! pcap captures that other programs write, and what is refused.

use crate::common::{Bytes, NANOS, ORDERS, drain};
use capture::{ByteOrder, Error, Format, LinkType, Reader, Resolution, Trailer, TrailerKind};
use units::Nanos;

const MICROS: u32 = 0xa1b2_c3d4;

fn little(magic: u32) -> Bytes {
    Bytes::new(ByteOrder::Little).pcap(magic, 1)
}

fn little_of(link: u32) -> Bytes {
    Bytes::new(ByteOrder::Little).pcap(NANOS, link)
}

#[test]
fn both_units_are_read_in_both_orders() {
    for order in ORDERS {
        for (magic, unit_ns, resolution) in
            [(MICROS, 1_000, Resolution::MICRO), (NANOS, 1, Resolution::NANO)]
        {
            let capture = Bytes::new(order)
                .pcap(magic, 1)
                .record(7, 8, 60, &[9; 20])
                .record(5, 6, 4, &[1; 4]);
            let info = capture.clone().open().expect("a capture").info();
            assert_eq!((info.format, info.byte_order), (Format::Pcap, order));
            assert_eq!(info.resolution, Some(resolution));
            let packets = capture.read();
            assert_eq!(packets[0].ts, Nanos(7_000_000_000 + 8 * unit_ns));
            assert_eq!((packets[0].orig_len, &packets[0].data[..]), (60, &[9; 20][..]));
            // Times may go back: what that means is not the reader's to say.
            assert_eq!(packets[1].ts, Nanos(5_000_000_000 + 6 * unit_ns));
            assert_eq!(packets.len(), 2);
        }
    }
}

#[test]
fn the_last_second_of_pcap_is_exact() {
    let packets = little(NANOS).record(u32::MAX, 999_999_999, 1, &[]).read();
    assert_eq!(packets[0].ts, Nanos(4_294_967_295_999_999_999));
    let packets = little(MICROS).record(u32::MAX, 999_999, 1, &[]).read();
    assert_eq!(packets[0].ts, Nanos(4_294_967_295_999_999_000));
}

#[test]
fn offsets_count_from_the_start_of_the_file() {
    let mut reader =
        little(NANOS).record(0, 0, 9, &[0; 9]).record(0, 0, 1, &[0]).open().expect("it");
    let mut offsets = vec![];
    while let Some(packet) = reader.next().expect("packets") {
        offsets.push(packet.offset);
    }
    assert_eq!(offsets, [24, 49]);
    assert_eq!((reader.consumed_bytes(), reader.total_bytes()), (66, Some(66)));
}

#[test]
fn a_frame_check_sequence_is_taken_off() {
    for order in ORDERS {
        // Two words of 16 bits; the bit that says so; Ethernet.
        let capture = Bytes::new(order)
            .pcap(NANOS, 0x2400_0001)
            .record(1, 0, 64, &[7; 64])
            .record(2, 0, 64, &[7; 62])
            .record(3, 0, 64, &[7; 50])
            .record(4, 0, 5, &[7; 5]);
        let lengths = capture.clone().read().into_iter().map(|packet| {
            assert!(packet.data.iter().all(|byte| *byte == 7));
            (packet.orig_len, packet.data.len())
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [(60, 60), (60, 60), (60, 50), (1, 1)]);
        let error = capture.record(5, 0, 4, &[7; 4]).error().to_string();
        assert!(error.ends_with("length of the packet: got 4, expected at least 5"), "{error}");
    }
}

#[test]
fn the_length_of_a_check_sequence_counts_only_if_it_is_said_to() {
    let read = |link: u32| little_of(link).record(1, 0, 9, &[3; 9]).read()[0].orig_len;
    assert_eq!((read(0x2000_0001), read(0x0400_0001), read(0x1400_0001)), (9, 9, 7));
    let error = little_of(0x4400_0001).error().to_string();
    let text = "length of the frame check sequence: got 4 words of 16 bits, expected 0, 1 or 2";
    assert!(error.contains(text), "{error}");
}

#[test]
fn a_capture_without_packets_is_one() {
    let mut reader = little(NANOS).open().expect("a capture");
    assert_eq!(drain(&mut reader).0, []);
    assert_eq!(reader.cut(), None);
}

#[test]
fn what_is_no_capture_is_refused() {
    let error = |bytes: &[u8]| match Reader::from_bytes("x", bytes.into()) {
        Ok(_) => panic!("{bytes:?} is no capture"),
        Err(error) => error,
    };
    assert!(matches!(error(b""), Error::Empty { .. }));
    assert!(matches!(error(b"ab"), Error::NotACapture { got, .. } if got == b"ab"));
    assert!(matches!(error(b"hello"), Error::NotACapture { got, .. } if got == b"hell"));
    let cut = error(&little(NANOS).bytes[..23]);
    assert!(matches!(cut, Error::HeaderCut { got: 23, expected: 24, .. }), "{cut}");
}

#[test]
fn other_formats_are_refused_by_name() {
    for (head, name) in [
        (&0xa1b2_cd34u32.to_le_bytes(), "Kuznetsov's modified pcap"),
        (&0xa1b2_cd34u32.to_be_bytes(), "Kuznetsov's modified pcap"),
        (&[0xac, 1, 0, 0x1c], "IXIA's pcap"),
        (b"GMBU", "Microsoft Network Monitor"),
        (&[2, 0x21, 0x4c, 0x18], "LZ4's legacy format"),
        (b"PK\x03\x04", "a zip archive"),
    ] {
        let bytes = [head, &[0; 60][..]].concat();
        let error = Reader::from_bytes("x", bytes).err().expect("an error");
        let text =
            format!("x: byte 0: format: got {name}, expected pcap, pcapng, ERF, snoop or mscap");
        assert_eq!(error.to_string(), text);
        assert!(error.hint().is_some());
    }
}

#[test]
fn another_link_type_is_refused_by_name() {
    let error = little_of(127).error();
    let text = "made.pcap: byte 0: link type: got 127 (IEEE 802.11 radiotap), expected 1 \
                (Ethernet), Linux cooked capture, raw IP or BSD loopback";
    assert_eq!(error.to_string(), text);
    assert!(error.hint().is_some());
    assert!(little_of(197).error().to_string().contains("got 197 (ERF)"));
    assert!(little_of(147).error().to_string().contains("got 147 (link type 147)"));
}

#[test]
fn a_capture_says_how_much_of_a_packet_it_holds() {
    let info = little(NANOS).open().expect("a capture").info();
    assert_eq!((info.snap_length, info.dropped_packets), (Some(65_535), None));
    assert_eq!((info.link_types, info.interface), (vec![LinkType::ETHERNET], None));
    let unlimited = Bytes::new(ByteOrder::Little).u32(NANOS).u16(2).u16(4).words(&[0, 0, 0, 1]);
    assert_eq!(unlimited.open().expect("a capture").info().snap_length, None);
}

#[test]
fn another_version_is_refused() {
    let old = Bytes::new(ByteOrder::Little).u32(MICROS).u16(2).u16(3).words(&[0, 0, 65_535, 1]);
    assert!(old.error().to_string().contains("version of pcap: got 2.3, expected 2.4"));
}

#[test]
fn corrupt_records_are_named_with_their_place() {
    let good = || little(MICROS).record(1, 2, 3, &[0; 3]);
    for (record, text) in [
        ([1, 1_000_000, 0, 60], "fraction of a second: got 1000000 x 1 us, expected less than"),
        ([1, 0, 262_145, 300_000], "captured length: got 262145, expected at most 262144"),
        ([1, 0, 61, 60], "captured length: got 61, expected at most 60"),
        ([0, 0, 0, 0], "length of the packet: got 0, expected at least 1"),
    ] {
        let error = good().words(&record).raw(&[0; 300]).error();
        let text = format!("made.pcap: byte 43: {text}");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
}

#[test]
fn an_error_comes_again() {
    let mut reader =
        little(NANOS).record(1, 0, 4, &[0; 4]).words(&[0; 9]).open().expect("a capture");
    assert!(reader.next().expect("a packet").is_some());
    assert!(reader.next().is_err());
    assert!(reader.next().is_err());
}

#[test]
fn a_cut_off_record_ends_the_capture_with_a_note() {
    let mut capture = little(NANOS).record(1, 0, 60, &[0; 60]).record(2, 0, 60, &[0; 60]);
    capture.bytes.truncate(24 + 76 + 40);
    let mut reader = capture.open().expect("a capture");
    assert_eq!(drain(&mut reader).0.len(), 1);
    let cut = reader.cut().expect("a cut").clone();
    assert_eq!((cut.offset, cut.packets), (100, 1));
    assert_eq!(cut.reason, "got 40 bytes of a record, expected at least 76");
    assert!(matches!(reader.next(), Ok(None)));
    assert_eq!(reader.cut(), Some(&cut));
}

#[test]
fn a_frame_of_the_first_moment_has_the_time_behind_it() {
    let frame = [9; 20];
    let stamped: Vec<u8> = [&frame[..], &[0, 0, 0, 1], &[0, 0, 0, 5]].concat();
    let reader = little(MICROS).record(0, 0, 28, &stamped).open().expect("a capture");
    let mut reader = reader.stamped_by(Trailer { kind: TrailerKind::Vss(0), fcs: false });
    assert_eq!(reader.next_quick(), None, "it has to be looked for");
    let read = reader.next().expect("a capture").expect("a packet");
    assert_eq!((read.ts, read.data), (Nanos(1_000_000_005), &frame[..]));
}
