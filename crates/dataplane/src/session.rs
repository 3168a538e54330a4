//! What every program does around its loops: start DPDK, open ports, say what came out.

use crate::counters::Counters;
use crate::cpus::Cpus;
use crate::error::Error;
use crate::events;
use crate::links::Links;
use crate::monitor::{Monitor, Pairs};
use crate::npy;
use crate::options::Common;
use crate::passages::Passages;
use crate::privileges::{self, capability};
use crate::sightings::Sighting;
use crate::stalls::{Stall, StallLog};
use crate::stop::Stop;
use crate::stream::{Recorder, Recording, Written as Streamed};
use crate::writing::{Told, Writing};
use dpdk::{Eal, Info, Lcore, Mempool, Port, PortConfig, RxQueue, TxQueue, tsc};
use messages::{
    LcoreCounts, Message, Outcome, PassedPackets, PortCounts, ProgramCounts, ProgressEvent,
    ReadyEvent, ReadyLcore, ReadyPort, ResultEvent,
};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use units::Clock;

/// Packets in a ring, where the driver lets us choose.
const RING: u16 = 1024;
/// Room for a packet: a frame of 1518 bytes with tags.
const ROOM_BYTES: u16 = 2048;

/// A port that was started.
#[derive(Debug)]
pub struct Open {
    pub port: Port,
    pub info: Info,
    pub rx: Vec<RxQueue>,
    pub tx: Vec<TxQueue>,
}

impl Open {
    fn ready(&self) -> ReadyPort {
        ReadyPort {
            port: self.port.id().into(),
            name: self.info.name.clone(),
            driver: self.info.driver.clone(),
            mac: events::mac(self.info.mac),
            link_up: self.port.link_up(),
        }
    }

    fn counts(&self, link_downs: u64) -> PortCounts {
        let stats = self.port.stats().unwrap_or_default();
        PortCounts {
            port: self.port.id().into(),
            name: self.info.name.clone(),
            driver: self.info.driver.clone(),
            rx_packets: stats.rx_packets.into(),
            tx_packets: stats.tx_packets.into(),
            rx_missed: stats.rx_missed.into(),
            rx_errors: stats.rx_errors.into(),
            rx_nombuf: stats.rx_nombuf.into(),
            tx_errors: stats.tx_errors.into(),
            link_down_count: link_downs.into(),
            xstats: self.port.xstats().unwrap_or_default().into_iter().collect(),
        }
    }
}

/// DPDK with its ports and lcores, for one program.
pub struct Session {
    pub program: &'static str,
    pub clock: Clock,
    pub stop: Stop,
    pub common: Common,
    pub lcores: Vec<Lcore>,
    pub ports: Vec<Open>,
    pub links: Links,
    pub partial: Vec<String>,
    recorded: Vec<String>,
    /// The parts of the folder of `--record`, each of which is read alone.
    pub parts: &'static [&'static str],
    /// The thread that watches links; 0 while there was none.
    monitor_tid: Arc<AtomicU64>,
    /// The thread that writes what is recorded meanwhile; 0 while there was none.
    recorder_tid: Arc<AtomicU64>,
    /// The counter and Unix time, read at once now and then.
    pairs: Pairs,
    started_tsc: u64,
    /// What was told of its progress last.
    told: Told,
    /// How far it is with writing, once it writes.
    writing: Option<Writing>,
    /// The CPUs for everything but the loops.
    pub housekeeping: Cpus,
    // Dropped after the ports were closed.
    eal: Eal,
}

/// How a program wants its ports.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// At least so many ports.
    pub ports: usize,
    /// Queues by which each receives.
    pub rx_queues: u16,
    /// Queues by which each sends.
    pub tx_queues: u16,
    /// Whether devices shall stamp what arrives, where they can.
    pub rx_timestamps: bool,
    /// Packets that the program holds, apart from those in rings and bursts.
    pub held: u32,
}

