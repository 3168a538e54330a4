//! Captures that look as if they were given in the wrong order, though every packet seems to come out later than it
//! went in: the clock of the second is early by more than the latency.
//!
//! A device makes packets late, whenever they come, so the gaps behind it follow from those before it and from what
//! changes in latency. Mirrored, it is the other way round: the gaps of what is given as behind the device know
//! nothing of the latencies. So do those of a queue that never empties; but it closes the gap that a lost packet
//! leaves, and a capture that misses a packet does not.

/// Fewest neighbours that tell, and fewest gaps with lost packets in them.
const FEWEST: usize = 100;
const FEWEST_LOST: usize = 5;
/// The most that gaps behind the device may follow latencies, as the slope of their regression, and twice its error
/// with it: 1 is a device that delays each packet by itself.
const FOLLOW: f64 = 0.25;
/// The least by which gaps with lost packets are longer than those without.
const HOLE: f64 = 1.5;
/// The least that latencies differ by, in steps of the coarser clock: in less, they are those of the clock.
const STEPS: f64 = 4.0;

/// Two packets that follow each other in both captures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbours {
    /// Times between them, before and behind the device, in ns.
    pub gaps_ns: [i64; 2],
    /// True if packets that were sent between them are not behind the device.
    pub lost: bool,
}

/// Returns true if latencies, in order of size, and gaps are those of a device that was captured the other way round.
pub(crate) fn is_mirrored(latencies_ns: &[i64], neighbours: &[Neighbours], step_ns: f64) -> bool {
    let (with, without): (Vec<Neighbours>, Vec<Neighbours>) =
        neighbours.iter().partition(|pair| pair.lost);
    if with.len() < FEWEST_LOST || without.len() < FEWEST {
        return false;
    }
    let at = |percent: usize| latencies_ns[(latencies_ns.len() - 1) * percent / 100];
    let (below, above) = ((at(50) - at(1)).unsigned_abs(), (at(99) - at(50)).unsigned_abs());
    if has_tail(below, above) || ((below + above) as f64) < STEPS * step_ns {
        return false;
    }
    let mean = |pairs: &[Neighbours]| {
        pairs.iter().map(|pair| pair.gaps_ns[1] as f64).sum::<f64>() / pairs.len() as f64
    };
    let usual = mean(&without);
    if mean(&with) < HOLE * usual {
        return false;
    }
    let change = |pair: &Neighbours| (pair.gaps_ns[1] - pair.gaps_ns[0]) as f64;
    let sum = |of: &dyn Fn(&Neighbours) -> f64| without.iter().map(of).sum::<f64>();
    let changes = sum(&|pair| change(pair).powi(2));
    let follow = sum(&|pair| (pair.gaps_ns[1] as f64 - usual) * change(pair)) / changes;
    let gaps = sum(&|pair| (pair.gaps_ns[1] as f64 - usual).powi(2));
    let error = (gaps / changes / without.len() as f64).sqrt();
    follow.abs() + 2.0 * error < FOLLOW
}

/// Returns true if latencies reach further above their median than below it.
pub(crate) fn has_tail(below_ns: u64, above_ns: u64) -> bool {
    above_ns > below_ns + below_ns / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP_NS: i64 = 100_000;

    /// Latencies and neighbours of packets sent every 100 µs, of which every 50th is not behind the device.
    fn captures(latency: impl Fn(i64) -> i64, swapped: bool) -> (Vec<i64>, Vec<Neighbours>) {
        let seen: Vec<i64> = (0..5_000).filter(|i| i % 50 != 7).collect();
        let pair = |two: &[i64]| {
            let gap = GAP_NS * (two[1] - two[0]);
            let gaps_ns = [gap, gap + latency(two[1]) - latency(two[0])];
            let lost = two[1] - two[0] > 1;
            let gaps_ns = if swapped { [gaps_ns[1], gaps_ns[0]] } else { gaps_ns };
            Neighbours { gaps_ns, lost }
        };
        let early = |ns: i64| if swapped { 1_000_000 - ns } else { ns };
        let mut latencies: Vec<i64> = seen.iter().map(|i| early(latency(*i))).collect();
        latencies.sort_unstable();
        (latencies, seen.windows(2).map(pair).collect())
    }

    fn dice(i: i64) -> i64 {
        (i.wrapping_mul(6_364_136_223_846_793_005) >> 33).rem_euclid(1_000)
    }

    fn look(latency: impl Fn(i64) -> i64, swapped: bool) -> bool {
        let (latencies, neighbours) = captures(latency, swapped);
        is_mirrored(&latencies, &neighbours, 1.0)
    }

    #[test]
    fn captures_in_the_wrong_order_are_told_from_a_device_that_loses_packets() {
        let even = |i| 10_000 + 8 * dice(i);
        let skewed = |i| 5_000 + 1_000_000 / (1 + dice(i));
        let fast_path = |i| if dice(i) < 50 { 2_000 } else { 9_000 + dice(i) };
        for latency in [even, skewed] as [fn(i64) -> i64; 2] {
            assert!(look(latency, true) && !look(latency, false));
        }
        assert!(!look(fast_path, false));
        assert!(!look(|_| 5_000, true));
    }

    #[test]
    fn a_queue_that_is_always_full_closes_the_gaps_of_what_it_loses() {
        let (latencies, mut neighbours) = captures(|i| 60_000 - 8 * dice(i), true);
        assert!(is_mirrored(&latencies, &neighbours, 1.0));
        neighbours.iter_mut().for_each(|pair| pair.gaps_ns[1] = GAP_NS);
        assert!(!is_mirrored(&latencies, &neighbours, 1.0));
    }

    #[test]
    fn latencies_that_differ_by_less_than_the_clock_tells_say_nothing() {
        let (latencies, neighbours) = captures(|i| 5_000 + dice(i), true);
        assert!(is_mirrored(&latencies, &neighbours, 12.5));
        assert!(!is_mirrored(&latencies, &neighbours, 1_000.0));
    }
}
