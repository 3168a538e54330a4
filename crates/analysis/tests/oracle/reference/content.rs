//! What `payload` and `inner` recognise a packet by. Of tunnels VXLAN, GRE and IP in IP, and no error
//! messages of ICMP: others are not made here.

use super::Twist;
use super::keys::Keyed;

/// A frame, and how much of it was on the wire.
#[derive(Clone, Copy)]
struct Frame<'a> {
    data: &'a [u8],
    wire: usize,
    twist: Twist,
}

/// An IP packet in a frame.
struct Ip {
    protocol: u8,
    transport: usize,
    end: usize,
    /// Identification and offset of a fragment that is not the first.
    fragment: Option<Vec<u8>>,
}

/// The key of what the outermost or the innermost packet of a frame carries.
pub fn content(data: &[u8], wire: usize, inner: bool, twist: Twist) -> Keyed {
    let frame = Frame { data, wire: wire.max(data.len()), twist };
    let inner = inner && twist != Twist::TunnelIsKey;
    frame.ip(12, inner).and_then(|ip| frame.carried(&ip)).map_or_else(|why| why, Keyed::Key)
}

impl Frame<'_> {
    fn at(&self, at: usize, len: usize) -> Result<&[u8], Keyed> {
        match self.data.get(at..at + len) {
            _ if at + len > self.wire => Err(Keyed::None),
            None => Err(Keyed::Short),
            Some(bytes) => Ok(bytes),
        }
    }

    fn number(&self, at: usize) -> Result<usize, Keyed> {
        self.at(at, 2).map(|pair| usize::from(pair[0]) << 8 | usize::from(pair[1]))
    }

    /// The packet behind the ethertype at `at`.
    fn ip(&self, mut at: usize, inner: bool) -> Result<Ip, Keyed> {
        while [0x8100, 0x88a8].contains(&self.number(at)?) {
            at += 4;
        }
        self.ip_of(self.number(at)?, at + 2, inner)
    }

    fn ip_of(&self, ethertype: usize, at: usize, inner: bool) -> Result<Ip, Keyed> {
        let ip = match ethertype {
            0x0800 => self.ipv4(at)?,
            0x86dd => self.ipv6(at)?,
            _ => return Err(Keyed::None),
        };
        let inside = if inner && ip.fragment.is_none() { self.inside(&ip) } else { None };
        Ok(inside.unwrap_or(ip))
    }

    fn ipv4(&self, at: usize) -> Result<Ip, Keyed> {
        let header = self.at(at, 20)?;
        let words = usize::from(header[0] & 15);
        if header[0] >> 4 != 4 || words < 5 {
            return Err(Keyed::None);
        }
        let offset = [header[6] & 0x1f, header[7]];
        let fragment = (offset != [0, 0]).then(|| [&header[4..6], &[0, 0], &offset].concat());
        let len = usize::from(header[2]) << 8 | usize::from(header[3]);
        let end = if len >= 20 { at + len } else { self.wire };
        Ok(self.packet(header[9], at + 4 * words, end, fragment))
    }

    fn ipv6(&self, at: usize) -> Result<Ip, Keyed> {
        let header = self.at(at, 40)?;
        if header[0] >> 4 != 6 {
            return Err(Keyed::None);
        }
        let len = usize::from(header[4]) << 8 | usize::from(header[5]);
        let end = if len > 0 { at + 40 + len } else { self.wire };
        let (mut protocol, mut transport) = (header[6], at + 40);
        // Hop by hop, routing, destination, authentication.
        while [0, 43, 60, 51].contains(&protocol) {
            let words = usize::from(self.at(transport, 2)?[1]);
            let len = if protocol == 51 { 8 + 4 * words } else { 8 + 8 * words };
            protocol = self.at(transport, 1)?[0];
            transport += len;
        }
        let discovery = self.data.get(transport).is_some_and(|kind| (130..=143).contains(kind));
        if protocol == 58 && discovery {
            return Err(Keyed::None);
        }
        Ok(self.packet(protocol, transport, end, None))
    }

    fn packet(&self, protocol: u8, transport: usize, end: usize, fragment: Option<Vec<u8>>) -> Ip {
        let end = if self.twist == Twist::PayloadHoldsPadding { self.wire } else { end };
        Ip { protocol, transport, end: end.min(self.wire), fragment }
    }

    /// What a packet tunnels, if it does and if that is a packet.
    fn inside(&self, ip: &Ip) -> Option<Ip> {
        let header = self.data.get(ip.transport..)?;
        let found = match ip.protocol {
            4 => self.ip_of(0x0800, ip.transport, true),
            41 => self.ip_of(0x86dd, ip.transport, true),
            47 if header.len() >= 4 && header[1] & 7 == 0 => {
                let words =
                    [0x80, 0x20, 0x10].iter().filter(|flag| header[0] & **flag != 0).count();
                match [header[2], header[3]] {
                    [0x65, 0x58] => self.ip(ip.transport + 4 + 4 * words + 12, true),
                    [high, low] => {
                        let ethertype = usize::from(high) << 8 | usize::from(low);
                        self.ip_of(ethertype, ip.transport + 4 + 4 * words, true)
                    }
                }
            }
            17 if header.len() >= 16 && header[2..4] == [0x12, 0xb5] && header[8] & 8 != 0 => {
                self.ip(ip.transport + 16 + 12, true)
            }
            _ => return None,
        };
        found.ok()
    }

    fn carried(&self, ip: &Ip) -> Result<Vec<u8>, Keyed> {
        let header = |len: usize| match ip.end < ip.transport + len {
            true => Err(Keyed::None),
            false => self.at(ip.transport, len),
        };
        let own = [ip.protocol];
        if let Some(fragment) = &ip.fragment {
            return self.with_payload(ip, ip.transport, &[&own, &fragment[..]]);
        }
        match ip.protocol {
            17 if self.twist == Twist::PayloadHoldsPorts => {
                let ports = header(8)?[..4].to_vec();
                self.with_payload(ip, ip.transport + 8, &[&own, &ports])
            }
            17 => {
                header(8)?;
                self.with_payload(ip, ip.transport + 8, &[&own])
            }
            6 => {
                let tcp = header(20)?.to_vec();
                let payload = ip.transport + usize::from(tcp[12] >> 4).max(5) * 4;
                let alone = self.twist == Twist::SegmentsByPayloadAlone;
                let sequence = if alone { &[][..] } else { &tcp[4..12] };
                self.with_payload(ip, payload, &[&own, sequence, &tcp[13..14]])
            }
            1 | 58 => {
                let icmp = header(8)?.to_vec();
                self.with_payload(ip, ip.transport + 8, &[&own, &icmp[..2], &icmp[6..8]])
            }
            _ => self.with_payload(ip, ip.transport, &[&own]),
        }
    }

    fn with_payload(&self, ip: &Ip, at: usize, fixed: &[&[u8]]) -> Result<Vec<u8>, Keyed> {
        let len = ip.end.saturating_sub(at);
        if len == 0 && fixed.len() == 1 {
            return Err(Keyed::None);
        }
        let payload = if len == 0 { &[] } else { self.at(at, len.min(64))? };
        Ok([&fixed.concat()[..], &(len as u16).to_be_bytes(), payload].concat())
    }
}
