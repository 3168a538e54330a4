//! One step through a capture's records, whatever its format: bytes in, a packet's place out.

use std::ops::Range;

use units::Nanos;

use crate::error::{Error, Place};
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;
use crate::{ByteOrder, Format, Resolution};

/// The largest packet that is believed: libpcap's own limit.
pub(crate) const MAX_CAPTURED: u32 = 256 * 1024;

/// The link type of Ethernet, the only one that is read.
pub(crate) const ETHERNET: u32 = 1;

/// The state of a walk through one capture.
pub(crate) enum Walk {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// What lies next in a capture.
pub(crate) enum Step {
    /// A packet.
    Packet(Record),
    /// So many bytes that say how to read what follows.
    Header(usize),
    /// So many bytes that hold no packet.
    Skip(usize),
    /// More than is there: so many bytes in all.
    Need(usize),
}

/// A packet by its place in the bytes that a step was given.
pub(crate) struct Record {
    pub ts: Nanos,
    pub orig_len: u32,
    pub data: Range<usize>,
    /// The length of the whole record or block.
    pub len: usize,
}

/// Where the bytes of a step come from, for its errors.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub file: &'a str,
    pub decompressed: bool,
    pub offset: u64,
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

/// Whether a packet's captured and original lengths can be true.
///
/// A packet of no length is how a run of zeros reads, which a file system leaves after a crash.
#[inline]
pub(crate) fn lengths_hold(captured: u32, orig_len: u32) -> bool {
    captured <= MAX_CAPTURED && captured <= orig_len && orig_len != 0
}

impl Site<'_> {
    pub fn place(self) -> Place {
        Place { file: self.file.into(), offset: self.offset, decompressed: self.decompressed }
    }

    #[cold]
    pub fn corrupt(self, what: &'static str, got: impl ToString, expected: impl ToString) -> Error {
        let (got, expected) = (got.to_string(), expected.to_string());
        Error::Corrupt { place: self.place(), what, got, expected }
    }

    /// The error of lengths that do not hold.
    #[cold]
    pub fn bad_lengths(self, captured: u32, orig_len: u32) -> Error {
        if orig_len == 0 {
            return self.corrupt("length of the packet", 0, "at least 1");
        }
        let most = MAX_CAPTURED.min(orig_len);
        let expected = format!("at most {most} (the packet has {orig_len} bytes)");
        self.corrupt("captured length", captured, expected)
    }
}
