//! DPDK made safe: the environment ([`Eal`]), ports and their queues, pools and bursts of packets,
//! lcores and the time-stamp counter.
//!
//! Nothing here decides what happens to a packet. What costs time per packet is inlined; everything
//! else is a call into the shim of `dpdk-sys`. Start reading in `port.rs`, then `burst.rs`.

mod burst;
mod eal;
mod error;
pub mod interrupts;
mod lcore;
mod pool;
mod port;
pub mod quiescence;
mod route;
mod stats;
pub mod tsc;

pub use burst::{Burst, Mark, Mbuf};
pub use eal::{Eal, running_version};
pub use error::Error;
pub use lcore::{Lcore, run_on};
pub use pool::Mempool;
pub use port::{Info, Port, PortConfig, RxQueue, RxTimestamps, TxQueue};
pub use quiescence::Poller;
pub use route::{Fib4, Fib6, Lpm4, Lpm6, NO_HOP, Routes4, Routes6};
pub use stats::Stats;
