//! What the black-box tests share.

use std::io::Write;

use capture::{ByteOrder, Compression, Error, Format, InterfaceChoice, Packet, Reader, Writer};
use units::Nanos;

/// What a capture can be compressed with.
pub const COMPRESSED: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Xz, Compression::Lz4, Compression::Bzip2];

pub const NANOS: u32 = 0xa1b2_3c4d;
pub const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// A packet that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub ts: Nanos,
    pub orig_len: u32,
    pub data: Vec<u8>,
}

impl From<Packet<'_>> for Owned {
    fn from(packet: Packet<'_>) -> Self {
        Self { ts: packet.ts, orig_len: packet.orig_len, data: packet.data.into() }
    }
}

/// Reads to the end: what came before it, and the error if it is one.
pub fn drain(reader: &mut Reader) -> (Vec<Owned>, Option<Error>) {
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(packet)) => packets.push(packet.into()),
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error)),
        }
    }
}

/// A capture of `packets` as this crate writes it.
pub fn written(packets: &[Owned], format: Format, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), format, compression).expect("a writer");
    for packet in packets {
        writer.write(packet.ts, packet.orig_len, &packet.data).expect("a packet that fits");
    }
    writer.into_inner().expect("a whole capture")
}

/// A capture of `packets`, compressed by whatever can: this crate reads more than it writes.
pub fn stored(packets: &[Owned], format: Format, compression: Compression) -> Vec<u8> {
    compress(&written(packets, format, Compression::None), compression)
}

/// Bytes as the compressor's own tool writes them, with a checksum.
pub fn compress(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::None => bytes.into(),
        Compression::Gzip => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("gzip")
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
            encoder.include_checksum(true).expect("an option");
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("zstd")
        }
        Compression::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(0);
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("an encoder");
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("xz")
        }
        Compression::Lz4 => {
            let frame = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Linked)
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .content_checksum(true);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
            encoder.write_all(bytes).expect("lz4");
            encoder.finish().expect("lz4")
        }
        Compression::Bzip2 => {
            let level = bzip2::Compression::fast();
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("bzip2")
        }
    }
}

/// Bytes in one of the two orders, to build captures that this crate does not write.
#[derive(Clone, Debug)]
pub struct Bytes {
    pub order: ByteOrder,
    pub bytes: Vec<u8>,
}

impl Bytes {
    pub fn new(order: ByteOrder) -> Self {
        Self { order, bytes: Vec::new() }
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn u16(self, value: u16) -> Self {
        let bytes = if self.little() { value.to_le_bytes() } else { value.to_be_bytes() };
        self.raw(&bytes)
    }

    pub fn u32(self, value: u32) -> Self {
        let bytes = if self.little() { value.to_le_bytes() } else { value.to_be_bytes() };
        self.raw(&bytes)
    }

    pub fn u64(self, value: u64) -> Self {
        let bytes = if self.little() { value.to_le_bytes() } else { value.to_be_bytes() };
        self.raw(&bytes)
    }

    pub fn words(self, words: &[u32]) -> Self {
        words.iter().fold(self, |bytes, word| bytes.u32(*word))
    }

    fn little(&self) -> bool {
        self.order == ByteOrder::Little
    }

    fn padded(mut self) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// A pcap file header.
    pub fn pcap(self, magic: u32, link: u32) -> Self {
        self.u32(magic).u16(2).u16(4).words(&[0, 0, 65_535, link])
    }

    /// A pcap record.
    pub fn record(self, seconds: u32, fraction: u32, orig_len: u32, data: &[u8]) -> Self {
        self.words(&[seconds, fraction, data.len() as u32, orig_len]).raw(data)
    }

    /// A pcapng block around a body.
    pub fn block(self, kind: u32, body: impl FnOnce(Self) -> Self) -> Self {
        let body = body(Self::new(self.order)).padded().bytes;
        let len = body.len() as u32 + 12;
        self.u32(kind).u32(len).raw(&body).u32(len)
    }

    pub fn section(self) -> Self {
        self.block(0x0a0d_0d0a, |body| body.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX))
    }

    pub fn interface(self, link: u16, options: impl FnOnce(Self) -> Self) -> Self {
        self.block(1, |body| options(body.u16(link).u16(0).u32(0)))
    }

    /// An interface of Ethernet with a name.
    pub fn named(self, name: &str) -> Self {
        self.interface(1, |options| options.option(2, name.as_bytes()))
    }

    /// The statistics of an interface, by code and value.
    pub fn statistics(self, interface: u32, counters: &[(u16, u64)]) -> Self {
        self.block(5, |body| {
            let add = |options: Self, (code, value): &(u16, u64)| {
                let value = Self::new(options.order).u64(*value).bytes;
                options.option(*code, &value)
            };
            counters.iter().fold(body.words(&[interface, 0, 0]), add).option(0, &[])
        })
    }

    pub fn option(self, code: u16, value: &[u8]) -> Self {
        self.u16(code).u16(value.len() as u16).raw(value).padded()
    }

    pub fn enhanced(self, interface: u32, ticks: u64, data: &[u8]) -> Self {
        self.block(6, |body| {
            let len = data.len() as u32;
            body.words(&[interface, (ticks >> 32) as u32, ticks as u32, len, len]).raw(data)
        })
    }

    /// Reads all of it, which must go well.
    pub fn read(self) -> Vec<Owned> {
        let (packets, error) = drain(&mut self.open().expect("a capture"));
        assert!(error.is_none(), "{error:?}");
        packets
    }

    /// The error that comes on opening or, after the packets, on reading.
    pub fn error(self) -> Error {
        match self.open() {
            Err(error) => error,
            Ok(mut reader) => drain(&mut reader).1.expect("an error"),
        }
    }

    pub fn open(self) -> Result<Reader, Error> {
        Reader::from_bytes("made.pcap", self.bytes)
    }

    pub fn choose(&self, choice: InterfaceChoice) -> Result<Reader, Error> {
        Reader::interface_from_bytes("made.pcap", self.bytes.clone(), choice)
    }
}
