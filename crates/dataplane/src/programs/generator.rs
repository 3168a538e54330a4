//! `gen`: sends at its own times and measures what comes back.

use super::{Program, Spec, mac};
use crate::book::{Measured, Seen, WarmUp};
use crate::cli::{self, Common, time};
use crate::counters::Counters;
use crate::error::Error;
use crate::hot::generator::{Wire, generate};
use crate::session::{Lane, ROOM_BYTES, Session, Wanted};
use crate::stalls::StallLog;
use crate::stop::Stop;
use crate::template::{Template, addresses};
use crate::ticks::Ticks;
use crate::turns::Turns;
use capture::{Compression, Format, Writer};
use clap::{Args, ValueEnum};
use dpdk::{Burst, Mempool, run_on, tsc};
use probe::headers::UdpHeaders;
use probe::payload;
use probe::schedule::{Departures, Pattern};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use units::{Nanos, Pps};

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "gen",
    about: "send by a schedule, stamp and match what comes back",
    parse: |own| Ok(Box::new(cli::options::<Generator>("gen", SPEC.about, own)?)),
};

/// A packet that could not leave within this is not sent; a probe can say so much.
const GIVE_UP: Nanos = Nanos(10_000_000);
const _: () = assert!(GIVE_UP.0 < payload::MAX_ERROR_NS);
/// Packets of the pool that wait to be sent; those in the driver's ring come on top.
const TX_PACKETS: u32 = 4096;
/// Packets that are due may leave together so many at a time, if bursts are not larger.
const TX_BURST: usize = 64;
const STATES: [&str; 3] = ["warm-up", "measuring", "draining"];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spacing {
    Cbr,
    Poisson,
}

#[derive(Args, Debug)]
struct Generator {
    #[command(flatten)]
    common: Common,
    /// Packets per second.
    #[arg(long, default_value = "10k", value_name = "PPS", value_parser = rate)]
    rate: Pps,
    /// How departures are spaced.
    #[arg(long, value_enum, default_value = "cbr")]
    pattern: Spacing,
    /// Packets back to back, at the same mean rate.
    #[arg(long, default_value_t = 1, value_name = "N")]
    burst: u32,
    /// Seed of the Poisson process.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Bytes of a frame with its check sequence.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    size: usize,
    /// Flows, which differ by source port.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Source MAC address; that of the port when it is not given.
    #[arg(long, value_name = "MAC", value_parser = address)]
    src_mac: Option<Mac>,
    /// Destination MAC address.
    #[arg(long, default_value = "02:00:00:00:00:10", value_name = "MAC", value_parser = address)]
    dst_mac: Mac,
    /// Source address, IPv4 or IPv6.
    #[arg(long, default_value = "10.0.0.1", value_name = "IP")]
    src_ip: IpAddr,
    /// Destination address.
    #[arg(long, default_value = "10.0.1.1", value_name = "IP")]
    dst_ip: IpAddr,
    /// Source port of the first flow.
    #[arg(long, default_value_t = 1024, value_name = "PORT")]
    src_port: u16,
    /// Destination port.
    #[arg(long, default_value_t = 53, value_name = "PORT")]
    dst_port: u16,
    /// VLAN to tag frames with.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..4095))]
    vlan: Option<u16>,
    /// How long to measure.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    duration: Nanos,
    /// How long to send before that.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    warm_up: Nanos,
    /// How long to wait for the last packets.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    drain: Nanos,
    /// How long to wait for the link.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    link_timeout: Nanos,
    /// Write pre.pcapng.zst and post.pcapng.zst into this folder.
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
}

/// Clap would take an array for several values.
#[derive(Clone, Copy, Debug)]
struct Mac([u8; 6]);

fn address(text: &str) -> Result<Mac, String> {
    mac(text).map(Mac)
}

fn rate(text: &str) -> Result<Pps, String> {
    text.parse().map_err(|error: units::Error| error.to_string())
}

/// When packets shall leave, from a moment on.
#[derive(Clone)]
struct Schedule {
    departures: Departures,
    lasts: Nanos,
    ticks: Ticks,
    start_tsc: u64,
}

impl Schedule {
    fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { departures, lasts, ticks, start_tsc } = self.clone();
        departures.take_while(move |at| *at < lasts).map(move |at| start_tsc + ticks.ticks(at))
    }
}

