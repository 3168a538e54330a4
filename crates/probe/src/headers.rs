//! Ethernet, VLAN, IPv4, IPv6 and UDP headers: just enough to find what is inside a frame, and to
//! write one that every device forwards.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethertype of ARP.
pub const ARP: u16 = 0x0806;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

const VLAN: [u16; 2] = [0x8100, 0x88a8];
pub(crate) const MAX_VLAN_TAGS: usize = 2;
const MACS_LEN: usize = 12;
pub(crate) const TAG_LEN: usize = 4;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

/// What an Ethernet frame carries, behind at most two VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The ethertype behind the tags.
    pub ethertype: u16,
    /// Where in the frame the network header starts.
    pub offset: usize,
}

/// Where the payload of a UDP datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpPayload {
    /// It starts here, which may lie beyond the end of what was captured.
    At(usize),
    /// The frame is no UDP datagram, or a fragment without the UDP header.
    Absent,
    /// The frame ends within its headers; to tell, at least this many bytes are needed.
    Cut {
        /// Bytes of the frame.
        need: usize,
    },
}

/// Finds the network header; `None` where the frame ends before it.
#[must_use]
pub fn network(frame: &[u8]) -> Option<Network> {
    let (ethertype, offset) = behind_tags(frame.get(MACS_LEN..)?)?;
    Some(Network { ethertype, offset: MACS_LEN + offset })
}

/// The ethertype behind the VLAN tags and the offset of what follows, in a frame without its MACs.
pub(crate) fn behind_tags(bytes: &[u8]) -> Option<(u16, usize)> {
    let mut at = 0;
    loop {
        let ethertype = be16(bytes, at)?;
        if at == MAX_VLAN_TAGS * TAG_LEN || !VLAN.contains(&ethertype) {
            return Some((ethertype, at + 2));
        }
        at += TAG_LEN;
    }
}

/// Finds the payload of a UDP datagram in an Ethernet frame. IPv6 extension headers are not
/// followed: such a packet counts as carrying no UDP.
#[must_use]
pub fn udp_payload(frame: &[u8]) -> UdpPayload {
    let Some(Network { ethertype, offset }) = network(frame) else {
        return UdpPayload::Cut { need: (frame.len() + 1).max(MACS_LEN + 2) };
    };
    let (header, header_len): (fn(&[u8]) -> _, _) = match ethertype {
        IPV4 => (ipv4, IPV4_LEN),
        IPV6 => (ipv6, IPV6_LEN),
        _ => return UdpPayload::Absent,
    };
    match frame.get(offset..offset + header_len).map(header) {
        None => UdpPayload::Cut { need: offset + header_len },
        Some(Some(len)) => UdpPayload::At(offset + len + UDP_LEN),
        Some(None) => UdpPayload::Absent,
    }
}

/// The length of an IPv4 header that a UDP header follows.
fn ipv4(header: &[u8]) -> Option<usize> {
    let len = usize::from(header[0] & 0x0f) * 4;
    let first_fragment = header[6] & 0x1f == 0 && header[7] == 0;
    (header[0] >> 4 == 4 && len >= IPV4_LEN && first_fragment && header[9] == UDP).then_some(len)
}

/// The length of an IPv6 header that a UDP header follows.
fn ipv6(header: &[u8]) -> Option<usize> {
    (header[0] >> 4 == 6 && header[6] == UDP).then_some(IPV6_LEN)
}

