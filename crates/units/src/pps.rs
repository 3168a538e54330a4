use crate::quantity::{Error, parse};
use std::fmt;
use std::str::FromStr;

/// A rate in packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pps(pub u64);

const RATE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("pps", 1),
    ("packets/s", 1),
    ("k", 1_000),
    ("kpps", 1_000),
    ("M", 1_000_000),
    ("Mpps", 1_000_000),
    ("G", 1_000_000_000),
    ("Gpps", 1_000_000_000),
];

impl fmt::Display for Pps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets/s", self.0)
    }
}

impl FromStr for Pps {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let expected =
            ("packet rate", "pps, k, M, G or nothing", "10k or 1Mpps", "packets per second");
        parse(text, RATE_UNITS, expected).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, pps) in [
            ("10k", 10_000),
            ("10kpps", 10_000),
            ("10 kpps", 10_000),
            ("1.5M", 1_500_000),
            ("1Mpps", 1_000_000),
            ("250", 250),
            ("250 pps", 250),
            ("1,488,095 packets/s", 1_488_095),
        ] {
            assert_eq!(text.parse(), Ok(Pps(pps)), "{text}");
        }
        for text in ["10 K", "1,0", "1,0000", ",100", "10,000.5,0", "1,,000", "10kbps"] {
            assert!(text.parse::<Pps>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_is_printed_as_it_can_be_read() {
        for pps in [0, 1, 10_000, u64::MAX] {
            assert_eq!(Pps(pps).to_string().parse(), Ok(Pps(pps)));
        }
    }
}
