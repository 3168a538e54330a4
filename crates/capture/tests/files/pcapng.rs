//! pcapng captures that other programs write, and what is refused.

use crate::common::{Bytes, drain};
use capture::{ByteOrder, Error, Format, LinkType, Resolution};
use units::Nanos;

const TSRESOL: u16 = 9;
const TSOFFSET: u16 = 14;
const FCSLEN: u16 = 13;

fn section() -> Bytes {
    Bytes::new(ByteOrder::Little).section()
}

/// One interface with one option.
fn with(code: u16, value: &[u8]) -> Bytes {
    section().interface(1, |options| options.option(code, value).option(0, &[]))
}

fn times(capture: Bytes) -> Vec<u64> {
    capture.read().into_iter().map(|packet| packet.ts.0).collect()
}

#[test]
fn the_default_unit_is_a_microsecond() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let capture =
            Bytes::new(order).section().interface(1, |none| none).enhanced(0, 1 << 40, &[1, 2, 3]);
        let info = capture.clone().open().expect("a capture").info();
        assert_eq!((info.format, info.byte_order), (Format::PcapNg, order));
        assert_eq!(info.resolution, Some(Resolution::MICRO));
        let packets = capture.read();
        assert_eq!(packets[0].ts, Nanos((1 << 40) * 1_000));
        assert_eq!((packets[0].orig_len, &packets[0].data[..]), (3, &[1, 2, 3][..]));
    }
}

#[test]
fn every_interface_has_its_own_clock() {
    let capture = with(TSRESOL, &[9])
        .interface(1, |options| options.option(TSRESOL, &[0x80 | 20]))
        .interface(1, |options| {
            options
                .option(2, b"eth0")
                .option(TSOFFSET, &(-3i64).to_le_bytes())
                .option(TSRESOL, &[3])
        })
        .enhanced(0, 5, &[0])
        .enhanced(1, 1 << 21, &[0])
        .enhanced(2, 3_001, &[0]);
    let reader = capture.clone().open().expect("a capture");
    let coarsest = reader.info().resolution.expect("interfaces");
    assert_eq!((coarsest.base(), coarsest.exponent()), (10, 3));
    assert_eq!(coarsest.units_per_second(), 1_000);
    assert_eq!(times(capture), [5, 2_000_000_000, 1_000_000]);
}

#[test]
fn options_end_where_they_say() {
    let capture = section()
        .interface(1, |options| options.option(TSRESOL, &[9]).option(0, &[]).option(TSRESOL, &[0]));
    assert_eq!(times(capture.enhanced(0, 7, &[0])), [7]);
}

#[test]
fn every_section_has_its_own_order_and_interfaces() {
    let first = with(TSRESOL, &[9]).enhanced(0, 1, &[0]);
    let second = Bytes::new(ByteOrder::Big).section().interface(1, |none| none);
    let second = second.enhanced(0, 2, &[0]);
    let both = first.raw(&second.bytes);
    assert_eq!(times(both.clone()), [1, 2_000]);
    let third = both.raw(&section().enhanced(0, 3, &[0]).bytes);
    assert!(third.error().to_string().contains("interface: got 0, expected less than 0"));
}

#[test]
fn the_obsolete_packet_block_is_read() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let capture = Bytes::new(order)
            .section()
            .interface(1, |options| options.option(TSRESOL, &[0]))
            .interface(1, |options| options.option(TSRESOL, &[9]))
            .block(2, |body| body.u16(1).u16(77).words(&[0, 11, 2, 60]).raw(&[8, 9]));
        let packets = capture.read();
        assert_eq!((packets[0].ts, packets[0].orig_len), (Nanos(11), 60));
        assert_eq!(packets[0].data, [8, 9]);
    }
}

#[test]
fn other_blocks_and_options_behind_packets_are_skipped() {
    let capture = with(TSRESOL, &[9])
        .block(0x0000_000a, |secrets| secrets.raw(&[1; 999]))
        .block(6, |body| body.words(&[0, 0, 1, 2, 2]).raw(&[7, 7, 0, 0]).option(1, b"a comment"))
        .block(0xffff_fff0, |empty| empty)
        .enhanced(0, 2, &[1])
        .block(5, |statistics| statistics.words(&[0; 3]));
    assert_eq!(times(capture), [1, 2]);
}

#[test]
fn only_interfaces_with_packets_must_be_of_a_link_type_that_is_read() {
    let capture = with(TSRESOL, &[9]).interface(127, |none| none).enhanced(0, 1, &[0]);
    assert_eq!(times(capture.clone()), [1]);
    let error = capture.enhanced(1, 1, &[0]).error();
    assert!(matches!(error, Error::LinkType { got: LinkType(127), .. }), "{error}");
}

#[test]
fn a_frame_check_sequence_is_taken_off() {
    for (value, taken) in [(0, 0), (2, 2), (4, 4), (16, 2), (32, 4)] {
        let packets = with(FCSLEN, &[value]).enhanced(0, 1, &[9; 60]).read();
        assert_eq!((packets[0].orig_len, packets[0].data.len()), (60 - taken, 60 - taken as usize));
    }
    let error = with(FCSLEN, &[3]).error().to_string();
    assert!(error.contains("if_fcslen: got 3, expected 0, 2 or 4 bytes, or 16 or 32"), "{error}");
    let error = with(FCSLEN, &[4, 0]).error().to_string();
    assert!(error.contains("length of if_fcslen: got 2, expected 1"), "{error}");
}