impl Session {
    /// Starts DPDK and all ports that it finds. Standard output is for events alone from now on.
    pub fn open(
        program: &'static str,
        eal: Vec<String>,
        common: &Common,
        wanted: Wanted,
    ) -> Result<Self, Error> {
        events::claim_stdout();
        let stop = Stop::on_signals()
            .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
        // Before DPDK pins this thread.
        let housekeeping = Cpus::allowed();
        let mut args = vec!["tailscope-dp".to_owned()];
        args.extend(eal);
        let count = tsc::Count::begin();
        let eal = Eal::init(&args)?;
        count.end();
        // Nobody is joined to what may be stopped here.
        wait_for_turn(common, &stop)?;
        let pair = tsc::pair();
        let clock = common.unix_ahead_ns.map_or(pair.clock, tsc::steady);
        let found = eal.ports();
        if found.len() < wanted.ports {
            return Err(Error::Too {
                program,
                got: found.len().to_string(),
                expected: format!("at least {} port(s)", wanted.ports),
                hint: "name devices before --: --vdev=net_memif0,... or -a PCI_ADDRESS",
            });
        }
        let lcores = eal.lcores();
        let ports = open_ports(&found, &lcores, wanted, eal.has_hugepages())?;
        let names = ports.iter().map(|open| (open.port, open.info.name.as_str()));
        let mut links = Links::new(names, &args);
        links.start()?;
        let polled = lcores.iter().filter_map(|lcore| lcore.cpu());
        let housekeeping = housekeeping.without(polled);
        Ok(Self {
            program,
            clock,
            stop,
            common: common.clone(),
            lcores,
            ports,
            links,
            partial: Vec::new(),
            recorded: Vec::new(),
            parts: &[""],
            monitor_tid: Arc::default(),
            recorder_tid: Arc::default(),
            pairs: Arc::new(Mutex::new(vec![pair])),
            started_tsc: tsc::now(),
            told: Told::default(),
            writing: None,
            housekeeping,
            eal,
        })
    }

    /// Makes a pool of packets that are sent.
    pub fn pool(&self, name: &str, packets: u32) -> Result<Mempool, Error> {
        let is_copied =
            !self.eal.has_hugepages() && self.ports.iter().all(|open| copies(&open.info.driver));
        make_pool(name, packets, self.lcores[0].socket(), is_copied)
    }

    /// Gives back what root lent to open the ports, but for what closing them takes; `captures` are
    /// written later, as all that is recorded.
    pub fn give_back_privileges(&self, captures: Option<&Path>) -> Result<(), Error> {
        let drivers = self.ports.iter().map(|open| capabilities(&open.info.driver));
        let kept = drivers.fold(capability::NONE, |all, of_one| all | of_one);
        privileges::give_back(kept, &[self.common.record.as_deref(), captures])
    }

    /// Says that the ports are there, and waits until packets may be touched.
    pub fn ready(&self) -> Result<(), Error> {
        events::print(&Message::Ready(ReadyEvent {
            program: self.program,
            version: env!("CARGO_PKG_VERSION"),
            dpdk: dpdk::running_version(),
            pid: std::process::id().into(),
            clock: events::clock(&self.clock),
            lcores: self.lcores.iter().copied().map(ready_lcore).collect(),
            ports: self.ports.iter().map(Open::ready).collect(),
        }));
        wait_for_turn(&self.common, &self.stop)
    }

