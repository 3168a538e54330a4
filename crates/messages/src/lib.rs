//! What `tailscope-dp` says on its standard output, one JSON object a line.
//!
//! The structs here are its one declaration. [`schema`] describes them as JSON Schema, and Python's
//! types are generated from that, doc comments included. Start reading with [`Message`].
#![deny(missing_docs)]

mod count;
mod counts;
mod flow;
mod hosts;
mod message;
mod progress;
mod ready;
mod result;
mod schema;
mod tap;
mod taps;
mod traffic;

pub use count::Count;
pub use counts::{LcoreCounts, PassedPackets, PortCounts, ProgramCounts};
pub use flow::{FlowCost, FlowDrop, FlowPacket, FlowStage, FlowWay, FollowedFlow, XdpProgram};
pub use hosts::{
    CardClock, CausedStalls, DepartedBy, HostClock, Reflected, SentQueries, StallCause,
    ToldByReflector,
};
pub use message::{ErrorEvent, Message};
pub use progress::{Latency, Progress, ProgressEvent, State, Written};
pub use ready::{CounterClock, ReadyEvent, ReadyLcore, ReadyPort, RecordingReady};
pub use result::{
    DelayTruth, ForwardedPairs, Outcome, Recorded, ResultEvent, RouteCount, WatchTruth, WorkTruth,
};
pub use schema::schema;
pub use tap::{TapKey, TapSecond, TappedFlow, TappedLink, TappedLinks};
pub use taps::{SocketClock, SocketCounts, SocketLinks, StampClock, StampedTaps, TapCounts};
pub use traffic::{DirectionCounts, GeneratedTraffic};
