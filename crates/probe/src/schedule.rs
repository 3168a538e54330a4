//! Schedules of departures: open loop, so that nothing a device does moves a departure.
//!
//! Every schedule keeps its rate exactly: what rounding to nanoseconds takes from one departure it
//! gives to the next.

use crate::error::Error;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::str::FromStr;
use units::{Nanos, Pps};

const NS_PER_S: u64 = 1_000_000_000;

/// The spacing of departures. As text: `cbr`, `poisson`, `burst:32,67ns`, `poisson:32,67ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A constant rate.
    Cbr,
    /// Packets back to back, bursts at a constant rate.
    Burst {
        /// Packets in a burst.
        size: u32,
        /// Time from one packet of a burst to the next, which the wire takes for a packet.
        gap: Nanos,
    },
    /// Independently of each other: exponential gaps.
    Poisson,
    /// Packets back to back, bursts independently of each other. A burst that is to begin before the one
    /// before it has ended follows it.
    PoissonBurst {
        /// Packets in a burst.
        size: u32,
        /// Time from one packet of a burst to the next.
        gap: Nanos,
    },
}

/// Intended departures, counted from the first one. Ends where the time no longer fits.
#[derive(Clone, Debug)]
pub struct Departures(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Burst { period: Period, size: u32, gap_ns: u64, sent: u32 },
    Poisson(Box<Poisson>),
    Step(Box<Step>),
}

/// A schedule until a time, and another one from there on.
#[derive(Clone, Debug)]
struct Step {
    before: Departures,
    until_ns: u64,
    after: Departures,
    has_stepped: bool,
}

impl Departures {
    /// Returns these departures until a time, and from there on those of `then`, which counts from
    /// there.
    #[must_use]
    pub fn until(self, time: Nanos, then: Self) -> Self {
        let step = Step { before: self, until_ns: time.0, after: then, has_stepped: false };
        Self(Kind::Step(Box::new(step)))
    }
}

impl Step {
    fn next(&mut self) -> Option<Nanos> {
        if !self.has_stepped {
            let before = self.before.next().filter(|at| at.0 < self.until_ns);
            if before.is_some() {
                return before;
            }
            self.has_stepped = true;
        }
        self.after.next()?.0.checked_add(self.until_ns).map(Nanos)
    }
}

impl Pattern {
    /// Returns the departures of this pattern at `rate`, the first at 0. Only those of a Poisson
    /// process look at `seed`.
    ///
    /// # Errors
    /// When nothing would be sent, or bursts would overlap.
    pub fn departures(self, rate: Pps, seed: u64) -> Result<Departures, Error> {
        if rate.0 == 0 {
            return Err(Error::Rate { got: rate });
        }
        Ok(Departures(match self {
            Self::Cbr => burst(1, Nanos(0), rate)?,
            Self::Burst { size, gap } => burst(size, gap, rate)?,
            Self::Poisson => poisson(1, Nanos(0), rate, seed)?,
            Self::PoissonBurst { size, gap } => poisson(size, gap, rate, seed)?,
        }))
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bursts = |sizes: &str| {
            let (size, gap) = sizes.split_once(',')?;
            Some((size.parse().ok()?, gap.parse().ok()?))
        };
        let behind = |name: &str| text.strip_prefix(name).and_then(bursts);
        match text {
            "cbr" => Some(Self::Cbr),
            "poisson" => Some(Self::Poisson),
            _ => behind("burst:")
                .map(|(size, gap)| Self::Burst { size, gap })
                .or(behind("poisson:").map(|(size, gap)| Self::PoissonBurst { size, gap })),
        }
        .ok_or_else(|| Error::Pattern { got: text.into() })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cbr => f.write_str("cbr"),
            Self::Poisson => f.write_str("poisson"),
            Self::Burst { size, gap } => write!(f, "burst:{size},{gap}"),
            Self::PoissonBurst { size, gap } => write!(f, "poisson:{size},{gap}"),
        }
    }
}

fn burst(size: u32, gap: Nanos, rate: Pps) -> Result<Kind, Error> {
    let period = period(size, gap, rate)?;
    Ok(Kind::Burst { period, size, gap_ns: gap.0, sent: 0 })
}

/// Returns the time from one burst to the next, which a burst must not exceed.
fn period(size: u32, gap: Nanos, rate: Pps) -> Result<Period, Error> {
    let period = Period::new(u64::from(size) * NS_PER_S, rate.0);
    let last = u64::from(size).checked_sub(1).ok_or(Error::EmptyBurst)?;
    let lasts = Nanos(last.saturating_mul(gap.0));
    if last > 0 && lasts.0 >= period.step_ns {
        return Err(Error::Burst { size, got: lasts, expected: Nanos(period.step_ns) });
    }
    Ok(period)
}

