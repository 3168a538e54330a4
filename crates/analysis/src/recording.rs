//! The analysis of what an instrument recorded: departures and arrivals in ticks of one counter.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use probe::key::{Key, MatchOn};
use units::Clock;

use crate::basis::Grid;
use crate::config::Config;
use crate::error::Error;
use crate::ingest::Stamped;
use crate::instrument::{Explained, Held, Instrument, Recorded, Stall};
use crate::matcher::Match;
use crate::order::BATCH;
use crate::pair::{Analysis, Captured, Observer, Progress, Run, Source, continue_unless_stopped};
use crate::side::Side;

/// Entries of an array between two looks at the observer.
const LOOK: usize = 1 << 16;

/// The record of an instrument, in ticks of `clock`.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// Meaning of the ticks.
    pub clock: Clock,
    /// Time at which each packet was meant to leave, by sequence number. Ascending.
    pub intended_tsc: &'a [u64],
    /// Time at which each left, not before that. Ascending.
    pub departure_tsc: &'a [u64],
    /// The packets that arrived, in order of arrival.
    pub arrival_seq: &'a [u64],
    /// Time at which they did. Ascending.
    pub arrival_tsc: &'a [u64],
    /// Packets that came back changed.
    pub corrupt_seq: &'a [u64],
    /// Time at which the instrument began to stall. Ascending.
    pub stall_start_tsc: &'a [u64],
    /// Duration of each stall; no stall reaches into the next.
    pub stall_duration_tsc: &'a [u64],
    /// True if it ends before the traffic did: what had not arrived by then is not known to be lost.
    pub cut_off: bool,
}

/// Analyses a recording just as [`analyze_pair`](crate::analyze_pair) does the captures of the same
/// packets, matched on `probe`: every figure is the same.
///
/// # Errors
/// When the arrays contradict each other, or `observer` stops it.
pub fn analyze_recording(
    recording: &Recording<'_>,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    config.check()?;
    recording.check(observer)?;
    let config = Config { match_on: MatchOn::Probe, ..config.clone() };
    let clock = recording.clock;
    let trim = config.trim;
    let source = |name, seqs, times| Series { name, clock, seqs, times, ..Series::new(trim) };
    let pre = source("departures", None, recording.departure_tsc);
    let post = source("arrivals", Some(recording.arrival_seq), recording.arrival_tsc);
    let bytes = 8 * (pre.times.len() + 2 * post.times.len()) as u64;
    let total_bytes = Some(bytes);
    let stalls = recording.stalls();
    let mut instrumented = Instrumented {
        recording,
        explained: Explained::new(&stalls),
        next_seq: 0,
        instrument: Instrument::default(),
        batch: Vec::new(),
        observer,
    };
    let stopped = AtomicBool::new(false);
    let (matched, departures) = thread::scope(|scope| {
        // Nothing that is matched is needed for them.
        let departures = scope.spawn(|| recording.departures(&stalls, &stopped));
        let run = Run::recorded(pre, post, config, total_bytes);
        let matched = run.and_then(|run| run.finish(&mut instrumented));
        stopped.store(matched.is_err(), Ordering::Relaxed);
        (matched, departures.join().expect("counting does not panic"))
    });
    let mut analysis = matched?;
    if recording.cut_off {
        analysis = analysis.judged();
    }
    let matched = instrumented.instrument;
    let instrument = Instrument {
        tainted: matched.tainted,
        least_latency: matched.least_latency,
        intended_latency: matched.intended_latency,
        ..departures
    };
    let mut corrupt = recording.corrupt(&analysis);
    if recording.cut_off {
        // Some may have come back from behind what is judged.
        corrupt = corrupt.min(analysis.counts.lost);
    }
    let counts = &analysis.counts;
    let told = instrument.least_latency.count();
    assert_eq!(told, counts.matched, "every match has the least that it can have taken");
    let departures = instrument.departure_error.count();
    assert_eq!(departures, analysis.pre.side.packets, "every departure has its error");
    assert!(corrupt <= counts.lost, "what came back changed counts as lost so far");
    analysis.counts.lost -= corrupt;
    analysis.counts.corrupt = corrupt;
    analysis.counts.assert_conserved(analysis.pre.side.packets, analysis.post.side.packets);
    analysis.instrument = Some(instrument);
    analysis.basis.grid = Grid::of_counter(clock.tsc_hz);
    Ok(analysis)
}

