//! The programs: their options, their set-up, and what they say in the end.

use crate::counters::{Count, Counters};
use crate::error::Error;
use crate::session::{Lane, Session};
use crate::stalls::StallLog;
use crate::turns::Turns;
use dpdk::{Lcore, run_on};
use serde_json::{Value, json};
use units::Clock;

pub use pairs::Path;

mod delay;
mod generator;
mod l2fwd;
mod l3fwd;
mod measurement;
mod pairs;
mod stamp;
mod watch;

/// Parses a MAC address.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{text:?} is no MAC address, like 02:00:00:00:00:01"))
}

/// A program with its options, ready to run.
pub trait Program {
    /// Runs to the end; a result was printed, or there is an error.
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error>;
}

/// Understands a program's options.
pub type Parse = fn(Vec<String>) -> Result<Box<dyn Program>, clap::Error>;

/// A program as the command line knows it.
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Understands its options.
    pub parse: Parse,
}

/// All of them.
pub const ALL: &[Spec] =
    &[delay::SPEC, generator::SPEC, l2fwd::SPEC, l3fwd::SPEC, stamp::SPEC, watch::SPEC];

/// What is left of a forwarder's loops.
struct Ended<P> {
    lanes: Vec<Lane>,
    /// What each worked with.
    work: Vec<P>,
    /// How often each link went down.
    downs: Vec<u64>,
}

/// Runs a forwarder's loop on each lcore that has work, until a signal comes. A loop says what it
/// dropped on purpose, by reason.
fn forwarding<P: Send>(
    session: &Session,
    work: Vec<(Lcore, P)>,
    each: impl Fn(&mut P, Turns<'_>, &Counters) -> Vec<(&'static str, u64)> + Sync,
) -> Result<Ended<P>, Error> {
    let counters: Vec<Counters> = work.iter().map(|_| Counters::default()).collect();
    let (stop, clock, stall_ns) = (&session.stop, &session.clock, session.common.stall_ns);
    let lcores: Vec<Lcore> = work.iter().map(|(lcore, _)| *lcore).collect();
    let (ended, downs) = std::thread::scope(|scope| {
        let monitor = session.monitor(scope, || progress(&counters, clock));
        session.ready();
        let jobs = work.into_iter().zip(&counters).map(|((lcore, mut work), counters)| {
            let each = &each;
            let job = move || {
                let mut log = StallLog::new(StallLog::ROOM);
                let turns = Turns::new(stall_ns, counters, &mut log, stop);
                let dropped = each(&mut work, turns, counters);
                (log, dropped, work)
            };
            (lcore, Box::new(job) as Box<dyn FnOnce() -> _ + Send>)
        });
        let ended = run_on(jobs.collect());
        (ended, monitor.finish())
    });
    let (mut lanes, mut left) = (Vec::new(), Vec::new());
    for ((lcore, counters), (log, dropped, work)) in lcores.into_iter().zip(counters).zip(ended?) {
        lanes.push(Lane { lcore, counters, log, dropped });
        left.push(work);
    }
    Ok(Ended { lanes, work: left, downs })
}

/// What all loops have counted so far.
fn progress(counters: &[Counters], clock: &Clock) -> Value {
    let sum =
        |count: fn(&Counters) -> &Count| counters.iter().map(|all| count(all).get()).sum::<u64>();
    let longest = counters.iter().map(|all| all.stall_longest.get()).max().unwrap_or(0);
    json!({
        "state": "forwarding",
        "rx_packets": sum(|all| &all.rx_packets),
        "tx_packets": sum(|all| &all.tx_packets),
        "tx_dropped": sum(|all| &all.tx_dropped),
        "stalls": sum(|all| &all.stalls),
        "stall_longest_ns": clock.duration(longest).0,
    })
}
