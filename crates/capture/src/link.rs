//! Link types: which of them are read, and how a packet of theirs becomes an Ethernet frame.

use std::fmt;

/// The largest packet that is believed: libpcap's own limit.
pub(crate) const MAX_CAPTURED: u32 = 256 * 1024;

const ETHERNET_HEADER: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// The first ethertype for experiments (IEEE 802).
const EXPERIMENTAL: u16 = 0x88b5;
/// A length of an 802.3 frame in the place of an ethertype: nobody takes what follows for IP.
const NOT_IP: u16 = 0;

/// A link type by its registered number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkType(pub u32);

/// The layout of a capture's packets: the bytes before the network layer, and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    framing: Framing,
    /// The bytes of the frame check sequence at the end of each packet.
    fcs_bytes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Ethernet,
    /// `LINKTYPE_LINUX_SLL`.
    Cooked,
    /// `LINKTYPE_LINUX_SLL2`.
    CookedV2,
    /// A whole Ethernet frame, and the port of the card that saw it.
    OfPort(u8),
    /// The number of a packet, of which nothing else is known.
    Number,
    /// IPv4 or IPv6, as the first bits say.
    Ip,
    Ipv4,
    Ipv6,
    /// An address family of 32 bits.
    Loopback,
}

/// Returns true if the lengths of an Ethernet packet, captured and original, can be true.
///
/// A packet of no length is how a run of zeros reads, which a file system leaves after a crash.
#[inline]
pub(crate) fn lengths_hold(captured: u32, orig_len: u32) -> bool {
    captured <= MAX_CAPTURED && captured <= orig_len && orig_len != 0
}

impl LinkType {
    /// Ethernet, as which all others are handed out.
    pub const ETHERNET: Self = Self(1);
    /// The Linux cooked capture whose packets name their device, as `tcpdump -i any` writes it.
    pub(crate) const COOKED_V2: Self = Self(276);
    /// Records of a capture card, which name its port.
    pub(crate) const ERF: Self = Self(197);

    /// Returns true if packets name the device, or the port, that saw them.
    pub(crate) fn names_devices(self) -> bool {
        self == Self::COOKED_V2 || self == Self::ERF
    }

    fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "BSD loopback",
            1 => "Ethernet",
            12 | 14 | 101 => "raw IP",
            105 => "IEEE 802.11",
            108 => "OpenBSD loopback",
            113 => "Linux cooked capture",
            127 => "IEEE 802.11 radiotap",
            192 => "PPI",
            195 => "IEEE 802.15.4",
            197 => "ERF",
            227 => "SocketCAN",
            228 => "raw IPv4",
            229 => "raw IPv6",
            239 => "NFLOG",
            249 => "USBPcap",
            253 => "Netlink",
            276 => "Linux cooked capture v2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    /// Returns `Ethernet`, or `link type 147`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "link type {}", self.0),
        }
    }
}

impl Shape {
    /// Ethernet frames without a frame check sequence.
    pub const PLAIN: Self = Self { framing: Framing::Ethernet, fcs_bytes: 0 };

    /// Numbers in the place of packets.
    pub const NUMBER: Self = Self { framing: Framing::Number, fcs_bytes: 0 };

    /// Returns the shape of Ethernet frames that a port of a capture card saw.
    pub const fn of_port(port: u8) -> Self {
        Self { framing: Framing::OfPort(port), fcs_bytes: 0 }
    }

    /// Returns the shape of packets of a link type; `None` where that is not read.
    pub fn new(link_type: LinkType, fcs_bytes: u8) -> Option<Self> {
        let framing = match link_type.0 {
            1 => Framing::Ethernet,
            0 | 108 => Framing::Loopback,
            12 | 14 | 101 => Framing::Ip,
            113 => Framing::Cooked,
            228 => Framing::Ipv4,
            229 => Framing::Ipv6,
            _ if link_type == LinkType::COOKED_V2 => Framing::CookedV2,
            _ => return None,
        };
        Some(Self { framing, fcs_bytes })
    }

    /// Returns the index of the device that a packet crossed, where each packet says it.
    #[inline]
    pub fn device(self, data: &[u8]) -> Option<u32> {
        match self.framing {
            Framing::CookedV2 => data
                .get(4..8)
                .map(|index| u32::from_be_bytes(index.try_into().expect("four bytes"))),
            Framing::OfPort(port) => Some(port.into()),
            _ => None,
        }
    }

    #[inline]
    pub fn is_plain(self) -> bool {
        self == Self::PLAIN
    }

    /// Returns true if a packet's captured and original lengths can be true.
    #[inline]
    pub fn lengths_hold(self, captured: u32, orig_len: u32) -> bool {
        if self.is_plain() {
            return lengths_hold(captured, orig_len);
        }
        captured <= self.most_captured()
            && captured <= orig_len
            && (self.least_len()..=self.most_len()).contains(&orig_len)
    }

