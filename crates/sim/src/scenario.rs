//! Scenarios of a simulation.

use crate::clock::Clock;
use crate::device::Stalls;
use crate::error::Error;
use crate::frames::{MAX_FLOWS, Rewrite, Shape};
use crate::law::{LONGEST_NS, Law};
use probe::schedule::Pattern;
use serde::{Serialize, Serializer};
use std::fmt::Display;
use std::ops::RangeInclusive;
use units::Pps;

/// A month: the longest a scenario may last.
const LONGEST_SCENARIO_S: u64 = 30 * 86_400;
const MAX_FRAME_BYTES: u32 = 16_384;
const MAX_BATCH: u32 = 1 << 16;
const MAX_SNAPLEN: u32 = 262_144;

/// Everything that decides what both captures hold. Probabilities are per packet and independent
/// of each other; changing one leaves the departures, what the laws draw and the other mishaps as
/// they are.
///
/// The default is 10 s of DNS-like packets at 10 kpps through a forwarder on an otherwise quiet
/// core, shaped after noms2020 (§V and Table II, DPDK-l2fwd): a median of 3.1 µs, and timer
/// interrupts every 4.0002 ms, each third longer, that make its tail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Decides everything that is random.
    pub seed: u64,
    /// Packets before the device.
    pub packets: u64,
    /// Their mean rate.
    pub rate_pps: u64,
    /// Spacing of their departures.
    #[serde(serialize_with = "as_text")]
    pub pattern: Pattern,
    /// Length of a frame with its checksum, as on the wire; captures hold 4 bytes less.
    pub frame_bytes: u32,
    /// The identifier in an 802.1Q tag, where there is one.
    pub vlan: Option<u16>,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// UDP flows, which differ by their source port.
    pub flows: u32,
    /// The timestamp of the first departure, in ns since 1970.
    pub start_ns: u64,

    /// Time that an idle device takes for a packet.
    #[serde(serialize_with = "as_text")]
    pub latency: Law,
    /// Time that a packet keeps the next one waiting, which limits the rate.
    pub service_ns: u64,
    /// Number of packets it takes at most at a time: they leave together, when all that are done.
    pub batch: u32,
    /// Time at which the device does not run.
    pub stalls: Option<Stalls>,
    /// Change of the headers by the device.
    #[serde(serialize_with = "as_text")]
    pub rewrite: Rewrite,
    /// Probability that it loses a packet.
    pub loss: f64,
    /// Probability that it sends a packet twice.
    pub duplication: f64,
    /// Time from a packet to its copy.
    pub duplicate_delay_ns: u64,
    /// Probability that it holds a packet back behind its queue, so that others may overtake.
    pub reordering: f64,
    /// Time for which it is held back.
    pub reorder_delay_ns: u64,
    /// Probability that a packet takes from 1 to 2.5 windows longer.
    pub lateness: f64,
    /// The window in which the captures will be matched.
    pub window_ns: u64,

    /// Probability that a packet repeats, byte for byte, one of those before it: one of as many as
    /// leave in two windows, 65536 at most.
    pub repetition: f64,
    /// Probability that a packet is no probe: ARP or a datagram with another payload.
    pub keyless: f64,
    /// Probability that, with a packet, one comes to the second timestamper alone.
    pub foreign: f64,

    /// The clock behind the device, and how fine timestamps are.
    pub clock: Clock,
    /// Bytes that captures keep of a packet.
    pub snaplen: u32,
    /// Bytes that are missing at the end of the second capture's file.
    pub cut_bytes: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seed: 1,
            packets: 100_000,
            rate_pps: 10_000,
            pattern: Pattern::Cbr,
            frame_bytes: 64,
            vlan: None,
            ipv6: false,
            flows: 1,
            start_ns: 1_577_836_800_000_000_000,
            latency: Law::Bimodal {
                low_ns: 3_137,
                high_ns: 3_350,
                high_probability: 0.02,
                sigma: 0.009,
            },
            service_ns: 70,
            batch: 1,
            stalls: Some(Stalls {
                period_ns: 4_000_200,
                duration_ns: 7_750,
                long_every: 3,
                long_duration_ns: 10_250,
            }),
            rewrite: Rewrite::L2,
            loss: 0.0,
            duplication: 0.0,
            duplicate_delay_ns: 1_000,
            reordering: 0.0,
            reorder_delay_ns: 250_000,
            lateness: 0.0,
            window_ns: 5_000_000_000,
            repetition: 0.0,
            keyless: 0.0,
            foreign: 0.0,
            clock: Clock { offset_ns: 0, drift_ppb: 0, resolution_ps: 12_500 },
            snaplen: MAX_SNAPLEN,
            cut_bytes: 0,
        }
    }
}

