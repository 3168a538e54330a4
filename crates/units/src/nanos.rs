use crate::quantity::{Error, parse};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

/// A point in time or a duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Nanos(pub u64);

const DURATION_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("nsec", 1),
    ("us", 1_000),
    ("usec", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("second", 1_000_000_000),
    ("seconds", 1_000_000_000),
    ("min", 60_000_000_000),
    ("minute", 60_000_000_000),
    ("minutes", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("hour", 3_600_000_000_000),
    ("hours", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("day", 86_400_000_000_000),
    ("days", 86_400_000_000_000),
];

impl Nanos {
    /// Returns the number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the sum, or `None` where it does not fit.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(ns) => Some(Self(ns)),
            None => None,
        }
    }

    /// Returns the difference, or `None` where `other` is later.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(ns) => Some(Self(ns)),
            None => None,
        }
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Nanos {
    /// Returns the largest unit in which the value is a whole number: `5ms`, `1500us`, `3137ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
            .into_iter()
            .find(|(_, scale)| self.0 != 0 && self.0 % scale == 0)
            .unwrap_or(("ns", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl FromStr for Nanos {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let expected = ("duration", "ns, us, ms, s, min, h, d", "5ms", "nanoseconds");
        parse(text, DURATION_UNITS, expected).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ns) in [
            ("1s", 1_000_000_000),
            ("100ns", 100),
            ("5ms", 5_000_000),
            ("1.5us", 1_500),
            ("2 min", 120_000_000_000),
            ("0.000000001s", 1),
            ("12.50µs", 12_500),
            ("3 \u{3bc}s", 3_000),
            ("500usec", 500_000),
            ("0.5 ms", 500_000),
            ("10 sec", 10_000_000_000),
            ("1,500 ms", 1_500_000_000),
            ("2.0 days", 172_800_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_named() {
        for text in
            ["", "5", "s", "-1s", "1 fortnight", "1.s", "1..5s", ".5s", "0x5s", "1e3ns", "1,5s"]
        {
            assert!(matches!(text.parse::<Nanos>(), Err(Error::Unit { .. })), "{text}");
        }
        assert!(matches!("0.5ns".parse::<Nanos>(), Err(Error::Fraction { .. })));
        assert!(matches!("99999999999h".parse::<Nanos>(), Err(Error::Range { .. })));
        assert!(matches!("99999999999999999999ns".parse::<Nanos>(), Err(Error::Range { .. })));
    }

    #[test]
    fn a_duration_is_printed_as_it_can_be_read() {
        for ns in [0, 1, 999, 1_000, 3_137, 5_000_000, 1_000_000_000, u64::MAX] {
            assert_eq!(Nanos(ns).to_string().parse(), Ok(Nanos(ns)));
        }
        assert_eq!(Nanos(1_500_000).to_string(), "1500us");
    }
}
