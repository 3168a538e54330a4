//! What a generator records, on its way from the loop to files while it measures.
//!
//! The loop hands over rows by rings that are there beforehand, and never waits: a packet that is about to
//! leave while the disk is behind gets a number which says that nothing of it is recorded
//! ([`UNRECORDED`](crate::book::UNRECORDED)). Some of the room is kept for packets that are on their way
//! back then. A thread beside the loop takes the rows, writes them, and says in the files' headers how many
//! are on the disk, twice a second: whatever ends the program or the machine, what the headers count is there.

use crate::cpus::Cpus;
use crate::error::Error;
use crate::npy::Rows;
use crate::stop::Stop;
use rtrb::{Consumer, Producer, RingBuffer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Rows that may wait, in all directions: 128 MiB, or four seconds of a million packets a second.
pub const MOST_WAITING: u64 = 1 << 23;
/// Rows of stalls that may wait.
const STALLS_WAITING: usize = 1 << 16;
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// It may share a CPU with a loop, which queues packets meanwhile: it takes few rows at a time, where they
/// come fast, and seldom looks, where they do not.
const AT_ONCE: u32 = 1 << 13;
const LOOK_AT_MOST: Duration = Duration::from_millis(250);
const LOOK_AT_LEAST: Duration = Duration::from_millis(2);

/// Two words, by the two highest bits of the first.
type Row = [u64; 2];
/// Departures have none of these: when a packet was meant to leave, and when it left.
const KIND: u64 = 3 << 62;
/// The number of a packet, and when it arrived.
const ARRIVED: u64 = 1 << 62;
/// When a packet that did not leave was meant to, and whether the wire refused packets meanwhile.
const UNSENT: u64 = 2 << 62;
/// The number of a packet that came back changed.
const CORRUPT: u64 = 3 << 62;

/// The arrays of a direction, in the order of [`Part::write`].
const ARRAYS: [&str; 7] = [
    "intended_tsc",
    "departure_tsc",
    "arrival_seq",
    "arrival_tsc",
    "unsent_tsc",
    "unsent_refused",
    "corrupt_seq",
];
/// The stalls of the loop, in the order of [`Recorder::write_stalls`].
const STALLS: [&str; 3] = ["stall_start_tsc", "stall_duration_tsc", "stall_lcore"];

/// The loop's end of a direction.
#[derive(Debug)]
pub struct Stream {
    rows: Option<Producer<Row>>,
    /// Room for what comes of packets that have left.
    reserve: usize,
    /// Rows, apart from departures, for which there was no room.
    pub unrecorded: u64,
}

/// The loop's end for its stalls: start and duration.
pub type Stalls = Producer<Row>;

/// Writes what comes out of the other ends.
pub struct Recorder {
    parts: Vec<Part>,
    stalls: Consumer<Row>,
    lcore: u64,
}

/// The files of one direction.
struct Part {
    folder: PathBuf,
    name: &'static str,
    rows: Consumer<Row>,
    arrays: [Rows; ARRAYS.len()],
    stalls: [Rows; STALLS.len()],
}

/// What a recorder wrote.
#[derive(Debug, Default)]
pub struct Written {
    /// The files.
    pub files: Vec<String>,
    /// Why it stopped writing before the end.
    pub error: Option<Error>,
}

/// The thread of a recorder, until it is ended.
pub struct Recording<'scope> {
    end: Arc<AtomicBool>,
    thread: ScopedJoinHandle<'scope, Written>,
}

impl Stream {
    /// One that leads nowhere.
    pub fn nowhere() -> Self {
        Self { rows: None, reserve: 0, unrecorded: 0 }
    }

    pub(crate) fn new(room: usize) -> (Self, Consumer<Row>) {
        let (rows, out) = ring(room);
        (Self { rows: Some(rows), reserve: room / 4, unrecorded: 0 }, out)
    }

    /// Whether the next `count` departures have room.
    #[inline(always)]
    pub fn takes(&self, count: usize) -> bool {
        self.rows.as_ref().is_none_or(|rows| rows.slots() >= count + self.reserve)
    }

    /// A packet left, after `takes` said that there is room.
    #[inline(always)]
    pub fn departed(&mut self, intended: u64, tsc: u64) {
        debug_assert!(intended & KIND == 0, "the counter leaves the kind alone");
        self.push([intended, tsc]);
    }

    /// A packet arrived.
    #[inline(always)]
    pub fn arrived(&mut self, seq: u64, tsc: u64) {
        self.push([ARRIVED | seq, tsc]);
    }

