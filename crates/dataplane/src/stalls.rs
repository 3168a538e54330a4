//! The stall log: when a loop did not run.

use crate::stream::Stalls;

/// An interval between two readings of the counter, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The reading before.
    pub start: u64,
    /// From that one to the next.
    pub duration: u64,
}

/// Stalls in memory that was there beforehand.
#[derive(Debug)]
pub struct StallLog {
    stalls: Vec<Stall>,
    stream: Option<Stalls>,
    /// Those for which there was no room.
    pub unrecorded: u64,
    /// Ticks of all stalls.
    pub total: u64,
    /// Ticks of the longest.
    pub longest: u64,
    count: u64,
}

impl StallLog {
    /// Room for a million: a thousand a second for a quarter of an hour.
    pub const ROOM: usize = 1 << 20;

    /// An empty log. Its memory is touched now, so that no page fault becomes a stall later.
    pub fn new(room: usize) -> Self {
        let mut stalls = vec![Stall { start: 1, duration: 1 }; room];
        stalls.clear();
        Self { stalls, stream: None, unrecorded: 0, total: 0, longest: 0, count: 0 }
    }

    /// An empty log that hands stalls over instead of keeping them.
    pub fn handing_over(stream: Stalls) -> Self {
        Self { stream: Some(stream), ..Self::new(0) }
    }

    /// Notes one.
    #[cold]
    #[inline(never)]
    pub fn push(&mut self, start: u64, duration: u64) {
        self.count += 1;
        self.total += duration;
        self.longest = self.longest.max(duration);
        if let Some(stream) = &mut self.stream {
            self.unrecorded += u64::from(stream.push([start, duration]).is_err());
        } else if self.stalls.len() < self.stalls.capacity() {
            self.stalls.push(Stall { start, duration });
        } else {
            self.unrecorded += 1;
        }
    }

    /// What was noted, in order of time.
    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_still_counts() {
        let mut log = StallLog::new(2);
        for start in [10, 20, 30] {
            log.push(start, start / 10);
        }
        assert_eq!(
            log.stalls(),
            [Stall { start: 10, duration: 1 }, Stall { start: 20, duration: 2 }]
        );
        assert_eq!((log.count(), log.unrecorded, log.total, log.longest), (3, 1, 6, 3));
    }
}