#[test]
fn a_packet_without_a_time_is_refused_with_advice() {
    let error =
        section().interface(1, |none| none).block(3, |body| body.u32(4).raw(&[0; 4])).error();
    assert!(matches!(&error, Error::Untimed { place } if place.offset == 48), "{error}");
    assert!(error.hint().expect("advice").contains("enhanced packet blocks"));
    // Not even if its bytes could be read as the head of an enhanced one.
    let simple = |body: Bytes| body.words(&[0, 0, 0, 4, 4, 0]);
    let error = section().interface(1, |none| none).block(3, simple).error();
    assert!(matches!(&error, Error::Untimed { .. }), "{error}");
}

#[test]
fn absurd_clocks_are_refused() {
    for byte in [20, 0x7f, 0xc0, 0xff] {
        let error = with(TSRESOL, &[byte]).error();
        assert!(matches!(&error, Error::Resolution { got, .. } if *got == byte), "{error}");
    }
    assert!(with(TSRESOL, &[9, 0]).error().to_string().contains("length of if_tsresol: got 2"));
    assert!(with(TSOFFSET, &[9]).error().to_string().contains("length of if_tsoffset: got 1"));
}

#[test]
fn times_that_do_not_fit_are_refused() {
    let error = with(TSRESOL, &[0]).enhanced(0, 18_446_744_074, &[0]).error();
    assert!(
        error.to_string().contains("time of the packet: got 18446744074 x 1 s +0 s"),
        "{error}"
    );
    assert_eq!(times(with(TSRESOL, &[0]).enhanced(0, 18_446_744_073, &[0])).len(), 1);
    let before = with(TSOFFSET, &(-1i64).to_le_bytes());
    assert!(matches!(before.clone().enhanced(0, 999_999, &[0]).error(), Error::Time { .. }));
    assert_eq!(times(before.enhanced(0, 1_000_001, &[0])), [1_000]);
}

#[test]
fn corrupt_blocks_are_named_with_their_place() {
    let word = |value: u32| {
        move |mut bytes: Bytes, at: usize| {
            bytes.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            bytes
        }
    };
    // A section of 28 bytes, an interface of 20, a packet block of 36.
    let good = || section().interface(1, |none| none).enhanced(0, 1, &[1, 2, 3, 4]);
    for (at, value, offset, text) in [
        (8, 0x1a2b_3c4e, 0, "byte-order magic"),
        (12, 2, 0, "version of pcapng"),
        (52, 37, 48, "block length"),
        (52, 8, 48, "block length"),
        (52, 0x0100_0004, 48, "block length"),
        (52, 32, 48, "block length at its end"),
        (80, 40, 48, "block length at its end"),
        (56, 1, 48, "interface"),
        (68, 5, 48, "captured length"),
        (72, 0, 48, "length of the packet"),
    ] {
        let error = word(value)(good(), at).error();
        match &error {
            Error::Corrupt { place, what, .. } => assert_eq!((place.offset, *what), (offset, text)),
            other => panic!("{other}"),
        }
    }
    let claims_more = word(8)(word(8)(good(), 68), 72).error();
    assert!(
        claims_more.to_string().contains("captured length: got 8, expected at most the 4 bytes")
    );
}

#[test]
fn blocks_too_short_for_their_kind_are_refused() {
    for (kind, what) in [
        (0x0a0d_0d0a, "length of a section header"),
        (1, "length of an interface description"),
        (2, "length of a packet block"),
        (6, "length of a packet block"),
    ] {
        let error = section().block(kind, |body| body.u32(0x1a2b_3c4d)).error();
        assert!(error.to_string().contains(what), "{error}");
    }
    let long_option = section().interface(1, |options| options.u16(2).u16(99).u32(0)).error();
    assert!(long_option.to_string().contains("length of an option: got 99, expected at most 4"));
}

#[test]
fn a_section_without_interfaces_has_no_resolution() {
    let mut reader = section().open().expect("a capture");
    assert_eq!(reader.info().resolution, None);
    assert_eq!(drain(&mut reader).0, []);
}

#[test]
fn a_cut_off_block_ends_the_capture_with_a_note() {
    let mut capture = with(TSRESOL, &[9]).enhanced(0, 1, &[0; 60]).enhanced(0, 2, &[0; 60]);
    let len = capture.bytes.len();
    capture.bytes.truncate(len - 1);
    let mut reader = capture.open().expect("a capture");
    assert_eq!(drain(&mut reader).0.len(), 1);
    assert_eq!(reader.cut().expect("a cut").offset, len as u64 - 92);
    let error = Bytes { bytes: section().bytes[..27].into(), ..section() }.error();
    assert!(matches!(error, Error::HeaderCut { got: 27, expected: 28, .. }), "{error}");
}
