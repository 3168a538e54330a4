use crate::quantity::{Error, parse};
use std::fmt;
use std::str::FromStr;

/// A rate in packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pps(pub u64);

const RATE_UNITS: &[(&str, u64)] = &[("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

impl fmt::Display for Pps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets/s", self.0)
    }
}

impl FromStr for Pps {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let expected = ("packet rate", "k, M, G or nothing", "10k", "packets per second");
        parse(text, RATE_UNITS, expected).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, pps) in [("10k", 10_000), ("1.5M", 1_500_000), ("250", 250)] {
            assert_eq!(text.parse(), Ok(Pps(pps)), "{text}");
        }
        assert!("10 kpps".parse::<Pps>().is_err());
    }
}
