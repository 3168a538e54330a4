use crate::count::Count;
use crate::counts::{PassedPackets, ProgramCounts};
use crate::flow::{FlowCost, FollowedFlow, XdpProgram};
use crate::hosts::{Reflected, SentQueries};
use crate::ready::CounterClock;
use crate::tap::TappedLinks;
use crate::taps::{SocketLinks, StampedTaps};
use crate::traffic::GeneratedTraffic;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What came out, at the end.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ResultEvent {
    /// What every program counts.
    #[serde(flatten)]
    pub counts: ProgramCounts,
    /// The clock of all its ticks.
    pub clock: CounterClock,
    /// Why it is not all that was asked for.
    pub partial: Vec<String>,
    /// The files that it has written.
    pub record: Vec<String>,
    /// The number of the thread that watched its links and told how far it was; 0 without one.
    pub monitor_tid: Count,
    /// The number of the thread that wrote its recording meanwhile; 0 without one.
    #[schemars(extend("default" = 0))]
    pub recorder_tid: Count,
    /// What only this program has to say.
    #[serde(flatten)]
    pub own: Outcome,
}

/// What only one program has to say.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "program", rename_all = "lowercase")]
pub enum Outcome {
    /// What came out of a generator.
    #[schemars(title = "GeneratorResult")]
    Gen {
        /// What became of its packets.
        r#gen: GeneratedTraffic,
    },
    /// What came out of the recorder of two taps.
    #[schemars(title = "StampResult")]
    Stamp {
        /// What was recorded.
        stamp: StampedTaps,
    },
    /// What came out of the forwarder between ports.
    #[schemars(title = "L2fwdResult")]
    L2fwd {
        /// Where packets went.
        l2fwd: ForwardedPairs,
        /// What it has written down of the way of packets, if that was wanted.
        #[serde(skip_serializing_if = "Option::is_none")]
        stages: Option<PassedPackets>,
    },
    /// What came out of the router.
    #[schemars(title = "L3fwdResult")]
    L3fwd {
        /// Where packets could go.
        l3fwd: RouteCount,
        /// What it has written down of the way of packets, if that was wanted.
        #[serde(skip_serializing_if = "Option::is_none")]
        stages: Option<PassedPackets>,
    },
    /// What came out of the device with a known law.
    #[schemars(title = "DelayResult")]
    Delay {
        /// What it did on purpose.
        delay: DelayTruth,
        /// What it has written down of the way of packets, if that was wanted.
        #[serde(skip_serializing_if = "Option::is_none")]
        stages: Option<PassedPackets>,
    },
    /// What came out of the device with a known capacity.
    #[schemars(title = "WorkResult")]
    Work {
        /// What it has worked on.
        work: WorkTruth,
        /// What it has written down of the way of packets, if that was wanted.
        #[serde(skip_serializing_if = "Option::is_none")]
        stages: Option<PassedPackets>,
    },
    /// What came out of loops without packets.
    #[schemars(title = "WatchResult")]
    Watch {
        /// What was done to them on purpose.
        watch: WatchTruth,
    },
}

/// By which port packets of each port leave.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ForwardedPairs {
    /// A port, and the one by which its packets leave.
    pub pairs: Vec<(Count, Count)>,
}

/// How many routes there are.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RouteCount {
    /// Routes of both families; 0 if everything goes to the partner port.
    pub routes: Count,
}

/// What a device with a known law did on purpose.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DelayTruth {
    /// How often it stalled.
    pub injected: Count,
    /// How often its CPU was disturbed.
    pub disturbed: Count,
    /// How many packets it held at most.
    pub held_most: Option<Count>,
}

/// What a device with a known capacity has worked on.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WorkTruth {
    /// Batches.
    pub batches: Count,
    /// Packets of the largest batch.
    pub batch_most: Count,
}

/// What was done on purpose to loops without packets.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WatchTruth {
    /// How often their CPU was disturbed.
    pub disturbed: Count,
}

/// What a program without DPDK has recorded, at its end.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "program", rename_all = "lowercase")]
pub enum Recorded {
    /// Where the kernel was with probes.
    #[schemars(title = "StagesResult")]
    Stages {
        /// The file of the events.
        file: &'static str,
        /// Events in it.
        events: Count,
        /// Events for which the kernel's buffer had no room.
        lost: Count,
        /// How far their times may be off the counter.
        clock_error_ns: Count,
        /// The kernel's names of the reasons in it.
        reasons: BTreeMap<u32, String>,
    },
    /// Where the kernel was with the packets of a flow.
    #[schemars(title = "FlowResult")]
    Flow {
        /// What became of them.
        flow: FollowedFlow,
        /// What that cost.
        cost: FlowCost,
        /// The XDP programs of the machine that ran meanwhile.
        xdp: Vec<XdpProgram>,
    },
    /// What came in on two links of the kernel.
    #[schemars(title = "SocketResult")]
    Socket {
        /// Whether it did all that it was asked for.
        complete: bool,
        /// Why it is not all that was asked for.
        partial: Vec<String>,
        /// What was recorded.
        socket: SocketLinks,
    },
    /// What crossed two links of the kernel.
    #[schemars(title = "TapResult")]
    Tap {
        /// Whether it did all that it was asked for.
        complete: bool,
        /// Why it is not all that was asked for.
        partial: Vec<String>,
        /// What was heard.
        tap: TappedLinks,
    },
    /// What a reflector answered.
    #[schemars(title = "ReflectResult")]
    Reflect {
        /// Whether it did all that it was asked for.
        complete: bool,
        /// Why it is not all that was asked for.
        partial: Vec<String>,
        /// What became of queries.
        reflect: Reflected,
    },
    /// What was asked of another host.
    #[schemars(title = "SenderResult")]
    Sender {
        /// Whether it did all that it was asked for.
        complete: bool,
        /// Why it is not all that was asked for.
        partial: Vec<String>,
        /// What became of queries.
        sender: SentQueries,
    },
}
