//! The device: one server, first come, first served, in batches, that stalls.

use serde::Serialize;

/// Intervals in which the device does not run, as timer interrupts make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stalls {
    /// Time from the start of one to the start of the next.
    pub period_ns: u64,
    /// Duration of one.
    pub duration_ns: u64,
    /// Every how many of them one lasts longer; 0 is never.
    pub long_every: u64,
    /// Duration of that one.
    pub long_duration_ns: u64,
}

impl Stalls {
    /// Returns the share of all time that they take.
    pub(crate) fn share(self) -> f64 {
        let (usual_ns, long_ns) = (self.duration_ns as f64, self.long_duration_ns as f64);
        let long_share = if self.long_every == 0 { 0.0 } else { 1.0 / self.long_every as f64 };
        (usual_ns + long_share * (long_ns - usual_ns)) / self.period_ns as f64
    }

    /// Returns when the device next runs, at or after `time_ns`, with the first stall at
    /// `first_ns`.
    #[inline]
    fn over(self, first_ns: u64, time_ns: u64) -> u64 {
        let Some(since_ns) = time_ns.checked_sub(first_ns) else { return time_ns };
        let (nth, into_ns) = (since_ns / self.period_ns + 1, since_ns % self.period_ns);
        let long = self.long_every > 0 && nth % self.long_every == 0;
        let duration_ns = if long { self.long_duration_ns } else { self.duration_ns };
        time_ns - into_ns + into_ns.max(duration_ns)
    }
}

/// A device in the middle of its work.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    service_ns: u64,
    stalls: Option<(Stalls, u64)>,
    free_ns: u64,
    last_departure_ns: u64,
}

impl Device {
    /// Returns an idle device that is busy for `service_ns` with each packet, with its stalls and
    /// the start of the first one.
    pub(crate) fn new(service_ns: u64, stalls: Option<(Stalls, u64)>) -> Self {
        Self { service_ns, stalls, free_ns: 0, last_departure_ns: 0 }
    }

    /// Returns when a packet is begun with that arrives not before any earlier one. It waits for
    /// those before it and for the end of a stall. A stall holds back packets that have not begun;
    /// those within the device go on.
    #[inline]
    pub(crate) fn begins(&self, arrival_ns: u64) -> u64 {
        let idle_ns = arrival_ns.max(self.free_ns);
        let begin_ns = match self.stalls {
            Some((stalls, first_ns)) => stalls.over(first_ns, idle_ns),
            None => idle_ns,
        };
        debug_assert!(arrival_ns <= begin_ns, "a packet is served after it came");
        begin_ns
    }

    /// Returns when a batch leaves that is begun with at `begin_ns`: together, when all its
    /// `packets` are done, of which the slowest would take `latency_ns` alone. It overtakes nobody.
    #[inline]
    pub(crate) fn serve(&mut self, begin_ns: u64, packets: u64, latency_ns: u64) -> u64 {
        let last_begin_ns = begin_ns + (packets - 1) * self.service_ns;
        self.free_ns = last_begin_ns + self.service_ns;
        self.last_departure_ns = self.last_departure_ns.max(last_begin_ns + latency_ns);
        self.last_departure_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALLS: Stalls =
        Stalls { period_ns: 1_000, duration_ns: 100, long_every: 3, long_duration_ns: 300 };

    #[test]
    fn a_stall_ends_and_every_third_lasts_longer() {
        for (time_ns, over_ns) in [
            (0, 0),
            (499, 499),
            (500, 600),
            (599, 600),
            (600, 600),
            (1_500, 1_600),
            (2_500, 2_800),
            (2_799, 2_800),
            (2_800, 2_800),
            (3_599, 3_600),
            (5_501, 5_800),
        ] {
            assert_eq!(STALLS.over(500, time_ns), over_ns, "{time_ns}");
        }
        let alike = Stalls { long_every: 0, ..STALLS };
        assert_eq!(alike.over(500, 2_500), 2_600);
    }

    #[test]
    fn stalls_share_the_time_with_the_work() {
        for (long_every, per_mille) in [(0, 100.0), (1, 300.0), (2, 200.0), (4, 150.0)] {
            let share = Stalls { long_every, ..STALLS }.share();
            assert!((1_000.0 * share - per_mille).abs() < 1e-9, "{long_every}: {share}");
        }
    }

    #[test]
    fn packets_behind_a_stall_queue_in_order() {
        let mut device = Device::new(40, Some((STALLS, 500)));
        let arrivals = [450, 510, 520, 599, 730, 800];
        let departures = arrivals.map(|arrival_ns| alone(&mut device, arrival_ns, 1_000));
        assert_eq!(departures, [1_450, 1_600, 1_640, 1_680, 1_730, 1_800]);
    }

    #[test]
    fn nobody_is_overtaken() {
        let mut device = Device::new(10, None);
        assert_eq!(alone(&mut device, 0, 500), 500);
        assert_eq!(alone(&mut device, 1, 100), 500);
        assert_eq!(alone(&mut device, 600, 100), 700);
    }

    #[test]
    fn a_batch_leaves_when_its_last_packet_is_done() {
        let mut device = Device::new(40, None);
        assert_eq!(device.begins(100), 100);
        assert_eq!(device.serve(100, 3, 60), 240);
        assert_eq!(device.begins(110), 220);
    }

    fn alone(device: &mut Device, arrival_ns: u64, latency_ns: u64) -> u64 {
        device.serve(device.begins(arrival_ns), 1, latency_ns)
    }

    /// Returns every instant at which the server works, one nanosecond after the other.
    fn slowly(arrivals: &[u64], service_ns: u64, stalled: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut now_ns, mut begins) = (0, Vec::new());
        for arrival_ns in arrivals {
            now_ns = now_ns.max(*arrival_ns);
            while stalled(now_ns) {
                now_ns += 1;
            }
            begins.push(now_ns);
            now_ns += service_ns;
        }
        begins
    }

    #[test]
    fn a_queue_behind_stalls_equals_one_served_by_the_nanosecond() {
        for service_ns in [0, 7, 60] {
            let arrivals: Vec<u64> = (0..3_000u64).map(|k| k * 67 + k * k % 61).collect();
            assert!(arrivals.is_sorted());
            let stalled = |time_ns: u64| {
                let Some(since_ns) = time_ns.checked_sub(123) else { return false };
                let long = (since_ns / 1_000) % 3 == 2;
                since_ns % 1_000 < if long { 300 } else { 100 }
            };
            let mut device = Device::new(service_ns, Some((STALLS, 123)));
            let departures: Vec<_> = arrivals.iter().map(|at| alone(&mut device, *at, 9)).collect();
            let expected: Vec<_> =
                slowly(&arrivals, service_ns, stalled).iter().map(|begin| begin + 9).collect();
            assert_eq!(departures, expected, "service {service_ns} ns");
        }
    }
}
