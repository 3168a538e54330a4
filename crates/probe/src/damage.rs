//! Damage of packets: which bytes differ from what was sent, and whether the packet's own checksums say so, too.

use std::ops::Range;

use crate::headers::{self, be16};
use crate::key::MatchOn;
use crate::layers::{Layers, Network};

/// Most bytes that differ.
pub const MOST_BYTES: usize = 4;
const MORE_FRAGMENTS: u8 = 0x20;
const IPV4_CHECKSUM: usize = 10;
const IPV4_TTL: usize = 8;
const IPV6_HOPS: usize = 7;
/// Number that sums of checksums are counted by.
const ONES: u64 = 0xffff;

/// How a packet differs from what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the first byte that differs, in the frame behind the device.
    pub offset_bytes: u32,
    /// Number of bytes that differ.
    pub bytes: u32,
    /// Number of bits that differ.
    pub bits: u32,
}

/// A whole packet of a frame, with checksums.
struct Checked<'a> {
    network: Network,
    packet: &'a [u8],
    /// Offset of the transport header in the packet.
    transport: usize,
    /// Offset of its checksum.
    checksum: usize,
    /// What the sum of the network header is off by, counted by [`ONES`]; 0 where it fits, or there is none.
    header_error: u64,
    /// The same of what it carries.
    error: u64,
}

impl<'a> Checked<'a> {
    fn of(frame: &'a [u8], orig_len: u32) -> Option<Self> {
        let network = Layers::new(frame, orig_len).network().ok()?;
        let packet = frame.get(network.at..network.end)?;
        let transport = network.transport - network.at;
        let is_ipv4 = packet.first()? >> 4 == 4;
        let is_plain = match is_ipv4 {
            true => packet.get(6)? & MORE_FRAGMENTS == 0,
            false => transport == headers::IPV6_LEN,
        };
        let (at, least) = match network.protocol {
            headers::TCP => (16, 20),
            headers::UDP => (6, 8),
            headers::ICMP | headers::ICMPV6 => (2, 8),
            _ => return None,
        };
        let carried = packet.get(transport..).filter(|rest| rest.len() >= least)?;
        let has_none = network.protocol == headers::UDP && be16(carried, at)? == 0;
        if network.is_later_fragment() || !is_plain || has_none {
            return None;
        }
        let header_error = if is_ipv4 { sum(&packet[..transport]) % ONES } else { 0 };
        let pseudo = match network.protocol {
            headers::ICMP => 0,
            protocol => {
                sum(&packet[addresses(is_ipv4)]) + u64::from(protocol) + carried.len() as u64
            }
        };
        let error = (pseudo + sum(carried)) % ONES;
        Some(Self { network, packet, transport, checksum: transport + at, header_error, error })
    }

    fn is_ipv4(&self) -> bool {
        self.packet[0] >> 4 == 4
    }

    fn is_damaged(&self) -> bool {
        self.header_error + self.error > 0
    }

    /// Returns the packet without what a device may change that packets by this key pass.
    fn masked(&self, match_on: &MatchOn) -> Vec<u8> {
        let mut packet = self.packet.to_vec();
        let ttl = if self.is_ipv4() { IPV4_TTL } else { IPV6_HOPS };
        match match_on {
            MatchOn::Auto | MatchOn::Frame => {}
            MatchOn::L3 => packet[ttl] = 0,
            _ => {
                let has_ports = !matches!(self.network.protocol, headers::ICMP | headers::ICMPV6);
                let behind = self.transport + if has_ports { 4 } else { 0 };
                packet[..behind].fill(0);
            }
        }
        if self.is_ipv4() {
            packet[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
        }
        packet[self.checksum..self.checksum + 2].fill(0);
        packet
    }
}

fn addresses(is_ipv4: bool) -> Range<usize> {
    if is_ipv4 { 12..20 } else { 8..40 }
}

/// Returns the sum of the words of these bytes.
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// Returns true if a packet has a checksum that does not fit it.
#[must_use]
pub fn is_damaged(frame: &[u8], orig_len: u32) -> bool {
    Checked::of(frame, orig_len).is_some_and(|packet| packet.is_damaged())
}

/// What packets have in common of which one may be the other, damaged: their shape, and what each checksum would have
/// to be for the rest to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Family {
    is_ipv4: bool,
    transport: usize,
    protocol: u8,
    len: usize,
    fits: [u64; 2],
}

