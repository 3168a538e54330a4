//! `sender`: asks another host by STAMP, and writes down what comes back.

use crate::admission::FIRST_PORT;
use crate::error::Error;
use crate::events;
use crate::keys;
use crate::mix::Mix;
use crate::options;
use crate::privileges::{self, capability};
use crate::program::{Program, Spec};
use crate::reflector::Poll;
use crate::sender::{Asked, Sender, Txtime};
use crate::stamps::Stamps;
use crate::stop::Stop;
use crate::udp::sleep_exactly;
use crate::values::time;
use crate::wall::Wall;
use clap::Args;
use messages::{HostClock, Message, Recorded, SentQueries, ToldByReflector};
use probe::schedule::Pattern;
use probe::stamp::{ClockError, Extensions, Form, WatchForm};
use std::net::SocketAddr;
use std::path::PathBuf;
use units::{Nanos, Pps};

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "sender",
    about: "ask another host by STAMP (RFC 8762), and record every packet",
    parse: |own| Ok(Box::new(options::parse::<Ask>("sender", SPEC.about, own)?)),
};

/// Bytes of a frame beside the IP packet: addresses, type and check sequence of Ethernet.
const ETHERNET: usize = 18;
const UDP_HEADER: usize = 8;
/// Queries a second of which the kernel takes the time at which they come to the queue of their interface: a
/// further stamp of each would take a quarter of the time of one who sends many.
const QUEUE_TIMED_PPS: u64 = 10_000;

#[derive(Args, Debug)]
struct Ask {
    /// The other host.
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// Queries per second.
    #[arg(long, value_name = "PPS")]
    rate: u64,
    /// When they leave: cbr, poisson, burst:SIZE,GAP or poisson:SIZE,GAP.
    #[arg(long, value_name = "PATTERN", default_value = "cbr")]
    pattern: Pattern,
    /// Seed of a Poisson process.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// For how long.
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Nanos,
    /// How long to wait for the last answers.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    drain: Nanos,
    /// Sizes of frames, check sequence included; those that have no room for a query are longer.
    #[arg(long, value_name = "BYTES", default_value = "64")]
    size: Mix,
    /// Number of flows, each with a source port of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    flows: u16,
    /// Source port of the first flow; 0 takes free ones.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    source_port: u16,
    /// Class of service of queries, and of answers.
    #[arg(long, value_name = "DSCP", value_parser = clap::value_parser!(u8).range(0..64))]
    dscp: Option<u8>,
    /// Ask for nothing beyond RFC 8762.
    #[arg(long)]
    plain: bool,
    /// File with a key: queries are sealed by it, and answers have to be.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Let the queue of the interface send queries at their times.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Txtime::Auto)]
    txtime: Txtime,
    /// Link whose card takes the times of packets, by its own clock.
    #[arg(long, value_name = "LINK")]
    card: Option<String>,
    /// How it waits.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Poll::Sleep)]
    poll: Poll,
    /// Write what was recorded into this folder.
    #[arg(long, value_name = "DIR")]
    record: PathBuf,
}

impl Ask {
    /// Refuses ports that are none, or of which no reflector takes queries.
    fn check_ports(&self) -> Result<(), Error> {
        let first = u32::from(self.source_port);
        let ports = first..first + u32::from(self.flows);
        let is_free = ports.start >= u32::from(FIRST_PORT)
            && ports.end <= 1 << 16
            && !ports.contains(&u32::from(self.to.port()));
        if first == 0 || is_free {
            return Ok(());
        }
        let got = match self.flows {
            1 => first.to_string(),
            flows => format!("{first} and {} more", flows - 1),
        };
        let expected = format!(
            "ports from {FIRST_PORT} to 65535 without {}, that of the reflector",
            self.to.port()
        );
        Err(Error::Option { option: "--source-port", got, expected })
    }

    /// Bytes of a frame beside the query.
    fn headers(&self) -> usize {
        ETHERNET + UDP_HEADER + if self.to.is_ipv4() { 20 } else { 40 }
    }

    fn asked(&self) -> Result<Asked, Error> {
        let form = Form::new(self.key_file.as_deref().map(keys::read).transpose()?);
        let extensions = Extensions {
            follow_up: !self.plain,
            watch: (!self.plain).then_some(WatchForm::LATEST),
            dscp: self.dscp.filter(|_| !self.plain),
        };
        let headers = self.headers();
        let least = form.query_bytes(extensions);
        let sizes = self.size.cycle().into_iter();
        Ok(Asked {
            to: self.to,
            form,
            flows: self.flows.into(),
            source_port: self.source_port,
            dscp: self.dscp.unwrap_or(0),
            poll: self.poll,
            txtime: self.txtime,
            extensions,
            queue_each: u32::try_from(self.rate.div_ceil(QUEUE_TIMED_PPS).max(1))
                .unwrap_or(u32::MAX),
            sizes: sizes.map(|frame| frame.saturating_sub(headers).max(least)).collect(),
            drain: self.drain,
        })
    }
}

