//! Ethernet, VLAN, IPv4, IPv6, UDP, TCP and ICMP headers: just enough to find what is inside a frame,
//! and to write one that every device forwards.

pub use crate::ip::{ARP, ICMP, ICMPV6, IPV4, IPV6, TCP, UDP};
pub(crate) use crate::ip::{IPV4_LEN, IPV6_LEN, UDP_LEN};
use crate::ip::{checksum, ipv4_header, ipv6_header, sum, udp_checksum};
use crate::tunnel::Outer;
use std::net::{Ipv4Addr, Ipv6Addr};

const VLAN: [u16; 2] = [0x8100, 0x88a8];
/// A tag of QinQ before it was standardised.
const OLD_VLAN: u16 = 0x9100;
pub(crate) const MAX_VLAN_TAGS: usize = 2;
const MACS_LEN: usize = 12;
pub(crate) const TAG_LEN: usize = 4;
/// Length of the fields before the addresses of ARP, in bytes.
const ARP_LEN: usize = 8;
const TCP_LEN: usize = 20;
const ICMP_LEN: usize = 8;
/// Offset of the header's length in a TCP header.
const TCP_OFFSET_AT: usize = 12;

/// The network layer of an Ethernet frame, behind at most two VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The ethertype behind the tags.
    pub ethertype: u16,
    /// Offset of the network header in the frame.
    pub offset: usize,
}

/// The place of the payload behind a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Offset of the payload, which may lie beyond the end of what was captured.
    At(usize),
    /// The frame has no header of UDP, TCP or ICMP, or is a later fragment.
    Absent,
    /// The frame ends within its headers; to tell, at least this many bytes are needed.
    Cut {
        /// Bytes of the frame.
        need: usize,
    },
}

impl Payload {
    /// Returns the offset, where it is known.
    #[must_use]
    pub fn offset(self) -> Option<usize> {
        match self {
            Self::At(at) => Some(at),
            Self::Absent | Self::Cut { .. } => None,
        }
    }
}

/// Finds the network header; `None` where the frame ends before it.
#[must_use]
pub fn network(frame: &[u8]) -> Option<Network> {
    let (ethertype, offset) = behind_tags(frame.get(MACS_LEN..)?)?;
    Some(Network { ethertype, offset: MACS_LEN + offset })
}

/// Returns the ethertype behind the VLAN tags and the offset of what follows, in a frame without
/// its MACs.
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

/// Returns true if a VLAN tag follows.
pub(crate) fn is_vlan(ethertype: u16) -> bool {
    VLAN.contains(&ethertype) || ethertype == OLD_VLAN
}

/// Returns how long a packet says that it is; `None` where it does not, as one that a card is still
/// to divide.
pub(crate) fn packet_len(ethertype: u16, packet: &[u8]) -> Option<usize> {
    match ethertype {
        IPV4 => Some(usize::from(be16(packet, 2)?)).filter(|len| *len >= IPV4_LEN),
        IPV6 => {
            Some(usize::from(be16(packet, 4)?)).filter(|len| *len > 0).map(|len| IPV6_LEN + len)
        }
        ARP => Some(ARP_LEN + 2 * (usize::from(*packet.get(4)?) + usize::from(*packet.get(5)?))),
        _ => None,
    }
}

/// Returns source and destination of a frame: the addresses of its outermost packet, else the MAC
/// addresses.
#[must_use]
pub fn addresses(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let within = network(frame).and_then(|Network { ethertype, offset }| match ethertype {
        IPV4 => Some((frame.get(offset + 12..offset + 16)?, frame.get(offset + 16..offset + 20)?)),
        IPV6 => Some((frame.get(offset + 8..offset + 24)?, frame.get(offset + 24..offset + 40)?)),
        _ => None,
    });
    within.or_else(|| Some((frame.get(6..12)?, frame.get(..6)?)))
}

/// Returns TTL or hop limit of a frame's outermost packet.
#[must_use]
pub fn ttl(frame: &[u8]) -> Option<u8> {
    let Network { ethertype, offset } = network(frame)?;
    match ethertype {
        IPV4 => frame.get(offset + 8).copied(),
        IPV6 => frame.get(offset + 7).copied(),
        _ => None,
    }
}

