//! The frames of probe packets, and what differs from one to the next.

use crate::cycle::Cycle;
use crate::error::Error;
use crate::mix::gcd;
use dpdk::Mbuf;
use probe::headers::{Addresses, Headers, Protocol};
use probe::payload;

/// The frame check sequence that the size of a frame includes and memory does not.
pub const FCS_BYTES: usize = 4;
/// The shortest frame of Ethernet.
const MIN_BYTES: usize = 64;
/// The largest frame, without tags.
const MAX_BYTES: usize = 1518;
/// In an IPv4 header: its own checksum.
const NETWORK_CHECKSUM_AT: usize = 10;
/// In a UDP header: the length.
const UDP_LEN_AT: usize = 4;

/// What the generator sends.
pub trait Content {
    /// Makes `packet` the frame of packet `seq`.
    fn fill(&self, packet: &mut Mbuf, seq: u64, intended_ns: u64, actual_ns: u64);
    /// The same bytes, into `frame`.
    fn copy(&self, frame: &mut Vec<u8>, seq: u64, intended_ns: u64, actual_ns: u64);
    /// The number of the flow of packet `seq`.
    fn flow(&self, seq: u64) -> usize;
    /// How long the frame of packet `seq` is, without check sequence.
    fn frame_len(&self, seq: u64) -> usize;
    /// The longest frame.
    fn longest(&self) -> usize;
}

/// Frames of several flows and sizes, prepared: from one packet to the next differ the probe and the
/// transport checksum, and, where there are several flows or sizes, addresses, ports and lengths.
#[derive(Clone, Debug)]
pub struct Template {
    /// The longest frame, of the first flow.
    frame: Vec<u8>,
    /// Whether frames differ by more than their probe.
    varies: bool,
    outer_at: usize,
    outer_checksum_at: Option<usize>,
    network_at: usize,
    transport_at: usize,
    payload_at: usize,
    checksum_at: usize,
    is_v4: bool,
    is_udp: bool,
    /// Set in every number.
    mark: u64,
    /// The transport checksum's words that stay the same, added up; of the first flow and size.
    fixed: u64,
    flows: Flows,
    sizes: Vec<Size>,
    size_cycle: Cycle,
    /// After as many packets, flows and sizes would meet as before: sizes move on by one.
    meeting: Cycle,
}

/// For each flow, its bytes from the addresses to the payload, and sums of what no size changes.
#[derive(Clone, Debug)]
struct Flows {
    at: usize,
    stride: usize,
    bytes: Vec<u8>,
    sums: Vec<Sums>,
    cycle: Cycle,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    /// Of the IPv4 header.
    network: u32,
    /// Of the transport header, with its pseudo header.
    transport: u32,
    /// Of all that a tunnel carries: the transport checksum levels out what the probe adds.
    outer: u32,
}

/// What a size changes.
#[derive(Clone, Debug)]
struct Size {
    frame_len: u16,
    /// The headers of the tunnel.
    outer: Box<[u8]>,
    /// What the network header says.
    network_len: u16,
    transport_len: u16,
    sums: Sums,
}

impl Template {
    /// Frames of `sizes` bytes with their check sequence, in turn, for flows with these headers, in turn.
    /// `mark` is set in the number of every packet.
    pub fn new(flows: &[Headers], sizes: &[usize], mark: u64) -> Result<Self, Error> {
        let headers = &flows[0];
        let payload_at = headers.payload_offset();
        let shortest = (payload_at + payload::DEPARTED_LEN + FCS_BYTES).max(MIN_BYTES);
        if let Some(size) = sizes.iter().find(|size| !(shortest..=MAX_BYTES).contains(*size)) {
            let expected = format!("{shortest} to {MAX_BYTES} bytes with these headers");
            return Err(Error::Option { option: "--size", got: size.to_string(), expected });
        }
        let sizes: Vec<_> =
            sizes.iter().map(|bytes| Size::new(headers, bytes - FCS_BYTES)).collect();
        let longest = sizes.iter().map(|size| size.frame_len).max().expect("there is a size");
        let mut frame = vec![0; longest.into()];
        headers.write(&mut frame);
        let flows = Flows::new(flows);
        let (flow_count, size_count) = (flows.sums.len() as u32, sizes.len() as u32);
        Ok(Self {
            varies: flow_count > 1 || size_count > 1,
            outer_at: headers.outer_offset(),
            outer_checksum_at: headers.outer_checksum_offset(),
            network_at: headers.network_offset(),
            transport_at: headers.transport_offset(),
            checksum_at: headers.checksum_offset(),
            is_v4: matches!(headers.addresses, Addresses::V4(..)),
            is_udp: headers.protocol == Protocol::Udp,
            fixed: u64::from(flows.sums[0].transport + sizes[0].sums.transport),
            size_cycle: Cycle::new(size_count),
            meeting: Cycle::new(flow_count / gcd(flow_count, size_count) * size_count),
            frame,
            payload_at,
            mark,
            flows,
            sizes,
        })
    }

