//! `l2fwd`: what comes in on a port leaves by its partner.

use super::forwarding::{Forwarding, forwarding};
use super::pairs::{PortMap, mask, partners, port_map, spread};
use crate::error::Error;
use crate::hot::l2fwd::{Batch, forward, forward_buffered};
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::session::{Session, Wanted};
use clap::Args;
use dpdk::Burst;
use messages::{ForwardedPairs, Outcome};

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "l2fwd",
    about: "forward between pairs of ports",
    parse: |own| Ok(Box::new(options::parse::<L2fwd>("l2fwd", SPEC.about, own)?)),
};

#[derive(Args, Debug)]
struct L2fwd {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    forwarding: Forwarding,
    /// Hexadecimal mask of the ports that take part.
    #[arg(short = 'p', value_name = "PORTMASK", value_parser = mask)]
    portmask: Option<u64>,
    /// Which ports forward to each other, as (0,1),(2,3).
    #[arg(long, value_name = "PAIRS", value_parser = port_map)]
    portmap: Option<PortMap>,
    /// Packets accepted at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = batch)]
    rx_burst: usize,
    /// Packets handed on at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = batch)]
    tx_burst: usize,
    /// Leave MAC addresses as they are.
    #[arg(long)]
    no_mac_updating: bool,
    /// Hold packets back until --tx-burst of them are there, at most so long; 0 holds none back.
    #[arg(long, default_value_t = 0, value_name = "US")]
    tx_drain_us: u64,
}

/// Parses the size of a batch.
pub fn batch(text: &str) -> Result<usize, String> {
    let fits = |size: &usize| (1..=Burst::MOST).contains(size);
    let size = text.parse().ok().filter(fits);
    size.ok_or_else(|| format!("{text:?} is no batch: expected 1 to {}", Burst::MOST))
}

impl Program for L2fwd {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        let wanted = Wanted { ports: 1, rx_queues: 1, tx_queues: 1, rx_timestamps: false, held: 0 };
        let mut session = Session::open("l2fwd", eal, &self.common, wanted)?;
        let ids: Vec<u16> = session.ports.iter().map(|open| open.port.id()).collect();
        let pairs = partners(&ids, self.portmask, self.portmap.as_ref())?;
        let lanes = spread(&mut session, &pairs);
        let batch = Batch { rx: self.rx_burst, tx: self.tx_burst };
        let ended = forwarding(&session, self.forwarding, lanes, |paths, turns| {
            match (self.tx_drain_us, self.no_mac_updating) {
                (0, false) => forward::<true>(paths, batch, turns),
                (0, true) => forward::<false>(paths, batch, turns),
                (us, false) => forward_buffered::<true>(paths, batch, us, turns),
                (us, true) => forward_buffered::<false>(paths, batch, us, turns),
            }
            Vec::new()
        })?;
        let pairs = pairs.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        let (l2fwd, stages) = (ForwardedPairs { pairs }, session.record_passages(&ended.lanes));
        session.finish(&ended.lanes, &ended.downs, Outcome::L2fwd { l2fwd, stages });
        Ok(())
    }
}
