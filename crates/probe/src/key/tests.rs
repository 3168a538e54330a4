use super::*;
use crate::headers::{Addresses, Headers, Protocol};
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

const FRAME: MatchOn = MatchOn::Frame;

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
    Headers { addresses: Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST), ..v4() }
}

/// Returns a frame of 100 bytes with a probe payload.
fn frame(headers: &Headers) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..100).collect();
    payload::write(&mut frame[headers.payload_offset()..], 7);
    headers.write(&mut frame);
    frame
}

fn tagged(mut frame: Vec<u8>, tags: usize) -> Vec<u8> {
    for _ in 0..tags {
        frame.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    }
    frame
}

fn key(match_on: &MatchOn, data: &[u8]) -> Keyed {
    Keyer::new(match_on, Tap::Pre, None).key(data, data.len() as u32)
}

fn bytes(match_on: &MatchOn, data: &[u8], orig_len: u32) -> Vec<u8> {
    let mut bytes = vec![0xff; 3];
    Keyer::new(match_on, Tap::Pre, None).bytes(data, orig_len, &mut bytes);
    bytes
}

/// Returns the bytes of the frame that the key does not depend on.
fn ignored(match_on: &MatchOn, frame: &[u8]) -> Vec<usize> {
    let before = key(match_on, frame);
    assert!(matches!(before, Keyed::Key(_)));
    let mut other = frame.to_vec();
    let unmoved = |at: &usize| {
        other[*at] ^= 0x80;
        let same = key(match_on, &other) == before;
        other[*at] ^= 0x80;
        same
    };
    (0..64).filter(unmoved).collect()
}

/// Returns the MAC addresses and these bytes.
fn macs_and(others: &[usize]) -> Vec<usize> {
    (0..12).chain(others.iter().copied()).collect()
}

#[test]
fn a_frame_is_keyed_without_macs_and_checksums() {
    let udp = frame(&v4());
    let mut tcp = udp.clone();
    tcp[23] = headers::TCP;
    let mut icmp = udp.clone();
    icmp[23] = 1;
    for tags in 0..=2 {
        let at =
            |bytes: &[usize]| macs_and(&bytes.iter().map(|b| b + 4 * tags).collect::<Vec<_>>());
        assert_eq!(ignored(&FRAME, &tagged(udp.clone(), tags)), at(&[24, 25, 40, 41]));
        assert_eq!(ignored(&FRAME, &tagged(tcp.clone(), tags)), at(&[24, 25, 50, 51]));
        assert_eq!(ignored(&FRAME, &tagged(icmp.clone(), tags)), at(&[24, 25]));
        assert_eq!(ignored(&MatchOn::L3, &tagged(udp.clone(), tags)), at(&[22, 24, 25, 40, 41]));
        assert_eq!(ignored(&MatchOn::L3, &tagged(tcp.clone(), tags)), at(&[22, 24, 25, 50, 51]));
    }
}

#[test]
fn behind_ipv4_options_only_the_header_checksum_is_masked() {
    let mut options = frame(&v4());
    options[14] = 0x46;
    assert_eq!(ignored(&FRAME, &options), macs_and(&[24, 25]));
    assert_eq!(ignored(&MatchOn::L3, &options), macs_and(&[22, 24, 25]));
}

#[test]
fn ipv6_and_others_keep_all_bytes_but_the_hop_limit() {
    let v6 = frame(&v6());
    let mut other = frame(&v4());
    other[13] = 0x01;
    for tags in 0..=2 {
        assert_eq!(ignored(&FRAME, &tagged(v6.clone(), tags)), macs_and(&[]));
        assert_eq!(ignored(&MatchOn::L3, &tagged(v6.clone(), tags)), macs_and(&[21 + 4 * tags]));
        assert_eq!(ignored(&MatchOn::L3, &tagged(other.clone(), tags)), macs_and(&[]));
    }
    assert_eq!(ignored(&MatchOn::L3, &tagged(v6, 3)), macs_and(&[]));
}

