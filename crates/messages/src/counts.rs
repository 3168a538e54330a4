use crate::count::Count;
use crate::ready::ReadyLcore;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What every program with ports counts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProgramCounts {
    /// Whether it did all that it was asked for.
    pub complete: bool,
    /// Whether its memory is in huge pages.
    pub hugepages: bool,
    /// When its ports were there, in ticks.
    pub started_tsc: Count,
    /// How long it ran from then on.
    pub duration_ns: Count,
    /// Its polling loops.
    pub lcores: Vec<LcoreCounts>,
    /// Its ports.
    pub ports: Vec<PortCounts>,
}

/// What one polling loop counted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LcoreCounts {
    /// Which one it is.
    #[serde(flatten)]
    pub lcore: ReadyLcore,
    /// The number of its thread.
    pub tid: Count,
    /// Turns of the loop.
    pub iterations: Count,
    /// Packets received.
    pub rx_packets: Count,
    /// Packets that a transmit ring took.
    pub tx_packets: Count,
    /// Packets for which the driver had no room.
    pub tx_dropped: Count,
    /// Packets dropped on purpose, by reason.
    pub dropped: BTreeMap<&'static str, Count>,
    /// Stalls: turns that took too long.
    pub stalls: Count,
    /// Total duration of the stalls.
    pub stall_ns_total: Count,
    /// Duration of the longest stall.
    pub stall_ns_max: Count,
    /// Stalls for which there was no more room in the log.
    pub stalls_unrecorded: Count,
}

/// What one port counted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PortCounts {
    /// The number that DPDK gives it.
    pub port: Count,
    /// The device's name.
    pub name: String,
    /// The device's driver.
    pub driver: String,
    /// Packets received.
    pub rx_packets: Count,
    /// Packets sent.
    pub tx_packets: Count,
    /// Packets for which the receive ring had no room.
    pub rx_missed: Count,
    /// Packets received that were damaged.
    pub rx_errors: Count,
    /// Packets for which there was no buffer.
    pub rx_nombuf: Count,
    /// Packets that could not be sent.
    pub tx_errors: Count,
    /// How often its link went down.
    pub link_down_count: Count,
    /// The driver's own counters.
    pub xstats: BTreeMap<String, u64>,
}

/// How many packets a forwarder has noted the way of.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PassedPackets {
    /// Packets whose way was noted.
    pub packets: Count,
    /// Packets for which there was no more room.
    pub lost: Count,
}
