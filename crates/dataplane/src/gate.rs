//! Gates: when a packet that has been held may leave, by the clock and by what left before it.

use crate::ticks::Ticks;
use crate::values::time;
use std::str::FromStr;
use units::Nanos;

/// What lets packets out. As text: `batch:PERIOD`, `queue:TIME,ROOM` or
/// `bucket:TIME,DEPTH,BURST,PERIOD`.
#[derive(Clone, Debug, PartialEq)]
pub enum GateLaw {
    /// All that wait leave together, every period.
    Batch(Nanos),
    /// One packet each time; whoever finds so many before it is dropped.
    Queue(Nanos, u64),
    /// A token each time, at most so many; another flow takes so many at once, every period.
    Bucket(Nanos, u64, u64, Nanos),
}

impl FromStr for GateLaw {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no gate: expected batch:PERIOD, queue:TIME,ROOM or \
                 bucket:TIME,DEPTH,BURST,PERIOD, like queue:10us,64"
            )
        };
        let positive = |text: &str| time(text).ok().filter(|at| at.0 > 0).ok_or_else(wrong);
        let count =
            |text: &str| text.parse().ok().filter(|count: &u64| *count > 0).ok_or_else(wrong);
        let (name, values) = text.split_once(':').ok_or_else(wrong)?;
        match (name, values.split(',').collect::<Vec<_>>().as_slice()) {
            ("batch", [period]) => Ok(Self::Batch(positive(period)?)),
            ("queue", [each, room]) => Ok(Self::Queue(positive(each)?, count(room)?)),
            ("bucket", [each, depth, burst, period]) => {
                Ok(Self::Bucket(positive(each)?, count(depth)?, count(burst)?, positive(period)?))
            }
            _ => Err(wrong()),
        }
    }
}

/// A gate at work, in ticks.
#[derive(Debug)]
pub enum Gate {
    /// Lets everything pass at once.
    Open,
    Batch {
        period: u64,
    },
    Queue {
        each: u64,
        most: u64,
        free_at: u64,
    },
    Bucket {
        each: u64,
        depth: u64,
        burst: u64,
        period: u64,
        next_burst: u64,
        /// When the bucket will be full.
        full_at: u64,
    },
}

impl Gate {
    /// The gate of a law; one of no law is open.
    pub fn new(law: Option<&GateLaw>, ticks: Ticks, now: u64) -> Self {
        let at_least_one = |time: Nanos| ticks.ticks(time).max(1);
        match law {
            None => Self::Open,
            Some(GateLaw::Batch(period)) => Self::Batch { period: at_least_one(*period) },
            Some(GateLaw::Queue(each, room)) => {
                let each = at_least_one(*each);
                Self::Queue { each, most: each.saturating_mul(*room), free_at: now }
            }
            Some(GateLaw::Bucket(each, depth, burst, period)) => {
                let (each, period) = (at_least_one(*each), at_least_one(*period));
                Self::Bucket {
                    each,
                    depth: each.saturating_mul(*depth),
                    burst: each.saturating_mul(*burst),
                    period,
                    next_burst: now + period,
                    full_at: now,
                }
            }
        }
    }

    /// When a packet that comes to the gate at `now` leaves it; None if it is dropped.
    #[inline(always)]
    pub fn pass(&mut self, now: u64) -> Option<u64> {
        match self {
            Self::Open => Some(now),
            Self::Batch { period } => Some((now / *period + 1) * *period),
            Self::Queue { each, most, free_at } => {
                let leaves = now.max(*free_at) + *each;
                if leaves - now > *most {
                    return None;
                }
                *free_at = leaves;
                Some(leaves)
            }
            Self::Bucket { each, depth, burst, period, next_burst, full_at } => {
                while *next_burst <= now {
                    *full_at = (*full_at).max(*next_burst) + *burst;
                    *next_burst += *period;
                }
                *full_at = (*full_at).max(now) + *each;
                Some(now.max(full_at.saturating_sub(*depth)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Clock;

    fn gate(text: &str) -> Gate {
        let ticks = Ticks::new(Clock { tsc_hz: 1_000_000_000, tsc: 0, unix_ns: 0 });
        Gate::new(Some(&text.parse().unwrap()), ticks, 0)
    }

    #[test]
    fn a_batch_leaves_at_the_end_of_its_period() {
        let mut gate = gate("batch:1us");
        assert_eq!(
            [0, 1, 999, 1_000].map(|at| gate.pass(at).unwrap()),
            [1_000, 1_000, 1_000, 2_000]
        );
    }

    #[test]
    fn a_queue_serves_one_after_the_other_and_drops_beyond_its_room() {
        let mut gate = gate("queue:100ns,3");
        let leaves = [0, 10, 20, 30, 100, 5_000].map(|at| gate.pass(at));
        assert_eq!(leaves, [Some(100), Some(200), Some(300), None, Some(400), Some(5_100)]);
    }

    #[test]
    fn a_bucket_lets_pass_while_it_has_tokens_and_owes_what_another_flow_took() {
        let mut gate = gate("bucket:10ns,2,12,1us");
        // Two tokens, then one every 10 ns.
        assert_eq!([0, 0, 0, 0].map(|_| gate.pass(500).unwrap()), [500, 500, 510, 520]);
        // The burst at 1 µs takes 12 of 2: those behind it wait for ten, which come in 100 ns.
        assert_eq!(gate.pass(1_000).unwrap(), 1_110);
        assert_eq!(gate.pass(1_900).unwrap(), 1_900);
    }

    #[test]
    fn what_is_no_gate_is_refused() {
        for text in ["", "batch", "batch:0ns", "queue:1us", "queue:1us,0", "bucket:1us,1,1"] {
            assert!(text.parse::<GateLaw>().is_err(), "{text}");
        }
    }
}