/// Counts down the TTL, correcting the IPv4 header checksum, or the hop limit: what a router does
/// to a frame. Other frames, and those whose time is up, stay as they are.
pub fn decrement_ttl(frame: &mut [u8]) {
    let Some(Network { ethertype, offset }) = network(frame) else { return };
    let ttl = match ethertype {
        IPV4 => 8,
        IPV6 => 7,
        _ => return,
    };
    let Some(header) = frame.get_mut(offset..offset + IPV4_LEN) else { return };
    if header[ttl] == 0 {
        return;
    }
    header[ttl] -= 1;
    if ethertype == IPV4 {
        header[10..12].fill(0);
        let checksum = checksum(sum(header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The headers of a UDP datagram in an Ethernet frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpHeaders {
    /// The destination's MAC address.
    pub to_mac: [u8; 6],
    /// The source's MAC address.
    pub from_mac: [u8; 6],
    /// The identifier in an 802.1Q tag, where there is one.
    pub vlan: Option<u16>,
    /// Source and destination address.
    pub addresses: Addresses,
    /// The source's port.
    pub from_port: u16,
    /// The destination's port.
    pub to_port: u16,
    /// TTL or hop limit.
    pub ttl: u8,
}

/// Source and destination address of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// From one IPv4 address to another.
    V4(Ipv4Addr, Ipv4Addr),
    /// From one IPv6 address to another.
    V6(Ipv6Addr, Ipv6Addr),
}

impl UdpHeaders {
    /// Where the payload starts: the length of all the headers.
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        self.udp_offset() + UDP_LEN
    }

    /// Writes the headers in front of a payload that is in its place already. Lengths and
    /// checksums are right for a frame that ends where `frame` does.
    ///
    /// # Panics
    /// When `frame` is shorter than the headers or longer than a datagram can be.
    pub fn write(&self, frame: &mut [u8]) {
        self.write_ethernet(frame);
        let (network, udp) = frame[self.network_offset()..].split_at_mut(self.network_len());
        let len = u16::try_from(udp.len() + IPV6_LEN).expect("a datagram fits 16 bits of length")
            - IPV6_LEN as u16;
        match self.addresses {
            Addresses::V4(from, to) => self.write_ipv4(network, from, to, len),
            Addresses::V6(from, to) => self.write_ipv6(network, from, to, len),
        }
        udp[..2].copy_from_slice(&self.from_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.to_port.to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        udp[6..8].fill(0);
        let pseudo = sum(&network[self.addresses.offset()..]) + u64::from(UDP) + u64::from(len);
        let checksum = match checksum(pseudo + sum(udp)) {
            0 => 0xffff, // 0 would say that there is none (RFC 768)
            checksum => checksum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_ethernet(&self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&self.to_mac);
        frame[6..12].copy_from_slice(&self.from_mac);
        if let Some(id) = self.vlan {
            frame[12..14].copy_from_slice(&VLAN[0].to_be_bytes());
            frame[14..16].copy_from_slice(&(id & 0x0fff).to_be_bytes());
        }
        let at = self.network_offset() - 2;
        frame[at..at + 2].copy_from_slice(&self.addresses.ethertype().to_be_bytes());
    }

    fn write_ipv4(&self, header: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, udp_len: u16) {
        let len = (udp_len + IPV4_LEN as u16).to_be_bytes();
        header[..4].copy_from_slice(&[0x45, 0, len[0], len[1]]);
        header[4..12].copy_from_slice(&[0, 0, 0x40, 0, self.ttl, UDP, 0, 0]);
        header[12..16].copy_from_slice(&from.octets());
        header[16..].copy_from_slice(&to.octets());
        let checksum = checksum(sum(header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_ipv6(&self, header: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, udp_len: u16) {
        let len = udp_len.to_be_bytes();
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, len[0], len[1], UDP, self.ttl]);
        header[8..24].copy_from_slice(&from.octets());
        header[24..].copy_from_slice(&to.octets());
    }

    fn network_offset(&self) -> usize {
        MACS_LEN + 2 + if self.vlan.is_some() { TAG_LEN } else { 0 }
    }

    fn network_len(&self) -> usize {
        match self.addresses {
            Addresses::V4(..) => IPV4_LEN,
            Addresses::V6(..) => IPV6_LEN,
        }
    }

    fn udp_offset(&self) -> usize {
        self.network_offset() + self.network_len()
    }
}

impl Addresses {
    fn ethertype(&self) -> u16 {
        match self {
            Self::V4(..) => IPV4,
            Self::V6(..) => IPV6,
        }
    }

    /// Where in the network header the two addresses are.
    fn offset(&self) -> usize {
        match self {
            Self::V4(..) => 12,
            Self::V6(..) => 8,
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// The sum of the 16-bit words, not folded; an odd last byte counts as a word's first (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    odd + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>()
}

fn checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> UdpHeaders {
        UdpHeaders {
            to_mac: [2, 0, 0, 0, 0, 1],
            from_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            addresses: Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)),
            from_port: 1000,
            to_port: 53,
            ttl: 64,
        }
    }

    fn v6() -> UdpHeaders {
        let to = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
        UdpHeaders { addresses: Addresses::V6(Ipv6Addr::LOCALHOST, to), ..v4() }
    }

    fn frame(headers: &UdpHeaders, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xee; headers.payload_offset()];
        frame.extend_from_slice(payload);
        headers.write(&mut frame);
        frame
    }

    #[test]
    fn an_ipv4_frame_is_this_to_the_byte() {
        let expected = [
            0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x08, 0x00, // Ethernet
            0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0,
            2, // IPv4
            0x03, 0xe8, 0, 53, 0, 12, 0xe3, 0xb0, // UDP
            1, 2, 3, 4,
        ];
        assert_eq!(frame(&v4(), &[1, 2, 3, 4]), expected);
    }

    #[test]
    fn checksums_of_odd_and_even_payloads_sum_to_all_ones() {
        for headers in [v4(), v6(), UdpHeaders { vlan: Some(7), ..v4() }] {
            for len in 0..64u8 {
                let frame = frame(&headers, &(0..len).collect::<Vec<_>>());
                let (network, udp) =
                    frame[headers.network_offset()..].split_at(headers.network_len());
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
        for headers in [v4(), v6(), UdpHeaders { vlan: Some(4095), ..v6() }] {
            let frame = frame(&headers, b"payload");
            assert_eq!(udp_payload(&frame), UdpPayload::At(headers.payload_offset()));
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
        assert_eq!(udp_payload(&bytes), UdpPayload::Absent);
    }

    #[test]
    fn options_move_the_payload_and_fragments_have_none() {
        let mut options = frame(&v4(), &[]);
        options[14] = 0x47;
        assert_eq!(udp_payload(&options), UdpPayload::At(50));
        for (at, byte) in [(20, 0x01), (21, 0x01), (23, TCP), (14, 0x44), (14, 0x65), (12, 0x09)] {
            let mut other = frame(&v4(), &[]);
            other[at] = byte;
            assert_eq!(udp_payload(&other), UdpPayload::Absent, "byte {at} = {byte:#x}");
        }
        let mut first_fragment = frame(&v4(), &[]);
        first_fragment[20] = 0x20;
        assert_eq!(udp_payload(&first_fragment), UdpPayload::At(42));
    }

    #[test]
    fn a_cut_frame_says_what_it_needs() {
        let (v4, v6) = (frame(&v4(), &[]), frame(&v6(), &[]));
        assert_eq!(udp_payload(&v4[..13]), UdpPayload::Cut { need: 14 });
        assert_eq!(udp_payload(&v4[..33]), UdpPayload::Cut { need: 34 });
        assert_eq!(udp_payload(&v4[..34]), UdpPayload::At(42));
        assert_eq!(udp_payload(&v6[..53]), UdpPayload::Cut { need: 54 });
        assert_eq!(udp_payload(&[]), UdpPayload::Cut { need: 14 });
    }

    #[test]
    fn a_hop_counts_down_and_keeps_the_checksum_right() {
        for (headers, at) in [(v4(), 22), (v6(), 21), (UdpHeaders { vlan: Some(1), ..v4() }, 26)] {
            let mut hop = frame(&headers, b"x");
            decrement_ttl(&mut hop);
            assert_eq!(hop[at], 63);
            assert_eq!(hop, frame(&UdpHeaders { ttl: 63, ..headers }, b"x"));
        }
        let mut dead = frame(&UdpHeaders { ttl: 0, ..v4() }, b"x");
        let before = dead.clone();
        decrement_ttl(&mut dead);
        decrement_ttl(&mut dead[..20]);
        assert_eq!(dead, before);
    }
}
