//! Frame headers, the probe payload, packet keys and send schedules.
//!
//! What a packet is called ([`key`]), what it carries ([`payload`]), how its headers are read and
//! written ([`headers`]), what of a longer packet or of a TCP stream it holds ([`parts`], [`tcp`]) and
//! when it is meant to leave ([`schedule`]); which of them somebody is
//! interested in ([`filter`]); and what two hosts say to each other to measure what is between them
//! ([`stamp`], [`seal`]). Nothing here knows where packets come from.

pub mod damage;
pub mod encryption;
mod error;
pub mod filter;
pub mod flow;
pub mod headers;
mod ip;
pub mod key;
mod layers;
mod local;
mod missing;
pub mod parts;
pub mod payload;
pub mod returned;
pub mod schedule;
pub mod seal;
pub mod stamp;
pub mod tcp;
pub mod tunnel;

pub use error::Error;
pub use local::{is_control, is_local, is_to_group};
