//! Packets of one's own that the kernel hands back with the time at which they left.
//!
//! What the packet says tells which one it was. A count of packets would not: after a queue on the way out
//! has refused one, nobody knows what the kernel counts.

use std::net::IpAddr;

/// Bytes before the IP packet at most: headers of the link, or of a tunnel.
const BEFORE: usize = 128;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// What a packet of UDP carries, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The address to which it goes.
    pub to: IpAddr,
    /// The port to which it goes.
    pub port: u16,
    /// What it carries; cut off where the frame is.
    pub payload: &'a [u8],
}

/// Whatever may be a packet of UDP in a frame of any link, outermost first.
pub fn datagrams(frame: &[u8]) -> impl Iterator<Item = Datagram<'_>> {
    (0..BEFORE.min(frame.len())).step_by(2).filter_map(|at| datagram(&frame[at..]))
}

fn datagram(packet: &[u8]) -> Option<Datagram<'_>> {
    let (to, udp) = match packet.first()? >> 4 {
        4 => v4(packet)?,
        6 => v6(packet)?,
        _ => return None,
    };
    let payload = udp.get(UDP_HEADER..)?;
    Some(Datagram { to, port: u16::from_be_bytes([udp[2], udp[3]]), payload })
}

/// The first part of a packet of IPv4 whose header has the right sum.
fn v4(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let len = usize::from(packet[0] & 0xf) * 4;
    let header = packet.get(..len.max(V4_HEADER))?;
    let sum: u32 =
        header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let is_first = (u16::from_be_bytes([header[6], header[7]]) & 0x1fff) == 0;
    let is_right = (sum & 0xffff) + (sum >> 16) == 0xffff && is_first && header[9] == UDP;
    let to: [u8; 4] = header[16..20].try_into().expect("four");
    is_right.then(|| (IpAddr::from(to), &packet[header.len()..]))
}

/// A packet of IPv6 without further headers, in which both say the same length.
fn v6(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (header, udp) = packet.split_at_checked(V6_HEADER)?;
    let is_right = header[6] == UDP && udp.get(4..6) == Some(&header[4..6]);
    let to: [u8; 16] = header[24..40].try_into().expect("sixteen");
    is_right.then(|| (IpAddr::from(to), udp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_found_behind_any_link() {
        let mut v4 = vec![0x45, 0, 0, 31, 0, 1, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        v4[10..12].copy_from_slice(&[0x26, 0xcb]);
        v4.extend([0x10, 0, 0x3, 0x5e, 0, 11, 0, 0, 1, 2, 3]);
        let mut v6 = vec![0x60, 0, 0, 0, 0, 11, UDP, 64];
        v6.extend([0; 31].iter().chain(&[1]));
        v6.extend(&v4[V4_HEADER..]);
        for (packet, to) in [(&v4, "10.0.0.2"), (&v6, "::1")] {
            for before in [0, 14, 18] {
                let frame = [vec![0x45; before], packet.clone()].concat();
                let found = Datagram { to: to.parse().unwrap(), port: 862, payload: &[1, 2, 3] };
                assert_eq!(datagrams(&frame).collect::<Vec<_>>(), [found], "{to} {before}");
            }
            for len in 0..packet.len() - 3 {
                assert!(datagrams(&packet[..len]).all(|found| found.payload.is_empty()));
            }
        }
        v4[19] = 3;
        assert_eq!(datagrams(&v4).next(), None);
    }
}
