//! Link types: the same packet is the same, whichever header its capture has put before it.

use crate::common::{Bytes, NANOS, ORDERS, Owned, drain};
use capture::{ByteOrder, Device, Error, InterfaceChoice, LinkType};
use proptest::prelude::*;
use units::Nanos;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

fn sll(arphrd: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let head = Bytes::new(ByteOrder::Big).u16(0).u16(arphrd).u16(6).raw(&[2; 8]).u16(protocol);
    head.raw(payload).bytes
}

fn sll2(arphrd: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let head = Bytes::new(ByteOrder::Big).u16(protocol).u16(0).u32(3).u16(arphrd);
    head.raw(&[4, 6]).raw(&[2; 8]).raw(payload).bytes
}

fn loopback(order: ByteOrder, family: u32, payload: &[u8]) -> Vec<u8> {
    Bytes::new(order).u32(family).raw(payload).bytes
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    Bytes::new(ByteOrder::Big).raw(&[0; 12]).u16(ethertype).raw(payload).bytes
}

/// The one packet of a capture of a link type.
fn frame(link: u32, data: &[u8]) -> Owned {
    let len = data.len() as u32;
    let mut packets =
        Bytes::new(ByteOrder::Little).pcap(NANOS, link).record(1, 0, len, data).read();
    assert_eq!(packets.len(), 1);
    packets.remove(0)
}

fn ethertype(link: u32, data: &[u8]) -> u16 {
    let frame = frame(link, data).data;
    assert_eq!(frame[..12], [0; 12]);
    u16::from_be_bytes([frame[12], frame[13]])
}

/// The ways in which a packet of a network layer can be captured: link type and bytes.
fn ways(ethertype: u16, payload: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut ways: Vec<_> = [1, 512, 772, 0xfffe]
        .into_iter()
        .flat_map(|arphrd| {
            [(113, sll(arphrd, ethertype, payload)), (276, sll2(arphrd, ethertype, payload))]
        })
        .collect();
    let families: &[u32] = match ethertype {
        IPV4 => &[2],
        IPV6 => &[24, 28, 30],
        _ => return ways,
    };
    for order in ORDERS {
        let both = |family| [0, 108].map(|link| (link, loopback(order, family, payload)));
        ways.extend(families.iter().copied().flat_map(both));
    }
    let raw = [12, 14, 101, if ethertype == IPV4 { 228 } else { 229 }];
    ways.extend(raw.map(|link| (link, payload.into())));
    ways
}

fn network_packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let kinds = prop::sample::select(vec![IPV4, IPV6, 0x8100, 0x0806, 0x8847]);
    (kinds, prop::collection::vec(any::<u8>(), 1..120)).prop_map(|(ethertype, mut payload)| {
        match ethertype {
            IPV4 => payload[0] = 0x40 | payload[0] & 0xf,
            IPV6 => payload[0] = 0x60 | payload[0] & 0xf,
            _ => {}
        }
        (ethertype, payload)
    })
}

proptest! {
    /// One pcapng that holds the packet once for each link type: side by side, all are the same.
    #[test]
    fn a_packet_is_the_same_by_every_link_type(
        (ethertype, payload) in network_packet(),
        captured in any::<prop::sample::Index>(),
        fcs in prop::sample::select(vec![0u8, 4]),
        order in prop::sample::select(ORDERS.to_vec()),
    ) {
        // So much of the packet behind its header was captured.
        let most = payload.len() + usize::from(fcs);
        let captured = 1 + captured.index(most);
        let mut capture = Bytes::new(order).section();
        let ways = ways(ethertype, &payload);
        for (link, _) in &ways {
            capture = capture.interface(*link as u16, |options| options.option(13, &[fcs]));
        }
        for (at, (_, data)) in ways.iter().enumerate() {
            let header = data.len() - payload.len();
            let wire = [&data[..], &[0xfc; 4][..fcs.into()]].concat();
            let (len, caught) = (wire.len() as u32, &wire[..header + captured]);
            capture = capture.block(6, |body| {
                body.words(&[at as u32, 0, 7, caught.len() as u32, len]).raw(caught)
            });
        }
        let payload_caught = &payload[..captured.min(payload.len())];
        let same = Owned {
            ts: Nanos(7_000),
            orig_len: 14 + payload.len() as u32,
            data: ethernet(ethertype, payload_caught),
        };
        prop_assert_eq!(capture.read(), vec![same; ways.len()]);
    }

    /// Whatever the header says, nothing but a packet that is known to be IP looks like it.
    #[test]
    fn only_ip_looks_like_ip(arphrd in any::<u16>(), protocol in any::<u16>(), family in any::<u32>()) {
        let payload = [0x45; 40];
        let carries = [1, 6, 32, 512, 519, 768, 769, 772, 776, 778, 823, 0xfffe].contains(&arphrd);
        let expected = if carries { protocol } else { 0 };
        prop_assert_eq!(ethertype(113, &sll(arphrd, protocol, &payload)), expected);
        prop_assert_eq!(ethertype(276, &sll2(arphrd, protocol, &payload)), expected);
        for order in ORDERS {
            let found = ethertype(0, &loopback(order, family, &payload));
            let known = [2, 24, 28, 30].iter().any(|known| [family, family.swap_bytes()].contains(known));
            prop_assert_eq!(found != 0, known);
        }
    }
}

