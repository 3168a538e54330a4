//! A clock that goes ahead of another one by an amount that changes over time.

use crate::nanos::Nanos;

/// The lead of a clock over another, known at some of its times and interpolated in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Times of that clock, in order, and by how many ns it is ahead then.
    knots: Vec<(Nanos, i64)>,
}

impl Ahead {
    /// Returns a clock that is ahead by so many ns at these times of its own. `None` without any,
    /// and if they are not in order.
    #[must_use]
    pub fn new(knots: Vec<(Nanos, i64)>) -> Option<Self> {
        let ordered = knots.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (ordered && !knots.is_empty()).then_some(Self { knots })
    }

    /// Returns what the other clock shows when this one shows `time`. Before the first known time,
    /// and behind the last, it goes on as in the piece next to it.
    #[must_use]
    pub fn undo(&self, time: Nanos) -> Nanos {
        let [first, .., last] = self.knots[..] else {
            return less(time, self.knots[0].1.into());
        };
        let above = self.knots.partition_point(|knot| knot.0 <= time);
        let (from, to) = match above {
            0 => (first, self.knots[1]),
            _ if above == self.knots.len() => (self.knots[above - 2], last),
            _ => (self.knots[above - 1], self.knots[above]),
        };
        let passed = i128::from(time.0) - i128::from(from.0.0);
        let rise = i128::from(to.1) - i128::from(from.1);
        let ahead = i128::from(from.1) + (passed * rise).div_euclid((to.0.0 - from.0.0).into());
        less(time, ahead)
    }
}

fn less(time: Nanos, ahead: i128) -> Nanos {
    Nanos((i128::from(time.0) - ahead).clamp(0, u64::MAX.into()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(knots: &[(u64, i64)]) -> Ahead {
        Ahead::new(knots.iter().map(|knot| (Nanos(knot.0), knot.1)).collect()).expect("in order")
    }

    #[test]
    fn one_knot_is_an_offset() {
        let clock = ahead(&[(500, 40)]);
        assert_eq!([0, 500, 1000].map(|ns| clock.undo(Nanos(ns)).0), [0, 460, 960]);
        assert_eq!(ahead(&[(500, -40)]).undo(Nanos(7)), Nanos(47));
    }

    #[test]
    fn it_is_straight_between_knots_and_goes_on_behind_them() {
        let clock = ahead(&[(1000, 0), (2000, 100), (4000, -100)]);
        let times = [500, 1000, 1500, 2000, 3000, 4000, 5000];
        let other = [550, 1000, 1450, 1900, 3000, 4100, 5200];
        assert_eq!(times.map(|ns| clock.undo(Nanos(ns)).0), other);
    }

    #[test]
    fn times_far_from_any_epoch_are_exact() {
        let start = 1_800_000_000_000_000_000;
        let clock = ahead(&[(start, 5_000_000), (start + 10_000_000_000, 5_300_000)]);
        assert_eq!(clock.undo(Nanos(start + 5_000_000_000)), Nanos(start + 4_994_850_000));
    }

    #[test]
    fn knots_are_in_order() {
        assert_eq!(Ahead::new(Vec::new()), None);
        assert_eq!(Ahead::new(vec![(Nanos(2), 0), (Nanos(2), 1)]), None);
    }
}
