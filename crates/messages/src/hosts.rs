use crate::count::Count;
use schemars::JsonSchema;
use serde::Serialize;

/// What kept a loop between two hosts from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StallCause {
    /// Nobody knows.
    Unknown,
    /// The process was stopped by a signal, and continued.
    Stopped,
    /// The quota of its control group was used up.
    Throttled,
    /// It waited for a CPU that others had.
    Preempted,
    /// A page had to be read from a disk.
    Paged,
    /// It was busy with packets that came before.
    Busy,
    /// The clock was set.
    ClockStep,
    /// It waited for a CPU that others had, or for the quota of its control group, which nobody can
    /// read.
    Waited,
}

/// Stalls of a loop that have one cause.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CausedStalls {
    /// The cause.
    pub cause: StallCause,
    /// How many there were.
    pub count: Count,
    /// How long they took in all.
    pub stall_ns_total: Count,
    /// How long the longest took.
    pub stall_ns_max: Count,
}

/// Who lets a query wait until its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DepartedBy {
    /// The queue of the interface, which was told the time (`SO_TXTIME`).
    Queue,
    /// The program.
    Program,
}

/// The clock of a card that took the times of packets.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CardClock {
    /// The card's link.
    pub link: String,
    /// What it gains on the clock of its machine, in ns per second.
    pub rate_ppb: i64,
    /// The most that it was away from where it was expected, whenever it was read.
    pub residual_ns: Count,
    /// The most that a reading took.
    pub width_ns: Count,
    /// How often it was read.
    pub readings: Count,
    /// How often it was set meanwhile.
    pub steps: Count,
}

/// What became of the queries that a reflector got.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Reflected {
    /// The port at which it listened.
    pub port: Count,
    /// Packets that came.
    pub received: Count,
    /// Packets that it answered.
    pub answered: Count,
    /// Packets from addresses that are not allowed.
    pub refused_source: Count,
    /// Packets from ports of services.
    pub refused_port: Count,
    /// Packets beyond the rate that a source may send at.
    pub refused_rate: Count,
    /// Packets that are not sealed by its key.
    pub refused_key: Count,
    /// Packets that are no query, or too short to be answered.
    pub malformed: Count,
    /// Answers that the system did not take.
    pub unsent: Count,
    /// Packets for which its socket had no room.
    pub dropped: Count,
    /// Sessions that began.
    pub sessions: Count,
    /// How often its clock was set.
    pub clock_steps: Count,
    /// The clock of the card that took the times of packets; absent if the kernel did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<Box<CardClock>>,
    /// What kept its loop from running.
    pub stalls: Vec<CausedStalls>,
}

/// How far a clock may be off, as its machine says.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct HostClock {
    /// Whether it followed UTC by an external source all the time.
    pub synchronised: bool,
    /// The most that it was off by.
    pub error_ns_max: Count,
    /// How often it was set.
    pub steps: Count,
}

/// What the reflector told in its answers.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ToldByReflector {
    /// True if it runs on the same kernel as the sender: both have one clock.
    pub same_clock: bool,
    /// Packets for which its socket had no room meanwhile, of any sender.
    pub dropped: Count,
    /// Packets of this sender that it refused, as they came too fast.
    pub refused: Count,
    /// Answers to this sender that the reflector's system did not take.
    pub unsent: Count,
    /// Stalls of its loop.
    pub stalls: Count,
    /// Stalls of which no answer told more.
    pub stalls_untold: Count,
    /// How long its loop waited for a CPU.
    pub run_delay_us: Count,
    /// How long its control group was throttled.
    pub throttled_us: Count,
    /// How long its kernel keeps an answer that has left, as it says; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handling_ns: Option<Count>,
    /// How far times of its card may be off its clock; absent if its kernel took them, or if it is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_error_ns: Option<Count>,
    /// True if it is of an older version, which does not tell how far times of its card may be off.
    #[schemars(extend("default" = false))]
    pub older: bool,
}

/// What became of the queries to another host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SentQueries {
    /// Queries that left.
    pub sent: Count,
    /// Queries that could not leave within 10 ms of their time, or that the system did not take.
    pub unsent: Count,
    /// Of those, queries that the system did not take.
    pub unsent_refused: Count,
    /// Answers that came.
    pub received: Count,
    /// Packets that are no answer to a query of this session.
    pub foreign: Count,
    /// Packets that are not sealed by the sender's key.
    pub wrong_key: Count,
    /// Answers for which a socket of the sender had no room.
    pub dropped: Count,
    /// Errors that somebody on the way, or the other end, reported.
    pub refusals: Count,
    /// Queries of which the kernel, or the card, said when they left.
    pub stamped: Count,
    /// Bytes of the shortest frame that carries a query, check sequence included; absent in earlier runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_bytes_min: Option<Count>,
    /// Bytes of the longest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_bytes_max: Option<Count>,
    /// Who let queries wait until their time.
    pub departed_by: DepartedBy,
    /// The clock of the card that took the times of packets; absent if the kernel did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<Box<CardClock>>,
    /// The source port of each flow.
    pub ports: Vec<Count>,
    /// The sender's clock.
    pub clock: HostClock,
    /// The clock of the reflector.
    pub reflector_clock: HostClock,
    /// What the reflector told of itself; null if it is none of tailscope.
    pub reflector: Option<ToldByReflector>,
    /// How long the sender's loop waited for a CPU.
    pub run_delay_us: Count,
    /// How long its control group was throttled.
    pub throttled_us: Count,
    /// How long the sender's kernel keeps a query that has left, as it says; absent if that is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handling_ns: Option<Count>,
    /// What kept the sender's loop from running.
    pub stalls: Vec<CausedStalls>,
    /// The files of the recording.
    pub record: Vec<String>,
}
