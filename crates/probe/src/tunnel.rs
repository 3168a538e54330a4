//! Tunnels: the headers around a packet that a gateway takes off.

use crate::error::Error;
use crate::ip::{
    IPV4, IPV4_LEN, IPV6, IPV6_LEN, UDP, UDP_LEN, ipv4_header, ipv6_header, sum, udp_checksum,
};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Numbers of protocols, ethertypes and ports by which tunnels are known.
pub(crate) const IPIP: u8 = 4;
pub(crate) const IPV6_IN_IP: u8 = 41;
pub(crate) const GRE: u8 = 47;
pub(crate) const MPLS: [u16; 2] = [0x8847, 0x8848];
pub(crate) const BRIDGED: u16 = 0x6558;
pub(crate) const VXLAN: [u16; 2] = [4789, 8472];
pub(crate) const GENEVE: u16 = 6081;
pub(crate) const GTP_U: u16 = 2152;

/// MAC addresses and ethertype of the frame within a tunnel of frames.
const ETHERNET_LEN: usize = 14;
/// Protocol number of a routing header.
const ROUTING: u8 = 43;
/// Type of a routing header that holds segments (RFC 8754).
const SEGMENTS: u8 = 4;
/// Length of a header of VXLAN, GENEVE and GTP-U.
const TUNNEL_LEN: usize = 8;
/// Length of the optional fields of GTP-U and of the extension that names a QoS flow.
const QOS_LEN: usize = 8;
/// In a UDP header.
const UDP_CHECKSUM_AT: usize = 6;
const LABEL_LEN: usize = 4;
const GRE_LEN: usize = 4;
const TTL: u8 = 64;
/// The source port of tunnels over UDP that leave it to the sender.
const SOURCE_PORT: u16 = 49_152;
/// The most values of a 20-bit and of a 24-bit number.
const LABELS: u32 = 1 << 20;
const NETWORKS: u32 = 1 << 24;

/// The kind of a tunnel, with what tells it from others of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// GTP-U (3GPP TS 29.281): the tunnel endpoint, and the QoS flow of a 5G session.
    GtpU {
        /// Tunnel endpoint identifier.
        teid: u32,
        /// QoS flow identifier, in the extension header of a PDU session (TS 38.415).
        qfi: Option<u8>,
    },
    /// VXLAN (RFC 7348).
    Vxlan {
        /// Network identifier.
        vni: u32,
    },
    /// GENEVE without options (RFC 8926), around frames.
    Geneve {
        /// Network identifier.
        vni: u32,
    },
    /// GRE around packets (RFC 2784, RFC 2890).
    Gre {
        /// Key.
        key: Option<u32>,
    },
    /// One MPLS label (RFC 3032).
    Mpls {
        /// Label.
        label: u32,
    },
    /// Segment routing over IPv6 (RFC 8754): segments in the order of the way.
    Srv6 {
        /// Segments.
        segments: Vec<Ipv6Addr>,
    },
    /// IP in IP.
    IpIp,
}

/// A tunnel as an option describes it: `KIND[:NAME=VALUE,...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    kind: Kind,
    from: Option<IpAddr>,
    to: Option<IpAddr>,
}

/// The headers around a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outer {
    kind: Kind,
    /// Outer addresses; of MPLS they are not used.
    addresses: (IpAddr, IpAddr),
}

impl FromStr for Tunnel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, values) = text.split_once(':').unwrap_or((text, ""));
        let mut given = Given { text, values: Vec::new() };
        for value in values.split(',').filter(|value| !value.is_empty()) {
            let (name, value) = value.split_once('=').ok_or_else(|| given.wrong())?;
            if given.values.iter().any(|(known, _)| *known == name) {
                return Err(given.wrong());
            }
            given.values.push((name, value));
        }
        let kind = match kind {
            "gtpu" => Kind::GtpU {
                teid: given.take("teid")?.ok_or_else(|| given.wrong())?,
                qfi: given.below("qfi", 1 << 6)?.map(|qfi| qfi as u8),
            },
            "vxlan" => Kind::Vxlan { vni: given.needed_below("vni", NETWORKS)? },
            "geneve" => Kind::Geneve { vni: given.needed_below("vni", NETWORKS)? },
            "gre" => Kind::Gre { key: given.take("key")? },
            "mpls" => Kind::Mpls { label: given.needed_below("label", LABELS)? },
            "srv6" => Kind::Srv6 { segments: given.segments()? },
            "ipip" => Kind::IpIp,
            _ => return Err(given.wrong()),
        };
        let has_addresses = !matches!(kind, Kind::Mpls { .. });
        let mut address = |name| if has_addresses { given.take(name) } else { Ok(None) };
        let (from, to) = (address("src")?, address("dst")?);
        let of_segments = matches!(kind, Kind::Srv6 { .. });
        let is_mixed =
            from.zip(to).is_some_and(|(from, to): (IpAddr, IpAddr)| from.is_ipv4() != to.is_ipv4());
        let is_v4 = [from, to].iter().flatten().any(IpAddr::is_ipv4);
        if !given.values.is_empty() || is_mixed || (of_segments && (to.is_some() || is_v4)) {
            return Err(given.wrong());
        }
        Ok(Self { kind, from, to })
    }
}