    /// A packet will not leave.
    pub fn unsent(&mut self, intended: u64, refused: bool) {
        self.push([UNSENT | intended, u64::from(refused)]);
    }

    /// A packet came back changed.
    pub fn corrupt(&mut self, seq: u64) {
        self.push([CORRUPT | seq, 0]);
    }

    #[inline(always)]
    fn push(&mut self, row: Row) {
        if let Some(rows) = &mut self.rows {
            self.unrecorded += u64::from(rows.push(row).is_err());
        }
    }
}

impl Recorder {
    /// Begins the files of each of `parts` in `folder`, for `scheduled` packets each, on a disk that has room
    /// for them. At most `waiting` rows wait.
    pub fn create(
        folder: &Path,
        parts: &[&'static str],
        scheduled: u64,
        waiting: u64,
        lcore: u32,
    ) -> Result<(Vec<Stream>, Stalls, Self), Error> {
        let most = scheduled.saturating_mul(4).saturating_add(4096);
        let most = most.min(waiting / parts.len() as u64);
        let (mut streams, mut all) = (Vec::new(), Vec::new());
        for name in parts {
            let (stream, rows) = Stream::new(most as usize);
            streams.push(stream);
            all.push(Part::create(folder, name, scheduled, rows)?);
        }
        let (stalls, out) = ring(STALLS_WAITING);
        Ok((streams, stalls, Self { parts: all, stalls: out, lcore: lcore.into() }))
    }

    /// Starts it on `cpus`; `tid` becomes its number. What cannot be written ends the measurement, by `stop`.
    pub fn start<'scope>(
        self,
        cpus: Cpus,
        scope: &'scope Scope<'scope, '_>,
        tid: &Arc<AtomicU64>,
        stop: Stop,
    ) -> Recording<'scope> {
        let end = Arc::new(AtomicBool::new(false));
        let (ended, tid) = (end.clone(), tid.clone());
        let thread = cpus.run(scope, move || {
            // SAFETY: a system call without arguments.
            tid.store(unsafe { libc::gettid() } as u64, Ordering::Relaxed);
            self.run(&ended, &stop)
        });
        Recording { end, thread }
    }

    pub(crate) fn run(mut self, ended: &AtomicBool, stop: &Stop) -> Written {
        let files = self.files();
        let error = match self.write_all(ended) {
            Ok(()) => None,
            Err(error) => {
                stop.ask();
                self.discard(ended);
                Some(error)
            }
        };
        Written { files, error }
    }

    fn write_all(&mut self, ended: &AtomicBool) -> Result<(), Error> {
        let (mut committed, mut looked) = (Instant::now(), Instant::now());
        loop {
            let (is_last, began) = (ended.load(Ordering::Acquire), Instant::now());
            let since = began.duration_since(looked);
            looked = began;
            let rows = self.write()?;
            if is_last || committed.elapsed() >= COMMIT_EVERY {
                self.commit()?;
                committed = Instant::now();
            }
            if is_last {
                return self.parts.iter_mut().try_for_each(|part| part.each(Rows::fit));
            }
            std::thread::park_timeout(pause(rows, since, began.elapsed()));
        }
    }

    /// Takes what the loop hands over and throws it away, so that the loop goes on until it stops.
    fn discard(&mut self, ended: &AtomicBool) {
        while !ended.load(Ordering::Acquire) {
            while self.stalls.pop().is_ok() {}
            for part in &mut self.parts {
                while part.rows.pop().is_ok() {}
            }
            std::thread::park_timeout(LOOK_AT_LEAST);
        }
    }

    /// Writes what waits; says how many rows.
    fn write(&mut self) -> Result<u64, Error> {
        let waiting: Vec<usize> = self.parts.iter().map(|part| part.rows.slots()).collect();
        // What is written of packets shall not be without the stalls that may have delayed them.
        while let Ok(stall) = self.stalls.pop() {
            let lcore = self.lcore;
            self.parts.iter_mut().try_for_each(|part| part.write_stall(stall, lcore))?;
        }
        for (part, rows) in self.parts.iter_mut().zip(&waiting) {
            part.write(*rows)?;
        }
        Ok(waiting.into_iter().map(|rows| rows as u64).sum())
    }

    /// Brings everything to the disk, and only then counts it.
    fn commit(&mut self) -> Result<(), Error> {
        let steps: [fn(&mut Rows) -> io::Result<()>; 3] =
            [Rows::flush, |rows| rows.sync(), |rows| rows.count()];
        for step in steps {
            self.parts.iter_mut().try_for_each(|part| part.each(step))?;
        }
        Ok(())
    }

    fn files(&self) -> Vec<String> {
        let of = |part: &Part| {
            let name = part.name;
            ARRAYS.iter().chain(&STALLS).map(move |stem| format!("{name}{stem}.npy"))
        };
        self.parts.iter().flat_map(of).collect()
    }
}

