//! The way of packets through a forwarder: when its calls received them, and when its calls sent them.

use crate::book::WARM_UP;
use dpdk::{Burst, Mark, Mbuf, TxQueue, tsc};
use probe::key::{Keyer, MatchOn, Tap};

/// Room for packets.
const ROOM: usize = 1 << 20;

/// A packet's way, in ticks of the counter; 0 where it did not come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Its number, from its probe payload.
    pub seq: u64,
    /// The call that received it began.
    pub polled: u64,
    /// That call returned.
    pub received: u64,
    /// The call that sent it began.
    pub handed_on: u64,
    /// That call returned, and a ring has taken the packet.
    pub sent: u64,
}

/// What is known of the way of packets, in memory that was there beforehand.
#[derive(Debug)]
pub struct Passages {
    seen: Vec<Passage>,
    /// Packets for which there was no room.
    lost: u64,
    every: u32,
    left: u32,
    mark: Mark,
    keyer: Keyer,
    key: Vec<u8>,
    /// Of the packets that are sent at once: each one's place there and in `seen`.
    leaving: Vec<(usize, usize)>,
}

impl Passages {
    /// Looks at one of `every` packets. Memory is touched now, so that no page fault becomes a stall later.
    pub fn new(every: u32, mark: Mark) -> Self {
        let mut seen = vec![Passage { seq: 1, ..Passage::default() }; ROOM];
        seen.clear();
        Self {
            seen,
            lost: 0,
            every,
            left: every,
            mark,
            keyer: Keyer::new(&MatchOn::Probe, Tap::Pre, None),
            key: Vec::with_capacity(size_of::<u64>()),
            leaving: Vec::with_capacity(Burst::MOST),
        }
    }

    /// Notes packets that a call has just received, which began at `polled`.
    #[inline]
    pub fn received(&mut self, packets: &mut [Mbuf], polled: u64) {
        let received = tsc::now();
        for packet in packets {
            self.left -= 1;
            let number = if self.left == 0 {
                self.left = self.every;
                self.note(packet, polled, received)
            } else {
                0
            };
            packet.set_mark(self.mark, number);
        }
    }

    /// Notes one packet; its number from 1, or 0 if it is not looked at.
    fn note(&mut self, packet: &Mbuf, polled: u64, received: u64) -> u32 {
        self.keyer.bytes(packet.data(), packet.frame_len(), &mut self.key);
        let Ok(seq) = self.key.as_slice().try_into().map(u64::from_be_bytes) else { return 0 };
        if seq & WARM_UP != 0 {
            return 0;
        }
        if self.seen.len() == self.seen.capacity() {
            self.lost += 1;
            return 0;
        }
        self.seen.push(Passage { seq, polled, received, ..Passage::default() });
        self.seen.len() as u32
    }

    /// Hands on the first `most` packets of a burst; says how many the ring took.
    #[inline]
    pub fn send(&mut self, tx: &mut TxQueue, burst: &mut Burst, most: usize) -> usize {
        self.leaving.clear();
        for (place, packet) in burst.iter().take(most).enumerate() {
            let number = packet.mark(self.mark) as usize;
            if number > 0 {
                self.leaving.push((place, number - 1));
            }
        }
        let handed_on = tsc::now();
        let taken = tx.send(burst, most);
        let sent = tsc::now();
        for &(place, row) in &self.leaving {
            let passage = &mut self.seen[row];
            passage.handed_on = handed_on;
            if place < taken {
                passage.sent = sent;
            }
        }
        taken
    }

    /// What was seen, in the order of arrival.
    pub fn seen(&self) -> &[Passage] {
        &self.seen
    }

    /// How many packets there was no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
