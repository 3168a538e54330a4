//! Where bytes come from, and what is refused before memory is taken for it.

use std::io::{self, Read};
use std::sync::Arc;

use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// The largest page that is decompressed: writers make pages of about 1 MiB.
const MOST_PAGE_BYTES: i64 = 32 << 20;
/// A header begins with its page's type and sizes, of at most five bytes each.
const HEADER_BEGIN_BYTES: usize = 18;
/// Size of the end of a file.
const END_BYTES: u64 = 8;
/// Headers are read in pieces of this size.
const PIECE_BYTES: usize = 4 << 10;

/// What a table is read from.
pub trait Source: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Reads some bytes; fewer only at its end.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn read(&self, at: u64, size: usize) -> io::Result<Vec<u8>>;
}

pub(crate) struct Chunks<S>(pub Arc<S>);

impl<S: Source> Chunks<S> {
    fn within(&self, at: u64, size: usize) -> usize {
        let rest = self.0.size().saturating_sub(at);
        usize::try_from(rest).map_or(size, |rest| rest.min(size))
    }
}

impl<S: Source> Length for Chunks<S> {
    fn len(&self) -> u64 {
        self.0.size()
    }
}

impl<S: Source> ChunkReader for Chunks<S> {
    type T = Pieces<S>;

    /// Reads on from a place, which is that of a page's header.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let begin = self.0.read(start, self.within(start, HEADER_BEGIN_BYTES))?;
        // What is read otherwise is the end of the file, which says where its description begins.
        let is_end = start.checked_add(END_BYTES) == Some(self.0.size());
        let claimed = claimed_bytes(&begin)
            .or(is_end.then_some(0))
            .ok_or_else(|| ParquetError::General(format!("no header of a page at {start}")))?;
        if claimed > MOST_PAGE_BYTES {
            let text = format!("a page claims {claimed} bytes, expected at most {MOST_PAGE_BYTES}");
            return Err(ParquetError::General(text));
        }
        Ok(Pieces { source: self.0.clone(), next: start, piece: io::Cursor::default() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        let found = self.0.read(start, self.within(start, length))?;
        if found.len() < length {
            let text = format!("expected {length} bytes at {start}, got {}", found.len());
            return Err(ParquetError::EOF(text));
        }
        Ok(found.into())
    }
}

/// Finds the size that a page claims to have without compression: the second field of its header.
fn claimed_bytes(header: &[u8]) -> Option<i64> {
    /// In Thrift's compact protocol: the next field, an `i32`.
    const NEXT_I32: u8 = 0x15;
    let (&NEXT_I32, rest) = header.split_first()? else { return None };
    let (_, rest) = varint(rest)?;
    let (&NEXT_I32, rest) = rest.split_first()? else { return None };
    let (zigzag, _) = varint(rest)?;
    Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let last = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let (own, rest) = bytes.split_at(last + 1);
    let value = own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
}

/// Reads on from a place, a piece at a time.
pub(crate) struct Pieces<S> {
    source: Arc<S>,
    next: u64,
    piece: io::Cursor<Vec<u8>>,
}

impl<S: Source> Read for Pieces<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.piece.read(into)?;
        if got > 0 || into.is_empty() {
            return Ok(got);
        }
        let rest = self.source.size().saturating_sub(self.next);
        let size = usize::try_from(rest).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES));
        self.piece = io::Cursor::new(self.source.read(self.next, size)?);
        self.next += size as u64;
        self.piece.read(into)
    }
}
