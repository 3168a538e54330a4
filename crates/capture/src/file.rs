//! The reader of one file: bytes from a window, packets by a walk.

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use units::{Nanos, counted};

use crate::decode::decoder;
use crate::error::Error;
use crate::info::{ChosenInterface, Compression, Info};
use crate::interface::{Device, Interface, InterfaceChoice, Interfaces};
use crate::map::Map;
use crate::step::{Record, Site, Step};
use crate::stream::{Ending, Stream};
use crate::walk::{BEGINNING, MAGIC, Walk};
use crate::window::Window;

/// Number of packets that [`interfaces`] reads.
const BEGINNING_PACKETS: u64 = 64 * 1024;
const BEGINNING_BYTES: u64 = 16 * 1024 * 1024;

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Time of the capture, since 1970. It may be earlier than that of the packet before.
    pub ts: Nanos,
    /// Its length on the wire: at least 1, and at least the number of captured bytes.
    pub orig_len: u32,
    /// The captured bytes, from the Ethernet header on. Where the link type is another one that is
    /// read, that header is made: addresses of zeros, and the type of what follows.
    pub data: &'a [u8],
    /// The byte offset of its record, after decompression where the capture is compressed.
    pub offset: u64,
}

/// The end of a capture that was cut off: what came before is good, what should have followed is
/// missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The byte offset up to which whole records were read, after decompression.
    pub offset: u64,
    /// The packets before.
    pub packets: u64,
    /// Description of what is missing.
    pub reason: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = counted(self.packets, "packet");
        write!(f, "cut off at byte {} after {packets}: {}", self.offset, self.reason)
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
    /// Place at which the headers before lie: what follows can not be read without them.
    pub headers: Vec<u64>,
}

/// Reads a file packet by packet.
pub(crate) struct FileReader {
    walk: Walk,
    window: Window,
    headers: Vec<u64>,
    packets: u64,
    cut: Option<Cut>,
    origin: Origin,
    /// Times of the first and the latest packet, in ns.
    ends_ns: Option<(u64, u64)>,
    /// The latest frame that had to be made.
    scratch: Vec<u8>,
}

/// The origin of a capture.
struct Origin {
    name: String,
    compression: Compression,
    total: Option<u64>,
}

impl FileReader {
    /// Opens the capture at `path` for the packets of some interface: only those are handed out, and
    /// counted. Which interface that is, is decided by what the capture describes before its first
    /// packet.
    ///
    /// # Errors
    /// As [`FileReader::open_interface`], and when no interface, or several, are the one chosen.
    pub fn open_interface(path: &Path, choice: InterfaceChoice) -> Result<Self, Error> {
        Self::start(path, Interfaces::new(choice))?.at_first_packet()
    }

    fn start(path: &Path, interfaces: Interfaces) -> Result<Self, Error> {
        if path.as_os_str() == "-" {
            return Self::from_stream("standard input".into(), None, io::stdin(), interfaces);
        }
        let name = path.display().to_string();
        Self::from_file(&name, path, interfaces)
            .map_err(|source| io_error(&name, "open", source))?
    }

    /// Returns a reader for the packets of some interface.
    ///
    /// # Errors
    /// As [`FileReader::open_interface`].
    pub fn interface_from_bytes(
        name: &str,
        bytes: Vec<u8>,
        choice: InterfaceChoice,
    ) -> Result<Self, Error> {
        let interfaces = Interfaces::new(choice);
        let total = Some(bytes.len() as u64);
        match Compression::detect(&bytes[..bytes.len().min(MAGIC)]) {
            Compression::None => {
                let origin = Origin { name: name.into(), compression: Compression::None, total };
                Self::begin(origin, Window::memory(bytes), interfaces)
            }
            _ => Self::from_stream(name.into(), total, Cursor::new(bytes), interfaces),
        }?
        .at_first_packet()
    }

