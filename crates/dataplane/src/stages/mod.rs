//! Where the kernel is with each probe: BPF programs on its tracepoints, and what they say.
//!
//! The programs (`stages.bpf.c`) put events into a ring, which is emptied now and then. Their times
//! are the kernel's monotonic clock; here they become ticks of the counter that stamps packets.

mod clock;
mod tracer;

pub use clock::Ticks;
pub use tracer::{Config, Event, Tracer, drop_reasons};
