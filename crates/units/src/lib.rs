//! Newtypes for the quantities that must not mix.
//!
//! Time is integer nanoseconds, never floating point; a rate is whole packets per second. Both are
//! parsed here, once, from the way people write them: `1s`, `5ms`, `100ns`, `10k`, `1.5M`.

mod ahead;
mod clock;
mod counted;
mod nanos;
mod pps;
mod quantity;

pub use ahead::Ahead;
pub use clock::Clock;
pub use counted::counted;
pub use nanos::Nanos;
pub use pps::Pps;
pub use quantity::Error;
