//! The bytes of a capture around the read position, in one piece, wherever they come from.

use crate::map::Map;
use crate::stream::{Ending, Message, Stream};

pub(crate) struct Window {
    bytes: Bytes,
    /// The read position in the visible bytes.
    pos: usize,
}

enum Bytes {
    Map(Map),
    Memory(Vec<u8>),
    Stream(Box<Streamed>),
}

/// The part of a stream that has come and is not yet read.
struct Streamed {
    buffer: Vec<u8>,
    /// The offset in the stream of the buffer's first byte.
    base: u64,
    stream: Stream,
    ended: Option<Ending>,
}

impl Window {
    pub fn map(map: Map) -> Self {
        Self { bytes: Bytes::Map(map), pos: 0 }
    }

    pub fn memory(bytes: Vec<u8>) -> Self {
        Self { bytes: Bytes::Memory(bytes), pos: 0 }
    }

    pub fn stream(stream: Stream) -> Self {
        let streamed = Streamed { buffer: Vec::new(), base: 0, stream, ended: None };
        Self { bytes: Bytes::Stream(Box::new(streamed)), pos: 0 }
    }

    /// The bytes from the read position on.
    #[inline]
    pub fn ahead(&self) -> &[u8] {
        &self.visible()[self.pos..]
    }

    #[inline]
    fn visible(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Map(map) => map.visible(),
            Bytes::Memory(bytes) => bytes,
            Bytes::Stream(streamed) => &streamed.buffer,
        }
    }

    /// Moves the read position over `len` bytes, which must be visible.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.pos += len;
    }

    /// The bytes `back` before the read position.
    #[inline]
    pub fn behind(&self, back: usize, len: usize) -> &[u8] {
        let start = self.pos - back;
        &self.visible()[start..start + len]
    }

    /// The read position in the (decompressed) capture.
    #[inline]
    pub fn offset(&self) -> u64 {
        match &self.bytes {
            Bytes::Stream(streamed) => streamed.base + self.pos as u64,
            _ => self.pos as u64,
        }
    }

    /// The read position in the file on disk.
    pub fn consumed(&self) -> u64 {
        match &self.bytes {
            Bytes::Stream(streamed) => streamed.stream.taken(),
            _ => self.pos as u64,
        }
    }

    /// Makes `need` bytes visible from the read position on, or as many as there are.
    #[cold]
    pub fn fill(&mut self, need: usize) {
        match &mut self.bytes {
            Bytes::Map(map) => map.advance(self.pos, need),
            Bytes::Memory(_) => {}
            Bytes::Stream(streamed) => {
                streamed.forget(std::mem::take(&mut self.pos));
                streamed.fill(need);
            }
        }
    }

    /// How the stream ended, where it did not end as it should.
    pub fn ending(&self) -> &Ending {
        match &self.bytes {
            Bytes::Stream(streamed) => streamed.ended.as_ref().unwrap_or(&Ending::Whole),
            _ => &Ending::Whole,
        }
    }
}

impl Streamed {
    fn forget(&mut self, len: usize) {
        self.buffer.drain(..len);
        self.base += len as u64;
    }

    fn fill(&mut self, need: usize) {
        while self.buffer.len() < need && self.ended.is_none() {
            match self.stream.receive() {
                Some(Message::Chunk(chunk)) => {
                    self.buffer.extend_from_slice(&chunk);
                    self.stream.recycle(chunk);
                }
                Some(Message::End(ending)) => self.ended = Some(ending),
                None => self.ended = Some(died()),
            }
        }
    }
}

fn died() -> Ending {
    Ending::Failed(std::io::Error::other("the reading thread died"))
}
