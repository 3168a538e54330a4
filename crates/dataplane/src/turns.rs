//! The turns of a polling loop: one reading of the counter each, the stall log, when to end.

use crate::counters::Counters;
use crate::passages::Passages;
use crate::sightings::Sightings;
use crate::stalls::StallLog;
use crate::stop::Stop;
use dpdk::{Burst, Poller, RxQueue, TxQueue, tsc};

/// A packet may take this long on top of `--stall-ns` before its iteration counts as a stall: copying
/// through memif takes tens of ns a packet, and an iteration with 32 packets is work, not a stall.
const PACKET_NS: u64 = 200;

/// Runs a loop: `while let Some(now) = turns.next(packets)`.
#[derive(Debug)]
pub struct Turns<'a> {
    poller: Poller,
    counters: &'a Counters,
    stop: &'a Stop,
    log: &'a mut StallLog,
    sightings: Option<&'a mut Sightings>,
    passages: Option<&'a mut Passages>,
    last: u64,
    iterations: u64,
    limit: u64,
    packet: u64,
}

impl<'a> Turns<'a> {
    /// A loop on this thread that ends when `stop` is asked for.
    pub fn new(
        stall_ns: u64,
        counters: &'a Counters,
        log: &'a mut StallLog,
        stop: &'a Stop,
    ) -> Self {
        // SAFETY: a system call without arguments.
        counters.tid.set(unsafe { libc::gettid() } as u64);
        let ticks = |ns: u64| (u128::from(ns) * u128::from(tsc::hz()) / 1_000_000_000) as u64;
        Self {
            poller: Poller::start(),
            counters,
            stop,
            log,
            sightings: None,
            passages: None,
            last: tsc::now(),
            iterations: counters.iterations.get(),
            limit: ticks(stall_ns),
            packet: ticks(PACKET_NS),
        }
    }

    /// Has packets noted: now and then one that was received, and the way of packets where it is wanted.
    #[must_use]
    pub fn noting(self, sightings: &'a mut Sightings, passages: Option<&'a mut Passages>) -> Self {
        Self { sightings: Some(sightings), passages, ..self }
    }

    /// Receives at most `most` packets more into `burst`; says how many.
    #[inline(always)]
    pub fn receive(&mut self, rx: &mut RxQueue, burst: &mut Burst, most: usize) -> usize {
        let held = burst.len();
        let polled = if self.passages.is_some() { tsc::now() } else { 0 };
        let received = rx.receive(burst, most);
        if received == 0 {
            return 0;
        }
        let packets = &mut burst.as_mut_slice()[held..];
        if let (Some(sightings), Some(packet)) = (&mut self.sightings, packets.last()) {
            if sightings.are_due(self.last) {
                sightings.note(packet);
            }
        }
        if let Some(passages) = &mut self.passages {
            passages.received(packets, polled);
        }
        self.counters.rx_packets.add(received as u64);
        received
    }

    /// Hands on a burst, at most `at_once` packets at a time. What a full ring does not take is dropped.
    #[inline(always)]
    pub fn send_or_drop(&mut self, tx: &mut TxQueue, burst: &mut Burst, at_once: usize) {
        let mut sent = 0;
        for _ in 0..burst.len().div_ceil(at_once) {
            sent += match &mut self.passages {
                None => tx.send(burst, at_once),
                Some(passages) => passages.send(tx, burst, at_once),
            };
        }
        self.counters.tx_packets.add(sent as u64);
        self.counters.tx_dropped.add(burst.clear() as u64);
    }

    /// Says that no burst is under way; within an iteration that does nothing for long, too.
    #[inline(always)]
    pub fn beat(&mut self) {
        self.poller.beat();
    }

    /// Begins an iteration, after one that handled `packets`; `None` when the loop shall end.
    #[inline(always)]
    pub fn next(&mut self, packets: usize) -> Option<u64> {
        self.beat();
        let (now, _) = self.look(packets);
        self.iterations += 1;
        self.counters.iterations.set(self.iterations);
        (!self.stop.asked()).then_some(now)
    }

    /// Begins work: at `free`, when other work ended, unless a stall came since; otherwise now. Since
    /// then, `packets` were handed on and received.
    #[inline(always)]
    pub fn begin_work(&mut self, packets: usize, free: Option<u64>) -> u64 {
        let (now, _) = self.look(packets);
        let most = self.limit + packets as u64 * self.packet;
        free.filter(|free| now.saturating_sub(*free) <= most).unwrap_or(now)
    }

    /// Keeps this CPU busy until `until`, or later by as much as stalls take of the work; says until
    /// when.
    #[inline(always)]
    pub fn work_until(&mut self, mut until: u64) -> u64 {
        loop {
            let (now, stalled) = self.look(0);
            until += stalled;
            if now >= until {
                return until;
            }
        }
    }

    /// Reads the counter, in an iteration that has handled `packets` since it was read last; says
    /// also how long a stall took, or 0.
    #[inline(always)]
    fn look(&mut self, packets: usize) -> (u64, u64) {
        let now = tsc::now();
        // Counters of two processors may differ by some ticks when the scheduler moves the thread.
        let took = now.saturating_sub(self.last);
        let is_stall = took > self.limit + packets as u64 * self.packet;
        if is_stall {
            self.stalled(took);
        }
        self.last = now;
        (now, if is_stall { took } else { 0 })
    }

    #[cold]
    #[inline(never)]
    fn stalled(&mut self, took: u64) {
        self.log.push(self.last, took);
        self.counters.stalls.set(self.log.count());
        self.counters.stall_total.set(self.log.total);
        self.counters.stall_longest.set(self.log.longest);
    }
}
