//! Bytes that come in order from a thread of their own, which reads and decompresses them.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::decode::decoder;
use crate::info::Compression;

/// Large enough to make the hand-over cheap, small enough for a few to stay in the cache.
const CHUNK: usize = 256 * 1024;
const CHUNKS: usize = 4;
/// Room in front of a chunk's bytes, for what was left of the one before: then the receiver need not copy the chunk.
pub(crate) const ROOM: usize = 64 * 1024;

/// The receiving end.
pub(crate) struct Stream {
    full: Receiver<Message>,
    empty: Sender<Vec<u8>>,
    /// Bytes taken from the input so far, before decompression.
    taken: Arc<AtomicU64>,
}

/// A message of the thread: chunks, each behind its [`ROOM`], then the ending.
pub(crate) enum Message {
    Chunk(Vec<u8>),
    End(Ending),
}

/// The ending of a stream.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The stream ended at a boundary.
    Whole,
    /// The stream ended within a compressed frame or member.
    Cut,
    /// The stream ended with an error of the system or of the decompressor.
    Failed(io::Error),
}

impl Stream {
    pub fn spawn(input: impl Read + Send + 'static, compression: Compression) -> io::Result<Self> {
        let taken = Arc::new(AtomicU64::new(0));
        let decoder = decoder(input, compression, Arc::clone(&taken))?;
        let (full_to, full) = sync_channel(CHUNKS);
        let (empty, empty_from) = channel();
        for _ in 0..CHUNKS {
            // The receiver is alive: it is two lines above.
            let _ = empty.send(Vec::new());
        }
        thread::Builder::new()
            .name("capture".into())
            .spawn(move || pump(decoder, &full_to, &empty_from))?;
        Ok(Self { full, empty, taken })
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Waits for more; `None` when the thread died without saying how the stream ended.
    pub fn receive(&self) -> Option<Message> {
        self.full.recv().ok()
    }

    /// Gives a chunk back to be filled again.
    pub fn recycle(&self, chunk: Vec<u8>) {
        // After the last chunk there is no one left to want it.
        let _ = self.empty.send(chunk);
    }
}

/// Runs until the input ends or no one listens any more.
fn pump(mut input: Box<dyn Read + Send>, full: &SyncSender<Message>, empty: &Receiver<Vec<u8>>) {
    while let Ok(mut chunk) = empty.recv() {
        chunk.resize(ROOM + CHUNK, 0);
        chunk.shrink_to(ROOM + CHUNK);
        let (len, ending) = fill(&mut input, &mut chunk[ROOM..]);
        chunk.truncate(ROOM + len);
        if full.send(Message::Chunk(chunk)).is_err() {
            return;
        }
        if let Some(ending) = ending {
            let _ = full.send(Message::End(ending));
            return;
        }
    }
}

fn fill(input: &mut impl Read, chunk: &mut [u8]) -> (usize, Option<Ending>) {
    let mut len = 0;
    while len < chunk.len() {
        match input.read(&mut chunk[len..]) {
            Ok(0) => return (len, Some(Ending::Whole)),
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return (len, Some(Ending::Cut));
            }
            Err(error) => return (len, Some(Ending::Failed(error))),
        }
    }
    (len, None)
}
