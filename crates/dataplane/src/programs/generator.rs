//! `gen`: sends at its own times and measures what comes back.

use super::measurement::Measurement;
use crate::book::Probes;
use crate::error::Error;
use crate::hot::generator::Wire;
use crate::options::{self, Common};
use crate::program::{Program, Spec};
use crate::replay::Replay;
use crate::schedule::Times;
use crate::session::{ROOM_BYTES, Session, Wanted};
use crate::template::{Template, addresses};
use crate::ticks::Ticks;
use crate::values::{mac, time};
use clap::{Args, ValueEnum};
use dpdk::{Burst, Mempool};
use probe::headers::UdpHeaders;
use probe::payload;
use probe::schedule::{Departures, Pattern};
use serde_json::json;
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

#[derive(Args, Debug)]
struct Generator {
    #[command(flatten)]
    common: Common,
    /// Packets per second; 10k, or with --replay as captured.
    #[arg(long, value_name = "PPS", value_parser = rate)]
    rate: Option<Pps>,
    /// Send the frames of a capture as they are, once.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pattern", "burst", "size", "flows", "vlan"])]
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
    /// Seed of the Poisson process.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Bytes of a frame with its check sequence.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    size: usize,
    /// Flows, which differ by source port.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Source MAC address; that of the port when it is not given.
    #[arg(long, value_name = "MAC", value_parser = address)]
    src_mac: Option<Mac>,
    /// Destination MAC address.
    #[arg(long, default_value = "02:00:00:00:00:10", value_name = "MAC", value_parser = address)]
    dst_mac: Mac,
    /// Source address, IPv4 or IPv6.
    #[arg(long, default_value = "10.0.0.1", value_name = "IP")]
    src_ip: IpAddr,
    /// Destination address.
    #[arg(long, default_value = "10.0.1.1", value_name = "IP")]
    dst_ip: IpAddr,
    /// Source port of the first flow.
    #[arg(long, default_value_t = 1024, value_name = "PORT")]
    src_port: u16,
    /// Destination port.
    #[arg(long, default_value_t = 53, value_name = "PORT")]
    dst_port: u16,
    /// VLAN to tag frames with.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..4095))]
    vlan: Option<u16>,
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
        if !(1..=Burst::MOST).contains(&(self.burst as usize)) {
            let (got, expected) = (self.burst.to_string(), format!("1 to {}", Burst::MOST));
            return Err(Error::Option { option: "--burst", got, expected });
        }
        if self.replay_speed.is_nan() || self.replay_speed <= 0.0 {
            let (got, expected) = (self.replay_speed.to_string(), "more than 0".into());
            return Err(Error::Option { option: "--replay-speed", got, expected });
        }
        self.departures().map(drop)
    }

    fn departures(&self) -> Result<Departures, Error> {
        let pattern = match (self.pattern, self.burst) {
            (Spacing::Cbr, 1) => Pattern::Cbr,
            (Spacing::Cbr, size) => Pattern::Burst { size, gap: Nanos(0) },
            (Spacing::Poisson, 1) => Pattern::Poisson,
            (Spacing::Poisson, size) => {
                let expected = "1 with --pattern poisson".into();
                return Err(Error::Option { option: "--burst", got: size.to_string(), expected });
            }
        };
        pattern.departures(self.rate(), self.seed).map_err(|error| Error::Option {
            option: "--rate",
            got: self.rate().to_string(),
            expected: error.to_string(),
        })
    }

    fn rate(&self) -> Pps {
        self.rate.unwrap_or(DEFAULT_RATE)
    }

    /// No fewer packets than the pattern has.
    fn scheduled(&self) -> u64 {
        let mean = self.rate().0 as f64 * self.duration.0 as f64 / 1e9;
        // Six standard deviations of a Poisson process.
        (mean + 6.0 * mean.sqrt()) as u64 + u64::from(self.burst) + 64
    }

    fn template(&self, own_mac: [u8; 6]) -> Result<Template, Error> {
        let headers = UdpHeaders {
            to_mac: self.dst_mac.0,
            from_mac: self.src_mac.map_or(own_mac, |mac| mac.0),
            vlan: self.vlan,
            addresses: addresses(self.src_ip, self.dst_ip)?,
            from_port: self.src_port,
            to_port: self.dst_port,
            ttl: 64,
        };
        Template::new(&headers, self.size, self.flows)
    }

    /// Sends probes by a pattern.
    fn send_probes(&self, mut session: Session) -> Result<(), Error> {
        let template = self.template(session.ports[0].info.mac)?;
        let pool = pool(&session)?;
        pool.for_each(TX_PACKETS, |packet| {
            packet.set_len(template.bytes().len() as u16);
            packet.data_mut().copy_from_slice(template.bytes());
        });
        let ticks = Ticks::new(session.clock);
        let probes = Probes { payload_at: template.payload_at(), ticks };
        let tx_burst = TX_BURST.max(self.burst as usize);
        let measurement = Measurement {
            wire: self.wire(&mut session, pool, template, tx_burst, ticks.ticks(GIVE_UP)),
            times: Times::Pattern(self.departures()?),
            scheduled: self.scheduled(),
            warm_up: self.warm_up,
            duration: self.duration,
            link_timeout: self.link_timeout,
            keep_ports: self.keep_ports,
            captures: self.captures.clone(),
        };
        measurement.run(session, &probes, json!({ "rate_pps": self.rate().0 }))
    }

    /// Sends a capture again. A packet that is late is sent all the same: what comes back is known by
    /// its bytes, and all of them shall be seen.
    fn send_capture(&self, mut session: Session, replay: Replay) -> Result<(), Error> {
        let times = match self.rate {
            None => Times::Capture(replay.departures.clone().into()),
            Some(_) => Times::Capture(self.departures()?.take(replay.len()).collect()),
        };
        let (names, scheduled, pool) = (replay.names(), replay.len() as u64, pool(&session)?);
        let own = json!({ "replayed": scheduled, "ambiguous_sent": names.ambiguous });
        let measurement = Measurement {
            wire: self.wire(&mut session, pool, replay, TX_BURST, u64::MAX),
            times,
            scheduled,
            warm_up: Nanos(0),
            duration: Nanos(u64::MAX),
            link_timeout: self.link_timeout,
            keep_ports: self.keep_ports,
            captures: self.captures.clone(),
        };
        measurement.run(session, &names, own)
    }

    fn wire<C>(
        &self,
        session: &mut Session,
        pool: Mempool,
        content: C,
        tx_burst: usize,
        give_up: u64,
    ) -> Wire<C> {
        let back = session.ports.len().min(2) - 1;
        let ticks = Ticks::new(session.clock);
        let drain = ticks.ticks(self.drain);
        let (rx, tx) = (session.ports[back].rx.remove(0), session.ports[0].tx.remove(0));
        Wire { rx, tx, pool, content, ticks, tx_burst, give_up, drain }
    }
}

fn pool(session: &Session) -> Result<Mempool, Error> {
    Ok(Mempool::new("tx", TX_PACKETS, ROOM_BYTES, session.lcores[0].socket())?)
}

impl Program for Generator {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        self.check()?;
        self.template([0; 6])?;
        let wanted = Wanted { ports: 1, queues: 1, rx_timestamps: false, held: 0 };
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
