//! One step through a capture's records, whatever its format: bytes in, a packet's place out.

use crate::error::Error;
use crate::info::{ByteOrder, Format};
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;
use crate::step::{Record, Site, Step};
use crate::time::Resolution;

/// The state of a walk through one capture.
pub(crate) enum Walk {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl Walk {
    /// The walk that the first four bytes ask for.
    pub fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0x0a, 0x0d, 0x0d, 0x0a] => Some(Self::PcapNg(PcapNg::default())),
            _ => Pcap::detect(head).map(Self::Pcap),
        }
    }

    /// The packet that lies next, where that is quick to tell; otherwise [`Walk::step`] tells.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        match self {
            Self::Pcap(pcap) => pcap.peek(ahead),
            Self::PcapNg(pcapng) => pcapng.peek(ahead),
        }
    }

    pub fn step(&mut self, ahead: &[u8], site: Site<'_>) -> Result<Step, Error> {
        match self {
            Self::Pcap(pcap) => pcap.step(ahead, site),
            Self::PcapNg(pcapng) => pcapng.step(ahead, site),
        }
    }

    pub fn format(&self) -> Format {
        match self {
            Self::Pcap(_) => Format::Pcap,
            Self::PcapNg(_) => Format::PcapNg,
        }
    }

    pub fn byte_order(&self) -> ByteOrder {
        match self {
            Self::Pcap(pcap) => pcap.order(),
            Self::PcapNg(pcapng) => pcapng.order(),
        }
    }

    pub fn resolution(&self) -> Option<Resolution> {
        match self {
            Self::Pcap(pcap) => Some(pcap.resolution()),
            Self::PcapNg(pcapng) => pcapng.resolution(),
        }
    }
}
