//! A measurement: warm up, send, drain, and say what came out.

use crate::book::{Book, Identify, Kept, Measured, Seen, WarmUp};
use crate::counters::Counters;
use crate::error::Error;
use crate::hot::generator::{Line, Wire, generate};
use crate::schedule::{Schedule, Times};
use crate::session::{Lane, Session};
use crate::stalls::StallLog;
use crate::stop::Stop;
use crate::stream::{MOST_WAITING, Recorder, Recording, Stream};
use crate::template::{Content, FCS_BYTES};
use crate::ticks::Ticks;
use crate::turns::Turns;
use capture::{Compression, Format, Writer};
use dpdk::{run_on, tsc};
use messages::{
    DirectionCounts, GeneratedTraffic, Latency, Outcome, Progress, ProgressEvent, State,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use units::Nanos;

const STATES: [State; 3] = [State::WarmUp, State::Measuring, State::Draining];
/// For each direction, the parts of folders that are its own.
pub const PARTS: [&str; 2] = ["", "back/"];

/// What is sent, when, and what becomes of it; in `N` directions.
pub struct Measurement<C, const N: usize> {
    pub ways: [Way<C>; N],
    /// No fewer packets than `times` of a way has within `duration`.
    pub scheduled: u64,
    pub warm_up: Nanos,
    pub duration: Nanos,
    pub link_timeout: Nanos,
    /// Whether the ports stay after the result until SIGTERM comes.
    pub keep_ports: bool,
    /// Where to write captures.
    pub captures: Option<PathBuf>,
    /// Bytes that a device may add to a frame, beside a tag.
    pub added_bytes: usize,
}

/// One direction.
pub struct Way<C> {
    pub wire: Wire<C>,
    pub times: Times,
    /// How much later than the first direction it begins.
    pub begins: Nanos,
}

impl<C: Content + Sync + Send, const N: usize> Measurement<C, N> {
    /// Measures, and prints the result: what it has counted, and what `own` says of its traffic.
    pub fn run<I: Identify + Sync>(
        self,
        session: Session,
        names: &[I; N],
        own: DirectionCounts,
    ) -> Result<(), Error> {
        match self.captures {
            None => self.measure::<I, false>(session, names, own),
            Some(_) => self.measure::<I, true>(session, names, own),
        }
    }

    fn measure<I: Identify + Sync, const CAPTURE: bool>(
        mut self,
        mut session: Session,
        names: &[I; N],
        own: DirectionCounts,
    ) -> Result<(), Error> {
        let (ticks, seen) = (self.ways[0].wire.ticks, [(); N].map(|()| Seen::new()));
        session.parts = &PARTS[..N];
        let (streams, mut log, recorder) = self.streams::<I>(&session)?;
        let mut books = self.books::<I, CAPTURE>(names, &seen, streams)?;
        let mut warm_ups = each(names, |name| WarmUp { mark: name.mark(), ..WarmUp::default() });
        let stop = session.stop.clone();
        session.links.wait(self.link_timeout, &stop)?;
        session.give_back_privileges(self.captures.as_deref())?;
        session.ready()?;

        let (counters, state) = (Counters::default(), AtomicUsize::new(0));
        let (lcore, stall_ns) = (session.lcores[0], session.common.stall_ns);
        let (warm_up_ns, duration_ns) = (self.warm_up, self.duration);
        let planned = each(&self.ways, |way| (way.times.clone(), ticks.ticks(way.begins)));
        let schedules = |lasts, start_tsc: u64| {
            each(&planned, |(times, later)| Schedule {
                times: times.clone(),
                lasts,
                ticks,
                start_tsc: start_tsc + later,
            })
        };
        let (clock, ways) = (session.clock, &mut self.ways);
        let (measured, downs, written) = std::thread::scope(|scope| {
            let recording = recorder.map(|recorder| session.write_meanwhile(scope, recorder));
            let monitor = session.monitor(scope, |elapsed_s| {
                let state = STATES[state.load(Ordering::Relaxed)];
                progress(elapsed_s, state, &seen, &counters, &clock)
            });
            let job = || {
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                let first = schedules(warm_up_ns, tsc::now());
                generate(lines(ways, &mut warm_ups, &first), turns, &counters);
                state.store(1, Ordering::Relaxed);
                let measured = schedules(duration_ns, tsc::now());
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                generate(lines(ways, &mut books, &measured), turns, &counters);
                let ended = tsc::now();
                if stop.asked() {
                    state.store(2, Ordering::Relaxed);
                    let never = Stop::default();
                    let turns = Turns::new(stall_ns, &counters, &mut log, &never);
                    let nothing = schedules(Nanos(0), ended);
                    generate(lines(ways, &mut books, &nothing), turns, &counters);
                }
                (measured, ended)
            };
            let ended = run_on(vec![(lcore, Box::new(job) as Box<dyn FnOnce() -> _ + Send>)]);
            (ended, monitor.finish(), recording.map(Recording::finish))
        });
        let (measured, ended): ([Schedule; N], u64) = measured?.remove(0);
        self.note_partial(&mut session, measured[0].start_tsc, ended, &downs);
        if let Some(written) = written {
            session.wrote_meanwhile(written);
        }
        for book in &books {
            session.expect(book.kept.len());
        }
        let mut said = Vec::new();
        for at in 0..N {
            let book = &books[at];
            let (sent, received) = (seen[at].sent.get(), seen[at].received.get());
            assert_eq!(sent, book.departures.len(), "every packet sent has its departure");
            assert!(received <= sent, "a packet arrives for the first time once");
            note_unrecorded(&mut session, book);
            let content = &self.ways[at].wire.content;
            if let Some(folder) = &self.captures {
                let folder = folder.join(PARTS[at]);
                if let Err(error) =
                    write_captures(&folder, &mut session, content, ticks, &book.kept)
                {
                    session.partial.push(error.to_string());
                }
            }
            said.push(DirectionCounts {
                sent_bytes: Some(sent_bytes(content, sent).into()),
                ..counts(own, &seen[at], &warm_ups[at], book)
            });
        }
        let lanes = [Lane {
            lcore,
            counters,
            log,
            sightings: Vec::new(),
            passages: None,
            dropped: Vec::new(),
        }];
        let (there, back) = (said[0], said.get(1).copied());
        let traffic = GeneratedTraffic { there, back };
        session.print_result(&lanes, &downs, Outcome::Gen { r#gen: traffic });
        if self.keep_ports {
            stop.wait_for_sigterm();
        }
        drop(session);
        Ok(())
    }

    /// Where the loop hands over what is recorded, and what writes it.
    fn streams<I: Identify>(
        &self,
        session: &Session,
    ) -> Result<(Vec<Stream>, StallLog, Option<Recorder>), Error> {
        let Some(folder) = &session.common.record else {
            let nowhere = (0..N).map(|_| Stream::nowhere()).collect();
            return Ok((nowhere, StallLog::new(StallLog::ROOM), None));
        };
        // A capture that is sent again is in memory, too.
        let waiting = if I::IS_NUMBERED { MOST_WAITING } else { u64::MAX };
        let (scheduled, lcore) = (self.scheduled, session.lcores[0].0);
        let (streams, stalls, recorder) =
            Recorder::create(folder, &PARTS[..N], scheduled, waiting, lcore)?;
        Ok((streams, StallLog::handing_over(stalls), Some(recorder)))
    }

    fn books<'a, I: Identify, const CAPTURE: bool>(
        &self,
        names: &'a [I; N],
        seen: &'a [Seen; N],
        streams: Vec<Stream>,
    ) -> Result<[Measured<'a, I, CAPTURE>; N], Error> {
        let mut books = Vec::with_capacity(N);
        for (at, (way, stream)) in self.ways.iter().zip(streams).enumerate() {
            let (longest, added) = (way.wire.content.longest(), self.added_bytes);
            let (name, seen) = (&names[at], &seen[at]);
            books.push(Measured::with_room(self.scheduled, longest, added, name, stream, seen)?);
        }
        Ok(books.try_into().unwrap_or_else(|_| unreachable!("one for each direction")))
    }

    fn note_partial(&self, session: &mut Session, start_tsc: u64, ended: u64, downs: &[u64]) {
        if session.stop.asked() {
            let after = session.clock.duration(ended.saturating_sub(start_tsc));
            let after = Nanos(after.0.next_multiple_of(1_000_000));
            let planned = self.duration;
            session.partial.push(format!("ended after {after} of {planned}, as asked"));
        }
        for (open, downs) in session.ports.iter().zip(downs).filter(|(_, downs)| **downs > 0) {
            let text = format!("the link of port {} went down {downs} time(s)", open.port.id());
            session.partial.push(text);
        }
    }
}

/// The same of each.
fn each<T, U, const N: usize>(all: &[T; N], make: impl Fn(&T) -> U) -> [U; N] {
    std::array::from_fn(|at| make(&all[at]))
}

/// Each way with its book and its schedule.
fn lines<'a, C: Content, B: Book, const N: usize>(
    ways: &'a mut [Way<C>; N],
    books: &'a mut [B; N],
    schedules: &[Schedule; N],
) -> [Line<'a, C, B, impl Iterator<Item = u64> + use<C, B, N>>; N] {
    let mut parts = ways.iter_mut().zip(books).zip(schedules);
    std::array::from_fn(|_| {
        let ((way, book), schedule) = parts.next().expect("one for each direction");
        Line::new(&mut way.wire, book, schedule.iter())
    })
}

fn note_unrecorded<I, const CAPTURE: bool>(session: &mut Session, book: &Measured<'_, I, CAPTURE>) {
    let (unrecorded, without_room) = (book.stream.unrecorded, book.kept.without_room);
    if unrecorded > 0 {
        session.partial.push(format!("the recorder was behind: {unrecorded} arrivals are missing"));
    }
    if without_room > 0 {
        session.partial.push(format!("no room to capture {without_room} arrivals"));
    }
}

/// Bytes of all frames that were sent, with their check sequences.
fn sent_bytes<C: Content>(content: &C, sent: u64) -> u64 {
    (0..sent).map(|seq| (content.frame_len(seq) + FCS_BYTES) as u64).sum()
}

fn make_folder(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|source| Error::File { path: path.into(), source })
}

