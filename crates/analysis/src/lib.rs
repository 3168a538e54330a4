//! Matching of packets before and after a device, and exact figures of what happened in between.
//!
//! [`analyze_pair`] reads two captures, [`analyze_recording`] what the instrument wrote down; both match
//! packets and return an [`Analysis`]; [`Analysis::summary`]
//! names every figure. Memory follows what is under way within the window and never the length of a
//! capture.
//!
//! [`Live`] matches what is seen while it comes.
//!
//! Start reading in `pair.rs`: it merges two streams of keyed packets (`ingest.rs`, over `readers.rs`) by time and hands
//! them to the matcher (`matcher.rs`, over `flight.rs`); what the matcher decides goes to the
//!
//! [`analyze_files`] takes a second look (`second.rs`) at what was found on one side alone (`residue.rs`):
//! whether another key joins it, or it was divided or merged (`forms.rs`).
//!
//! A large pair can be analysed in slices of time: [`Plan`] divides it (`slice.rs`, over `skim.rs`),
//! [`analyze_slice`] analyses one, and [`Part`]s are joined into the [`Analysis`] of the pair (`part.rs`).

mod align;
mod arrival;
mod basis;
mod by;
mod bytes;
mod chain;
mod chunk;
mod clocks;
mod config;
mod connections;
mod corrupt;
mod counts;
mod coverage;
mod doubts;
mod encoding;
mod error;
mod flight;
mod floor;
mod forms;
mod hdr;
mod histogram;
mod hlog;
mod ingest;
mod instrument;
mod keys;
mod ledger;
mod live;
mod matcher;
mod obstacles;
mod order;
mod pair;
mod part;
mod quantile;
mod readers;
mod recording;
mod residue;
mod runs;
mod second;
mod seconds;
mod side;
mod skim;
mod slice;
mod stream;
mod stretches;
mod summary;
mod survey;
mod tally;
mod tcp;
mod variation;
mod varieties;
mod worst;

pub use basis::{Basis, Bounds, Clocks, Grid, Skew, Tried};
pub use by::{By, Group};
pub use clocks::estimate_clocks;
pub use config::Config;
pub use corrupt::Corruption;
pub use counts::{Counts, TcpCounts, TcpSide};
pub use coverage::Coverage;
pub use doubts::Doubts;
pub use encoding::ENCODING_VERSION;
pub use error::{CutPackets, Error, Shared};
pub use hdr::{Bucket, read_hdr};
pub use histogram::Histogram;
pub use instrument::{Instrument, Recorded};
pub use keys::{KeyColumns, Keys, worst_keys};
pub use ledger::{LossRun, Lost, Packets};
pub use live::{Ended, Live};
pub use matcher::{MAX_WINDOW, Match};
pub use pair::{Analysis, Captured, Observer, Progress, analyze_pair, analyze_pair_on};
pub use part::Part;
pub use quantile::{LEVEL, QUANTILES, Quantile, SUPPORT, interval_ranks, lower_bound_rank, rank};
pub use recording::{Recording, analyze_recording};
pub use second::analyze_files;
pub use seconds::Second;
pub use side::Side;
pub use slice::{Plan, Slice, analyze_slice};
pub use summary::Value;
pub use variation::Variation;
pub use worst::Worst;
