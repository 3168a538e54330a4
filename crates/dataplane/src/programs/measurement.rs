//! A measurement: warm up, send, drain, and say what came out.

use crate::book::{Identify, Measured, Seen, WarmUp};
use crate::counters::Counters;
use crate::error::Error;
use crate::hot::generator::{Wire, generate};
use crate::schedule::{Schedule, Times};
use crate::session::{Lane, Session};
use crate::stalls::StallLog;
use crate::stop::Stop;
use crate::template::Content;
use crate::ticks::Ticks;
use crate::turns::Turns;
use capture::{Compression, Format, Writer};
use dpdk::{run_on, tsc};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use units::Nanos;

const STATES: [&str; 3] = ["warm-up", "measuring", "draining"];

/// What is sent, when, and what becomes of it.
pub struct Measurement<C> {
    pub wire: Wire<C>,
    pub times: Times,
    /// No fewer packets than `times` has within `duration`.
    pub scheduled: u64,
    pub warm_up: Nanos,
    pub duration: Nanos,
    pub link_timeout: Nanos,
    /// Whether the ports stay after the result until SIGTERM comes.
    pub keep_ports: bool,
    /// Where to write captures.
    pub captures: Option<PathBuf>,
}

impl<C: Content + Sync + Send> Measurement<C> {
    /// Measures, and prints the result: what every generator says, and `own`.
    pub fn run<I: Identify + Sync>(
        self,
        session: Session,
        names: &I,
        own: Value,
    ) -> Result<(), Error> {
        match self.captures {
            None => self.measure::<I, false>(session, names, own),
            Some(_) => self.measure::<I, true>(session, names, own),
        }
    }

    fn measure<I: Identify + Sync, const CAPTURE: bool>(
        mut self,
        mut session: Session,
        names: &I,
        mut own: Value,
    ) -> Result<(), Error> {
        let (ticks, seen) = (self.wire.ticks, Seen::new());
        let longest = self.wire.content.longest();
        let mut book =
            Measured::<I, CAPTURE>::with_room(self.scheduled, longest, names, tsc::now(), &seen)?;
        let mut warm_up = WarmUp::default();
        let stop = session.stop.clone();
        session.links.wait(self.link_timeout, &stop)?;
        session.ready();

        let (counters, state) = (Counters::default(), AtomicUsize::new(0));
        let (lcore, stall_ns) = (session.lcores[0], session.common.stall_ns);
        let (warm_up_ns, duration_ns, times) = (self.warm_up, self.duration, self.times.clone());
        let schedule =
            |lasts, start_tsc| Schedule { times: times.clone(), lasts, ticks, start_tsc };
        let (mut log, clock, wire) = (StallLog::new(StallLog::ROOM), session.clock, &mut self.wire);
        let (measured, downs) = std::thread::scope(|scope| {
            let monitor = session.monitor(scope, || progress(&seen, &counters, &state, &clock));
            let job = || {
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                let first = schedule(warm_up_ns, tsc::now());
                generate(wire, first.iter(), &mut warm_up, turns, &counters);
                state.store(1, Ordering::Relaxed);
                let measured = schedule(duration_ns, tsc::now());
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                generate(wire, measured.iter(), &mut book, turns, &counters);
                let ended = tsc::now();
                if stop.asked() {
                    state.store(2, Ordering::Relaxed);
                    let never = Stop::default();
                    let turns = Turns::new(stall_ns, &counters, &mut log, &never);
                    generate(wire, std::iter::empty(), &mut book, turns, &counters);
                }
                (measured, ended)
            };
            let ended = run_on(vec![(lcore, Box::new(job) as Box<dyn FnOnce() -> _ + Send>)]);
            (ended, monitor.finish())
        });
        let (measured, ended) = measured?.remove(0);
        let (sent, received) = (seen.sent.get(), seen.received.get());
        assert_eq!(sent, book.departures.len() as u64, "every packet sent has its departure");
        assert!(received <= sent, "a packet arrives for the first time once");
        self.note_partial(&mut session, &measured, ended, &downs, &book);
        record(&mut session, &measured, &book);
        if let Some(folder) = &self.captures {
            let content = &self.wire.content;
            if let Err(error) = write_captures(folder, &session, content, ticks, &measured, &book) {
                session.partial.push(error.to_string());
            }
        }
        add_result(&mut own, &seen, &warm_up, &book);
        let lanes = [Lane { lcore, counters, log, dropped: Vec::new() }];
        session.print_result(&lanes, &downs, ("gen", own));
        if self.keep_ports {
            stop.wait_for_sigterm();
        }
        drop(session);
        Ok(())
    }