impl Recording<'_> {
    fn check(&self, observer: &mut dyn Observer) -> Result<(), Error> {
        let sent = self.departure_tsc.len() as u64;
        same_length("intended_tsc", self.intended_tsc, "departure_tsc", self.departure_tsc)?;
        same_length("arrival_seq", self.arrival_seq, "arrival_tsc", self.arrival_tsc)?;
        let (starts, lasts) = (self.stall_start_tsc, self.stall_duration_tsc);
        same_length("stall_duration_tsc", lasts, "stall_start_tsc", starts)?;
        if self.clock.tsc_hz == 0 {
            return Err(Error::wrong("clock", 0, 0, "at least 1 tick/s"));
        }
        if sent == 0 {
            return Err(Error::NoPackets { file: "departure_tsc".into(), side: "before" });
        }
        for (field, values) in [
            ("intended_tsc", self.intended_tsc),
            ("departure_tsc", self.departure_tsc),
            ("arrival_tsc", self.arrival_tsc),
            ("stall_start_tsc", starts),
        ] {
            let falls = |at: usize| at > 0 && values[at - 1] > values[at];
            if let Some(at) = first(values.len(), falls, observer)? {
                let expected = format!("at least {}, which is before it", values[at - 1]);
                return Err(Error::wrong(field, at, values[at], &expected));
            }
        }
        for (field, seqs) in [("arrival_seq", self.arrival_seq), ("corrupt_seq", self.corrupt_seq)]
        {
            if let Some(at) = first(seqs.len(), |at| seqs[at] >= sent, observer)? {
                return Err(Error::wrong(field, at, seqs[at], &format!("less than {sent}, sent")));
            }
        }
        let (intended, departure) = (self.intended_tsc, self.departure_tsc);
        let early = |at: usize| intended[at] > departure[at];
        if let Some(at) = first(departure.len(), early, observer)? {
            let expected = format!("at least {}, intended", intended[at]);
            return Err(Error::wrong("departure_tsc", at, departure[at], &expected));
        }
        Ok(())
    }

    /// Returns the stalls in ns; what would reach into the next ends there.
    fn stalls(&self) -> Vec<Stall> {
        let unix = |tsc| self.clock.unix(tsc).0;
        let ends = |at: usize| {
            let end = self.stall_start_tsc[at].saturating_add(self.stall_duration_tsc[at]);
            unix(self.stall_start_tsc.get(at + 1).map_or(end, |next| end.min(*next)))
        };
        let mut before_ns = 0;
        let stalls: Vec<_> = (0..self.stall_start_tsc.len())
            .map(|at| {
                let (start_ns, end_ns) = (unix(self.stall_start_tsc[at]), ends(at));
                let stall = Stall { start_ns, end_ns, before_ns };
                before_ns += end_ns - start_ns;
                stall
            })
            .collect();
        assert!(
            stalls.is_sorted_by(|a, b| a.end_ns <= b.start_ns),
            "no stall reaches into the next"
        );
        stalls
    }

    /// Counts how late packets left, and how long the instrument stalled; part of it if `stopped`.
    fn departures(&self, stalls: &[Stall], stopped: &AtomicBool) -> Instrument {
        let (mut instrument, mut held) = (Instrument::default(), Held::new(stalls));
        let times = self.intended_tsc.iter().zip(self.departure_tsc).enumerate();
        for (at, (&intended, &departure)) in times {
            if at % LOOK == 0 && stopped.load(Ordering::Relaxed) {
                break;
            }
            let (intended, departure) = (self.clock.unix(intended).0, self.clock.unix(departure).0);
            instrument.departure_error.record(departure - intended);
            if held.late_ns(intended, departure).is_none() {
                instrument.untainted_departure_error.record(departure - intended);
            }
        }
        let lasts = stalls.iter().map(|stall| stall.end_ns - stall.start_ns);
        instrument.stalls = stalls.len() as u64;
        instrument.stall_ns_total = lasts.clone().sum();
        instrument.stall_ns_max = lasts.max().unwrap_or(0);
        instrument
    }

    /// Packets that count as lost so far, but came back changed.
    fn corrupt(&self, analysis: &Analysis) -> u64 {
        let mut corrupt: HashSet<u64> = self.corrupt_seq.iter().copied().collect();
        if corrupt.is_empty() {
            return 0;
        }
        for seq in self.arrival_seq {
            corrupt.remove(seq);
        }
        let first = analysis.post.side.first_ns.filter(|_| analysis.config.trim.0 > 0);
        let cut = first.map(|first| first.saturating_add(analysis.config.trim.0));
        let kept = |seq: &u64| {
            cut.is_none_or(|cut| self.clock.unix(self.departure_tsc[*seq as usize]).0 > cut)
        };
        corrupt.iter().filter(|seq| kept(seq)).count() as u64
    }
}

