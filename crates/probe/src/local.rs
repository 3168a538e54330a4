//! Packets that concern one link only: nobody expects a router to forward them.

use crate::headers::{self, Network};

const LLDP: u16 = 0x88cc;
const SLOW_PROTOCOLS: u16 = 0x8809;
const FLOW_CONTROL: u16 = 0x8808;
const EAPOL: u16 = 0x888e;
const CONFIGURATION_TEST: u16 = 0x9000;
/// Smaller values are no ethertype but a length: IEEE 802.2, as the spanning tree has it.
const FIRST_ETHERTYPE: u16 = 0x0600;

const ETHERNET_LEN: usize = 14;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;

/// Returns true if nobody expects a frame to be forwarded: control traffic of its link, and what
/// has no hop left.
#[inline]
#[must_use]
pub fn is_local(frame: &[u8]) -> bool {
    // Most frames are these, and every packet is looked at.
    if let Some([.., 0x08, 0x00]) = frame.get(..ETHERNET_LEN) {
        let header = frame.get(ETHERNET_LEN..ETHERNET_LEN + headers::IPV4_LEN);
        return header.is_some_and(|header| header[8] <= 1 || ipv4(header));
    }
    is_control(frame) || headers::ttl(frame).is_some_and(|hops| hops <= 1)
}

/// Returns true if a frame is addressed to several stations: a broadcast, which no router forwards,
/// or a multicast, which few do.
#[inline]
#[must_use]
pub fn is_to_group(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 1 != 0)
}

/// Returns true if a frame is control traffic of its link: ARP, LLDP, spanning tree, neighbour
/// discovery, group membership, addresses of the link.
#[inline]
#[must_use]
pub fn is_control(frame: &[u8]) -> bool {
    let Some(Network { ethertype, offset }) = headers::network(frame) else { return false };
    match ethertype {
        headers::IPV4 => frame.get(offset..offset + headers::IPV4_LEN).is_some_and(ipv4),
        headers::IPV6 => frame.get(offset..offset + headers::IPV6_LEN).is_some_and(|header| {
            ipv6(header, frame.get(offset + headers::IPV6_LEN..).unwrap_or_default())
        }),
        headers::ARP | LLDP | SLOW_PROTOCOLS | FLOW_CONTROL | EAPOL | CONFIGURATION_TEST => true,
        other => other < FIRST_ETHERTYPE,
    }
}

#[inline]
fn ipv4(header: &[u8]) -> bool {
    let (from, to) = (&header[12..16], &header[16..20]);
    let of_link = |address: &[u8]| address[0] == 169 && address[1] == 254;
    let to_all = to[0] >= 224 && (to[..3] == [224, 0, 0] || to == [255; 4]);
    header[9] == IGMP || to_all || of_link(from) || of_link(to)
}

fn ipv6(header: &[u8], behind: &[u8]) -> bool {
    let on_link = |address: &[u8]| address[0] == 0xfe && address[1] & 0xc0 == 0x80;
    let to = &header[24..40];
    let group_of_link = to[0] == 0xff && matches!(to[1] & 0x0f, 1 | 2);
    let (protocol, content) = match header[6] {
        HOP_BY_HOP => {
            let len = behind.get(1).map_or(8, |words| 8 + 8 * usize::from(*words));
            (behind.first().copied(), behind.get(len..).unwrap_or_default())
        }
        protocol => (Some(protocol), behind),
    };
    // Types 130 to 143: listener and neighbour discovery (RFC 2710, RFC 4861, RFC 3810).
    let discovery =
        protocol == Some(ICMPV6) && content.first().is_some_and(|kind| (130..=143).contains(kind));
    group_of_link || discovery || on_link(&header[8..24]) || on_link(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: u16, content: &[u8]) -> Vec<u8> {
        [&[2; 12], &ethertype.to_be_bytes()[..], content].concat()
    }

    fn v4(protocol: u8, from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0];
        frame(headers::IPV4, &[&head[..], &from, &to, &[0; 8]].concat())
    }

    fn v6(protocol: u8, from: [u8; 2], to: [u8; 2], content: &[u8]) -> Vec<u8> {
        let head = [0x60, 0, 0, 0, 0, content.len() as u8, protocol, 64];
        let address = |start: [u8; 2]| [&start[..], &[1; 14]].concat();
        frame(headers::IPV6, &[&head[..], &address(from), &address(to), content].concat())
    }

    #[test]
    fn a_frame_to_several_stations_is_told_by_its_address() {
        assert!(is_to_group(&[0xff; 60]) && is_to_group(&[1, 0, 0x5e, 1, 2, 3]));
        assert!(!is_to_group(&[2; 60]) && !is_to_group(&[]));
    }

    #[test]
    fn control_traffic_of_a_link_is_told_from_what_is_forwarded() {
        let (host, peer) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let mut last_hop = v4(headers::UDP, host, [239, 255, 255, 250]);
        last_hop[22] = 1;
        for local in [
            frame(headers::ARP, &[0; 28]),
            frame(0x0027, &[0x42, 0x42, 3]),
            frame(LLDP, &[1]),
            v4(IGMP, host, peer),
            v4(headers::UDP, host, [224, 0, 0, 251]),
            v4(headers::UDP, [169, 254, 3, 4], peer),
            v4(headers::UDP, [0; 4], [255; 4]),
            v6(ICMPV6, [0xfd, 0], [0xfd, 1], &[135, 0]),
            v6(HOP_BY_HOP, [0xfd, 0], [0xfd, 1], &[ICMPV6, 0, 5, 2, 0, 0, 1, 0, 143]),
            v6(headers::UDP, [0xfe, 0x80], [0xfd, 0], &[0; 8]),
            v6(headers::UDP, [0xfd, 0], [0xff, 0x02], &[0; 8]),
            last_hop,
        ] {
            assert!(is_local(&local), "{local:02x?}");
        }
        for forwarded in [
            v4(headers::UDP, host, peer),
            v4(1, host, [224, 1, 2, 3]),
            v6(ICMPV6, [0xfd, 0], [0xfd, 1], &[128, 0]),
            v6(headers::UDP, [0xfd, 0], [0xff, 0x05], &[0; 8]),
            frame(0x88f7, &[0; 20]),
            vec![0; 10],
        ] {
            assert!(!is_local(&forwarded), "{forwarded:02x?}");
        }
    }
}