/// Finds what the UDP, TCP or ICMP header of an Ethernet frame is followed by. IPv6 extension headers
/// are not followed: such a packet counts as having none of these.
#[must_use]
pub fn transport_payload(frame: &[u8]) -> Payload {
    let Some(Network { ethertype, offset }) = network(frame) else {
        return Payload::Cut { need: (frame.len() + 1).max(MACS_LEN + 2) };
    };
    let (header, header_len): (fn(&[u8]) -> _, _) = match ethertype {
        IPV4 => (ipv4, IPV4_LEN),
        IPV6 => (ipv6, IPV6_LEN),
        _ => return Payload::Absent,
    };
    let (len, protocol) = match frame.get(offset..offset + header_len).map(header) {
        None => return Payload::Cut { need: offset + header_len },
        Some(None) => return Payload::Absent,
        Some(Some(found)) => found,
    };
    payload_behind(frame, offset + len, protocol)
}

/// Finds what a transport header at `at` is followed by.
pub(crate) fn payload_behind(frame: &[u8], at: usize, protocol: u8) -> Payload {
    match protocol {
        UDP => Payload::At(at + UDP_LEN),
        ICMP | ICMPV6 => Payload::At(at + ICMP_LEN),
        TCP => match frame.get(at + TCP_OFFSET_AT) {
            Some(byte) => Payload::At(at + usize::from(byte >> 4).max(TCP_LEN / 4) * 4),
            None => Payload::Cut { need: at + TCP_OFFSET_AT + 1 },
        },
        _ => Payload::Absent,
    }
}

/// Returns the payload of a UDP datagram over IPv4 without VLAN tags or options; `None` of all
/// others.
#[inline]
pub(crate) fn plain_udp_payload(frame: &[u8]) -> Option<&[u8]> {
    const AT: usize = MACS_LEN + 2 + IPV4_LEN + UDP_LEN;
    let (headers, payload) = frame.split_first_chunk::<AT>()?;
    let is_plain = headers[12..15] == [0x08, 0x00, 0x45]
        && headers[20] & 0x1f == 0
        && headers[21] == 0
        && headers[23] == UDP;
    is_plain.then_some(payload)
}

/// Returns the length of an IPv4 header that a transport header follows, and the protocol of that.
fn ipv4(header: &[u8]) -> Option<(usize, u8)> {
    let len = usize::from(header[0] & 0x0f) * 4;
    let first_fragment = header[6] & 0x1f == 0 && header[7] == 0;
    (header[0] >> 4 == 4 && len >= IPV4_LEN && first_fragment).then_some((len, header[9]))
}

/// Returns the length of an IPv6 header, and what follows.
fn ipv6(header: &[u8]) -> Option<(usize, u8)> {
    (header[0] >> 4 == 6).then_some((IPV6_LEN, header[6]))
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

/// A protocol that carries a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// A datagram.
    #[default]
    Udp,
    /// A segment of no connection: its numbers are always the same.
    Tcp,
    /// An echo request, of ICMP or ICMPv6; its identifier is the source's port.
    Icmp,
}

