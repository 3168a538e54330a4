//! The programs: their options, their set-up, and what they say in the end.

use crate::program::Spec;

mod delay;
mod flow;
mod forwarding;
mod generator;
mod l2fwd;
mod l3fwd;
mod measurement;
mod pairs;
mod reflect;
mod sender;
mod socket;
mod stages;
mod stamp;
mod tap;
mod watch;
mod work;

/// All of them.
pub const ALL: &[Spec] = &[
    delay::SPEC,
    flow::SPEC,
    generator::SPEC,
    l2fwd::SPEC,
    l3fwd::SPEC,
    reflect::SPEC,
    sender::SPEC,
    socket::SPEC,
    stages::SPEC,
    stamp::SPEC,
    tap::SPEC,
    watch::SPEC,
    work::SPEC,
];
