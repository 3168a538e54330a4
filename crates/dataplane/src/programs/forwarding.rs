//! What forwarders have in common: a loop on each lcore, until a signal comes.

use crate::counters::{Count, Counters};
use crate::error::Error;
use crate::passages::Passages;
use crate::session::{Lane, Session};
use crate::sightings::Sightings;
use crate::stalls::StallLog;
use crate::turns::Turns;
use clap::Args;
use dpdk::{Lcore, Mark, run_on};
use messages::{Progress, ProgressEvent, State};
use units::Clock;

/// What every forwarder understands.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Forwarding {
    /// Record the way of one packet of so many: when it was received and sent.
    #[arg(long, value_name = "NUMBER", requires = "record", value_parser = clap::value_parser!(u32).range(1..))]
    stages_every: Option<u32>,
}

/// What is left of a forwarder's loops.
pub struct Ended<P> {
    pub lanes: Vec<Lane>,
    /// What each worked with.
    pub work: Vec<P>,
    /// How often each link went down.
    pub downs: Vec<u64>,
}

/// Runs a forwarder's loop on each lcore that has work, until a signal comes. A loop says what it
/// dropped on purpose, by reason.
pub fn forwarding<P: Send>(
    session: &Session,
    options: Forwarding,
    work: Vec<(Lcore, P)>,
    each: impl Fn(&mut P, Turns<'_>) -> Vec<(&'static str, u64)> + Sync,
) -> Result<Ended<P>, Error> {
    let counters: Vec<Counters> = work.iter().map(|_| Counters::default()).collect();
    let (stop, clock, stall_ns) = (&session.stop, &session.clock, session.common.stall_ns);
    let is_recorded = session.common.record.is_some();
    let stages = match options.stages_every {
        None => None,
        Some(every) => Some((every, Mark::register()?)),
    };
    let lcores: Vec<Lcore> = work.iter().map(|(lcore, _)| *lcore).collect();
    session.give_back_privileges(None)?;
    session.ready()?;
    let (ended, downs) = std::thread::scope(|scope| {
        let monitor = session.monitor(scope, |elapsed_s| progress(elapsed_s, &counters, clock));
        let jobs = work.into_iter().zip(&counters).map(|((lcore, mut work), counters)| {
            let each = &each;
            let job = move || {
                let mut log = StallLog::new(StallLog::ROOM);
                let mut sightings = Sightings::new(is_recorded);
                let mut passages = stages.map(|(every, mark)| Passages::new(every, mark));
                let turns = Turns::new(stall_ns, counters, &mut log, stop)
                    .noting(&mut sightings, passages.as_mut());
                let dropped = each(&mut work, turns);
                (log, sightings.into_seen(), passages, dropped, work)
            };
            (lcore, Box::new(job) as Box<dyn FnOnce() -> _ + Send>)
        });
        let ended = run_on(jobs.collect());
        (ended, monitor.finish())
    });
    let (mut lanes, mut left) = (Vec::new(), Vec::new());
    for ((lcore, counters), (log, sightings, passages, dropped, work)) in
        lcores.into_iter().zip(counters).zip(ended?)
    {
        lanes.push(Lane { lcore, counters, log, sightings, passages, dropped });
        left.push(work);
    }
    Ok(Ended { lanes, work: left, downs })
}

/// What all loops have counted so far.
fn progress(elapsed_s: f64, counters: &[Counters], clock: &Clock) -> ProgressEvent {
    let sum =
        |count: fn(&Counters) -> &Count| counters.iter().map(|all| count(all).get()).sum::<u64>();
    let longest = counters.iter().map(|all| all.stall_longest.get()).max().unwrap_or(0);
    ProgressEvent {
        elapsed_s,
        state: State::Forwarding,
        rx_packets: sum(|all| &all.rx_packets).into(),
        stalls: sum(|all| &all.stalls).into(),
        written: None,
        own: Progress::Loop {
            tx_packets: sum(|all| &all.tx_packets).into(),
            tx_dropped: sum(|all| &all.tx_dropped).into(),
            stall_ns_max: clock.duration(longest).0.into(),
        },
    }
}
