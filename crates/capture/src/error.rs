//! Errors of captures.

use std::fmt;
use std::io;

use units::Nanos;

use crate::info::{Compression, TrailerKind};
use crate::link::LinkType;
use crate::time::Resolution;

/// A place in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the capture: its path, or `standard input`.
    pub file: String,
    /// The offset in bytes, after decompression where the capture is compressed.
    pub offset: u64,
    /// True if the offset is counted after decompression.
    pub decompressed: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = if self.decompressed { " (decompressed)" } else { "" };
        write!(f, "{}: byte {}{stream}", self.file, self.offset)
    }
}

/// An error of reading or writing a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One of several files is a pipe.
    #[error("{file}: a pipe cannot be one of several files")]
    SeveralPipes {
        /// The file.
        file: String,
    },
    /// No time lies behind its frames.
    #[error(
        "{file}: expected a time of {} behind each frame, got none in the first packets",
        kinds()
    )]
    NoTrailer {
        /// The file.
        file: String,
    },
    /// The operating system refused.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// The file.
        file: String,
        /// Operation that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The file has no content.
    #[error("{file}: empty: got 0 bytes, expected a capture")]
    Empty {
        /// The file.
        file: String,
    },
    /// The first bytes are of no known format.
    #[error("{file}: byte 0: not a capture: got {}, expected pcap, pcapng, ERF, snoop or mscap", beginning(.got))]
    NotACapture {
        /// The file.
        file: String,
        /// The first bytes, at most four.
        got: Vec<u8>,
    },
    /// The capture ends within its first header, before it says what it holds.
    #[error(
        "{place}: the capture ends within its header: got {got} bytes, expected at least {expected}"
    )]
    HeaderCut {
        /// Place at which the header starts.
        place: Place,
        /// The bytes that are there.
        got: u64,
        /// The bytes that it takes, as far as they tell.
        expected: u64,
    },
    /// Compressed data end so early that none of them can be decompressed.
    #[error(
        "{file}: cut off: the {compression} data end after {got_bytes} bytes, before the first block \
         is complete; none of them can be decompressed"
    )]
    CompressedCut {
        /// The file.
        file: String,
        /// Compression of the file.
        compression: Compression,
        /// The compressed bytes that are there.
        got_bytes: u64,
    },
    /// A header, record or block contradicts the format or itself.
    #[error("{place}: {what}: got {got}, expected {expected}")]
    Corrupt {
        /// Place at which the record or block starts.
        place: Place,
        /// Field or property that is wrong.
        what: &'static str,
        /// The value in the capture.
        got: String,
        /// The values that are right.
        expected: String,
    },
    /// The first bytes are of another format, which is known.
    #[error("{file}: byte 0: format: got {got}, expected pcap, pcapng, ERF, snoop or mscap")]
    Format {
        /// The file.
        file: String,
        /// The format by its name.
        got: &'static str,
        /// Advice on how to make a capture of it.
        hint: &'static str,
    },
    /// The packets are of a link type that is not read.
    #[error(
        "{place}: link type: got {} ({got}), expected 1 (Ethernet), Linux cooked capture, raw IP or BSD loopback", .got.0
    )]
    LinkType {
        /// Place at which the record or block that needs it starts.
        place: Place,
        /// The link type.
        got: LinkType,
    },
    /// No interface, or several, are the one that was asked for.
    #[error(
        "{choice}: {} in {file}; it holds: {}", which(*.matching), if .holds.is_empty() { "none" } else { .holds }
    )]
    Interface {
        /// The file.
        file: String,
        /// The interface that was asked for.
        choice: String,
        /// Number of interfaces that match.
        matching: usize,
        /// The interfaces that the capture describes before its first packet.
        holds: String,
    },
    /// A timestamp unit that is finer than any clock, and than 64 bits can count.
    #[error(
        "{place}: if_tsresol: got {got:#04x}, expected at most 0x13 (10^-19 s) or 0xbf (2^-63 s)"
    )]
    Resolution {
        /// Place at which the interface description starts.
        place: Place,
        /// The option's byte.
        got: u8,
    },
    /// A packet without a time.
    #[error(
        "{place}: packet without a time: got a simple packet block, expected an enhanced packet block"
    )]
    Untimed {
        /// Place at which the block starts.
        place: Place,
    },
    /// A time before 1970 or after 2554.
    #[error("{place}: time of the packet: got {got}, expected 0 to 2^64 - 1 ns since 1970")]
    Time {
        /// Place at which the record starts.
        place: Place,
        /// The time as the capture writes it.
        got: Ticks,
    },
    /// The compressed data are damaged.
    #[error(
        "{file}: near byte {offset}: damaged {compression} data: got {got}, expected a whole stream"
    )]
    Compressed {
        /// The file.
        file: String,
        /// Number of compressed bytes that were read until then.
        offset: u64,
        /// Compression of the file.
        compression: Compression,
        /// Message of the decompressor.
        got: String,
    },
    /// A file that is not as it was when it was read before.
    #[error("{file}: not the capture that was read before: {what}: got {got}, expected {expected}")]
    Changed {
        /// The file.
        file: String,
        /// Property that is different.
        what: &'static str,
        /// Its present value.
        got: u64,
        /// Its former value.
        expected: u64,
    },
    /// A packet that the format can not hold.
    #[error("{file}: cannot write a packet: {what}: got {got}, expected {expected}")]
    Unwritable {
        /// The file.
        file: String,
        /// Property that does not fit.
        what: &'static str,
        /// Its value.
        got: u64,
        /// The values that fit.
        expected: String,
    },
}

