//! `l3fwd`: forwards by longest-prefix match.

use super::forwarding::{Ended, Forwarding, forwarding};
use super::l2fwd::batch;
use super::pairs::partners;
use crate::error::Error;
use crate::hot::l2fwd::Batch;
use crate::hot::l3fwd::{Hop, Lane, route};
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::router::Dropped;
use crate::routes::{self, Route};
use crate::session::{Session, Wanted};
use clap::{Args, ValueEnum};
use dpdk::{Fib4, Fib6, Lcore, Lpm4, Lpm6, Routes4, Routes6, RxQueue};
use messages::{Outcome, RouteCount};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "l3fwd",
    about: "forward by longest-prefix match",
    parse: |own| Ok(Box::new(options::parse::<L3fwd>("l3fwd", SPEC.about, own)?)),
};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lookup {
    Lpm,
    Fib,
}

#[derive(Args, Debug)]
struct L3fwd {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    forwarding: Forwarding,
    /// Which lcore polls which queue of which port, as (PORT,QUEUE,LCORE),...
    #[arg(long, value_name = "LIST", value_parser = config)]
    config: Option<Config>,
    /// Routes, PREFIX/BITS PORT [MAC] a line; without them everything goes to the partner port.
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// DPDK's library for it.
    #[arg(long, value_enum, default_value = "lpm")]
    lookup: Lookup,
    /// Packets accepted at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = batch)]
    rx_burst: usize,
    /// Packets handed on at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = batch)]
    tx_burst: usize,
}

/// Port, queue and lcore of each entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Config(Vec<(u16, u16, u32)>);

fn config(text: &str) -> Result<Config, String> {
    let wrong =
        || format!("{text:?} is no configuration: expected (PORT,QUEUE,LCORE),..., like (0,0,1)");
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(wrong)?;
    let entry = |entry: &str| {
        let mut numbers = entry.split(',').map(str::trim);
        let mut next = || numbers.next();
        let (port, queue, lcore) = (next()?, next()?, next()?);
        let found = (port.parse().ok()?, queue.parse().ok()?, lcore.parse().ok()?);
        next().is_none().then_some(found)
    };
    let entries = inner.split("),(").map(entry).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    Ok(Config(entries))
}

impl Config {
    /// Queues by which every port receives.
    fn rx_queues(&self) -> u16 {
        self.0.iter().map(|(_, queue, _)| queue + 1).max().unwrap_or(1)
    }

    /// Queues by which a port may have to send: one of each lcore that can. By routes all can send
    /// to every port; else only those that poll its partner.
    fn tx_queues(&self, routes: bool) -> u16 {
        let senders = |port: u16| {
            let polling = self.0.iter().filter(|(other, ..)| *other == port);
            polling.map(|(.., lcore)| lcore).collect::<BTreeSet<_>>().len()
        };
        let most = self.0.iter().map(|(port, ..)| senders(*port)).max().unwrap_or(1);
        (if routes { self.lcores().len() } else { most }) as u16
    }

    fn lcores(&self) -> Vec<u32> {
        let mut lcores: Vec<u32> = self.0.iter().map(|(.., lcore)| *lcore).collect();
        lcores.sort_unstable();
        lcores.dedup();
        lcores
    }

    fn check(&self, ports: &[u16], lcores: &[Lcore]) -> Result<(), Error> {
        let wrong = |got: String, expected: String| {
            Err(Error::Option { option: "--config", got, expected })
        };
        for (at, (port, queue, lcore)) in self.0.iter().enumerate() {
            if !ports.contains(port) {
                return wrong(format!("port {port}"), format!("ports among {ports:?}"));
            }
            if !lcores.contains(&Lcore(*lcore)) {
                let known: Vec<u32> = lcores.iter().map(|lcore| lcore.0).collect();
                return wrong(format!("lcore {lcore}"), format!("lcores among {known:?}"));
            }
            if self.0[..at].iter().any(|(other, same, _)| (other, same) == (port, queue)) {
                return wrong(format!("({port},{queue}) twice"), "each queue once".into());
            }
        }
        // Packets come to every queue that a port has.
        let queues = self.rx_queues();
        let polled = |port: u16| self.0.iter().filter(|(other, ..)| *other == port).count();
        match ports.iter().find(|port| polled(**port) != usize::from(queues)) {
            Some(port) if queues > 1 => {
                wrong(format!("{} queue(s) of port {port}", polled(*port)), format!("all {queues}"))
            }
            _ => Ok(()),
        }
    }
}

impl Program for L3fwd {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        let queues = |count: &dyn Fn(&Config) -> u16| self.config.as_ref().map_or(1, count);
        let wanted = Wanted {
            ports: 1,
            rx_queues: queues(&Config::rx_queues),
            // A peer has as many queues in both directions.
            tx_queues: queues(&|config| {
                config.rx_queues().max(config.tx_queues(self.routes.is_some()))
            }),
            rx_timestamps: false,
            held: 0,
        };
        let session = Session::open("l3fwd", eal, &self.common, wanted)?;
        match self.lookup {
            Lookup::Lpm => self.route::<Lpm4, Lpm6>(session),
            Lookup::Fib => self.route::<Fib4, Fib6>(session),
        }
    }
}

