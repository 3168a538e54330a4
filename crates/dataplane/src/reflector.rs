//! The loop that answers queries of STAMP, and what it keeps of each session.

use crate::admission::{Admission, Refusal};
use crate::error::Error;
use crate::stop::Stop;
use crate::udp::{self, BATCH, Batch, Udp};
use crate::vitals::{EndStall, Vitals};
use crate::wall::{self, Wall};
use probe::stamp::{Cause, ClockError, FollowUp, Query, Reply, Watch};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// What takes longer is a stall of a loop that waits for packets.
pub const STALL_NS: u64 = 500_000;
/// A stamp may be of so long before the socket was seen empty: the packet was on its way into it.
pub const ON_ITS_WAY_NS: u64 = 1_000_000;
/// Stalls that are kept at most.
const STALLS: usize = 1 << 14;
/// How long it sleeps at most before it looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(50);
/// Answers that leave after one reading of the clock.
const AT_ONCE: usize = 8;
/// Sessions at once, and how long one may be silent.
const SESSIONS: usize = 1 << 16;
const SILENT_NS: u64 = 60_000_000_000;
/// Answers of a session whose departure is still to be told.
const UNTOLD: usize = 64;
/// Answers of which a stamp may still come.
const UNSTAMPED: usize = 1 << 16;
const NS_PER_S: u64 = 1_000_000_000;

/// How a loop waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Poll {
    /// It sleeps until one comes.
    Sleep,
    /// It looks all the time.
    Busy,
}

/// Who asks: an address and a session of it.
type Name = (SocketAddr, u16);

#[derive(Debug, Default)]
struct Session {
    next: u32,
    seen_ns: u64,
    untold: VecDeque<FollowUp>,
}

/// What became of queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub received: u64,
    pub answered: u64,
    pub refused_source: u64,
    pub refused_port: u64,
    pub refused_rate: u64,
    pub malformed: u64,
    pub unsent: u64,
    pub dropped: u64,
    pub sessions: u64,
    pub clock_steps: u64,
}

/// Answers queries at one socket.
pub struct Reflector {
    socket: Udp,
    admission: Admission,
    poll: Poll,
    boot: u32,
    wall: Wall,
    pub vitals: Vitals,
    pub counts: Counts,
    sessions: HashMap<Name, Session>,
    pruned_ns: u64,
    /// Who got the answers that left last, by the place of each.
    sent: Vec<Option<(Name, u32, u64)>>,
    places: u32,
    error: ClockError,
    error_ns: u64,
    /// When the socket was seen empty last.
    empty_ns: u64,
    last_stall: Option<EndStall>,
}

impl Reflector {
    pub fn new(socket: Udp, admission: Admission, poll: Poll) -> Self {
        let wall = Wall::new();
        let empty_ns = wall.now();
        Self {
            socket,
            admission,
            poll,
            boot: boot(),
            wall,
            vitals: Vitals::new(STALL_NS, STALLS),
            counts: Counts::default(),
            sessions: HashMap::new(),
            pruned_ns: 0,
            sent: vec![None; UNSTAMPED],
            places: 0,
            error: wall::clock_error(),
            error_ns: empty_ns,
            empty_ns,
            last_stall: None,
        }
    }

    /// Answers until it is to end.
    pub fn run(&mut self, stop: &Stop) -> Result<(), Error> {
        let (mut queries, mut stamps) = (Batch::new(), Batch::new());
        let mut ran_ns = self.wall.now();
        let mut slept = false;
        while !stop.asked() {
            let looked_ns = self.wall.now();
            let taken = self.socket.receive(&mut queries)?;
            let now_ns = self.wall.now();
            self.look_at_clock(now_ns);
            let came: Vec<_> = (0..taken).map(|at| self.came(&mut queries, at, now_ns)).collect();
            // Who sleeps has to run when something comes.
            let due_ns = match (slept, came.iter().flatten().min()) {
                (true, Some(first)) => *first,
                (true, None) => now_ns,
                (false, _) => ran_ns,
            };
            if let Some(stall) = self.vitals.runs(due_ns, now_ns) {
                self.last_stall = Some(stall);
            }
            if taken < BATCH {
                self.empty_ns = looked_ns;
            }
            self.answer(&mut queries, &came)?;
            self.take_stamps(&mut stamps)?;
            ran_ns = self.wall.now();
            slept = taken == 0 && self.poll == Poll::Sleep;
            if slept {
                udp::wait(std::iter::once(&self.socket), LOOK_UP);
            }
        }
        Ok(())
    }

