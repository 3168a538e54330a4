//! `stages`: records where the kernel is with each probe on its way through a network namespace.

use crate::error::Error;
use crate::options;
use crate::program::{Program, Spec};
use clap::Args;
use std::path::PathBuf;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "stages",
    about: "record where the kernel is with each probe on its way",
    parse: |own| Ok(Box::new(options::parse::<Stages>("stages", SPEC.about, own)?)),
};

#[derive(Args, Debug)]
struct Stages {
    /// The network namespace of the device, as /proc/PID/ns/net numbers it.
    #[arg(long, value_name = "INODE")]
    namespace: u32,
    /// The device's links, as they are numbered there.
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',')]
    links: Vec<u32>,
    /// Look at one probe of so many.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// Write events.npy into this folder.
    #[arg(long, value_name = "DIR")]
    record: PathBuf,
}

impl Program for Stages {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        if let Some(option) = eal.first() {
            let expected = "no options before --: this program does without DPDK";
            return Err(Error::Usage(format!("stages: got {option}, expected {expected}")));
        }
        self.record()
    }
}

#[cfg(not(feature = "stages"))]
impl Stages {
    fn record(&self) -> Result<(), Error> {
        Err(Error::NoBpf)
    }
}

#[cfg(feature = "stages")]
mod recording {
    use super::{SPEC, Stages};
    use crate::error::Error;
    use crate::events;
    use crate::npy::Rows;
    use crate::privileges::{self, capability};
    use crate::stages::{Config, Event, Followed, Ticks, Tracer, drop_reasons, enter};
    use crate::stop::Stop;
    use dpdk::tsc;
    use messages::{Message, Recorded};
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::time::Duration;

    const FILE: &str = "events.npy";
    /// A row of it: an event with ticks for a time.
    const ROW: &str = "[('tsc', '<u8'), ('seq', '<u8'), ('point', '<u4'), ('ifindex', '<u4'), \
                       ('cpu', '<u4'), ('reason', '<u4')]";
    /// How often the ring is emptied: it has room for a second at 200 000 events.
    const PAUSE: Duration = Duration::from_millis(100);

    impl Stages {
        pub(super) fn record(&self) -> Result<(), Error> {
            let stop = Stop::on_signals()
                .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
            let path = self.record.join(FILE);
            let of_file = |source| Error::File { path: path.clone(), source };
            let mut rows = Rows::create(&path, ROW).map_err(of_file)?;
            let first = tsc::monotonic();
            enter(self.namespace)?;
            let Self { namespace, ref links, every, .. } = *self;
            let config = Config { namespace, links, every };
            let tracer = Tracer::attach(Followed::Probes(config))?;
            let mut ticks = Ticks::new(first, tsc::monotonic());
            privileges::give_back(capability::BPF | capability::PERFMON, &[])?;
            events::recording(SPEC.name);
            let heard: RefCell<Vec<Event>> = RefCell::default();
            let mut reasons = BTreeSet::new();
            tracer.listen(
                |event| heard.borrow_mut().push(event),
                |consume| -> Result<(), Error> {
                    let mut asked = false;
                    while !asked {
                        // What came before it was asked to stop is taken, too.
                        asked = stop.asked();
                        if !asked {
                            std::thread::sleep(PAUSE);
                        }
                        consume()?;
                        ticks.advance(tsc::monotonic());
                        for event in heard.borrow_mut().drain(..) {
                            reasons.insert(event.reason);
                            rows.add(&row(&event, &ticks)).map_err(of_file)?;
                        }
                    }
                    Ok(())
                },
            )??;
            let lost = tracer.lost()?;
            let recorded = rows.finish().map_err(of_file)?;
            let names = drop_reasons()?;
            let named = names.into_iter().filter(|(number, _)| reasons.contains(number));
            events::print(&Message::Recorded(Box::new(Recorded::Stages {
                file: FILE,
                events: recorded.into(),
                lost: lost.into(),
                clock_error_ns: ticks.error_ns().into(),
                reasons: named.collect(),
            })));
            Ok(())
        }
    }

    fn row(event: &Event, ticks: &Ticks) -> Vec<u8> {
        let times = [ticks.at(event.time_ns), event.seq].map(u64::to_le_bytes).concat();
        let Event { point, ifindex, cpu, reason, .. } = *event;
        let rest = [point, ifindex, cpu, reason].map(u32::to_le_bytes).concat();
        [times, rest].concat()
    }
}
