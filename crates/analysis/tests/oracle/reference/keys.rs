//! The key of a packet: the very bytes by which it is recognised.

use super::Twist;
use super::content::content;

/// `--match-on`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchOn {
    Frame,
    L3,
    Payload,
    Inner,
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
        MatchOn::Payload => content(data, wire, false, twist),
        MatchOn::Inner => content(data, wire, true, twist),
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
    let (ethertype, shift) = ethertype(data);
    let most = if ethertype == Some(0x86dd) { 84 } else { 64 };
    let own = match twist {
        Twist::PaddingIsKey => None,
        _ => packet_end(data, ethertype, 14 + shift),
    };
    let end = own.unwrap_or(wire).min(wire).min(most);
    if end <= 12 {
        return Keyed::None;
    }
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
    if own.is_none() {
        // Zeros behind a packet that does not tell its length may be padding.
        while key.last() == Some(&0) {
            key.pop();
        }
    }
    Keyed::Key(key)
}

/// Where the packet ends by its own header.
fn packet_end(data: &[u8], ethertype: Option<u16>, at: usize) -> Option<usize> {
    let number = |offset: usize| {
        let pair = data.get(at + offset..at + offset + 2)?;
        Some(usize::from(u16::from_be_bytes([pair[0], pair[1]])))
    };
    match ethertype? {
        0x0800 => number(2).filter(|len| *len >= 20).map(|len| at + len),
        0x86dd => number(4).filter(|len| *len > 0).map(|len| at + 40 + len),
        0x0806 => {
            let lengths = data.get(at + 4..at + 6)?;
            Some(at + 8 + 2 * usize::from(lengths[0]) + 2 * usize::from(lengths[1]))
        }
        _ => None,
    }
}

/// Whether a packet concerns its link only: of the frames that are made here, ARP does, what is
/// sent to everybody, and what has no hop left.
pub fn is_local(on: &MatchOn, data: &[u8]) -> bool {
    let (ethertype, shift) = ethertype(data);
    let to = data.get(30 + shift..34 + shift);
    let hops = match ethertype {
        Some(0x0800) => data.get(22 + shift),
        Some(0x86dd) => data.get(21 + shift),
        _ => None,
    };
    let everybody = ethertype == Some(0x0800) && to == Some(&[255; 4]);
    let local = ethertype == Some(0x0806) || everybody || hops.is_some_and(|hops| *hops <= 1);
    !matches!(on, MatchOn::Probe | MatchOn::Bytes(_)) && local
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

/// The sequence number behind the magic at the start of a UDP payload; a later fragment has none.
fn probe(data: &[u8], wire: usize) -> Keyed {
    let look = |at: usize| match data.get(at) {
        Some(byte) => Ok(*byte),
        None if at < wire => Err(Keyed::Short),
        None => Err(Keyed::None),
    };
    let sequence = || {
        let mut l3 = 14;
        while l3 < 22 && matches!((look(l3 - 2)?, look(l3 - 1)?), (0x81, 0x00) | (0x88, 0xa8)) {
            l3 += 4;
        }
        let payload = 8 + match (look(l3 - 2)?, look(l3 - 1)?) {
            (0x08, 0x00) if look(l3)? >> 4 == 4 && look(l3 + 9)? == 17 => {
                if look(l3 + 6)? & 0x1f != 0 || look(l3 + 7)? != 0 {
                    return Err(Keyed::None);
                }
                l3 + 4 * usize::from(look(l3)? & 0x0f)
            }
            (0x86, 0xdd) if look(l3)? >> 4 == 6 && look(l3 + 6)? == 17 => l3 + 40,
            _ => return Err(Keyed::None),
        };
        let found: Vec<u8> = (payload..payload + 12).map(look).collect::<Result<_, _>>()?;
        match found.split_at(4) {
            (magic, sequence) if magic == probe::payload::MAGIC => Ok(sequence.to_vec()),
            _ => Err(Keyed::None),
        }
    };
    sequence().map_or_else(|why| why, Keyed::Key)
}