fn poisson(size: u32, gap: Nanos, rate: Pps, seed: u64) -> Result<Kind, Error> {
    period(size, gap, rate)?;
    Ok(Kind::Poisson(Box::new(Poisson {
        at_ns: 0,
        fraction: 0.0,
        mean_ns: f64::from(size) * NS_PER_S as f64 / rate.0 as f64,
        random: Xoshiro256PlusPlus::seed_from_u64(seed),
        size,
        gap_ns: gap.0,
        start_ns: 0,
        sent: 0,
    })))
}

/// Bursts whose starts are a Poisson process, of one packet or more.
#[derive(Clone, Debug)]
struct Poisson {
    /// The process.
    at_ns: u64,
    fraction: f64,
    mean_ns: f64,
    random: Xoshiro256PlusPlus,
    size: u32,
    gap_ns: u64,
    /// Start of the current burst, and the packets of it so far.
    start_ns: u64,
    sent: u32,
}

impl Poisson {
    #[inline]
    fn next(&mut self) -> Option<Nanos> {
        if self.sent == self.size {
            // 1 - u is never 0; this logarithm is the same on every platform.
            let gap_ns =
                -libm::log(1.0 - self.random.random::<f64>()) * self.mean_ns + self.fraction;
            self.fraction = gap_ns.fract();
            self.at_ns = self.at_ns.checked_add(gap_ns as u64)?;
            let ended_ns = self.start_ns.checked_add(u64::from(self.size) * self.gap_ns)?;
            self.start_ns = self.at_ns.max(ended_ns);
            self.sent = 0;
        }
        let at_ns = self.start_ns.checked_add(u64::from(self.sent) * self.gap_ns)?;
        self.sent += 1;
        Some(Nanos(at_ns))
    }
}

/// The times `⌊k · span / times⌋`, without ever adding up an error.
#[derive(Clone, Debug)]
struct Period {
    step_ns: u64,
    rest: u64,
    times: u64,
    at_ns: u64,
    sum: u64,
}

impl Period {
    fn new(span_ns: u64, times: u64) -> Self {
        Self { step_ns: span_ns / times, rest: span_ns % times, times, at_ns: 0, sum: 0 }
    }

    fn advance(&mut self) -> Option<()> {
        debug_assert!(self.sum < self.times, "less than a nanosecond is carried on");
        let carry = self.sum >= self.times - self.rest;
        self.sum = if carry { self.sum - (self.times - self.rest) } else { self.sum + self.rest };
        self.at_ns = self.at_ns.checked_add(self.step_ns)?.checked_add(u64::from(carry))?;
        Some(())
    }
}

impl Iterator for Departures {
    type Item = Nanos;

    #[inline]
    fn next(&mut self) -> Option<Nanos> {
        match &mut self.0 {
            Kind::Burst { period, size, gap_ns, sent } => {
                if sent == size {
                    period.advance()?;
                    *sent = 0;
                }
                debug_assert!(*sent < *size, "a burst goes on, or the next one begins");
                let at_ns = period.at_ns.checked_add(u64::from(*sent) * *gap_ns)?;
                *sent += 1;
                Some(Nanos(at_ns))
            }
            Kind::Poisson(poisson) => poisson.next(),
            Kind::Step(step) => step.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departures(pattern: Pattern, rate: u64, count: usize) -> Vec<u64> {
        let departures = pattern.departures(Pps(rate), 1).unwrap();
        departures.take(count).map(Nanos::get).collect()
    }

    #[test]
    fn a_constant_rate_is_kept_to_the_nanosecond() {
        for rate in [1, 3, 7_001, 10_000, 999_999_999, 1_000_000_000, 3_000_000_001, u64::MAX] {
            for (k, at_ns) in departures(Pattern::Cbr, rate, 100_000).into_iter().enumerate() {
                let exact = k as u128 * u128::from(NS_PER_S) / u128::from(rate);
                assert_eq!(u128::from(at_ns), exact, "packet {k} at {rate} packets/s");
            }
        }
    }

    #[test]
    fn bursts_keep_the_rate_and_their_gaps() {
        let pattern = Pattern::Burst { size: 32, gap: Nanos(67) };
        for (k, at_ns) in departures(pattern, 7_001, 100_000).into_iter().enumerate() {
            let (burst, nth) = (k as u64 / 32, k as u64 % 32);
            assert_eq!(at_ns, burst * 32 * NS_PER_S / 7_001 + nth * 67);
        }
    }

    #[test]
    fn gaps_of_poisson_are_exponential() {
        let count = 1_000_000;
        let times = departures(Pattern::Poisson, 10_000, count + 1);
        let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / count as f64;
        let beyond = |x: f64| gaps.iter().filter(|gap| **gap > x).count() as f64 / count as f64;
        assert!((mean / 100_000.0 - 1.0).abs() < 0.004, "mean {mean} ns"); // 4 standard errors
        for multiple in [0.1, 1.0, 3.0] {
            let (got, expected) = (beyond(multiple * 100_000.0), (-multiple).exp());
            let error = (expected * (1.0 - expected) / count as f64).sqrt();
            assert!((got - expected).abs() < 4.0 * error, "{got} beyond {multiple} means");
        }
    }

    #[test]
    fn starts_of_poisson_bursts_are_a_poisson_process() {
        let (size, gap, rate, bursts) = (16, Nanos(200), 100_000, 200_000);
        let pattern = Pattern::PoissonBurst { size, gap };
        let times = departures(pattern, rate, bursts * size as usize);
        assert!(times.is_sorted());
        let starts: Vec<u64> = times.chunks(size as usize).map(|burst| burst[0]).collect();
        for burst in times.chunks(size as usize) {
            assert!(burst.windows(2).all(|pair| pair[1] - pair[0] == gap.0));
        }
        let mean_ns = 1e9 / rate as f64 * f64::from(size);
        let mean = starts[bursts - 1] as f64 / (bursts - 1) as f64;
        let error = mean_ns / (bursts as f64).sqrt();
        assert!((mean - mean_ns).abs() < 4.0 * error, "mean {mean} ns, expected {mean_ns}");
        // A burst that waits for the one before it follows it; any other begins by the process.
        let lasts = u64::from(size) * gap.0;
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= lasts));
        let back_to_back = departures(Pattern::PoissonBurst { size, gap: Nanos(0) }, rate, 64);
        let single = departures(Pattern::Poisson, rate / u64::from(size), 4);
        assert_eq!(back_to_back, single.iter().flat_map(|at| [*at; 16]).collect::<Vec<_>>());
    }

