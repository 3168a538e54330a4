//! One step through a capture's records, whatever its format: bytes in, a packet's place out.

use crate::error::Error;
use crate::info::{ByteOrder, Format};
use crate::interface::Interfaces;
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;
use crate::step::{Record, Site, Step};

/// The state of a walk through one capture.
pub(crate) struct Walk {
    format: State,
    interfaces: Interfaces,
}

enum State {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl Walk {
    /// Returns the walk that the first four bytes ask for, over the packets of `interfaces`.
    pub fn detect(head: &[u8], interfaces: Interfaces) -> Option<Self> {
        let format = match head {
            [0x0a, 0x0d, 0x0d, 0x0a] => State::PcapNg(PcapNg::default()),
            _ => State::Pcap(Pcap::detect(head)?),
        };
        Some(Self { format, interfaces })
    }

    /// Returns the packet that lies next, where that is quick to tell and it is a frame already;
    /// otherwise [`Walk::step`] tells.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        match &self.format {
            State::Pcap(pcap) => pcap.peek(ahead),
            State::PcapNg(pcapng) => pcapng.peek(ahead),
        }
    }

    pub fn step(&mut self, ahead: &[u8], site: Site<'_>) -> Result<Step, Error> {
        match &mut self.format {
            State::Pcap(pcap) => pcap.step(ahead, &mut self.interfaces, site),
            State::PcapNg(pcapng) => pcapng.step(ahead, &mut self.interfaces, site),
        }
    }

    /// Decides which interface is read in a capture that ends before its first packet.
    pub fn decide(&mut self, site: Site<'_>) -> Result<(), Error> {
        self.interfaces.decide(site)
    }

    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Takes note of a packet of pcap's one interface; [`Walk::step`] counts those of pcapng.
    pub fn count(&mut self, device: Option<u32>) {
        self.interfaces.count(0, device);
    }

    /// Returns true if a packet that names this device is read.
    pub fn reads(&mut self, device: u32) -> bool {
        self.interfaces.reads(device)
    }

    pub fn format(&self) -> Format {
        match self.format {
            State::Pcap(_) => Format::Pcap,
            State::PcapNg(_) => Format::PcapNg,
        }
    }

    pub fn byte_order(&self) -> ByteOrder {
        match &self.format {
            State::Pcap(pcap) => pcap.order(),
            State::PcapNg(pcapng) => pcapng.order(),
        }
    }
}
