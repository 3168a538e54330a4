//! Steps through a capture, whatever the format, and checks that hold for packets of all formats.

use std::ops::Range;

use units::Nanos;

use crate::error::{Error, Place};
use crate::link::{LinkType, Shape};

/// The next item of a capture.
pub(crate) enum Step {
    /// A packet.
    Packet(Record),
    /// A header of so many bytes, which says how to read what follows.
    Header(usize),
    /// A stretch of so many bytes without a packet.
    Skip(usize),
    /// An item that is not there yet: it takes so many bytes in all.
    Need(usize),
}

/// A packet by its place in the bytes that a step was given.
pub(crate) struct Record {
    pub ts: Nanos,
    pub orig_len: u32,
    pub data: Range<usize>,
    /// The length of the whole record or block.
    pub len: usize,
    pub shape: Shape,
}

/// The source of a step's bytes, for its errors.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub file: &'a str,
    pub decompressed: bool,
    pub offset: u64,
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

    /// Returns the error of lengths that do not hold for packets of a shape.
    #[cold]
    pub fn bad_lengths(self, shape: Shape, captured: u32, orig_len: u32) -> Error {
        let (least, most) = (shape.least_len(), shape.most_len());
        if orig_len < least {
            return self.corrupt("length of the packet", orig_len, format!("at least {least}"));
        }
        if orig_len > most {
            return self.corrupt("length of the packet", orig_len, format!("at most {most}"));
        }
        let most = shape.most_captured().min(orig_len);
        let expected = format!("at most {most} (the packet has {orig_len} bytes)");
        self.corrupt("captured length", captured, expected)
    }

    #[cold]
    pub fn refused(self, got: LinkType) -> Error {
        Error::LinkType { place: self.place(), got }
    }
}
