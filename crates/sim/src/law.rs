//! Laws of the time that an idle device takes for a packet.

use crate::error::Error;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;
use units::Nanos;

/// No single duration in a scenario is longer: a day. Samples beyond it are held to it.
pub(crate) const LONGEST_NS: u64 = 86_400_000_000_000;

/// The law of a latency. As text: `constant:3us`, `uniform:1us,5us`, `lognormal:3137ns,0.1`,
/// `bimodal:3us,10us,0.01,0.1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Constant {
        /// The latency.
        ns: u64,
    },
    /// Every nanosecond from `low_ns` to `high_ns` as often as any other.
    Uniform {
        /// The smallest.
        low_ns: u64,
        /// The largest.
        high_ns: u64,
    },
    /// The logarithm is normal.
    LogNormal {
        /// The median.
        median_ns: u64,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    /// Two lognormal laws of the same spread, of which one holds.
    Bimodal {
        /// The median of the usual one.
        low_ns: u64,
        /// The median of the other one.
        high_ns: u64,
        /// Probability of the other one.
        high_probability: f64,
        /// The standard deviation of the logarithm, of both.
        sigma: f64,
    },
}

impl Law {
    #[inline]
    pub(crate) fn sample(self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Self::Constant { ns } => ns,
            Self::Uniform { low_ns, high_ns } => random.random_range(low_ns..=high_ns),
            Self::LogNormal { median_ns, sigma } => lognormal(median_ns, sigma, random),
            Self::Bimodal { low_ns, high_ns, high_probability, sigma } => {
                let high = random.random::<f64>() < high_probability;
                lognormal(if high { high_ns } else { low_ns }, sigma, random)
            }
        }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let (times_ns, probability, sigma) = match self {
            Self::Constant { ns } => ([ns, ns], 0.0, 0.0),
            Self::Uniform { low_ns, high_ns } => ([low_ns, high_ns], 0.0, 0.0),
            Self::LogNormal { median_ns, sigma } => ([median_ns, median_ns], 0.0, sigma),
            Self::Bimodal { low_ns, high_ns, high_probability, sigma } => {
                ([low_ns, high_ns], high_probability, sigma)
            }
        };
        let holds = times_ns[0] <= times_ns[1]
            && times_ns[1] <= LONGEST_NS
            && (0.0..=1.0).contains(&probability)
            && (0.0..=10.0).contains(&sigma);
        holds.then_some(()).ok_or_else(|| Error::Scenario {
            field: "latency",
            got: self.to_string(),
            expected: "LOW <= HIGH <= 24h, a probability within 0 to 1, SIGMA within 0 to 10"
                .into(),
        })
    }
}

fn lognormal(median_ns: u64, sigma: f64, random: &mut Xoshiro256PlusPlus) -> u64 {
    let factor = libm::exp(sigma * normal(random));
    ((median_ns as f64 * factor + 0.5) as u64).min(LONGEST_NS)
}

/// Returns a normal number by Box and Muller's method. Not the fastest, but the same bits
/// everywhere.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - random.random::<f64>())).sqrt();
    radius * libm::cos(TAU * random.random::<f64>())
}