    /// Returns the shortest packet that there can be.
    pub fn least_len(self) -> u32 {
        let outer = self.header_bytes() as u32 + u32::from(self.fcs_bytes);
        // A frame has bytes besides its check sequence; a header may be all there is of a packet.
        if self.header_bytes() == 0 { outer + 1 } else { outer }
    }

    /// Returns the longest packet whose length fits 32 bits still, once it is a frame.
    pub fn most_len(self) -> u32 {
        u32::MAX - self.growth()
    }

    /// Returns the most bytes of a packet that are believed, as long as it is no more once it is a
    /// frame.
    pub fn most_captured(self) -> u32 {
        MAX_CAPTURED - self.growth()
    }

    fn growth(self) -> u32 {
        match self.framing {
            Framing::Ethernet | Framing::OfPort(_) => 0,
            _ => ETHERNET_HEADER.saturating_sub(self.header_bytes()) as u32,
        }
    }

    /// Returns the bytes before the network layer that an Ethernet header takes the place of.
    fn header_bytes(self) -> usize {
        match self.framing {
            Framing::Ethernet
            | Framing::OfPort(_)
            | Framing::Number
            | Framing::Ip
            | Framing::Ipv4
            | Framing::Ipv6 => 0,
            Framing::Loopback => 4,
            Framing::Cooked => 16,
            Framing::CookedV2 => 20,
        }
    }

    /// Returns the Ethernet frame of a packet, and its length on the wire; the lengths must hold.
    /// `scratch` is where a frame is made. A packet that was cut within its header is a frame of no
    /// bytes.
    pub fn frame<'a>(
        self,
        orig_len: u32,
        data: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> (u32, &'a [u8]) {
        debug_assert!(self.lengths_hold(data.len() as u32, orig_len), "lengths were checked");
        let orig_len = orig_len - u32::from(self.fcs_bytes);
        let data = &data[..data.len().min(orig_len as usize)];
        if matches!(self.framing, Framing::Ethernet | Framing::OfPort(_)) {
            return (orig_len, data);
        }
        let header = self.header_bytes();
        let orig_len = orig_len - header as u32 + ETHERNET_HEADER as u32;
        let whole = data.split_at_checked(header);
        let made =
            whole.and_then(|(head, payload)| Some((self.ethertype(head, payload)?, payload)));
        let Some((ethertype, payload)) = made else { return (orig_len, &[]) };
        scratch.clear();
        scratch.resize(ETHERNET_HEADER - 2, 0);
        scratch.extend(ethertype.to_be_bytes());
        scratch.extend(payload);
        (orig_len, scratch)
    }

    /// Returns what stands where an ethertype does; `None` where too little was captured to know.
    fn ethertype(self, head: &[u8], payload: &[u8]) -> Option<u16> {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        Some(match self.framing {
            Framing::Cooked => cooked(word(2), word(14)),
            Framing::CookedV2 => cooked(word(8), word(0)),
            Framing::Loopback => of_family([head[0], head[1], head[2], head[3]]),
            Framing::Number => EXPERIMENTAL,
            Framing::Ipv4 => IPV4,
            Framing::Ipv6 => IPV6,
            Framing::Ip => match payload.first()? >> 4 {
                4 => IPV4,
                6 => IPV6,
                _ => NOT_IP,
            },
            Framing::Ethernet | Framing::OfPort(_) => {
                unreachable!("an Ethernet frame is handed out as it is")
            }
        })
    }
}

/// Returns the ethertype of a cooked packet of a device of type `arphrd`.
///
/// Below 0x0600 the field holds other protocols (802.2 is 4), as does the length of an 802.3 frame.
fn cooked(arphrd: u16, protocol: u16) -> u16 {
    match arphrd {
        // Devices whose packets have an ethertype (linux/if_arp.h): Ethernet, IEEE 802, InfiniBand,
        // PPP, raw IP, tunnels (IP in IP, IPv6), loopback, SIT, GRE, GRE over IPv6, none (TUN).
        1 | 6 | 32 | 512 | 519 | 768 | 769 | 772 | 776 | 778 | 823 | 0xfffe => protocol,
        // Of others the field is unused, or means something else: FRAD, 802.11, Netlink.
        _ => NOT_IP,
    }
}

/// Returns the ethertype of an address family, in whichever byte order it is small.
fn of_family(bytes: [u8; 4]) -> u16 {
    match u32::from_le_bytes(bytes).min(u32::from_be_bytes(bytes)) {
        2 => IPV4,
        // NetBSD and OpenBSD, FreeBSD, macOS.
        24 | 28 | 30 => IPV6,
        _ => NOT_IP,
    }
}
