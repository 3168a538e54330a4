//! What the generator remembers of every packet: 16 bytes, in memory that was there beforehand.

use crate::error::Error;

/// Says that a packet has arrived; the counter needs 195 years to get there.
const ARRIVED: u64 = 1 << 63;
/// In place of a sequence number: the gap goes on by the ticks of the other half, times 2³².
const GAP: u32 = u32::MAX;

/// When every packet left, by sequence number.
#[derive(Debug)]
pub struct Departures(Vec<u64>);

/// Which packets arrived, in order, and when: an arrival is its sequence number and the ticks since the
/// arrival before, in 32 bits each.
#[derive(Debug)]
pub struct Arrivals {
    entries: Vec<u64>,
    first: u64,
    last: u64,
    /// Arrivals for which there was no room.
    pub unrecorded: u64,
}

impl Departures {
    /// Room for `packets`.
    pub fn with_room(packets: u64) -> Result<Self, Error> {
        Ok(Self(touched(packets, packets)?))
    }

    /// How many packets have left.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many more there is room for.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.0.capacity() - self.0.len()
    }

    /// Notes that the next `count` packets left at `tsc`.
    #[inline(always)]
    pub fn push(&mut self, tsc: u64, count: usize) {
        debug_assert!(count <= self.room(), "memory is there beforehand");
        debug_assert!(tsc & ARRIVED == 0, "the counter leaves the mark alone");
        for _ in 0..count {
            self.0.push(tsc);
        }
    }

    /// When a packet left; `None` for one that never did.
    #[inline(always)]
    pub fn get(&self, seq: u64) -> Option<u64> {
        self.0.get(usize::try_from(seq).ok()?).map(|tsc| tsc & !ARRIVED)
    }

    /// Notes that a packet has arrived; says whether it is the first time.
    #[inline(always)]
    pub fn arrive(&mut self, seq: u64) -> bool {
        debug_assert!(seq < self.0.len() as u64, "what arrives has left");
        let entry = &mut self.0[seq as usize];
        let first = *entry & ARRIVED == 0;
        *entry |= ARRIVED;
        first
    }

    /// All departures.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.iter().map(|tsc| tsc & !ARRIVED)
    }
}

impl Arrivals {
    /// Room for `packets`, from `tsc` on.
    pub fn with_room(packets: u64, tsc: u64) -> Result<Self, Error> {
        Ok(Self { entries: touched(packets, packets)?, first: tsc, last: tsc, unrecorded: 0 })
    }

    /// Notes an arrival, not before the one before it; `false` when there is no room.
    #[inline(always)]
    pub fn push(&mut self, seq: u64, tsc: u64) -> bool {
        debug_assert!(seq < u64::from(GAP), "a number is none of a gap");
        let gap = tsc.saturating_sub(self.last);
        let more = usize::from(gap >> 32 != 0);
        if self.entries.capacity() - self.entries.len() <= more {
            self.unrecorded += 1;
            return false;
        }
        if more == 1 {
            self.entries.push(u64::from(GAP) << 32 | gap >> 32);
        }
        self.entries.push(seq << 32 | gap & u64::from(u32::MAX));
        self.last += gap;
        true
    }

    /// Sequence numbers and times, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut tsc = self.first;
        self.entries.iter().filter_map(move |entry| {
            let (seq, ticks) = (entry >> 32, entry & u64::from(u32::MAX));
            if seq == u64::from(GAP) {
                tsc += ticks << 32;
                return None;
            }
            tsc += ticks;
            Some((seq, tsc))
        })
    }
}

/// Empty, with room for `packets` numbers. Every page is written to, so that none is missing later.
fn touched(packets: u64, all: u64) -> Result<Vec<u64>, Error> {
    let memory = || Error::Memory { packets: all, bytes: all.saturating_mul(16) };
    let room = usize::try_from(packets).ok().filter(|_| packets < u64::from(GAP));
    let room = room.ok_or_else(memory)?;
    let mut values = Vec::new();
    values.try_reserve_exact(room).map_err(|_| memory())?;
    values.resize(room, u64::MAX);
    values.clear();
    assert!(values.capacity() >= room, "what was touched stays");
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arrivals_come_back(gaps in prop::collection::vec((0..u64::from(GAP), 0..1_u64 << 40), 0..200)) {
            let mut arrivals = Arrivals::with_room(2 * gaps.len() as u64, 1000).unwrap();
            let mut tsc = 1000;
            let mut expected = Vec::new();
            for (seq, gap) in gaps {
                tsc += gap;
                prop_assert!(arrivals.push(seq, tsc));
                expected.push((seq, tsc));
            }
            prop_assert_eq!(arrivals.unrecorded, 0);
            prop_assert_eq!(arrivals.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut arrivals = Arrivals::with_room(2, 0).unwrap();
        let recorded: Vec<_> = (0..5).map(|seq| arrivals.push(seq, seq)).collect();
        assert_eq!(recorded, [true, true, false, false, false]);
        assert_eq!((arrivals.iter().count(), arrivals.unrecorded), (2, 3));
    }

    #[test]
    fn a_packet_arrives_for_the_first_time_once() {
        let mut departures = Departures::with_room(3).unwrap();
        departures.push(7, 2);
        assert!(departures.arrive(1) && !departures.arrive(1) && departures.arrive(0));
        assert_eq!((departures.get(1), departures.get(2), departures.room()), (Some(7), None, 1));
        assert!(departures.iter().eq([7, 7]));
    }

    #[test]
    fn more_than_there_is_memory_for_is_refused() {
        assert!(matches!(Departures::with_room(u64::MAX), Err(Error::Memory { .. })));
        assert!(matches!(Arrivals::with_room(1 << 40, 0), Err(Error::Memory { .. })));
    }
}
