//! The packets within a packet: network headers behind tags, labels and tunnels.

use crate::headers::{self, be16};
use crate::missing::Missing;
use crate::tunnel::{BRIDGED, GENEVE, GRE, GTP_U, IPIP, IPV6_IN_IP, MPLS, VXLAN};

/// Tunnels within each other that are followed.
const MOST_LAYERS: usize = 8;

const AH: u8 = 51;

const PPPOE: u16 = 0x8864;
const ERSPAN: [u16; 2] = [0x88be, 0x22eb];

/// A network header, and where what it carries lies in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// Offset at which the header starts.
    pub at: usize,
    /// Offset at which the transport header starts, behind options and extension headers.
    pub transport: usize,
    /// Offset at which the packet ends, as its header says; at most where the frame on the wire
    /// did.
    pub end: usize,
    /// The number of the transport protocol.
    pub protocol: u8,
    /// Identification and offset of a later fragment; zeros otherwise.
    pub fragment: [u8; 6],
}

impl Network {
    /// Returns true if this is a fragment without the transport header.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment[4..] != [0, 0]
    }
}

/// The next layer of a frame.
#[derive(Clone, Copy, Debug)]
enum Next {
    Ethernet(usize),
    Ethertype(u16, usize),
}

/// Returns where the payload of the innermost packet starts, behind its header of UDP, TCP or ICMP;
/// `None` where it has none of these, or the frame ends before.
#[must_use]
pub(crate) fn innermost_payload(frame: &[u8]) -> Option<usize> {
    let Network { transport, protocol, .. } =
        Layers::new(frame, 0).innermost().ok().filter(|network| !network.is_later_fragment())?;
    headers::payload_behind(frame, transport, protocol).offset()
}

/// A frame of which `data` was captured.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    data: &'a [u8],
    wire: usize,
}

impl<'a> Layers<'a> {
    pub fn new(data: &'a [u8], orig_len: u32) -> Self {
        Self { data, wire: data.len().max(orig_len as usize) }
    }

    /// Returns the outermost network header, behind any number of VLAN tags.
    pub fn network(self) -> Result<Network, Missing> {
        match self.tagged(Next::Ethernet(0))? {
            (headers::IPV4, at) => self.ipv4(at),
            (headers::IPV6, at) => self.ipv6(at),
            _ => Err(Missing::NotThere),
        }
    }

    /// Returns the network header at `at`.
    pub fn packet(self, at: usize) -> Result<Network, Missing> {
        match self.bytes(at, 1)?[0] >> 4 {
            4 => self.ipv4(at),
            6 => self.ipv6(at),
            _ => Err(Missing::NotThere),
        }
    }

    /// Returns the network header of the innermost packet: behind VXLAN, GENEVE, GTP-U, GRE, MPLS,
    /// PPPoE and IP in IP. What only looks like a tunnel is taken for a payload.
    pub fn innermost(self) -> Result<Network, Missing> {
        let mut next = Next::Ethernet(0);
        let mut found = Err(Missing::NotThere);
        for _ in 0..MOST_LAYERS {
            let (ethertype, at) = match self.tagged(next) {
                Ok(behind) => behind,
                Err(missing) => return found.or(Err(missing)),
            };
            let inside = match ethertype {
                headers::IPV4 | headers::IPV6 => {
                    let network =
                        if ethertype == headers::IPV4 { self.ipv4(at) } else { self.ipv6(at) };
                    match network {
                        Ok(network) => {
                            found = Ok(network);
                            self.inside(network)
                        }
                        Err(missing) => return found.or(Err(missing)),
                    }
                }
                _ => self.behind_labels(ethertype, at),
            };
            match inside {
                Some(inside) => next = inside,
                None => break,
            }
        }
        found
    }

    /// Returns the ethertype and what follows it, behind the VLAN tags.
    fn tagged(self, next: Next) -> Result<(u16, usize), Missing> {
        let (mut ethertype, mut at) = match next {
            Next::Ethernet(at) => (self.be16(at + 12)?, at + 14),
            Next::Ethertype(ethertype, at) => (ethertype, at),
        };
        while headers::is_vlan(ethertype) {
            (ethertype, at) = (self.be16(at + 2)?, at + 4);
        }
        Ok((ethertype, at))
    }

    fn ipv4(self, at: usize) -> Result<Network, Missing> {
        let header = self.bytes(at, headers::IPV4_LEN)?;
        let len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || len < headers::IPV4_LEN {
            return Err(Missing::NotThere);
        }
        let mut fragment = [0; 6];
        let offset = [header[6] & 0x1f, header[7]];
        if offset != [0, 0] {
            fragment[..2].copy_from_slice(&header[4..6]);
            fragment[4..].copy_from_slice(&offset);
        }
        let end = self.end(at, headers::packet_len(headers::IPV4, header));
        Ok(Network { at, transport: at + len, end, protocol: header[9], fragment })
    }

