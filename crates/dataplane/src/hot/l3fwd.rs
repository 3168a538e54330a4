use super::l2fwd::Batch;
use crate::router::{Dropped, Kind, classify, send_on};
use crate::turns::Turns;
use dpdk::{Burst, NO_HOP, Routes4, Routes6, RxQueue, TxQueue};

/// Where packets go: the place of a port among those that the lcore sends to, and whose address they get.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// `None`: the partner of the port that the packet came by.
    pub port: Option<usize>,
    pub mac: Option<[u8; 6]>,
}

/// What one lcore routes.
#[derive(Debug)]
pub struct Lane<'a, V4, V6> {
    /// Receive queues, each with the place of its port's partner.
    pub rx: Vec<(RxQueue, usize)>,
    /// A transmit queue of every port that it sends to, its MAC address, and its number.
    pub tx: Vec<(TxQueue, [u8; 6], u16)>,
    pub v4: &'a V4,
    pub v6: &'a V6,
    pub hops: &'a [Hop],
    pub dropped: Dropped,
}

/// Packets of one family, and where they want to go.
struct Wanted<A> {
    packets: Burst,
    addresses: Vec<A>,
    hops: Vec<u32>,
}

impl<A> Wanted<A> {
    fn new() -> Self {
        let addresses = Vec::with_capacity(Burst::MOST);
        Self { packets: Burst::new(), addresses, hops: vec![0; Burst::MOST] }
    }
}

/// Routes what arrives. What a full ring does not take is dropped.
pub fn route<V4: Routes4, V6: Routes6>(
    lane: &mut Lane<'_, V4, V6>,
    batch: Batch,
    mut turns: Turns<'_>,
) {
    let mut arrived = Burst::new();
    let (mut four, mut six) = (Wanted::<u32>::new(), Wanted::<[u8; 16]>::new());
    let mut out: Vec<Burst> = lane.tx.iter().map(|_| Burst::new()).collect();
    let mut handled = 0;
    while turns.next(handled).is_some() {
        handled = 0;
        for (rx, partner) in &mut lane.rx {
            let received = turns.receive(rx, &mut arrived, batch.rx);
            if received == 0 {
                continue;
            }
            handled += received;
            for mut packet in arrived.drain() {
                match classify(packet.data_mut(), &mut lane.dropped) {
                    Some(Kind::V4(address)) => {
                        four.addresses.push(address);
                        let pushed = four.packets.push(packet);
                        debug_assert!(pushed.is_ok(), "a burst has room for a burst");
                    }
                    Some(Kind::V6(address)) => {
                        six.addresses.push(address);
                        let pushed = six.packets.push(packet);
                        debug_assert!(pushed.is_ok(), "a burst has room for a burst");
                    }
                    None => {}
                }
            }
            lane.v4.find(&four.addresses, &mut four.hops);
            lane.v6.find(&six.addresses, &mut six.hops);
            let found =
                four.packets.drain().zip(&four.hops).chain(six.packets.drain().zip(&six.hops));
            for (mut packet, hop) in found {
                if *hop == NO_HOP {
                    lane.dropped.no_route += 1;
                    continue;
                }
                let Hop { port, mac } = lane.hops[*hop as usize];
                let to = port.unwrap_or(*partner);
                send_on(packet.data_mut(), &lane.tx[to].1, mac, lane.tx[to].2);
                let pushed = out[to].push(packet);
                debug_assert!(pushed.is_ok(), "a burst has room for a burst");
            }
            four.addresses.clear();
            six.addresses.clear();
            for (burst, (tx, ..)) in
                out.iter_mut().zip(&mut lane.tx).filter(|(out, _)| !out.is_empty())
            {
                turns.send_or_drop(tx, burst, batch.tx);
            }
        }
    }
}
