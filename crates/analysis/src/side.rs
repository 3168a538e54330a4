//! The figures of one capture on its own: packets, gaps, rate.

use units::Nanos;

use crate::histogram::Histogram;
use crate::order::Timed;

const SECOND_NS: u64 = 1_000_000_000;
/// Gaps that are counted at once.
const AT_ONCE: usize = 64;

/// Figures of one capture, within the interval that begins after its own trim.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Packets in the capture.
    pub packets: u64,
    /// Packets within the interval: later than the first one plus the trim.
    pub kept: u64,
    /// Time of the first packet, in ns; `None` without packets.
    pub first_ns: Option<u64>,
    /// Time of the last packet, in ns.
    pub last_ns: Option<u64>,
    /// Packets whose time lay before that of a packet in front of them; they were put in order.
    pub disordered: u64,
    /// Largest disorder, in ns.
    pub disorder_ns_max: u64,
    /// Time between a packet and the one before it, within the interval.
    pub gaps: Histogram,
    /// Packets per second as (start of the second in ns, packets); seconds count from the first
    /// packet of the interval, and one without packets is left out.
    pub rate: Vec<(u64, u64)>,
    /// Time of the first packet of the interval, in ns: from here seconds count.
    pub(crate) origin_ns: Option<u64>,
    /// Times of the first and the last packet of the interval, in ns.
    pub(crate) kept_ends: Option<(u64, u64)>,
    pub(crate) trim: u64,
}

impl Side {
    pub(crate) fn new(trim: Nanos) -> Self {
        Self { trim: trim.0, ..Self::default() }
    }

    /// Counts the next packets in order of time.
    pub(crate) fn record_all<T: Timed>(&mut self, packets: &[T]) {
        let (Some(next), Some(last)) = (packets.first(), packets.last()) else { return };
        self.packets += packets.len() as u64;
        let first = *self.first_ns.get_or_insert(next.ts());
        debug_assert!(first <= next.ts(), "no packet lies before the first");
        debug_assert!(self.last_ns.is_none_or(|last| last <= next.ts()), "time goes on");
        self.last_ns = Some(last.ts());
        let is_trimmed = |packet: &T| self.trim > 0 && packet.ts() - first <= self.trim;
        let kept = &packets[packets.partition_point(is_trimmed)..];
        let Some(next) = kept.first() else { return };
        self.kept += kept.len() as u64;
        match self.kept_ends {
            Some((_, former)) => self.count_gaps(former, kept),
            None => {
                self.begin(next.ts());
                self.count_gaps(next.ts(), &kept[1..]);
            }
        }
        self.count_seconds(kept);
    }

    fn count_gaps<T: Timed>(&mut self, mut former: u64, packets: &[T]) {
        let mut gaps = [0; AT_ONCE];
        for packets in packets.chunks(AT_ONCE) {
            for (gap, packet) in gaps.iter_mut().zip(packets) {
                *gap = packet.ts() - std::mem::replace(&mut former, packet.ts());
            }
            self.gaps.record_all(&gaps[..packets.len()]);
        }
        self.kept_ends.iter_mut().for_each(|(_, last)| *last = former);
    }

    fn count_seconds<T: Timed>(&mut self, mut packets: &[T]) {
        while let Some(next) = packets.first() {
            let (start, count) = self.rate.last_mut().expect("the first packet began a second");
            if next.ts() - *start >= SECOND_NS {
                let start = next.ts() - (next.ts() - *start) % SECOND_NS;
                self.rate.push((start, 0));
                continue;
            }
            let within = packets.partition_point(|packet| packet.ts() - *start < SECOND_NS);
            *count += within as u64;
            packets = &packets[within..];
        }
    }

    #[cold]
    fn begin(&mut self, ts: u64) {
        let origin = *self.origin_ns.get_or_insert(ts);
        self.kept_ends = Some((ts, ts));
        self.rate.push((ts - ts.saturating_sub(origin) % SECOND_NS, 0));
    }

    /// Adds another stretch of the same capture, but for the gap between the two.
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.kept += other.kept;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.gaps.add(&other.gaps);
        self.rate.extend(&other.rate);
        self.rate.sort_unstable();
        self.rate.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            earlier.1 += if same { later.1 } else { 0 };
            same
        });
        assert!(self.kept <= self.packets, "only packets are kept");
        let counted: u64 = self.rate.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, self.kept, "every packet is counted in its second");
    }

    /// Packets per second from the first to the last packet of the interval; `None` where no time
    /// passes between them.
    #[must_use]
    pub fn rate_pps(&self) -> Option<f64> {
        let duration_ns = self.duration_ns().filter(|ns| *ns > 0)?;
        Some((self.kept - 1) as f64 * SECOND_NS as f64 / duration_ns as f64)
    }

    /// Returns the mean of [`rate`](Self::rate) over the seconds that had packets, as the papers'
    /// queries have it: the last second, which is seldom whole, counts like the others.
    #[must_use]
    pub fn second_mean_pps(&self) -> Option<f64> {
        (!self.rate.is_empty()).then(|| self.kept as f64 / self.rate.len() as f64)
    }

    /// Returns the time from the first to the last packet of the interval, in ns.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        self.kept_ends.map(|(first, last)| last - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(trim: u64, times: &[u64]) -> Side {
        let mut side = Side::new(Nanos(trim));
        times.chunks(2).for_each(|times| side.record_all(times));
        side
    }

    #[test]
    fn seconds_count_from_the_first_packet_and_empty_ones_are_left_out() {
        let s = SECOND_NS;
        let side = side(0, &[7, 7, s + 6, s + 7, 5 * s + 8]);
        assert_eq!(side.rate, [(7, 3), (s + 7, 1), (5 * s + 7, 1)]);
        assert_eq!(side.gaps.buckets(1), [(0, 1), (1, 1), (s - 1, 1), (4 * s + 1, 1)]);
        assert_eq!(side.second_mean_pps(), Some(5.0 / 3.0));
    }

    #[test]
    fn the_rate_goes_by_the_time_that_passed() {
        assert_eq!(side(0, &[0, 100_000, 200_000]).rate_pps(), Some(10_000.0));
        assert_eq!(side(0, &[5]).rate_pps(), None);
    }

    #[test]
    fn trimming_drops_up_to_and_with_the_border() {
        let side = side(10, &[100, 110, 111, 115]);
        assert_eq!((side.packets, side.kept), (4, 2));
        assert_eq!(side.gaps.buckets(1), [(4, 1)]);
        assert_eq!(side.duration_ns(), Some(4));
    }
}
