//! The reader of a capture: of one file, or of several that are merged by time: a ring of files, or one for
//! each port. Of files whose times do not overlap, one is open at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use units::Nanos;

use crate::error::Error;
use crate::file::{Cut, FileReader, Mark, Packet};
use crate::info::Info;
use crate::interface::{Device, InterfaceChoice};
use crate::time::Resolution;
use crate::trailer::{Trailer, Trailers};

/// Number of mean distances between packets that a pause between two files must last at least to be a gap.
const PAUSES: u64 = 100;
/// The shortest gap, in ns.
const SHORTEST_GAP_NS: u64 = 1_000_000;

/// Reads a capture packet by packet.
pub struct Reader {
    file: FileReader,
    /// The other files, where there are several, and the time before which `file` has the next packet.
    others: Option<Box<Others>>,
    before: Nanos,
    /// Reads the times behind frames, where those are asked for.
    trailers: Option<Box<Trailers>>,
}

/// What is known of several files, as far as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Files that hold packets.
    pub count: usize,
    /// Times from the last packet of a file to the first of the next, in ns, that are much longer than those between
    /// packets: what came then may be in a file that is missing.
    pub gaps: Vec<(u64, u64)>,
    /// Files that ended more than a millisecond after the next one had begun.
    pub overlapping: usize,
}

/// A file that is not open yet.
struct Waiting {
    path: PathBuf,
    choice: InterfaceChoice,
    first_ns: u64,
}

struct Others {
    name: String,
    /// Latest first.
    waiting: Vec<Waiting>,
    open: Vec<FileReader>,
    /// When the next packet of each open file comes, in ns, and the place of the file.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// What those said that were read to their end.
    closed: Option<Info>,
    closed_bytes: u64,
    /// When the file begins that was opened last, in ns.
    newest_first_ns: u64,
    cut: Option<Cut>,
    total_bytes: u64,
    files: Files,
}

impl From<FileReader> for Reader {
    fn from(file: FileReader) -> Self {
        Self { file, others: None, before: Nanos(u64::MAX), trailers: None }
    }
}

