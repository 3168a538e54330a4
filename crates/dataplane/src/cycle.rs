//! What repeats with the numbers of packets, without a division.

/// A cycle of some length: where in it a number is, and how often it went round before.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    len: u32,
    /// 2⁶⁴ / `len`, rounded up (Lemire et al., "Faster remainder by direct computation", 2019).
    inverse: u64,
}

impl Cycle {
    /// A cycle of `len` numbers, of which there is one at least.
    pub fn new(len: u32) -> Self {
        assert!(len > 0, "a cycle has a length");
        Self { len, inverse: (u64::MAX / u64::from(len)).wrapping_add(1) }
    }

    /// Where the number's lower 32 bits are in the cycle.
    #[inline(always)]
    pub fn place(self, number: u64) -> usize {
        let fraction = self.inverse.wrapping_mul(u64::from(number as u32));
        ((u128::from(fraction) * u128::from(self.len)) >> 64) as usize
    }

    /// How often the cycle ended before the number's lower 32 bits.
    #[inline(always)]
    pub fn laps(self, number: u64) -> u64 {
        if self.len == 1 {
            return u64::from(number as u32);
        }
        ((u128::from(self.inverse) * u128::from(number as u32)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_what_a_division_gives(len in prop_oneof![1..100_u32, 1..=u32::MAX], number: u32) {
            let cycle = Cycle::new(len);
            prop_assert_eq!(cycle.place(number.into()), (number % len) as usize);
            prop_assert_eq!(cycle.laps(number.into()), u64::from(number / len));
        }
    }
}
