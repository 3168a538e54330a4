//! The bytes of a capture around the read position, in one piece, wherever they come from.

use crate::map::Map;
use crate::stream::{Ending, Message, ROOM, Stream};

pub(crate) struct Window {
    bytes: Bytes,
    /// The read position in the visible bytes.
    pos: usize,
}

enum Bytes {
    Map(Map),
    Buffer(Buffer),
}

/// Bytes of a stream that are not yet read; or a whole capture.
struct Buffer {
    bytes: Vec<u8>,
    /// The offset in the stream of the first byte; below 0, in two's complement, where that is room in front of a chunk.
    base: u64,
    stream: Option<Stream>,
    ending: Option<Ending>,
}

impl Window {
    pub fn map(map: Map) -> Self {
        Self { bytes: Bytes::Map(map), pos: 0 }
    }

    pub fn memory(bytes: Vec<u8>) -> Self {
        Self::buffer(bytes, None)
    }

    pub fn stream(stream: Stream) -> Self {
        Self::buffer(Vec::new(), Some(stream))
    }

    fn buffer(bytes: Vec<u8>, stream: Option<Stream>) -> Self {
        let buffer = Buffer { bytes, base: 0, stream, ending: None };
        Self { bytes: Bytes::Buffer(buffer), pos: 0 }
    }

    /// Returns the bytes from the read position on.
    #[inline]
    pub fn ahead(&self) -> &[u8] {
        &self.visible()[self.pos..]
    }

    #[inline]
    fn visible(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Map(map) => map.visible(),
            Bytes::Buffer(buffer) => &buffer.bytes,
        }
    }

    /// Moves the read position over `len` bytes, which must be visible.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.pos += len;
        assert!(self.pos <= self.visible().len(), "what is passed over is visible");
    }

    /// Moves the read position ahead to `offset`; `false` where the bytes have to come one after the
    /// other, or do not reach so far.
    pub fn jump(&mut self, offset: u64) -> bool {
        let (len, here) = match &self.bytes {
            Bytes::Map(map) => (map.len(), self.pos),
            Bytes::Buffer(buffer) if buffer.stream.is_some() => return false,
            Bytes::Buffer(buffer) => (buffer.bytes.len(), self.pos),
        };
        let Some(pos) = offset.checked_sub(self.offset() - here as u64) else { return false };
        if pos < here as u64 || pos > len as u64 {
            return false;
        }
        self.pos = pos as usize;
        if let Bytes::Map(map) = &mut self.bytes {
            map.advance(self.pos, 0);
        }
        true
    }

    /// Moves the read position over `len` bytes, which must be visible, and returns them.
    #[inline]
    pub fn take(&mut self, len: usize) -> &[u8] {
        let start = self.pos;
        self.pos += len;
        &self.visible()[start..self.pos]
    }

    /// Returns the read position in the (decompressed) capture.
    #[inline]
    pub fn offset(&self) -> u64 {
        match &self.bytes {
            Bytes::Map(_) => self.pos as u64,
            Bytes::Buffer(buffer) => buffer.base.wrapping_add(self.pos as u64),
        }
    }

    /// Returns the read position in the file on disk.
    pub fn consumed(&self) -> u64 {
        match &self.bytes {
            Bytes::Buffer(Buffer { stream: Some(stream), .. }) => stream.taken(),
            _ => self.offset(),
        }
    }

    /// Keeps less of a file in memory where so many are read at a time.
    pub fn share(&mut self, files: usize) {
        if let Bytes::Map(map) = &mut self.bytes {
            map.share(files);
        }
    }

    /// Makes `need` bytes visible from the read position on, or as many as there are.
    pub fn fill(&mut self, need: usize) {
        match &mut self.bytes {
            Bytes::Map(map) => map.advance(self.pos, need),
            Bytes::Buffer(buffer) => self.pos = buffer.fill(self.pos, need),
        }
    }

    /// Returns how the bytes ended, once [`Window::fill`] has found no more.
    pub fn ending(&self) -> &Ending {
        match &self.bytes {
            Bytes::Map(_) => &Ending::Whole,
            Bytes::Buffer(buffer) => buffer.ending.as_ref().unwrap_or(&Ending::Whole),
        }
    }
}

impl Buffer {
    /// Adds chunks until there are `need` bytes from `pos` on; returns where that lies then.
    fn fill(&mut self, mut pos: usize, need: usize) -> usize {
        let Some(stream) = &self.stream else { return pos };
        while self.bytes.len() - pos < need && self.ending.is_none() {
            match stream.receive() {
                Some(Message::Chunk(mut chunk)) => {
                    let here = self.base.wrapping_add(pos as u64);
                    let rest = &self.bytes[pos..];
                    if let Some(start) = ROOM.checked_sub(rest.len()) {
                        chunk[start..ROOM].copy_from_slice(rest);
                        std::mem::swap(&mut self.bytes, &mut chunk);
                        pos = start;
                    } else {
                        self.bytes.drain(..pos);
                        self.bytes.extend_from_slice(&chunk[ROOM..]);
                        pos = 0;
                    }
                    self.base = here.wrapping_sub(pos as u64);
                    stream.recycle(chunk);
                }
                Some(Message::End(ending)) => self.ending = Some(ending),
                None => self.ending = Some(died()),
            }
        }
        pos
    }
}

fn died() -> Ending {
    Ending::Failed(std::io::Error::other("the reading thread died"))
}
