//! Decompression of a stream: several members, frames or streams are one, and an end in the middle is
//! `UnexpectedEof` whichever way the decoder says it.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::{Error as Lz4Error, FrameDecoder};
use lzma_rust2::XzReader;
use zstd::stream::read::Decoder;

use crate::info::Compression;

const BUFFER: usize = 256 * 1024;
/// The longest window that zstd can write (`zstd --long=31`).
const ZSTD_WINDOW_LOG: u32 = 31;
/// As much for xz, whose largest dictionary is 1.5 GiB; a KiB each.
const XZ_MEMORY_KIB: u32 = 2 * 1024 * 1024;

/// The decompressed bytes of `input`; `taken` counts those that are taken from it.
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
            let input = Watched::new(buffered(input));
            Box::new(Xz(XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB)))
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

/// The decoder calls a stream that ends within its magic damaged.
struct Xz<R: Read>(XzReader<Watched<R>>);

impl<R: Read> Read for Xz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| {
            let is_cut = error.kind() == ErrorKind::InvalidData && self.0.inner().exhausted;
            if is_cut { ErrorKind::UnexpectedEof.into() } else { error }
        })
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
