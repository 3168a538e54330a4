//! Frames of every kind for every `--match-on`: alike where the key looks, noise everywhere else.

use super::Dice;
use crate::reference::{MatchOn, Packet};

/// How the packets of one case look.
#[derive(Clone, Debug)]
pub struct Frames {
    on: On,
    first_id: u64,
    keyless_one_in: u64,
}

#[derive(Clone, Copy, Debug)]
enum On {
    Frame,
    L3,
    Payload,
    Inner,
    Probe,
    Bytes,
}

/// Three ranges, one of them a single byte and not in order.
const RANGES: [(usize, usize); 3] = [(20, 4), (3, 1), (24, 2)];

impl Frames {
    pub fn new(dice: &mut Dice) -> Self {
        Self {
            on: dice.pick(&[On::Frame, On::L3, On::Payload, On::Inner, On::Probe, On::Bytes]),
            first_id: dice.below(7),
            keyless_one_in: dice.pick(&[6, 1_000_000]),
        }
    }

    pub fn match_on(&self) -> MatchOn {
        match self.on {
            On::Frame => MatchOn::Frame,
            On::L3 => MatchOn::L3,
            On::Payload => MatchOn::Payload,
            On::Inner => MatchOn::Inner,
            On::Probe => MatchOn::Probe,
            On::Bytes => MatchOn::Bytes(RANGES.to_vec()),
        }
    }

    /// A packet whose key says `id`.
    pub fn packet(&self, ts: u64, id: u64, dice: &mut Dice) -> Packet {
        let id = self.first_id + id;
        let keyless = dice.chance(self.keyless_one_in);
        let data = match self.on {
            On::Frame => frame(id, false, dice),
            On::L3 => frame(id, true, dice),
            On::Payload | On::Inner if keyless => return whole(ts, no_packet(dice)),
            On::Payload => return whole(ts, plain(id, dice)),
            On::Inner => return whole(ts, tunnelled(id, dice)),
            On::Probe if keyless => no_probe(dice),
            On::Probe => probe_frame(id, dice),
            On::Bytes if keyless => noise(dice, 25),
            On::Bytes => bytes_frame(id, dice),
        };
        cut(ts, data, dice)
    }
}

/// The wire may have had more than was captured, once the capture holds the key.
fn cut(ts: u64, mut data: Vec<u8>, dice: &mut Dice) -> Packet {
    let orig_len = data.len() as u32;
    if data.len() > 92 && dice.chance(3) {
        data.truncate(92 + dice.below(data.len() as u64 - 92) as usize);
    }
    Packet { ts, orig_len, data }
}

fn whole(ts: u64, data: Vec<u8>) -> Packet {
    Packet { ts, orig_len: data.len() as u32, data }
}

/// Something that carries nothing: ARP.
fn no_packet(dice: &mut Dice) -> Vec<u8> {
    let mut frame = macs(dice);
    frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(noise(dice, 38));
    frame
}

/// A packet of an id in a frame, tagged or not, and perhaps padded.
fn plain(id: u64, dice: &mut Dice) -> Vec<u8> {
    let mut frame = macs(dice);
    if dice.chance(3) {
        frame.extend([0x81, 0x00, 0x00, dice.next() as u8]);
    }
    frame.extend(carried(id, dice));
    let padding = dice.pick(&[0, 0, 4, 18]);
    frame.extend(noise(dice, padding));
    frame
}

/// The same within a tunnel, or in none.
fn tunnelled(id: u64, dice: &mut Dice) -> Vec<u8> {
    let inside = plain(id, dice);
    let mut packet = carried(id, dice);
    let ipv6 = packet[0] == 0x86;
    let (protocol, body) = match dice.below(4) {
        0 => return inside,
        1 => {
            let ports =
                [&noise(dice, 2)[..], &[0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0]].concat();
            (17, [&ports[..], &inside].concat())
        }
        2 => (47, [&[0, 0, 0x65, 0x58][..], &inside].concat()),
        _ => (if ipv6 { 41 } else { 4 }, packet.split_off(2)),
    };
    let mut frame = macs(dice);
    frame.extend(ip(protocol, &body, false, dice));
    frame
}

/// Ethertype and packet: of five in a row, all but the first two differ in their protocol, and those
/// in their length. What a device may rewrite is noise.
fn carried(id: u64, dice: &mut Dice) -> Vec<u8> {
    let number = (id / 5).to_be_bytes();
    match id % 5 {
        0 | 1 => {
            let body = [&noise(dice, 8)[..], &number, &vec![7; 70 + id as usize % 5]].concat();
            ip(17, &body, false, dice)
        }
        2 => {
            let head = [&noise(dice, 4)[..], &number, &[0x50, 0x10], &noise(dice, 6)].concat();
            ip(6, &[&head[..], b"again and again"].concat(), false, dice)
        }
        3 => {
            let head = [&[8, 0][..], &noise(dice, 4), &number[6..]].concat();
            ip(1, &[&head[..], b"echo"].concat(), false, dice)
        }
        _ => ip(17, &[&noise(dice, 8)[..], &number].concat(), true, dice),
    }
}

