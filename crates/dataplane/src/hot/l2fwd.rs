use crate::path::Path;
use crate::turns::Turns;
use dpdk::{Burst, Mbuf, tsc};

/// Packets at once.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Accepted.
    pub rx: usize,
    /// Handed on.
    pub tx: usize,
}

/// Forwards what arrives. What a full ring does not take is dropped: whoever waits for a ring makes
/// every packet behind wait too.
pub fn forward<const MAC: bool>(paths: &mut [Path], batch: Batch, mut turns: Turns<'_>) {
    let mut burst = Burst::new();
    let mut handled = 0;
    while turns.next(handled).is_some() {
        handled = 0;
        for path in paths.iter_mut() {
            let received = turns.receive(&mut path.rx, &mut burst, batch.rx);
            if received == 0 {
                continue;
            }
            if MAC {
                burst.iter_mut().for_each(|packet| update_mac(packet, path));
            }
            handled += received;
            turns.send_or_drop(&mut path.tx, &mut burst, batch.tx);
        }
    }
}

/// As `forward`, but packets wait until `batch.tx` of them are there, at most `drain_us`: DPDK's l2fwd
/// does so, and at low rates every packet waits.
pub fn forward_buffered<const MAC: bool>(
    paths: &mut [Path],
    batch: Batch,
    drain_us: u64,
    mut turns: Turns<'_>,
) {
    let drain = drain_us.saturating_mul(tsc::hz()) / 1_000_000;
    let mut waiting: Vec<(Burst, u64)> = paths.iter().map(|_| (Burst::new(), 0)).collect();
    let mut handled = 0;
    while let Some(now) = turns.next(handled) {
        handled = 0;
        for (path, (burst, since)) in paths.iter_mut().zip(&mut waiting) {
            let held = burst.len();
            let received = turns.receive(&mut path.rx, burst, batch.rx);
            if MAC {
                burst.as_mut_slice()[held..].iter_mut().for_each(|packet| update_mac(packet, path));
            }
            if held == 0 {
                *since = now;
            }
            let full = burst.len() >= batch.tx;
            if full || (!burst.is_empty() && now - *since >= drain) {
                turns.send_or_drop(&mut path.tx, burst, Burst::MOST);
            }
            handled += received;
        }
    }
    for (path, (burst, _)) in paths.iter_mut().zip(&mut waiting) {
        turns.send_or_drop(&mut path.tx, burst, Burst::MOST);
    }
}

/// As DPDK's l2fwd: from the port that the packet leaves by, to an address that names this port.
#[inline(always)]
fn update_mac(packet: &mut Mbuf, path: &Path) {
    let Some(macs) = packet.data_mut().first_chunk_mut::<12>() else { return };
    macs[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, path.to as u8]);
    macs[6..].copy_from_slice(&path.mac);
}
