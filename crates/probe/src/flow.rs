//! Flows: packets of the same addresses, ports, protocol and VLAN.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::headers::{self, be16};
use crate::layers::Layers;

const MACS_LEN: usize = 12;
const ETHERNET_LEN: usize = 14;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
/// Types of echo requests and replies, of ICMP and of ICMPv6.
const ECHOES: [[u8; 2]; 2] = [[0, 8], [128, 129]];
/// Congestion marks, which routers on the way set.
const CONGESTION: u8 = 0x03;
/// Ports of tunnels lie among these: what is sent to others is plain.
const TUNNELS: [u16; 4] = [4789, 8472, 6081, 2152];

/// A flow: what the headers of the innermost packet of a frame say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Source address; of a frame without a network header that is read, its MAC address.
    pub from: u128,
    /// Destination, likewise.
    pub to: u128,
    /// The ethertype of the header that the addresses are of; 0: none is known.
    pub ethertype: u16,
    /// Transport protocol.
    pub protocol: u8,
    /// Type of service or traffic class, without congestion marks.
    pub tos: u8,
    /// The source's port, or the identifier of an echo.
    pub from_port: Option<u16>,
    /// The destination's port.
    pub to_port: Option<u16>,
    /// The identifier in the outermost VLAN tag.
    pub vlan: Option<u16>,
}

/// The bytes of a frame that [`Flow::plain`] goes by: frames of which they are equal are of one flow, if it is plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head([u128; 2]);

impl Head {
    /// Ethertype, version, type of service without congestion marks, fragment and protocol.
    const FIRST: u128 = u128::from_le_bytes([
        0xff,
        0xff,
        0xff,
        !CONGESTION,
        0,
        0,
        0,
        0,
        0x1f,
        0xff,
        0,
        0xff,
        0,
        0,
        0,
        0,
    ]);
    /// Addresses and ports.
    const SECOND: u128 = u128::MAX << 32;

