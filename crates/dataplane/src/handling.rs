//! How long a kernel keeps a packet after it has said that it left.
//!
//! It takes the time in front of the driver, and hands it to the program before the driver goes on. What that takes
//! counts as the network's. Packets that this machine sends to itself pass the same code, and nothing else.

use crate::udp::{Batch, Udp};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Packets that it sends to itself.
const PACKETS: usize = 32;
/// As far apart as those of a usual measurement, which find no warm caches either.
const APART: Duration = Duration::from_millis(1);
/// Packets with a longer time, of all: what disturbs the machine just then is no part of it.
const BEYOND: usize = PACKETS / 8;

/// The time in ns from a packet's stamp until it is handed on; `None` if this machine does not hear itself.
pub fn measure() -> Option<u32> {
    let here = Udp::listen(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0).ok()?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, here.port()));
    let there = Udp::connect(to, 0, 0).ok()?;
    let mut batch = Batch::new();
    let mut took_ns: Vec<_> =
        (0..PACKETS).filter_map(|_| took_ns(&there, &here, &mut batch)).collect();
    took_ns.sort_unstable();
    let last = took_ns.len().checked_sub(1 + BEYOND)?;
    u32::try_from(took_ns[last]).ok()
}

fn took_ns(there: &Udp, here: &Udp, batch: &mut Batch) -> Option<u64> {
    batch.write(0, 64).fill(0);
    let (1, None) = there.send(batch, &[0]) else { return None };
    std::thread::sleep(APART);
    let left_ns = (there.returned(batch).ok()? == 1).then(|| batch.packet(0).beside.kernel_ns)?;
    let came_ns = (here.receive(batch).ok()? == 1).then(|| batch.packet(0).beside.kernel_ns)?;
    came_ns?.checked_sub(left_ns?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_hands_a_packet_on_soon() {
        // Where a sandbox has no loopback, there is nothing to measure.
        if let Some(ns) = measure() {
            assert!((1..1_000_000).contains(&ns), "{ns}");
        }
    }
}