impl Program for Ask {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        options::refuse_eal(SPEC.name, &eal)?;
        let stop = Stop::on_signals()
            .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
        let usage = |error: probe::Error| Error::Usage(format!("sender: {error}"));
        let times = self.pattern.departures(Pps(self.rate), self.seed).map_err(usage)?;
        let lasts = self.duration;
        let queries = u128::from(lasts.0) * u128::from(self.rate) / 1_000_000_000;
        if queries > u128::from(u32::MAX) {
            let (option, got) = ("--duration", lasts.to_string());
            let expected = format!("at most {} queries, got {queries}", u32::MAX);
            return Err(Error::Option { option, got, expected });
        }
        self.check_ports()?;
        // Root may read the key of another user only as long as it has its rights.
        let asked = self.asked()?;
        let stamps = Stamps::new(self.card.as_deref(), Wall::new())?;
        privileges::give_back(capability::NONE, &[Some(&self.record)])?;
        sleep_exactly();
        let mut sender = Sender::new(asked, stamps, &self.record, queries as usize)?;
        events::recording(SPEC.name);
        sender.run(times.take_while(|at| *at < lasts), &stop)?;
        events::print(&Message::Recorded(Box::new(told(&sender, self.headers(), stop.asked()))));
        Ok(())
    }
}

fn told(sender: &Sender, headers: usize, stopped: bool) -> Recorded {
    let counts = &sender.counts;
    let (shortest, longest) = sender.sizes();
    let partial =
        if stopped { vec!["it was ended before its time".to_owned()] } else { Vec::new() };
    let last = sender.vitals.last();
    let reflector = counts.watched.map(|[first, last]| ToldByReflector {
        same_clock: sender.has_same_clock(),
        dropped: last.dropped.wrapping_sub(first.dropped).into(),
        refused: last.refused.wrapping_sub(first.refused).into(),
        unsent: last.unsent.wrapping_sub(first.unsent).into(),
        stalls: last.stalls.wrapping_sub(first.stalls).into(),
        stalls_untold: counts.stalls_untold.into(),
        run_delay_us: last.run_delay_us.wrapping_sub(first.run_delay_us).into(),
        throttled_us: last.throttled_us.wrapping_sub(first.throttled_us).into(),
        handling_ns: (last.handling_ns > 0).then(|| last.handling_ns.into()),
        card_error_ns: last.card_error_ns.filter(|ns| *ns > 0).map(Into::into),
        older: last.card_error_ns.is_none(),
    });
    let reflector_steps =
        counts.watched.map_or(0, |[first, last]| last.clock_steps.wrapping_sub(first.clock_steps));
    let names = ["departures", "stamps", "arrivals", "follow_ups", "stalls"];
    let sender = SentQueries {
        sent: counts.sent.into(),
        unsent: counts.unsent.into(),
        unsent_refused: counts.unsent_refused.into(),
        received: counts.received.into(),
        foreign: counts.foreign.into(),
        wrong_key: counts.wrong_key.into(),
        dropped: sender.dropped().into(),
        refusals: counts.refusals.into(),
        stamped: counts.stamped.into(),
        frame_bytes_min: Some((headers + shortest).into()),
        frame_bytes_max: Some((headers + longest).into()),
        departed_by: sender.departed_by,
        card: sender.stamps.card().map(|card| Box::new(card.told())),
        ports: sender.ports().into_iter().map(Into::into).collect(),
        clock: clock(counts.clock, counts.clock_steps),
        reflector_clock: clock(counts.reflector_clock, reflector_steps.into()),
        reflector,
        run_delay_us: (last.waited_ns / 1_000).into(),
        throttled_us: (last.throttled_ns / 1_000).into(),
        handling_ns: counts.handling_ns.map(Into::into),
        stalls: sender.vitals.told(),
        record: names.map(|name| format!("{name}.npy")).to_vec(),
    };
    Recorded::Sender { complete: partial.is_empty(), partial, sender }
}

fn clock(error: Option<ClockError>, steps: u64) -> HostClock {
    let error = error.unwrap_or_default();
    HostClock {
        synchronised: error.synchronised,
        error_ns_max: error.most_ns.min(i64::MAX as u64).into(),
        steps: steps.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_those_that_a_reflector_takes() {
        let check = |port: u16, flows: u16| {
            let own = format!(
                "--to=[::1]:8620 --rate=1 --duration=1s --record=. --source-port={port} --flows={flows}"
            );
            let own = own.split(' ').map(str::to_owned).collect();
            options::parse::<Ask>("sender", SPEC.about, own).unwrap().check_ports()
        };
        for (port, flows) in [(0, 256), (1024, 1), (65535, 1), (65533, 3), (8619, 1), (8621, 1)] {
            assert!(check(port, flows).is_ok(), "{port} {flows}");
        }
        for (port, flows) in [(1, 1), (1023, 2), (65535, 3), (65534, 3), (8620, 1), (8618, 3)] {
            let error = check(port, flows).unwrap_err();
            assert!(matches!(error, Error::Option { option: "--source-port", .. }), "{error}");
        }
    }
}
