//! One step through a capture's records, whatever its format: bytes in, a packet's place out.

use crate::erf::Erf;
use crate::error::Error;
use crate::info::{ByteOrder, Format};
use crate::interface::Interfaces;
use crate::mscap::Mscap;
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;
use crate::snoop::{self, Snoop};
use crate::step::{Record, Site, Step};

/// Number of bytes that tell a format, where it has a magic.
pub(crate) const MAGIC: usize = 4;
/// Number of bytes that tell one that has none.
pub(crate) const BEGINNING: usize = 4096;

/// The state of a walk through one capture.
pub(crate) struct Walk {
    format: State,
    interfaces: Interfaces,
}

enum State {
    Pcap(Pcap),
    PcapNg(PcapNg),
    Erf(Erf),
    Snoop(Snoop),
    Mscap(Mscap),
}

impl Walk {
    /// Returns the walk that the beginning of a capture asks for, over the packets of `interfaces`:
    /// its first four bytes, or as many as formats are told from that have no magic.
    pub fn detect(beginning: &[u8], interfaces: Interfaces) -> Result<Self, Interfaces> {
        let format = match beginning.get(..MAGIC) {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => State::PcapNg(PcapNg::default()),
            Some(head) if head == snoop::MAGIC => State::Snoop(Snoop::default()),
            head => match head.and_then(Pcap::detect) {
                Some(pcap) => State::Pcap(pcap),
                None if Erf::detect(beginning) => State::Erf(Erf::new()),
                None if Mscap::detect(beginning) => State::Mscap(Mscap::default()),
                None => return Err(interfaces),
            },
        };
        Ok(Self { format, interfaces })
    }

    /// Returns the packet that lies next, where that is quick to tell and it is a frame already;
    /// otherwise [`Walk::step`] tells.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        match &self.format {
            State::Pcap(pcap) => pcap.peek(ahead),
            State::PcapNg(pcapng) => pcapng.peek(ahead),
            State::Erf(_) | State::Snoop(_) | State::Mscap(_) => None,
        }
    }

    pub fn step(&mut self, ahead: &[u8], site: Site<'_>) -> Result<Step, Error> {
        match &mut self.format {
            State::Pcap(pcap) => pcap.step(ahead, &mut self.interfaces, site),
            State::PcapNg(pcapng) => pcapng.step(ahead, &mut self.interfaces, site),
            State::Erf(erf) => erf.step(ahead, &mut self.interfaces, site),
            State::Snoop(snoop) => snoop.step(ahead, &mut self.interfaces, site),
            State::Mscap(mscap) => mscap.step(ahead, &mut self.interfaces, site),
        }
    }

    /// Decides which interface is read in a capture that ends before its first packet.
    pub fn decide(&mut self, site: Site<'_>) -> Result<(), Error> {
        self.interfaces.decide(site)
    }

    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Takes note of a packet of the one interface of a format that has no more; [`Walk::step`] counts
    /// those of pcapng.
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
            State::Erf(_) => Format::Erf,
            State::Snoop(_) => Format::Snoop,
            State::Mscap(_) => Format::Mscap,
        }
    }

    pub fn byte_order(&self) -> ByteOrder {
        match &self.format {
            State::Pcap(pcap) => pcap.order(),
            State::PcapNg(pcapng) => pcapng.order(),
            State::Erf(_) | State::Mscap(_) => ByteOrder::Little,
            State::Snoop(_) => ByteOrder::Big,
        }
    }
}