    /// Returns them; `None` of a frame that is too short.
    #[inline]
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let head: &[u8; 38] = frame.first_chunk()?;
        let word = |at: usize| u128::from_le_bytes(*head[at..].first_chunk().expect("16 bytes"));
        Some(Self([word(12) & Self::FIRST, word(22) & Self::SECOND]))
    }

    /// Returns bits that are spread evenly.
    #[inline]
    #[must_use]
    pub fn hash(self) -> usize {
        let [first, second] = self.0;
        let folded = (second >> 64) as u64 ^ (second as u64).rotate_left(29) ^ first as u64;
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

impl Flow {
    /// Returns the flow of a frame that had `orig_len` bytes.
    #[inline]
    #[must_use]
    pub fn of(frame: &[u8], orig_len: u32) -> Self {
        Self::plain(frame).unwrap_or_else(|| Self::behind(frame, orig_len))
    }

    /// Returns the flow of a TCP segment or UDP datagram in IPv4 without options, in no tunnel.
    #[inline]
    #[must_use]
    pub fn plain(frame: &[u8]) -> Option<Self> {
        let head: &[u8; 38] = frame.first_chunk()?;
        let is_plain = head[12..15] == [0x08, 0x00, 0x45] && head[20] & 0x1f == 0 && head[21] == 0;
        let protocol = head[23];
        let to_port = u16::from_be_bytes([head[36], head[37]]);
        let is_tunnel = protocol == headers::UDP && TUNNELS.contains(&to_port);
        if !is_plain || is_tunnel || ![headers::UDP, headers::TCP].contains(&protocol) {
            return None;
        }
        let address = |at: usize| {
            u128::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]))
        };
        Some(Self {
            from: address(26),
            to: address(30),
            ethertype: headers::IPV4,
            protocol,
            tos: head[15] & !CONGESTION,
            from_port: Some(u16::from_be_bytes([head[34], head[35]])),
            to_port: Some(to_port),
            vlan: None,
        })
    }

    #[inline(never)]
    fn behind(frame: &[u8], orig_len: u32) -> Self {
        let number = |bytes: Option<&[u8]>| {
            bytes.unwrap_or_default().iter().fold(0, |all, byte| all << 8 | u128::from(*byte))
        };
        let outer = be16(frame, MACS_LEN).unwrap_or(0);
        let is_tagged = headers::is_vlan(outer);
        let tag = be16(frame, ETHERNET_LEN).filter(|_| is_tagged);
        let vlan = tag.map(|tag| tag & 0x0fff);
        let Ok(network) = Layers::new(frame, orig_len).innermost() else {
            let (from, to) = (number(frame.get(6..12)), number(frame.get(..6)));
            let ethertype = headers::network(frame).map_or(outer, |network| network.ethertype);
            return Self { from, to, ethertype, vlan, ..Self::default() };
        };
        let header = frame.get(network.at..).unwrap_or_default();
        let is_ipv4 = header.first().is_some_and(|first| first >> 4 == 4);
        let (ethertype, addresses, tos) = if is_ipv4 {
            (headers::IPV4, [12..16, 16..20], header.get(1).copied().unwrap_or(0))
        } else {
            let class = be16(header, 0).unwrap_or(0) >> 4;
            (headers::IPV6, [8..24, 24..40], class as u8)
        };
        let [from, to] = addresses.map(|at| number(header.get(at)));
        let protocol = network.protocol;
        let (tos, behind) = (tos & !CONGESTION, network.transport);
        let whole = !network.is_later_fragment();
        let (from_port, to_port) = match protocol {
            headers::UDP | headers::TCP | SCTP | UDP_LITE if whole => {
                (be16(frame, behind), be16(frame, behind + 2))
            }
            headers::ICMP | headers::ICMPV6 if whole => {
                let echoes = ECHOES[usize::from(protocol == headers::ICMPV6)];
                let is_echo = frame.get(behind).is_some_and(|kind| echoes.contains(kind));
                (be16(frame, behind + 4).filter(|_| is_echo), None)
            }
            _ => (None, None),
        };
        Self { from, to, ethertype, protocol, tos, from_port, to_port, vlan }
    }

    /// Returns the name of the protocol.
    #[must_use]
    pub fn protocol(&self) -> String {
        match (self.ethertype, self.protocol) {
            (headers::IPV4 | headers::IPV6, headers::UDP) => "udp".into(),
            (headers::IPV4 | headers::IPV6, headers::TCP) => "tcp".into(),
            (headers::IPV4, headers::ICMP) => "icmp".into(),
            (headers::IPV6, headers::ICMPV6) => "icmpv6".into(),
            (headers::IPV4 | headers::IPV6, SCTP) => "sctp".into(),
            (headers::IPV4 | headers::IPV6, number) => format!("ip protocol {number}"),
            (headers::ARP, _) => "arp".into(),
            (ethertype, _) => format!("ethertype {ethertype:#06x}"),
        }
    }

    fn end(&self, address: u128, port: Option<u16>) -> String {
        let is_echo = [headers::ICMP, headers::ICMPV6].contains(&self.protocol);
        let port = port.filter(|_| !is_echo);
        match (self.ethertype, port) {
            (headers::IPV4, None) => Ipv4Addr::from(address as u32).to_string(),
            (headers::IPV4, Some(port)) => format!("{}:{port}", Ipv4Addr::from(address as u32)),
            (headers::IPV6, None) => Ipv6Addr::from(address).to_string(),
            (headers::IPV6, Some(port)) => format!("[{}]:{port}", Ipv6Addr::from(address)),
            _ => {
                let bytes = &address.to_be_bytes()[10..];
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
            }
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.end(self.from, self.from_port), self.end(self.to, self.to_port));
        write!(f, "{from} > {to} {}", self.protocol())?;
        if let Some(id) = self.from_port.filter(|_| self.protocol().starts_with("icmp")) {
            write!(f, " id {id}")?;
        }
        self.vlan.map_or(Ok(()), |vlan| write!(f, " vlan {vlan}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{Addresses, Headers, Protocol};

    fn frame(protocol: Protocol, v6: bool, vlan: Option<u16>) -> Vec<u8> {
        let addresses = if v6 {
            Addresses::V6("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            Addresses::V4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        };
        let (to_mac, from_mac) = ([2; 6], [4; 6]);
        let (from_port, to_port, ttl) = (1234, 443, 64);
        let headers = Headers {
            to_mac,
            from_mac,
            vlan,
            outer: None,
            addresses,
            protocol,
            from_port,
            to_port,
            ttl,
        };
        let mut frame = vec![0; headers.payload_offset() + 20];
        headers.write(&mut frame);
        frame
    }

    fn name(frame: &[u8]) -> String {
        Flow::of(frame, frame.len() as u32).to_string()
    }

    #[test]
    fn a_flow_is_named_by_its_headers() {
        for (protocol, v6, vlan, expected) in [
            (Protocol::Udp, false, None, "10.0.0.1:1234 > 10.0.0.2:443 udp"),
            (Protocol::Tcp, false, Some(7), "10.0.0.1:1234 > 10.0.0.2:443 tcp vlan 7"),
            (Protocol::Icmp, false, None, "10.0.0.1 > 10.0.0.2 icmp id 1234"),
            (Protocol::Udp, true, None, "[2001:db8::1]:1234 > [2001:db8::2]:443 udp"),
            (Protocol::Icmp, true, Some(7), "2001:db8::1 > 2001:db8::2 icmpv6 id 1234 vlan 7"),
        ] {
            assert_eq!(name(&frame(protocol, v6, vlan)), expected);
        }
    }

    #[test]
    fn the_quick_way_says_the_same() {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let mut frame = frame(protocol, false, None);
            frame[15] = 0xb9;
            let flow = Flow::plain(&frame).unwrap();
            assert_eq!(flow, Flow::behind(&frame, frame.len() as u32));
            assert_eq!(flow.tos, 0xb8);
        }
    }

    #[test]
    fn frames_of_one_head_are_of_one_flow() {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let known = frame(protocol, false, None);
            for at in 0..known.len() {
                for bit in 0..8 {
                    let mut other = known.clone();
                    other[at] ^= 1 << bit;
                    let same = Head::of(&other) == Head::of(&known);
                    assert_eq!(
                        same,
                        Flow::plain(&other) == Flow::plain(&known),
                        "bit {bit} of byte {at}"
                    );
                }
            }
        }
        assert_eq!(Head::of(&[0; 37]), None);
    }

    #[test]
    fn within_a_tunnel_it_is_that_of_the_inner_packet() {
        let inner = frame(Protocol::Tcp, false, None);
        let mut outer = frame(Protocol::Udp, false, None);
        outer.truncate(ETHERNET_LEN + 28);
        outer[36..38].copy_from_slice(&4789_u16.to_be_bytes());
        outer[16..18].copy_from_slice(&((28 + 8 + inner.len()) as u16).to_be_bytes());
        outer.extend([0x08, 0, 0, 0, 0, 0, 1, 0]);
        outer.extend(&inner);
        assert_eq!(name(&outer), name(&inner));
    }

    #[test]
    fn what_is_no_packet_is_named_by_its_mac_addresses() {
        let mut frame = vec![2; 60];
        frame[6..12].fill(4);
        frame[12..14].copy_from_slice(&0x88cc_u16.to_be_bytes());
        assert_eq!(name(&frame), "04:04:04:04:04:04 > 02:02:02:02:02:02 ethertype 0x88cc");
        for len in 0..frame.len() {
            let _ = name(&frame[..len]);
        }
    }
}
