//! `gen`: sends at its own times and measures what comes back.

use super::measurement::{Measurement, Way};
use crate::book::{BACK, Probes};
use crate::error::Error;
use crate::flows::{Flows, Values};
use crate::hot::generator::Wire;
use crate::mix::Mix;
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::replay::Replay;
use crate::schedule::Times;
use crate::session::{Session, Wanted};
use crate::template::Template;
use crate::ticks::Ticks;
use crate::values::{mac, time};
use clap::{Args, ValueEnum};
use dpdk::{Burst, Mempool};
use messages::DirectionCounts;
use probe::headers::Protocol;
use probe::payload;
use probe::schedule::{Departures, Pattern};
use probe::tunnel::{Outer, Tunnel};
use std::mem;
use std::net::IpAddr;
use std::path::PathBuf;
use units::{Nanos, Pps};

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "gen",
    about: "send by a schedule, stamp and match what comes back",
    parse: |own| Ok(Box::new(options::parse::<Generator>("gen", SPEC.about, own)?)),
};

/// A packet that could not leave within this is not sent; a probe can say so much.
const GIVE_UP: Nanos = Nanos(10_000_000);
const _: () = assert!(GIVE_UP.0 < payload::MAX_ERROR_NS);
/// Packets of the pool that wait to be sent; those in the driver's ring come on top.
const TX_PACKETS: u32 = 4096;
/// Packets that are due may leave together so many at a time, if bursts are not larger.
const TX_BURST: usize = 64;
const DEFAULT_RATE: Pps = Pps(10_000);
/// The longest frame of a capture: 1518 bytes and a tag, without check sequence.
const REPLAY_BYTES: usize = 1518;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spacing {
    Cbr,
    Poisson,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Carried {
    Udp,
    Tcp,
    Icmp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    One,
    Both,
}

#[derive(Args, Debug)]
struct Generator {
    #[command(flatten)]
    common: Common,
    /// Packets per second; 10k, or with --replay as captured.
    #[arg(long, value_name = "PPS", value_parser = rate)]
    rate: Option<Pps>,
    /// Send the frames of a capture as they are, once.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "pattern", "burst", "burst_gap", "size", "flows", "vlan", "protocol", "src_mac", "dst_mac",
        "src_ip", "dst_ip", "src_port", "dst_port", "encap", "direction", "queues", "step_rate",
    ])]
    replay: Option<PathBuf>,
    /// So many times as fast as captured.
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "X",
        requires = "replay",
        conflicts_with = "rate"
    )]
    replay_speed: f64,
    /// How departures are spaced.
    #[arg(long, value_enum, default_value = "cbr")]
    pattern: Spacing,
    /// Packets back to back, at the same mean rate.
    #[arg(long, default_value_t = 1, value_name = "N")]
    burst: u32,
    /// From one packet of a burst to the next.
    #[arg(long, default_value = "0ns", value_name = "TIME", value_parser = time)]
    burst_gap: Nanos,
    /// Packets per second from --step-after on.
    #[arg(long, value_name = "PPS", value_parser = rate, requires = "step_after")]
    step_rate: Option<Pps>,
    /// When the rate changes, within what is measured.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "step_rate")]
    step_after: Option<Nanos>,
    /// Seed of the Poisson process.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Bytes of a frame with its check sequence; a mix as 64:7,594:4,1518:1, or imix, which is this one.
    #[arg(long, default_value = "64", value_name = "BYTES")]
    size: Mix,
    /// Flows, which differ by source port; those that addresses and ports make else.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    flows: Option<u16>,
    /// Queues of every port, which flows take in turn.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    queues: u16,
    /// Queues by which a port receives, where the other side sends by more than --queues.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    rx_queues: Option<u16>,
    /// What packets are: datagrams, segments of no connection, or echo requests.
    #[arg(long, value_enum, default_value = "udp")]
    protocol: Carried,
    /// Whether the second port sends to the first one, too.
    #[arg(long, value_enum, default_value = "one")]
    direction: Direction,
    /// Source MAC address; that of the port when it is not given.
    #[arg(long, value_name = "MAC", value_parser = address)]
    src_mac: Option<Mac>,
    /// Destination MAC address.
    #[arg(long, default_value = "02:00:00:00:00:10", value_name = "MAC", value_parser = address)]
    dst_mac: Mac,
    /// Source addresses, IPv4 or IPv6: FIRST..LAST or a list; flows take them in turn.
    #[arg(long, default_value = "10.0.0.1", value_name = "IP")]
    src_ip: Values<IpAddr>,
    /// Destination addresses.
    #[arg(long, default_value = "10.0.1.1", value_name = "IP")]
    dst_ip: Values<IpAddr>,
    /// Source ports; with --flows that of the first flow. Identifiers of echo requests.
    #[arg(long, default_value = "1024", value_name = "PORT")]
    src_port: Values<u16>,
    /// Destination ports.
    #[arg(long, default_value = "53", value_name = "PORT")]
    dst_port: Values<u16>,
    /// VLAN to tag frames with.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..4095))]
    vlan: Option<u16>,
    /// Tunnel through which the first port sends: gtpu:teid=N, vxlan:vni=N, geneve:vni=N, gre, mpls:label=N,
    /// srv6:segments=IP/IP or ipip, with src=IP and dst=IP where its ends are not the packets' own.
    #[arg(long, value_name = "KIND:NAME=VALUE,...", value_parser = encap)]
    encap: Option<Tunnel>,
    /// How long to measure.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    duration: Nanos,
    /// How long to send before that.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    warm_up: Nanos,
    /// How long to wait for the last packets.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    drain: Nanos,
    /// How long to wait for the link.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    link_timeout: Nanos,
    /// After the result, keep the ports until SIGTERM: other programs may crash when a link goes.
    #[arg(long)]
    keep_ports: bool,
    /// Write pre.pcapng.zst and post.pcapng.zst into this folder.
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
}