    /// All bytes of the longest frame, except for what [`Template::stamp`] writes.
    pub fn bytes(&self) -> &[u8] {
        &self.frame
    }

    /// Where the payload is.
    pub fn payload_at(&self) -> usize {
        self.payload_at
    }

    /// The size of packet `seq`. Every cycle has each size as often as the mix says, and so has every
    /// flow: without the shift, as many flows as sizes would each have one of them.
    #[inline(always)]
    fn size(&self, seq: u64) -> &Size {
        let shifted = u64::from(seq as u32) + self.meeting.laps(seq);
        &self.sizes[self.size_cycle.place(shifted)]
    }

    /// Makes `frame`, which holds the template's bytes as far as it reaches, packet `seq`.
    #[inline(always)]
    fn stamp(&self, frame: &mut [u8], size: &Size, seq: u64, intended_ns: u64, actual_ns: u64) {
        let fixed = if self.varies { self.vary(frame, size, seq) } else { self.fixed };
        let payload = &mut frame[self.payload_at..self.payload_at + payload::DEPARTED_LEN];
        payload::write(payload, seq | self.mark);
        payload::write_departure(payload, intended_ns, actual_ns);
        let words =
            payload.chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])));
        let all = fixed + words.sum::<u64>();
        let checksum = if self.is_udp { udp_checksum(all) } else { checksum(all) };
        put(frame, self.checksum_at, checksum);
    }

    /// Writes what differs by flow and size; says the sum of what the transport checksum is of.
    #[inline(always)]
    fn vary(&self, frame: &mut [u8], size: &Size, seq: u64) -> u64 {
        let flow = self.flow(seq);
        let Flows { at, stride, bytes, sums, .. } = &self.flows;
        frame[*at..at + stride].copy_from_slice(&bytes[flow * stride..(flow + 1) * stride]);
        let sums = sums[flow];
        frame[self.outer_at..self.network_at].copy_from_slice(&size.outer);
        if let Some(at) = self.outer_checksum_at {
            put(frame, at, udp_checksum(u64::from(sums.outer + size.sums.outer)));
        }
        if self.is_v4 {
            put(frame, self.network_at + 2, size.network_len);
            let sum = checksum(u64::from(sums.network + size.sums.network));
            put(frame, self.network_at + NETWORK_CHECKSUM_AT, sum);
        } else {
            put(frame, self.network_at + 4, size.network_len);
        }
        if self.is_udp {
            put(frame, self.transport_at + UDP_LEN_AT, size.transport_len);
        }
        u64::from(sums.transport + size.sums.transport)
    }
}

impl Content for Template {
    /// `packet` comes from a pool in which all hold the template's bytes.
    #[inline(always)]
    fn fill(&self, packet: &mut Mbuf, seq: u64, intended_ns: u64, actual_ns: u64) {
        let size = if self.varies { self.size(seq) } else { &self.sizes[0] };
        packet.set_len(size.frame_len);
        self.stamp(packet.data_mut(), size, seq, intended_ns, actual_ns);
    }

    fn copy(&self, frame: &mut Vec<u8>, seq: u64, intended_ns: u64, actual_ns: u64) {
        let size = self.size(seq);
        frame.clear();
        frame.extend_from_slice(&self.frame[..size.frame_len.into()]);
        self.stamp(frame, size, seq, intended_ns, actual_ns);
    }

    #[inline(always)]
    fn flow(&self, seq: u64) -> usize {
        self.flows.cycle.place(seq)
    }

    fn frame_len(&self, seq: u64) -> usize {
        self.size(seq).frame_len.into()
    }

