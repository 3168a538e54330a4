//! The slow, obvious answer: every figure of a pair of captures straight from its definition.
//!
//! Nothing here is shared with the engine. Packets are held in plain vectors, keys are the bytes
//! themselves, every rule is a scan. Where a rule can be got wrong in a plausible way, a [`Twist`]
//! does so on purpose: a comparison that does not notice is no comparison.

mod content;
mod fates;
mod keys;
mod order;
mod sides;
pub mod stats;

pub use keys::{Keyed, MatchOn, key};

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub ts: u64,
    pub orig_len: u32,
    pub data: Vec<u8>,
}

/// What is asked of a pair.
#[derive(Clone, Debug)]
pub struct Question {
    pub match_on: MatchOn,
    pub window: u64,
    pub trim: u64,
    pub worst: usize,
    /// A packet alike that follows so soon is a copy.
    pub copies: u64,
    /// Whether packets travel both ways.
    pub two_way: bool,
}

/// A deliberately wrong rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    None,
    ZeroLatencyIsNegative,
    WindowHoldsItsEnd,
    OrderIgnored,
    OrderProvesAll,
    AnchorIgnored,
    SilenceAloneAnchors,
    SilenceIsNoAnchor,
    AnyPacketAnchors,
    StraysForgiven,
    CrowdForgiven,
    SurplusForgiven,
    EndIgnored,
    CopiesAreLost,
    CopiesCount,
    LastPostWins,
    NegativeIsLost,
    EarlyIsLost,
    TailIsLost,
    UnknownBeyondPre,
    LateBeforeNegative,
    NegativeIgnoresAmbiguity,
    NegativeHoldsTheWindow,
    LateForever,
    LateEndsLater,
    LateEvenWhenMatched,
    TrimKeepsTheCut,
    TrimByPre,
    ReorderedAgainstNeighbour,
    IpdvAcrossLoss,
    WorstTiesLastFirst,
    SidesShareTheFirst,
    GapsIgnoreTrim,
    FrameKeepsChecksums,
    FrameMasksTtl,
    PaddingIsKey,
    PayloadHoldsPorts,
    PayloadHoldsPadding,
    SegmentsByPayloadAlone,
    TunnelIsKey,
}

impl Twist {
    /// Every wrong rule.
    pub const WRONG: [Self; 39] = [
        Self::ZeroLatencyIsNegative,
        Self::WindowHoldsItsEnd,
        Self::OrderIgnored,
        Self::OrderProvesAll,
        Self::AnchorIgnored,
        Self::SilenceAloneAnchors,
        Self::SilenceIsNoAnchor,
        Self::AnyPacketAnchors,
        Self::StraysForgiven,
        Self::CrowdForgiven,
        Self::SurplusForgiven,
        Self::EndIgnored,
        Self::CopiesAreLost,
        Self::CopiesCount,
        Self::LastPostWins,
        Self::NegativeIsLost,
        Self::EarlyIsLost,
        Self::TailIsLost,
        Self::UnknownBeyondPre,
        Self::LateBeforeNegative,
        Self::NegativeIgnoresAmbiguity,
        Self::NegativeHoldsTheWindow,
        Self::LateForever,
        Self::LateEndsLater,
        Self::LateEvenWhenMatched,
        Self::TrimKeepsTheCut,
        Self::TrimByPre,
        Self::ReorderedAgainstNeighbour,
        Self::IpdvAcrossLoss,
        Self::WorstTiesLastFirst,
        Self::SidesShareTheFirst,
        Self::GapsIgnoreTrim,
        Self::FrameKeepsChecksums,
        Self::FrameMasksTtl,
        Self::PaddingIsKey,
        Self::PayloadHoldsPorts,
        Self::PayloadHoldsPadding,
        Self::SegmentsByPayloadAlone,
        Self::TunnelIsKey,
    ];
}

/// How many packets met which fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub pre_packets: u64,
    pub pre_trimmed: u64,
    pub pre_unkeyed: u64,
    pub ambiguous: u64,
    pub repeated: u64,
    pub reverse: u64,
    pub local: u64,
    pub sent: u64,
    pub count: u64,
    pub lost: u64,
    pub late: u64,
    pub negative: u64,
    pub outside: u64,
    pub post_packets: u64,
    pub post_trimmed: u64,
    pub post_unkeyed: u64,
    pub duplicated: u64,
    pub post_negative: u64,
    pub post_reverse: u64,
    pub post_ambiguous: u64,
    pub post_late: u64,
    pub post_outside: u64,
    pub post_unknown: u64,
    pub reordered: u64,
}

/// A packet seen on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub seq: u64,
    pub post_seq: u64,
    pub pre_ts: u64,
    pub post_ts: u64,
}

impl Match {
    pub fn latency(&self) -> u64 {
        self.post_ts - self.pre_ts
    }
}

/// One of the slowest packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worst {
    pub latency: u64,
    pub pre_ts: u64,
    pub post_ts: u64,
    pub seq: u64,
}

/// One side on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    pub received: u64,
    pub received_trimmed: u64,
    /// Sorted.
    pub gaps: Vec<u64>,
    /// Start of each second, counted from the first packet kept, and packets in it, if any.
    pub per_second: Vec<(u64, u64)>,
}

/// Every figure of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    pub counts: Counts,
    /// The kept matches in the order of pre.
    pub matches: Vec<Match>,
    /// Places in pre of the packets that were lost.
    pub lost: Vec<u64>,
    /// Sorted.
    pub latencies: Vec<u64>,
    /// Absolute values of the delay variation, sorted.
    pub ipdv: Vec<u64>,
    /// The largest decrease and the largest increase.
    pub ipdv_range: Option<(i64, i64)>,
    pub worst: Vec<Worst>,
    pub pre: Side,
    pub post: Side,
}

/// All figures of `pre` and `post`, given in file order.
pub fn figures(pre: &[Packet], post: &[Packet], ask: &Question, twist: Twist) -> Figures {
    let (pre, post) = (by_time(pre), by_time(post));
    let (pre_fates, post_fates) = fates::fates(&pre, &post, ask, twist);
    let mut counts = Counts::default();
    let (matches, lost) =
        fates::keep(&pre, &post, (&pre_fates, &post_fates), ask, twist, &mut counts);
    counts.reordered = order::reordered(&matches, twist);
    let changes = order::ipdv(&matches, twist);
    Figures {
        latencies: sorted(matches.iter().map(Match::latency).collect()),
        ipdv: sorted(changes.iter().map(|change| change.unsigned_abs()).collect()),
        ipdv_range: order::range(&changes),
        worst: order::worst(&matches, ask.worst, twist),
        pre: sides::side(&pre, &post, ask.trim, twist),
        post: sides::side(&post, &pre, ask.trim, twist),
        matches,
        lost,
        counts,
    }
}

fn sorted(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values
}

fn by_time(packets: &[Packet]) -> Vec<Packet> {
    let mut sorted = packets.to_vec();
    sorted.sort_by_key(|packet| packet.ts);
    sorted
}