    /// Watches links and prints progress from now on, off the lcores where there is another CPU.
    pub fn monitor<'scope, 'env>(
        &self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        state: impl FnMut(f64) -> ProgressEvent + Send + 'scope,
    ) -> Monitor<'scope> {
        let shared = (self.links.clone(), self.pairs.clone(), self.told.clone());
        Monitor::start(self.housekeeping, scope, shared, &self.monitor_tid, state)
    }

    /// Writes what `recorder` is handed over from now on, where the monitor runs.
    pub fn write_meanwhile<'scope, 'env>(
        &self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        recorder: Recorder,
    ) -> Recording<'scope> {
        recorder.start(self.housekeeping, scope, &self.recorder_tid, self.stop.clone())
    }

    /// Takes what was written meanwhile.
    pub fn wrote_meanwhile(&mut self, written: Streamed) {
        self.recorded.extend(written.files);
        self.partial
            .extend(written.error.map(|error| format!("the recording ends early: {error}")));
    }

    /// There are `values` more to be written, if anything is.
    pub fn expect(&mut self, values: usize) {
        if self.common.record.is_some() {
            self.writing.get_or_insert_with(|| Writing::new(self.told.clone())).expect(values);
        }
    }

    /// One more value is written.
    #[inline]
    pub fn wrote(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.wrote();
        }
    }

    /// Writes one array into the folder of `--record`, where there is one. What cannot be written
    /// makes the result a partial one.
    pub fn record(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        let Some(folder) = self.common.record.clone() else { return };
        let name = format!("{name}.npy");
        match npy::write(&folder.join(&name), values.inspect(|_| self.wrote())) {
            Ok(()) => self.recorded.push(name),
            Err(error) => self.partial.push(error.to_string()),
        }
    }

    /// Writes the stalls of all lcores in order of time.
    fn record_stalls(&mut self, lanes: &[Lane]) {
        let mut all: Vec<(Stall, u32)> = Vec::new();
        for lane in lanes {
            all.extend(lane.log.stalls().iter().map(|stall| (*stall, lane.lcore.0)));
        }
        all.sort_by_key(|(stall, _)| stall.start);
        self.expect(3 * all.len());
        self.record("stall_start_tsc", all.iter().map(|(stall, _)| stall.start));
        self.record("stall_duration_tsc", all.iter().map(|(stall, _)| stall.duration));
        self.record("stall_lcore", all.iter().map(|(_, lcore)| u64::from(*lcore)));
    }

    /// Writes when packets were seen, in order of time, and what the counter was in Unix time meanwhile.
    fn record_clock(&mut self, lanes: &[Lane]) {
        let mut seen: Vec<Sighting> =
            lanes.iter().flat_map(|lane| lane.sightings.iter().copied()).collect();
        seen.sort_by_key(|sighting| sighting.tsc);
        self.expect(2 * seen.len());
        self.record("sighted_seq", seen.iter().map(|sighting| sighting.seq));
        self.record("sighted_tsc", seen.iter().map(|sighting| sighting.tsc));
        let pairs = self.pairs.lock().expect("noting does not panic").clone();
        for part in self.parts {
            let name = |stem: &str| format!("{part}pair_{stem}");
            self.record(&name("tsc"), pairs.iter().map(|pair| pair.clock.tsc));
            self.record(&name("unix_ns"), pairs.iter().map(|pair| pair.clock.unix_ns));
            self.record(&name("width_tsc"), pairs.iter().map(|pair| pair.width));
        }
    }

    /// Writes when packets were received and sent, of each lcore in order of time; says how many times.
    pub fn record_passages(&mut self, lanes: &[Lane]) -> Option<PassedPackets> {
        let ways: Vec<&Passages> = lanes.iter().filter_map(|lane| lane.passages.as_ref()).collect();
        if ways.is_empty() {
            return None;
        }
        let packets: usize = ways.iter().map(|way| way.seen().len()).sum();
        self.expect(5 * packets);
        let seen = || ways.iter().flat_map(|way| way.seen());
        self.record("passed_seq", seen().map(|passage| passage.seq));
        self.record("passed_polled_tsc", seen().map(|passage| passage.polled));
        self.record("passed_received_tsc", seen().map(|passage| passage.received));
        self.record("passed_handed_on_tsc", seen().map(|passage| passage.handed_on));
        self.record("passed_sent_tsc", seen().map(|passage| passage.sent));
        let lost: u64 = ways.iter().map(|way| way.lost()).sum();
        Some(PassedPackets { packets: packets.into(), lost: lost.into() })
    }

    /// Prints what came out. `own` is what only this program has to say.
    pub fn finish(mut self, lanes: &[Lane], link_downs: &[u64], own: Outcome) {
        self.record_stalls(lanes);
        self.print_result(lanes, link_downs, own);
    }

    /// Prints the result; the ports stay.
    pub fn print_result(&mut self, lanes: &[Lane], link_downs: &[u64], own: Outcome) {
        self.record_clock(lanes);
        let counts = ProgramCounts {
            complete: self.partial.is_empty(),
            hugepages: self.eal.has_hugepages(),
            started_tsc: self.started_tsc.into(),
            duration_ns: self.clock.duration(tsc::now().saturating_sub(self.started_tsc)).0.into(),
            lcores: lanes.iter().map(|lane| lane.counts(&self.clock)).collect(),
            ports: self
                .ports
                .iter()
                .zip(link_downs)
                .map(|(open, downs)| open.counts(*downs))
                .collect(),
        };
        events::print(&Message::Result(Box::new(ResultEvent {
            counts,
            clock: events::clock(&self.clock),
            partial: self.partial.clone(),
            record: self.recorded.clone(),
            monitor_tid: self.monitor_tid.load(Ordering::Relaxed).into(),
            recorder_tid: self.recorder_tid.load(Ordering::Relaxed).into(),
            own,
        })));
    }
}

impl Drop for Session {
    /// However it ends: DPDK does not survive the end of its environment with ports that run.
    fn drop(&mut self) {
        if self.ports.iter().any(|open| open.info.driver == "net_memif") {
            dpdk::interrupts::hold().for_good();
        }
        for open in &self.ports {
            open.port.close();
        }
    }
}

