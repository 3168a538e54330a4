//! What the generator remembers of packets that have left: when the newest of them did, and which of all
//! have arrived. The memory is there beforehand.

use crate::error::Error;

/// Packets whose departure is remembered: eight seconds at a million a second, 64 MiB.
const RECENT: u64 = 1 << 23;
/// Numbers of packets stay below this: a bit is kept of each.
const MOST: u64 = 1 << 36;

/// Packets that have left, by sequence number.
#[derive(Debug)]
pub struct Departures {
    /// When each of the newest left; of a packet, at its number modulo the length, a power of two.
    recent: Vec<u64>,
    arrived: Vec<u64>,
    left: u64,
    room: u64,
}

impl Departures {
    /// Room for `packets`.
    pub fn with_room(packets: u64) -> Result<Self, Error> {
        Self::remembering(packets, RECENT)
    }

    fn remembering(packets: u64, most: u64) -> Result<Self, Error> {
        let recent = packets.clamp(1, most).next_power_of_two();
        let bytes = packets / 8 + 8 * recent;
        if packets > MOST {
            return Err(Error::Memory { packets, bytes });
        }
        let touched = |words: u64| touched(words).ok_or(Error::Memory { packets, bytes });
        let mut arrived = touched(packets / 64 + 1)?;
        arrived.fill(0);
        Ok(Self { recent: touched(recent)?, arrived, left: 0, room: packets })
    }

    /// How many packets have left.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Notes that the next packet left at `tsc`.
    #[inline(always)]
    pub fn push(&mut self, tsc: u64) {
        debug_assert!(self.left < self.room, "memory is there beforehand");
        let at = self.place(self.left);
        self.recent[at] = tsc;
        self.left += 1;
    }

    /// Whether a packet with this number has left.
    #[inline(always)]
    pub fn has(&self, seq: u64) -> bool {
        seq < self.left
    }

    /// When a packet left; `None` for one that never did, and for one that did too long ago.
    #[inline(always)]
    pub fn when(&self, seq: u64) -> Option<u64> {
        let is_recent = seq < self.left && self.left - seq <= self.recent.len() as u64;
        is_recent.then(|| self.recent[self.place(seq)])
    }

    /// Notes that a packet has arrived; says whether it is the first time.
    #[inline(always)]
    pub fn arrive(&mut self, seq: u64) -> bool {
        debug_assert!(self.has(seq), "what arrives has left");
        let (word, bit) = (&mut self.arrived[(seq / 64) as usize], 1 << (seq % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }

    #[inline(always)]
    fn place(&self, seq: u64) -> usize {
        (seq & (self.recent.len() as u64 - 1)) as usize
    }
}

/// So many words. Every page is written to, so that none is missing later.
fn touched(words: u64) -> Option<Vec<u64>> {
    let words = usize::try_from(words).ok()?;
    let mut values = Vec::new();
    values.try_reserve_exact(words).ok()?;
    // Not zeros, which the system would only promise.
    values.resize(words, u64::MAX);
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_arrives_for_the_first_time_once() {
        let mut departures = Departures::with_room(130).unwrap();
        (0..130).for_each(|_| departures.push(7));
        for seq in [0, 63, 64, 129] {
            assert!(departures.arrive(seq) && !departures.arrive(seq));
        }
        assert!(departures.arrive(1) && departures.has(129) && !departures.has(130));
        assert_eq!((departures.when(129), departures.when(130)), (Some(7), None));
    }

    #[test]
    fn when_the_newest_left_is_remembered() {
        let mut departures = Departures::remembering(1000, 4).unwrap();
        for seq in 0..1000 {
            departures.push(10 + seq);
            assert_eq!(departures.when(seq), Some(10 + seq));
        }
        let known: Vec<_> = (990..1001).map(|seq| departures.when(seq).is_some()).collect();
        assert_eq!(known, [[false; 6].as_slice(), &[true; 4], &[false]].concat());
        assert!(departures.has(0) && departures.arrive(0) && !departures.arrive(0));
    }

    #[test]
    fn more_than_there_is_memory_for_is_refused() {
        assert!(matches!(Departures::with_room(u64::MAX), Err(Error::Memory { .. })));
    }
}
