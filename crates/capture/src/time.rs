//! Units of time and their exact conversion to nanoseconds.

use std::fmt;

use units::Nanos;

/// The unit in which a capture counts time: a power of ten or of two, as part of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    base: u8,
    exponent: u8,
}

impl Resolution {
    /// Returns the unit, in ns.
    #[must_use]
    pub fn step_ns(self) -> f64 {
        1e9 / self.units_per_second() as f64
    }

    /// One microsecond.
    pub const MICRO: Self = Self { base: 10, exponent: 6 };
    /// One nanosecond.
    pub const NANO: Self = Self { base: 10, exponent: 9 };

    /// Returns what the byte of the pcapng option `if_tsresol` means; `None` where a second has
    /// more units than 64 bits can count.
    pub(crate) fn from_tsresol(byte: u8) -> Option<Self> {
        Self::new(if byte & 0x80 == 0 { 10 } else { 2 }, byte & 0x7f)
    }

    /// Returns `base`, which is 10 or 2, to the power of minus `exponent`, in seconds; `None` where
    /// it is neither, or a second has more units than 64 bits can count.
    #[must_use]
    pub fn new(base: u8, exponent: u8) -> Option<Self> {
        u64::from(base).checked_pow(u32::from(exponent))?;
        matches!(base, 2 | 10).then_some(Self { base, exponent })
    }

    /// Returns 10 or 2: the unit is `base` to the power of minus `exponent`, in seconds.
    #[must_use]
    pub const fn base(self) -> u8 {
        self.base
    }

    /// Returns how often a second is divided by `base`.
    #[must_use]
    pub const fn exponent(self) -> u8 {
        self.exponent
    }

    /// Returns the longer one of two units.
    pub(crate) fn coarser(self, other: Self) -> Self {
        if self.units_per_second() <= other.units_per_second() { self } else { other }
    }

    /// Returns how many units make a second.
    #[must_use]
    pub const fn units_per_second(self) -> u64 {
        (self.base as u64).pow(self.exponent as u32)
    }
}

impl fmt::Display for Resolution {
    /// Returns `1 ns`, `100 us`, `2^-20 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["s", "ms", "us", "ns", "ps", "fs", "as"];
        let thousands = usize::from(self.exponent).div_ceil(3);
        match UNITS.get(thousands) {
            Some(unit) if self.base == 10 => {
                write!(f, "{} {unit}", 10u32.pow(3 * thousands as u32 - u32::from(self.exponent)))
            }
            _ => write!(f, "{}^-{} s", self.base, self.exponent),
        }
    }
}

/// Converts one interface's timestamps to nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub resolution: Resolution,
    pub offset_s: i64,
    scale: Scale,
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    Multiply(u64),
    Divide(u64),
    Shift(u8),
}

impl Clock {
    pub fn new(resolution: Resolution, offset_s: i64) -> Self {
        let scale = match (resolution.base, resolution.exponent) {
            (10, decimals @ 0..=9) => Scale::Multiply(10u64.pow(u32::from(9 - decimals))),
            (10, decimals) => Scale::Divide(10u64.pow(u32::from(decimals - 9))),
            (_, bits) => Scale::Shift(bits),
        };
        Self { resolution, offset_s, scale }
    }

    /// Returns the time rounded down to a nanosecond, or `None` where it is outside of what `Nanos`
    /// holds.
    ///
    /// Rounding down moves every time by less than 1 ns and never turns the order of two around.
    #[inline]
    pub fn nanos(&self, ticks: u64) -> Option<Nanos> {
        let ns = match self.scale {
            Scale::Multiply(factor) => u128::from(ticks) * u128::from(factor),
            Scale::Divide(divisor) => u128::from(ticks / divisor),
            Scale::Shift(bits) => (u128::from(ticks) * 1_000_000_000) >> bits,
        };
        // Below 2^64 · 10^9 < 2^94, and an offset below 2^63 · 10^9 < 2^93: the sum fits.
        let ns = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(ns).ok().map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(tsresol: u8, offset_s: i64, ticks: u64) -> Option<u64> {
        let resolution = Resolution::from_tsresol(tsresol).expect("a known resolution");
        Clock::new(resolution, offset_s).nanos(ticks).map(Nanos::get)
    }

    #[test]
    fn decimal_units_are_exact() {
        assert_eq!(nanos(0, 0, 7), Some(7_000_000_000));
        assert_eq!(nanos(6, 0, 1_600_000_000_123_456), Some(1_600_000_000_123_456_000));
        assert_eq!(nanos(9, 0, u64::MAX), Some(u64::MAX));
        assert_eq!(nanos(10, 0, 19), Some(1));
        assert_eq!(nanos(12, 0, 1_999), Some(1));
        assert_eq!(nanos(19, 0, u64::MAX), Some(1_844_674_407));
    }

    #[test]
    fn binary_units_are_rounded_down() {
        assert_eq!(nanos(0x80, 0, 3), Some(3_000_000_000));
        assert_eq!(nanos(0x81, 0, 3), Some(1_500_000_000));
        // 2^-30 s is 0.93 ns, 2^-32 s is 0.23 ns.
        assert_eq!(
            (0..5).map(|t| nanos(0x9e, 0, t)).collect::<Vec<_>>(),
            [0, 0, 1, 2, 3].map(Some)
        );
        assert_eq!(nanos(0xa0, 0, u64::MAX), Some(4_294_967_295_999_999_999));
        assert_eq!(nanos(0xbf, 0, u64::MAX), Some(1_999_999_999));
    }

    #[test]
    fn every_resolution_agrees_with_plain_arithmetic() {
        for byte in 0..=u8::MAX {
            let Some(resolution) = Resolution::from_tsresol(byte) else { continue };
            for ticks in [0, 1, 999, 1 << 30, 1_700_000_000_123_456_789, u64::MAX] {
                let units = u128::from(resolution.units_per_second());
                let expected = u128::from(ticks) * 1_000_000_000 / units;
                assert_eq!(
                    nanos(byte, 0, ticks),
                    u64::try_from(expected).ok(),
                    "{byte:#x} {ticks}"
                );
            }
        }
    }

    #[test]
    fn offsets_are_signed_seconds() {
        assert_eq!(nanos(9, 2, 5), Some(2_000_000_005));
        assert_eq!(nanos(9, -1, 1_000_000_005), Some(5));
        assert_eq!(nanos(9, -2, 1_999_999_999), None);
        assert_eq!(nanos(0, i64::MIN, u64::MAX), None);
        assert_eq!(nanos(0, i64::MAX, u64::MAX), None);
        assert_eq!(nanos(6, -1_700_000_000, 1_700_000_000_000_001), Some(1_000));
    }

    #[test]
    fn absurd_resolutions_are_refused() {
        let refused = |byte| Resolution::from_tsresol(byte).is_none();
        assert!((0x14..=0x7f).all(refused));
        assert!((0xc0..=0xff).all(refused));
        assert!(!(0..=0x13).any(refused));
        assert!(!(0x80..=0xbf).any(refused));
    }

    #[test]
    fn resolutions_are_printed_in_units_that_people_use() {
        let texts =
            [(0, "1 s"), (1, "100 ms"), (6, "1 us"), (7, "100 ns"), (9, "1 ns"), (18, "1 as")];
        for (byte, text) in texts.into_iter().chain([(19, "10^-19 s"), (0x94, "2^-20 s")]) {
            assert_eq!(Resolution::from_tsresol(byte).map(|r| r.to_string()), Some(text.into()));
        }
    }
}