#[test]
fn the_masked_bytes_are_those_of_the_definition() {
    let udp = frame(&v4());
    let mut expected = udp[12..64].to_vec();
    for at in [24, 25, 40, 41] {
        expected[at - 12] = 0;
    }
    assert_eq!(bytes(&FRAME, &udp, 100), expected);
    expected[22 - 12] = 0;
    assert_eq!(bytes(&MatchOn::L3, &udp, 100), expected);
    assert_eq!(bytes(&MatchOn::Probe, &udp, 100), 7u64.to_be_bytes());
    let ranges = "bytes:42+4,0+1".parse().unwrap();
    assert_eq!(bytes(&ranges, &udp, 100), [&payload::MAGIC[..], &udp[..1]].concat());
}

#[test]
fn frames_of_every_length_are_masked_alike() {
    for protocol in [headers::UDP, headers::TCP, 1] {
        for tags in 0..=2 {
            let mut whole = frame(&v4());
            whole[23] = protocol;
            whole[50..].fill(0xff);
            let whole = tagged(whole, tags);
            let longest = bytes(&MatchOn::L3, &whole, 100);
            for len in 34 + 4 * tags..=100 {
                let key = bytes(&MatchOn::L3, &whole[..len], len as u32);
                assert_eq!(key, longest[..len.min(64) - 12], "{protocol} {tags} {len}");
            }
        }
    }
}

#[test]
fn without_a_key_there_are_no_bytes() {
    let ranges = "bytes:98+4".parse().unwrap();
    for match_on in [FRAME, MatchOn::L3, MatchOn::Probe, ranges] {
        assert_eq!(bytes(&match_on, &frame(&v4())[..40], 200), []);
    }
}

#[test]
fn bytes_beyond_the_64th_do_not_matter() {
    let whole = frame(&v4());
    assert_eq!(key(&FRAME, &whole), key(&FRAME, &whole[..64]));
}