/// What belongs to one lcore: what it counts, and its stalls.
#[derive(Debug)]
pub struct Lane {
    pub lcore: Lcore,
    pub counters: Counters,
    pub log: StallLog,
    /// When it saw some of the packets.
    pub sightings: Vec<Sighting>,
    /// The way of packets through it, where that was wanted.
    pub passages: Option<Passages>,
    /// Packets dropped on purpose, by reason.
    pub dropped: Vec<(&'static str, u64)>,
}

impl Lane {
    fn counts(&self, clock: &Clock) -> LcoreCounts {
        let dropped = self.dropped.iter().map(|(reason, count)| (*reason, (*count).into()));
        LcoreCounts {
            lcore: ready_lcore(self.lcore),
            tid: self.counters.tid.get().into(),
            iterations: self.counters.iterations.get().into(),
            rx_packets: self.counters.rx_packets.get().into(),
            tx_packets: self.counters.tx_packets.get().into(),
            tx_dropped: self.counters.tx_dropped.get().into(),
            dropped: dropped.collect(),
            stalls: self.log.count().into(),
            stall_ns_total: clock.duration(self.log.total).0.into(),
            stall_ns_max: clock.duration(self.log.longest).0.into(),
            stalls_unrecorded: self.log.unrecorded.into(),
        }
    }
}

/// What a driver needs once its ports run. AF_XDP detaches its program when a port is closed. What
/// drivers of cards do then is theirs: they keep what such drivers ask for anywhere.
fn capabilities(driver: &str) -> u64 {
    use capability::{BPF, IPC_LOCK, NET_ADMIN, NET_RAW, NONE, SYS_ADMIN, SYS_RAWIO};
    match driver {
        "net_memif" | "net_vhost" | "net_virtio_user" | "net_af_packet" | "net_null" => NONE,
        "net_af_xdp" => BPF | NET_ADMIN | SYS_ADMIN,
        _ => IPC_LOCK | NET_ADMIN | NET_RAW | SYS_RAWIO,
    }
}

fn ready_lcore(lcore: Lcore) -> ReadyLcore {
    ReadyLcore { lcore: lcore.0.into(), cpu: lcore.cpu().map(Into::into) }
}

/// Waits for a byte from the pipe of `--hold`, where there is one.
fn wait_for_turn(common: &Common, stop: &Stop) -> Result<(), Error> {
    common.hold.as_deref().map_or(Ok(()), |pipe| {
        let failed = |source| Error::File { path: pipe.into(), source };
        stop.wait_for_byte(pipe).map_err(failed)
    })
}

/// Makes a pool in memory that suits drivers.
fn make_pool(name: &str, packets: u32, socket: i32, is_copied: bool) -> Result<Mempool, Error> {
    let make = if is_copied { Mempool::copied } else { Mempool::new };
    Ok(make(name, packets, ROOM_BYTES, socket)?)
}

/// Whether drivers copy packets, so that these may lie in any memory.
fn copies(driver: &str) -> bool {
    matches!(driver, "net_memif" | "net_af_packet")
}

fn open_ports(
    found: &[Port],
    lcores: &[Lcore],
    wanted: Wanted,
    has_hugepages: bool,
) -> Result<Vec<Open>, Error> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let socket = lcores[0].socket();
    let queues = u32::from(wanted.rx_queues + wanted.tx_queues) * found.len() as u32;
    let infos = found.iter().map(|port| port.info()).collect::<Result<Vec<_>, _>>()?;
    let is_copied = !has_hugepages && infos.iter().all(|info| copies(&info.driver));
    // What rings and their users can hold at the same time.
    let packets = queues * u32::from(RING) + lcores.len() as u32 * 2048 + wanted.held;
    let pool = make_pool("rx", packets, socket, is_copied)?;
    let open = |(port, info): (&Port, Info)| {
        let rx_timestamps = wanted.rx_timestamps && info.rx_timestamps;
        let config = PortConfig {
            rx_queues: wanted.rx_queues,
            tx_queues: wanted.tx_queues,
            rx_ring: RING,
            tx_ring: RING,
            pool,
            rx_timestamps,
        };
        let (rx, tx) = port.configure(&config)?;
        Ok(Open { port: *port, info, rx, tx })
    };
    found.iter().zip(infos).map(open).collect()
}
