//! Numbers of protocols, headers of IP, and their checksums.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethertype of ARP.
pub const ARP: u16 = 0x0806;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// Length of an IPv4 header without options.
pub(crate) const IPV4_LEN: usize = 20;
/// Length of an IPv6 header without extensions.
pub(crate) const IPV6_LEN: usize = 40;
/// Length of a UDP header.
pub(crate) const UDP_LEN: usize = 8;

/// Returns the header of an IPv4 packet that carries `carried` bytes of `protocol`.
pub(crate) fn ipv4_header(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    ttl: u8,
    carried: u16,
) -> [u8; IPV4_LEN] {
    let mut header = [0; IPV4_LEN];
    let len = (carried + IPV4_LEN as u16).to_be_bytes();
    header[..4].copy_from_slice(&[0x45, 0, len[0], len[1]]);
    header[4..12].copy_from_slice(&[0, 0, 0x40, 0, ttl, protocol, 0, 0]);
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&to.octets());
    let checksum = checksum(sum(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Returns the header of an IPv6 packet that carries `carried` bytes of `protocol`.
pub(crate) fn ipv6_header(
    from: Ipv6Addr,
    to: Ipv6Addr,
    protocol: u8,
    hop_limit: u8,
    carried: u16,
) -> [u8; IPV6_LEN] {
    let mut header = [0; IPV6_LEN];
    let len = carried.to_be_bytes();
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, len[0], len[1], protocol, hop_limit]);
    header[8..24].copy_from_slice(&from.octets());
    header[24..].copy_from_slice(&to.octets());
    header
}

/// Returns the sum of the 16-bit words, not folded; an odd last byte counts as a word's first (RFC
/// 1071).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    odd + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>()
}

pub(crate) fn checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the checksum of a UDP datagram; 0 would say that there is none (RFC 768).
pub(crate) fn udp_checksum(sum: u64) -> u16 {
    match checksum(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}