#[test]
fn a_short_packet_is_keyed_by_what_it_has_and_its_length() {
    let mut whole = frame(&v4());
    whole[34..].fill(0);
    let mut seen = HashSet::new();
    for len in 34..=64 {
        whole[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        whole[24..26].fill(0);
        let Keyed::Key(key) = key(&FRAME, &whole[..len]) else { panic!("no key at {len}") };
        assert!(seen.insert(key), "{len}");
        assert_eq!(bytes(&FRAME, &whole[..len], len as u32), whole[12..len]);
    }
    assert_eq!(key(&FRAME, &whole[..12]), Keyed::None);
    assert_eq!(key(&FRAME, &[]), Keyed::None);
}

/// Returns a datagram of `payload_len` bytes, its counter in front.
fn datagram(headers: &Headers, counter: u64, payload_len: usize) -> Vec<u8> {
    let mut frame = vec![0; headers.payload_offset() + payload_len];
    let at = headers.payload_offset();
    frame[at..at + 8].copy_from_slice(&counter.to_be_bytes());
    headers.write(&mut frame);
    frame
}

#[test]
fn padding_and_a_check_sequence_are_no_part_of_a_packet() {
    let arp = [&frame(&v4())[..12], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[7; 20]].concat();
    let other = [&frame(&v4())[..12], &[0x88, 0xf7, 1, 2, 3]].concat();
    let all = [MatchOn::Frame, MatchOn::L3, MatchOn::Payload, MatchOn::Inner];
    for len in [8, 10, 18, 19, 21, 22, 23, 40, 60] {
        for headers in [v4(), v6(), Headers { vlan: Some(5), ..v4() }] {
            let bare = datagram(&headers, 3, len);
            let padded = [&bare[..], &[0; 52][bare.len().min(52)..]].concat();
            let checked = [&padded[..], &[0xaa, 0xbb, 0xcc, 0xdd]].concat();
            for on in &all {
                assert!(matches!(key(on, &bare), Keyed::Key(_)), "{on} {len}");
                assert_eq!(key(on, &padded), key(on, &bare), "{on} {len}");
                assert_eq!(key(on, &checked), key(on, &bare), "{on} {len}");
                assert_ne!(key(on, &datagram(&headers, 4, len)), key(on, &bare), "{on} {len}");
            }
        }
    }
    let padded =
        |frame: &[u8], behind: &[u8]| [frame, &vec![0; 60 - frame.len()][..], behind].concat();
    assert_eq!(key(&FRAME, &padded(&arp, &[1, 2, 3, 4])), key(&FRAME, &arp));
    assert_eq!(key(&FRAME, &padded(&other, &[])), key(&FRAME, &other));
}

#[test]
fn ipv6_is_keyed_as_far_as_ipv4() {
    let v6 = datagram(&v6(), 1, 40);
    let unmoved = |at: usize| {
        let mut other = v6.clone();
        other[at] ^= 0x80;
        key(&FRAME, &other) == key(&FRAME, &v6)
    };
    assert!((62..84).all(|at| !unmoved(at)), "8 bytes of UDP, and as much of the payload");
    assert!((84..v6.len()).all(unmoved));
}

#[test]
fn a_payload_is_known_again_whatever_lies_before_it() {
    let sent = datagram(&v4(), 9, 30);
    let translated = Headers {
        addresses: Addresses::V4(Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(10, 0, 0, 2)),
        from_port: 40_000,
        ttl: 3,
        ..v4()
    };
    let mut options = datagram(&v4(), 9, 30);
    options[14] = 0x46;
    options[17] += 4;
    options.splice(34..34, [1, 1, 1, 0]);
    for same in [
        datagram(&translated, 9, 30),
        datagram(&v6(), 9, 30),
        options,
        tagged(sent.clone(), 1),
        tagged(sent.clone(), 3),
    ] {
        assert_eq!(key(&MatchOn::Payload, &same), key(&MatchOn::Payload, &sent));
        assert_ne!(key(&MatchOn::L3, &same), key(&MatchOn::L3, &sent));
    }
    for other in [datagram(&v4(), 8, 30), datagram(&v4(), 9, 31)] {
        assert_ne!(key(&MatchOn::Payload, &other), key(&MatchOn::Payload, &sent));
    }
    assert_eq!(key(&MatchOn::Payload, &datagram(&v4(), 0, 8)[..42]), Keyed::None);
}

/// Returns what `inside` looks like behind an outer UDP datagram to `port`.
fn in_udp(port: u16, head: &[u8], inside: &[u8]) -> Vec<u8> {
    let outer = Headers { to_port: port, ..v4() };
    let mut frame = [&vec![0; outer.payload_offset()][..], head, inside].concat();
    outer.write(&mut frame);
    frame
}

/// Returns the same behind an outer IPv4 header.
fn in_ip(protocol: u8, head: &[u8], inside: &[u8]) -> Vec<u8> {
    let mut frame = frame(&v4())[..34].to_vec();
    frame[23] = protocol;
    frame[16..18].copy_from_slice(&(20 + head.len() as u16 + inside.len() as u16).to_be_bytes());
    [&frame[..], head, inside].concat()
}

#[test]
fn the_innermost_packet_is_found_in_every_tunnel() {
    let bare = datagram(&v4(), 5, 30);
    let v6 = datagram(&v6(), 5, 30);
    let (ip, ip6) = (&bare[14..], &v6[14..]);
    let vxlan = in_udp(4789, &[8, 0, 0, 0, 0, 0, 7, 0], &bare);
    let labels =
        |inside: &[u8]| [&bare[..12], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64], inside].concat();
    let tunnels = [
        bare.clone(),
        vxlan.clone(),
        tagged(vxlan.clone(), 1),
        in_udp(8472, &[8, 0, 0, 0, 0, 0, 7, 0], &tagged(bare.clone(), 1)),
        in_udp(6081, &[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 0], &bare),
        in_udp(6081, &[0, 0, 0x08, 0x00, 0, 0, 7, 0], ip),
        in_udp(2152, &[0x30, 0xff, 0, 50, 0, 0, 0, 1], ip),
        in_udp(2152, &[0x34, 0xff, 0, 58, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0], ip),
        in_ip(47, &[0, 0, 8, 0], ip),
        in_ip(47, &[0x30, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 2], ip),
        in_ip(47, &[0, 0, 0x65, 0x58], &bare),
        in_ip(47, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], &bare),
        in_ip(47, &[0, 0, 0x86, 0xdd], ip6),
        in_ip(4, &[], ip),
        in_ip(41, &[], ip6),
        in_ip(4, &[], &in_ip(47, &[0, 0, 8, 0], ip)[14..]),
        labels(ip),
        labels(&[&[0, 0, 0, 0], &bare[..]].concat()),
        [&bare[..12], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 60, 0, 0x21], ip].concat(),
    ];
    for (i, tunnel) in tunnels.iter().enumerate() {
        assert_eq!(key(&MatchOn::Inner, tunnel), key(&MatchOn::Payload, &bare), "tunnel {i}");
    }
    let claimed = in_udp(4789, &[0; 8], &bare);
    assert_eq!(key(&MatchOn::Inner, &claimed), key(&MatchOn::Payload, &claimed));
    for len in 0..vxlan.len() {
        let _ = key(&MatchOn::Inner, &vxlan[..len]);
        let short = Keyer::new(&MatchOn::Inner, Tap::Pre, None).key(&vxlan[..len], 200);
        assert!(len >= 112 || matches!(short, Keyed::Short { .. } | Keyed::Key(_)), "{len}");
    }
}

