//! The frame of every probe packet, and what differs from one to the next.

use crate::error::Error;
use dpdk::Mbuf;
use probe::headers::{Addresses, UdpHeaders};
use probe::payload;

/// The frame check sequence that the size of a frame includes and memory does not.
pub const FCS_BYTES: usize = 4;
/// The largest frame, without tags.
const MAX_BYTES: usize = 1518;

/// What the generator sends.
pub trait Content {
    /// Makes `packet` the frame of packet `seq`.
    fn fill(&self, packet: &mut Mbuf, seq: u64, intended_ns: u64, actual_ns: u64);
    /// The same bytes, into `frame`.
    fn copy(&self, frame: &mut Vec<u8>, seq: u64, intended_ns: u64, actual_ns: u64);
    /// The longest frame.
    fn longest(&self) -> usize;
}

/// A frame, and where in it the fields are that change.
#[derive(Clone, Debug)]
pub struct Template {
    frame: Vec<u8>,
    payload_at: usize,
    flows: u64,
    from_port: u16,
    /// The checksum's words that stay the same, added up.
    fixed: u64,
}

impl Template {
    /// A frame of `size` bytes with its check sequence, for `flows` flows that differ by source port.
    pub fn new(headers: &UdpHeaders, size: usize, flows: u16) -> Result<Self, Error> {
        let payload_at = headers.payload_offset();
        let shortest = (payload_at + payload::DEPARTED_LEN + FCS_BYTES).max(64);
        if !(shortest..=MAX_BYTES).contains(&size) {
            let expected = format!("{shortest} to {MAX_BYTES} bytes with these headers");
            return Err(Error::Option { option: "--size", got: size.to_string(), expected });
        }
        let mut frame = vec![0; size - FCS_BYTES];
        let mut headers = headers.clone();
        let from_port = std::mem::replace(&mut headers.from_port, 0);
        headers.write(&mut frame);
        // One's complement of the sum of everything but port and probe, which are 0.
        let at = payload_at - 2;
        let fixed = u64::from(!u16::from_be_bytes([frame[at], frame[at + 1]]));
        Ok(Self { frame, payload_at, flows: flows.into(), from_port, fixed })
    }

    /// All bytes of a frame, except for what [`Template::stamp`] writes.
    pub fn bytes(&self) -> &[u8] {
        &self.frame
    }

    /// Where the payload is.
    pub fn payload_at(&self) -> usize {
        self.payload_at
    }

    /// Makes `frame`, which holds the template's bytes, packet `seq`.
    #[inline(always)]
    pub fn stamp(&self, frame: &mut [u8], seq: u64, intended_ns: u64, actual_ns: u64) {
        let udp = self.payload_at - 8;
        let flow = if self.flows == 1 { 0 } else { (seq % self.flows) as u16 };
        let from_port = self.from_port.wrapping_add(flow);
        let payload = &mut frame[self.payload_at..self.payload_at + payload::DEPARTED_LEN];
        payload::write(payload, seq);
        payload::write_departure(payload, intended_ns, actual_ns);
        let words =
            payload.chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum = self.fixed + u64::from(from_port) + words.sum::<u64>();
        frame[udp..udp + 2].copy_from_slice(&from_port.to_be_bytes());
        frame[udp + 6..udp + 8].copy_from_slice(&checksum(sum).to_be_bytes());
    }
}

impl Content for Template {
    /// `packet` comes from a pool in which all hold the template's bytes.
    #[inline(always)]
    fn fill(&self, packet: &mut Mbuf, seq: u64, intended_ns: u64, actual_ns: u64) {
        packet.set_len(self.frame.len() as u16);
        self.stamp(packet.data_mut(), seq, intended_ns, actual_ns);
    }

    fn copy(&self, frame: &mut Vec<u8>, seq: u64, intended_ns: u64, actual_ns: u64) {
        frame.clear();
        frame.extend_from_slice(&self.frame);
        self.stamp(frame, seq, intended_ns, actual_ns);
    }

    fn longest(&self) -> usize {
        self.frame.len()
    }
}

#[inline(always)]
fn checksum(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    if sum == 0 { 0xffff } else { sum } // 0 would say that there is none (RFC 768)
}

/// Whether both addresses are of one family.
pub fn addresses(from: std::net::IpAddr, to: std::net::IpAddr) -> Result<Addresses, Error> {
    use std::net::IpAddr::{V4, V6};
    match (from, to) {
        (V4(from), V4(to)) => Ok(Addresses::V4(from, to)),
        (V6(from), V6(to)) => Ok(Addresses::V6(from, to)),
        _ => Err(Error::Option {
            option: "--dst-ip",
            got: to.to_string(),
            expected: format!("an address of the family of --src-ip, {from}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn headers(v6: bool, vlan: Option<u16>) -> UdpHeaders {
        let addresses = match v6 {
            false => Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1)),
            true => Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9)),
        };
        let (to_mac, from_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        UdpHeaders { to_mac, from_mac, vlan, addresses, from_port: 1000, to_port: 53, ttl: 64 }
    }

    proptest! {
        #[test]
        fn a_stamped_frame_is_what_the_headers_write(
            v6: bool, vlan in prop::option::of(1..4095_u16), seq: u64, intended: u64, error in 0..10_000_000_u64,
            flows in 1..1000_u16,
        ) {
            let headers = headers(v6, vlan);
            let template = Template::new(&headers, 100, flows).unwrap();
            let mut stamped = template.bytes().to_vec();
            // A frame is stamped again and again.
            template.stamp(&mut stamped, !seq, 1, 2);
            template.stamp(&mut stamped, seq, intended, intended.wrapping_add(error));

            let mut expected = vec![0; 96];
            let payload = &mut expected[headers.payload_offset()..];
            payload::write(payload, seq);
            payload::write_departure(payload, intended, intended.wrapping_add(error));
            let from_port = 1000 + (seq % u64::from(flows)) as u16;
            UdpHeaders { from_port, ..headers }.write(&mut expected);
            prop_assert_eq!(stamped, expected);
        }
    }

    #[test]
    fn a_frame_has_room_for_its_probe() {
        let shortest = |v6, vlan| {
            let fits = |size| Template::new(&headers(v6, vlan), size, 1).is_ok();
            (1..2000).find(|size| fits(*size)).unwrap()
        };
        assert_eq!(
            [shortest(false, None), shortest(false, Some(1)), shortest(true, None)],
            [64, 68, 84]
        );
        assert!(Template::new(&headers(false, None), 1519, 1).is_err());
    }
}
