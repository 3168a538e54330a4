//! The way of packets through a forwarder.

use dpdk::{RxQueue, TxQueue};

/// A receive queue and where its packets go.
#[derive(Debug)]
pub struct Path {
    pub rx: RxQueue,
    pub tx: TxQueue,
    /// The MAC address of the port that packets leave by.
    pub mac: [u8; 6],
    /// The number of that port.
    pub to: u16,
}