impl FromStr for Law {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = || Error::Law { got: text.into() };
        let (name, values) = text.split_once(':').ok_or_else(error)?;
        let values: Vec<_> = values.split(',').collect();
        let ns = |text: &str| text.parse().map(Nanos::get).map_err(|_| error());
        let number = |text: &str| text.parse().map_err(|_| error());
        Ok(match (name, &values[..]) {
            ("constant", [time]) => Self::Constant { ns: ns(time)? },
            ("uniform", [low, high]) => Self::Uniform { low_ns: ns(low)?, high_ns: ns(high)? },
            ("lognormal", [median, sigma]) => {
                Self::LogNormal { median_ns: ns(median)?, sigma: number(sigma)? }
            }
            ("bimodal", [low, high, probability, sigma]) => Self::Bimodal {
                low_ns: ns(low)?,
                high_ns: ns(high)?,
                high_probability: number(probability)?,
                sigma: number(sigma)?,
            },
            _ => return Err(error()),
        })
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Constant { ns } => write!(f, "constant:{}", Nanos(ns)),
            Self::Uniform { low_ns, high_ns } => {
                write!(f, "uniform:{},{}", Nanos(low_ns), Nanos(high_ns))
            }
            Self::LogNormal { median_ns, sigma } => {
                write!(f, "lognormal:{},{sigma}", Nanos(median_ns))
            }
            Self::Bimodal { low_ns, high_ns, high_probability, sigma } => {
                let (low, high) = (Nanos(low_ns), Nanos(high_ns));
                write!(f, "bimodal:{low},{high},{high_probability},{sigma}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const COUNT: usize = 200_000;

    fn sorted(law: Law) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut samples: Vec<_> = (0..COUNT).map(|_| law.sample(&mut random)).collect();
        samples.sort_unstable();
        samples.into_iter().map(|ns| ns as f64).collect()
    }

    /// Holds the share of samples at or below `x` against `expected`, within 4 standard errors.
    fn assert_share(samples: &[f64], x: f64, expected: f64) {
        let share = samples.partition_point(|sample| *sample <= x) as f64 / COUNT as f64;
        let error = (expected * (1.0 - expected) / COUNT as f64).sqrt();
        assert!((share - expected).abs() <= 4.0 * error, "{share} at {x}, expected {expected}");
    }

    /// Quantiles of the standard normal law, and the share below each.
    const NORMAL: [(f64, f64); 5] =
        [(-2.326_348, 0.01), (-0.674_490, 0.25), (0.0, 0.5), (1.281_552, 0.9), (3.090_232, 0.999)];

    #[test]
    fn a_constant_is_constant() {
        let samples = sorted(Law::Constant { ns: 3_137 });
        assert_eq!((samples[0], samples[COUNT - 1]), (3_137.0, 3_137.0));
    }

    #[test]
    fn uniform_has_its_bounds_and_moments() {
        let samples = sorted(Law::Uniform { low_ns: 1_000, high_ns: 1_999 });
        assert_eq!((samples[0], samples[COUNT - 1]), (1_000.0, 1_999.0));
        let mean = samples.iter().sum::<f64>() / COUNT as f64;
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / COUNT as f64;
        assert!((mean - 1_499.5).abs() < 4.0 * (83_333.25 / COUNT as f64).sqrt(), "{mean}");
        assert!((variance / 83_333.25 - 1.0).abs() < 0.01, "{variance}");
        assert_share(&samples, 1_099.0, 0.1);
    }

    #[test]
    fn lognormal_has_its_quantiles() {
        let samples = sorted(Law::LogNormal { median_ns: 1_000_000_000, sigma: 0.5 });
        for (z, share) in NORMAL {
            assert_share(&samples, 1e9 * (0.5 * z).exp(), share);
        }
        let mean = samples.iter().sum::<f64>() / COUNT as f64;
        assert!((mean / (1e9 * 0.125f64.exp()) - 1.0).abs() < 0.005, "{mean}");
    }

    #[test]
    fn bimodal_mixes_two_laws() {
        let (low_ns, high_ns) = (1_000_000, 1_000_000_000);
        let samples = sorted(Law::Bimodal { low_ns, high_ns, high_probability: 0.2, sigma: 0.1 });
        assert_share(&samples, 30_000_000.0, 0.8);
        for (z, share) in NORMAL {
            assert_share(&samples, 1e6 * (0.1 * z).exp(), 0.8 * share);
            assert_share(&samples, 1e9 * (0.1 * z).exp(), 0.8 + 0.2 * share);
        }
    }

    #[test]
    fn a_sample_is_never_longer_than_a_day() {
        let samples = sorted(Law::LogNormal { median_ns: LONGEST_NS, sigma: 10.0 });
        assert_eq!(samples[COUNT - 1], LONGEST_NS as f64);
    }

    #[test]
    fn a_law_is_read_as_it_is_written() {
        for text in
            ["constant:3us", "uniform:0ns,5us", "lognormal:3137ns,0.25", "bimodal:3us,1ms,0.01,0"]
        {
            let law: Law = text.parse().unwrap();
            assert_eq!(law.to_string(), text);
            assert!(law.check().is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_law_is_refused() {
        for text in ["", "constant", "constant:3", "uniform:1us", "normal:1us,2", "constant:1s,2s"]
        {
            assert!(matches!(text.parse::<Law>(), Err(Error::Law { got }) if got == text));
        }
        for text in [
            "uniform:2us,1us",
            "constant:25h",
            "lognormal:1us,-1",
            "lognormal:1us,NaN",
            "bimodal:1us,2us,1.5,0",
        ] {
            assert!(text.parse::<Law>().unwrap().check().is_err(), "{text}");
        }
    }
}
