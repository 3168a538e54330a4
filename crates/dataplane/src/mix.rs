//! Sizes of frames, and how many there are of each.

use std::fmt;
use std::str::FromStr;

/// The simple IMIX: 7 packets of 40 bytes, 4 of 576 and 1 of 1500, as the smallest, a middle and the
/// longest frame of Ethernet carry them.
const IMIX: [(usize, u32); 3] = [(64, 7), (594, 4), (1518, 1)];
/// Frames before a mix repeats, at most.
const MOST: u32 = 4096;

/// Sizes with weights. As text: `64`, `64:7,594:4,1518:1`, `imix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(usize, u32)>);

impl Mix {
    /// The sizes of successive frames, until they repeat: as many of each as its weight says, and spread
    /// as evenly as can be.
    pub fn cycle(&self) -> Vec<usize> {
        let Self(parts) = self;
        let divisor = parts.iter().fold(0, |found, (_, weight)| gcd(found, *weight));
        let weights: Vec<i64> = parts.iter().map(|(_, weight)| (weight / divisor).into()).collect();
        let total: i64 = weights.iter().sum();
        let mut credits = vec![0; weights.len()];
        let mut cycle = Vec::with_capacity(total as usize);
        for _ in 0..total {
            credits.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
            let next = (0..credits.len()).rev().max_by_key(|at| credits[*at]);
            let next = next.expect("a mix has a size");
            credits[next] -= total;
            cycle.push(parts[next].0);
        }
        cycle
    }
}

/// The greatest common divisor.
pub fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self(IMIX.to_vec()));
        }
        let wrong = || {
            format!("{text:?} is no size: expected bytes, imix, or a mix like 64:7,594:4,1518:1")
        };
        if let Ok(size) = text.parse() {
            return Ok(Self(vec![(size, 1)]));
        }
        let part = |part: &str| {
            let (size, weight) = part.split_once(':')?;
            Some((size.parse().ok()?, weight.parse().ok().filter(|weight| *weight > 0)?))
        };
        let parts = text.split(',').map(part).collect::<Option<Vec<(usize, u32)>>>();
        let parts = parts.ok_or_else(wrong)?;
        let divisor = parts.iter().fold(0, |found, (_, weight)| gcd(found, *weight));
        let total: u64 = parts.iter().map(|(_, weight)| u64::from(weight / divisor)).sum();
        if total > u64::from(MOST) {
            return Err(format!("{text:?} repeats after {total} frames: expected at most {MOST}"));
        }
        Ok(Self(parts))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [(size, _)] => write!(f, "{size}"),
            parts => {
                let all: Vec<_> = parts.iter().map(|(size, n)| format!("{size}:{n}")).collect();
                f.write_str(&all.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cycle_has_each_size_as_often_as_its_weight_says(
            parts in prop::collection::btree_map(64..=1518_usize, 1..40_u32, 1..6),
        ) {
            let text: Vec<_> = parts.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
            let mix: Mix = text.join(",").parse().unwrap();
            let cycle = mix.cycle();
            let total: u32 = parts.values().sum();
            for (size, weight) in &parts {
                let times = cycle.iter().filter(|found| *found == size).count() as u64;
                prop_assert_eq!(times * u64::from(total), cycle.len() as u64 * u64::from(*weight));
                // No stretch has one frame more or less than its share.
                let share = f64::from(*weight) / f64::from(total);
                let mut sent = 0.0;
                for (at, found) in cycle.iter().enumerate() {
                    sent += f64::from(u8::from(found == size));
                    prop_assert!((sent - share * (at + 1) as f64).abs() < parts.len() as f64);
                }
            }
        }
    }

    #[test]
    fn a_mix_is_read_as_it_is_written() {
        let cycle = |text: &str| text.parse::<Mix>().unwrap().cycle();
        assert_eq!(cycle("128"), [128]);
        assert_eq!(cycle("imix"), cycle("64:7,594:4,1518:1"));
        assert_eq!(cycle("64:20,100:10"), [64, 100, 64]);
        assert_eq!("imix".parse::<Mix>().unwrap().to_string(), "64:7,594:4,1518:1");
        assert_eq!("96:3".parse::<Mix>().unwrap().to_string(), "96");
        for wrong in ["", "small", "64:0", "64:", "64:1,", "64,128", "64:4000,65:97"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