/// Clap would take an array for several values.
#[derive(Clone, Copy, Debug)]
struct Mac([u8; 6]);

fn address(text: &str) -> Result<Mac, String> {
    mac(text).map(Mac)
}

fn encap(text: &str) -> Result<Tunnel, String> {
    text.parse().map_err(|error: probe::Error| error.to_string())
}

fn rate(text: &str) -> Result<Pps, String> {
    text.parse().map_err(|error: units::Error| error.to_string())
}

impl Generator {
    fn check(&self) -> Result<(), Error> {
        let positive = |option, time: Nanos| match time {
            Nanos(0) => {
                let expected = "more than 0s".into();
                Err(Error::Option { option, got: time.to_string(), expected })
            }
            _ => Ok(()),
        };
        positive("--duration", self.duration)?;
        if let Some(after) = self.step_after.filter(|after| *after < self.warm_up) {
            let expected = format!("at least --warm-up, {}", self.warm_up);
            return Err(Error::Option { option: "--step-after", got: after.to_string(), expected });
        }
        if !(1..=Burst::MOST).contains(&(self.burst as usize)) {
            let (got, expected) = (self.burst.to_string(), format!("1 to {}", Burst::MOST));
            return Err(Error::Option { option: "--burst", got, expected });
        }
        if self.replay_speed.is_nan() || self.replay_speed <= 0.0 {
            let (got, expected) = (self.replay_speed.to_string(), "more than 0".into());
            return Err(Error::Option { option: "--replay-speed", got, expected });
        }
        if self.replay.is_some() && self.rate.is_none() {
            return Ok(());
        }
        self.departures(self.seed).map(drop)
    }

