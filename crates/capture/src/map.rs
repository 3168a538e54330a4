//! A memory-mapped file, of which only the part around the read position is kept resident.

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, UncheckedAdvice};

/// How far the visible part moves at a time. Faulting in a stride by one call costs a third of
/// faulting in its pages one by one; a larger one gains nothing and costs resident memory.
const STRIDE: usize = 2 * 1024 * 1024;

/// A file's bytes from its start to a moving end.
pub(crate) struct Map {
    bytes: Mmap,
    /// Where the visible part ends.
    end: usize,
    /// What lies before was handed back; a multiple of the stride.
    released: usize,
}

impl Map {
    #[allow(unsafe_code)]
    pub fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is read-only and private to this value, and every read of it is
        // checked against its length, which does not change. What remains is another process
        // writing to the file meanwhile: changed bytes are read as they are, each once and checked
        // after the read, as any capture's bytes are; a file made shorter ends the process by a
        // signal instead of reading foreign memory. Every tool that maps its input accepts that.
        let bytes = unsafe { Mmap::map(file)? };
        Ok(Self { bytes, end: 0, released: 0 })
    }

    #[inline]
    pub fn visible(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Moves on so that `need` bytes from `pos` are visible, or whatever is left.
    #[cold]
    pub fn advance(&mut self, pos: usize, need: usize) {
        let end = (pos + need).next_multiple_of(STRIDE).min(self.bytes.len());
        // Without populating (before Linux 5.14) the pages come one by one.
        let _ = self.bytes.advise_range(Advice::PopulateRead, self.end, end - self.end);
        self.end = end;
        self.release(pos - pos % STRIDE);
    }

    #[allow(unsafe_code)]
    fn release(&mut self, before: usize) {
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
