//! Newtypes for the quantities that must not mix.
//!
//! Time is integer nanoseconds, never floating point; a rate is whole packets per second. Both are
//! parsed here, once, from the way people write them: `1s`, `5ms`, `100ns`, `10k`, `1.5M`.

mod clock;

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

pub use clock::Clock;

/// A point in time or a duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Nanos(pub u64);

/// A rate in packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pps(pub u64);

/// Text that is not a quantity of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a number followed by one of the known units.
    #[error("{got:?} is not a {what}: expected a number and one of {units}, like {example}")]
    Unit {
        /// The text as given.
        got: String,
        /// What it should have been.
        what: &'static str,
        /// The units that are known.
        units: &'static str,
        /// A correct value.
        example: &'static str,
    },
    /// The number has more decimals than the quantity can hold.
    #[error("{got:?} is not a whole number of {unit}")]
    Fraction {
        /// The text as given.
        got: String,
        /// The smallest unit.
        unit: &'static str,
    },
    /// The number is too large.
    #[error("{got:?} is too large: at most {max} {unit}")]
    Range {
        /// The text as given.
        got: String,
        /// The largest value.
        max: u64,
        /// Its unit.
        unit: &'static str,
    },
}

const DURATION_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const RATE_UNITS: &[(&str, u64)] = &[("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

impl Nanos {
    /// The number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum, or `None` where it does not fit.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(ns) => Some(Self(ns)),
            None => None,
        }
    }

    /// The difference, or `None` where `other` is later.
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
    /// The largest unit in which the value is a whole number: `5ms`, `1500us`, `3137ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
            .into_iter()
            .find(|(_, scale)| self.0 != 0 && self.0 % scale == 0)
            .unwrap_or(("ns", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl fmt::Display for Pps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets/s", self.0)
    }
}

impl FromStr for Nanos {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let expected = ("duration", "ns, us, ms, s, min, h", "5ms", "nanoseconds");
        parse(text, DURATION_UNITS, expected).map(Self)
    }
}

impl FromStr for Pps {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let expected = ("packet rate", "k, M, G or nothing", "10k", "packets per second");
        parse(text, RATE_UNITS, expected).map(Self)
    }
}

type Expected = (&'static str, &'static str, &'static str, &'static str);

fn parse(text: &str, units: &[(&str, u64)], expected: Expected) -> Result<u64, Error> {
    let (what, names, example, smallest) = expected;
    let unit_error = || Error::Unit { got: text.into(), what, units: names, example };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let &(_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or_else(unit_error)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || decimals.contains('.') || (number.contains('.') && decimals.is_empty()) {
        return Err(unit_error());
    }
    let range = || Error::Range { got: text.into(), max: u64::MAX, unit: smallest };
    let whole = whole.parse::<u64>().map_err(|_| range())?.checked_mul(scale).ok_or_else(range)?;
    let part = fraction(decimals, scale)
        .ok_or_else(|| Error::Fraction { got: text.into(), unit: smallest })?;
    whole.checked_add(part).ok_or_else(range)
}

/// `0.decimals · scale`, if that is a whole number.
fn fraction(decimals: &str, scale: u64) -> Option<u64> {
    let mut left = u128::from(scale);
    let mut sum = 0u128;
    for digit in decimals.trim_end_matches('0').bytes() {
        if left % 10 != 0 {
            return None;
        }
        left /= 10;
        sum += u128::from(digit - b'0') * left;
    }
    u64::try_from(sum).ok()
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
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_named() {
        for text in ["", "5", "s", "-1s", "1 fortnight", "1.s", "1..5s", ".5s", "0x5s", "1e3ns"] {
            assert!(matches!(text.parse::<Nanos>(), Err(Error::Unit { .. })), "{text}");
        }
        assert!(matches!("0.5ns".parse::<Nanos>(), Err(Error::Fraction { .. })));
        assert!(matches!("99999999999h".parse::<Nanos>(), Err(Error::Range { .. })));
        assert!(matches!("99999999999999999999ns".parse::<Nanos>(), Err(Error::Range { .. })));
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, pps) in [("10k", 10_000), ("1.5M", 1_500_000), ("250", 250)] {
            assert_eq!(text.parse(), Ok(Pps(pps)), "{text}");
        }
        assert!("10 kpps".parse::<Pps>().is_err());
    }

    #[test]
    fn a_duration_is_printed_as_it_can_be_read() {
        for ns in [0, 1, 999, 1_000, 3_137, 5_000_000, 1_000_000_000, u64::MAX] {
            assert_eq!(Nanos(ns).to_string().parse(), Ok(Nanos(ns)));
        }
        assert_eq!(Nanos(1_500_000).to_string(), "1500us");
    }
}
