use crate::counters::Counters;
use crate::recorder::{KEPT_BYTES, Slot, Slots};
use crate::turns::Turns;
use dpdk::{Burst, RxQueue, RxTimestamps, tsc};

/// Frames polled at once.
const BATCH: usize = 64;

/// One tap.
#[derive(Debug)]
pub struct Side {
    pub rx: RxQueue,
    pub slots: Slots,
    /// Where the device says when a frame arrived; `None`: the counter is read.
    pub timestamps: Option<RxTimestamps>,
    /// Frames polled.
    pub received: u64,
    /// Frames for which the writer left no room.
    pub ring_full: u64,
    /// Frames that the device did not stamp.
    pub unstamped: u64,
}

/// Stamps every frame of both taps and hands it to the writers, until `ends_at`.
pub fn record(sides: &mut [Side], ends_at: u64, mut turns: Turns<'_>, counters: &Counters) {
    let mut burst = Burst::new();
    let mut handled = 0;
    while let Some(now) = turns.next(handled) {
        if now >= ends_at {
            break;
        }
        handled = 0;
        for side in sides.iter_mut() {
            let received = side.rx.receive(&mut burst, BATCH);
            if received == 0 {
                continue;
            }
            let polled = tsc::now();
            handled += received;
            side.received += received as u64;
            for packet in burst.iter() {
                let time = side.timestamps.map_or(Some(polled), |at| at.of(packet));
                let Some(time) = time else {
                    side.unstamped += 1;
                    continue;
                };
                let data = packet.data();
                let kept = data.len().min(KEPT_BYTES);
                let mut slot =
                    Slot { time, len: packet.frame_len() as u16, bytes: [0; KEPT_BYTES] };
                slot.bytes[..kept].copy_from_slice(&data[..kept]);
                side.ring_full += u64::from(side.slots.push(slot).is_err());
            }
            burst.clear();
            counters.rx_packets.add(received as u64);
        }
    }
}
