//! Writing of captures: nanoseconds, little-endian, Ethernet.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use units::Nanos;

use crate::draft::Draft;
use crate::error::{Error, PCAP_END};
use crate::info::{Compression, Format};
use crate::link::{LinkType, MAX_CAPTURED, lengths_hold};
use crate::{pcap, pcapng};

const BUFFER: usize = 256 * 1024;
/// `if_tsresol` of nanoseconds.
const NANOSECONDS: u8 = 9;

/// Writes a capture packet by packet.
pub struct Writer<W: Write> {
    out: Encoder<W>,
    format: Format,
    name: String,
}

enum Encoder<W: Write> {
    Plain(BufWriter<W>),
    Gzip(BufWriter<GzEncoder<W>>),
    Zstd(BufWriter<zstd::Encoder<'static, W>>),
}

impl Writer<Draft> {
    /// Starts a capture at `path`. It appears there when [`Writer::finish`] succeeds, not before;
    /// a writer that is dropped leaves nothing behind.
    ///
    /// # Errors
    /// When the file can not be created in its folder, or the compression is none that is written:
    /// those are gzip and zstd.
    pub fn create(path: &Path, format: Format, compression: Compression) -> Result<Self, Error> {
        let name = path.display().to_string();
        Draft::create(path)
            .and_then(|draft| Self::begin(draft, format, compression, name.clone()))
            .map_err(|source| Error::Io { file: name, action: "create", source })
    }

    /// Ends the capture, makes it durable and gives it its name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(self) -> Result<(), Error> {
        let file = self.name;
        self.out.finish().and_then(Draft::publish).map_err(|source| Error::Io {
            file,
            action: "write",
            source,
        })
    }
}

impl<W: Write> Writer<W> {
    /// Starts a capture in anything that takes bytes.
    ///
    /// # Errors
    /// When the bytes are not taken, or the compression is none that is written.
    pub fn new(out: W, format: Format, compression: Compression) -> Result<Self, Error> {
        let name = "capture";
        Self::begin(out, format, compression, name.into()).map_err(|source| Error::Io {
            file: name.into(),
            action: "write",
            source,
        })
    }

    fn begin(out: W, format: Format, compression: Compression, name: String) -> io::Result<Self> {
        let mut out = Encoder::new(out, compression)?;
        match format {
            Format::Pcap => out.write_all(&pcap_header())?,
            Format::PcapNg => out.write_all(&pcapng_header())?,
            Format::Erf | Format::Snoop | Format::Mscap | Format::Link => {
                let text = format!("{format} is read, not written");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        }
        Ok(Self { out, format, name })
    }

    /// Appends a packet of `orig_len` bytes on the wire, of which `data` were captured.
    ///
    /// # Errors
    /// When the format can not hold it, or the bytes are not taken.
    pub fn write(&mut self, ts: Nanos, orig_len: u32, data: &[u8]) -> Result<(), Error> {
        let captured = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if !lengths_hold(captured, orig_len) {
            return Err(self.bad_length(captured, orig_len));
        }
        let written = match self.format {
            Format::Pcap if ts > PCAP_END => return Err(self.too_late(ts)),
            Format::Pcap => self.write_record(ts, captured, orig_len, data),
            _ => self.write_block(ts, captured, orig_len, data),
        };
        let file = || self.name.clone();
        written.map_err(|source| Error::Io { file: file(), action: "write", source })
    }

    /// Ends the capture and returns what it was written to.
    ///
    /// # Errors
    /// When the last bytes are not taken.
    pub fn into_inner(self) -> Result<W, Error> {
        let file = self.name;
        self.out.finish().map_err(|source| Error::Io { file, action: "write", source })
    }

    fn write_record(&mut self, ts: Nanos, captured: u32, len: u32, data: &[u8]) -> io::Result<()> {
        let seconds = (ts.0 / 1_000_000_000) as u32;
        let fraction = (ts.0 % 1_000_000_000) as u32;
        self.out.write_all(&bytes::<{ pcap::RECORD }>([seconds, fraction, captured, len]))?;
        self.out.write_all(data)
    }

    fn write_block(&mut self, ts: Nanos, captured: u32, len: u32, data: &[u8]) -> io::Result<()> {
        let padded = captured.next_multiple_of(4);
        let block = padded + 32;
        let (high, low) = ((ts.0 >> 32) as u32, ts.0 as u32);
        let head = [pcapng::ENHANCED, block, 0, high, low, captured, len];
        self.out.write_all(&bytes::<28>(head))?;
        self.out.write_all(data)?;
        self.out.write_all(&[0; 3][..(padded - captured) as usize])?;
        self.out.write_all(&block.to_le_bytes())
    }

    #[cold]
    fn bad_length(&self, captured: u32, orig_len: u32) -> Error {
        let (file, what) = (self.name.clone(), "captured length");
        let expected = format!("at most {MAX_CAPTURED} and the packet's {orig_len} bytes, not 0");
        Error::Unwritable { file, what, got: captured.into(), expected }
    }

    #[cold]
    fn too_late(&self, ts: Nanos) -> Error {
        let (file, what) = (self.name.clone(), "time in ns since 1970");
        let expected = format!("at most {} (pcap has 32 bits of seconds; use pcapng)", PCAP_END.0);
        Error::Unwritable { file, what, got: ts.0, expected }
    }
}

impl<W: Write> Encoder<W> {
    fn new(out: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Plain(BufWriter::with_capacity(BUFFER, out)),
            Compression::Gzip => {
                let encoder = GzEncoder::new(out, flate2::Compression::default());
                Self::Gzip(BufWriter::with_capacity(BUFFER, encoder))
            }
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zstd(BufWriter::with_capacity(BUFFER, encoder))
            }
            Compression::Xz | Compression::Lz4 | Compression::Bzip2 => {
                let text = format!("{compression} is read, not written");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        })
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(bytes),
            Self::Gzip(out) => out.write_all(bytes),
            Self::Zstd(out) => out.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out.into_inner()?),
            Self::Gzip(out) => out.into_inner()?.finish(),
            Self::Zstd(out) => out.into_inner()?.finish(),
        }
    }
}

fn pcap_header() -> [u8; pcap::HEADER] {
    let version = u32::from(pcap::VERSION.0) | u32::from(pcap::VERSION.1) << 16;
    bytes([pcap::MAGIC_NANOS, version, 0, 0, MAX_CAPTURED, LinkType::ETHERNET.0])
}

/// Returns a section of unknown length and its one interface.
fn pcapng_header() -> [u8; 60] {
    let tsresol = u32::from(pcapng::OPTION_TSRESOL) | 1 << 16;
    let section = [pcapng::SECTION, 28, pcapng::ORDER_MAGIC, 1, u32::MAX, u32::MAX, 28];
    let link = LinkType::ETHERNET.0;
    let interface = [pcapng::INTERFACE, 32, link, MAX_CAPTURED, tsresol, NANOSECONDS.into(), 0, 32];
    let mut header = [0; 60];
    header[..28].copy_from_slice(&bytes::<28>(section));
    header[28..].copy_from_slice(&bytes::<32>(interface));
    header
}

/// Returns the little-endian bytes of some words: `LEN` is four times their number.
fn bytes<const LEN: usize>(words: impl AsRef<[u32]>) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words.as_ref()) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
