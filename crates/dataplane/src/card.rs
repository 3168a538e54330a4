//! A network card that takes the times of packets by a clock of its own, which is read beside the clock that runs on.
//!
//! Times of the card are brought to that clock by a line that has no step: whenever the card's clock is read, the
//! slope changes so that the line meets it at the next reading. Differences of two times so stay those of the card.

use crate::error::Error;
use crate::wall::Wall;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// How long it waits between two readings.
const APART_NS: u64 = 500_000_000;
/// Between the two before the first packet, which give the first slope.
const FIRST_APART: Duration = Duration::from_millis(500);
/// Tries of a reading, of which the quickest counts.
const TRIES: u32 = 8;
/// What one reading adds to the card's rate, of what the line was off by.
const GAIN: f64 = 0.3;
/// A clock that is off by more was set.
const STEP_NS: f64 = 1_000_000.0;
/// A time may lie so far outside of where it has to be: a line that is off by less was not set.
const TOLERANCE_NS: u64 = STEP_NS as u64;
const NS_PER_S: i64 = 1_000_000_000;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_ns: u64,
    card_ns: i64,
    /// Between two readings of the one clock, with that of the other between them.
    width_ns: u64,
}

/// The line on which both clocks are, from its last point on.
#[derive(Clone, Copy, Debug)]
struct Line {
    at_ns: i64,
    card_ns: i64,
    /// What the clock that runs on gains on the card's, in parts of one: as known, and as the line has it.
    rate: f64,
    slope: f64,
}

impl Line {
    fn through(first: Reading, second: Reading) -> Self {
        let (at, card) = (second.at_ns - first.at_ns, second.card_ns - first.card_ns);
        let off = (at as i64 - card) as f64;
        // One that was set meanwhile tells no rate.
        let rate = if off.abs() > STEP_NS { 0.0 } else { off / card as f64 };
        Self { at_ns: second.at_ns as i64, card_ns: second.card_ns, rate, slope: rate }
    }

    /// The time that runs on, from the last point in ns.
    fn since(&self, card_ns: i64) -> f64 {
        let passed = (card_ns - self.card_ns) as f64;
        passed + passed * self.slope
    }

    /// Goes on to a reading; says what the line was off by there.
    fn meet(&mut self, reading: Reading) -> f64 {
        let since = self.since(reading.card_ns);
        let off = (reading.at_ns as i64 - self.at_ns) as f64 - since;
        if off.abs() > STEP_NS {
            (self.at_ns, self.card_ns) = (reading.at_ns as i64, reading.card_ns);
            self.slope = self.rate;
            return off;
        }
        let passed = (reading.card_ns - self.card_ns).max(1) as f64;
        self.rate += GAIN * off / passed;
        (self.at_ns, self.card_ns) = (self.at_ns + since.round() as i64, reading.card_ns);
        self.slope = self.rate + off / passed;
        off
    }
}

/// A card and its clock.
#[derive(Debug)]
pub struct Card {
    name: String,
    clock: File,
    line: Line,
    read_ns: u64,
    width_ns: u64,
    residual_ns: u64,
    readings: u64,
    steps: u64,
}

impl Card {
    /// Opens the clock by which a link's card takes times.
    pub fn open(link: &str, wall: &Wall) -> Result<Self, Error> {
        let failed = |source| Error::Card { link: link.into(), source };
        let number = clock_of(link).map_err(failed)?;
        let clock = File::open(Path::new("/dev").join(format!("ptp{number}"))).map_err(failed)?;
        let first = read(&clock, wall).map_err(failed)?;
        std::thread::sleep(FIRST_APART);
        let second = read(&clock, wall).map_err(failed)?;
        Ok(Self {
            name: link.into(),
            clock,
            line: Line::through(first, second),
            read_ns: second.at_ns,
            width_ns: first.width_ns.max(second.width_ns),
            residual_ns: 0,
            readings: 2,
            steps: 0,
        })
    }

    /// Its link.
    pub fn link(&self) -> &str {
        &self.name
    }

    /// Reads the clock once more if it is time to.
    pub fn keep_up(&mut self, wall: &Wall) {
        if wall.now().saturating_sub(self.read_ns) < APART_NS {
            return;
        }
        // A clock that cannot be read now is read later; its times are still those of the line.
        let Ok(reading) = read(&self.clock, wall) else { return };
        let off = self.line.meet(reading).abs();
        (self.read_ns, self.readings) = (reading.at_ns, self.readings + 1);
        if off > STEP_NS {
            self.steps += 1;
            return;
        }
        self.width_ns = self.width_ns.max(reading.width_ns);
        self.residual_ns = self.residual_ns.max(off as u64);
    }

