use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// What was recorded of the taps on both sides of a device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StampedTaps {
    /// The clock of the captures.
    pub timestamps: StampClock,
    /// The tap before the device.
    pub pre: TapCounts,
    /// The tap behind it.
    pub post: TapCounts,
}

/// The clock by which taps are recorded.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StampClock {
    /// That of the port, read when a frame arrived.
    NicHardware,
    /// The processor's counter, read when a frame was polled.
    Tsc,
}

/// What was recorded of one tap.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TapCounts {
    /// The capture.
    pub file: String,
    /// Frames that came.
    pub received: Count,
    /// Frames that the capture has.
    pub written: Count,
    /// Frames left out because the writer was behind.
    pub ring_full: Count,
    /// Frames left out because the port gave them no time.
    pub unstamped: Count,
}

/// What was recorded of links on both sides of a device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SocketLinks {
    /// The clock of the captures.
    pub timestamps: SocketClock,
    /// The link before the device.
    pub pre: SocketCounts,
    /// The link behind it.
    pub post: SocketCounts,
}

/// The clock by which links are recorded.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketClock {
    /// The card's.
    KernelHardware,
    /// The kernel's.
    KernelSoftware,
}

/// What was recorded of one link of the kernel.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SocketCounts {
    /// The capture.
    pub file: String,
    /// Frames that came.
    pub received: Count,
    /// Frames that the capture has.
    pub written: Count,
    /// Frames left out because the kernel's ring was full.
    pub dropped: Count,
    /// Frames left out because the card gave them no time.
    pub unstamped: Count,
    /// Frames left out because no generator of tailscope has sent them.
    pub foreign: Count,
}
