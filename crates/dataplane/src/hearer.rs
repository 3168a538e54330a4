//! A thread that hears one link, and hands over what it hears in pieces, with the time up to which that
//! is all.

use crate::error::Error;
use crate::packet_ring::{Counted, Frame, Ring};
use crate::recorder::KEPT_BYTES;
use crate::stop::Stop;
use capture::Packet;
use libc::c_uint;
use probe::key::Tap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use units::Nanos;

/// Frames of a piece, at most.
const MOST_FRAMES: usize = 4096;
/// How long it waits for frames.
const LOOK_UP: Duration = Duration::from_millis(20);
/// The kernel has handed over what came so long before, wherever it was kept from that.
const HANDED_OVER_NS: u64 = 200_000_000;
/// Frames come in order of time but for this: queues of a card are read side by side.
const DISORDER_NS: u64 = 1_000_000;
/// What came until the end is handed over within a small part of this.
const REST: Duration = Duration::from_secs(2);

/// Frames one behind the other.
#[derive(Debug, Default)]
pub struct Piece {
    frames: Vec<Kept>,
    bytes: Vec<u8>,
    /// The first and the last time.
    times: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    time_ns: u64,
    len: u32,
    held: u32,
}

impl Piece {
    fn push(&mut self, frame: &Frame<'_>) {
        let mut kept = [0; KEPT_BYTES];
        let held = frame.copy(&mut kept);
        self.keep(frame.time_ns, frame.len, &kept[..held]);
    }

    fn keep(&mut self, time_ns: u64, len: u32, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.frames.push(Kept { time_ns, len, held: data.len() as u32 });
        let (first, last) = self.times.unwrap_or((time_ns, time_ns));
        self.times = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// The frames as packets.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'_>> {
        let mut at = 0;
        self.frames.iter().map(move |frame| {
            let data = &self.bytes[at..at + frame.held as usize];
            at += frame.held as usize;
            Packet { ts: Nanos(frame.time_ns), orig_len: frame.len, data, offset: 0 }
        })
    }

    /// Frames of a byte each, at these times.
    #[cfg(test)]
    pub fn of(times: impl Iterator<Item = u64>) -> Self {
        let mut piece = Self::default();
        for time_ns in times {
            piece.keep(time_ns, 1, &[0]);
        }
        piece
    }

    /// The first and the last time, in ns; `None` of an empty one.
    pub fn times(&self) -> Option<(u64, u64)> {
        self.times
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.frames.capacity() * size_of::<Kept>()
    }
}

/// What was heard of a link since the last report.
#[derive(Debug)]
pub struct Report {
    pub tap: Tap,
    pub piece: Piece,
    /// All that came up to this time is told.
    pub clear_ns: u64,
    /// Frames that found no room in the ring: how many, and between which times.
    pub missed: Option<Missed>,
}

/// The clock that takes the times of frames.
#[derive(Clone, Debug, Default)]
pub struct StampClock {
    /// A card's clock; else the kernel's.
    card: Option<Arc<File>>,
}

impl StampClock {
    /// Opens a card's clock, such as `/dev/ptp0`.
    pub fn of_card(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let clock = Self { card: Some(Arc::new(File::open(path).map_err(failed)?)) };
        clock.read().map_err(failed)?;
        Ok(clock)
    }

    /// Whether it is a card's.
    pub fn is_of_card(&self) -> bool {
        self.card.is_some()
    }

    /// Its time, in ns.
    pub fn now_ns(&self) -> u64 {
        self.read().unwrap_or(0)
    }

