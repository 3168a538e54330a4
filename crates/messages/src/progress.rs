use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// How far a program is, once a second.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProgressEvent {
    /// Time since the program began.
    pub elapsed_s: f64,
    /// What it does.
    pub state: State,
    /// Packets received.
    pub rx_packets: Count,
    /// Stalls of its loops.
    pub stalls: Count,
    /// How much it has written, once it writes.
    #[serde(flatten)]
    pub written: Option<Written>,
    /// What only programs of its kind tell.
    #[serde(flatten)]
    pub own: Progress,
}

/// What a program does.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A generator sends packets that it does not record.
    WarmUp,
    /// A generator sends and records.
    Measuring,
    /// A generator waits for the last packets.
    Draining,
    /// A forwarder polls.
    Forwarding,
    /// The recorder of two taps polls.
    Recording,
    /// The recorded values are written.
    Writing,
}

/// How much of what was recorded is written.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Written {
    /// Values that were recorded; 0 before they are written.
    #[schemars(extend("default" = 0))]
    pub recorded: Count,
    /// Values that are written.
    #[schemars(extend("default" = 0))]
    pub written: Count,
}

/// What only programs of one kind tell of their progress.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Progress {
    /// How far a generator is; its latencies are rough.
    #[schemars(title = "GeneratorProgress")]
    Generator {
        /// Packets that a transmit ring took.
        tx_packets: Count,
        /// Total duration of the stalls.
        stall_ns_total: Count,
        /// Duration of the longest stall.
        stall_ns_max: Count,
        /// Packets of the measurement that left.
        sent: Count,
        /// Packets of the measurement that came back.
        received: Count,
        /// Packets that could not leave within 10 ms of their time.
        unsent: Count,
        /// Latencies so far, once the first packet is back.
        #[serde(flatten)]
        latency: Option<Latency>,
        /// Buckets that are at most 3 % wide: the least latency of each, and its packets.
        latency_ns_buckets: Vec<(Count, Count)>,
    },
    /// How far a forwarder is, or loops without packets.
    #[schemars(title = "LoopProgress")]
    Loop {
        /// Packets that a transmit ring took.
        tx_packets: Count,
        /// Packets for which the driver had no room.
        tx_dropped: Count,
        /// Duration of the longest stall.
        stall_ns_max: Count,
    },
    /// How far the recorder of two taps is.
    #[schemars(title = "StampProgress")]
    Stamp {},
}

/// Latencies so far.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Latency {
    /// The median.
    pub latency_ns_p50: Count,
    /// The quantile 0.999.
    pub latency_ns_p999: Count,
    /// The longest.
    pub latency_ns_max: Count,
    /// The sum of all.
    pub latency_ns_sum: Count,
}
