//! Whether links are up, and making them so again.

use crate::error::Error;
use crate::stop::Stop;
use dpdk::{Port, interrupts, quiescence};
use std::time::{Duration, Instant};
use units::Nanos;

/// A memif client connects only when it is started: it is started again if it is not connected so long
/// after a server took it, or after none was there.
const RESTART_EVERY: Duration = Duration::from_millis(100);
const RETRY_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The links of a program.
#[derive(Clone, Debug)]
pub struct Links(Vec<Link>);

#[derive(Clone, Debug)]
struct Link {
    port: Port,
    name: String,
    is_client: bool,
    started: Option<Instant>,
    refused: bool,
    was_up: bool,
    downs: u64,
}

impl Links {
    /// The links of `ports`, which were set up; `eal` says which of them are memif clients.
    pub fn new<'a>(ports: impl Iterator<Item = (Port, &'a str)>, eal: &[String]) -> Self {
        let link = |(port, name): (Port, &str)| Link {
            port,
            name: name.to_owned(),
            is_client: is_memif_client(name, eal),
            started: None,
            refused: false,
            was_up: false,
            downs: 0,
        };
        Self(ports.map(link).collect())
    }

    /// Starts all ports. A memif client without a server is not an error: the server may come.
    pub fn start(&mut self) -> Result<(), Error> {
        for link in &mut self.0 {
            link.started = Some(Instant::now());
            match link.port.start() {
                Err(_) if link.is_client => link.refused = true,
                done => done?,
            }
        }
        Ok(())
    }

    /// Notes which links went down, and starts memif clients whose server is away.
    pub fn look(&mut self) {
        for link in &mut self.0 {
            let up = link.port.link_up();
            link.downs += u64::from(link.was_up && !up);
            link.was_up = up;
            let pause = if link.refused { RETRY_EVERY } else { RESTART_EVERY };
            let tried = link.started.is_some_and(|at| at.elapsed() < pause);
            if !up && link.is_client && !tried {
                link.restart();
            }
        }
    }

    /// Whether all were up at the last look.
    pub fn are_up(&self) -> bool {
        self.0.iter().all(|link| link.was_up)
    }

    /// Waits until all are up.
    pub fn wait(&mut self, timeout: Nanos, stop: &Stop) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            self.look();
            let Some(down) = self.0.iter().find(|link| !link.was_up) else { return Ok(()) };
            if began.elapsed() >= Duration::from_nanos(timeout.0) || stop.asked() {
                let waited = Nanos(began.elapsed().as_millis() as u64 * 1_000_000);
                return Err(Error::Link { port: down.port.id(), name: down.name.clone(), waited });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// How often each went down.
    pub fn downs(&self) -> Vec<u64> {
        self.0.iter().map(|link| link.downs).collect()
    }
}

impl Link {
    fn restart(&mut self) {
        let pause = quiescence::pause();
        let held = interrupts::hold();
        self.port.stop();
        // Refused until the server is back.
        self.refused = self.port.start().is_err();
        drop(held);
        drop(pause);
        self.started = Some(Instant::now());
    }
}

/// Whether `--vdev=NAME,...,role=client,...` stands among the EAL options.
fn is_memif_client(name: &str, eal: &[String]) -> bool {
    let mut devices = eal.iter().flat_map(|arg| arg.split_once('=')).map(|(_, device)| device);
    let joined = eal.windows(2).filter(|pair| pair[0] == "--vdev").map(|pair| pair[1].as_str());
    let describes = |device: &str| {
        let mut parts = device.split(',');
        let role = |part: &str| ["role=client", "role=slave"].contains(&part);
        parts.next() == Some(name) && name.starts_with("net_memif") && parts.any(role)
    };
    devices.any(describes) || { joined }.any(describes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memif_client_is_known_by_its_options() {
        let is_client = |name: &str, line: &str| {
            let eal: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            is_memif_client(name, &eal)
        };
        assert!(is_client("net_memif0", "-l 1 --vdev=net_memif0,id=0,role=client,socket=/s"));
        assert!(is_client("net_memif0", "--vdev net_memif0,role=client"));
        assert!(!is_client("net_memif1", "--vdev=net_memif0,role=client"));
        assert!(!is_client("net_memif0", "--vdev=net_memif0,role=server"));
        assert!(!is_client("net_memif0", "--vdev=net_memif0"));
    }
}
