//! `stamp`: records what two taps see, with the time of each frame.

use crate::counters::Counters;
use crate::error::Error;
use crate::hot::stamp::{Side, record};
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::recorder::{Recorder, Written};
use crate::session::{Lane, Session, Wanted};
use crate::stalls::StallLog;
use crate::turns::Turns;
use crate::values::time;
use clap::Args;
use dpdk::{RxTimestamps, run_on, tsc};
use messages::{Outcome, Progress, ProgressEvent, StampClock, StampedTaps, State, TapCounts};
use std::path::PathBuf;
use units::Nanos;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "stamp",
    about: "record two taps with the time of every frame",
    parse: |own| Ok(Box::new(options::parse::<Stamp>("stamp", SPEC.about, own)?)),
};

const SIDES: [&str; 2] = ["pre", "post"];

#[derive(Args, Debug)]
struct Stamp {
    #[command(flatten)]
    common: Common,
    /// The port that sees frames before the device.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    pre: u16,
    /// The port that sees them behind it.
    #[arg(long, default_value_t = 1, value_name = "PORT")]
    post: u16,
    /// Write pre.pcapng.zst and post.pcapng.zst into this folder.
    #[arg(long, value_name = "DIR")]
    captures: PathBuf,
    /// Take the time when a frame is polled, not when it arrived at the port.
    #[arg(long)]
    software: bool,
    /// How long to record; 0s is until a signal comes.
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = time)]
    duration: Nanos,
}

impl Stamp {
    fn check(&self, session: &Session) -> Result<(), Error> {
        let known: Vec<u16> = session.ports.iter().map(|open| open.port.id()).collect();
        for (option, port) in [("--pre", self.pre), ("--post", self.post)] {
            if !known.contains(&port) {
                let expected = format!("one of {known:?}");
                return Err(Error::Option { option, got: port.to_string(), expected });
            }
        }
        if self.pre == self.post {
            let expected = format!("another port than --pre, {}", self.pre);
            return Err(Error::Option { option: "--post", got: self.post.to_string(), expected });
        }
        Ok(())
    }

    /// Where devices put arrival times; `None` when the counter is read instead.
    fn timestamps(&self, session: &Session) -> Result<Option<RxTimestamps>, Error> {
        if self.software {
            return Ok(None);
        }
        let lacking = session.ports.iter().find(|open| !open.info.rx_timestamps);
        match (lacking, RxTimestamps::register()) {
            (None, Some(timestamps)) => Ok(Some(timestamps)),
            (lacking, _) => {
                let open = lacking.unwrap_or(&session.ports[0]);
                let (port, name) = (open.port.id(), open.info.name.clone());
                Err(Error::NoTimestamps { port, name, driver: open.info.driver.clone() })
            }
        }
    }

    fn record(&self, mut session: Session) -> Result<(), Error> {
        self.check(&session)?;
        let timestamps = self.timestamps(&session)?;
        let (mut sides, mut recorders) = (Vec::new(), Vec::new());
        for (name, port) in SIDES.into_iter().zip([self.pre, self.post]) {
            let open = session.ports.iter_mut().find(|open| open.port.id() == port);
            let rx = open.expect("checked").rx.remove(0);
            let (slots, recorder) = Recorder::create(&self.captures.join(file(name)))?;
            let (received, ring_full, unstamped) = (0, 0, 0);
            sides.push(Side { rx, slots, timestamps, received, ring_full, unstamped });
            recorders.push(recorder);
        }
        let counters = Counters::default();
        let (clock, stop, lcore) = (session.clock, session.stop.clone(), session.lcores[0]);
        let stall_ns = session.common.stall_ns;
        session.give_back_privileges(None)?;
        session.ready()?;
        let ends_at = match self.duration {
            Nanos(0) => u64::MAX,
            duration => tsc::now().saturating_add(clock.ticks(duration)),
        };
        let (ended, written, downs) = std::thread::scope(|scope| {
            let clock = timestamps.is_none().then_some(&clock);
            let writers: Vec<_> = recorders
                .into_iter()
                .map(|one| session.housekeeping.run(scope, move || one.run(clock)))
                .collect();
            let monitor = session.monitor(scope, |elapsed_s| progress(elapsed_s, &counters));
            let job = || {
                let mut log = StallLog::new(StallLog::ROOM);
                let turns = Turns::new(stall_ns, &counters, &mut log, &stop);
                record(&mut sides, ends_at, turns, &counters);
                // The loop's ends of the rings go with `sides`: so the writers know the end.
                let count = |side: Side| (side.received, side.ring_full, side.unstamped);
                (log, sides.into_iter().map(count).collect::<Vec<_>>())
            };
            let ended = run_on(vec![(lcore, Box::new(job) as Box<dyn FnOnce() -> _ + Send>)]);
            let written: Vec<Written> = writers
                .into_iter()
                .map(|writer| writer.join().expect("writing does not panic"))
                .collect();
            (ended, written, monitor.finish())
        });
        let (log, counts): (StallLog, Vec<(u64, u64, u64)>) = ended?.remove(0);
        let mut taps = Vec::new();
        for ((name, written), (received, ring_full, unstamped)) in
            SIDES.into_iter().zip(written).zip(counts)
        {
            taps.push(TapCounts {
                file: file(name),
                received: received.into(),
                written: written.frames.into(),
                ring_full: ring_full.into(),
                unstamped: unstamped.into(),
            });
            let missed: u64 = ring_full + unstamped;
            match written.error {
                Some(error) => session.partial.push(error.to_string()),
                None => assert_eq!(received, written.frames + missed, "all frames are counted"),
            }
            if missed > 0 {
                session.partial.push(format!("{}: {missed} frames were not written", file(name)));
            }
        }
        let lanes = [Lane {
            lcore,
            counters,
            log,
            sightings: Vec::new(),
            passages: None,
            dropped: Vec::new(),
        }];
        let timestamps = match timestamps {
            Some(_) => StampClock::NicHardware,
            None => StampClock::Tsc,
        };
        let [pre, post] = taps.try_into().expect("both sides");
        let stamp = StampedTaps { timestamps, pre, post };
        session.finish(&lanes, &downs, Outcome::Stamp { stamp });
        Ok(())
    }
}

fn file(side: &str) -> String {
    format!("{side}.pcapng.zst")
}

fn progress(elapsed_s: f64, counters: &Counters) -> ProgressEvent {
    ProgressEvent {
        elapsed_s,
        state: State::Recording,
        rx_packets: counters.rx_packets.get().into(),
        stalls: counters.stalls.get().into(),
        written: None,
        own: Progress::Stamp {},
    }
}

impl Program for Stamp {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        let hardware = !self.software;
        let wanted =
            Wanted { ports: 2, rx_queues: 1, tx_queues: 1, rx_timestamps: hardware, held: 0 };
        let session = Session::open("stamp", eal, &self.common, wanted)?;
        self.record(session)
    }
}
