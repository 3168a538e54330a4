//! The loop that answers queries of STAMP, and what it keeps of each session.

use crate::admission::{Admission, Denied, Refusal};
use crate::error::Error;
use crate::partners::{Partner, Sessions};
use crate::stamps::Stamps;
use crate::stop::Stop;
use crate::udp::{self, BATCH, Batch, Beside, Udp, is_of_this_packet};
use crate::vitals::{EndStall, Vitals};
use crate::wall;
use probe::returned::datagrams;
use probe::stamp::{Answer, Cause, ClockError, FollowUp, Form, Query, Reply, Unread, Watch};
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
const NS_PER_S: u64 = 1_000_000_000;

/// How a loop waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Poll {
    /// It sleeps until one comes.
    Sleep,
    /// It looks all the time.
    Busy,
}

/// What became of queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub received: u64,
    pub answered: u64,
    pub refused_source: u64,
    pub refused_port: u64,
    pub refused_rate: u64,
    pub refused_key: u64,
    pub malformed: u64,
    pub unsent: u64,
    pub dropped: u64,
    pub clock_steps: u64,
}

/// Answers queries at one socket.
pub struct Reflector {
    socket: Udp,
    form: Form,
    admission: Admission,
    poll: Poll,
    boot: u32,
    pub stamps: Stamps,
    pub vitals: Vitals,
    pub counts: Counts,
    pub sessions: Sessions,
    error: ClockError,
    error_ns: u64,
    /// When the socket was seen empty last.
    empty_ns: u64,
    last_stall: Option<EndStall>,
    /// How long the kernel keeps an answer that has left, as it says.
    handling_ns: u32,
}

impl Reflector {
    /// One whose kernel keeps an answer for `handling_ns` after it has left, as it says.
    pub fn new(
        socket: Udp,
        form: Form,
        admission: Admission,
        poll: Poll,
        stamps: Stamps,
        handling_ns: u32,
    ) -> Result<Self, Error> {
        let empty_ns = stamps.wall.now();
        Ok(Self {
            socket: stamps.of(socket)?,
            form,
            admission,
            poll,
            boot: boot(),
            vitals: Vitals::new(STALL_NS, STALLS),
            counts: Counts::default(),
            sessions: Sessions::default(),
            error: stamps.clock_error(),
            error_ns: empty_ns,
            empty_ns,
            last_stall: None,
            handling_ns,
            stamps,
        })
    }

    /// Answers until it is to end.
    pub fn run(&mut self, stop: &Stop) -> Result<(), Error> {
        let (mut queries, mut stamps) = (Batch::new(), Batch::new());
        let mut ran_ns = self.stamps.wall.now();
        let mut slept = false;
        while !stop.asked() {
            let looked_ns = self.stamps.wall.now();
            let taken = self.socket.receive(&mut queries)?;
            let now_ns = self.stamps.wall.now();
            self.look_at_clock(now_ns);
            let came: Vec<_> = (0..taken).map(|at| self.came(&mut queries, at, now_ns)).collect();
            // Who sleeps has to run when something comes.
            let due_ns = match (slept, came.iter().flatten().min()) {
                (true, Some(first)) => *first,
                (true, None) => now_ns,
                (false, _) => ran_ns,
            };
            self.last_stall = self.vitals.runs(due_ns, now_ns).or(self.last_stall);
            if taken < BATCH {
                self.empty_ns = looked_ns;
            }
            self.answer(&mut queries, &came);
            self.take_stamps(&mut stamps)?;
            ran_ns = self.stamps.wall.now();
            self.last_stall = self.vitals.worked(now_ns, ran_ns).or(self.last_stall);
            slept = taken == 0 && self.poll == Poll::Sleep;
            if slept {
                udp::wait(std::iter::once(&self.socket), LOOK_UP);
            }
        }
        Ok(())
    }

    fn look_at_clock(&mut self, now_ns: u64) {
        if let Some(wall::Step(step)) = self.stamps.wall.look() {
            self.counts.clock_steps += 1;
            let lasted_ns = step.unsigned_abs();
            let stall = EndStall { start_ns: now_ns, lasted_ns, cause: Cause::ClockStep };
            self.vitals.note(stall);
            self.last_stall = Some(stall);
        }
        self.stamps.keep_up();
        if now_ns.saturating_sub(self.error_ns) > NS_PER_S {
            (self.error, self.error_ns) = (self.stamps.clock_error(), now_ns);
        }
    }

    /// When a query came, by the kernel.
    fn came(&mut self, queries: &mut Batch, at: usize, now_ns: u64) -> Option<u64> {
        let beside = queries.packet(at).beside;
        self.counts.dropped = beside.dropped.map_or(self.counts.dropped, u64::from);
        let since_ns = self.empty_ns.saturating_sub(ON_ITS_WAY_NS);
        self.stamps.place(&beside, (since_ns, now_ns))
    }

