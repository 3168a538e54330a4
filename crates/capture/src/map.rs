//! A memory-mapped file, of which only the part around the read position is kept resident.

use std::fs::File;
use std::io;

use memmap2::{Mmap, UncheckedAdvice};

/// Step by which the visible part moves, in bytes; twice as much of the file is resident. Pages
/// come by plain faults, sixteen at a time, which is most of what a packet costs: 17 to 22 ns of
/// processor time. Asking for them ahead (`MADV_POPULATE_READ`) changes that by 2 ns either way,
/// reading into a buffer of 1 MiB by 4 ns: better for a file of 1 GB, worse for one of 70 MB.
const STRIDE: usize = 2 * 1024 * 1024;
/// The first step, and that of one among many files that are read at a time.
const SHORTEST_STRIDE: usize = 64 * 1024;
/// Files that are read at a time in whole steps.
const WHOLE: usize = 8;

/// A file's bytes from its start to a moving end.
pub(crate) struct Map {
    bytes: Mmap,
    /// Offset at which the visible part ends.
    end: usize,
    /// Offset up to which the file was handed back.
    released: usize,
    /// The next step; each is twice as long as the one before, up to the longest.
    stride: usize,
    longest: usize,
}

impl Map {
    #[allow(unsafe_code)]
    pub fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is read-only, owned by this value, and every access is checked against
        // its length, which does not change. What the language can not rule out is another process
        // that writes to the file meanwhile. A capture that grows is mapped as it was; changed bytes
        // are untrusted input as all others are, and no decision here relies on reading the same
        // byte twice; a file made shorter ends the process by a signal. Tools that map their input
        // accept that, and the documentation of this crate's users says so.
        let bytes = unsafe { Mmap::map(file)? };
        Ok(Self { bytes, end: 0, released: 0, stride: SHORTEST_STRIDE, longest: STRIDE })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub fn visible(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Takes shorter steps where so many files are read at a time.
    pub fn share(&mut self, files: usize) {
        let part = files.div_ceil(WHOLE).next_power_of_two();
        self.longest = (STRIDE / part).max(SHORTEST_STRIDE);
    }

    /// Moves on so that `need` bytes from `pos` are visible, or whatever is left.
    #[cold]
    pub fn advance(&mut self, pos: usize, need: usize) {
        assert!(pos <= self.bytes.len(), "the position lies in the file");
        self.end = (pos + need).next_multiple_of(self.stride).min(self.bytes.len());
        self.release((pos - pos % self.stride).max(self.released));
        self.stride = (2 * self.stride).min(self.longest);
    }

    #[allow(unsafe_code)]
    fn release(&mut self, before: usize) {
        assert!(self.released <= before && before <= self.bytes.len(), "reading goes on");
        let len = before - self.released;
        // SAFETY: the pages of a read-only file mapping hold nothing but the file's content, so
        // dropping them changes no byte: a later read faults them in from the file again.
        let advised = unsafe {
            self.bytes.unchecked_advise_range(UncheckedAdvice::DontNeed, self.released, len)
        };
        // A refusal costs memory, not truth.
        let _ = advised;
        self.released = before;
    }
}