impl L3fwd {
    fn route<V4: Routes4, V6: Routes6>(&self, mut session: Session) -> Result<(), Error> {
        let ids: Vec<u16> = session.ports.iter().map(|open| open.port.id()).collect();
        let routes = self.routes.as_deref().map(|path| routes::read(path, &ids)).transpose()?;
        let main = session.lcores[0].0;
        let config = self.config.clone().unwrap_or_else(|| {
            // One queue each, and one lcore, which can send by it.
            Config(ids.iter().map(|port| (*port, 0, main)).collect())
        });
        config.check(&ids, &session.lcores)?;
        let socket = session.lcores[0].socket();
        let (v4, v6, hops) = tables::<V4, V6>(routes.as_deref(), &ids, socket)?;
        let partner: BTreeMap<u16, u16> = partners(&ids, None, None)?.into_iter().collect();

        let mut rx: BTreeMap<(u16, u16), RxQueue> = BTreeMap::new();
        for open in &mut session.ports {
            let id = open.port.id();
            rx.extend((0..).zip(open.rx.drain(..)).map(|(queue, rx)| ((id, queue), rx)));
        }
        let mut work = Vec::new();
        for lcore in config.lcores() {
            let own = || config.0.iter().filter(|(.., other)| *other == lcore);
            let reached: Vec<u16> = match routes {
                Some(_) => ids.clone(),
                None => own()
                    .map(|(port, ..)| partner[port])
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect(),
            };
            let place =
                |port: u16| reached.iter().position(|id| *id == port).expect("it is reached");
            let queues = own().map(|(port, queue, _)| {
                let queue = rx.remove(&(*port, *queue)).expect("each queue is polled once");
                (queue, place(partner[port]))
            });
            let queues = queues.collect();
            let sending = |id: &u16| {
                let open = session.ports.iter_mut().find(|open| open.port.id() == *id);
                let open = open.expect("a port of ours");
                (open.tx.remove(0), open.info.mac, *id)
            };
            let tx = reached.iter().map(sending).collect();
            let (v4, v6, hops) = (&v4, &v6, hops.as_slice());
            let dropped = Dropped::default();
            work.push((Lcore(lcore), Lane { rx: queues, tx, v4, v6, hops, dropped }));
        }
        // The main lcore's loop runs on this thread, so it comes first.
        work.sort_by_key(|(lcore, _)| *lcore != session.lcores[0]);
        let batch = Batch { rx: self.rx_burst, tx: self.tx_burst };
        let ended = forwarding(&session, self.forwarding, work, |lane, turns| {
            route(lane, batch, turns);
            lane.dropped.by_reason()
        })?;
        let l3fwd = RouteCount { routes: routes.map_or(0, |routes| routes.len()).into() };
        let Ended { lanes, work, downs } = ended;
        let stages = session.record_passages(&lanes);
        // Tables lie in memory of DPDK, which goes with the session.
        drop(work);
        drop((v4, v6));
        session.finish(&lanes, &downs, Outcome::L3fwd { l3fwd, stages });
        Ok(())
    }
}

/// Tables for both families, and what their hops mean. Without routes there is one hop: the partner.
fn tables<V4: Routes4, V6: Routes6>(
    routes: Option<&[Route]>,
    ports: &[u16],
    socket: i32,
) -> Result<(V4, V6, Vec<Hop>), Error> {
    let room = 2 * routes.map_or(1, |routes| routes.len()) as u32 + 2;
    let (mut v4, mut v6) = (V4::new("v4", room, socket)?, V6::new("v6", room, socket)?);
    let Some(routes) = routes else {
        v4.add(Ipv4Addr::UNSPECIFIED, 0, 0)?;
        v6.add(Ipv6Addr::UNSPECIFIED, 0, 0)?;
        return Ok((v4, v6, vec![Hop { port: None, mac: None }]));
    };
    let mut hops = Vec::new();
    // Short prefixes first: a default route must not change what is more particular.
    let mut ordered: Vec<&Route> = routes.iter().collect();
    ordered.sort_by_key(|route| route.bits);
    for (at, route) in (0..).zip(ordered) {
        match route.prefix {
            IpAddr::V4(prefix) => v4.add(prefix, route.bits, at)?,
            IpAddr::V6(prefix) => v6.add(prefix, route.bits, at)?,
        }
        let port = ports.iter().position(|port| *port == route.port);
        hops.push(Hop { port, mac: route.mac });
    }
    Ok((v4, v6, hops))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_and_checked() {
        let good = config("(0,0,1),(1,0,2)").unwrap();
        assert_eq!(good, Config(vec![(0, 0, 1), (1, 0, 2)]));
        assert_eq!((good.rx_queues(), good.lcores()), (1, vec![1, 2]));
        assert_eq!((good.tx_queues(false), good.tx_queues(true)), (1, 2));
        for text in ["", "0,0,1", "(0,0)", "(0,0,1,2)", "(0,0,1", "(a,0,1)"] {
            assert!(config(text).is_err(), "{text}");
        }
        let lcores = [Lcore(1), Lcore(2)];
        let refused = |text| config(text).unwrap().check(&[0, 1], &lcores).is_err();
        assert!(refused("(2,0,1)") && refused("(0,0,3)") && refused("(0,0,1),(0,0,1)"));
        assert!(refused("(0,0,1),(0,1,2),(1,0,1)"), "port 1 has a second queue that nobody polls");
        assert!(!refused("(0,0,1),(0,1,2),(1,0,1),(1,1,2)") && !refused("(0,0,1),(1,0,1)"));
        assert!(!refused("(0,0,1),(1,0,2)"));
    }
}