#[test]
fn of_tcp_and_icmp_the_numbers_belong_to_the_key() {
    let with = |protocol: u8, at: usize, value: u8| {
        let mut frame = datagram(&v4(), 0, 60);
        frame[23] = protocol;
        frame[34] = 8;
        frame[46] = 0x50;
        frame[at] = value;
        key(&MatchOn::Payload, &frame)
    };
    for (protocol, at, belongs) in [
        (headers::TCP, 34, false), // port
        (headers::TCP, 38, true),  // sequence number
        (headers::TCP, 42, true),  // acknowledgement
        (headers::TCP, 47, true),  // flags
        (headers::TCP, 48, false), // window
        (1, 34, true),             // type
        (1, 38, false),            // identifier: translated
        (1, 40, true),             // sequence number
    ] {
        assert_eq!(with(protocol, at, 13) != with(protocol, at, 14), belongs, "{protocol} {at}");
    }
}

#[test]
fn keys_go_no_further_than_both_captures() {
    let sent = datagram(&v4(), 9, 60);
    let tagged = tagged(sent.clone(), 1);
    let held = |on: &MatchOn, data: &[u8]| {
        Keyer::new(on, Tap::Pre, None).held_bytes(&data[..64], data.len() as u32)
    };
    assert_eq!(held(&MatchOn::Payload, &sent), Some(50));
    assert_eq!(held(&MatchOn::Payload, &tagged), Some(46));
    assert_eq!(held(&MatchOn::Probe, &sent), None);
    let limited = |on: &MatchOn, data: &[u8]| {
        Keyer::new(on, Tap::Pre, Some(46)).key(&data[..64], data.len() as u32)
    };
    let key = limited(&MatchOn::Payload, &sent);
    assert!(matches!(key, Keyed::Key(_)));
    assert_eq!(limited(&MatchOn::Payload, &tagged), key);
    assert_ne!(limited(&MatchOn::Payload, &datagram(&v4(), 8, 60)), key);
    assert!(matches!(limited(&MatchOn::Frame, &sent), Keyed::Key(_)));
    let shorter = Keyer::new(&MatchOn::Frame, Tap::Pre, Some(46)).key(&sent[..50], 100);
    assert_eq!(shorter, Keyed::None);
}

#[test]
fn a_frame_captured_too_short_says_what_it_needs() {
    let whole = frame(&v4());
    let keyer = Keyer::new(&FRAME, Tap::Pre, None);
    for (captured, wire, need) in [(63, 64, 64), (63, 1500, 64), (59, 60, 60), (0, 13, 13)] {
        assert_eq!(keyer.key(&whole[..captured], wire), Keyed::Short { need });
    }
    assert_eq!(keyer.key(&whole[..64], 0), key(&FRAME, &whole));
}

#[test]
fn a_probe_is_keyed_by_its_sequence_number_alone() {
    let key = |data: &[u8]| key(&MatchOn::Probe, data);
    let mut routed = frame(&Headers { ttl: 3, vlan: Some(9), from_port: 9, ..v6() });
    assert_eq!(key(&frame(&v4())), key(&routed));
    assert_ne!(key(&routed), Keyed::None);
    let at = v6().payload_offset() + 4;
    payload::write(&mut routed[at..], 8);
    assert_ne!(key(&frame(&v4())), key(&routed));
}