/// The values of a description that are not read yet.
struct Given<'a> {
    text: &'a str,
    values: Vec<(&'a str, &'a str)>,
}

impl Given<'_> {
    fn wrong(&self) -> Error {
        Error::Tunnel { got: self.text.to_owned() }
    }

    fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let Some(at) = self.values.iter().position(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let (_, value) = self.values.remove(at);
        value.parse().map(Some).map_err(|_| self.wrong())
    }

    fn below(&mut self, name: &str, end: u32) -> Result<Option<u32>, Error> {
        match self.take(name)? {
            Some(value) if value >= end => Err(self.wrong()),
            value => Ok(value),
        }
    }

    fn needed_below(&mut self, name: &str, end: u32) -> Result<u32, Error> {
        self.below(name, end)?.ok_or_else(|| self.wrong())
    }

    fn segments(&mut self) -> Result<Vec<Ipv6Addr>, Error> {
        const MOST: usize = 16;
        let text: String = self.take("segments")?.ok_or_else(|| self.wrong())?;
        let segments: Vec<_> =
            text.split('/').map(str::parse).collect::<Result<_, _>>().map_err(|_| self.wrong())?;
        (segments.len() <= MOST).then_some(segments).ok_or_else(|| self.wrong())
    }
}

impl Tunnel {
    /// Returns the headers for packets of a flow, whose addresses are the tunnel's where it has none
    /// of its own; `None` where the two ends would be of different families.
    #[must_use]
    pub fn around(&self, from: IpAddr, to: IpAddr) -> Option<Outer> {
        let (from, to) = match &self.kind {
            Kind::Mpls { .. } => (from, to),
            Kind::Srv6 { segments } => (self.from.unwrap_or(from), segments[0].into()),
            _ => (self.from.unwrap_or(from), self.to.unwrap_or(to)),
        };
        let is_whole = from.is_ipv4() == to.is_ipv4();
        is_whole.then(|| Outer { kind: self.kind.clone(), addresses: (from, to) })
    }
}