fn counts<I, const CAPTURE: bool>(
    own: DirectionCounts,
    seen: &Seen,
    warm_up: &WarmUp,
    book: &Measured<'_, I, CAPTURE>,
) -> DirectionCounts {
    DirectionCounts {
        sent: seen.sent.get().into(),
        matched: seen.received.get().into(),
        unsent: seen.unsent.get().into(),
        duplicated: book.duplicated.into(),
        corrupt: book.corrupt.into(),
        foreign: book.foreign.into(),
        ambiguous: book.ambiguous.into(),
        unrecorded: book.stream.unrecorded.into(),
        unrecorded_sent: book.unrecorded_sent.into(),
        unrecorded_received: book.unrecorded_received.into(),
        warm_up_sent: warm_up.sent.into(),
        warm_up_received: (warm_up.received + book.warm_up_received).into(),
        ..own
    }
}

fn progress(
    elapsed_s: f64,
    state: State,
    seen: &[Seen],
    counters: &Counters,
    clock: &units::Clock,
) -> ProgressEvent {
    let all = |count: fn(&Seen) -> u64| seen.iter().map(count).sum::<u64>();
    let ns = |ticks| clock.duration(ticks).0.into();
    let live = &seen[0].latency;
    let latency = live.quantiles([0.5, 0.999]).map(|([p50, p999], max)| Latency {
        latency_ns_p50: ns(p50),
        latency_ns_p999: ns(p999),
        latency_ns_max: ns(max),
        latency_ns_sum: ns(live.sum()),
    });
    ProgressEvent {
        elapsed_s,
        state,
        rx_packets: counters.rx_packets.get().into(),
        stalls: counters.stalls.get().into(),
        written: None,
        own: Progress::Generator {
            tx_packets: counters.tx_packets.get().into(),
            stall_ns_total: ns(counters.stall_total.get()),
            stall_ns_max: ns(counters.stall_longest.get()),
            sent: all(|seen| seen.sent.get()).into(),
            received: all(|seen| seen.received.get()).into(),
            unsent: all(|seen| seen.unsent.get()).into(),
            latency,
            latency_ns_buckets: live
                .filled()
                .map(|(ticks, count)| (ns(ticks), count.into()))
                .collect(),
        },
    }
}

/// Writes what left and what arrived, at the times that the recording has.
fn write_captures<C: Content>(
    folder: &Path,
    session: &mut Session,
    content: &C,
    ticks: Ticks,
    kept: &Kept,
) -> Result<(), Error> {
    make_folder(folder)?;
    let create = |name| Writer::create(&folder.join(name), Format::PcapNg, Compression::Zstd);
    let mut pre = create("pre.pcapng.zst")?;
    let mut frame = Vec::new();
    for (&(intended, departure), seq) in kept.departures.iter().zip(0..) {
        content.copy(&mut frame, seq, ticks.unix_ns(intended), ticks.unix_ns(departure));
        pre.write(session.clock.unix(departure), frame.len() as u32, &frame)?;
        session.wrote();
    }
    pre.finish()?;
    let mut post = create("post.pcapng.zst")?;
    for (arrival, bytes, len) in kept.arrivals() {
        post.write(session.clock.unix(arrival), len, bytes)?;
        session.wrote();
    }
    post.finish()?;
    Ok(())
}
