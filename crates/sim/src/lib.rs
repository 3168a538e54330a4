//! A seeded simulator of traffic, device, interrupts and clocks that knows the truth.
//!
//! A [`Scenario`] says what happens: how packets leave, how long the device takes for them, when
//! it stalls, what it loses, doubles or holds back, and how the two clocks differ. A [`Simulation`]
//! streams what a capture before and a capture after the device would hold, in memory that does
//! not grow with their length, and the [`Truth`] about every packet with it. [`simulate`] collects
//! a small pair in memory, [`write_pair`] writes one of any size to files.
//!
//! The same scenario gives the same bytes on every platform: times are integers, and the
//! logarithms and exponentials inside the laws are computed in portable code.

mod arbitrary;
mod clock;
mod device;
mod error;
mod files;
mod frames;
mod law;
mod pair;
mod scenario;
mod simulation;
mod truth;

pub use clock::Clock;
pub use device::Stalls;
pub use error::Error;
pub use files::{Written, write_pair};
pub use frames::Rewrite;
pub use law::Law;
pub use pair::{Pair, SimPacket, simulate};
pub use probe::schedule::Pattern;
pub use scenario::Scenario;
pub use simulation::{Event, Side, Simulation};
pub use truth::{Fate, Totals, Truth};
