use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// What became of the packets of a generator in one direction.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct DirectionCounts {
    /// Packets of the measurement that left.
    pub sent: Count,
    /// Packets of the measurement that came back.
    pub matched: Count,
    /// Packets that could not leave within 10 ms of their time.
    pub unsent: Count,
    /// Packets that arrived again.
    pub duplicated: Count,
    /// Packets that arrived damaged.
    pub corrupt: Count,
    /// Packets that arrived from elsewhere.
    pub foreign: Count,
    /// Packets that arrived and could be one of several.
    pub ambiguous: Count,
    /// Arrivals, and packets that did not leave, which found no room to be recorded.
    pub unrecorded: Count,
    /// Packets that left while the recorder was behind: nothing else is known of them, and no figure has them.
    #[schemars(extend("default" = 0))]
    pub unrecorded_sent: Count,
    /// Arrivals of those.
    #[schemars(extend("default" = 0))]
    pub unrecorded_received: Count,
    /// Packets of the warm-up that left.
    pub warm_up_sent: Count,
    /// Packets of the warm-up that came back.
    pub warm_up_received: Count,
    /// Packets per second of a pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<Count>,
    /// Frames of a capture that was sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Count>,
    /// Frames of that capture that are alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ambiguous_sent: Option<Count>,
    /// Bytes of all frames that left, with check sequences. Older versions do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<Count>,
}

/// What became of the packets of a generator.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct GeneratedTraffic {
    /// Those from the first port to the second.
    #[serde(flatten)]
    pub there: DirectionCounts,
    /// Packets that travelled the other way, if some did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<DirectionCounts>,
}