fn ip(protocol: u8, body: &[u8], ipv6: bool, dice: &mut Dice) -> Vec<u8> {
    let ttl = dice.next() as u8;
    let len = body.len() as u16 + if ipv6 { 0 } else { 20 };
    let [high, low] = len.to_be_bytes();
    let head = if ipv6 {
        [
            &[0x86, 0xdd, 0x60, 0, 0, 0, high, low, protocol, ttl, 0xfd][..],
            &noise(dice, 15),
            &[0xfd],
        ]
        .concat()
    } else {
        let checked =
            [&[0x08, 0x00, 0x45, 0, high, low][..], &noise(dice, 2), &[0, 0, ttl, protocol]];
        [&checked.concat()[..], &noise(dice, 2), &[10], &noise(dice, 3), &[10]].concat()
    };
    let rest = noise(dice, if ipv6 { 15 } else { 3 });
    [&head[..], &rest, body].concat()
}

fn noise(dice: &mut Dice, len: usize) -> Vec<u8> {
    (0..len).map(|_| dice.next() as u8).collect()
}

fn macs(dice: &mut Dice) -> Vec<u8> {
    noise(dice, 12)
}

/// The kind of a frame is a function of its id, so that the same id always has the same key; of
/// seven in a row, the first two differ in their length alone, the next two in their TTL alone.
fn frame(id: u64, routed: bool, dice: &mut Dice) -> Vec<u8> {
    let (content, mut frame) = (id / 7, macs(dice));
    let mut ttl = |fixed: u8| if routed { dice.next() as u8 } else { fixed };
    let (ttl64, ttl63) = (ttl(64), ttl(63));
    match id % 7 {
        0 | 1 if content % 2 == 0 => {
            frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, id as u8]);
            frame.extend(content.to_be_bytes());
            frame.resize(42, 7);
            frame.extend(noise(dice, 30));
        }
        0 | 1 => {
            frame.extend([0x88, 0xb5]);
            frame.extend(content.to_be_bytes());
            frame.resize(if id % 7 == 0 { 42 } else { 43 }, 0);
            frame.push(1);
            frame.resize(frame.len() + dice.below(9) as usize, 0);
        }
        2 => ipv4(&mut frame, 0x45, 17, ttl64, content, dice),
        3 => ipv4(&mut frame, 0x45, 17, ttl63, content, dice),
        4 => {
            frame.extend([0x81, 0x00, 0x00, 0x07]);
            ipv4(&mut frame, 0x45, 6, ttl64, content, dice);
        }
        5 => {
            frame.extend([0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0x00, 0x08]);
            let first = if content % 2 == 0 { 0x45 } else { 0x46 };
            ipv4(&mut frame, first, 17, ttl64, content, dice);
        }
        _ => ipv6(&mut frame, ttl64, content, dice),
    }
    frame
}

fn ipv4(frame: &mut Vec<u8>, first: u8, proto: u8, ttl: u8, content: u64, dice: &mut Dice) {
    let l3 = frame.len() + 2;
    frame.extend([0x08, 0x00, first, 0]);
    frame.resize(64, content as u8);
    frame[l3 + 8] = ttl;
    frame[l3 + 9] = proto;
    for offset in checksums(first, proto) {
        frame[l3 + offset] = dice.next() as u8;
    }
    frame.extend(noise(dice, 40));
}

/// The bytes of an IPv4 packet that any device may recompute.
fn checksums(first: u8, proto: u8) -> Vec<usize> {
    match (first, proto) {
        (0x45, 17) => vec![10, 11, 26, 27],
        (0x45, 6) => vec![10, 11, 36, 37],
        _ => vec![10, 11],
    }
}

fn ipv6(frame: &mut Vec<u8>, ttl: u8, content: u64, dice: &mut Dice) {
    let l3 = frame.len() + 2;
    frame.extend([0x86, 0xdd, 0x60]);
    frame.resize(84, content as u8);
    frame[l3 + 7] = ttl;
    frame.extend(noise(dice, 20));
}

/// The id stands in the payload; every byte that the key does not cover is noise.
fn probe_frame(id: u64, dice: &mut Dice) -> Vec<u8> {
    let mut frame = macs(dice);
    let ipv6 = dice.chance(3);
    if dice.chance(3) {
        frame.extend([0x81, 0x00, 0x00, 0x07]);
    }
    if ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, 17, 64]);
        frame.extend(noise(dice, 32));
    } else {
        frame.extend([0x08, 0x00, 0x45, 0, 0, 48, 0, 1, 0, 0, 64, 17]);
        frame.extend(noise(dice, 10));
    }
    frame.extend(noise(dice, 8));
    frame.extend(probe::payload::MAGIC);
    frame.extend(id.to_be_bytes());
    frame.extend(noise(dice, 12));
    frame
}

/// Something else on the wire: ARP, or UDP with another payload.
fn no_probe(dice: &mut Dice) -> Vec<u8> {
    let mut frame = probe_frame(1, dice);
    let at = if dice.chance(2) { 13 } else { frame.len() - 24 };
    frame[at] ^= 0x55;
    frame
}

fn bytes_frame(id: u64, dice: &mut Dice) -> Vec<u8> {
    let mut frame = noise(dice, 26 + 40);
    let parts = [id as u8, 1, 2, 3, (id >> 8) as u8, 4, 5];
    let offsets = RANGES.iter().flat_map(|&(offset, len)| offset..offset + len);
    for (offset, byte) in offsets.zip(parts) {
        frame[offset] = byte;
    }
    frame
}
