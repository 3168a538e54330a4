//! The key of a packet: the very bytes by which it is recognised.

use super::Twist;

/// `--match-on`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchOn {
    Frame,
    L3,
    Probe,
    Bytes(Vec<(usize, usize)>),
}

/// What a packet is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keyed {
    Key(Vec<u8>),
    None,
    /// The capture does not hold the bytes that the wire had.
    Short,
}

/// The key of a frame of which `data` was captured and `wire` bytes were sent.
pub fn key(on: &MatchOn, data: &[u8], wire: usize, twist: Twist) -> Keyed {
    match on {
        MatchOn::Bytes(ranges) => bytes(ranges, data, wire),
        MatchOn::Probe => probe(data, wire),
        MatchOn::Frame => frame(data, wire, twist == Twist::FrameMasksTtl, twist),
        MatchOn::L3 => frame(data, wire, true, twist),
    }
}

fn bytes(ranges: &[(usize, usize)], data: &[u8], wire: usize) -> Keyed {
    if ranges.iter().any(|(offset, len)| offset + len > wire) {
        return Keyed::None;
    }
    if ranges.iter().any(|(offset, len)| offset + len > data.len()) {
        return Keyed::Short;
    }
    Keyed::Key(
        ranges.iter().flat_map(|&(offset, len)| data[offset..offset + len].to_vec()).collect(),
    )
}

fn frame(data: &[u8], wire: usize, ttl: bool, twist: Twist) -> Keyed {
    let end = wire.min(64);
    if data.len() < end {
        return Keyed::Short;
    }
    let mut masked = data[..end].to_vec();
    for at in masked_offsets(data, ttl, twist) {
        if at < end {
            masked[at] = 0;
        }
    }
    let mut key = masked.get(12..).unwrap_or_default().to_vec();
    if twist == Twist::LengthIsNoKey {
        key.resize(52, 0);
    }
    Keyed::Key(key)
}

/// Where the frame holds what a device may change.
fn masked_offsets(data: &[u8], ttl: bool, twist: Twist) -> Vec<usize> {
    let (ethertype, shift) = ethertype(data);
    let mut offsets = Vec::new();
    if ethertype == Some(0x0800) {
        if twist != Twist::FrameKeepsChecksums {
            offsets.extend([24, 25]);
            let no_options = data.get(14 + shift).is_some_and(|byte| byte & 0x0f == 5);
            match data.get(23 + shift) {
                Some(17) if no_options => offsets.extend([40, 41]),
                Some(6) if no_options => offsets.extend([50, 51]),
                _ => {}
            }
        }
        offsets.extend(ttl.then_some(22));
    }
    if ethertype == Some(0x86dd) && ttl {
        offsets.push(21);
    }
    offsets.iter().map(|offset| offset + shift).collect()
}

/// The ethertype behind up to two VLAN tags, and how far the tags shift what follows.
fn ethertype(data: &[u8]) -> (Option<u16>, usize) {
    let at = |offset: usize| Some(u16::from_be_bytes([*data.get(offset)?, *data.get(offset + 1)?]));
    let mut shift = 0;
    while shift < 8 && matches!(at(12 + shift), Some(0x8100 | 0x88a8)) {
        shift += 4;
    }
    (at(12 + shift), shift)
}

/// Magic and sequence number at the start of a UDP payload.
fn probe(data: &[u8], wire: usize) -> Keyed {
    let (ethertype, shift) = ethertype(data);
    let l3 = 14 + shift;
    let udp = match (ethertype, data.get(l3)) {
        (Some(0x0800), Some(first)) if data.get(l3 + 9) == Some(&17) => {
            l3 + 4 * usize::from(first & 0x0f)
        }
        (Some(0x86dd), Some(_)) if data.get(l3 + 6) == Some(&17) => l3 + 40,
        _ => return Keyed::None,
    };
    let payload = udp + 8;
    match data.get(payload..payload + 12) {
        Some(bytes) if bytes[..4] == probe::payload::MAGIC => Keyed::Key(bytes.to_vec()),
        Some(_) => Keyed::None,
        None if wire >= payload + 12 => Keyed::Short,
        None => Keyed::None,
    }
}
