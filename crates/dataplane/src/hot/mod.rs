//! The loops in which packets live: one file each, nothing else in it. No allocation, lock, log or
//! system call; what differs between modes is chosen before a loop begins.

pub mod delay;
pub mod generator;
pub mod l2fwd;
pub mod l3fwd;
pub mod stamp;
pub mod watch;
pub mod work;
