//! The truth about each packet.

use serde::Serialize;
use units::Nanos;

/// The fate of a packet in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet left the device.
    Delivered,
    /// The packet left the device a window or more after it came.
    Late,
    /// The packet never left.
    Lost,
}

impl Fate {
    pub(crate) fn of(latency_ns: Option<u64>, window_ns: u64) -> Self {
        match latency_ns {
            None => Self::Lost,
            Some(ns) if ns >= window_ns => Self::Late,
            Some(_) => Self::Delivered,
        }
    }
}

/// The truth about a packet before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    /// Its timestamp before the device.
    pub pre_ts: Nanos,
    /// The sequence number that it carries: that of an earlier packet where it repeats one.
    pub seq: u64,
    /// Fate of the packet.
    pub fate: Fate,
    /// Time that the device really had it, whatever the clocks show.
    pub latency_ns: Option<u64>,
    /// True if it is a copy, byte for byte, of an earlier one.
    pub repeated: bool,
    /// True if it left the device twice.
    pub duplicated: bool,
    /// True if it was held back behind the device's queue, so that others may overtake it.
    pub held_back: bool,
    /// True if it is no probe packet.
    pub keyless: bool,
}

/// The truth about all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Packets before the device.
    pub pre_packets: u64,
    /// Packets behind it.
    pub post_packets: u64,
    /// Packets that left the device in time.
    pub delivered: u64,
    /// Packets that left it a window or more after they came.
    pub late: u64,
    /// Packets that never left it.
    pub lost: u64,
    /// Copies that the device made.
    pub duplicated: u64,
    /// Packets behind the device that never came to it.
    pub foreign: u64,
    /// Packets before the device that repeat an earlier one.
    pub repeated: u64,
    /// Packets held back so that others may overtake them.
    pub held_back: u64,
    /// Packets before the device that are no probes.
    pub keyless: u64,
    /// The smallest latency of those delivered; none where nothing was.
    pub latency_ns_min: Option<u64>,
    /// The largest latency of those delivered; none where nothing was.
    pub latency_ns_max: Option<u64>,
    /// The sum of the latencies of those delivered.
    pub latency_ns_sum: u128,
}

impl Totals {
    pub(crate) fn count(&mut self, truth: &Truth) {
        self.pre_packets += 1;
        match truth.fate {
            Fate::Delivered => self.delivered += 1,
            Fate::Late => self.late += 1,
            Fate::Lost => self.lost += 1,
        }
        self.duplicated += u64::from(truth.duplicated);
        self.repeated += u64::from(truth.repeated);
        self.held_back += u64::from(truth.held_back);
        self.keyless += u64::from(truth.keyless);
        if let (Fate::Delivered, Some(ns)) = (truth.fate, truth.latency_ns) {
            self.latency_ns_min = Some(self.latency_ns_min.map_or(ns, |min| min.min(ns)));
            self.latency_ns_max = Some(self.latency_ns_max.map_or(ns, |max| max.max(ns)));
            self.latency_ns_sum += u128::from(ns);
        }
    }

    /// Asserts that every packet has exactly one fate, and every packet behind the device a reason.
    pub(crate) fn assert_conservation(&self) {
        assert_eq!(self.pre_packets, self.delivered + self.late + self.lost);
        let left = self.delivered + self.late + self.duplicated + self.foreign;
        assert_eq!(self.post_packets, left);
        assert!(self.repeated.max(self.keyless).max(self.held_back) <= self.pre_packets);
        assert_eq!(self.latency_ns_min.is_some(), self.delivered > 0);
        assert!(self.latency_ns_min <= self.latency_ns_max);
    }
}
