use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// Times of packets in one stage of their way.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowStage {
    /// The stage.
    pub stage: &'static str,
    /// Its p50, p90, p99 and p99.9: lower edges of buckets that are at most 3 % wide.
    pub ns_quantiles: Vec<Count>,
    /// The longest.
    pub ns_max: Count,
    /// The sum over all packets that were seen at every point.
    pub ns_total: Count,
    /// The sum over those of the tail.
    pub tail_ns_total: Count,
}

/// One of the slowest packets of a way.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowPacket {
    /// When its way began, since 1970.
    pub begin_unix_ns: Count,
    /// How long it took.
    pub latency_ns: Count,
    /// How long it was in each stage of the way; nothing if it was not seen at every point.
    pub stages_ns: Vec<Count>,
}

/// The packets that went one way through the kernel.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowWay {
    /// The way: `received` by a program, taken by the `kernel` itself, `forwarded`, or `sent`.
    pub way: &'static str,
    /// Packets whose begin and end were seen.
    pub packets: Count,
    /// Packets of these that were seen at every point between, too.
    pub whole: Count,
    /// The p50, p90, p99 and p99.9 of the time from the first point to the last, of all packets.
    pub latency_ns_quantiles: Vec<Count>,
    /// The longest.
    pub latency_ns_max: Count,
    /// The sum over packets that were seen at every point: that of the stages.
    pub latency_ns_total: Count,
    /// The stages, in order.
    pub stages: Vec<FlowStage>,
    /// Packets in the tail: the slowest thousandth, but at least 10 and at most 4096.
    pub tail_packets: Count,
    /// Packets of the tail that were seen at every point.
    pub tail_whole: Count,
    /// The slowest packets, slowest first.
    pub slowest: Vec<FlowPacket>,
}

/// Packets that the kernel dropped for one reason.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowDrop {
    /// The kernel's name of the reason.
    pub reason: String,
    /// The stage in which that was; `link` is a driver that sends, `unknown` a packet not seen before.
    pub stage: &'static str,
    /// How many there were.
    pub packets: Count,
}

/// What became of the packets of a flow.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FollowedFlow {
    /// The ways that packets went.
    pub ways: Vec<FlowWay>,
    /// Reasons for which packets were dropped, the most frequent first.
    pub drops: Vec<FlowDrop>,
    /// Packets that became a part of another one when they arrived.
    pub merged: Count,
    /// Packets that the kernel divided before it sent them.
    pub segmented: Count,
    /// Packets of TCP without bytes whose end was not told, as TCP joins acknowledgements to others.
    pub acknowledgements: Count,
    /// Packets that still waited in the queue of a socket in the end.
    pub waiting: Count,
    /// Packets that were not seen where their way begins.
    pub late: Count,
    /// Packets whose end was not seen.
    pub unended: Count,
}

/// What it cost to follow packets.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowCost {
    /// Calls of the BPF programs, for whatever packet.
    pub calls: Count,
    /// How long they took in all.
    pub ns_total: Count,
    /// Calls that the kernel left out, as they would have interrupted themselves.
    pub missed: Count,
    /// Events for which the kernel's buffer had no room.
    pub lost: Count,
    /// How long packets were followed.
    pub duration_ns: Count,
    /// Tracepoints that this kernel lacks.
    pub lacking: Vec<String>,
}

/// An XDP program that ran meanwhile.
#[derive(Debug, Serialize, JsonSchema)]
pub struct XdpProgram {
    /// Its number on this machine.
    pub id: Count,
    /// Its name.
    pub name: String,
    /// How often it ran, for whatever packet.
    pub calls: Count,
    /// How long it ran in all.
    pub ns_total: Count,
}