    fn longest(&self) -> usize {
        self.frame.len()
    }
}

impl Flows {
    fn new(flows: &[Headers]) -> Self {
        let first = &flows[0];
        let (at, end) = (first.addresses_offset(), first.payload_offset());
        let mut frame = vec![0; end + payload::DEPARTED_LEN];
        let own = Size::new(first, frame.len()).sums;
        let mut found = Self {
            at,
            stride: end - at,
            bytes: Vec::with_capacity(flows.len() * (end - at)),
            sums: Vec::with_capacity(flows.len()),
            cycle: Cycle::new(flows.len() as u32),
        };
        for headers in flows {
            headers.write(&mut frame);
            found.bytes.extend_from_slice(&frame[at..end]);
            let network = first.network_offset() + NETWORK_CHECKSUM_AT;
            // One's complement of the sum of everything but lengths and probe, which is 0.
            found.sums.push(Sums {
                network: without(&frame, network, own.network),
                transport: without(&frame, first.checksum_offset(), own.transport),
                outer: first.outer_checksum_offset().map_or(0, |at| without(&frame, at, own.outer)),
            });
        }
        found
    }
}

/// What was added up for the checksum at `at`, but for `part` of it.
fn without(frame: &[u8], at: usize, part: u32) -> u32 {
    const MODULUS: u32 = u16::MAX as u32;
    let all = u32::from(!u16::from_be_bytes([frame[at], frame[at + 1]]));
    (all + MODULUS - part % MODULUS) % MODULUS
}

impl Size {
    /// Of a frame of `len` bytes without check sequence.
    fn new(headers: &Headers, len: usize) -> Self {
        let transport_len = (len - headers.transport_offset()) as u16;
        let is_v4 = matches!(headers.addresses, Addresses::V4(..));
        let network_len =
            if is_v4 { (len - headers.network_offset()) as u16 } else { transport_len };
        let once = u32::from(transport_len);
        let transport = match headers.protocol {
            Protocol::Udp => 2 * once, // in its pseudo header, and in its own
            Protocol::Icmp if is_v4 => 0,
            Protocol::Tcp | Protocol::Icmp => once,
        };
        let mut frame = vec![0; len];
        headers.write(&mut frame);
        let outer = frame[headers.outer_offset()..headers.network_offset()].into();
        let outer_sum = headers.outer_checksum_offset().map_or(0, |at| without(&frame, at, 0));
        let sums = Sums { network: network_len.into(), transport, outer: outer_sum };
        Self { frame_len: len as u16, outer, network_len, transport_len, sums }
    }
}

