//! The frames on both sides of the device.

use crate::error::Error;
use probe::headers::{self, Addresses, Headers, Protocol};
use probe::payload;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The device's change of the headers. As text: `none`, `l2`, `l3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// No change, as in a wire.
    #[default]
    None,
    /// New MAC addresses, as in a forwarder.
    L2,
    /// New MAC addresses and a lower TTL, as in a router.
    L3,
}

/// The content of a frame, from which all its bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// A probe with this sequence number.
    Probe(u64),
    /// A datagram like a probe's, without the magic.
    Datagram(u64),
    /// A question for an address.
    Arp(u64),
}

impl Content {
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Probe(number) | Self::Datagram(number) | Self::Arp(number) => number,
        }
    }
}

const GENERATOR: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const DEVICE_IN: [u8; 6] = [0x02, 0, 0, 0, 0, 0x10];
const DEVICE_OUT: [u8; 6] = [0x02, 0, 0, 0, 0, 0x11];
const SINK: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
const DNS: u16 = 53;
const FIRST_PORT: u16 = 1024;
const TTL: u8 = 64;
const FCS_LEN: u32 = 4;
/// Flows differ by their source port.
pub(crate) const MAX_FLOWS: u32 = (u16::MAX - FIRST_PORT) as u32;

/// The settings that decide how frames look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Length with the checksum.
    pub frame_bytes: u32,
    pub vlan: Option<u16>,
    pub ipv6: bool,
    pub flows: u32,
    pub rewrite: Rewrite,
}

impl Shape {
    /// Returns the shortest frame that has room for a probe, with its checksum.
    pub(crate) fn shortest_bytes(self) -> u32 {
        (headers_of(self).payload_offset() + payload::LEN) as u32 + FCS_LEN
    }
}

/// Builds frames, one at a time, in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    headers: Headers,
    flows: u64,
    rewrite: Rewrite,
    datagram: Vec<u8>,
    arp: [u8; 42],
}

impl Frames {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            headers: headers_of(shape),
            flows: shape.flows.into(),
            rewrite: shape.rewrite,
            datagram: vec![0; (shape.frame_bytes - FCS_LEN) as usize],
            arp: arp(),
        }
    }

    /// Returns the frame before the device.
    pub(crate) fn before(&mut self, content: Content) -> &[u8] {
        self.build(content)
    }

    /// Returns the frame behind the device.
    pub(crate) fn behind(&mut self, content: Content) -> &[u8] {
        let rewrite = self.rewrite;
        let frame = self.build(content);
        if rewrite != Rewrite::None {
            frame[..6].copy_from_slice(&SINK);
            frame[6..12].copy_from_slice(&DEVICE_OUT);
        }
        if rewrite == Rewrite::L3 {
            headers::decrement_ttl(frame);
        }
        frame
    }

    fn build(&mut self, content: Content) -> &mut [u8] {
        let number = match content {
            Content::Arp(number) => {
                self.arp[..6].fill(0xff);
                self.arp[6..12].copy_from_slice(&GENERATOR);
                self.arp[38..42].copy_from_slice(&(number as u32).to_be_bytes());
                return &mut self.arp;
            }
            Content::Probe(number) | Content::Datagram(number) => number,
        };
        let payload = &mut self.datagram[self.headers.payload_offset()..];
        payload::write(payload, number);
        if matches!(content, Content::Datagram(_)) {
            payload[..payload::MAGIC.len()].fill(0);
        }
        self.headers.from_port = FIRST_PORT + (number % self.flows) as u16;
        self.headers.write(&mut self.datagram);
        &mut self.datagram
    }
}

fn headers_of(shape: Shape) -> Headers {
    let v6 = |host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host);
    Headers {
        to_mac: DEVICE_IN,
        from_mac: GENERATOR,
        vlan: shape.vlan,
        outer: None,
        addresses: if shape.ipv6 {
            Addresses::V6(v6(1), v6(2))
        } else {
            Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 2))
        },
        protocol: Protocol::Udp,
        from_port: FIRST_PORT,
        to_port: DNS,
        ttl: TTL,
    }
}

/// Returns a question without padding, as a sender's own capture shows it.
fn arp() -> [u8; 42] {
    let mut frame = [0; 42];
    frame[12..14].copy_from_slice(&headers::ARP.to_be_bytes());
    frame[14..22].copy_from_slice(&[0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&GENERATOR);
    frame[28..32].copy_from_slice(&[10, 0, 0, 1]);
    frame
}

impl FromStr for Rewrite {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "none" => Ok(Self::None),
            "l2" => Ok(Self::L2),
            "l3" => Ok(Self::L3),
            _ => Err(Error::Rewrite { got: text.into() }),
        }
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::L2 => "l2",
            Self::L3 => "l3",
        })
    }
}
