//! pcap captures that other programs write, and what is refused.

mod common;

use capture::{ByteOrder, Error, Format, Reader, Resolution};
use common::{Bytes, drain};
use units::Nanos;

const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;
const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

fn little(magic: u32) -> Bytes {
    Bytes::new(ByteOrder::Little).pcap(magic, 1)
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
fn a_frame_check_sequence_in_the_header_is_not_part_of_the_link_type() {
    let capture = Bytes::new(ByteOrder::Big).pcap(NANOS, 0x4400_0001).record(1, 0, 1, &[3]);
    assert_eq!(capture.read().len(), 1);
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
    assert!(error(b"BZh91AY&SY").hint().is_some());
    assert!(error(&0xa1b2_cd34u32.to_le_bytes()).hint().is_some());
    let cut = error(&little(NANOS).bytes[..23]);
    assert!(matches!(cut, Error::HeaderCut { got: 23, expected: 24, .. }), "{cut}");
}

#[test]
fn another_link_type_is_refused_by_name() {
    let error = Bytes::new(ByteOrder::Little).pcap(NANOS, 113).error();
    let text =
        "made.pcap: byte 0: link type: got 113 (Linux cooked capture), expected 1 (Ethernet)";
    assert_eq!(error.to_string(), text);
    assert!(error.hint().is_some());
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