    fn ipv6(self, at: usize) -> Result<Network, Missing> {
        let header = self.bytes(at, headers::IPV6_LEN)?;
        if header[0] >> 4 != 6 {
            return Err(Missing::NotThere);
        }
        let end = self.end(at, headers::packet_len(headers::IPV6, header));
        let (mut protocol, mut transport) = (header[6], at + headers::IPV6_LEN);
        let mut fragment = [0; 6];
        for _ in 0..MOST_LAYERS {
            let len = match protocol {
                0 | 43 | 60 => 8 + 8 * usize::from(self.bytes(transport, 2)?[1]),
                44 => {
                    let header = self.bytes(transport, 8)?;
                    if [header[2], header[3] & 0xf8] != [0, 0] {
                        fragment[..4].copy_from_slice(&header[4..8]);
                        fragment[4..].copy_from_slice(&[header[2], header[3] & 0xf8]);
                    }
                    8
                }
                AH => 8 + 4 * usize::from(self.bytes(transport, 2)?[1]),
                _ => break,
            };
            protocol = self.bytes(transport, 1)?[0];
            transport += len;
            if fragment != [0; 6] {
                break;
            }
        }
        Ok(Network { at, transport, end, protocol, fragment })
    }

    fn end(self, at: usize, len: Option<usize>) -> usize {
        len.map_or(self.wire, |len| (at + len).min(self.wire))
    }

    /// Returns what a packet tunnels, if it does.
    fn inside(self, network: Network) -> Option<Next> {
        if network.is_later_fragment() {
            return None;
        }
        let at = network.transport;
        match network.protocol {
            IPIP => Some(Next::Ethertype(headers::IPV4, at)),
            IPV6_IN_IP => Some(Next::Ethertype(headers::IPV6, at)),
            GRE => self.behind_gre(at),
            headers::UDP => self.behind_udp(at),
            _ => None,
        }
    }

    fn behind_gre(self, at: usize) -> Option<Next> {
        let header = self.data.get(at..at + 4)?;
        if header[1] & 0x07 != 0 {
            return None;
        }
        let optional = [0x80, 0x20, 0x10].iter().filter(|flag| header[0] & **flag != 0).count();
        let (ethertype, at) = (be16(header, 2)?, at + 4 + 4 * optional);
        match ethertype {
            BRIDGED => Some(Next::Ethernet(at)),
            // Type II, with a sequence number, and type III; type I has no header of its own.
            _ if ethertype == ERSPAN[0] => {
                Some(Next::Ethernet(at + if optional > 0 { 8 } else { 0 }))
            }
            _ if ethertype == ERSPAN[1] => Some(Next::Ethernet(at + 12)),
            _ => Some(Next::Ethertype(ethertype, at)),
        }
    }

    fn behind_udp(self, at: usize) -> Option<Next> {
        let header = self.data.get(at..at + 16)?;
        let (port, tunnel) = (be16(header, 2)?, &header[8..]);
        match port {
            _ if VXLAN.contains(&port) && tunnel[0] & 0x08 != 0 => Some(Next::Ethernet(at + 16)),
            GENEVE if tunnel[0] >> 6 == 0 => {
                let behind = at + 16 + 4 * usize::from(tunnel[0] & 0x3f);
                match be16(tunnel, 2)? {
                    BRIDGED => Some(Next::Ethernet(behind)),
                    ethertype => Some(Next::Ethertype(ethertype, behind)),
                }
            }
            GTP_U if tunnel[0] >> 4 == 3 && tunnel[1] == 0xff => self.behind_gtp(at + 8),
            _ => None,
        }
    }

    /// Returns a user's packet in GTP version 1 (3GPP TS 29.281, §5).
    fn behind_gtp(self, at: usize) -> Option<Next> {
        let flags = *self.data.get(at)?;
        let mut behind = at + 8;
        if flags & 0x07 != 0 {
            behind += 4;
            let mut extension = flags & 0x04 != 0 && *self.data.get(behind - 1)? != 0;
            for _ in 0..MOST_LAYERS {
                if !extension {
                    break;
                }
                behind += 4 * usize::from(*self.data.get(behind)?).max(1);
                extension = *self.data.get(behind - 1)? != 0;
            }
        }
        self.by_version(behind)
    }

    fn behind_labels(self, ethertype: u16, at: usize) -> Option<Next> {
        match ethertype {
            _ if MPLS.contains(&ethertype) => {
                let labels = self.data.get(at..)?.chunks_exact(4);
                let last = labels.take(2 * MOST_LAYERS).position(|label| label[2] & 1 != 0)?;
                let behind = at + 4 * (last + 1);
                // A pseudowire begins with a control word (RFC 4385), else with a MAC address.
                self.by_version(behind).or_else(|| {
                    let word = *self.data.get(behind)? >> 4 == 0;
                    Some(Next::Ethernet(behind + if word { 4 } else { 0 }))
                })
            }
            PPPOE => match be16(self.data, at + 6)? {
                0x0021 => Some(Next::Ethertype(headers::IPV4, at + 8)),
                0x0057 => Some(Next::Ethertype(headers::IPV6, at + 8)),
                _ => None,
            },
            _ => None,
        }
    }

    fn by_version(self, at: usize) -> Option<Next> {
        match self.data.get(at)? >> 4 {
            4 => Some(Next::Ethertype(headers::IPV4, at)),
            6 => Some(Next::Ethertype(headers::IPV6, at)),
            _ => None,
        }
    }

    fn be16(self, at: usize) -> Result<u16, Missing> {
        self.bytes(at, 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }

    fn bytes(self, at: usize, len: usize) -> Result<&'a [u8], Missing> {
        let end = at + len;
        if end > self.wire {
            return Err(Missing::NotThere);
        }
        self.data.get(at..end).ok_or(Missing::Short(end as u32))
    }
}
