//! `delay`: a device with a known law, and stalls at known times: the ground truth.

use super::forwarding::{Forwarding, forwarding};
use super::pairs::{partners, spread};
use crate::disturb::{Disturber, Options};
use crate::error::Error;
use crate::gate::{Gate, GateLaw};
use crate::hot::delay::{Held, delay};
use crate::injected::Injector;
use crate::law::{Delays, Law};
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::session::{Session, Wanted};
use crate::ticks::Ticks;
use crate::values::time;
use clap::Args;
use dpdk::tsc;
use messages::{DelayTruth, Outcome};
use units::Nanos;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "delay",
    about: "hold packets by a known law, and stall at known times",
    parse: |own| Ok(Box::new(options::parse::<Delay>("delay", SPEC.about, own)?)),
};

/// Packets that a direction may hold: 16 ms at 1 Mpps.
const ROOM: u32 = 1 << 14;
/// Packets that arrive in a second, or at once behind a stall, at most: room for more would only take
/// time until it is there.
const MOST_PPS: u64 = 20_000_000;
const AT_ONCE: u64 = 2048;

#[derive(Args, Debug)]
struct Delay {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    forwarding: Forwarding,
    /// fixed:TIME, uniform:TIME,TIME, bimodal:TIME,TIME,P or file:PATH, a delay a line.
    #[arg(long, default_value = "fixed:0ns", value_name = "LAW")]
    law: Law,
    /// Then let packets out by batch:PERIOD, queue:TIME,ROOM or bucket:TIME,DEPTH,BURST,PERIOD.
    #[arg(long, value_name = "GATE")]
    gate: Option<GateLaw>,
    /// Hold packets of the first port only; those of the second pass at once.
    #[arg(long)]
    one_way: bool,
    /// Let packets that are held for less overtake.
    #[arg(long)]
    overtake: bool,
    /// Stall every so often.
    #[arg(long, default_value = "50ms", value_name = "TIME", value_parser = time)]
    stall_period: Nanos,
    /// For how long: one duration after the other.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = time)]
    stall_duration: Vec<Nanos>,
    /// And later by up to this.
    #[arg(long, default_value = "0ns", value_name = "TIME", value_parser = time)]
    stall_jitter: Nanos,
    /// Seed of delays and jitter.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    disturb: Options,
}

impl Delay {
    fn check(&self) -> Result<(), Error> {
        let longest = self.stall_duration.iter().max().copied().unwrap_or_default();
        let needed = longest.0.saturating_add(self.stall_jitter.0);
        if self.stall_period.0 > needed {
            return Ok(());
        }
        Err(Error::Option {
            option: "--stall-period",
            got: self.stall_period.to_string(),
            expected: format!("more than the longest stall with its jitter, {}", Nanos(needed)),
        })
    }
}

impl Delay {
    /// Packets that a direction may hold by its law; a gate may hold them longer.
    fn room(&self) -> u32 {
        let longest = self.law.longest().filter(|_| self.gate.is_none());
        longest.map_or(ROOM, |Nanos(ns)| {
            let packets = AT_ONCE + ns.saturating_mul(MOST_PPS) / 1_000_000_000;
            packets.min(ROOM.into()) as u32
        })
    }
}

impl Program for Delay {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        self.check()?;
        let room = self.room();
        let wanted =
            Wanted { ports: 1, rx_queues: 1, tx_queues: 1, rx_timestamps: false, held: 2 * room };
        let mut session = Session::open("delay", eal, &self.common, wanted)?;
        // One lcore: the law holds for all packets, and so do the stalls.
        session.lcores.truncate(1);
        let ids: Vec<u16> = session.ports.iter().map(|open| open.port.id()).collect();
        let pairs = partners(&ids, None, None)?;
        let ticks = Ticks::new(session.clock);
        let delays = Delays::draw(&self.law, self.seed, ticks)?;
        let injector = Injector::new(
            self.stall_period,
            self.stall_jitter,
            &self.stall_duration,
            self.seed,
            ticks,
            tsc::now(),
        );
        let (lcore, paths) = spread(&mut session, &pairs).remove(0);
        let held: Vec<Held> = paths
            .into_iter()
            .enumerate()
            .map(|(at, path)| {
                let holds = at == 0 || !self.one_way;
                Held::new(path, room as usize, holds, self.overtake)
            })
            .collect();
        let gate = Gate::new(self.gate.as_ref(), ticks, tsc::now());
        let (disturber, faults) = Disturber::start(&session, lcore, &self.disturb)?;
        let work = vec![(lcore, (held, delays, gate, injector, faults))];
        let ended = forwarding(&session, self.forwarding, work, |work, turns| {
            let (held, delays, gate, injector, faults) = work;
            delay(held, delays, gate, injector, faults, turns);
            vec![("overflow", held.iter().map(|held| held.overflown).sum())]
        })?;
        let (held, _, _, injector, faults) = &ended.work[0];
        let disturbed = disturber.finish(&mut session, faults);
        let injected = injector.stalls();
        session.record("injected_start_tsc", injected.iter().map(|stall| stall.start));
        session.record("injected_duration_tsc", injected.iter().map(|stall| stall.duration));
        let delay = DelayTruth {
            injected: injector.truth.count().into(),
            disturbed: disturbed.into(),
            held_most: held.iter().map(|held| held.most).max().map(Into::into),
        };
        let stages = session.record_passages(&ended.lanes);
        session.finish(&ended.lanes, &ended.downs, Outcome::Delay { delay, stages });
        Ok(())
    }
}