    #[test]
    fn poisson_loses_nothing_to_rounding_at_high_rates() {
        let times = departures(Pattern::Poisson, 1_000_000_000, 1_000_000);
        let mean = times[999_999] as f64 / 999_999.0;
        assert!((mean - 1.0).abs() < 0.004, "mean {mean} ns");
    }

    #[test]
    fn a_seed_is_a_schedule_on_every_platform() {
        let first = |seed| Pattern::Poisson.departures(Pps(1), seed).unwrap().nth(1).unwrap();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert_eq!(departures(Pattern::Poisson, 1_000, 4), [0, 1_669_252, 3_044_032, 3_149_560]);
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let error = |pattern: Pattern, rate| pattern.departures(Pps(rate), 0).unwrap_err();
        assert_eq!(error(Pattern::Cbr, 0), Error::Rate { got: Pps(0) });
        let burst = |size, gap_ns| Pattern::Burst { size, gap: Nanos(gap_ns) };
        assert_eq!(error(burst(0, 1), 1), Error::EmptyBurst);
        let overlap = Error::Burst { size: 11, got: Nanos(10_000), expected: Nanos(10_000) };
        assert_eq!(error(burst(11, 1_000), 1_100_000), overlap);
        assert!(matches!(error(burst(u32::MAX, u64::MAX), 1), Error::Burst { .. }));
        let poisson = Pattern::PoissonBurst { size: 11, gap: Nanos(1_000) };
        assert_eq!(error(poisson, 1_100_000), overlap);
    }

    #[test]
    fn a_pattern_is_read_as_it_is_written() {
        for text in ["cbr", "poisson", "burst:32,67ns", "poisson:32,67ns"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for got in ["", "CBR", "burst", "burst:32", "burst:32,67", "burst:-1,67ns", "poisson:8"] {
            assert_eq!(got.parse::<Pattern>(), Err(Error::Pattern { got: got.into() }));
        }
    }

    #[test]
    fn a_rate_changes_at_its_time() {
        let at = |rate| Pattern::Cbr.departures(Pps(rate), 1).unwrap();
        let times = at(10_000_000).until(Nanos(450), at(1_000_000)).map(Nanos::get);
        assert_eq!(times.take(8).collect::<Vec<_>>(), [0, 100, 200, 300, 400, 450, 1_450, 2_450]);
        let mut late = at(1).until(Nanos(u64::MAX - 1), at(1));
        assert_eq!(late.nth(1), Some(Nanos(NS_PER_S)));
        assert_eq!(at(1).until(Nanos(0), at(1)).next(), Some(Nanos(0)));
    }

    #[test]
    fn a_schedule_ends_with_time() {
        let gap = Nanos(u64::MAX / 2);
        let mut slow = Departures(Kind::Burst {
            period: Period::new(u64::MAX / 2, 1),
            size: 1,
            gap_ns: gap.0,
            sent: 0,
        });
        assert_eq!(slow.by_ref().count(), 3);
        assert_eq!(slow.next(), None);
    }
}
