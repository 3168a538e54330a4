//! The reader: bytes from a window, packets by a walk.

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;

use units::Nanos;

use crate::error::Error;
use crate::info::{Compression, Info};
use crate::map::Map;
use crate::step::{Record, Site, Step, lengths_hold};
use crate::stream::{Ending, Stream};
use crate::walk::Walk;
use crate::window::Window;

/// How many bytes tell a format.
const MAGIC: usize = 4;

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was captured, since 1970. It may be earlier than the packet before.
    pub ts: Nanos,
    /// Its length on the wire: at least 1, and at least the number of captured bytes.
    pub orig_len: u32,
    /// The captured bytes, from the Ethernet header on.
    pub data: &'a [u8],
    /// The byte offset of its record, after decompression where the capture is compressed.
    pub offset: u64,
}

/// Where a capture was cut off: what came before is good, what should have followed is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The byte offset up to which whole records were read, after decompression.
    pub offset: u64,
    /// The packets before.
    pub packets: u64,
    /// What is missing.
    pub reason: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut off at byte {} after {} packets: {}", self.offset, self.packets, self.reason)
    }
}

/// A place in a file where reading can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The bytes of the file.
    pub file_bytes: u64,
    /// The byte offset, after decompression where the capture is compressed.
    pub offset: u64,
    /// The packets before.
    pub packets: u64,
    /// Where the headers before lie: what follows can not be read without them.
    pub headers: Vec<u64>,
}

/// Reads a capture packet by packet.
pub struct Reader {
    walk: Walk,
    window: Window,
    headers: Vec<u64>,
    packets: u64,
    cut: Option<Cut>,
    origin: Origin,
}

/// Where a capture comes from.
struct Origin {
    name: String,
    compression: Compression,
    total: Option<u64>,
}