#[test]
fn what_is_no_ethertype_stays_none() {
    let payload = [0x45; 40];
    // 802.2 and Novell's 802.3, as the kernel numbers them; Netlink, radiotap and CAN.
    for (arphrd, protocol) in [(1, 4), (1, 1), (824, IPV4), (803, IPV4), (280, 0x000c)] {
        assert!(ethertype(113, &sll(arphrd, protocol, &payload)) < 0x0600);
        assert!(ethertype(276, &sll2(arphrd, protocol, &payload)) < 0x0600);
    }
    assert_eq!(ethertype(101, &[0x55; 20]), 0);
    assert_eq!(ethertype(108, &loopback(ByteOrder::Big, 7, &payload)), 0);
}

#[test]
fn a_packet_that_was_cut_in_its_header_is_a_frame_of_no_bytes() {
    for (link, data, orig_len) in [
        (113, sll(1, IPV4, &[0x45; 60]), 74),
        (276, sll2(1, IPV4, &[0x45; 60]), 74),
        (0, loopback(ByteOrder::Little, 2, &[0x45; 60]), 74),
    ] {
        let header = data.len() - 60;
        for captured in 0..header {
            let capture = Bytes::new(ByteOrder::Little).pcap(NANOS, link);
            let packets = capture.record(1, 0, data.len() as u32, &data[..captured]).read();
            assert_eq!((packets[0].orig_len, packets[0].data.len()), (orig_len, 0));
        }
    }
    let none = |link| Bytes::new(ByteOrder::Little).pcap(NANOS, link).record(1, 0, 40, &[]).read();
    assert_eq!((none(101)[0].orig_len, none(101)[0].data.len()), (54, 0));
    assert_eq!((none(228)[0].orig_len, none(228)[0].data.len()), (54, 14));
}

#[test]
fn lengths_that_can_not_be_are_refused() {
    let error = |link: u32, captured: u32, len: u32| {
        let capture = Bytes::new(ByteOrder::Little).pcap(NANOS, link);
        let error = capture.words(&[1, 0, captured, len]).raw(&[0; 64]).error();
        assert!(matches!(&error, Error::Corrupt { place, .. } if place.offset == 24), "{error}");
        error.to_string()
    };
    for (link, least) in [(113, 16), (276, 20), (0, 4), (108, 4), (101, 1), (228, 1)] {
        let text = error(link, 0, least - 1);
        assert!(text.contains(&format!("got {}, expected at least {least}", least - 1)), "{text}");
    }
    // As a frame it must be a packet that is believed still, and of a length of 32 bits.
    let text = error(101, 262_144, 300_000);
    assert!(text.contains("captured length: got 262144, expected at most 262130"), "{text}");
    let text = error(0, 4, u32::MAX);
    assert!(text.contains("length of the packet: got 4294967295, expected at most"), "{text}");
    let most = [0x45; 262_130];
    let longest = Bytes::new(ByteOrder::Little).pcap(NANOS, 101).record(1, 0, u32::MAX - 14, &most);
    let packets = longest.read();
    assert_eq!((packets[0].orig_len, packets[0].data.len()), (u32::MAX, 262_144));
}

#[test]
fn a_frame_holds_nothing_of_the_one_before() {
    let long = sll(1, IPV4, &[0x45; 60]);
    let short = sll(1, IPV6, &[0x60; 2]);
    let capture = Bytes::new(ByteOrder::Big).pcap(NANOS, 113);
    let packets = capture
        .record(1, 0, 76, &long)
        .record(2, 0, 18, &short)
        .record(3, 0, 76, &long[..9])
        .record(4, 0, 76, &long)
        .read();
    assert_eq!(packets[1].data, ethernet(IPV6, &[0x60; 2]));
    assert_eq!(packets[2].data, []);
    assert_eq!(packets[3].data, ethernet(IPV4, &[0x45; 60]));
}

#[test]
fn packets_of_one_device_are_read_alone() {
    let on = |device: u32| {
        let mut packet = sll2(1, IPV4, &[0x45; 60]);
        packet[4..8].copy_from_slice(&device.to_be_bytes());
        packet
    };
    let mut capture = Bytes::new(ByteOrder::Little).pcap(NANOS, 276);
    for (second, device) in [(1, 2), (2, 7), (3, 2)] {
        capture = capture.record(second, 0, 80, &on(device));
    }
    let seconds = |choice: InterfaceChoice| {
        let mut reader = capture.choose(choice).expect("a capture");
        let (packets, error) = drain(&mut reader);
        assert!(error.is_none());
        let seconds: Vec<_> = packets.iter().map(|packet| packet.ts.0 / 1_000_000_000).collect();
        (seconds, reader.devices())
    };
    assert_eq!(seconds(InterfaceChoice::All), (vec![1, 2, 3], vec![Device(2), Device(7)]));
    assert_eq!(seconds(InterfaceChoice::Name("if2".into())), (vec![1, 3], vec![]));
    assert_eq!(seconds(InterfaceChoice::Name("if9".into())), (vec![], vec![]));
    assert!(capture.choose(InterfaceChoice::Name("eth0".into())).is_err());
}

#[test]
fn offsets_and_link_types_are_those_of_the_file() {
    let payload = [0x45; 30];
    let capture = Bytes::new(ByteOrder::Little)
        .section()
        .interface(276, |none| none)
        .interface(1, |none| none)
        .enhanced(0, 1, &sll2(1, IPV4, &payload))
        .enhanced(1, 2, &ethernet(IPV4, &payload));
    let mut reader = capture.open().expect("a capture");
    assert_eq!(reader.info().link_types, [LinkType::ETHERNET, LinkType(276)]);
    let mut offsets = vec![];
    while let Some(packet) = reader.next().expect("packets") {
        assert_eq!(packet.data, ethernet(IPV4, &payload));
        offsets.push(packet.offset);
    }
    assert_eq!(offsets, [68, 68 + 84]);
    assert_eq!(drain(&mut reader).0, []);
}
