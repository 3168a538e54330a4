//! `work`: a device of known capacity, which is busy for each packet and hands on whole batches.

use super::forwarding::{Forwarding, forwarding};
use super::l2fwd::batch;
use super::pairs::{partners, spread};
use crate::error::Error;
use crate::hot::work::{Done, work};
use crate::law::{Delays, Law};
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::session::{Session, Wanted};
use crate::ticks::Ticks;
use clap::Args;
use messages::{Outcome, WorkTruth};

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "work",
    about: "work on each packet for a known time, and hand on whole batches",
    parse: |own| Ok(Box::new(options::parse::<Work>("work", SPEC.about, own)?)),
};

#[derive(Args, Debug)]
struct Work {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    forwarding: Forwarding,
    /// Work for a packet: fixed:TIME, uniform:TIME,TIME, bimodal:TIME,TIME,P or file:PATH, a time a
    /// line.
    #[arg(long, default_value = "fixed:10us", value_name = "LAW")]
    law: Law,
    /// Packets accepted at once, and handed on together.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = batch)]
    batch: usize,
    /// Seed of the work.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

impl Program for Work {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        let wanted = Wanted { ports: 1, rx_queues: 1, tx_queues: 1, rx_timestamps: false, held: 0 };
        let mut session = Session::open("work", eal, &self.common, wanted)?;
        // One lcore: its capacity is that of the law.
        session.lcores.truncate(1);
        let ids: Vec<u16> = session.ports.iter().map(|open| open.port.id()).collect();
        let pairs = partners(&ids, None, None)?;
        let times = Delays::draw(&self.law, self.seed, Ticks::new(session.clock))?;
        let (lcore, paths) = spread(&mut session, &pairs).remove(0);
        let lanes = vec![(lcore, (paths, times, Done::default()))];
        let ended = forwarding(&session, self.forwarding, lanes, |(paths, times, done), turns| {
            *done = work(paths, self.batch, times, turns);
            Vec::new()
        })?;
        let (_, _, done) = &ended.work[0];
        let work = WorkTruth { batches: done.batches.into(), batch_most: done.most.into() };
        let stages = session.record_passages(&ended.lanes);
        session.finish(&ended.lanes, &ended.downs, Outcome::Work { work, stages });
        Ok(())
    }
}