impl Generator {
    fn check(&self) -> Result<(), Error> {
        let positive = |option, time: Nanos| match time {
            Nanos(0) => {
                let expected = "more than 0s".into();
                Err(Error::Option { option, got: time.to_string(), expected })
            }
            _ => Ok(()),
        };
        positive("--duration", self.duration)?;
        if !(1..=Burst::MOST).contains(&(self.burst as usize)) {
            let (got, expected) = (self.burst.to_string(), format!("1 to {}", Burst::MOST));
            return Err(Error::Option { option: "--burst", got, expected });
        }
        self.departures().map(drop)
    }

    fn departures(&self) -> Result<Departures, Error> {
        let pattern = match (self.pattern, self.burst) {
            (Spacing::Cbr, 1) => Pattern::Cbr,
            (Spacing::Cbr, size) => Pattern::Burst { size, gap: Nanos(0) },
            (Spacing::Poisson, 1) => Pattern::Poisson,
            (Spacing::Poisson, size) => {
                let expected = "1 with --pattern poisson".into();
                return Err(Error::Option { option: "--burst", got: size.to_string(), expected });
            }
        };
        pattern.departures(self.rate, self.seed).map_err(|error| Error::Option {
            option: "--rate",
            got: self.rate.to_string(),
            expected: error.to_string(),
        })
    }

    /// No fewer packets than the schedule has.
    fn scheduled(&self) -> u64 {
        let mean = self.rate.0 as f64 * self.duration.0 as f64 / 1e9;
        // Six standard deviations of a Poisson process.
        (mean + 6.0 * mean.sqrt()) as u64 + u64::from(self.burst) + 64
    }

    fn template(&self, own_mac: [u8; 6]) -> Result<Template, Error> {
        let headers = UdpHeaders {
            to_mac: self.dst_mac.0,
            from_mac: self.src_mac.map_or(own_mac, |mac| mac.0),
            vlan: self.vlan,
            addresses: addresses(self.src_ip, self.dst_ip)?,
            from_port: self.src_port,
            to_port: self.dst_port,
            ttl: 64,
        };
        Template::new(&headers, self.size, self.flows)
    }

    fn wire(&self, session: &mut Session) -> Result<Wire, Error> {
        let to = session.ports.len().min(2) - 1;
        let template = self.template(session.ports[0].info.mac)?;
        let socket = session.lcores[0].socket();
        let pool = Mempool::new("tx", TX_PACKETS, ROOM_BYTES, socket)?;
        pool.for_each(TX_PACKETS, |packet| {
            packet.set_len(template.bytes().len() as u16);
            packet.data_mut().copy_from_slice(template.bytes());
        });
        let ticks = Ticks::new(session.clock);
        Ok(Wire {
            rx: session.ports[to].rx.remove(0),
            tx: session.ports[0].tx.remove(0),
            pool,
            template,
            ticks,
            tx_burst: TX_BURST.max(self.burst as usize),
            give_up: ticks.ticks(GIVE_UP),
            drain: ticks.ticks(self.drain),
        })
    }

    fn measure<const CAPTURE: bool>(&self, mut session: Session) -> Result<(), Error> {
        let mut wire = self.wire(&mut session)?;
        let (ticks, seen) = (wire.ticks, Seen::new());
        let departures = self.departures()?;
        let mut book = Measured::<CAPTURE>::with_room(
            self.scheduled(),
            &wire.template,
            ticks,
            tsc::now(),
            &seen,
        )?;
        let mut warm_up = WarmUp::new(wire.template.payload_at());
        let stop = session.stop.clone();
        session.links.wait(self.link_timeout, &stop)?;
        session.ready();

        let (counters, state) = (Counters::default(), AtomicUsize::new(0));
        let (lcore, stall_ns) = (session.lcores[0], session.common.stall_ns);
        let schedule = |lasts, start_tsc| {
            let departures = departures.clone();
            Schedule { departures, lasts, ticks, start_tsc }
        };
        let mut log = StallLog::new(StallLog::ROOM);
        let clock = session.clock;
        let (measured, downs) = std::thread::scope(|scope| {
            let monitor = session.monitor(scope, || progress(&seen, &counters, &state, &clock));
            let job = || {
                let start = tsc::now();
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                let first = schedule(self.warm_up, start);
                generate(&mut wire, first.iter(), &mut warm_up, turns, &counters);
                state.store(1, Ordering::Relaxed);
                let measured = schedule(self.duration, tsc::now());
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                generate(&mut wire, measured.iter(), &mut book, turns, &counters);
                let ended = tsc::now();
                if stop.asked() {
                    state.store(2, Ordering::Relaxed);
                    let never = Stop::default();
                    let turns = Turns::new(stall_ns, &counters, &mut log, &never);
                    generate(&mut wire, std::iter::empty(), &mut book, turns, &counters);
                }
                (measured, ended)
            };
            let ended = run_on(vec![(lcore, Box::new(job) as Box<dyn FnOnce() -> _ + Send>)]);
            (ended, monitor.finish())
        });
        let (measured, ended) = measured?.remove(0);
        self.note_partial(&mut session, &measured, ended, &downs, &book);
        self.record(&mut session, &measured, &book);
        if let Some(folder) = &self.captures {
            if let Err(error) =
                write_captures(folder, &session, &wire.template, ticks, &measured, &book)
            {
                session.partial.push(error.to_string());
            }
        }
        let own = self.result(&seen, &warm_up, &book);
        let lanes = [Lane { lcore, counters, log, dropped: Vec::new() }];
        session.finish(&lanes, &downs, ("gen", own));
        Ok(())
    }

