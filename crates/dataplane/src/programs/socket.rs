//! `socket`: records what comes in on two links of the kernel, with the time of each frame.

use crate::cpus::Cpus;
use crate::error::Error;
use crate::events;
use crate::options;
use crate::packet_ring::{Counted, Frame, Hearing, Ring};
use crate::privileges::{self, capability};
use crate::program::{Program, Spec};
use crate::recorder::KEPT_BYTES;
use crate::stop::Stop;
use capture::{Compression, Draft, Format, Writer};
use clap::Args;
use messages::{Message, Recorded, SocketClock, SocketCounts, SocketLinks};
use probe::key::{Keyed, Keyer, MatchOn, Tap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use units::Nanos;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "socket",
    about: "record two links of the kernel with the time of every frame",
    parse: |own| Ok(Box::new(options::parse::<Socket>("socket", SPEC.about, own)?)),
};

/// How often a loop that has nothing to do looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(50);
/// The kernel hands over what it has within a small part of this.
const HANDED_OVER: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
struct Socket {
    /// The link that sees frames before the device.
    #[arg(long, value_name = "LINK")]
    pre: String,
    /// The link that sees them behind it.
    #[arg(long, value_name = "LINK")]
    post: String,
    /// Write pre.pcapng.zst and post.pcapng.zst into this folder.
    #[arg(long, value_name = "DIR")]
    captures: PathBuf,
    /// Take the cards' times; without, the kernel's.
    #[arg(long)]
    hardware: bool,
    /// Write only what a generator of tailscope has sent.
    #[arg(long)]
    probes: bool,
}

impl Socket {
    fn sides(&self) -> [(&'static str, &str, Tap); 2] {
        [("pre", &self.pre, Tap::Pre), ("post", &self.post, Tap::Post)]
    }

    fn record(&self) -> Result<(), Error> {
        if self.pre == self.post {
            let expected = format!("another link than --pre, {}", self.pre);
            return Err(Error::Option { option: "--post", got: self.post.clone(), expected });
        }
        let stop = Stop::on_signals()
            .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
        let mut sides = Vec::new();
        for (name, link, tap) in self.sides() {
            let writer = create(&self.captures.join(file(name)))?;
            let hearing = Hearing { by_card: self.hardware, ..Hearing::default() };
            let ring = Ring::open(link, &hearing)?;
            let keyer = self.probes.then(|| Keyer::new(&MatchOn::Probe, tap, None));
            let side = Side { writer, keyer, hardware: self.hardware, tally: Tally::default() };
            sides.push((ring, side));
        }
        privileges::give_back(capability::NONE, &[])?;
        events::recording(SPEC.name);
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = sides
                .into_iter()
                .map(|(ring, side)| {
                    let listen = || listen(ring, side, &stop).inspect_err(|_| stop.ask());
                    Cpus::allowed().run(scope, listen)
                })
                .collect();
            threads.into_iter().map(|one| one.join().expect("listening does not panic")).collect()
        });
        self.say(results.into_iter().collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }

    fn say(&self, tallies: Vec<Tally>) {
        let (mut partial, mut links) = (Vec::new(), Vec::new());
        for ((name, ..), tally) in self.sides().into_iter().zip(tallies) {
            links.push(tally.counts(file(name)));
            let missed = tally.counted.dropped + tally.unstamped;
            match tally.error {
                Some(error) => partial.push(error.to_string()),
                None => assert_eq!(
                    tally.counted.received,
                    tally.written + tally.foreign + missed,
                    "all frames are counted"
                ),
            }
            if missed > 0 {
                partial.push(format!("{}: {missed} frames were not written", file(name)));
            }
        }
        let timestamps = match self.hardware {
            true => SocketClock::KernelHardware,
            false => SocketClock::KernelSoftware,
        };
        let [pre, post] = links.try_into().expect("both sides");
        let socket = SocketLinks { timestamps, pre, post };
        let complete = partial.is_empty();
        events::print(&Message::Recorded(Box::new(Recorded::Socket { complete, partial, socket })));
    }
}

/// What becomes of the frames of one link.
struct Side {
    writer: Writer<Draft>,
    /// Finds probes, where only these are written.
    keyer: Option<Keyer>,
    hardware: bool,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    counted: Counted,
    /// Frames that the loop has seen.
    seen: u64,
    written: u64,
    /// Frames that no generator of tailscope has sent.
    foreign: u64,
    /// Frames of which the card took no time.
    unstamped: u64,
    /// Why writing ended before the end.
    error: Option<Error>,
}

impl Tally {
    fn counts(&self, file: String) -> SocketCounts {
        SocketCounts {
            file,
            received: self.counted.received.into(),
            written: self.written.into(),
            dropped: self.counted.dropped.into(),
            unstamped: self.unstamped.into(),
            foreign: self.foreign.into(),
        }
    }
}

impl Side {
    fn take(&mut self, frame: &Frame<'_>) {
        self.tally.seen += 1;
        let mut kept = [0; KEPT_BYTES];
        let data = {
            let copied = frame.copy(&mut kept);
            &kept[..copied]
        };
        if let Some(keyer) = &self.keyer {
            if !matches!(keyer.key(data, frame.len), Keyed::Key(_)) {
                self.tally.foreign += 1;
                return;
            }
        }
        if self.hardware && !frame.by_card {
            self.tally.unstamped += 1;
            return;
        }
        if self.tally.error.is_some() {
            return;
        }
        match self.writer.write(Nanos(frame.time_ns), frame.len, data) {
            Ok(()) => self.tally.written += 1,
            Err(error) => self.tally.error = Some(error.into()),
        }
    }
}

/// Writes what comes in until it is to stop, and what the kernel has taken until then.
fn listen(mut ring: Ring, mut side: Side, stop: &Stop) -> Result<Tally, Error> {
    while !stop.asked() {
        ring.wait(LOOK_UP)?;
        ring.drain(|frame| side.take(&frame));
        side.tally.counted = ring.count()?;
    }
    ring.close_ears()?;
    let deadline = Instant::now() + HANDED_OVER;
    loop {
        side.tally.counted = ring.count()?;
        ring.drain(|frame| side.take(&frame));
        let known = side.tally.seen + side.tally.counted.dropped;
        if known == side.tally.counted.received || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if side.tally.error.is_none() {
        side.tally.error = side.writer.finish().err().map(Error::from);
    }
    Ok(side.tally)
}

fn create(path: &Path) -> Result<Writer<Draft>, Error> {
    Ok(Writer::create(path, Format::PcapNg, Compression::Zstd)?)
}

fn file(side: &str) -> String {
    format!("{side}.pcapng.zst")
}

impl Program for Socket {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        options::refuse_eal(SPEC.name, &eal)?;
        self.record()
    }
}