    fn look_at_clock(&mut self, now_ns: u64) {
        if let Some(wall::Step(step)) = self.wall.look() {
            self.counts.clock_steps += 1;
            let lasted_ns = step.unsigned_abs();
            let stall = EndStall { start_ns: now_ns, lasted_ns, cause: Cause::ClockStep };
            self.vitals.note(stall);
            self.last_stall = Some(stall);
        }
        if now_ns.saturating_sub(self.error_ns) > NS_PER_S {
            (self.error, self.error_ns) = (wall::clock_error(), now_ns);
        }
    }

    /// When a query came, by the kernel.
    fn came(&mut self, queries: &mut Batch, at: usize, now_ns: u64) -> Option<u64> {
        let beside = queries.packet(at).beside;
        self.counts.dropped = beside.dropped.map_or(self.counts.dropped, u64::from);
        let since_ns = self.empty_ns.saturating_sub(ON_ITS_WAY_NS);
        self.wall.place(beside.kernel_ns?, (since_ns, now_ns))
    }

    fn answer(&mut self, queries: &mut Batch, came: &[Option<u64>]) -> Result<(), Error> {
        let mut ready: Vec<(usize, Name, Reply)> = Vec::with_capacity(BATCH);
        for (at, came) in came.iter().enumerate() {
            let now_ns = self.wall.now();
            self.counts.received += 1;
            if let Some((name, reply)) = self.reply(queries, at, *came, now_ns) {
                ready.push((at, name, reply));
            }
        }
        for some in ready.chunks(AT_ONCE) {
            let sent_ns = self.wall.of_day(self.wall.now());
            for (at, _, reply) in some {
                Reply { sent_ns, ..*reply }.write_sent(queries.packet(*at).bytes_mut());
            }
            let left_ns = self.wall.now();
            let which: Vec<usize> = some.iter().map(|(at, ..)| *at).collect();
            let mut done = 0;
            while done < which.len() {
                let (sent, refused) = self.socket.send(queries, &which[done..]);
                for (_, name, reply) in &some[done..done + sent] {
                    self.sent[self.places as usize % UNSTAMPED] = Some((*name, reply.seq, left_ns));
                    self.places = self.places.wrapping_add(1);
                }
                self.counts.answered += sent as u64;
                done += sent;
                if refused.is_some() {
                    // The kernel may have counted it, or not.
                    self.socket.count_anew()?;
                    self.places = 0;
                    self.counts.unsent += 1;
                    done += 1;
                }
            }
        }
        Ok(())
    }

