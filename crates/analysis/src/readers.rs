//! Two captures that are read ahead, by threads that do nothing else and by the one that matches.
//!
//! Whoever has time takes the capture of which the fewest batches wait, and reads one. So two cores are busy whatever
//! takes longer, reading or matching, and on a single one nothing is handed over.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::ingest::{Ingest, Message, Stamped};

/// Batches of a capture that may wait.
const MOST_WAITING: usize = 4;

/// A capture, and what was read of it.
struct Line {
    /// `None` while somebody reads.
    ingest: Option<Box<Ingest>>,
    waiting: VecDeque<thread::Result<Message>>,
    used: Vec<Vec<Stamped>>,
    /// True once it was read to its end, or nobody listens any more.
    is_done: bool,
}

/// Both captures.
struct Readers {
    lines: Mutex<[Line; 2]>,
    changed: Condvar,
    /// True if who matches may read, too: nobody waits for a pipe who has something else to do.
    may_help: bool,
}

type Lines<'a> = MutexGuard<'a, [Line; 2]>;

/// The end at which one of two captures is listened to.
pub(crate) struct Listener {
    readers: Arc<Readers>,
    side: usize,
}

impl Listener {
    /// Starts to read two captures.
    pub fn start(ingests: [Ingest; 2]) -> [Self; 2] {
        let may_help = ingests.iter().all(Ingest::is_file);
        let helpers = if may_help { cores().saturating_sub(1).min(2) } else { 2 };
        Self::start_with(ingests, may_help, helpers)
    }

    fn start_with(ingests: [Ingest; 2], may_help: bool, helpers: usize) -> [Self; 2] {
        let lines = ingests.map(|ingest| Line {
            ingest: Some(Box::new(ingest)),
            waiting: VecDeque::new(),
            used: Vec::new(),
            is_done: false,
        });
        let readers = Readers { lines: Mutex::new(lines), changed: Condvar::new(), may_help };
        let readers = Arc::new(readers);
        for _ in 0..helpers {
            let readers = Arc::clone(&readers);
            // Not joined: one that waits for a pipe must not keep a stopped analysis from returning.
            thread::spawn(move || readers.read_ahead());
        }
        [0, 1].map(|side| Self { readers: Arc::clone(&readers), side })
    }

    /// Returns the next batch, or how the capture ended, which comes last. `used` becomes a later batch.
    pub fn next(&self, used: Vec<Stamped>) -> Message {
        self.readers.next(self.side, used)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut lines = self.readers.lock();
        lines[self.side].is_done = true;
        self.readers.changed.notify_all();
    }
}

impl Readers {
    fn lock(&self) -> Lines<'_> {
        self.lines.lock().expect("nobody panics meanwhile")
    }

    fn read_ahead(&self) {
        let mut lines = self.lock();
        while lines.iter().any(|line| !line.is_done) {
            let side = least_read(&lines);
            lines = self.read_any(lines, side);
        }
    }

    fn next(&self, side: usize, used: Vec<Stamped>) -> Message {
        let mut lines = self.lock();
        lines[side].used.push(used);
        loop {
            if let Some(message) = lines[side].waiting.pop_front() {
                // Not each time: a thread that is woken up has several batches to read.
                if lines[side].waiting.len() == MOST_WAITING / 2 {
                    self.changed.notify_all();
                }
                drop(lines);
                return message.unwrap_or_else(|panic| resume_unwind(panic));
            }
            let own = lines[side].ingest.is_some().then_some(side);
            let most_urgent = own.or_else(|| least_read(&lines));
            lines = self.read_any(lines, most_urgent.filter(|_| self.may_help));
        }
    }

    /// Reads a batch of a side, or waits until something changes.
    fn read_any<'a>(&'a self, mut lines: Lines<'a>, side: Option<usize>) -> Lines<'a> {
        let taken = side.and_then(|side| Some((side, lines[side].ingest.take()?)));
        let Some((side, mut ingest)) = taken else {
            return self.changed.wait(lines).expect("nobody panics meanwhile");
        };
        let spare = lines[side].used.pop().unwrap_or_default();
        drop(lines);
        let message = catch_unwind(AssertUnwindSafe(|| ingest.next(spare)));
        let mut lines = self.lock();
        let line = &mut lines[side];
        match message {
            Ok(Message::Batch { .. }) => line.ingest = Some(ingest),
            Ok(Message::End(_)) | Err(_) => line.is_done = true,
        }
        line.waiting.push_back(message);
        self.changed.notify_all();
        lines
    }
}

/// Returns the side of which fewer batches wait, if more may wait and nobody reads it.
fn least_read(lines: &[Line; 2]) -> Option<usize> {
    let is_free = |side: &usize| {
        let Line { ingest, waiting, is_done, .. } = &lines[*side];
        ingest.is_some() && !is_done && waiting.len() < MOST_WAITING
    };
    [0, 1].into_iter().filter(is_free).min_by_key(|side| lines[*side].waiting.len())
}

/// Returns the number of cores that this thread may use now: who measures confines itself meanwhile.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{Compression, Format, Reader, Writer};
    use probe::key::{MatchOn, Tap};
    use units::Nanos;

    use crate::basis::Basis;
    use crate::config::Config;
    use crate::ingest::{Extent, Reading};
    use crate::side::Side;

    fn ingest(packets: u64, tap: Tap) -> Ingest {
        let mut writer = Writer::new(Vec::new(), Format::Pcap, Compression::None).unwrap();
        for number in 0..packets {
            writer.write(Nanos(1000 * number), 60, &[number as u8; 60]).unwrap();
        }
        let reader = Reader::from_bytes("capture", writer.into_inner().unwrap()).unwrap();
        let config = Config { match_on: MatchOn::Frame, ..Config::default() };
        let reading = Reading::new(&config, &Basis::default(), tap);
        Ingest::new(reader, Vec::new(), reading, Extent::WHOLE, Side::default())
    }

    /// Takes all batches of a side: returns how many there are, and the times of their packets.
    fn all(listener: &Listener) -> (usize, Vec<u64>) {
        let (mut batches, mut times) = (0, Vec::new());
        while let Message::Batch { packets, .. } = listener.next(Vec::new()) {
            batches += 1;
            times.extend(packets.iter().map(|packet| packet.ts));
        }
        (batches, times)
    }

    #[test]
    fn whoever_reads_all_packets_come_once_and_in_order() {
        const PACKETS: [u64; 2] = [40_000, 4096];
        let times = PACKETS.map(|packets| (0..packets).map(|at| 1000 * at).collect::<Vec<_>>());
        for (may_help, helpers) in [(true, 0), (true, 1), (true, 2), (false, 2)] {
            let ingests = [ingest(PACKETS[0], Tap::Pre), ingest(PACKETS[1], Tap::Post)];
            let [pre, post] = Listener::start_with(ingests, may_help, helpers);
            assert_eq!(all(&pre), (10, times[0].clone()));
            assert_eq!(all(&post), (1, times[1].clone()));
        }
    }

    #[test]
    fn who_no_longer_listens_ends_the_reading() {
        let ingests = [Tap::Pre, Tap::Post].map(|tap| ingest(40_000, tap));
        let [pre, post] = Listener::start_with(ingests, true, 1);
        assert!(matches!(pre.next(Vec::new()), Message::Batch { .. }));
        let readers = Arc::downgrade(&pre.readers);
        drop((pre, post));
        while readers.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
