use crate::faults::Faults;
use crate::gate::Gate;
use crate::injected::Injector;
use crate::law::Delays;
use crate::path::Path;
use crate::turns::Turns;
use dpdk::{Burst, Mbuf, tsc};
use std::collections::VecDeque;

/// Packets accepted and handed on at once.
const BATCH: usize = 32;

/// A path, and the packets that it holds, by the time at which they leave.
#[derive(Debug)]
pub struct Held {
    pub path: Path,
    packets: VecDeque<(u64, Mbuf)>,
    room: usize,
    out: Burst,
    /// Whether packets are held at all.
    holds: bool,
    /// Whether a packet that is held for less leaves before those that came before it.
    overtakes: bool,
    /// Packets dropped because too many were held, or by the gate.
    pub overflown: u64,
    /// The most packets held at once.
    pub most: usize,
}

impl Held {
    /// One with room for `room` packets.
    pub fn new(path: Path, room: usize, holds: bool, overtakes: bool) -> Self {
        let packets = VecDeque::with_capacity(room);
        let out = Burst::new();
        Self { path, packets, room, out, holds, overtakes, overflown: 0, most: 0 }
    }

    /// Takes a packet that arrived at `arrival`.
    #[inline(always)]
    fn take(&mut self, arrival: u64, delays: &mut Delays, gate: &mut Gate, packet: Mbuf) {
        if !self.holds {
            self.hold(arrival, packet);
        } else if let Some(release) = gate.pass(arrival + delays.next()) {
            self.hold(release, packet);
        } else {
            self.overflown += 1;
        }
    }

    /// Holds a packet until `release`, and until all before it have left.
    #[inline(always)]
    fn hold(&mut self, release: u64, packet: Mbuf) {
        if self.packets.len() < self.room {
            if self.overtakes {
                let place = self.packets.partition_point(|(at, _)| *at <= release);
                self.packets.insert(place, (release, packet));
            } else {
                self.packets.push_back((release, packet));
            }
            self.most = self.most.max(self.packets.len());
            debug_assert!(self.packets.len() <= self.packets.capacity(), "nothing is allocated");
        } else {
            self.overflown += 1;
        }
    }

    /// Hands on the packets whose time has come.
    #[inline(always)]
    fn release(&mut self, now: u64, turns: &mut Turns<'_>) -> usize {
        while self.out.len() < BATCH && self.packets.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, packet)) = self.packets.pop_front() else { break };
            let pushed = self.out.push(packet);
            debug_assert!(pushed.is_ok(), "a burst has room for a batch");
        }
        let released = self.out.len();
        if released > 0 {
            turns.send_or_drop(&mut self.path.tx, &mut self.out, BATCH);
        }
        released
    }
}

/// Holds every packet for a while, and now and then stalls on purpose.
pub fn delay(
    held: &mut [Held],
    delays: &mut Delays,
    gate: &mut Gate,
    injector: &mut Injector,
    faults: &mut Faults,
    mut turns: Turns<'_>,
) {
    let mut burst = Burst::new();
    let mut handled = 0;
    while let Some(now) = turns.next(handled) {
        handled = 0;
        if injector.act(now, &mut turns) {
            continue;
        }
        if faults.are_due() {
            faults.touch();
        }
        for held in held.iter_mut() {
            let received = turns.receive(&mut held.path.rx, &mut burst, BATCH);
            if received > 0 {
                let arrival = tsc::now();
                burst.drain().for_each(|packet| held.take(arrival, delays, gate, packet));
            }
            handled += received + held.release(tsc::now(), &mut turns);
        }
    }
}