impl Part {
    fn create(
        folder: &Path,
        name: &'static str,
        scheduled: u64,
        rows: Consumer<Row>,
    ) -> Result<Self, Error> {
        let folder = folder.join(name);
        let create = |stem: &str, room| {
            let path = folder.join(format!("{stem}.npy"));
            Rows::with_room(&path, room).map_err(|source| Error::File { path, source })
        };
        std::fs::create_dir_all(&folder)
            .map_err(|source| Error::File { path: folder.clone(), source })?;
        let mut arrays = Vec::new();
        for (at, stem) in ARRAYS.iter().enumerate() {
            // Of a packet that arrived there are two values, and of one that left; the others are few.
            arrays.push(create(stem, if at < 4 { scheduled } else { 0 })?);
        }
        let arrays = arrays.try_into().unwrap_or_else(|_| unreachable!("one of each"));
        let stalls = [create(STALLS[0], 0)?, create(STALLS[1], 0)?, create(STALLS[2], 0)?];
        Ok(Self { folder, name, rows, arrays, stalls })
    }

    fn write(&mut self, rows: usize) -> Result<(), Error> {
        let chunk = self.rows.read_chunk(rows).expect("they wait");
        let [intended, departure, arrival_seq, arrival_tsc, unsent, refused, corrupt] =
            &mut self.arrays;
        let mut write = |[first, second]: Row| {
            let value = first & !KIND;
            match first & KIND {
                ARRIVED => arrival_seq.push(value).and_then(|()| arrival_tsc.push(second)),
                UNSENT => unsent.push(value).and_then(|()| refused.push(second)),
                CORRUPT => corrupt.push(value),
                _ => intended.push(value).and_then(|()| departure.push(second)),
            }
        };
        let written = chunk.into_iter().try_for_each(&mut write);
        written.map_err(|source| Error::File { path: self.folder.clone(), source })
    }

    fn write_stall(&mut self, [start, duration]: Row, lcore: u64) -> Result<(), Error> {
        for (array, value) in self.stalls.iter_mut().zip([start, duration, lcore]) {
            let written = array.push(value);
            written.map_err(|source| Error::File { path: self.folder.clone(), source })?;
        }
        Ok(())
    }

    fn each(&mut self, step: fn(&mut Rows) -> io::Result<()>) -> Result<(), Error> {
        let done = self.arrays.iter_mut().chain(&mut self.stalls).try_for_each(step);
        done.map_err(|source| Error::File { path: self.folder.clone(), source })
    }
}

impl Recording<'_> {
    /// Ends it when the loop has, and says what it wrote.
    pub fn finish(self) -> Written {
        self.end.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("writing does not panic")
    }
}

/// Room for so many rows. Every page is written to, so that none is missing later.
fn ring(room: usize) -> (Producer<Row>, Consumer<Row>) {
    let (mut rows, mut out) = RingBuffer::new(room);
    while rows.push([u64::MAX; 2]).is_ok() {}
    while out.pop().is_ok() {}
    (rows, out)
}

/// Until as many rows wait as are taken at once, if they come as fast as the last `rows` did.
fn pause(rows: u64, since: Duration, took: Duration) -> Duration {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX).max(1);
    let full = since.saturating_mul(AT_ONCE) / rows;
    full.saturating_sub(took).clamp(LOOK_AT_LEAST, LOOK_AT_MOST)
}