/// The headers of a packet in an Ethernet frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The destination's MAC address.
    pub to_mac: [u8; 6],
    /// The source's MAC address.
    pub from_mac: [u8; 6],
    /// The identifier in an 802.1Q tag, where there is one.
    pub vlan: Option<u16>,
    /// The tunnel around the packet, where there is one.
    pub outer: Option<Outer>,
    /// Source and destination address.
    pub addresses: Addresses,
    /// Protocol that follows them.
    pub protocol: Protocol,
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
    /// IPv4 source and destination.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6 source and destination.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Headers {
    /// Returns where the payload starts: the length of all the headers.
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        self.transport_offset() + self.protocol.header_len()
    }

    /// Returns where the transport header starts.
    #[must_use]
    pub fn transport_offset(&self) -> usize {
        self.network_offset() + self.network_len()
    }

    /// Returns where the source address starts; the destination's follows, and the transport
    /// header.
    #[must_use]
    pub fn addresses_offset(&self) -> usize {
        self.network_offset() + self.addresses.offset()
    }

    /// Returns where the network header starts, behind the tunnel's headers.
    #[must_use]
    pub fn network_offset(&self) -> usize {
        self.outer_offset() + self.outer.as_ref().map_or(0, Outer::bytes_len)
    }

    /// Returns where the headers of a tunnel start.
    #[must_use]
    pub fn outer_offset(&self) -> usize {
        MACS_LEN + 2 + if self.vlan.is_some() { TAG_LEN } else { 0 }
    }

    /// Returns where the tunnel has a checksum of all that it carries.
    #[must_use]
    pub fn outer_checksum_offset(&self) -> Option<usize> {
        Some(self.outer_offset() + self.outer.as_ref()?.checksum_offset()?)
    }

    /// Returns where the transport header has its checksum.
    #[must_use]
    pub fn checksum_offset(&self) -> usize {
        self.transport_offset() + self.protocol.checksum_offset()
    }

    /// Writes the headers in front of a payload that is in its place already. Lengths and
    /// checksums are right for a frame that ends where `frame` does.
    ///
    /// # Panics
    /// When `frame` is shorter than the headers or longer than a packet can be.
    pub fn write(&self, frame: &mut [u8]) {
        self.write_ethernet(frame);
        let (network, transport) = frame[self.network_offset()..].split_at_mut(self.network_len());
        let len = u16::try_from(transport.len() + IPV6_LEN)
            .expect("a packet fits 16 bits of length")
            - IPV6_LEN as u16;
        match self.addresses {
            Addresses::V4(from, to) => {
                let header = ipv4_header(from, to, self.protocol_number(), self.ttl, len);
                network.copy_from_slice(&header);
            }
            Addresses::V6(from, to) => {
                let header = ipv6_header(from, to, self.protocol_number(), self.ttl, len);
                network.copy_from_slice(&header);
            }
        }
        self.write_transport(transport, len);
        let pseudo = match (self.protocol, self.addresses) {
            (Protocol::Icmp, Addresses::V4(..)) => 0,
            _ => {
                let addresses = sum(&network[self.addresses.offset()..]);
                addresses + u64::from(self.protocol_number()) + u64::from(len)
            }
        };
        let all = pseudo + sum(transport);
        let checksum = match self.protocol {
            Protocol::Udp => udp_checksum(all),
            Protocol::Tcp | Protocol::Icmp => checksum(all),
        };
        let at = self.protocol.checksum_offset();
        transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.write_outer(frame);
    }

    /// Writes the transport header with a checksum of 0.
    fn write_transport(&self, header: &mut [u8], len: u16) {
        let (from, to) = (self.from_port.to_be_bytes(), self.to_port.to_be_bytes());
        header[..self.protocol.header_len()].fill(0);
        match self.protocol {
            Protocol::Udp => {
                header[..2].copy_from_slice(&from);
                header[2..4].copy_from_slice(&to);
                header[4..6].copy_from_slice(&len.to_be_bytes());
            }
            Protocol::Tcp => {
                header[..2].copy_from_slice(&from);
                header[2..4].copy_from_slice(&to);
                header[7] = 1;
                header[11] = 1;
                // 20 bytes long; PSH, ACK; the largest window.
                header[12..16].copy_from_slice(&[0x50, 0x18, 0xff, 0xff]);
            }
            Protocol::Icmp => {
                header[0] = if matches!(self.addresses, Addresses::V4(..)) { 8 } else { 128 };
                header[4..6].copy_from_slice(&from);
            }
        }
    }

    fn protocol_number(&self) -> u8 {
        match (self.protocol, self.addresses) {
            (Protocol::Udp, _) => UDP,
            (Protocol::Tcp, _) => TCP,
            (Protocol::Icmp, Addresses::V4(..)) => ICMP,
            (Protocol::Icmp, Addresses::V6(..)) => ICMPV6,
        }
    }

    fn write_ethernet(&self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&self.to_mac);
        frame[6..12].copy_from_slice(&self.from_mac);
        if let Some(id) = self.vlan {
            frame[12..14].copy_from_slice(&VLAN[0].to_be_bytes());
            frame[14..16].copy_from_slice(&(id & 0x0fff).to_be_bytes());
        }
        let at = self.outer_offset();
        let own = self.addresses.ethertype();
        let ethertype = self.outer.as_ref().map_or(own, Outer::ethertype);
        frame[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
    }

    fn write_outer(&self, frame: &mut [u8]) {
        if let Some(outer) = &self.outer {
            let (ethernet, packet) = frame.split_at_mut(self.outer_offset());
            let macs = ethernet.first_chunk().expect("a frame begins with MAC addresses");
            outer.write(packet, macs, self.addresses.ethertype());
        }
    }

    fn network_len(&self) -> usize {
        match self.addresses {
            Addresses::V4(..) => IPV4_LEN,
            Addresses::V6(..) => IPV6_LEN,
        }
    }
}

impl Protocol {
    fn header_len(self) -> usize {
        match self {
            Self::Udp => UDP_LEN,
            Self::Tcp => TCP_LEN,
            Self::Icmp => ICMP_LEN,
        }
    }

    /// Returns where in the header the checksum is.
    fn checksum_offset(self) -> usize {
        match self {
            Self::Udp => 6,
            Self::Tcp => 16,
            Self::Icmp => 2,
        }
    }
}

impl Addresses {
    fn ethertype(&self) -> u16 {
        match self {
            Self::V4(..) => IPV4,
            Self::V6(..) => IPV6,
        }
    }

    /// Returns where in the network header the two addresses are.
    fn offset(&self) -> usize {
        match self {
            Self::V4(..) => 12,
            Self::V6(..) => 8,
        }
    }
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
mod tests;