    fn read(&self) -> io::Result<u64> {
        // What the kernel calls `FD_TO_CLOCKID`.
        let clock = |file: &Arc<File>| (!file.as_raw_fd() << 3) | 3;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a clock, and a structure that outlives the call.
        let done = unsafe {
            libc::clock_gettime(
                self.card.as_ref().map_or(libc::CLOCK_REALTIME, clock),
                &raw mut time,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// Hears a link.
pub struct Hearer {
    ring: Ring,
    link: String,
    /// The link's index when it was first heard; a link that is made anew has another.
    index: c_uint,
    tap: Tap,
    clock: StampClock,
    reports: SyncSender<Report>,
    counted: Counted,
    /// Frames without a time of the clock, and how many of them were told.
    unstamped: u64,
    told: u64,
    /// When the kernel was last asked what it dropped.
    asked_ns: u64,
    seen: u64,
    newest_ns: u64,
    downs: u64,
    /// A time before it went down the last time.
    up_ns: u64,
    piece: Piece,
}

/// What was counted of a link in all.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// By the kernel.
    pub counted: Counted,
    /// Frames without a time of the clock.
    pub unstamped: u64,
    /// How often it went down.
    pub downs: u64,
}

/// The index of a link; 0 if there is none.
fn index_of(link: &str) -> c_uint {
    // SAFETY: a string that ends with 0.
    CString::new(link).map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

fn is_down(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENETDOWN)
}

/// Frames that found no room in the ring: between which times, in ns, and how many.
pub type Missed = ((u64, u64), u64);

/// Nobody takes reports any more.
struct Hangup;

impl Hearer {
    /// Hears a link by its ring.
    pub fn new(
        (link, ring): (&str, Ring),
        tap: Tap,
        clock: StampClock,
        reports: SyncSender<Report>,
    ) -> Self {
        let (link, index) = (link.to_owned(), index_of(link));
        let (counted, piece) = (Counted::default(), Piece::default());
        let (now_ns, seen, newest_ns, downs) = (clock.now_ns(), 0, 0, 0);
        let (asked_ns, up_ns) = (now_ns, now_ns);
        Self {
            ring,
            link,
            index,
            tap,
            clock,
            reports,
            counted,
            unstamped: 0,
            told: 0,
            asked_ns,
            seen,
            newest_ns,
            downs,
            up_ns,
            piece,
        }
    }

    /// Hears until it is to stop, and says what it counted.
    pub fn run(mut self, stop: &Stop) -> Result<Ended, Error> {
        while !stop.asked() {
            let began_ns = self.clock.now_ns();
            match self.ring.wait(LOOK_UP) {
                // A link that is down may come up again.
                Err(Error::Socket { source, .. }) if is_down(&source) => {
                    self.downs += 1;
                    self.up_ns = self.asked_ns;
                }
                waited => waited?,
            }
            let heard = self.drain();
            // A link goes down before it is removed: then nothing is heard any more, whatever gets its name.
            if self.downs > 0 && (self.index == 0 || index_of(&self.link) != self.index) {
                return self.end_without_link();
            }
            let missed = self.count(began_ns)?;
            let clear_ns = began_ns.saturating_sub(HANDED_OVER_NS);
            let clear_ns = clear_ns.max(self.newest_ns.saturating_sub(DISORDER_NS));
            if heard.is_err() || self.report(clear_ns.min(began_ns), missed).is_err() {
                return Ok(self.ended());
            }
        }
        self.finish()
    }

    /// Tells what came last, and that all was missed since.
    fn end_without_link(mut self) -> Result<Ended, Error> {
        // The kernel hands over the last block a little later.
        std::thread::sleep(LOOK_UP);
        let _ = self.drain();
        let now_ns = self.clock.now_ns();
        let dropped = self.count(now_ns)?.map_or(0, |(_, dropped)| dropped);
        let _ = self.report(now_ns, Some(((self.up_ns, u64::MAX), dropped)));
        let source = std::io::Error::from_raw_os_error(libc::ENODEV);
        Err(Error::Socket { link: self.link, action: "go on listening", source })
    }

    fn ended(&self) -> Ended {
        Ended { counted: self.counted, unstamped: self.unstamped, downs: self.downs }
    }

    /// Hands over what came until now.
    fn finish(mut self) -> Result<Ended, Error> {
        let ended_ns = self.clock.now_ns();
        self.ring.close_ears()?;
        let deadline = Instant::now() + REST;
        let mut all_missed: Option<Missed> = None;
        loop {
            if let Some((gap, packets)) = self.count(ended_ns)? {
                let before = all_missed.map_or(0, |(_, packets)| packets);
                all_missed = Some((all_missed.map_or(gap, |(first, _)| first), before + packets));
            }
            if self.drain().is_err() {
                return Ok(self.ended());
            }
            let known = self.seen + self.counted.dropped;
            if known == self.counted.received || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.report(ended_ns, all_missed);
        Ok(self.ended())
    }

    fn drain(&mut self) -> Result<(), Hangup> {
        let Self { ring, tap, clock, reports, unstamped, asked_ns, seen, newest_ns, piece, .. } =
            self;
        let mut hangup = Ok(());
        ring.drain(|frame| {
            *seen += 1;
            if clock.is_of_card() && !frame.by_card {
                *unstamped += 1;
                return;
            }
            *newest_ns = frame.time_ns.max(*newest_ns);
            piece.push(&frame);
            if piece.frames.len() >= MOST_FRAMES && hangup.is_ok() {
                let piece = std::mem::take(piece);
                // What was dropped since is not known yet.
                let clear_ns = newest_ns.saturating_sub(DISORDER_NS).min(*asked_ns);
                let report = Report { tap: *tap, piece, clear_ns, missed: None };
                hangup = reports.send(report).map_err(|_| Hangup);
            }
        });
        hangup
    }

    /// Asks the kernel what it dropped since it was asked last; `now_ns` is before this question.
    /// What has no time is missed, too.
    fn count(&mut self, now_ns: u64) -> Result<Option<Missed>, Error> {
        let before = self.counted;
        self.counted = self.ring.count()?;
        let dropped = self.counted.dropped - before.dropped + self.unstamped - self.told;
        self.told = self.unstamped;
        let from_ns = std::mem::replace(&mut self.asked_ns, now_ns);
        // Some may have been dropped while it was asked.
        Ok((dropped > 0).then_some(((from_ns, self.clock.now_ns()), dropped)))
    }

    fn report(&mut self, clear_ns: u64, missed: Option<Missed>) -> Result<(), Hangup> {
        let piece = std::mem::take(&mut self.piece);
        let report = Report { tap: self.tap, piece, clear_ns, missed };
        self.reports.send(report).map_err(|_| Hangup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_card_is_read_or_refused() {
        let kernel = StampClock::default();
        assert!(kernel.now_ns() > 1_700_000_000_000_000_000 && !kernel.is_of_card());
        for path in ["/dev/null", "/nowhere"] {
            assert_eq!(StampClock::of_card(Path::new(path)).expect_err(path).code(), "file");
        }
    }
}
