//! The kernel's trace ring buffers: pages to events to what kept a CPU busy.
//!
//! [`page`] takes events out of raw pages, as `trace_pipe_raw` gives them; [`format`] understands the kernel's own
//! description of an event; [`event`] gives those that matter a meaning; [`spans`] turns the events of
//! one CPU into nested spans, and into segments that do not overlap. Times are whatever the trace's clock
//! counts.
#![deny(missing_docs)]

mod error;
pub mod event;
pub mod format;
pub mod page;
pub mod senders;
pub mod spans;
mod trace;

pub use error::Error;
pub use trace::{CpuTrace, Sender, Source, Trace, read};
