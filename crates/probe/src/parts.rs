//! The part of a TCP stream, or of a longer packet, that a packet holds: it tells where a device
//! divides packets or merges them.

use crate::headers::{self, be16};
use crate::key::Key;
use crate::layers::{Layers, Network};

/// Bytes of what the network header carries that tell packets apart.
const HEAD: usize = 24;

/// Extension headers that are followed.
const MOST_EXTENSIONS: usize = 8;
const FRAGMENT: u8 = 44;

/// Bytes of a TCP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Addresses and ports.
    pub flow: Key,
    /// The sequence number of the first byte.
    pub sequence: u32,
    /// Number of bytes, at least 1.
    pub len: u32,
}

/// A fragment of an IP packet, or a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Key that all fragments of a packet share; `None`: the packet is whole.
    pub of: Option<Key>,
    /// Offset at which it begins in what the packet carries, in bytes.
    pub start: u32,
    /// Number of bytes that it holds.
    pub len: u32,
    /// True if others follow.
    pub more: bool,
    /// Key of the packet's beginning, if this part is it.
    pub head: Option<Key>,
}

/// Returns the bytes of a TCP stream that a frame holds.
#[must_use]
pub fn segment(data: &[u8], orig_len: u32) -> Option<Segment> {
    let network = Layers::new(data, orig_len).network().ok()?;
    if network.protocol != headers::TCP || network.is_later_fragment() {
        return None;
    }
    let tcp = data.get(network.transport..network.transport + 20)?;
    let payload = network.transport + usize::from(tcp[12] >> 4).max(5) * 4;
    let len = network.end.checked_sub(payload).filter(|len| *len > 0)?;
    let flow = Key::of_parts(&[addresses(data, network)?, &tcp[..4]]);
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    Some(Segment { flow, sequence, len: len as u32 })
}

/// Returns which part of an IP packet a frame holds.
#[must_use]
pub fn fragment(data: &[u8], orig_len: u32) -> Option<Fragment> {
    let network = Layers::new(data, orig_len).network().ok()?;
    let addresses = addresses(data, network)?;
    let Place { id, start, more, protocol, at } = Place::of(data, network)?;
    let len = network.end.checked_sub(at)?;
    let head = || {
        let mut head: [u8; HEAD] = data.get(at..at + HEAD.min(len))?.try_into().ok()?;
        // A card may still have to fill the checksum in.
        match protocol {
            headers::UDP => head[6..8].fill(0),
            headers::TCP => head[16..18].fill(0),
            _ => {}
        }
        Some(Key::of_parts(&[addresses, &[protocol], &head]))
    };
    Some(Fragment {
        of: (start > 0 || more).then(|| Key::of_parts(&[addresses, &[protocol], &id])),
        start,
        len: len as u32,
        more,
        head: if start == 0 { head() } else { None },
    })
}

/// The place of a fragment in its packet.
struct Place {
    id: [u8; 4],
    start: u32,
    more: bool,
    protocol: u8,
    /// Offset of its content in the frame.
    at: usize,
}

impl Place {
    fn of(data: &[u8], network: Network) -> Option<Self> {
        if data.get(network.at)? >> 4 == 6 {
            Self::ipv6(data, network)
        } else {
            Self::ipv4(data, network)
        }
    }

    fn ipv4(data: &[u8], network: Network) -> Option<Self> {
        let header = data.get(network.at..network.at + headers::IPV4_LEN)?;
        let place = be16(header, 6)?;
        Some(Self {
            id: [0, 0, header[4], header[5]],
            start: u32::from(place & 0x1fff) * 8,
            more: place & 0x2000 != 0,
            protocol: header[9],
            at: network.transport,
        })
    }

    /// Returns what lies behind a fragment header belongs to the packet that was divided, and so do
    /// further extension headers.
    fn ipv6(data: &[u8], network: Network) -> Option<Self> {
        let header = data.get(network.at..network.at + headers::IPV6_LEN)?;
        let (mut protocol, mut at) = (header[6], network.at + headers::IPV6_LEN);
        for _ in 0..MOST_EXTENSIONS {
            match protocol {
                0 | 43 | 60 => {
                    let extension = data.get(at..at + 2)?;
                    (protocol, at) = (extension[0], at + 8 + 8 * usize::from(extension[1]));
                }
                FRAGMENT => {
                    let header = data.get(at..at + 8)?;
                    let place = be16(header, 2)?;
                    return Some(Self {
                        id: header[4..8].try_into().ok()?,
                        start: u32::from(place & !7),
                        more: place & 1 != 0,
                        protocol: header[0],
                        at: at + 8,
                    });
                }
                _ => break,
            }
        }
        Some(Self { id: [0; 4], start: 0, more: false, protocol, at })
    }
}

fn addresses(data: &[u8], network: Network) -> Option<&[u8]> {
    let (from, to) = if data.get(network.at)? >> 4 == 6 { (8, 40) } else { (12, 20) };
    data.get(network.at + from..network.at + to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, place: u16, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + body.len() as u16).to_be_bytes());
        frame.extend([0, 9]);
        frame.extend(place.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(body);
        frame
    }

    fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend([next, 64]);
        frame.extend([1; 32]);
        frame.extend(body);
        frame
    }

    fn of(frame: &[u8]) -> Fragment {
        fragment(frame, frame.len() as u32).expect("a part")
    }

    #[test]
    fn a_segment_is_what_follows_the_header() {
        let mut tcp = vec![0; 20 + 7];
        tcp[..8].copy_from_slice(&[0, 80, 4, 0, 0, 0, 1, 2]);
        tcp[12] = 0x50;
        let mut frame = ipv4(headers::TCP, 0x4000, &tcp);
        frame.resize(64, 0);
        let found = segment(&frame, 64).expect("a segment");
        assert_eq!((found.sequence, found.len), (258, 7), "padding is no part of it");
        let empty = ipv4(headers::TCP, 0x4000, &tcp[..20]);
        assert_eq!(segment(&empty, empty.len() as u32), None);
    }

    #[test]
    fn fragments_of_a_packet_begin_as_it_does() {
        let body: Vec<u8> = (0..96).collect();
        let whole = of(&ipv4(headers::UDP, 0, &body));
        let first = of(&ipv4(headers::UDP, 0x2000, &body[..48]));
        let last = of(&ipv4(headers::UDP, 6, &body[48..]));
        assert_eq!((whole.of, whole.len, whole.head), (None, 96, first.head));
        assert_eq!((first.of, last.of.is_some()), (last.of, true));
        assert_eq!((last.start, last.len, last.more, last.head), (48, 48, false, None));
    }

    #[test]
    fn the_same_holds_for_ipv6() {
        let body: Vec<u8> = (0..96).collect();
        let part = |place: u16, body: &[u8]| {
            let header = [&[headers::UDP, 0][..], &place.to_be_bytes(), &[0, 0, 0, 7]].concat();
            of(&ipv6(FRAGMENT, &[&header, body].concat()))
        };
        let whole = of(&ipv6(headers::UDP, &body));
        let (first, last) = (part(1, &body[..48]), part(48, &body[48..]));
        assert_eq!((whole.of, whole.len, whole.head), (None, 96, first.head));
        assert_eq!((first.of, last.start, last.len), (last.of, 48, 48));
    }
}
