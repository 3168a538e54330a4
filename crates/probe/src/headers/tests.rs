use super::*;

fn v4() -> Headers {
    Headers {
        to_mac: [2, 0, 0, 0, 0, 1],
        from_mac: [2, 0, 0, 0, 0, 2],
        vlan: None,
        outer: None,
        addresses: Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)),
        protocol: Protocol::Udp,
        from_port: 1000,
        to_port: 53,
        ttl: 64,
    }
}

fn v6() -> Headers {
    let to = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    Headers { addresses: Addresses::V6(Ipv6Addr::LOCALHOST, to), ..v4() }
}

fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; headers.payload_offset()];
    frame.extend_from_slice(payload);
    headers.write(&mut frame);
    frame
}

#[test]
fn an_ipv4_frame_is_this_to_the_byte() {
    let expected = [
        0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x08, 0x00, // Ethernet
        0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0x03, 0xe8, 0, 53, 0, 12, 0xe3, 0xb0, // UDP
        1, 2, 3, 4,
    ];
    assert_eq!(frame(&v4(), &[1, 2, 3, 4]), expected);
}

#[test]
fn checksums_of_odd_and_even_payloads_sum_to_all_ones() {
    for headers in [v4(), v6(), Headers { vlan: Some(7), ..v4() }] {
        for len in 0..64u8 {
            let frame = frame(&headers, &(0..len).collect::<Vec<_>>());
            let (network, udp) = frame[headers.network_offset()..].split_at(headers.network_len());
            let pseudo = sum(&network[headers.addresses.offset()..]) + 17 + udp.len() as u64;
            assert_eq!(checksum(pseudo + sum(udp)), 0, "{headers:?} {len}");
            if network[0] == 0x45 {
                assert_eq!(checksum(sum(network)), 0);
            }
        }
    }
}

#[test]
fn a_checksum_that_would_be_0_is_all_ones() {
    let zero = frame(&v4(), &[0, 0]);
    let complement = [zero[40], zero[41]];
    let frame = frame(&v4(), &complement);
    assert_eq!(frame[40..42], [0xff, 0xff]);
}

#[test]
fn the_payload_is_found_where_it_was_written() {
    for headers in [v4(), v6(), Headers { vlan: Some(4095), ..v6() }] {
        let frame = frame(&headers, b"payload");
        assert_eq!(transport_payload(&frame), Payload::At(headers.payload_offset()));
    }
}

#[test]
fn two_tags_are_stepped_over_and_a_third_is_not() {
    let mut bytes = frame(&v4(), &[]);
    for (tags, ethertype) in [(1, IPV4), (2, IPV4), (3, VLAN[0])] {
        bytes.splice(12..12, [if tags == 1 { 0x81 } else { 0x88 }, 0, 0, 5]);
        if tags > 1 {
            bytes[13] = 0xa8;
        }
        let offset = 14 + 4 * tags.min(2);
        assert_eq!(network(&bytes), Some(Network { ethertype, offset }), "{tags}");
    }
    assert_eq!(transport_payload(&bytes), Payload::Absent);
}

#[test]
fn options_move_the_payload_and_fragments_have_none() {
    let mut options = frame(&v4(), &[]);
    options[14] = 0x47;
    assert_eq!(transport_payload(&options), Payload::At(50));
    for (at, byte) in [(20, 0x01), (21, 0x01), (23, 47), (14, 0x44), (14, 0x65), (12, 0x09)] {
        let mut other = frame(&v4(), &[]);
        other[at] = byte;
        assert_eq!(transport_payload(&other), Payload::Absent, "byte {at} = {byte:#x}");
    }
    let mut first_fragment = frame(&v4(), &[]);
    first_fragment[20] = 0x20;
    assert_eq!(transport_payload(&first_fragment), Payload::At(42));
}

#[test]
fn a_cut_frame_says_what_it_needs() {
    let (v4, v6) = (frame(&v4(), &[]), frame(&v6(), &[]));
    assert_eq!(transport_payload(&v4[..13]), Payload::Cut { need: 14 });
    assert_eq!(transport_payload(&v4[..33]), Payload::Cut { need: 34 });
    assert_eq!(transport_payload(&v4[..34]), Payload::At(42));
    assert_eq!(transport_payload(&v6[..53]), Payload::Cut { need: 54 });
    assert_eq!(transport_payload(&[]), Payload::Cut { need: 14 });
}

#[test]
fn a_hop_counts_down_and_keeps_the_checksum_right() {
    for (headers, at) in [(v4(), 22), (v6(), 21), (Headers { vlan: Some(1), ..v4() }, 26)] {
        let mut hop = frame(&headers, b"x");
        decrement_ttl(&mut hop);
        assert_eq!(hop[at], 63);
        assert_eq!(hop, frame(&Headers { ttl: 63, ..headers }, b"x"));
    }
    let mut dead = frame(&Headers { ttl: 0, ..v4() }, b"x");
    let before = dead.clone();
    decrement_ttl(&mut dead);
    decrement_ttl(&mut dead[..20]);
    assert_eq!(dead, before);
}

#[test]
fn every_protocol_has_its_checksum_and_its_payload() {
    for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
        for base in [v4(), v6(), Headers { vlan: Some(7), ..v4() }] {
            let headers = Headers { protocol, ..base };
            for len in 0..40u8 {
                let frame = frame(&headers, &(0..len).collect::<Vec<_>>());
                assert_eq!(transport_payload(&frame), Payload::At(headers.payload_offset()));
                let (network, carried) = frame.split_at(headers.transport_offset());
                let network = &network[headers.network_offset()..];
                let (number, is_v4) = match headers.addresses {
                    Addresses::V4(..) => (network[9], true),
                    Addresses::V6(..) => (network[6], false),
                };
                let pseudo = match (protocol, is_v4) {
                    (Protocol::Icmp, true) => 0,
                    _ => {
                        sum(&network[headers.addresses.offset()..])
                            + u64::from(number)
                            + carried.len() as u64
                    }
                };
                assert_eq!(checksum(pseudo + sum(carried)), 0, "{headers:?} {len}");
            }
        }
    }
}