    fn note_partial<const CAPTURE: bool>(
        &self,
        session: &mut Session,
        measured: &Schedule,
        ended: u64,
        downs: &[u64],
        book: &Measured<'_, CAPTURE>,
    ) {
        if let Some(signal) = session.stop.signal() {
            let after = session.clock.duration(ended.saturating_sub(measured.start_tsc));
            let planned = self.duration;
            session.partial.push(format!("ended by {signal} after {after} of {planned}"));
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

    fn record<const CAPTURE: bool>(
        &self,
        session: &mut Session,
        measured: &Schedule,
        book: &Measured<'_, CAPTURE>,
    ) {
        if session.common.record.is_none() {
            return;
        }
        let intended: Vec<u64> = intended(measured, book).collect();
        session.record("intended_tsc", intended.into_iter());
        session.record("departure_tsc", book.departures.iter());
        let seqs: Vec<u64> = book.arrivals.iter().map(|(seq, _)| seq).collect();
        session.record("arrival_seq", seqs.into_iter());
        let times: Vec<u64> = book.arrivals.iter().map(|(_, tsc)| tsc).collect();
        session.record("arrival_tsc", times.into_iter());
        session.record("corrupt_seq", book.corrupt.iter().copied());
    }

    fn result<const CAPTURE: bool>(
        &self,
        seen: &Seen,
        warm_up: &WarmUp,
        book: &Measured<'_, CAPTURE>,
    ) -> Value {
        json!({
            "sent": seen.sent.get(),
            "matched": seen.received.get(),
            "unsent": seen.unsent.get(),
            "duplicated": book.duplicated,
            "corrupt": book.corrupt.len() as u64 + book.corrupt_unrecorded,
            "foreign": book.foreign,
            "unrecorded": book.arrivals.unrecorded,
            "warm_up_sent": warm_up.sent,
            "warm_up_received": warm_up.received + book.warm_up_received,
            "rate_pps": self.rate.0,
        })
    }
}

impl Program for Generator {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        self.check()?;
        self.template([0; 6])?;
        let wanted = Wanted { ports: 1, queues: 1, rx_timestamps: false, held: 0 };
        let session = Session::open("gen", eal, &self.common, wanted)?;
        match self.captures {
            None => self.measure::<false>(session),
            Some(_) => self.measure::<true>(session),
        }
    }
}

/// When the packets that left were meant to.
fn intended<const CAPTURE: bool>(
    measured: &Schedule,
    book: &Measured<'_, CAPTURE>,
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
        "stall_longest_ns": clock.duration(counters.stall_longest.get()).0,
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
fn write_captures<const CAPTURE: bool>(
    folder: &Path,
    session: &Session,
    template: &Template,
    ticks: Ticks,
    measured: &Schedule,
    book: &Measured<'_, CAPTURE>,
) -> Result<(), Error> {
    let create = |name| Writer::create(&folder.join(name), Format::PcapNg, Compression::Zstd);
    let mut pre = create("pre.pcapng.zst")?;
    let mut frame = template.bytes().to_vec();
    let times = intended(measured, book).zip(book.departures.iter());
    for ((intended, departure), seq) in times.zip(0..) {
        template.stamp(&mut frame, seq, ticks.unix_ns(intended), ticks.unix_ns(departure));
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
