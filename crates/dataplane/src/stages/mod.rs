//! Where the kernel is with each packet: BPF programs on its tracepoints and on links, and what they say.
//!
//! The programs (`stages.bpf.c`) put events into a ring, which is emptied now and then. Their times
//! are the kernel's monotonic clock; those of probes become ticks of the counter that stamps packets.

mod clock;
mod filter;
mod legs;
mod namespace;
mod tracer;
mod xdp;

pub use clock::Ticks;
pub use legs::{Legs, Seen};
pub use namespace::enter;
pub use tracer::{Config, Event, Followed, Tracer, drop_reasons};
pub use xdp::XdpPrograms;