#[test]
fn what_carries_no_probe_has_no_key() {
    let probe = frame(&v4());
    for (at, byte) in [(42, 0), (23, headers::TCP), (12, 0x09), (21, 1)] {
        let mut other = probe.clone();
        other[at] = byte;
        assert_eq!(key(&MatchOn::Probe, &other), Keyed::None, "byte {at}");
    }
    for wire in [0, 13, 33, 53] {
        assert_eq!(key(&MatchOn::Probe, &probe[..wire]), Keyed::None, "{wire} bytes");
    }
}

#[test]
fn a_probe_captured_too_short_says_what_it_needs() {
    let keyer = Keyer::new(&MatchOn::Probe, Tap::Pre, None);
    let short = |need| Keyed::Short { need };
    for (captured, need) in [(0, 14), (33, 34), (34, 54), (53, 54)] {
        assert_eq!(keyer.key(&frame(&v4())[..captured], 100), short(need), "{captured}");
    }
    assert_eq!(keyer.key(&frame(&v6())[..73], 74), short(74));
}

#[test]
fn chosen_bytes_are_the_key_in_the_order_given() {
    let way = |text: &str| text.parse::<MatchOn>().unwrap();
    let data = frame(&v4());
    assert_eq!(key(&way("bytes:42+8"), &data), key(&way("bytes:42+4,46+4"), &data));
    assert_ne!(key(&way("bytes:42+4,46+4"), &data), key(&way("bytes:46+4,42+4"), &data));
    let mut other = data.clone();
    other[..42].fill(0xff);
    other[50..].fill(0xff);
    assert_eq!(key(&way("bytes:42+8"), &data), key(&way("bytes:42+8"), &other));
    assert_ne!(key(&way("bytes:42+9"), &data), key(&way("bytes:42+9"), &other));
}

#[test]
fn chosen_bytes_must_be_on_the_wire_and_captured() {
    let keyer = Keyer::new(&"bytes:90+10,0+1".parse().unwrap(), Tap::Pre, None);
    let data = frame(&v4());
    assert!(matches!(keyer.key(&data, 100), Keyed::Key(_)));
    assert_eq!(keyer.key(&data[..99], 99), Keyed::None);
    assert_eq!(keyer.key(&data[..99], 100), Keyed::Short { need: 100 });
}

#[test]
fn keys_differ_where_bytes_differ() {
    let mut data = frame(&v4());
    let mut seen = HashSet::new();
    for seq in 0..100_000u64 {
        payload::write(&mut data[42..], seq);
        let Keyed::Key(key) = key(&FRAME, &data) else { panic!("no key") };
        assert!(seen.insert(key.hi) && seen.insert(key.lo));
    }
}

#[test]
fn an_error_is_known_by_the_packet_that_it_quotes() {
    let error = |about: &[u8], ttl: u8| {
        let quoted = &about[14..];
        let mut frame = datagram(&Headers { ttl, ..v4() }, 0, quoted.len());
        frame[23] = 1;
        frame[34..42].copy_from_slice(&[3, 3, 9, 9, 0, 0, 0, 0]);
        frame[42..].copy_from_slice(quoted);
        frame
    };
    let translated = Headers { from_port: 999, ttl: 9, ..v4() };
    let key_of = |frame: &[u8]| key(&MatchOn::Payload, frame);
    let first = key_of(&error(&datagram(&v4(), 1, 30), 64));
    assert!(matches!(first, Keyed::Key(_)));
    assert_eq!(key_of(&error(&datagram(&translated, 1, 30), 63)), first);
    assert_ne!(key_of(&error(&datagram(&v4(), 2, 30), 64)), first);
    assert_ne!(key_of(&datagram(&v4(), 1, 30)), first);
    let mut ended = error(&datagram(&v4(), 1, 30), 64);
    ended[16..18].copy_from_slice(&36_u16.to_be_bytes());
    assert!(matches!(key_of(&ended), Keyed::Key(_) | Keyed::None));
}
