use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// What became of the packets that came in by one link in one second.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TapSecond {
    /// The begin of the second, since 1970.
    pub start_unix_ns: Count,
    /// Packets that were to leave by the other link.
    pub sent: Count,
    /// Packets that did within the window.
    pub matched: Count,
    /// Packets that did not.
    pub lost: Count,
    /// Packets that were lost in seconds before, and left behind their window.
    pub late: Count,
    /// Packets of which nobody knows, because frames were missed when they should have left.
    pub unresolved: Count,
    /// Packets that may be one of several.
    pub ambiguous: Count,
    /// Frames of the link by which packets come that were missed.
    pub missed_pre: Count,
    /// Frames of the link by which they leave that were missed.
    pub missed_post: Count,
    /// The quantiles of the latency that were asked for; none without a match.
    pub latency_ns_quantiles: Vec<Count>,
    /// The longest.
    pub latency_ns_max: Option<Count>,
    /// Packets that took as long as each limit that was asked for, or longer, of those that matched.
    pub beyond: Vec<Count>,
    /// The sum of all.
    pub latency_ns_sum: Count,
    /// Buckets that are at most 3 % wide: the least latency of each, and its packets.
    pub latency_ns_buckets: Vec<(Count, Count)>,
    /// The flows of most lost packets.
    pub lost_flows: Vec<(String, Count)>,
}

/// The key by which packets of two links are matched from now on.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TapKey {
    /// The key's name.
    pub match_on: String,
}

/// What was heard of two links.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TappedLinks {
    /// The link by which packets come.
    pub pre: TappedLink,
    /// The link by which they leave.
    pub post: TappedLink,
    /// Figures of each flow, those of the most packets first.
    pub flows: Vec<TappedFlow>,
    /// Whether packets were known again behind the device: else there are no figures.
    pub joined: bool,
    /// Captures around the worst packets that could not be written.
    pub unwritten: Count,
}

/// What was heard of one link.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TappedLink {
    /// The link.
    pub link: String,
    /// Frames that came.
    pub received: Count,
    /// Frames for which the kernel's ring had no room.
    pub dropped: Count,
    /// Frames that the kernel handed over when their time was decided about already.
    pub late: Count,
    /// Frames of which the card took no time, where it is to take them.
    pub unstamped: Count,
    /// How often the link went down.
    pub downs: Count,
}

/// What became of the packets of one flow.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TappedFlow {
    /// The flow's name.
    pub flow: String,
    /// Packets that were to leave by the other link.
    pub sent: Count,
    /// Packets that did.
    pub matched: Count,
    /// Packets that did not.
    pub lost: Count,
    /// Of those, packets of a flow that never appears behind the device: they may go elsewhere.
    pub unseen: Count,
    /// The median of the latency; null without a match, or with too many flows to keep it.
    pub latency_ns_p50: Option<Count>,
    /// The quantile 0.99, likewise.
    pub latency_ns_p99: Option<Count>,
    /// The longest.
    pub latency_ns_max: Option<Count>,
}