impl Reader {
    /// Opens the capture at `path`; `-` is standard input. Reads up to the first packet.
    ///
    /// # Errors
    /// When the file can not be read, or what comes before its first packet is not a capture of a
    /// link type that is read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_interface(path, InterfaceChoice::All)
    }

    /// Opens the capture at `path` for the packets of some interface: only those are handed out, and
    /// counted. Which interface that is, is decided by what the capture describes before its first
    /// packet.
    ///
    /// # Errors
    /// As [`Reader::open`], and when no interface, or several, are the one chosen.
    pub fn open_interface(path: &Path, choice: InterfaceChoice) -> Result<Self, Error> {
        FileReader::open_interface(path, choice).map(Self::from)
    }

    /// Opens several files as one capture, in whatever order they are given; those without packets are passed over.
    ///
    /// # Errors
    /// As [`Reader::open_interface`], and when one of several is a pipe.
    ///
    /// # Panics
    /// When there is none.
    pub fn open_all(files: &[(PathBuf, InterfaceChoice)]) -> Result<Self, Error> {
        let ((path, choice), more) = files.split_first().expect("there is a file");
        if more.is_empty() {
            return Self::open_interface(path, choice.clone());
        }
        let (mut waiting, mut total_bytes) = (Vec::new(), 0);
        for (path, choice) in files {
            let mut reader = FileReader::open_interface(path, choice.clone())?;
            let name = reader.info().name;
            let bytes = reader.total_bytes().ok_or(Error::SeveralPipes { file: name })?;
            if let Some(first_ns) = reader.next_ns()? {
                total_bytes += bytes;
                let (path, choice) = (path.clone(), choice.clone());
                waiting.push(Waiting { path, choice, first_ns });
            }
        }
        waiting.sort_by(|a, b| b.first_ns.cmp(&a.first_ns).then_with(|| b.path.cmp(&a.path)));
        let files = Files { count: waiting.len(), ..Files::default() };
        let Some(first) = waiting.pop() else {
            return Self::open_interface(path, choice.clone());
        };
        let file = FileReader::open_interface(&first.path, first.choice)?;
        let name = format!("{} and {} more", file.info().name, more.len());
        let others = Others {
            name,
            waiting,
            open: Vec::new(),
            heads: BinaryHeap::new(),
            closed: None,
            closed_bytes: 0,
            newest_first_ns: first.first_ns,
            cut: None,
            total_bytes,
            files,
        };
        // The first packet asks which file it is of.
        Ok(Self { file, others: Some(Box::new(others)), before: Nanos(0), trailers: None })
    }

    /// Opens the same for the times that lie behind frames: a trailer is no part of its frame, and a packet without
    /// one is left out. The trailer is the one that the first packets have.
    ///
    /// # Errors
    /// As [`Reader::open_all`], when the first packets have no trailer, and of a pipe, whose beginning cannot be
    /// read twice.
    pub fn open_all_stamped(files: &[(PathBuf, InterfaceChoice)]) -> Result<Self, Error> {
        let mut beginning = Self::open_all(files)?;
        let file = beginning.info().name;
        if beginning.total_bytes().is_none() {
            return Err(Error::NoTrailer { file });
        }
        let trailer = beginning.trailer()?.ok_or(Error::NoTrailer { file })?;
        Ok(Self::open_all(files)?.stamped_by(trailer))
    }

    /// Returns the same capture with the times that lie behind frames.
    #[must_use]
    pub fn stamped_by(mut self, trailer: Trailer) -> Self {
        self.before = Nanos(0);
        self.trailers = Some(Box::new(Trailers::new(trailer)));
        self
    }

    /// Returns the trailer that the next packets have, which are read.
    fn trailer(&mut self) -> Result<Option<Trailer>, Error> {
        let mut beginning = Vec::new();
        while beginning.len() < Trailer::LOOK {
            let Some(packet) = self.next()? else { break };
            beginning.push((packet.ts, packet.orig_len, packet.data.to_vec()));
        }
        let packets = beginning.iter().map(|(ts, orig_len, data)| {
            let (ts, orig_len): (Nanos, u32) = (*ts, *orig_len);
            Packet { ts, orig_len, data, offset: 0 }
        });
        Ok(Trailer::of(packets))
    }

    /// Reads a capture that is in memory already, compressed or not; `name` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, Error> {
        Self::interface_from_bytes(name, bytes, InterfaceChoice::All)
    }

    /// Returns a reader for the packets of some interface.
    ///
    /// # Errors
    /// As [`Reader::open_interface`].
    pub fn interface_from_bytes(
        name: &str,
        bytes: Vec<u8>,
        choice: InterfaceChoice,
    ) -> Result<Self, Error> {
        FileReader::interface_from_bytes(name, bytes, choice).map(Self::from)
    }

    /// Returns the next packet, or `None` at the end: then [`Reader::cut`] tells whether it is a
    /// clean one.
    ///
    /// # Errors
    /// When the capture can not be read or is corrupt here. What follows is not readable either:
    /// the same error comes again.
    #[allow(clippy::should_implement_trait, reason = "a packet borrows from the reader")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, Error> {
        if let Some(others) = &mut self.others {
            self.before = others.turn(&mut self.file)?;
        }
        if self.trailers.is_some() {
            return self.next_stamped();
        }
        self.file.next()
    }

    #[cold]
    fn next_stamped(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let trailers = self.trailers.as_mut().expect("times behind frames are asked for");
        // Whoever asks for what is quick to tell is told to ask here.
        self.before = Nanos(0);
        loop {
            let Some(packet) = self.file.next()? else { return Ok(None) };
            if let Some((ts, orig_len, offset)) = trailers.take(&packet) {
                return Ok(Some(Packet { ts, orig_len, data: trailers.frame(), offset }));
            }
            if let Some(others) = &mut self.others {
                others.turn(&mut self.file)?;
            }
        }
    }

    /// The next packet, where that is quick to tell; otherwise [`Reader::next`] tells. A loop over many
    /// packets asks here first: what comes this way stays in registers.
    // Always: it is three comparisons and an addition.
    #[inline(always)]
    pub fn next_quick(&mut self) -> Option<Packet<'_>> {
        self.file.next_quick(self.before)
    }

    /// Goes on at a mark that lies ahead, as if all before it had been read. In a file that is not
    /// compressed, only the headers are.
    ///
    /// # Errors
    /// When the capture can not be read, or the mark is that of another one.
    pub fn resume(&mut self, mark: &Mark) -> Result<(), Error> {
        self.file.resume(mark)
    }

    /// Returns what the capture says of itself, as far as it has been read.
    #[must_use]
    pub fn info(&self) -> Info {
        let mut own = self.file.info();
        own.stamps = self.trailers.as_ref().map(|trailers| trailers.stamps());
        let Some(others) = &self.others else { return own };
        let infos = others.closed.iter().cloned().chain(others.open.iter().map(FileReader::info));
        Info { name: others.name.clone(), ..infos.fold(own, joined) }
    }

    /// Returns what is known of several files that are read as one; `None` of a single one.
    #[must_use]
    pub fn files(&self) -> Option<&Files> {
        self.others.as_ref().map(|others| &others.files)
    }

    /// Returns the devices whose packets were read so far, where packets name them and none was
    /// chosen.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        self.file.devices()
    }

    /// Returns the place at which the capture was cut off, once [`Reader::next`] has returned
    /// `None`.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.others.as_ref().and_then(|others| others.cut.as_ref()).or_else(|| self.file.cut())
    }

    /// Returns the byte offset up to which packets were read, after decompression; of several files, in that of the
    /// latest packet.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.file.offset()
    }

    /// Returns where the headers lie that were read so far, in the order of the capture.
    #[must_use]
    pub fn headers(&self) -> &[u64] {
        self.file.headers()
    }

    /// Returns how many bytes of the files (compressed, where they are) have been read.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        let of_open = |others: &Others| {
            others.closed_bytes + others.open.iter().map(FileReader::consumed_bytes).sum::<u64>()
        };
        self.file.consumed_bytes() + self.others.as_ref().map_or(0, |others| of_open(others))
    }

    /// Returns how many bytes the files have, where that is known beforehand.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        let of_all = self.others.as_ref().map(|others| others.total_bytes);
        of_all.or_else(|| self.file.total_bytes())
    }
}

