//! What a router does to a packet (RFC 1812): check its header, count down its time, address it anew.

use probe::headers::{IPV4, IPV6, network};

/// Packets that were not forwarded, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// A header that is cut off or contradicts itself, or a wrong checksum.
    pub bad_header: u64,
    /// TTL or hop limit was used up.
    pub expired: u64,
    /// No route.
    pub no_route: u64,
}

impl Dropped {
    /// As pairs of reason and count.
    pub fn by_reason(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("not_ip", self.not_ip),
            ("bad_header", self.bad_header),
            ("expired", self.expired),
            ("no_route", self.no_route),
        ]
    }
}

/// A packet that can be forwarded, by the address it wants to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In host order.
    V4(u32),
    /// In network order.
    V6([u8; 16]),
}

/// Checks a packet and counts down its time; `None` for one that is not forwarded, which was counted.
/// VLAN tags are looked behind, and stay.
#[inline(always)]
pub fn classify(frame: &mut [u8], dropped: &mut Dropped) -> Option<Kind> {
    let found = network(frame).filter(|found| [IPV4, IPV6].contains(&found.ethertype));
    let Some(found) = found else {
        dropped.not_ip += 1;
        return None;
    };
    let packet = &mut frame[found.offset..];
    let checked = if found.ethertype == IPV4 { check_v4(packet) } else { check_v6(packet) };
    match checked {
        Some(Some(kind)) => Some(kind),
        Some(None) => {
            dropped.expired += 1;
            None
        }
        None => {
            dropped.bad_header += 1;
            None
        }
    }
}

/// `None`: a bad header; `Some(None)`: its time is up.
#[inline(always)]
fn check_v4(packet: &mut [u8]) -> Option<Option<Kind>> {
    let first = *packet.first()?;
    let header_len = usize::from(first & 0xf) * 4;
    let header = packet.get(..header_len)?;
    if first >> 4 != 4 || header_len < 20 || ones_sum(header) != 0xffff {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if !(header_len..=packet.len()).contains(&len) {
        return None;
    }
    if packet[8] <= 1 {
        return Some(None);
    }
    packet[8] -= 1;
    // The checksum's complement falls by 0x0100 with the TTL (RFC 1624).
    let (sum, carry) = u16::from_be_bytes([packet[10], packet[11]]).overflowing_add(0x0100);
    let sum = match sum + u16::from(carry) {
        0xffff => 0, // of the two zeros, the one that a sum of the header gives
        sum => sum,
    };
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let address = packet[16..20].first_chunk::<4>()?;
    Some(Some(Kind::V4(u32::from_be_bytes(*address))))
}

#[inline(always)]
fn check_v6(packet: &mut [u8]) -> Option<Option<Kind>> {
    let len = packet.len();
    let header = packet.first_chunk_mut::<40>()?;
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || 40 + payload_len > len {
        return None;
    }
    if header[7] <= 1 {
        return Some(None);
    }
    header[7] -= 1;
    let address = header[24..].first_chunk::<16>()?;
    Some(Some(Kind::V6(*address)))
}

#[inline(always)]
fn ones_sum(header: &[u8]) -> u32 {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Addresses a frame to `mac`, or to an address that names the port, from the port's own.
#[inline(always)]
pub fn send_on(frame: &mut [u8], own: &[u8; 6], mac: Option<[u8; 6]>, port: u16) {
    frame[..6].copy_from_slice(&mac.unwrap_or([0x02, 0, 0, 0, 0, port as u8]));
    frame[6..12].copy_from_slice(own);
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe::headers::{Addresses, Headers, Protocol, decrement_ttl};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn frame(v6: bool, vlan: Option<u16>, ttl: u8, host: u32) -> Vec<u8> {
        let addresses = match v6 {
            false => Addresses::V4(Ipv4Addr::LOCALHOST, Ipv4Addr::from_bits(host)),
            true => Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::from_bits(host.into())),
        };
        let mac = [2, 0, 0, 0, 0, 1];
        let headers = Headers {
            to_mac: mac,
            from_mac: mac,
            vlan,
            outer: None,
            addresses,
            protocol: Protocol::Udp,
            from_port: 1,
            to_port: 2,
            ttl,
        };
        let mut frame = vec![0; 100];
        headers.write(&mut frame);
        frame
    }

    proptest! {
        #[test]
        fn a_good_packet_is_what_a_slow_router_makes_of_it(
            v6: bool, vlan in prop::option::of(1..4095_u16), ttl in 2..=255_u8, host: u32,
        ) {
            let mut fast = frame(v6, vlan, ttl, host);
            let mut slow = fast.clone();
            let mut dropped = Dropped::default();
            let kind = classify(&mut fast, &mut dropped);
            decrement_ttl(&mut slow);
            prop_assert_eq!(fast, slow);
            let expected = if v6 {
                Kind::V6(Ipv6Addr::from_bits(host.into()).octets())
            } else {
                Kind::V4(host)
            };
            prop_assert_eq!((kind, dropped), (Some(expected), Dropped::default()));
        }

        #[test]
        fn whatever_comes_is_forwarded_or_counted(mut bytes in prop::collection::vec(any::<u8>(), 0..80), ip: bool) {
            if ip && bytes.len() > 14 {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            }
            let mut dropped = Dropped::default();
            let kind = classify(&mut bytes, &mut dropped);
            let counted: u64 = dropped.by_reason().iter().map(|(_, count)| count).sum();
            prop_assert_eq!(counted, u64::from(kind.is_none()));
        }
    }

    #[test]
    fn packets_are_dropped_for_one_reason() {
        let dropped = |change: fn(&mut Vec<u8>), v6| {
            let (mut bytes, mut dropped) = (frame(v6, None, 64, 7), Dropped::default());
            change(&mut bytes);
            assert_eq!(classify(&mut bytes, &mut dropped), None);
            dropped
        };
        let bad = Dropped { bad_header: 1, ..Dropped::default() };
        let expired = Dropped { expired: 1, ..Dropped::default() };
        for v6 in [false, true] {
            assert_eq!(dropped(|bytes| bytes[14] = 0x55, v6), bad);
            assert_eq!(dropped(|bytes| bytes.truncate(30), v6), bad);
            assert_eq!(dropped(|bytes| bytes.truncate(90), v6), bad);
            assert_eq!(
                dropped(|bytes| bytes[13] = 6, v6),
                Dropped { not_ip: 1, ..Dropped::default() }
            );
        }
        assert_eq!(dropped(|bytes| bytes[25] ^= 1, false), bad);
        assert_eq!(dropped(|bytes| *bytes = frame(false, None, 1, 7), false), expired);
        assert_eq!(dropped(|bytes| *bytes = frame(true, None, 0, 7), true), expired);
    }
}
