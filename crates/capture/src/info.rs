//! The description of a capture by itself.

use std::fmt;

use crate::link::LinkType;
use crate::time::Resolution;

/// A capture's file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The classic format: one header, then records.
    Pcap,
    /// The block format: sections and interfaces.
    PcapNg,
    /// Records of capture cards (Endace); read, not written.
    Erf,
    /// The format of Solaris (RFC 1761); read, not written.
    Snoop,
    /// Times and numbers of packets, as MoonSniff writes them; read, not written.
    Mscap,
    /// None: the packets of a link of this machine, while they come; neither read nor written.
    Link,
}

/// The compression of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
    /// xz, of one stream or several; read, not written.
    Xz,
    /// LZ4's frame format, of one frame or several; read, not written.
    Lz4,
    /// bzip2, of one stream or several; read, not written.
    Bzip2,
}

/// The byte order of a capture's integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// The description of a capture by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The capture's name: its path, or `standard input`.
    pub name: String,
    /// The file format.
    pub format: Format,
    /// The compression around it.
    pub compression: Compression,
    /// The byte order (of the latest section).
    pub byte_order: ByteOrder,
    /// The unit of the timestamps, the coarsest of the interfaces that are read, as far as they were
    /// seen. A pcapng capture with no interface has none.
    pub resolution: Option<Resolution>,
    /// The link types of those interfaces, in ascending order.
    pub link_types: Vec<LinkType>,
    /// The interface that is read, where one was chosen.
    pub interface: Option<ChosenInterface>,
    /// The most bytes captured of a packet, the least of those interfaces; `None` where there is no
    /// limit.
    pub snap_length: Option<u32>,
    /// Number of packets that the capturing host has dropped on those interfaces, as far as the
    /// capture was read; `None` if it does not say. Complete at the end of the capture.
    pub dropped_packets: Option<u64>,
    /// Comparison of its clock with the times behind its frames, where those are the times of packets.
    pub stamps: Option<Stamps>,
}

/// Who writes a time behind each frame, or into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailerKind {
    /// MetaWatch of Metamako, later of Arista (7130).
    Metamako,
    /// `ExaLINK` Fusion of Exablaze, later of Cisco (Nexus 3550).
    Exablaze,
    /// Packet brokers of Ixia, later of Keysight.
    Ixia,
    /// Packet brokers of Gigamon, with the frame check sequence and a port.
    Gigamon,
    /// The same, with fields.
    GigamonFields,
    /// The same, with fields in front of the frame's type.
    GigamonHeader,
    /// Switches of Arista (7280, 7500), in front of the frame's type.
    Arista,
    /// Taps of VSS Monitoring, later of Netscout, with so many bytes for the port.
    Vss(u8),
}

impl fmt::Display for TrailerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metamako => "Metamako (Arista MetaWatch)",
            Self::Exablaze => "Exablaze (Cisco Nexus 3550)",
            Self::Ixia => "Ixia (Keysight)",
            Self::Gigamon | Self::GigamonFields | Self::GigamonHeader => "Gigamon",
            Self::Arista => "Arista (7280)",
            Self::Vss(_) => "VSS Monitoring (Netscout)",
        })
    }
}

/// The clock of a capture, as the times behind its frames show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// Who wrote the times.
    pub kind: TrailerKind,
    /// Packets without a time, which are left out.
    pub without: u64,
    /// How much later the clock of the capture is, in ns: the median of the least differences over time.
    pub offset_ns: i64,
    /// How much faster it runs, in parts per 10¹²; `None` of a short capture.
    pub drift_ppt: Option<i64>,
    /// The largest difference of the two times of a packet, in ns.
    pub largest_ns: i64,
}

/// The one interface of a capture that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenInterface {
    /// Its place among the interfaces of the file, from 0.
    pub number: u32,
    /// Its name, where the file says it.
    pub name: Option<String>,
}

impl Compression {
    /// Returns the compression that the first bytes of a file tell.
    pub(crate) fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Self::Zstd,
            [0xfd, b'7', b'z', b'X'] => Self::Xz,
            [0x04, 0x22, 0x4d, 0x18] => Self::Lz4,
            [b'B', b'Z', b'h', b'1'..=b'9'] => Self::Bzip2,
            _ => Self::None,
        }
    }
}

impl ByteOrder {
    #[inline]
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Returns the 32-bit words that `bytes` starts with; there must be as many.
    #[inline]
    pub(crate) fn words<const N: usize>(self, bytes: &[u8]) -> [u32; N] {
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
            *word = match self {
                Self::Little => u32::from_le_bytes(bytes),
                Self::Big => u32::from_be_bytes(bytes),
            };
        }
        words
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
            Self::Erf => "erf",
            Self::Snoop => "snoop",
            Self::Mscap => "mscap",
            Self::Link => "link",
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Bzip2 => "bzip2",
        })
    }
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        })
    }
}