/// A whole packet with checksums, without what a device may change: computed once, compared often.
#[derive(Clone, Debug)]
pub struct Form {
    family: Family,
    is_damaged: bool,
    /// Offset of the packet in its frame.
    at: usize,
    masked: Vec<u8>,
}

impl Form {
    /// Returns the form of a frame that a device passes whose packets are matched by this key; `None` if it has no
    /// checksum, or is not whole.
    #[must_use]
    pub fn of(frame: &[u8], orig_len: u32, match_on: &MatchOn) -> Option<Self> {
        let checked = Checked::of(frame, orig_len)?;
        let masked = checked.masked(match_on);
        let (is_ipv4, transport) = (checked.is_ipv4(), checked.transport);
        let (protocol, len) = (checked.network.protocol, masked.len());
        let header = if is_ipv4 { sum(&masked[..transport]) } else { 0 };
        let pseudo = if protocol == headers::ICMP { 0 } else { sum(&masked[addresses(is_ipv4)]) };
        let carried = pseudo + sum(&masked[transport..]);
        let fit = |error: u64, sum: u64| (error + ONES - sum % ONES) % ONES;
        let fits = [fit(checked.header_error, header), fit(checked.error, carried)];
        let is_damaged = checked.is_damaged();
        let family = Family { is_ipv4, transport, protocol, len, fits };
        Some(Self { family, is_damaged, at: checked.network.at, masked })
    }

