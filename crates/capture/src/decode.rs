//! Decompression of a stream: several members, frames or streams are one, and an end in the middle is
//! `UnexpectedEof` whichever way the decoder says it.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::{Error as Lz4Error, FrameDecoder};
use lzma_rust2::{Action, Status, StreamResult, XzStream};
use zstd::stream::read::Decoder;

use crate::info::Compression;

const BUFFER: usize = 256 * 1024;
/// The longest window that zstd can write (`zstd --long=31`).
const ZSTD_WINDOW_LOG: u32 = 31;
/// Memory for xz in KiB, whose largest dictionary is 1.5 GiB.
const XZ_MEMORY_KIB: u32 = 2 * 1024 * 1024;

/// Returns the decompressed bytes of `input`; `taken` counts those that are taken from it.
pub(crate) fn decoder(
    input: impl Read + Send + 'static,
    compression: Compression,
    taken: Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + Send>> {
    let input = Counted { input, taken };
    let buffered = |input| BufReader::with_capacity(BUFFER, input);
    Ok(match compression {
        Compression::None => Box::new(input),
        Compression::Gzip => Box::new(MultiGzDecoder::new(buffered(input))),
        Compression::Zstd => {
            let mut decoder = Decoder::with_buffer(buffered(input))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
        Compression::Xz => {
            let stream = XzStream::new_mem_limit(true, XZ_MEMORY_KIB);
            Box::new(Xz { input: buffered(input), stream, failed: None })
        }
        Compression::Lz4 => Box::new(Lz4(FrameDecoder::new(Watched::new(buffered(input))))),
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(buffered(input))),
    })
}

struct Counted<R> {
    input: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.taken.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// An input that remembers whether more was asked of it than it had.
struct Watched<R> {
    input: R,
    exhausted: bool,
}

impl<R> Watched<R> {
    fn new(input: R) -> Self {
        Self { input, exhausted: false }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.exhausted |= len == 0 && !buffer.is_empty();
        Ok(len)
    }
}

/// The library's own reader drops what it has decompressed before a cut; its stream hands it out.
struct Xz<R> {
    input: R,
    stream: XzStream,
    /// Reason why nothing follows what was handed out.
    failed: Option<io::Error>,
}

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let input = self.input.fill_buf()?;
            let exhausted = input.is_empty();
            let action = if exhausted { Action::Finish } else { Action::Run };
            let before = self.stream.total_out();
            let result = self.stream.process(input, buffer, action);
            let len = (self.stream.total_out() - before) as usize;
            match result {
                Ok(StreamResult { bytes_consumed, status, .. }) => {
                    self.input.consume(bytes_consumed);
                    if len > 0 || status == Status::StreamEnd {
                        return Ok(len);
                    }
                }
                // An end within the magic of a further stream is called damage.
                Err(_) if exhausted => self.failed = Some(ErrorKind::UnexpectedEof.into()),
                Err(error) => self.failed = Some(error),
            }
            if len > 0 {
                return Ok(len);
            }
            if exhausted && self.failed.is_none() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The decoder ends at the end of a frame, and also where one ends between two of its blocks.
struct Lz4<R: Read>(FrameDecoder<Watched<R>>);

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Ok(0) => {}
                Ok(len) => return Ok(len),
                Err(error) => self.skip(error)?,
            }
            let input = self.0.get_mut();
            if input.exhausted {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if input.input.fill_buf()?.is_empty() {
                return Ok(0);
            }
        }
    }
}

impl<R: BufRead> Lz4<R> {
    /// Goes on behind a skippable frame, whose header was read; anything else is an error still.
    fn skip(&mut self, error: io::Error) -> io::Result<()> {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        let Some(Lz4Error::SkippableFrame(len)) = inner else { return Err(error) };
        let len = u64::from(*len);
        let skipped = io::copy(&mut self.0.get_mut().by_ref().take(len), &mut io::sink())?;
        if skipped == len { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}
