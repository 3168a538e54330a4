//! Laws of delay: how long a packet is held.

use crate::error::Error;
use crate::ticks::Ticks;
use crate::values::time;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use units::Nanos;

/// Draws before they repeat: a power of two, small enough for the second-level cache.
const DRAWS: usize = 1 << 16;

/// How delays are distributed. As text: `fixed:20us`, `uniform:1us,9us`, `bimodal:1us,1ms,0.001`,
/// `file:PATH` with a delay a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Fixed(Nanos),
    /// Anything between two values.
    Uniform(Nanos, Nanos),
    /// The first, or the second with this probability.
    Bimodal(Nanos, Nanos, f64),
    /// Any of the lines of a file.
    File(PathBuf),
}

impl Law {
    /// The longest delay; None if a file has it.
    pub fn longest(&self) -> Option<Nanos> {
        match *self {
            Self::Fixed(one) => Some(one),
            Self::Uniform(_, high) => Some(high),
            Self::Bimodal(one, other, _) => Some(one.max(other)),
            Self::File(_) => None,
        }
    }
}

impl FromStr for Law {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no law: expected fixed:TIME, uniform:TIME,TIME, bimodal:TIME,TIME,P or \
                 file:PATH, like fixed:20us"
            )
        };
        let (name, values) = text.split_once(':').ok_or_else(wrong)?;
        let parts: Vec<&str> = values.split(',').collect();
        match (name, parts.as_slice()) {
            ("fixed", [one]) => Ok(Self::Fixed(time(one)?)),
            ("uniform", [low, high]) => {
                let (low, high) = (time(low)?, time(high)?);
                if low > high { Err(wrong()) } else { Ok(Self::Uniform(low, high)) }
            }
            ("bimodal", [one, other, share]) => {
                let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                Ok(Self::Bimodal(time(one)?, time(other)?, share.ok_or_else(wrong)?))
            }
            ("file", _) if !values.is_empty() => Ok(Self::File(values.into())),
            _ => Err(wrong()),
        }
    }
}

/// Delays in ticks, drawn beforehand: the loop only looks them up, in a circle.
#[derive(Debug)]
pub struct Delays {
    drawn: Vec<u64>,
    next: usize,
}

impl Delays {
    /// Draws from `law`.
    pub fn draw(law: &Law, seed: u64, ticks: Ticks) -> Result<Self, Error> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let many = |mut one: Box<dyn FnMut() -> Nanos + '_>| (0..DRAWS).map(|_| one()).collect();
        let drawn: Vec<Nanos> = match law {
            Law::Fixed(delay) => vec![*delay],
            Law::Uniform(low, high) => {
                many(Box::new(|| Nanos(random.random_range(low.0..=high.0))))
            }
            Law::Bimodal(one, other, share) => {
                many(Box::new(|| if random.random_bool(*share) { *other } else { *one }))
            }
            Law::File(path) => {
                let lines = read(path)?;
                many(Box::new(|| lines[random.random_range(0..lines.len())]))
            }
        };
        Ok(Self { drawn: drawn.into_iter().map(|delay| ticks.ticks(delay)).collect(), next: 0 })
    }

    /// The next delay in ticks.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        let delay = self.drawn[self.next];
        self.next = if self.next + 1 == self.drawn.len() { 0 } else { self.next + 1 };
        delay
    }
}

fn read(path: &Path) -> Result<Vec<Nanos>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::File { path: path.into(), source })?;
    let wrong = |line: usize, got: &str| Error::Line {
        path: path.into(),
        line: line + 1,
        got: got.into(),
        expected: "a delay, like 20us",
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let delays: Vec<_> = lines
        .map(|(at, line)| time(line.trim()).map_err(|_| wrong(at, line)))
        .collect::<Result<_, _>>()?;
    if delays.is_empty() { Err(wrong(0, "")) } else { Ok(delays) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Clock;

    fn drawn(law: &Law) -> Vec<u64> {
        let ticks = Ticks::new(Clock { tsc_hz: 1_000_000_000, tsc: 0, unix_ns: 0 });
        let mut delays = Delays::draw(law, 1, ticks).unwrap();
        (0..DRAWS).map(|_| delays.next()).collect()
    }

    #[test]
    fn draws_follow_the_law() {
        assert!(drawn(&"fixed:20us".parse().unwrap()).iter().all(|ns| *ns == 20_000));
        let uniform = drawn(&"uniform:1us,3us".parse().unwrap());
        let mean = uniform.iter().sum::<u64>() as f64 / DRAWS as f64;
        assert!(uniform.iter().all(|ns| (1_000..=3_000).contains(ns)));
        // Six standard errors.
        assert!((mean - 2_000.0).abs() < 6.0 * 577.4 / (DRAWS as f64).sqrt(), "mean {mean}");
        let bimodal = drawn(&"bimodal:1us,1ms,0.25".parse().unwrap());
        let share = bimodal.iter().filter(|ns| **ns == 1_000_000).count() as f64 / DRAWS as f64;
        assert!((share - 0.25).abs() < 6.0 * (0.1875 / DRAWS as f64).sqrt(), "share {share}");
    }

    #[test]
    fn a_file_holds_a_delay_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delays");
        std::fs::write(&path, "1us\n\n 7us \n").unwrap();
        let found = drawn(&Law::File(path.clone()));
        assert!(found.iter().all(|ns| [1_000, 7_000].contains(ns)) && found.contains(&7_000));
        for (content, expected) in [("1us\nsoon\n", ":2: got \"soon\""), ("", ":1: got \"\"")] {
            std::fs::write(&path, content).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn what_is_no_law_is_refused() {
        for text in
            ["", "fixed", "fixed:", "fixed:20", "uniform:2us,1us", "bimodal:1us,2us,1.5", "file:"]
        {
            assert!(text.parse::<Law>().is_err(), "{text}");
        }
    }
}