impl Others {
    /// Makes `file` the one with the earliest next packet; returns the time before which no other one has any.
    fn turn(&mut self, file: &mut FileReader) -> Result<Nanos, Error> {
        loop {
            let own = file.next_ns()?.unwrap_or(u64::MAX);
            let head = self.heads.peek().map_or(u64::MAX, |Reverse((head, _))| *head);
            let due = self.waiting.last().map_or(u64::MAX, |waiting| waiting.first_ns);
            if due <= own.min(head) && due < u64::MAX {
                let follows = own == u64::MAX && head == u64::MAX;
                self.open_next(file, follows)?;
            } else if head < own {
                let Some(Reverse((_, at))) = self.heads.pop() else {
                    unreachable!("it has a head")
                };
                std::mem::swap(file, &mut self.open[at]);
                self.put_back(at, own);
            } else {
                return Ok(Nanos(head.min(due)));
            }
        }
    }

    /// Keeps an open file for its next packet, or closes one that has none.
    fn put_back(&mut self, at: usize, next_ns: u64) {
        if next_ns < u64::MAX {
            self.heads.push(Reverse((next_ns, at)));
            return;
        }
        let ended = self.open.swap_remove(at);
        let moved = self.open.len();
        let heads = std::mem::take(&mut self.heads).into_iter();
        self.heads = heads
            .map(|Reverse((head, place))| Reverse((head, if place == moved { at } else { place })))
            .collect();
        self.close(&ended);
    }

    fn open_next(&mut self, former: &FileReader, follows: bool) -> Result<(), Error> {
        let Some(Waiting { path, choice, first_ns }) = self.waiting.pop() else { return Ok(()) };
        self.newest_first_ns = first_ns;
        if let Some((first, last)) = former.ends_ns().filter(|_| follows) {
            let mean_gap_ns = last.saturating_sub(first) / former.packets().max(1);
            if first_ns.saturating_sub(last) >= SHORTEST_GAP_NS.max(PAUSES * mean_gap_ns) {
                self.files.gaps.push((last, first_ns));
            }
        }
        let mut opened = FileReader::open_interface(&path, choice)?;
        opened.share(self.open.len() + 2);
        let next_ns = opened.next_ns()?.unwrap_or(u64::MAX);
        self.open.push(opened);
        self.put_back(self.open.len() - 1, next_ns);
        Ok(())
    }

    fn close(&mut self, ended: &FileReader) {
        let last_ns = ended.ends_ns().map_or(0, |(_, last)| last);
        let overlaps = last_ns > self.newest_first_ns.saturating_add(SHORTEST_GAP_NS);
        self.files.overlapping += usize::from(overlaps);
        self.closed_bytes += ended.consumed_bytes();
        let info = ended.info();
        if let (None, Some(cut)) = (&self.cut, ended.cut()) {
            let reason = format!("{}: {}", info.name, cut.reason);
            self.cut = Some(Cut { reason, ..cut.clone() });
        }
        self.closed = Some(match self.closed.take() {
            Some(before) => joined(before, info),
            None => info,
        });
    }
}

/// Returns what two files say, as of one capture.
fn joined(one: Info, other: Info) -> Info {
    let mut link_types = one.link_types;
    link_types.extend(other.link_types);
    link_types.sort_unstable_by_key(|link_type| link_type.0);
    link_types.dedup();
    let finer = |a: &Resolution, b: &Resolution| a.step_ns().total_cmp(&b.step_ns());
    Info {
        resolution: one.resolution.into_iter().chain(other.resolution).max_by(finer),
        link_types,
        snap_length: one.snap_length.into_iter().chain(other.snap_length).min(),
        dropped_packets: match (one.dropped_packets, other.dropped_packets) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        },
        ..one
    }
}
