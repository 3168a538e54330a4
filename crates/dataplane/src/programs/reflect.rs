//! `reflect`: answers queries of STAMP, which another host sends to measure what is between.

use crate::admission::{Admission, OWN_NETWORKS, Prefix};
use crate::error::Error;
use crate::events;
use crate::keys;
use crate::options;
use crate::privileges::{self, capability};
use crate::program::{Program, Spec};
use crate::reflector::{Poll, Reflector};
use crate::stamps::Stamps;
use crate::stop::Stop;
use crate::udp::{Udp, sleep_exactly};
use crate::wall::Wall;
use clap::Args;
use messages::{Message, Recorded, Reflected};
use probe::stamp::{Form, PORT};
use std::net::IpAddr;
use std::path::PathBuf;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "reflect",
    about: "answer queries of STAMP (RFC 8762) and TWAMP light",
    parse: |own| Ok(Box::new(options::parse::<Reflect>("reflect", SPEC.about, own)?)),
};

#[derive(Args, Debug)]
struct Reflect {
    /// Port to listen at; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Address to listen at; without, all of this machine.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Sources that are answered.
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',', default_value = OWN_NETWORKS)]
    allow: Vec<Prefix>,
    /// Packets per second that each source is answered at most.
    #[arg(long, value_name = "PPS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate_pps: u64,
    /// File with a key: packets are sealed by it, and others are not answered.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Link whose card takes the times of packets, by its own clock.
    #[arg(long, value_name = "LINK")]
    card: Option<String>,
    /// How it waits for packets.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Poll::Sleep)]
    poll: Poll,
}

impl Program for Reflect {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        options::refuse_eal(SPEC.name, &eal)?;
        let stop = Stop::on_signals()
            .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
        let key = self.key_file.as_deref().map(keys::read).transpose()?;
        let stamps = Stamps::new(self.card.as_deref(), Wall::new())?;
        // Before queries come, which would wait.
        let handling_ns = stamps.handling_ns().unwrap_or(0);
        let socket = Udp::listen(self.address, self.port)?;
        let port = socket.port();
        privileges::become_nobody();
        privileges::give_back(capability::NONE, &[])?;
        sleep_exactly();
        let admission = Admission::new(self.allow, port, self.rate_pps);
        let mut reflector =
            Reflector::new(socket, Form::new(key), admission, self.poll, stamps, handling_ns)?;
        events::listening(SPEC.name, port);
        reflector.run(&stop)?;
        let counts = reflector.counts;
        let reflect = Reflected {
            port: port.into(),
            received: counts.received.into(),
            answered: counts.answered.into(),
            refused_source: counts.refused_source.into(),
            refused_port: counts.refused_port.into(),
            refused_rate: counts.refused_rate.into(),
            refused_key: counts.refused_key.into(),
            malformed: counts.malformed.into(),
            unsent: counts.unsent.into(),
            dropped: counts.dropped.into(),
            sessions: reflector.sessions.began.into(),
            clock_steps: counts.clock_steps.into(),
            card: reflector.stamps.card().map(|card| Box::new(card.told())),
            stalls: reflector.vitals.told(),
        };
        events::print(&Message::Recorded(Box::new(Recorded::Reflect {
            complete: true,
            partial: Vec::new(),
            reflect,
        })));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_nothing_is_refused() {
        let parse = |rate: &str| {
            let own = vec![format!("--rate-pps={rate}")];
            options::parse::<Reflect>("reflect", SPEC.about, own).is_ok()
        };
        assert_eq!(["0", "1", "1000000000", "1000000001"].map(parse), [false, true, true, false]);
    }
}
