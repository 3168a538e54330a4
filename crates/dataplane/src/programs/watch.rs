//! `watch`: no packets; each lcore looks at the counter, and its stalls are what the machine does to it.

use super::forwarding::{Forwarding, forwarding};
use crate::disturb::{Disturber, Options};
use crate::error::Error;
use crate::faults::Faults;
use crate::hot::watch::watch;
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::session::{Session, Wanted};
use clap::Args;
use messages::{Outcome, WatchTruth};

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "watch",
    about: "no packets: see what keeps CPUs from running",
    parse: |own| Ok(Box::new(options::parse::<Watch>("watch", SPEC.about, own)?)),
};

#[derive(Args, Debug)]
struct Watch {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    disturb: Options,
}

impl Program for Watch {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        let wanted = Wanted { ports: 0, rx_queues: 1, tx_queues: 1, rx_timestamps: false, held: 0 };
        let mut session = Session::open("watch", eal, &self.common, wanted)?;
        let lcores = session.lcores.clone();
        let (disturber, first) = Disturber::start(&session, lcores[0], &self.disturb)?;
        let mut faults: Vec<Faults> = vec![first];
        for _ in &lcores[1..] {
            faults.push(Faults::none());
        }
        let work = lcores.into_iter().zip(faults).collect();
        let ended = forwarding(&session, Forwarding::default(), work, |faults, turns| {
            watch(faults, turns);
            Vec::new()
        })?;
        let disturbed = disturber.finish(&mut session, &ended.work[0]);
        let watch = WatchTruth { disturbed: disturbed.into() };
        session.finish(&ended.lanes, &ended.downs, Outcome::Watch { watch });
        Ok(())
    }
}
