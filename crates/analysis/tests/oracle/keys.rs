//! The engine's keys against the reference's: alike where those are alike, and nowhere else.

use probe::key::{ByteRange, Keyer, MatchOn, Tap};

use crate::generate::{self, Dice};
use crate::reference::{self, Packet, Twist};

/// The engine's word for the reference's.
pub fn match_on(on: &reference::MatchOn) -> MatchOn {
    match on {
        reference::MatchOn::Frame => MatchOn::Frame,
        reference::MatchOn::L3 => MatchOn::L3,
        reference::MatchOn::Payload => MatchOn::Payload,
        reference::MatchOn::Inner => MatchOn::Inner,
        reference::MatchOn::Probe => MatchOn::Probe,
        reference::MatchOn::Bytes(ranges) => {
            let range = |&(offset, len)| ByteRange::new(offset as u32, len as u32).unwrap();
            let ranges: Vec<_> = ranges.iter().map(range).collect();
            MatchOn::Bytes { pre: ranges.clone(), post: ranges }
        }
    }
}

/// The packet itself, with one byte changed, with less captured, with less sent.
fn variants(packet: &Packet, dice: &mut Dice) -> Vec<Packet> {
    let mut variants = vec![packet.clone()];
    for at in 0..packet.data.len() {
        let mut other = packet.clone();
        other.data[at] ^= dice.pick(&[0x01, 0x0f, 0xff, 0x88 ^ 0x81]);
        variants.push(other);
    }
    for len in 0..packet.data.len() {
        let data = packet.data[..len].to_vec();
        variants.push(Packet { data: data.clone(), ..packet.clone() });
        variants.push(Packet { orig_len: len as u32, data, ..packet.clone() });
    }
    variants
}

#[test]
fn keys_are_alike_where_the_bytes_are() {
    for seed in 0..300 {
        let case = generate::case(seed);
        let Some(first) = case.pre.first() else { continue };
        let on = &case.ask.match_on;
        let keyer = Keyer::new(&match_on(on), Tap::Pre, None);
        let expected = |p: &Packet| reference::key(on, &p.data, p.orig_len as usize, Twist::None);
        let original = (keyer.key(&first.data, first.orig_len), expected(first));
        for other in variants(first, &mut Dice::new(seed)) {
            let got = keyer.key(&other.data, other.orig_len);
            let want = expected(&other);
            let said = format!("seed {seed}, {on:?}, {other:?}: {got:?}, expected {want:?}");
            match &want {
                reference::Keyed::Key(_) => {
                    assert!(matches!(got, probe::key::Keyed::Key(_)), "{said}")
                }
                reference::Keyed::None => assert!(matches!(got, probe::key::Keyed::None), "{said}"),
                reference::Keyed::Short => {
                    assert!(matches!(got, probe::key::Keyed::Short { .. }), "{said}");
                    continue;
                }
            }
            assert_eq!(got == original.0, want == original.1, "{said}, beside {first:?}");
        }
    }
}

#[test]
fn the_bytes_behind_a_key_can_be_had() {
    for seed in 0..300 {
        let case = generate::case(seed);
        let keyer = Keyer::new(&match_on(&case.ask.match_on), Tap::Pre, None);
        let mut bytes = Vec::new();
        for p in &case.pre {
            bytes.clear();
            keyer.bytes(&p.data, p.orig_len, &mut bytes);
            let wire = p.orig_len as usize;
            match reference::key(&case.ask.match_on, &p.data, wire, Twist::None) {
                reference::Keyed::Key(key) => assert_eq!(bytes, key, "seed {seed}"),
                _ => assert!(bytes.is_empty(), "seed {seed}"),
            }
        }
    }
}