impl Error {
    /// Returns the stable code of the error, which programs compare instead of the message.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "capture-io",
            Self::SeveralPipes { .. } => "several-pipes",
            Self::NoTrailer { .. } => "no-trailer",
            Self::Empty { .. } => "capture-empty",
            Self::NotACapture { .. } => "not-a-capture",
            Self::HeaderCut { .. } => "capture-header-cut",
            Self::CompressedCut { .. } => "capture-compressed-cut",
            Self::Corrupt { .. } => "capture-corrupt",
            Self::Format { .. } => "capture-format",
            Self::LinkType { .. } => "link-type",
            Self::Interface { .. } => "capture-interface",
            Self::Resolution { .. } => "timestamp-resolution",
            Self::Untimed { .. } => "packet-untimed",
            Self::Time { .. } => "packet-time",
            Self::Compressed { .. } => "capture-compression",
            Self::Changed { .. } => "capture-changed",
            Self::Unwritable { .. } => "packet-unwritable",
        }
    }

    /// Returns advice apart from the message, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Format { hint, .. } => Some(hint),
            Self::Interface { matching: 0, holds, .. } if holds.is_empty() => {
                Some("interfaces are described before the first packet of a capture; here none is")
            }
            Self::Interface { .. } => Some("name one of these, or give its number"),
            Self::NoTrailer { .. } => Some(
                "frames must be captured whole, with their trailers; without --stamps trailer, times are those of the \
                 capture",
            ),
            Self::Untimed { .. } => {
                Some("capture again with enhanced packet blocks, which dumpcap and tcpdump write")
            }
            Self::LinkType { .. } => Some(
                "capture on a network interface, not on a bus or in monitor mode; an interface that is not chosen may be of any link type",
            ),
            Self::Empty { .. } => Some(
                "record again, and end the recorder by Ctrl-C: it then writes what it still holds",
            ),
            Self::NotACapture { .. } => {
                Some("captures are written by `tcpdump -w FILE` or `dumpcap -w FILE`")
            }
            Self::Compressed { .. } | Self::CompressedCut { .. } => {
                Some("copy or download the file again")
            }
            _ => None,
        }
    }
}

/// A time as a capture writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// The count of units.
    pub count: u64,
    /// The unit.
    pub unit: Resolution,
    /// Seconds to add (`if_tsoffset`).
    pub offset_s: i64,
}

impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} {:+} s", self.count, self.unit, self.offset_s)
    }
}

/// The latest time that a pcap record can hold.
pub(crate) const PCAP_END: Nanos = Nanos(u32::MAX as u64 * 1_000_000_000 + 999_999_999);

/// Shows the first bytes of a file: as text where they are that.
fn beginning(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        return format!("the text {:?}", String::from_utf8_lossy(bytes));
    }
    format!("the bytes {bytes:02x?}")
}

fn kinds() -> String {
    use TrailerKind::{Arista, Exablaze, Gigamon, Ixia, Metamako, Vss};
    let [first @ .., last] = [Metamako, Exablaze, Ixia, Gigamon, Arista, Vss(0)];
    format!("{} or {last}", first.map(|kind| kind.to_string()).join(", "))
}

fn which(matching: usize) -> String {
    match matching {
        0 => "no such interface".into(),
        several => format!("{several} interfaces of this name"),
    }
}
