//! `flow`: follows each packet that a filter accepts through the kernel.

use crate::error::Error;
use crate::options;
use crate::program::{Program, Spec};
use clap::Args;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "flow",
    about: "follow each packet that a filter accepts through the kernel",
    parse: |own| Ok(Box::new(options::parse::<Flow>("flow", SPEC.about, own)?)),
};

#[derive(Args, Debug)]
struct Flow {
    /// A program of classic BPF that accepts packets from their headers of IP on: its length, and its
    /// instructions.
    #[arg(long, value_name = "N,CODE JT JF K,...", default_value = "0")]
    filter: String,
}

impl Program for Flow {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        options::refuse_eal(SPEC.name, &eal)?;
        self.follow()
    }
}

#[cfg(not(feature = "stages"))]
impl Flow {
    fn follow(&self) -> Result<(), Error> {
        Err(Error::NoBpf)
    }
}

#[cfg(feature = "stages")]
mod following {
    use super::{Flow, SPEC};
    use crate::error::Error;
    use crate::events;
    use crate::privileges::{self, capability};
    use crate::stages::{Followed, Legs, Seen, Tracer, XdpPrograms, drop_reasons};
    use crate::stop::Stop;
    use dpdk::tsc;
    use messages::{FlowCost, Message, Recorded};
    use probe::filter::instructions;
    use std::cell::RefCell;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    /// The function in which netfilter has a packet.
    const NETFILTER: &str = "nf_hook_slow";
    /// How often the ring is emptied: it has room for 200 000 events.
    const PAUSE: Duration = Duration::from_millis(5);

    impl Flow {
        pub(super) fn follow(&self) -> Result<(), Error> {
            let filter = instructions(&self.filter)?;
            let stop = Stop::on_signals()
                .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
            let unix_ns = unix_ahead_ns();
            let tracer = Tracer::attach(Followed::Flow(&filter))?;
            let xdp = XdpPrograms::find()?;
            privileges::give_back(capability::BPF | capability::PERFMON, &[])?;
            let begin = Instant::now();
            events::recording(SPEC.name);
            let legs = RefCell::new(Legs::default());
            tracer.listen(
                |event| legs.borrow_mut().take(&event),
                |consume| -> Result<(), Error> {
                    while !stop.asked() {
                        std::thread::sleep(PAUSE);
                        consume()?;
                    }
                    // What came before it was asked to stop is taken, too.
                    consume()
                },
            )??;
            let calls = tracer.calls()?;
            let cost = FlowCost {
                calls: calls.count.into(),
                ns_total: calls.ns_total.into(),
                missed: calls.missed.into(),
                lost: tracer.lost()?.into(),
                duration_ns: (begin.elapsed().as_nanos() as u64).into(),
                lacking: tracer.lacking().to_vec(),
            };
            let netfilter = !tracer.lacking().iter().any(|point| point == NETFILTER);
            let seen = Seen { unix_ns, netfilter };
            let flow = legs.into_inner().finish(&drop_reasons()?, seen);
            let xdp = xdp.ran()?;
            events::print(&Message::Recorded(Box::new(Recorded::Flow { flow, cost, xdp })));
            Ok(())
        }
    }
    /// How far Unix time is ahead of the monotonic clock.
    fn unix_ahead_ns() -> i128 {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        unix.as_nanos() as i128 - i128::from(tsc::monotonic().ns)
    }
}