impl Scenario {
    /// Checks that this can be: [`Error::Scenario`] names the first field that is out of its range.
    ///
    /// # Errors
    /// When something cannot.
    pub fn check(&self) -> Result<(), Error> {
        self.pattern.departures(Pps(self.rate_pps), 0)?;
        let most = u128::from(LONGEST_SCENARIO_S) * u128::from(self.rate_pps);
        within("packets", self.packets, 0..=most.try_into().unwrap_or(u64::MAX))?;
        within("frame_bytes", self.frame_bytes, self.shape().shortest_bytes()..=MAX_FRAME_BYTES)?;
        within("vlan", self.vlan.unwrap_or(0), 0..=4095)?;
        within("flows", self.flows, 1..=MAX_FLOWS)?;
        within("batch", self.batch, 1..=MAX_BATCH)?;
        within("snaplen", self.snaplen, 1..=MAX_SNAPLEN)?;
        self.check_probabilities()?;
        self.check_durations()?;
        self.check_load()?;
        self.check_clock()
    }

    fn check_probabilities(&self) -> Result<(), Error> {
        for (field, probability) in [
            ("loss", self.loss),
            ("duplication", self.duplication),
            ("reordering", self.reordering),
            ("lateness", self.lateness),
            ("repetition", self.repetition),
            ("keyless", self.keyless),
            ("foreign", self.foreign),
        ] {
            within(field, probability, 0.0..=1.0)?;
        }
        Ok(())
    }

    fn check_durations(&self) -> Result<(), Error> {
        self.latency.check()?;
        within("duplicate_delay_ns", self.duplicate_delay_ns, 0..=LONGEST_NS)?;
        within("reorder_delay_ns", self.reorder_delay_ns, 0..=LONGEST_NS)?;
        within("window_ns", self.window_ns, 1..=LONGEST_NS)?;
        let Some(stalls) = self.stalls else { return Ok(()) };
        within("stalls.period_ns", stalls.period_ns, 1..=LONGEST_NS)?;
        let most = stalls.period_ns - 1;
        within("stalls.duration_ns", stalls.duration_ns, 0..=most)?;
        within("stalls.long_duration_ns", stalls.long_duration_ns, 0..=most)
    }

    /// Refuses a device that cannot keep up, which would queue for ever.
    fn check_load(&self) -> Result<(), Error> {
        let stalled = self.stalls.map_or(0.0, Stalls::share);
        let busy = self.service_ns as f64 * self.rate_pps as f64 / 1e9;
        if stalled + busy < 1.0 {
            return Ok(());
        }
        Err(Error::Scenario {
            field: "service_ns",
            got: self.service_ns.to_string(),
            expected: format!(
                "less: at {} the device would be busy for {:.1} % of the time and stalled for {:.1} %",
                Pps(self.rate_pps),
                100.0 * busy,
                100.0 * stalled
            ),
        })
    }

    fn check_clock(&self) -> Result<(), Error> {
        let Clock { offset_ns, drift_ppb, resolution_ps } = self.clock;
        let longest_ns = LONGEST_NS as i64;
        within("clock.offset_ns", offset_ns, -longest_ns..=longest_ns)?;
        within("clock.drift_ppb", drift_ppb, -100_000_000..=100_000_000)?;
        within("clock.resolution_ps", resolution_ps, 1..=1_000_000_000_000)?;
        let least_ns = offset_ns.min(0).unsigned_abs() + resolution_ps.div_ceil(1_000);
        within("start_ns", self.start_ns, least_ns..=i64::MAX as u64)
    }

    /// Returns what frames look like.
    pub(crate) fn shape(&self) -> Shape {
        let Self { frame_bytes, vlan, ipv6, flows, rewrite, .. } = *self;
        Shape { frame_bytes, vlan, ipv6, flows, rewrite }
    }

    /// Packets that leave in one window.
    pub(crate) fn packets_in_window(&self) -> u64 {
        let packets = u128::from(self.window_ns) * u128::from(self.rate_pps) / 1_000_000_000;
        packets.try_into().unwrap_or(u64::MAX)
    }
}

fn within<T>(field: &'static str, got: T, expected: RangeInclusive<T>) -> Result<(), Error>
where
    T: Display + PartialOrd,
{
    if expected.contains(&got) {
        return Ok(());
    }
    let expected = format!("{} to {}", expected.start(), expected.end());
    Err(Error::Scenario { field, got: got.to_string(), expected })
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