impl Reader {
    /// Opens the capture at `path`; `-` is standard input. Reads up to the first packet.
    ///
    /// # Errors
    /// When the file can not be read, or what comes before its first packet is not a capture of
    /// Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.as_os_str() == "-" {
            return Self::from_stream("standard input".into(), None, io::stdin());
        }
        let name = path.display().to_string();
        Self::from_file(&name, path).map_err(|source| io_error(&name, "open", source))?
    }

    /// Reads a capture that is in memory already, compressed or not; `name` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, Error> {
        let total = Some(bytes.len() as u64);
        match Compression::detect(&bytes[..bytes.len().min(MAGIC)]) {
            Compression::None => {
                let origin = Origin { name: name.into(), compression: Compression::None, total };
                Self::begin(origin, Window::memory(bytes))
            }
            _ => Self::from_stream(name.into(), total, Cursor::new(bytes)),
        }
    }

    /// The outer result is that of the system.
    fn from_file(name: &str, path: &Path) -> io::Result<Result<Self, Error>> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        // A pipe has no length and can not be mapped.
        if !meta.is_file() {
            return Ok(Self::from_stream(name.into(), None, file));
        }
        if meta.len() == 0 {
            return Ok(Err(Error::Empty { file: name.into() }));
        }
        let total = Some(meta.len());
        let compression = Compression::detect(&read_magic(&mut file)?);
        file.rewind()?;
        if compression != Compression::None {
            return Ok(Self::from_stream(name.into(), total, file));
        }
        let origin = Origin { name: name.into(), compression, total };
        Ok(Self::begin(origin, Window::map(Map::new(&file)?)))
    }

    fn from_stream(
        name: String,
        total: Option<u64>,
        mut input: impl Read + Send + 'static,
    ) -> Result<Self, Error> {
        let magic = read_magic(&mut input).map_err(|source| io_error(&name, "read", source))?;
        let compression = Compression::detect(&magic);
        let stream = Stream::spawn(Cursor::new(magic).chain(input), compression)
            .map_err(|source| io_error(&name, "start a thread to read", source))?;
        Self::begin(Origin { name, compression, total }, Window::stream(stream))
    }

    /// Reads up to the first packet.
    fn begin(origin: Origin, mut window: Window) -> Result<Self, Error> {
        window.fill(MAGIC);
        let head = &window.ahead()[..window.ahead().len().min(MAGIC)];
        let Some(walk) = Walk::detect(head) else { return Err(origin.no_capture(head, &window)) };
        let mut reader = Self { walk, window, headers: vec![], packets: 0, cut: None, origin };
        reader.seek()?;
        Ok(reader)
    }

    /// The next packet, or `None` at the end: then [`Reader::cut`] tells whether it is a clean one.
    ///
    /// # Errors
    /// When the capture can not be read or is corrupt here. What follows is not readable either:
    /// the same error comes again.
    #[allow(clippy::should_implement_trait, reason = "a packet borrows from the reader")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let record = match self.walk.peek(self.window.ahead()) {
            Some(record) => record,
            None => match self.seek()? {
                Some(record) => record,
                None => return Ok(None),
            },
        };
        self.packets += 1;
        let Record { ts, orig_len, data, len } = record;
        debug_assert!(data.end <= len, "a packet lies in its record");
        debug_assert!(lengths_hold(data.len() as u32, orig_len), "lengths were checked");
        let offset = self.window.offset();
        Ok(Some(Packet { ts, orig_len, data: &self.window.take(len)[data], offset }))
    }

    /// Goes on to the next packet, whatever lies before it.
    #[inline(never)]
    fn seek(&mut self) -> Result<Option<Record>, Error> {
        loop {
            if let Some(record) = self.walk.peek(self.window.ahead()) {
                return Ok(Some(record));
            }
            let site = self.origin.site(&self.window);
            match self.walk.step(self.window.ahead(), site)? {
                Step::Packet(record) => return Ok(Some(record)),
                Step::Header(len) => self.pass_header(len),
                Step::Skip(len) => {
                    assert!(len > 0, "a step goes on");
                    self.window.advance(len);
                }
                Step::Need(len) => {
                    if !self.fill(len)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn pass_header(&mut self, len: usize) {
        assert!(len > 0, "a header has bytes");
        assert!(self.headers.last() < Some(&self.window.offset()), "headers come in order");
        self.headers.push(self.window.offset());
        self.window.advance(len);
    }

    /// Goes on at a mark that lies ahead, as if all before it had been read. In a file that is not
    /// compressed, only the headers are.
    ///
    /// # Errors
    /// When the capture can not be read, or the mark is that of another one.
    pub fn resume(&mut self, mark: &Mark) -> Result<(), Error> {
        let file_bytes = self.origin.total.unwrap_or(0);
        self.as_before("bytes of the file", file_bytes, mark.file_bytes)?;
        for &header in mark.headers.iter().filter(|at| **at < mark.offset) {
            if header >= self.window.offset() && self.window.jump(header) {
                self.read_header()?;
            }
        }
        if self.window.jump(mark.offset) {
            self.packets = mark.packets;
        }
        while self.window.offset() < mark.offset && self.next()?.is_some() {}
        self.as_before("offset of a packet", self.window.offset(), mark.offset)?;
        self.as_before("packets before it", self.packets, mark.packets)
    }

    fn read_header(&mut self) -> Result<(), Error> {
        loop {
            let site = self.origin.site(&self.window);
            let need = match self.walk.step(self.window.ahead(), site)? {
                Step::Header(len) => {
                    self.pass_header(len);
                    return Ok(());
                }
                Step::Need(len) => len,
                Step::Packet(_) | Step::Skip(_) => 0,
            };
            if need <= self.window.ahead().len() || !self.fill(need)? {
                let read = self.headers.len() as u64;
                return self.as_before("headers", read, read + 1);
            }
        }
    }

    fn as_before(&self, what: &'static str, got: u64, expected: u64) -> Result<(), Error> {
        if got == expected {
            return Ok(());
        }
        Err(Error::Changed { file: self.origin.name.clone(), what, got, expected })
    }

    /// Whether `need` bytes lie ahead; if not, the capture ends here, which is noted if it is a cut.
    fn fill(&mut self, need: usize) -> Result<bool, Error> {
        debug_assert!(need > self.window.ahead().len(), "asked for what is there");
        self.window.fill(need);
        let have = self.window.ahead().len();
        if have >= need {
            return Ok(true);
        }
        let compression = self.origin.compression;
        let reason = match self.window.ending() {
            Ending::Failed(error) => return Err(self.origin.failed(error, &self.window)),
            _ if self.window.offset() == 0 => {
                return Err(self.origin.header_cut(&self.window, need));
            }
            Ending::Cut => format!("the {compression} data end in the middle"),
            Ending::Whole if have == 0 => return Ok(false),
            Ending::Whole => format!("got {have} bytes of a record, expected at least {need}"),
        };
        self.cut = Some(Cut { offset: self.window.offset(), packets: self.packets, reason });
        Ok(false)
    }

    /// What the capture says of itself, as far as it has been read.
    #[must_use]
    pub fn info(&self) -> Info {
        Info {
            name: self.origin.name.clone(),
            format: self.walk.format(),
            compression: self.origin.compression,
            byte_order: self.walk.byte_order(),
            resolution: self.walk.resolution(),
        }
    }

    /// Where the capture was cut off, once [`Reader::next`] has returned `None`.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// The byte offset up to which packets were read, after decompression.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// Where the headers lie that were read so far, in the order of the capture.
    #[must_use]
    pub fn headers(&self) -> &[u64] {
        &self.headers
    }

    /// How many bytes of the file (compressed, where it is) have been read.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        self.window.consumed()
    }

    /// How many bytes the file has, where that is known beforehand.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        self.origin.total
    }
}

impl Origin {
    #[inline]
    fn site(&self, window: &Window) -> Site<'_> {
        let decompressed = self.compression != Compression::None;
        Site { file: &self.name, decompressed, offset: window.offset() }
    }

    /// Why there is no walk for what starts with `head`.
    fn no_capture(&self, head: &[u8], window: &Window) -> Error {
        let file = self.name.clone();
        match window.ending() {
            Ending::Failed(error) => self.failed(error, window),
            Ending::Cut if head.len() < MAGIC => self.header_cut(window, MAGIC),
            _ if head.is_empty() => Error::Empty { file },
            _ => Error::NotACapture { file, got: head.into() },
        }
    }

    fn header_cut(&self, window: &Window, expected: usize) -> Error {
        let got = window.ahead().len() as u64;
        Error::HeaderCut { place: self.site(window).place(), got, expected: expected as u64 }
    }

    fn failed(&self, error: &io::Error, window: &Window) -> Error {
        let file = self.name.clone();
        if self.compression == Compression::None || error.raw_os_error().is_some() {
            let source = error.raw_os_error().map_or_else(
                || io::Error::new(error.kind(), error.to_string()),
                io::Error::from_raw_os_error,
            );
            return Error::Io { file, action: "read", source };
        }
        let (offset, compression) = (window.consumed(), self.compression);
        Error::Compressed { file, offset, compression, got: error.to_string() }
    }
}

/// The first bytes of a file, as many as it has.
fn read_magic(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = Vec::with_capacity(MAGIC);
    input.take(MAGIC as u64).read_to_end(&mut magic)?;
    Ok(magic)
}

fn io_error(file: &str, action: &'static str, source: io::Error) -> Error {
    Error::Io { file: file.into(), action, source }
}