    /// Brings a time of the card, taken within `between`, to the clock that runs on.
    pub fn place(&self, stamp_ns: u64, (since_ns, until_ns): (u64, u64)) -> Option<u64> {
        let ns = (self.line.at_ns + self.line.since(stamp_ns as i64).round() as i64) as u64;
        let between = since_ns.saturating_sub(TOLERANCE_NS)..=until_ns + TOLERANCE_NS;
        between.contains(&ns).then_some(ns)
    }

    /// How far a placed time may be off: what the line was off by, and half of what a reading took.
    pub fn error_ns(&self) -> u64 {
        self.residual_ns + self.width_ns.div_ceil(2)
    }

    /// What is known of its clock.
    pub fn told(&self) -> messages::CardClock {
        messages::CardClock {
            link: self.name.clone(),
            rate_ppb: (-self.line.rate * NS_PER_S as f64).round() as i64,
            residual_ns: self.residual_ns.into(),
            width_ns: self.width_ns.into(),
            readings: self.readings.into(),
            steps: self.steps.into(),
        }
    }
}

/// Reads the card's clock between two readings of the other, as closely as can be.
fn read(clock: &File, wall: &Wall) -> io::Result<Reading> {
    // `FD_TO_CLOCKID` of the kernel.
    let which = (!clock.as_raw_fd() << 3) | 3;
    let mut best: Option<Reading> = None;
    for _ in 0..TRIES {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let before = wall.now();
        // SAFETY: fills in a structure that outlives the call.
        let done = unsafe { libc::clock_gettime(which, &raw mut time) };
        let width_ns = wall.now() - before;
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let card_ns = time.tv_sec * NS_PER_S + time.tv_nsec;
        if best.is_none_or(|best| width_ns < best.width_ns) {
            best = Some(Reading { at_ns: before + width_ns / 2, card_ns, width_ns });
        }
    }
    best.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number of the clock by which a link takes times.
fn clock_of(link: &str) -> io::Result<i32> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const GET_TS_INFO: u32 = 0x41;
    // SAFETY: a structure of numbers.
    let mut request = unsafe { std::mem::zeroed::<libc::ifreq>() };
    if link.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    let mut offer = [0_u32; 11];
    offer[0] = GET_TS_INFO;
    request.ifr_ifru.ifru_data = offer.as_mut_ptr().cast();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: a request whose data outlive the call, and have the size that the kernel fills in.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    match offer[2] as i32 {
        number @ 0.. => Ok(number),
        _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card that leads by a second and gains 40 ppm, read to a microsecond.
    fn reading(at_ns: u64) -> Reading {
        let noise = (at_ns / 500_000_000 % 3) as i64 * 500 - 500;
        let card_ns = at_ns as i64 + NS_PER_S + at_ns as i64 / 25_000 + noise;
        Reading { at_ns, card_ns, width_ns: 1_000 }
    }

    #[test]
    fn a_clock_that_is_set_at_first_is_followed_all_the_same() {
        for set_ns in [-700_000_000, 37 * NS_PER_S] {
            let second = reading(500_000_000);
            let second = Reading { card_ns: second.card_ns + set_ns, ..second };
            let mut line = Line::through(reading(0), second);
            let third = reading(1_000_000_000);
            let third = Reading { card_ns: third.card_ns + set_ns, ..third };
            assert!(line.meet(third).abs() < 50_000.0);
        }
    }

    #[test]
    fn the_line_follows_the_card_without_a_step() {
        let mut line = Line::through(reading(0), reading(200_000_000));
        let mut off = 0.0;
        for at in 1..100 {
            let next = reading(200_000_000 + at * 500_000_000);
            let before = line.at_ns as f64 + line.since(next.card_ns);
            off = line.meet(next);
            assert!((line.at_ns as f64 + line.since(next.card_ns) - before).abs() < 1.0);
        }
        assert!(off.abs() < 3_000.0, "{off}");
        assert!((line.rate + 40e-6).abs() < 2e-6, "{}", line.rate);
        let moved = Reading { at_ns: 60_000_000_000, card_ns: 5, width_ns: 1 };
        assert!(line.meet(moved).abs() > STEP_NS && line.since(5) == 0.0);
    }
}