    fn departures(&self, seed: u64) -> Result<Departures, Error> {
        let gap = self.burst_gap;
        let pattern = match (self.pattern, self.burst) {
            (Spacing::Cbr, 1) => Pattern::Cbr,
            (Spacing::Cbr, size) => Pattern::Burst { size, gap },
            (Spacing::Poisson, 1) => Pattern::Poisson,
            (Spacing::Poisson, size) => Pattern::PoissonBurst { size, gap },
        };
        let at = |option, rate: Pps| {
            pattern.departures(rate, seed).map_err(|error| Error::Option {
                option,
                got: rate.to_string(),
                expected: error.to_string(),
            })
        };
        let found = at("--rate", self.rate())?;
        Ok(match self.step_rate.zip(self.step_after) {
            None => found,
            Some((rate, after)) => found.until(after, at("--step-rate", rate)?),
        })
    }

    fn rate(&self) -> Pps {
        self.rate.unwrap_or(DEFAULT_RATE)
    }

    /// No fewer packets than the pattern has.
    fn scheduled(&self) -> u64 {
        let (rate, lasts) = (self.rate().0 as f64, self.duration.0 as f64);
        let before = self.step_after.map_or(lasts, |after| lasts.min(after.0 as f64));
        let then = self.step_rate.map_or(rate, |rate| rate.0 as f64);
        let mean = (rate * before + then * (lasts - before)) / 1e9;
        // Six standard deviations of a Poisson process of bursts.
        let bursts = 2 * u64::from(self.burst);
        (mean + 6.0 * (mean * f64::from(self.burst)).sqrt()) as u64 + bursts + 64
    }

    /// The headers of the tunnel around what the first port sends.
    fn outer(&self) -> Result<Option<Outer>, Error> {
        let Some(tunnel) = &self.encap else { return Ok(None) };
        let (from, to) = (self.src_ip.0[0], self.dst_ip.0[0]);
        let outer = tunnel.around(from, to).ok_or_else(|| Error::Option {
            option: "--encap",
            got: format!("one end of the family of {from}"),
            expected: "src and dst of one family".into(),
        })?;
        Ok(Some(outer))
    }

    /// What is sent by a port with this address.
    fn template(&self, own_mac: [u8; 6], back: bool) -> Result<Template, Error> {
        let flows = Flows {
            to_mac: self.dst_mac.0,
            from_mac: self.src_mac.map_or(own_mac, |mac| mac.0),
            vlan: self.vlan,
            outer: if back { None } else { self.outer()? },
            protocol: match self.protocol {
                Carried::Udp => Protocol::Udp,
                Carried::Tcp => Protocol::Tcp,
                Carried::Icmp => Protocol::Icmp,
            },
            from: self.src_ip.clone(),
            to: self.dst_ip.clone(),
            from_port: self.src_port.clone(),
            to_port: self.dst_port.clone(),
            count: self.flows,
        };
        Template::new(&flows.headers(back)?, &self.size.cycle(), if back { BACK } else { 0 })
    }

    /// Sends probes by a pattern.
    fn send_probes(&self, mut session: Session) -> Result<(), Error> {
        let (there, names) = self.way(&mut session, false)?;
        let own =
            DirectionCounts { rate_pps: Some(self.rate().0.into()), ..DirectionCounts::default() };
        if self.direction == Direction::One {
            let measurement = self.measurement([there], self.scheduled());
            return measurement.run(session, &[names], own);
        }
        let (back, back_names) = self.way(&mut session, true)?;
        let measurement = self.measurement([there, back], self.scheduled());
        measurement.run(session, &[names, back_names], own)
    }