    fn answer(&mut self, queries: &mut Batch, came: &[Option<u64>]) {
        let mut ready: Vec<(usize, Partner)> = Vec::with_capacity(BATCH);
        for (at, came) in came.iter().enumerate() {
            let now_ns = self.stamps.wall.now();
            self.counts.received += 1;
            if let Some(partner) = self.reply(queries, at, *came, now_ns) {
                ready.push((at, partner));
            }
        }
        for some in ready.chunks(AT_ONCE) {
            let sent_ns = self.stamps.wall.of_day(self.stamps.wall.now());
            let which: Vec<usize> = some.iter().map(|(at, _)| *at).collect();
            for at in &which {
                self.form.depart(queries.packet(*at).bytes_mut(), sent_ns);
            }
            let (mut done, mut is_second_try) = (0, false);
            while done < which.len() {
                let (sent, error) = self.socket.send(queries, &which[done..]);
                self.counts.answered += sent as u64;
                done += sent;
                // The first error may be what somebody says of an answer before, to anybody.
                is_second_try &= sent == 0;
                let is_final =
                    error.as_ref().is_some_and(|error| is_second_try || is_of_this_packet(error));
                is_second_try = error.is_some() && !is_final;
                if is_final {
                    self.counts.unsent += 1;
                    let address = some[done].1.address;
                    self.admission.deny(address, |denied| {
                        denied.unsent = denied.unsent.wrapping_add(1);
                    });
                    done += 1;
                }
            }
        }
    }

    fn reply(
        &mut self,
        queries: &mut Batch,
        at: usize,
        came: Option<u64>,
        now_ns: u64,
    ) -> Option<Partner> {
        let packet = queries.packet(at);
        let (Some(from), true) = (packet.from(), packet.len <= udp::ROOM) else {
            self.counts.malformed += 1;
            return None;
        };
        let of_day_ns = self.stamps.wall.of_day(now_ns);
        let query = match Query::read(packet.bytes(), &self.form) {
            Ok(query) if !Query::is_answer(packet.bytes(), &self.form, of_day_ns) => query,
            Ok(_) | Err(Unread::Short) => {
                self.counts.malformed += 1;
                return None;
            }
            Err(Unread::WrongKey) => {
                self.counts.refused_key += 1;
                return None;
            }
        };
        let denied = match self.admission.admit(from, now_ns) {
            Ok(denied) => denied,
            Err(refusal) => {
                *match refusal {
                    Refusal::Source => &mut self.counts.refused_source,
                    Refusal::Port => &mut self.counts.refused_port,
                    Refusal::Rate => &mut self.counts.refused_rate,
                } += 1;
                return None;
            }
        };
        let watch = Watch { received_by_program: came.is_none(), ..self.watch(denied) };
        let (partner, beside) = (Partner::new(from, query.ssid), packet.beside);
        let session = self.sessions.of(partner, now_ns);
        let reply = Reply {
            seq: session.next,
            follow_up: session.untold(),
            by_card: self.stamps.card().is_some(),
            received_ns: self.stamps.wall.of_day(came.unwrap_or(now_ns)),
            error: self.error,
            ttl: beside.ttl,
            tos: beside.tos,
            watch,
        };
        session.next = session.next.wrapping_add(1);
        let used = reply.write(packet.bytes_mut(), &self.form);
        packet.answer(used.dscp.unwrap_or(beside.tos >> 2));
        if used.follow_up {
            session.told();
        }
        Some(partner)
    }

    fn watch(&self, denied: Denied) -> Watch {
        let counters = self.vitals.last();
        let last = self.last_stall;
        Watch {
            boot: self.boot,
            dropped: self.counts.dropped as u32,
            refused: denied.refused,
            stalls: self.vitals.count as u32,
            received_by_program: false,
            clock_steps: self.counts.clock_steps as u16,
            cause: last.map_or(Cause::Unknown, |stall| stall.cause),
            stall_ns: last.map_or(0, |stall| self.stamps.wall.of_day(stall.start_ns)),
            lasted_ns: last.map_or(0, |stall| stall.lasted_ns),
            run_delay_us: (counters.waited_ns / 1_000) as u32,
            throttled_us: (counters.throttled_ns / 1_000) as u32,
            unsent: denied.unsent,
            handling_ns: self.handling_ns,
            card_error_ns: Some(self.stamps.card_error_ns().min(u32::MAX.into()) as u32),
        }
    }

    /// Takes the times at which answers left, for later answers to tell.
    fn take_stamps(&mut self, returned: &mut Batch) -> Result<(), Error> {
        loop {
            let taken = self.socket.returned(returned)?;
            let now_ns = self.stamps.wall.now();
            if taken > 0 {
                self.look_at_clock(now_ns);
            }
            for at in 0..taken {
                let packet = returned.packet(at);
                if packet.beside.is_returned {
                    let beside = packet.beside;
                    self.has_left(packet.bytes(), &beside, now_ns);
                }
            }
            if taken < BATCH {
                return Ok(());
            }
        }
    }

    /// Keeps when an answer left, which the kernel hands back as a frame.
    fn has_left(&mut self, frame: &[u8], beside: &Beside, now_ns: u64) {
        for sent in datagrams(frame) {
            let Ok(answer) = Answer::read(sent.payload, &self.form) else { continue };
            let to = SocketAddr::new(sent.to, sent.port);
            let Some(session) = self.sessions.get_mut(&Partner::new(to, answer.ssid)) else {
                continue;
            };
            // It says itself when it was written, which was before.
            let written_ns = self.stamps.wall.place(answer.sent_ns, (0, now_ns));
            let Some(written_ns) = written_ns else { return };
            if let Some(left_ns) = self.stamps.place(beside, (written_ns, now_ns)) {
                // By the clock of its other times, which may have been set meanwhile.
                let sent_ns = answer.sent_ns + left_ns - written_ns;
                session.has_left(written_ns, FollowUp { seq: answer.seq, sent_ns });
            }
            return;
        }
    }
}

/// A digest of when this kernel began, which no other kernel has.
pub fn boot() -> u32 {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a: nobody else has to know the number itself.
    text.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