impl Outer {
    /// Returns the length of the headers, without the frame's own Ethernet header.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.network_len() + self.tunnel_len()
    }

    /// Returns the ethertype of the frame that carries the tunnel.
    #[must_use]
    pub(crate) fn ethertype(&self) -> u16 {
        match (&self.kind, self.addresses.0) {
            (Kind::Mpls { .. }, _) => MPLS[0],
            (_, IpAddr::V4(_)) => IPV4,
            (_, IpAddr::V6(_)) => IPV6,
        }
    }

    /// Writes the headers to the start of `packet`, which holds what they carry behind them.
    ///
    /// `macs` are the destination's and the source's, `ethertype` is of the packet within. UDP has
    /// no checksum over IPv4, as is usual for tunnels; over IPv6 receivers want one.
    pub(crate) fn write(&self, packet: &mut [u8], macs: &[u8; 12], ethertype: u16) {
        let (network, rest) = packet.split_at_mut(self.network_len());
        let carried = u16::try_from(rest.len()).expect("a packet fits 16 bits of length");
        let protocol = match &self.kind {
            Kind::Gre { .. } => GRE,
            Kind::Srv6 { .. } => ROUTING,
            Kind::IpIp => Self::packet_protocol(ethertype),
            Kind::Mpls { .. } | Kind::GtpU { .. } | Kind::Vxlan { .. } | Kind::Geneve { .. } => UDP,
        };
        match self.addresses {
            _ if network.is_empty() => {}
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                network.copy_from_slice(&ipv4_header(from, to, protocol, TTL, carried));
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                network.copy_from_slice(&ipv6_header(from, to, protocol, TTL, carried));
            }
            _ => unreachable!("both ends are of one family"),
        }
        self.write_tunnel(&mut rest[..self.tunnel_len()], carried, macs, ethertype);
        if self.has_checksum() {
            const ADDRESSES_AT: usize = 8;
            let pseudo = sum(&network[ADDRESSES_AT..]) + u64::from(UDP) + u64::from(carried);
            let checksum = udp_checksum(pseudo + sum(rest));
            rest[UDP_CHECKSUM_AT..UDP_LEN].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// Returns where a checksum is that all of the packet decides; `None` where there is none.
    #[must_use]
    pub fn checksum_offset(&self) -> Option<usize> {
        self.has_checksum().then_some(self.network_len() + UDP_CHECKSUM_AT)
    }

    fn has_checksum(&self) -> bool {
        let is_udp =
            matches!(self.kind, Kind::GtpU { .. } | Kind::Vxlan { .. } | Kind::Geneve { .. });
        is_udp && self.addresses.0.is_ipv6()
    }

    fn write_tunnel(&self, header: &mut [u8], carried: u16, macs: &[u8; 12], ethertype: u16) {
        header.fill(0);
        match &self.kind {
            Kind::GtpU { teid, qfi } => {
                Self::write_udp(header, GTP_U, GTP_U, carried);
                let header = &mut header[UDP_LEN..];
                let len = carried - (UDP_LEN + TUNNEL_LEN) as u16;
                header[..2].copy_from_slice(&[if qfi.is_some() { 0x34 } else { 0x30 }, 0xff]);
                header[2..4].copy_from_slice(&len.to_be_bytes());
                header[4..8].copy_from_slice(&teid.to_be_bytes());
                if let Some(qfi) = qfi {
                    // A PDU session's container, of a packet on its way up.
                    header[11..15].copy_from_slice(&[0x85, 1, 0x10, *qfi]);
                }
            }
            Kind::Vxlan { vni } => {
                Self::write_udp(header, SOURCE_PORT, VXLAN[0], carried);
                header[UDP_LEN] = 0x08;
                header[UDP_LEN + 4..][..4].copy_from_slice(&(vni << 8).to_be_bytes());
                Self::write_ethernet(&mut header[UDP_LEN + TUNNEL_LEN..], macs, ethertype);
            }
            Kind::Geneve { vni } => {
                Self::write_udp(header, SOURCE_PORT, GENEVE, carried);
                header[UDP_LEN + 2..][..2].copy_from_slice(&BRIDGED.to_be_bytes());
                header[UDP_LEN + 4..][..4].copy_from_slice(&(vni << 8).to_be_bytes());
                Self::write_ethernet(&mut header[UDP_LEN + TUNNEL_LEN..], macs, ethertype);
            }
            Kind::Gre { key } => {
                header[2..4].copy_from_slice(&ethertype.to_be_bytes());
                if let Some(key) = key {
                    header[0] = 0x20;
                    header[4..].copy_from_slice(&key.to_be_bytes());
                }
            }
            Kind::Mpls { label } => {
                const LAST: u32 = 1 << 8;
                let entry = label << 12 | LAST | u32::from(TTL);
                header.copy_from_slice(&entry.to_be_bytes());
            }
            Kind::Srv6 { segments } => {
                let last = (segments.len() - 1) as u8;
                header[..5].copy_from_slice(&[
                    Self::packet_protocol(ethertype),
                    2 * (last + 1),
                    SEGMENTS,
                    last,
                    last,
                ]);
                for (place, segment) in header[8..].chunks_exact_mut(16).zip(segments.iter().rev())
                {
                    place.copy_from_slice(&segment.octets());
                }
            }
            Kind::IpIp => {}
        }
    }

    fn write_udp(header: &mut [u8], from: u16, to: u16, len: u16) {
        for (at, value) in [from, to, len].into_iter().enumerate() {
            header[2 * at..2 * at + 2].copy_from_slice(&value.to_be_bytes());
        }
    }

    fn write_ethernet(header: &mut [u8], macs: &[u8; 12], ethertype: u16) {
        header[..12].copy_from_slice(macs);
        header[12..].copy_from_slice(&ethertype.to_be_bytes());
    }

    fn packet_protocol(ethertype: u16) -> u8 {
        if ethertype == IPV4 { IPIP } else { IPV6_IN_IP }
    }

    fn network_len(&self) -> usize {
        match (&self.kind, self.addresses.0) {
            (Kind::Mpls { .. }, _) => 0,
            (_, IpAddr::V4(_)) => IPV4_LEN,
            (_, IpAddr::V6(_)) => IPV6_LEN,
        }
    }

    fn tunnel_len(&self) -> usize {
        match &self.kind {
            Kind::GtpU { qfi, .. } => {
                UDP_LEN + TUNNEL_LEN + if qfi.is_some() { QOS_LEN } else { 0 }
            }
            Kind::Vxlan { .. } | Kind::Geneve { .. } => UDP_LEN + TUNNEL_LEN + ETHERNET_LEN,
            Kind::Gre { key } => GRE_LEN + if key.is_some() { 4 } else { 0 },
            Kind::Mpls { .. } => LABEL_LEN,
            Kind::Srv6 { segments } => 8 + 16 * segments.len(),
            Kind::IpIp => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{Addresses, Headers, Protocol};
    use crate::payload;
    use std::net::Ipv4Addr;

    const TUNNELS: [(&str, usize); 12] = [
        ("gtpu:teid=4294967295", 36),
        ("gtpu:teid=7,qfi=63", 44),
        ("vxlan:vni=16777215", 50),
        ("vxlan:vni=5,src=fd00::1,dst=fd00::2", 70),
        ("geneve:vni=6", 50),
        ("gre", 24),
        ("gre:key=8,src=192.0.2.7", 28),
        ("mpls:label=1048575", 4),
        ("srv6:segments=fd00::1,src=fd00::9", 64),
        ("srv6:segments=fd00::1/fd00::2,src=fd00::3", 80),
        ("ipip", 20),
        ("ipip:src=fd00::1,dst=fd00::2", 40),
    ];

    fn around(tunnel: &str) -> Outer {
        let ends = [1, 2].map(|host| IpAddr::from(Ipv4Addr::new(192, 0, 2, host)));
        tunnel.parse::<Tunnel>().unwrap().around(ends[0], ends[1]).unwrap()
    }

    #[test]
    fn a_probe_is_found_in_every_tunnel() {
        let v4 = Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1));
        let v6 = Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        for (tunnel, len) in TUNNELS {
            for (addresses, protocol, vlan) in [
                (v4, Protocol::Udp, None),
                (v6, Protocol::Tcp, Some(7)),
                (v4, Protocol::Icmp, None),
            ] {
                let (to_mac, from_mac, ports) = ([2; 6], [4; 6], (1024, 53));
                let headers = Headers {
                    to_mac,
                    from_mac,
                    vlan,
                    outer: Some(around(tunnel)),
                    addresses,
                    protocol,
                    from_port: ports.0,
                    to_port: ports.1,
                    ttl: 64,
                };
                let bare = Headers { outer: None, ..headers.clone() };
                assert_eq!(headers.payload_offset() - bare.payload_offset(), len, "{tunnel}");
                let at = headers.payload_offset();
                let mut frame = vec![0; at + payload::DEPARTED_LEN];
                payload::write(&mut frame[at..], 9);
                headers.write(&mut frame);
                let found = payload::find(&frame).expect(tunnel);
                assert_eq!((payload::read(found), found.len()), (Some(9), payload::DEPARTED_LEN));
                assert!((0..at + 4).all(|end| payload::find(&frame[..end]).is_none()));
            }
        }
    }

    #[test]
    fn what_describes_no_tunnel_is_refused() {
        for wrong in [
            "",
            "l2tp",
            "gtpu",
            "gtpu:teid",
            "gtpu:teid=x",
            "gtpu:teid=1,teid=2",
            "gtpu:teid=1,qfi=64",
            "gtpu:teid=1,vni=2",
            "vxlan:vni=16777216",
            "mpls:label=1048576",
            "mpls:label=1,src=10.0.0.1",
            "srv6",
            "srv6:segments=10.0.0.1",
            "srv6:segments=fd00::1,dst=fd00::2",
            "srv6:segments=fd00::1,src=10.0.0.1",
            "ipip:src=10.0.0.1,dst=fd00::1",
        ] {
            let got = wrong.to_owned();
            assert_eq!(wrong.parse::<Tunnel>(), Err(Error::Tunnel { got }), "{wrong}");
        }
        let mixed: Tunnel = "ipip:src=fd00::1".parse().unwrap();
        let ends = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        assert_eq!(mixed.around(ends[1], ends[0]), None);
        let segments: Tunnel = "srv6:segments=fd00::1".parse().unwrap();
        assert_eq!(segments.around(ends[0], ends[0]), None);
        assert!(segments.around(ends[1], ends[1]).is_some());
    }
}