    /// Returns a reader of a file; the outer result is that of the system.
    fn from_file(
        name: &str,
        path: &Path,
        interfaces: Interfaces,
    ) -> io::Result<Result<Self, Error>> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        // A pipe has no length and can not be mapped.
        if !meta.is_file() {
            return Ok(Self::from_stream(name.into(), None, file, interfaces));
        }
        if meta.len() == 0 {
            return Ok(Err(Error::Empty { file: name.into() }));
        }
        let total = Some(meta.len());
        let compression = Compression::detect(&read_magic(&mut file)?);
        file.rewind()?;
        if compression != Compression::None {
            return Ok(Self::from_stream(name.into(), total, file, interfaces));
        }
        let origin = Origin { name: name.into(), compression, total };
        Ok(Self::begin(origin, Window::map(Map::new(&file)?), interfaces))
    }

    fn from_stream(
        name: String,
        total: Option<u64>,
        mut input: impl Read + Send + 'static,
        interfaces: Interfaces,
    ) -> Result<Self, Error> {
        let magic = read_magic(&mut input).map_err(|source| io_error(&name, "read", source))?;
        let compression = Compression::detect(&magic);
        let stream = Stream::spawn(Cursor::new(magic).chain(input), compression)
            .map_err(|source| io_error(&name, "start a thread to read", source))?;
        Self::begin(Origin { name, compression, total }, Window::stream(stream), interfaces)
    }

    fn begin(origin: Origin, mut window: Window, interfaces: Interfaces) -> Result<Self, Error> {
        window.fill(MAGIC);
        let head = &window.ahead()[..window.ahead().len().min(MAGIC)];
        let found = match Walk::detect(head, interfaces) {
            Err(interfaces) if other_format(head).is_none() => {
                window.fill(BEGINNING);
                Walk::detect(&window.ahead()[..window.ahead().len().min(BEGINNING)], interfaces)
            }
            found => found,
        };
        let Ok(walk) = found else {
            let head = &window.ahead()[..window.ahead().len().min(MAGIC)];
            return Err(origin.no_capture(head, &window));
        };
        let (headers, scratch) = (vec![], vec![]);
        Ok(Self { walk, window, headers, packets: 0, cut: None, origin, ends_ns: None, scratch })
    }

    fn at_first_packet(mut self) -> Result<Self, Error> {
        if self.seek()?.is_none() {
            self.walk.decide(self.origin.site(&self.window))?;
        }
        Ok(self)
    }

    /// Returns the next packet, or `None` at the end: then [`FileReader::cut`] tells whether it is a
    /// clean one.
    ///
    /// # Errors
    /// When the capture can not be read or is corrupt here. What follows is not readable either:
    /// the same error comes again.
    #[allow(clippy::should_implement_trait, reason = "a packet borrows from the reader")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, Error> {
        match self.walk.peek(self.window.ahead()) {
            Some(record) => Ok(Some(self.pass(record))),
            None => self.next_behind(),
        }
    }

    /// The next packet, where that is quick to tell and it is earlier than `before`; otherwise
    /// [`FileReader::next`] tells.
    #[inline(always)]
    pub fn next_quick(&mut self, before: Nanos) -> Option<Packet<'_>> {
        let record = self.walk.peek(self.window.ahead())?;
        (record.ts < before).then(|| self.pass(record))
    }

    #[inline(always)]
    fn pass(&mut self, record: Record) -> Packet<'_> {
        let Record { ts, orig_len, data, len, shape } = record;
        debug_assert!(shape.is_plain(), "only that is quick to tell");
        debug_assert!(data.end <= len, "a packet lies in its record");
        debug_assert!(shape.lengths_hold(data.len() as u32, orig_len), "lengths were checked");
        self.packets += 1;
        self.reach(ts);
        let offset = self.window.offset();
        Packet { ts, orig_len, data: &self.window.take(len)[data], offset }
    }

    /// Returns the next packet, where that is not quick to tell, or its frame has to be made.
    #[inline(never)]
    fn next_behind(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let Some(record) = self.seek()? else { return Ok(None) };
        let Record { ts, orig_len, data, len, shape } = record;
        self.packets += 1;
        self.reach(ts);
        let offset = self.window.offset();
        let data = &self.window.take(len)[data];
        let (orig_len, data) = shape.frame(orig_len, data, &mut self.scratch);
        Ok(Some(Packet { ts, orig_len, data, offset }))
    }

    #[inline(always)]
    fn reach(&mut self, ts: Nanos) {
        match &mut self.ends_ns {
            Some((_, last)) => *last = ts.0,
            None => self.ends_ns = Some((ts.0, ts.0)),
        }
    }

    /// Returns the time of the next packet of this file, in ns.
    pub fn next_ns(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.seek()?.map(|record| record.ts.0))
    }

    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Keeps less of the file in memory where so many are read at a time.
    pub fn share(&mut self, files: usize) {
        self.window.share(files);
    }

    /// Returns the times of the first and the latest packet, in ns.
    pub fn ends_ns(&self) -> Option<(u64, u64)> {
        self.ends_ns
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
                Step::Packet(record) => {
                    let device = record.shape.device(&self.window.ahead()[record.data.clone()]);
                    if device.is_none_or(|device| self.walk.reads(device)) {
                        return Ok(Some(record));
                    }
                    self.window.advance(record.len);
                }
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

    /// Returns true if `need` bytes lie ahead; if not, the capture ends here, which is noted if it
    /// is a cut.
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

    /// Returns what the capture says of itself, as far as it has been read.
    #[must_use]
    pub fn info(&self) -> Info {
        let interfaces = self.walk.interfaces();
        Info {
            name: self.origin.name.clone(),
            format: self.walk.format(),
            compression: self.origin.compression,
            byte_order: self.walk.byte_order(),
            resolution: interfaces.resolution(),
            link_types: interfaces.link_types(),
            interface: interfaces.chosen().map(|(number, name)| ChosenInterface { number, name }),
            snap_length: interfaces.snap_length(),
            dropped_packets: interfaces.dropped_packets(),
            stamps: None,
        }
    }

    /// Returns the devices whose packets were read so far, where packets name them and none was
    /// chosen.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        self.walk.interfaces().devices()
    }

    /// Counts the packets of each interface in the beginning of the capture.
    fn count_beginning(&mut self) -> Result<(), Error> {
        while self.walk.interfaces().counted() < BEGINNING_PACKETS
            && self.window.offset() < BEGINNING_BYTES
        {
            let site = self.origin.site(&self.window);
            let step = match self.walk.peek(self.window.ahead()) {
                Some(record) => Step::Packet(record),
                None => self.walk.step(self.window.ahead(), site)?,
            };
            match step {
                Step::Packet(record) => {
                    self.walk.count(record.shape.device(&self.window.ahead()[record.data]));
                    self.window.advance(record.len);
                }
                Step::Header(len) => self.pass_header(len),
                Step::Skip(len) => self.window.advance(len),
                Step::Need(len) => {
                    if !self.fill(len)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the place at which the capture was cut off, once [`FileReader::next`] has returned
    /// `None`.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Returns the byte offset up to which packets were read, after decompression.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// Returns where the headers lie that were read so far, in the order of the capture.
    #[must_use]
    pub fn headers(&self) -> &[u64] {
        &self.headers
    }

    /// Returns how many bytes of the file (compressed, where it is) have been read.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        self.window.consumed()
    }

    /// Returns how many bytes the file has, where that is known beforehand.
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

    /// Returns why there is no walk for what starts with `head`.
    fn no_capture(&self, head: &[u8], window: &Window) -> Error {
        let file = self.name.clone();
        match window.ending() {
            Ending::Failed(error) => self.failed(error, window),
            Ending::Cut if head.is_empty() => self.compressed_cut(window),
            Ending::Cut if head.len() < MAGIC => self.header_cut(window, MAGIC),
            _ if head.is_empty() => Error::Empty { file },
            _ => match other_format(head) {
                Some((got, hint)) => Error::Format { file, got, hint },
                None => Error::NotACapture { file, got: head.into() },
            },
        }
    }

    fn header_cut(&self, window: &Window, expected: usize) -> Error {
        let got = window.ahead().len() as u64;
        Error::HeaderCut { place: self.site(window).place(), got, expected: expected as u64 }
    }

    fn compressed_cut(&self, window: &Window) -> Error {
        let (file, got_bytes) = (self.name.clone(), window.consumed());
        Error::CompressedCut { file, compression: self.compression, got_bytes }
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

/// Returns the interfaces of the capture at `path`, whatever their link types, as its first 64 Ki
/// packets or 16 MiB describe them, with how many packets of each are among those. What a pipe
/// holds there is gone afterwards.
///
/// # Errors
/// When the file can not be read, or is no capture.
pub fn interfaces(path: &Path) -> Result<Vec<Interface>, Error> {
    let mut reader = FileReader::start(path, Interfaces::listing())?;
    reader.count_beginning()?;
    Ok(reader.walk.interfaces().list())
}

/// Returns the name of another format by its first bytes, and how to make a capture of it.
fn other_format(magic: &[u8]) -> Option<(&'static str, &'static str)> {
    const EDITCAP: &str = "convert it with editcap -F nsecpcap";
    const UNPACK: &str = "unpack it first, or compress it with zstd, gzip, xz, lz4 or bzip2";
    Some(match magic {
        [0x34, 0xcd, 0xb2, 0xa1] | [0xa1, 0xb2, 0xcd, 0x34] => {
            ("Kuznetsov's modified pcap", EDITCAP)
        }
        [0xac | 0xab, 0x01, 0x00, 0x1c] | [0x1c, 0x00, 0x01, 0xac | 0xab] => {
            ("IXIA's pcap", EDITCAP)
        }
        b"GMBU" | b"RTSS" => ("Microsoft Network Monitor", EDITCAP),
        [0x02, 0x21, 0x4c, 0x18] => {
            ("LZ4's legacy format", "compress it again with lz4, without -l")
        }
        [b'P', b'K', 3, 4] => ("a zip archive", UNPACK),
        [b'7', b'z', 0xbc, 0xaf] => ("a 7z archive", UNPACK),
        _ => return None,
    })
}

/// Reads a file that is no capture as a whole, up to so many bytes; decompressed if it is compressed.
///
/// # Errors
///
/// If it cannot be read, or what is compressed was cut off or is damaged.
pub fn read_whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let magic = read_magic(&mut file)?;
    let compression = Compression::detect(&magic);
    let input = decoder(Cursor::new(magic).chain(file), compression, Arc::default())?;
    let mut content = Vec::new();
    input.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the first bytes of a file, as many as it has.
fn read_magic(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = Vec::with_capacity(MAGIC);
    input.take(MAGIC as u64).read_to_end(&mut magic)?;
    Ok(magic)
}

fn io_error(file: &str, action: &'static str, source: io::Error) -> Error {
    Error::Io { file: file.into(), action, source }
}