    fn note_partial<I, const CAPTURE: bool>(
        &self,
        session: &mut Session,
        measured: &Schedule,
        ended: u64,
        downs: &[u64],
        book: &Measured<'_, I, CAPTURE>,
    ) {
        if session.stop.asked() {
            let after = session.clock.duration(ended.saturating_sub(measured.start_tsc));
            let after = Nanos(after.0.next_multiple_of(1_000_000));
            let planned = self.duration;
            session.partial.push(format!("ended after {after} of {planned}, as asked"));
        }
        for (open, downs) in session.ports.iter().zip(downs).filter(|(_, downs)| **downs > 0) {
            let text = format!("the link of port {} went down {downs} time(s)", open.port.id());
            session.partial.push(text);
        }
        let unrecorded = book.arrivals.unrecorded + book.corrupt_unrecorded;
        if unrecorded > 0 {
            session.partial.push(format!("no room to record {unrecorded} arrivals"));
        }
    }
}

fn record<I, const CAPTURE: bool>(
    session: &mut Session,
    measured: &Schedule,
    book: &Measured<'_, I, CAPTURE>,
) {
    if session.common.record.is_none() {
        return;
    }
    session.record("intended_tsc", intended(measured, book));
    let unsent = || {
        measured.iter().zip(0..).filter_map(|(intended, slot)| {
            book.skipped.was_refused(slot).map(|refused| (intended, refused))
        })
    };
    session.record("unsent_tsc", unsent().map(|(intended, _)| intended));
    session.record("unsent_refused", unsent().map(|(_, refused)| u64::from(refused)));
    session.record("departure_tsc", book.departures.iter());
    session.record("arrival_seq", book.arrivals.iter().map(|(seq, _)| seq));
    session.record("arrival_tsc", book.arrivals.iter().map(|(_, tsc)| tsc));
    session.record("corrupt_seq", book.corrupt.iter().copied());
}

fn add_result<I, const CAPTURE: bool>(
    own: &mut Value,
    seen: &Seen,
    warm_up: &WarmUp,
    book: &Measured<'_, I, CAPTURE>,
) {
    for (name, count) in [
        ("sent", seen.sent.get()),
        ("matched", seen.received.get()),
        ("unsent", seen.unsent.get()),
        ("duplicated", book.duplicated),
        ("corrupt", book.corrupt.len() as u64 + book.corrupt_unrecorded),
        ("foreign", book.foreign),
        ("ambiguous", book.ambiguous),
        ("unrecorded", book.arrivals.unrecorded),
        ("warm_up_sent", warm_up.sent),
        ("warm_up_received", warm_up.received + book.warm_up_received),
    ] {
        own[name] = count.into();
    }
}

/// When the packets that left were meant to.
fn intended<I, const CAPTURE: bool>(
    measured: &Schedule,
    book: &Measured<'_, I, CAPTURE>,
) -> impl Iterator<Item = u64> {
    let slots = measured.iter().zip(0..);
    slots.filter(|(_, slot)| book.skipped.has_left(*slot)).map(|(intended, _)| intended)
}

fn progress(seen: &Seen, counters: &Counters, state: &AtomicUsize, clock: &units::Clock) -> Value {
    let mut fields = json!({
        "state": STATES[state.load(Ordering::Relaxed)],
        "rx_packets": counters.rx_packets.get(),
        "tx_packets": counters.tx_packets.get(),
        "stalls": counters.stalls.get(),
        "stall_ns_max": clock.duration(counters.stall_longest.get()).0,
        "sent": seen.sent.get(),
        "received": seen.received.get(),
        "unsent": seen.unsent.get(),
    });
    if let Some(([p50, p999], max)) = seen.latency.quantiles([0.5, 0.999]) {
        for (name, ticks) in
            [("latency_ns_p50", p50), ("latency_ns_p999", p999), ("latency_ns_max", max)]
        {
            fields[name] = clock.duration(ticks).0.into();
        }
    }
    fields
}

/// Writes what left and what arrived, at the times that the recording has.
fn write_captures<C: Content, I, const CAPTURE: bool>(
    folder: &Path,
    session: &Session,
    content: &C,
    ticks: Ticks,
    measured: &Schedule,
    book: &Measured<'_, I, CAPTURE>,
) -> Result<(), Error> {
    let create = |name| Writer::create(&folder.join(name), Format::PcapNg, Compression::Zstd);
    let mut pre = create("pre.pcapng.zst")?;
    let mut frame = Vec::new();
    let times = intended(measured, book).zip(book.departures.iter());
    for ((intended, departure), seq) in times.zip(0..) {
        content.copy(&mut frame, seq, ticks.unix_ns(intended), ticks.unix_ns(departure));
        pre.write(session.clock.unix(departure), frame.len() as u32, &frame)?;
    }
    pre.finish()?;
    let mut post = create("post.pcapng.zst")?;
    for ((_, arrival), (bytes, len)) in book.arrivals.iter().zip(book.frames.iter()) {
        post.write(session.clock.unix(arrival), len, bytes)?;
    }
    post.finish()?;
    Ok(())
}