/// Returns the first place of so many that something holds of.
fn first(
    places: usize,
    holds: impl Fn(usize) -> bool,
    observer: &mut dyn Observer,
) -> Result<Option<usize>, Error> {
    for start in (0..places).step_by(LOOK) {
        look(start, Progress { done_bytes: 0, total_bytes: None }, observer)?;
        let end = places.min(start + LOOK);
        if let Some(at) = (start..end).find(|at| holds(*at)) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Shows every now and then how far it is, while a long array is walked.
fn look(at: usize, progress: Progress, observer: &mut dyn Observer) -> Result<(), Error> {
    if at % LOOK > 0 {
        return Ok(());
    }
    continue_unless_stopped(observer.progress(progress))
}

fn same_length(
    field: &'static str,
    got: &[u64],
    other: &str,
    expected: &[u64],
) -> Result<(), Error> {
    if got.len() == expected.len() {
        return Ok(());
    }
    let expected = format!("{} entries, as {other} has", expected.len());
    Err(Error::wrong(field, got.len(), got.len() as u64, &expected))
}

/// One side of a recording as packets. Without sequence numbers a packet's place is its number.
struct Series<'a> {
    name: &'static str,
    clock: Clock,
    seqs: Option<&'a [u64]>,
    times: &'a [u64],
    batch: Vec<Stamped>,
    made: usize,
    next: usize,
    side: Side,
}

impl Series<'_> {
    fn new(trim: units::Nanos) -> Self {
        Self {
            name: "",
            clock: Clock { tsc_hz: 1, tsc: 0, unix_ns: 0 },
            seqs: None,
            times: &[],
            batch: Vec::with_capacity(BATCH),
            made: 0,
            next: 0,
            side: Side::new(trim),
        }
    }

    fn stamped(&self, at: usize) -> Stamped {
        let ts = self.clock.unix(self.times[at]).0;
        let seq = self.seqs.map_or(at as u64, |seqs| seqs[at]);
        Stamped::new(ts, Some(Key::of_probe(seq)))
    }
}

impl Source for Series<'_> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn waiting(&mut self) -> Result<&[Stamped], Error> {
        if self.next == self.batch.len() {
            let most = (self.made + BATCH).min(self.times.len());
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            batch.extend((self.made..most).map(|at| self.stamped(at)));
            self.side.record_all(&batch);
            (self.batch, self.made, self.next) = (batch, most, 0);
        }
        Ok(&self.batch[self.next..])
    }

    fn take(&mut self, count: usize) {
        assert!(count <= self.batch.len() - self.next, "no more are taken than wait");
        self.next += count;
    }

    fn done_bytes(&self) -> u64 {
        (self.made * if self.seqs.is_some() { 16 } else { 8 }) as u64
    }

    fn finish(self) -> Captured {
        Captured { name: self.name.into(), info: None, files: None, cut: None, side: self.side }
    }
}

/// Adds to each match what the instrument knows, and passes it on.
struct Instrumented<'a, 'r> {
    recording: &'r Recording<'r>,
    explained: Explained<'r>,
    next_seq: u64,
    instrument: Instrument,
    batch: Vec<Recorded>,
    observer: &'a mut dyn Observer,
}

impl Observer for Instrumented<'_, '_> {
    fn matches(&mut self, batch: &[Match]) -> ControlFlow<()> {
        self.batch.clear();
        for found in batch {
            let Recording { clock, intended_tsc, departure_tsc, .. } = *self.recording;
            for at in self.next_seq as usize..found.seq as usize {
                let (intended, departure) = (intended_tsc[at], departure_tsc[at]);
                self.explained.unmatched(clock.unix(intended).0, clock.unix(departure).0);
            }
            self.next_seq = found.seq + 1;
            let intended_ns = clock.unix(intended_tsc[found.seq as usize]).0;
            let arrival_ns = found.pre_ns + found.latency_ns;
            let instrument_stall_ns =
                self.explained.of_match(intended_ns, found.pre_ns, arrival_ns);
            let recorded = Recorded { found: *found, intended_ns, instrument_stall_ns };
            self.instrument.push(&recorded);
            self.batch.push(recorded);
        }
        self.observer.recorded(&self.batch)
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self.observer.progress(progress)
    }
}
