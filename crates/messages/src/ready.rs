use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// The ports are there: the program forwards, or sends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadyEvent {
    /// The program's name.
    pub program: &'static str,
    /// The version of tailscope.
    pub version: &'static str,
    /// The version of DPDK.
    pub dpdk: String,
    /// The process's number.
    pub pid: Count,
    /// The clock of all its ticks.
    pub clock: CounterClock,
    /// The threads that will poll.
    pub lcores: Vec<ReadyLcore>,
    /// The ports that were found.
    pub ports: Vec<ReadyPort>,
}

/// A program without DPDK records from now on.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecordingReady {
    /// The program's name.
    pub program: &'static str,
    /// The version of tailscope.
    pub version: &'static str,
    /// The process's number.
    pub pid: Count,
    /// The port of UDP at which it listens; null if it does not.
    pub udp_port: Option<Count>,
}

/// A clock of ticks: a reading, its rate, and the time of that reading.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CounterClock {
    /// The reading, in ticks.
    pub tsc: Count,
    /// Ticks per second.
    pub tsc_hz: Count,
    /// The Unix time of the reading.
    pub unix_ns: Count,
}

/// A thread that will poll.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadyLcore {
    /// The number that DPDK gives it.
    pub lcore: Count,
    /// Its CPU; null if it may run on several.
    pub cpu: Option<Count>,
}

/// A port that was found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadyPort {
    /// The number that DPDK gives it.
    pub port: Count,
    /// The device's name.
    pub name: String,
    /// The device's driver.
    pub driver: String,
    /// The device's MAC address.
    pub mac: String,
    /// Whether its link is up.
    pub link_up: bool,
}