#[inline(always)]
fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// 0 would say that there is none (RFC 768).
#[inline(always)]
fn udp_checksum(sum: u64) -> u16 {
    match checksum(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

#[inline(always)]
fn checksum(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe::tunnel::{Outer, Tunnel};
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn outer(tunnel: &str) -> Outer {
        let ends = [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into()];
        tunnel.parse::<Tunnel>().unwrap().around(ends[0], ends[1]).unwrap()
    }

    fn tunnels() -> impl Strategy<Value = Option<Outer>> {
        const TUNNELS: [&str; 10] = [
            "gtpu:teid=7",
            "gtpu:teid=7,qfi=9",
            "vxlan:vni=5,src=fd00::1,dst=fd00::2",
            "geneve:vni=6,src=fd00::1,dst=fd00::2",
            "gre",
            "gre:key=8",
            "mpls:label=16",
            "srv6:segments=fd00::1/fd00::2/fd00::3,src=fd00::9",
            "ipip",
            "ipip:src=fd00::1,dst=fd00::2",
        ];
        prop::option::of(prop::sample::select(&TUNNELS[..]).prop_map(outer))
    }

    fn headers(v6: bool, vlan: Option<u16>, protocol: Protocol) -> Headers {
        let addresses = match v6 {
            false => Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1)),
            true => Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9)),
        };
        let (to_mac, from_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        Headers {
            to_mac,
            from_mac,
            vlan,
            outer: None,
            addresses,
            protocol,
            from_port: 1000,
            to_port: 53,
            ttl: 64,
        }
    }

    fn protocols() -> impl Strategy<Value = Protocol> {
        prop_oneof![Just(Protocol::Udp), Just(Protocol::Tcp), Just(Protocol::Icmp)]
    }

    /// Every flow has another address and another port.
    fn flows(first: &Headers, count: u16) -> Vec<Headers> {
        let flow = |at: u16| {
            let addresses = match first.addresses {
                Addresses::V4(from, to) => {
                    Addresses::V4((from.to_bits() + u32::from(at)).into(), to)
                }
                Addresses::V6(from, to) => {
                    Addresses::V6((from.to_bits() + u128::from(at)).into(), to)
                }
            };
            Headers { addresses, from_port: first.from_port.wrapping_add(at), ..first.clone() }
        };
        (0..count).map(flow).collect()
    }

    proptest! {
        #[test]
        fn a_stamped_frame_is_what_the_headers_write(
            v6: bool, vlan in prop::option::of(1..4095_u16), protocol in protocols(), seq: u32,
            intended: u64, error in 0..10_000_000_u64, count in 1..1000_u16, mark: bool,
            sizes in prop::collection::vec(210..=1518_usize, 1..5), outer in tunnels(),
        ) {
            let headers = Headers { outer, ..headers(v6, vlan, protocol) };
            let flows = flows(&headers, count);
            let (seq, mark) = (u64::from(seq), u64::from(mark) << 62);
            let template = Template::new(&flows, &sizes, mark).unwrap();
            let mut stamped = template.bytes().to_vec();
            // A frame is stamped again and again.
            for (seq, intended, actual) in [(!seq, 1, 2), (seq, intended, intended.wrapping_add(error))] {
                let size = template.size(seq);
                stamped.resize(size.frame_len.into(), 0);
                template.stamp(&mut stamped, size, seq, intended, actual);
            }
            let mut copied = vec![7; 3];
            template.copy(&mut copied, seq, intended, intended.wrapping_add(error));
            prop_assert_eq!(&copied, &stamped);

            let flow = &flows[(seq % u64::from(count)) as usize];
            let mut expected = vec![0; template.frame_len(seq)];
            let payload = &mut expected[flow.payload_offset()..];
            payload::write(payload, seq | mark);
            payload::write_departure(payload, intended, intended.wrapping_add(error));
            flow.write(&mut expected);
            prop_assert_eq!(stamped, expected);
        }

        #[test]
        fn every_flow_has_every_size_as_often_as_the_cycle_has(
            count in 1..30_u16, sizes in prop::collection::vec(64..70_usize, 1..20),
        ) {
            let flows = flows(&headers(false, None, Protocol::Udp), count);
            let template = Template::new(&flows, &sizes, 0).unwrap();
            let all = u64::from(count) * sizes.len() as u64;
            let mut sent: HashMap<(u64, usize), u64> = HashMap::new();
            for seq in 0..all {
                let bytes = template.frame_len(seq) + FCS_BYTES;
                *sent.entry((seq % u64::from(count), bytes)).or_default() += 1;
            }
            for (at, cycle) in (0..all).collect::<Vec<_>>().chunks(sizes.len()).enumerate() {
                let mut found: Vec<_> = cycle.iter().map(|seq| template.frame_len(*seq) + 4).collect();
                let mut expected = sizes.clone();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected, "cycle {}", at);
            }
            for ((flow, bytes), times) in sent {
                let expected = sizes.iter().filter(|size| **size == bytes).count() as u64;
                prop_assert_eq!(times, expected, "{} bytes of flow {}", bytes, flow);
            }
        }
    }

    #[test]
    fn a_frame_has_room_for_its_probe() {
        let shortest = |v6, vlan, protocol| {
            let fits = |size| Template::new(&[headers(v6, vlan, protocol)], &[size], 0).is_ok();
            (1..2000).find(|size| fits(*size)).unwrap()
        };
        for (protocol, expected) in [
            (Protocol::Udp, [64, 68, 84]),
            (Protocol::Tcp, [76, 80, 96]),
            (Protocol::Icmp, [64, 68, 84]),
        ] {
            let found = [(false, None), (false, Some(1)), (true, None)];
            assert_eq!(found.map(|(v6, vlan)| shortest(v6, vlan, protocol)), expected);
        }
        let udp = headers(false, None, Protocol::Udp);
        assert!(Template::new(&[udp], &[64, 1519], 0).is_err());
    }
}