    fn reply(
        &mut self,
        queries: &mut Batch,
        at: usize,
        came: Option<u64>,
        now_ns: u64,
    ) -> Option<(Name, Reply)> {
        let packet = queries.packet(at);
        let (Some(from), true) = (packet.from(), packet.len <= udp::ROOM) else {
            self.counts.malformed += 1;
            return None;
        };
        let of_day_ns = self.wall.of_day(now_ns);
        let Some(query) =
            Query::read(packet.bytes()).filter(|_| !Query::is_answer(packet.bytes(), of_day_ns))
        else {
            self.counts.malformed += 1;
            return None;
        };
        let refused = match self.admission.admit(from, now_ns) {
            Ok(refused) => refused,
            Err(refusal) => {
                *match refusal {
                    Refusal::Source => &mut self.counts.refused_source,
                    Refusal::Port => &mut self.counts.refused_port,
                    Refusal::Rate => &mut self.counts.refused_rate,
                } += 1;
                return None;
            }
        };
        let watch = self.watch(refused);
        let (name, beside) = ((from, query.ssid), packet.beside);
        let Some(session) = self.session(name, now_ns) else {
            self.counts.refused_rate += 1;
            return None;
        };
        let reply = Reply {
            seq: session.next,
            follow_up: session.untold.front().copied(),
            received_ns: 0,
            sent_ns: 0,
            error: ClockError::default(),
            ttl: beside.ttl,
            tos: beside.tos,
            watch,
        };
        session.next = session.next.wrapping_add(1);
        let received_ns = self.wall.of_day(came.unwrap_or(now_ns));
        let reply = Reply { received_ns, error: self.error, ..reply };
        let used = reply.write(packet.bytes_mut()).expect("it is long enough");
        packet.answer(used.dscp.unwrap_or(beside.tos >> 2));
        if used.follow_up {
            self.sessions.get_mut(&name).expect("it is there").untold.pop_front();
        }
        Some((name, reply))
    }

    fn session(&mut self, name: Name, now_ns: u64) -> Option<&mut Session> {
        if self.sessions.len() >= SESSIONS && !self.sessions.contains_key(&name) {
            // Once a second, so that strangers cannot make it costly.
            if now_ns.saturating_sub(self.pruned_ns) >= NS_PER_S {
                self.pruned_ns = now_ns;
                self.sessions.retain(|_, session| session.seen_ns + SILENT_NS > now_ns);
            }
            if self.sessions.len() >= SESSIONS {
                return None;
            }
        }
        let session = self.sessions.entry(name).or_default();
        if session.seen_ns == 0 || session.seen_ns + SILENT_NS <= now_ns {
            *session = Session::default();
            self.counts.sessions += 1;
        }
        session.seen_ns = now_ns;
        Some(session)
    }

    fn watch(&self, refused: u32) -> Watch {
        let counters = self.vitals.last();
        let last = self.last_stall;
        Watch {
            boot: self.boot,
            dropped: self.counts.dropped as u32,
            refused,
            stalls: self.vitals.count as u32,
            cause: last.map_or(Cause::Unknown, |stall| stall.cause),
            stall_ns: last.map_or(0, |stall| self.wall.of_day(stall.start_ns)),
            lasted_ns: last.map_or(0, |stall| stall.lasted_ns),
            run_delay_us: (counters.waited_ns / 1_000) as u32,
            throttled_us: (counters.throttled_ns / 1_000) as u32,
        }
    }

    /// Takes the times at which answers left, for later answers to tell.
    fn take_stamps(&mut self, stamps: &mut Batch) -> Result<(), Error> {
        loop {
            let taken = self.socket.stamps(stamps)?;
            let now_ns = self.wall.now();
            for at in 0..taken {
                let beside = stamps.packet(at).beside;
                let (Some(place), Some(stamp_ns)) = (beside.place, beside.kernel_ns) else {
                    continue;
                };
                let Some((name, seq, left_ns)) = self.sent[place as usize % UNSTAMPED].take()
                else {
                    continue;
                };
                let sent_ns = self.wall.place(stamp_ns, (left_ns, now_ns));
                let (Some(sent_ns), Some(session)) = (sent_ns, self.sessions.get_mut(&name)) else {
                    continue;
                };
                if session.untold.len() == UNTOLD {
                    session.untold.pop_front();
                }
                session.untold.push_back(FollowUp { seq, sent_ns: self.wall.of_day(sent_ns) });
            }
            if taken < BATCH {
                return Ok(());
            }
        }
    }
}

/// A digest of when this kernel began, which no other kernel has.
pub fn boot() -> u32 {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a: nobody else has to know the number itself.
    text.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