/// The values of an array that its header counts.
#[cfg(test)]
pub fn numbers(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let text = std::str::from_utf8(&bytes[10..start]).unwrap();
    let count = text.split(['(', ',']).find_map(|word| word.parse().ok()).unwrap();
    let values = bytes[start..].chunks_exact(8);
    values.take(count).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(folder: &Path) -> Vec<Vec<u64>> {
        let path = |stem| folder.join(format!("{stem}.npy"));
        ARRAYS.iter().chain(&STALLS).map(|stem| numbers(&path(stem))).collect()
    }

    proptest! {
        // Each one waits for the disk.
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn what_is_handed_over_is_what_is_written(
            rows in prop::collection::vec((0..5_u8, 0..1_u64 << 62, 0..1_u64 << 63), 0..2000),
            pieces in 1..50_usize,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (mut streams, mut stalls, mut recorder) =
                Recorder::create(folder.path(), &["", "back/"], 2000, MOST_WAITING, 7).unwrap();
            let mut expected = vec![Vec::new(); ARRAYS.len() + STALLS.len()];
            for some in rows.chunks(pieces) {
                for &(kind, value, second) in some {
                    let stream = &mut streams[1];
                    let (at, values) = match kind {
                        0 => (0, vec![value, second]),
                        1 => (2, vec![value, second]),
                        2 => (4, vec![value, second & 1]),
                        3 => (6, vec![value]),
                        _ => (7, vec![value, second, 7]),
                    };
                    match kind {
                        0 => {
                            prop_assert!(stream.takes(1));
                            stream.departed(value, second);
                        }
                        1 => stream.arrived(value, second),
                        2 => stream.unsent(value, second & 1 == 1),
                        3 => stream.corrupt(value),
                        _ => stalls.push([value, second]).unwrap(),
                    }
                    for (array, value) in expected[at..].iter_mut().zip(values) {
                        array.push(value);
                    }
                }
                prop_assert!(recorder.write().unwrap() <= some.len() as u64);
            }
            recorder.commit().unwrap();
            prop_assert_eq!(read(&folder.path().join("back")), expected.clone());
            expected[..ARRAYS.len()].fill(Vec::new());
            prop_assert_eq!(read(folder.path()), expected);
            prop_assert_eq!(streams[1].unrecorded, 0);
        }
    }

    #[test]
    fn a_full_ring_keeps_room_for_packets_on_their_way_and_counts_the_rest() {
        let (mut stream, mut out) = Stream::new(8);
        let taken = (0..20).take_while(|seq| {
            let takes = stream.takes(1);
            if takes {
                stream.departed(*seq, *seq);
            }
            takes
        });
        assert_eq!(taken.count(), 6);
        (0..5).for_each(|seq| stream.arrived(seq, 9));
        assert_eq!((stream.unrecorded, out.slots()), (3, 8));
        assert_eq!(out.pop(), Ok([0, 0]));
        assert!(!stream.takes(1));
        assert_eq!([1, 2, 3].map(|_| out.pop().is_ok()), [true; 3]);
        assert!(stream.takes(2) && !stream.takes(3));
    }

    #[test]
    fn headers_count_only_what_was_committed() {
        let folder = tempfile::tempdir().unwrap();
        let (mut streams, _stalls, mut recorder) =
            Recorder::create(folder.path(), &[""], 100_000, MOST_WAITING, 0).unwrap();
        let mut depart = |count: u64| (0..count).for_each(|at| streams[0].departed(at, at));
        depart(40_000);
        recorder.write().unwrap();
        recorder.commit().unwrap();
        depart(50_000);
        recorder.write().unwrap();
        assert_eq!(numbers(&folder.path().join("departure_tsc.npy")).len(), 40_000);
        recorder.commit().unwrap();
        assert_eq!(numbers(&folder.path().join("departure_tsc.npy")).len(), 90_000);
    }

    #[test]
    fn a_disk_that_refuses_stops_the_measurement_and_keeps_what_was_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (mut streams, _stalls, mut recorder) =
            Recorder::create(folder.path(), &[""], 100_000, MOST_WAITING, 0).unwrap();
        streams[0].departed(1, 2);
        recorder.write().unwrap();
        recorder.commit().unwrap();
        recorder.parts[0].arrays[1] = Rows::create(Path::new("/dev/full"), "'<u8'").unwrap();
        streams[0].departed(3, 4);
        let (ended, stop) = (AtomicBool::new(true), Stop::default());
        let written = recorder.run(&ended, &stop);
        assert!(written.error.is_some() && stop.asked());
        assert_eq!(numbers(&folder.path().join("intended_tsc.npy")), [1]);
    }

    #[test]
    fn it_looks_as_often_as_rows_come() {
        let ms = Duration::from_millis;
        assert_eq!(pause(0, ms(250), ms(0)), LOOK_AT_MOST);
        assert_eq!(pause(u64::from(AT_ONCE), ms(10), ms(1)), ms(9));
        assert_eq!(pause(10 * u64::from(AT_ONCE), ms(10), ms(0)), LOOK_AT_LEAST);
    }
}