    /// One direction, and what its packets are known by.
    fn way(&self, session: &mut Session, back: bool) -> Result<(Way<Template>, Probes), Error> {
        let port = usize::from(back);
        let template = self.template(session.ports[port].info.mac, back)?;
        let pool = pool(session, port)?;
        pool.for_each(TX_PACKETS, |packet| {
            packet.set_len(template.bytes().len() as u16);
            packet.data_mut().copy_from_slice(template.bytes());
        });
        let ticks = Ticks::new(session.clock);
        let mark = if back { BACK } else { 0 };
        let names = Probes { payload_at: template.payload_at(), mark, ticks };
        let tx_burst = TX_BURST.max(self.burst as usize);
        // Directions meet in the device by chance, as those of different senders.
        let half_ns = 500_000_000 * u64::from(self.burst) / self.rate().0;
        let way = Way {
            wire: self.wire(session, port, pool, template, tx_burst, ticks.ticks(GIVE_UP)),
            times: Times::Pattern(self.departures(self.seed.wrapping_add(port as u64))?),
            begins: Nanos(if back { half_ns } else { 0 }),
        };
        Ok((way, names))
    }

    /// Sends a capture again. A packet that is late is sent all the same: what comes back is known by
    /// its bytes, and all of them shall be seen.
    fn send_capture(&self, mut session: Session, replay: Replay) -> Result<(), Error> {
        let times = match self.rate {
            None => Times::Capture(replay.departures.clone().into()),
            Some(_) => Times::Capture(self.departures(self.seed)?.take(replay.len()).collect()),
        };
        let (names, scheduled, pool) = (replay.names(), replay.len() as u64, pool(&session, 0)?);
        let own = DirectionCounts {
            replayed: Some(scheduled.into()),
            ambiguous_sent: Some(names.ambiguous.into()),
            ..DirectionCounts::default()
        };
        let wire = self.wire(&mut session, 0, pool, replay, TX_BURST, u64::MAX);
        let way = Way { wire, times, begins: Nanos(0) };
        let mut measurement = self.measurement([way], scheduled);
        (measurement.warm_up, measurement.duration) = (Nanos(0), Nanos(u64::MAX));
        measurement.run(session, &[names], own)
    }

    fn measurement<C, const N: usize>(
        &self,
        ways: [Way<C>; N],
        scheduled: u64,
    ) -> Measurement<C, N> {
        Measurement {
            ways,
            scheduled,
            warm_up: self.warm_up,
            duration: self.duration,
            link_timeout: self.link_timeout,
            keep_ports: self.keep_ports,
            captures: self.captures.clone(),
            added_bytes: self.outer().ok().flatten().map_or(0, |outer| outer.bytes_len()),
        }
    }

    /// Sends by `port`; what arrives comes by the other one, where there are two.
    fn wire<C>(
        &self,
        session: &mut Session,
        port: usize,
        pool: Mempool,
        content: C,
        tx_burst: usize,
        give_up: u64,
    ) -> Wire<C> {
        let other = session.ports.len().min(2) - 1 - port;
        let ticks = Ticks::new(session.clock);
        let drain = ticks.ticks(self.drain);
        let rx = mem::take(&mut session.ports[other].rx);
        let tx = mem::take(&mut session.ports[port].tx);
        Wire { rx, tx, pool, content, ticks, tx_burst, give_up, drain }
    }
}

fn pool(session: &Session, port: usize) -> Result<Mempool, Error> {
    session.pool(&format!("tx{port}"), TX_PACKETS)
}

impl Program for Generator {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        self.check()?;
        self.template([0; 6], false)?;
        let ports = if self.direction == Direction::Both { 2 } else { 1 };
        let wanted = Wanted {
            ports,
            rx_queues: self.rx_queues.unwrap_or(0).max(self.queues),
            tx_queues: self.queues,
            rx_timestamps: false,
            held: 0,
        };
        // Before there are links: what fails later disturbs a peer.
        let read = |path: &PathBuf| Replay::read(path, self.replay_speed, REPLAY_BYTES);
        let replay = self.replay.as_ref().map(read).transpose()?;
        let session = Session::open("gen", eal, &self.common, wanted)?;
        match replay {
            None => self.send_probes(session),
            Some(replay) => self.send_capture(session, replay),
        }
    }
}
