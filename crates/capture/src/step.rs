//! What a step through a capture finds, whatever the format, and what holds for packets of all of them.

use std::ops::Range;

use units::Nanos;

use crate::error::{Error, Place};

/// The largest packet that is believed: libpcap's own limit.
pub(crate) const MAX_CAPTURED: u32 = 256 * 1024;

/// The link type of Ethernet, the only one that is read.
pub(crate) const ETHERNET: u32 = 1;

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