    /// Returns true if it has a checksum that does not fit it.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns what it has in common with all that it may have been.
    #[must_use]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Returns how it differs, seen behind the device, from one before it that fits its own checksums, if it is that
    /// one, damaged: at most [`MOST_BYTES`] bytes differ of those that the device leaves alone, and its checksums are
    /// off by exactly what these bytes add up to.
    #[must_use]
    pub fn damage_of(&self, sent: &Self) -> Option<Damage> {
        if sent.is_damaged || !self.is_damaged || sent.family != self.family {
            return None;
        }
        let pairs = sent.masked.iter().zip(&self.masked).enumerate();
        let differing = pairs.filter(|(_, (old, new))| old != new).take(MOST_BYTES + 1);
        let bits: Vec<(usize, u32)> =
            differing.map(|(at, (old, new))| (at, (old ^ new).count_ones())).collect();
        let (offset, _) = *bits.first().filter(|_| bits.len() <= MOST_BYTES)?;
        let (offset_bytes, bytes) = ((self.at + offset) as u32, bits.len() as u32);
        Some(Damage { offset_bytes, bytes, bits: bits.iter().map(|(_, bits)| bits).sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{Addresses, Headers, Protocol};

    fn frame(protocol: Protocol, v6: bool, number: u32) -> Vec<u8> {
        let addresses = if v6 {
            Addresses::V6("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            Addresses::V4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        };
        let (to_mac, from_mac, vlan) = ([2; 6], [4; 6], None);
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
        let payload = headers.payload_offset();
        let mut frame = vec![7; payload + 33];
        headers.write(&mut frame);
        frame[payload..payload + 4].copy_from_slice(&number.to_be_bytes());
        fit(&mut frame);
        frame
    }

    /// Sets the checksum of what a packet carries.
    fn fit(frame: &mut [u8]) {
        let found = Checked::of(frame, frame.len() as u32);
        let at = found.as_ref().map_or(14 + 20 + 6, |of| of.network.at + of.checksum);
        frame[at..at + 2].copy_from_slice(&[0, 1]);
        let error = Checked::of(frame, frame.len() as u32).expect("it has a checksum").error;
        let checksum = (ONES - error + 1) % ONES;
        frame[at..at + 2].copy_from_slice(&(checksum as u16).to_be_bytes());
    }

    fn found(sent: &[u8], seen: &[u8], match_on: &MatchOn) -> Option<Damage> {
        let form = |frame: &[u8]| Form::of(frame, frame.len() as u32, match_on);
        form(seen)?.damage_of(&form(sent)?)
    }

    #[test]
    fn every_bit_of_a_packet_is_told() {
        for (protocol, v6) in [
            (Protocol::Udp, false),
            (Protocol::Tcp, false),
            (Protocol::Icmp, false),
            (Protocol::Udp, true),
            (Protocol::Tcp, true),
        ] {
            let sent = frame(protocol, v6, 5);
            assert!(!is_damaged(&sent, sent.len() as u32), "{protocol:?} {v6}");
            let first = Checked::of(&sent, sent.len() as u32).unwrap();
            let (at, checksum) = (first.network.transport, first.network.at + first.checksum);
            for bit in 8 * at..8 * sent.len() {
                let mut seen = sent.clone();
                seen[bit / 8] ^= 1 << (bit % 8);
                let expected = Damage { offset_bytes: bit as u32 / 8, bytes: 1, bits: 1 };
                let is_told = !(checksum..checksum + 2).contains(&(bit / 8));
                let told = found(&sent, &seen, &MatchOn::Frame);
                assert_eq!(told, is_told.then_some(expected), "{protocol:?} {v6} {bit}");
            }
        }
    }

    #[test]
    fn bits_of_the_header_are_told_by_its_own_checksum() {
        let sent = frame(Protocol::Udp, false, 5);
        let mut seen = sent.clone();
        seen[18] ^= 0x40;
        let expected = Damage { offset_bytes: 18, bytes: 1, bits: 1 };
        assert_eq!(found(&sent, &seen, &MatchOn::Frame), Some(expected));
        assert_eq!(found(&sent, &seen, &MatchOn::Payload), None);
        seen[30] ^= 0x81;
        let expected = Damage { offset_bytes: 18, bytes: 2, bits: 3 };
        assert_eq!(found(&sent, &seen, &MatchOn::Frame), Some(expected));
    }

    #[test]
    fn neighbours_and_what_the_device_changes_are_no_damage() {
        let sent = frame(Protocol::Udp, false, 5);
        let next = frame(Protocol::Udp, false, 6);
        assert_eq!(found(&sent, &next, &MatchOn::Frame), None, "it fits its own checksum");
        let mut damaged = next.clone();
        damaged[60] ^= 1;
        assert_eq!(found(&sent, &damaged, &MatchOn::Frame), None, "it is off by something else");
        assert!(found(&next, &damaged, &MatchOn::Frame).is_some());
        let mut more = next.clone();
        (60..65).for_each(|at| more[at] ^= 1);
        assert_eq!(found(&next, &more, &MatchOn::Frame), None, "too many bytes differ");
        // Another address, with a checksum that fits: then a bit.
        let mut translated = next.clone();
        translated[26] = 11;
        fit(&mut translated);
        translated[24..26].fill(0);
        let header = ONES - sum(&translated[14..34]) % ONES;
        translated[24..26].copy_from_slice(&(header as u16).to_be_bytes());
        assert_eq!(found(&next, &translated, &MatchOn::Payload), None);
        translated[61] ^= 0x10;
        let expected = Damage { offset_bytes: 61, bytes: 1, bits: 1 };
        assert_eq!(found(&next, &translated, &MatchOn::Payload), Some(expected));
    }

    #[test]
    fn any_bytes_are_taken() {
        let sent = frame(Protocol::Tcp, true, 5);
        for len in 0..sent.len() {
            let cut = &sent[..len];
            let _ = (is_damaged(cut, 200), Form::of(cut, 200, &MatchOn::L3));
            assert_eq!(found(cut, &sent, &MatchOn::L3), None);
        }
    }
}
