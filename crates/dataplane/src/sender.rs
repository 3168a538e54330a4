//! The loop that asks another host: queries leave by a schedule, and all that comes back is written down.

use crate::error::Error;
use crate::npy::Rows;
use crate::reflector::{ON_ITS_WAY_NS, Poll, STALL_NS, boot};
use crate::stamps::Stamps;
use crate::stop::Stop;
use crate::udp::{self, BATCH, Batch, Udp, is_of_this_packet, is_refusal};
use crate::vitals::{EndStall, Vitals};
use crate::wall;
use messages::DepartedBy;
use probe::returned::datagrams;
use probe::stamp::{Answer, Cause, ClockError, Extensions, Form, Query, Unread, Watch, WatchForm};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use units::Nanos;

/// What could not leave within this of its time does not leave: a train of late packets would wait for itself.
const LATE_NS: u64 = 10_000_000;
/// How long answers are waited for at most that still come, one behind the other.
const SLOW_NS: u64 = 30_000_000_000;
/// Answers of a flow that a reflector has not told of, at most.
const UNTOLD_ANSWERS: u64 = 64;
/// How often what is untold is asked for: one such query may be lost as any other.
const CLOSING_ROUNDS: usize = 3;
/// How long before its time a query is handed to a queue that lets it wait.
const AHEAD_NS: u64 = 3_000_000;
/// Queries of one flow that wait there at most: `fq` has room for 100.
const WAITING: usize = 64;
/// How long before its time a first query is: no usual delay of a link, which would look like a queue's.
const ASKED_AHEAD_NS: u64 = 7_300_000;
/// A queue that lets packets wait is no earlier than this,
const EARLY_NS: u64 = 100_000;
/// and no later; a link that delays packets is.
const BEHIND_NS: u64 = 1_000_000;
/// Stalls that are kept at most, of each end.
const STALLS: usize = 1 << 16;
/// Tries to get a first answer, and how long each is waited for.
const TRIES: u32 = 30;
const TRY: Duration = Duration::from_millis(100);
/// How long it waits at its end before it looks again.
const CLOSE: Duration = Duration::from_millis(10);
/// Tries after which it asks no longer whether the queue lets packets wait, or the card takes times.
const OPEN_TRIES: u32 = 5;
/// How long it sleeps at most before it looks whether it is to end.
const LOOK_UP_NS: u64 = 50_000_000;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

const DEPARTURES: &str = "[('intended_ns','<u8'),('sent_ns','<u8'),('handed_ns','<u8'),('size_bytes','<u4'),('flow','<u4')]";
const STAMPS: &str = "[('seq','<u8'),('sent_ns','<u8'),('queued_ns','<u8')]";
const ARRIVALS: &str = "[('seq','<u4'),('answer_seq','<u4'),('received_ns','<u8'),('answered_ns','<u8'),('arrived_ns','<u8'),('taken_ns','<u8'),('follow_seq','<u4'),('ttl','u1'),('dscp','u1'),('stamped','u1'),('followed','u1'),('follow_ns','<u8'),('by','u1')]";
const FOLLOW_UPS: &str = "[('flow','<u4'),('seq','<u4'),('left_ns','<u8')]";
const STALLED: &str = "[('end','<u4'),('cause','<u4'),('start_ns','<u8'),('lasted_ns','<u8')]";
/// What `end` says of a stall.
const HERE: u32 = 0;
const THERE: u32 = 1;
/// What `dscp` says if it is not known.
const UNKNOWN: u8 = 255;
/// Who took the time at which a query came, as `by` says.
const UNTOLD: u8 = 0;
const KERNEL: u8 = 1;
const PROGRAM: u8 = 2;

/// Whether the queue of the interface lets queries wait until their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Txtime {
    /// If it can.
    Auto,
    /// It has to.
    On,
    /// It does not: this program waits.
    Off,
}

/// What is asked.
pub struct Asked {
    pub to: SocketAddr,
    /// How packets look.
    pub form: Form,
    pub flows: usize,
    pub source_port: u16,
    pub dscp: u8,
    pub poll: Poll,
    pub txtime: Txtime,
    pub extensions: Extensions,
    /// Of so many queries, the kernel takes for one the time at which it comes to the queue of its interface.
    pub queue_each: u32,
    /// Bytes of successive queries, until they repeat.
    pub sizes: Vec<usize>,
    pub drain: Nanos,
}

/// What became of it, apart from what is in the files.
#[derive(Debug, Default)]
pub struct Counts {
    pub sent: u64,
    pub unsent: u64,
    /// Of those, what the system did not take.
    pub unsent_refused: u64,
    pub received: u64,
    pub foreign: u64,
    pub wrong_key: u64,
    pub refusals: u64,
    pub stamped: u64,
    pub clock_steps: u64,
    pub clock: Option<ClockError>,
    pub reflector_clock: Option<ClockError>,
    pub stalls_untold: u64,
    /// How long this kernel keeps a query that has left, as it says.
    pub handling_ns: Option<u32>,
    /// What the reflector told first and last.
    pub watched: Option<[Watch; 2]>,
}

/// A socket of the sender.
struct Flow {
    socket: Udp,
    empty_ns: u64,
    dropped: u32,
    /// Answers of which none behind them has told when they left.
    untold: u64,
}

struct Files {
    departures: Rows,
    stamps: Rows,
    arrivals: Rows,
    follow_ups: Rows,
    folder: PathBuf,
}

/// Asks another host.
pub struct Sender {
    asked: Asked,
    ssid: u16,
    flows: Vec<Flow>,
    pub stamps: Stamps,
    pub departed_by: DepartedBy,
    pub vitals: Vitals,
    pub counts: Counts,
    files: Files,
    /// When each query was handed on, by this program's clock: what the kernel says lies behind it.
    sent_ns: Vec<u64>,
    /// When those came to the queue of the interface that the kernel has told of, and have not left yet.
    queued_ns: BTreeMap<u32, u64>,
    /// When those leave that may still wait in a queue.
    waiting_ns: VecDeque<u64>,
    /// Which queries were answered, and when one last was.
    heard: Heard,
    heard_ns: u64,
    /// Queries behind the last one that ask for nothing but what is still to be told, and answers to them.
    closing: u64,
    closed: u64,
    told: Vec<EndStall>,
    error: ClockError,
    error_ns: u64,
    batch: Batch,
}

/// Numbers of queries that were answered, however often.
#[derive(Debug, Default)]
struct Heard {
    bits: Vec<u64>,
    count: u64,
}

impl Heard {
    /// Notes an answer; says whether it is the first one to its query.
    fn add(&mut self, seq: u32) -> bool {
        let (word, bit) = (seq as usize / 64, 1 << (seq % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let is_first = self.bits[word] & bit == 0;
        self.count += u64::from(is_first);
        self.bits[word] |= bit;
        is_first
    }
}

impl Sender {
    /// Asks until there is an answer, and opens a socket for each flow.
    pub fn new(
        mut asked: Asked,
        stamps: Stamps,
        folder: &Path,
        queries: usize,
    ) -> Result<Self, Error> {
        let Greeted { departed_by, watch_form, watch } = greet(&asked, &stamps)?;
        asked.extensions.watch = watch_form;
        let flows = (0..asked.flows).map(|at| {
            let port = if asked.source_port == 0 { 0 } else { asked.source_port + at as u16 };
            let socket = stamps.of(Udp::connect(asked.to, port, asked.dscp)?)?;
            if departed_by == DepartedBy::Queue {
                socket.allow_times();
            }
            Ok(Flow { socket, empty_ns: stamps.wall.now(), dropped: 0, untold: 0 })
        });
        let flows = flows.collect::<Result<Vec<_>, Error>>()?;
        let rows = |name: &str, descr| {
            let path = folder.join(name);
            Rows::create(&path, descr).map_err(|source| Error::File { path, source })
        };
        let files = Files {
            departures: rows("departures.npy", DEPARTURES)?,
            stamps: rows("stamps.npy", STAMPS)?,
            arrivals: rows("arrivals.npy", ARRIVALS)?,
            follow_ups: rows("follow_ups.npy", FOLLOW_UPS)?,
            folder: folder.into(),
        };
        Ok(Self {
            ssid: std::process::id() as u16 | 1,
            flows,
            error_ns: stamps.wall.now(),
            departed_by,
            vitals: Vitals::new(STALL_NS, STALLS),
            counts: Counts {
                handling_ns: stamps.handling_ns(),
                watched: watch.map(|watch| [watch; 2]),
                ..Counts::default()
            },
            files,
            sent_ns: Vec::with_capacity(queries),
            queued_ns: BTreeMap::new(),
            waiting_ns: VecDeque::new(),
            heard: Heard::default(),
            heard_ns: 0,
            closing: 0,
            closed: 0,
            told: Vec::new(),
            error: stamps.clock_error(),
            batch: Batch::new(),
            stamps,
            asked,
        })
    }

    /// Sends at these times, counted from now on, and waits for the last answers.
    pub fn run(&mut self, times: impl Iterator<Item = Nanos>, stop: &Stop) -> Result<(), Error> {
        let start_ns = self.stamps.wall.now();
        let mut times = times.map(|Nanos(at)| start_ns + at).peekable();
        let (mut ran_ns, mut slept_until) = (start_ns, None);
        let mut over_ns = None;
        loop {
            let now_ns = self.stamps.wall.now();
            let first_ns = self.receive()?;
            // Who sleeps has to run when the next query is to leave, and when an answer comes.
            let due_ns = match slept_until {
                Some(until_ns) => first_ns.map_or(until_ns, |first: u64| first.min(until_ns)),
                None => ran_ns,
            };
            self.vitals.runs(due_ns.min(now_ns), now_ns);
            while !stop.asked() {
                let now_ns = self.stamps.wall.now();
                if times.peek().is_none_or(|at| self.handed_on_ns(*at, now_ns) > now_ns) {
                    break;
                }
                self.send_due(&mut times)?;
                self.vitals.worked(now_ns, self.stamps.wall.now());
            }
            ran_ns = self.stamps.wall.now();
            let next = times.peek().filter(|_| !stop.asked()).copied();
            let next_ns = next.map(|at| self.handed_on_ns(at, ran_ns));
            if next_ns.is_none() {
                let over_ns = *over_ns.get_or_insert(ran_ns);
                // An end that is slow still answers: what comes late is not lost.
                let slow_ns = if stop.asked() { 0 } else { SLOW_NS };
                let quiet_ns = self.heard_ns.clamp(over_ns, over_ns + slow_ns);
                let is_late = ran_ns >= quiet_ns + self.asked.drain.0;
                if is_late || self.heard.count >= self.counts.sent {
                    self.ask_for_the_rest(stop)?;
                    // Stamps of the last ones may still come.
                    self.receive()?;
                    return self.finish();
                }
            }
            slept_until = None;
            if self.asked.poll == Poll::Sleep {
                let most_ns = ran_ns + LOOK_UP_NS;
                let until_ns = next_ns.unwrap_or(most_ns).min(most_ns);
                let waited = Duration::from_nanos(until_ns.saturating_sub(self.stamps.wall.now()));
                udp::wait(self.flows.iter().map(|flow| &flow.socket), waited);
                slept_until = Some(until_ns);
            }
        }
    }

    fn look_at_clock(&mut self, now_ns: u64) {
        if let Some(wall::Step(step)) = self.stamps.wall.look() {
            self.counts.clock_steps += 1;
            let lasted_ns = step.unsigned_abs();
            self.vitals.note(EndStall { start_ns: now_ns, lasted_ns, cause: Cause::ClockStep });
        }
        self.stamps.keep_up();
        if now_ns.saturating_sub(self.error_ns) > NS_PER_S {
            (self.error, self.error_ns) = (self.stamps.clock_error(), now_ns);
            self.counts.clock = Some(worse(self.counts.clock, self.error));
        }
    }

    /// When a query that is to leave at a time is handed on.
    fn handed_on_ns(&mut self, at_ns: u64, now_ns: u64) -> u64 {
        if self.departed_by == DepartedBy::Program {
            return at_ns;
        }
        while self.waiting_ns.front().is_some_and(|left_ns| *left_ns <= now_ns) {
            self.waiting_ns.pop_front();
        }
        let room = WAITING * self.flows.len();
        let full_ns = self.waiting_ns.len().checked_sub(room).map_or(0, |at| self.waiting_ns[at]);
        at_ns.saturating_sub(AHEAD_NS).max(full_ns)
    }

    /// When a query leaves that is handed on at a time: what waits in a queue does so no sooner than it is to.
    fn leaves_ns(&self, handed_ns: u64, intended_ns: u64) -> u64 {
        match self.departed_by {
            DepartedBy::Queue => handed_ns.max(intended_ns),
            DepartedBy::Program => handed_ns,
        }
    }

    /// Sends those that are due, as many as leave by one socket, one behind the other.
    fn send_due(
        &mut self,
        times: &mut std::iter::Peekable<impl Iterator<Item = u64>>,
    ) -> Result<(), Error> {
        let flows = self.asked.flows as u64;
        let flow_of = |seq: u64| (seq % flows) as usize;
        let (first, now_ns) = (self.counts.sent, self.stamps.wall.now());
        let mut intended = Vec::with_capacity(BATCH);
        while intended.len() < BATCH && flow_of(first + intended.len() as u64) == flow_of(first) {
            let is_due = |at: &u64| self.handed_on_ns(*at, now_ns) <= now_ns;
            let Some(at) = times.next_if(is_due) else { break };
            if now_ns.saturating_sub(at) > LATE_NS {
                self.counts.unsent += 1;
            } else {
                intended.push(at);
            }
        }
        if intended.is_empty() {
            return Ok(());
        }
        let (mut rest, mut is_second_try) = (intended.as_slice(), false);
        while !rest.is_empty() {
            let (sent, refused) = self.send_at_once(rest)?;
            rest = &rest[sent..];
            // The first error may be what somebody says of a query before.
            is_second_try &= sent == 0;
            let is_final =
                refused.as_ref().is_some_and(|error| is_second_try || is_of_this_packet(error));
            is_second_try = refused.is_some() && !is_final;
            self.counts.refusals += u64::from(refused.as_ref().is_some_and(is_refusal));
            if is_final {
                self.counts.unsent += 1;
                self.counts.unsent_refused += 1;
                rest = &rest[1..];
            }
        }
        Ok(())
    }

    /// Sends the next queries; says how many left, and why the one behind them did not.
    fn send_at_once(&mut self, intended: &[u64]) -> Result<(usize, Option<io::Error>), Error> {
        let flow_of = |seq: u64| (seq % self.asked.flows as u64) as usize;
        let first = self.counts.sent;
        let sizes = &self.asked.sizes;
        let size = |seq: u64| sizes[(seq % sizes.len() as u64) as usize];
        let written_ns = self.stamps.wall.now();
        for (at, intended_ns) in intended.iter().enumerate() {
            let seq = first + at as u64;
            let leaves_ns = self.leaves_ns(written_ns, *intended_ns);
            let query = Query {
                seq: seq as u32,
                sent_ns: self.stamps.wall.of_day(leaves_ns),
                error: self.error,
                ssid: self.ssid,
            };
            query.write(self.batch.write(at, size(seq)), self.asked.extensions, &self.asked.form);
            if self.stamps.card().is_none() && is_queue_timed(seq, self.asked.queue_each) {
                self.batch.packet(at).stamp_at_queue();
            }
            if self.departed_by == DepartedBy::Queue {
                self.batch.packet(at).leave_at(self.stamps.wall.monotonic(*intended_ns));
            }
        }
        let flow = &self.flows[flow_of(first)];
        let which: Vec<usize> = (0..intended.len()).collect();
        let sent_ns = self.stamps.wall.now();
        let (sent, refused) = flow.socket.send(&mut self.batch, &which);
        let handed_ns = self.stamps.wall.now();
        for (at, intended) in intended.iter().enumerate().take(sent) {
            let seq = first + at as u64;
            self.sent_ns.push(sent_ns);
            if self.departed_by == DepartedBy::Queue {
                self.waiting_ns.push_back(*intended);
            }
            let [left_ns, handed_ns] = [sent_ns, handed_ns].map(|ns| self.leaves_ns(ns, *intended));
            let mut row = [0; 32];
            row[..8].copy_from_slice(&intended.to_le_bytes());
            row[8..16].copy_from_slice(&left_ns.to_le_bytes());
            row[16..24].copy_from_slice(&handed_ns.to_le_bytes());
            row[24..28].copy_from_slice(&(size(seq) as u32).to_le_bytes());
            row[28..].copy_from_slice(&(flow_of(first) as u32).to_le_bytes());
            self.files.write(|files| files.departures.add(&row))?;
        }
        self.counts.sent += sent as u64;
        match refused {
            Some(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                Err(flow.socket.failed("send", error))
            }
            refused => Ok((sent, refused)),
        }
    }

    /// Asks for what a reflector tells of its last answers, when each of them left; once if this is to stop.
    fn ask_for_the_rest(&mut self, stop: &Stop) -> Result<(), Error> {
        if !self.asked.extensions.follow_up || self.counts.watched.is_none() {
            return Ok(());
        }
        let mut most = vec![UNTOLD_ANSWERS; self.flows.len()];
        for _ in 0..CLOSING_ROUNDS {
            let all = self.closed + self.ask_again(&mut most);
            // Who has gone is waited for no longer than anybody.
            let end_ns = self.stamps.wall.now() + self.asked.drain.0 / CLOSING_ROUNDS as u64;
            while self.closed < all && self.stamps.wall.now() < end_ns {
                udp::wait(self.flows.iter().map(|flow| &flow.socket), CLOSE);
                self.receive()?;
            }
            if self.closed >= all || stop.asked() {
                break;
            }
        }
        Ok(())
    }

    /// Sends as many queries as a flow has answers that are untold; says how many.
    fn ask_again(&mut self, most: &mut [u64]) -> u64 {
        let before = self.closing;
        for (flow, most) in self.flows.iter().zip(most) {
            let mut rest = flow.untold.min(*most);
            *most -= rest;
            while rest > 0 {
                let which: Vec<usize> = (0..BATCH.min(rest as usize)).collect();
                let sent_ns = self.stamps.wall.of_day(self.stamps.wall.now());
                for at in &which {
                    let seq = (self.counts.sent + self.closing) as u32;
                    let query = Query { seq, sent_ns, error: self.error, ssid: self.ssid };
                    let bytes = self.batch.write(*at, self.asked.sizes[0]);
                    query.write(bytes, self.asked.extensions, &self.asked.form);
                    self.closing += 1;
                }
                // What does not leave is not answered, which is waited for only so long.
                flow.socket.send(&mut self.batch, &which);
                rest -= which.len() as u64;
            }
        }
        self.closing - before
    }

    /// Takes what has come; says when the first of it came.
    fn receive(&mut self) -> Result<Option<u64>, Error> {
        let mut first_ns: Option<u64> = None;
        for at in 0..self.flows.len() {
            loop {
                let looked_ns = self.stamps.wall.now();
                let taken = self.flows[at].socket.receive(&mut self.batch)?;
                let now_ns = self.stamps.wall.now();
                self.look_at_clock(now_ns);
                for packet in 0..taken {
                    let came_ns = self.arrived(at, packet, now_ns)?;
                    first_ns = first_ns.into_iter().chain(came_ns).min();
                }
                self.vitals.worked(looked_ns, self.stamps.wall.now());
                if taken < BATCH {
                    self.flows[at].empty_ns = looked_ns;
                    break;
                }
            }
            while self.take_stamps(at)? == BATCH {}
        }
        Ok(first_ns)
    }

    fn arrived(&mut self, number: usize, at: usize, taken_ns: u64) -> Result<Option<u64>, Error> {
        let flow = &mut self.flows[number];
        let packet = self.batch.packet(at);
        let beside = packet.beside;
        flow.dropped = beside.dropped.unwrap_or(flow.dropped);
        let answer = if packet.len <= udp::ROOM {
            Answer::read(packet.bytes(), &self.asked.form)
        } else {
            Err(Unread::Short)
        };
        if answer == Err(Unread::WrongKey) {
            self.counts.wrong_key += 1;
            return Ok(None);
        }
        let asked = self.counts.sent + self.closing;
        let is_ours = |answer: &Answer| {
            u64::from(answer.query_seq) < asked && [0, self.ssid].contains(&answer.ssid)
        };
        let Some(answer) = answer.ok().filter(is_ours) else {
            self.counts.foreign += 1;
            return Ok(None);
        };
        if u64::from(answer.query_seq) >= self.counts.sent {
            self.closed += 1;
            return self.hear_closing(number, &answer).map(|()| None);
        }
        self.counts.received += 1;
        flow.untold = (flow.untold + 1).saturating_sub(answer.follow_up.is_some().into());
        if self.heard.add(answer.query_seq) {
            self.heard_ns = taken_ns;
        }
        let between = (flow.empty_ns.saturating_sub(ON_ITS_WAY_NS), taken_ns);
        let came_ns = self.stamps.place(&beside, between);
        let follow = answer.follow_up.unwrap_or_default();
        let mut row = [0; 57];
        row[..4].copy_from_slice(&answer.query_seq.to_le_bytes());
        row[4..8].copy_from_slice(&answer.seq.to_le_bytes());
        row[8..16].copy_from_slice(&answer.received_ns.to_le_bytes());
        row[16..24].copy_from_slice(&answer.sent_ns.to_le_bytes());
        row[24..32].copy_from_slice(&came_ns.unwrap_or(taken_ns).to_le_bytes());
        row[32..40].copy_from_slice(&taken_ns.to_le_bytes());
        row[40..44].copy_from_slice(&follow.seq.to_le_bytes());
        let dscp = answer.dscp.unwrap_or(UNKNOWN);
        let marks = [u8::from(came_ns.is_some()), u8::from(answer.follow_up.is_some())];
        row[44..48].copy_from_slice(&[answer.ttl, dscp, marks[0], marks[1]]);
        row[48..56].copy_from_slice(&follow.sent_ns.to_le_bytes());
        row[56] = match answer.watch {
            None => UNTOLD,
            Some(watch) if watch.received_by_program => PROGRAM,
            Some(_) => KERNEL,
        };
        self.hear(&answer);
        self.files.write(|files| files.arrivals.add(&row))?;
        Ok(came_ns)
    }

    /// Takes what an answer tells behind the last one.
    fn hear_closing(&mut self, flow: usize, answer: &Answer) -> Result<(), Error> {
        self.hear(answer);
        let Some(follow) = answer.follow_up else { return Ok(()) };
        let untold = &mut self.flows[flow].untold;
        *untold = untold.saturating_sub(1);
        let mut row = [0; 16];
        row[..4].copy_from_slice(&(flow as u32).to_le_bytes());
        row[4..8].copy_from_slice(&follow.seq.to_le_bytes());
        row[8..].copy_from_slice(&follow.sent_ns.to_le_bytes());
        self.files.write(|files| files.follow_ups.add(&row))
    }

    /// Hears what the reflector says of itself.
    fn hear(&mut self, answer: &Answer) {
        self.counts.reflector_clock = Some(worse(self.counts.reflector_clock, answer.error));
        let Some(watch) = answer.watch else { return };
        let [_, last] = self.counts.watched.get_or_insert([watch; 2]);
        // Answers that overtake others tell nothing new.
        let more = watch.stalls.wrapping_sub(last.stalls);
        if more > 0 && more < 1 << 31 {
            self.counts.stalls_untold += u64::from(more - 1);
            if self.told.len() < STALLS {
                let (start_ns, lasted_ns) = (watch.stall_ns, watch.lasted_ns);
                self.told.push(EndStall { start_ns, lasted_ns, cause: watch.cause });
            }
        }
        if more < 1 << 31 {
            *last = watch;
        }
    }

    fn take_stamps(&mut self, at: usize) -> Result<usize, Error> {
        let flow = &self.flows[at];
        let taken = flow.socket.returned(&mut self.batch)?;
        let now_ns = self.stamps.wall.now();
        if taken > 0 {
            self.look_at_clock(now_ns);
        }
        for at in 0..taken {
            let packet = self.batch.packet(at);
            let is_own =
                |query: &Query| query.ssid == self.ssid && u64::from(query.seq) < self.counts.sent;
            let query = datagrams(packet.bytes())
                .find_map(|sent| Query::read(sent.payload, &self.asked.form).ok().filter(is_own))
                .filter(|_| packet.beside.is_returned);
            let Some(query) = query else { continue };
            let between = (self.sent_ns[query.seq as usize], now_ns);
            let Some(stamp_ns) = self.stamps.place(&packet.beside, between) else { continue };
            if packet.beside.is_at_queue {
                self.queued_ns.insert(query.seq, stamp_ns);
                continue;
            }
            self.counts.stamped += 1;
            let mut row = [0; 24];
            row[..8].copy_from_slice(&u64::from(query.seq).to_le_bytes());
            row[8..16].copy_from_slice(&stamp_ns.to_le_bytes());
            let queued_ns = self.queued_ns.remove(&query.seq).unwrap_or(0);
            row[16..].copy_from_slice(&queued_ns.to_le_bytes());
            self.files.write(|files| files.stamps.add(&row))?;
        }
        Ok(taken)
    }

    fn finish(&mut self) -> Result<(), Error> {
        let so_far = worse(self.counts.clock, self.error);
        self.counts.clock = Some(worse(Some(so_far), self.stamps.clock_error()));
        let path = self.files.folder.join("stalls.npy");
        let failed = |source| Error::File { path: path.clone(), source };
        let mut stalls = Rows::create(&path, STALLED).map_err(failed)?;
        for (end, all) in [(HERE, &self.vitals.stalls), (THERE, &self.told)] {
            for stall in all {
                let mut row = [0; 24];
                row[..4].copy_from_slice(&end.to_le_bytes());
                row[4..8].copy_from_slice(&(stall.cause as u32).to_le_bytes());
                row[8..16].copy_from_slice(&stall.start_ns.to_le_bytes());
                row[16..].copy_from_slice(&stall.lasted_ns.to_le_bytes());
                stalls.add(&row).map_err(failed)?;
            }
        }
        stalls.finish().map_err(failed)?;
        self.files.write(|files| {
            [&mut files.departures, &mut files.stamps, &mut files.arrivals, &mut files.follow_ups]
                .into_iter()
                .try_for_each(|rows| rows.flush().and_then(|()| rows.count()))
        })
    }

    /// Bytes of the shortest and of the longest query.
    pub fn sizes(&self) -> (usize, usize) {
        let sizes = || self.asked.sizes.iter().copied();
        (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0))
    }

    /// The source port of each flow.
    pub fn ports(&self) -> Vec<u16> {
        self.flows.iter().map(|flow| flow.socket.port()).collect()
    }

    /// Answers for which sockets had no room.
    pub fn dropped(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.dropped)).sum()
    }

    /// Whether both ends run on one kernel, as far as the reflector says.
    pub fn has_same_clock(&self) -> bool {
        self.counts.watched.is_some_and(|[first, _]| first.boot == boot())
    }
}

impl Files {
    fn write(&mut self, row: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), Error> {
        row(self).map_err(|source| Error::File { path: self.folder.clone(), source })
    }
}

/// What holds of a clock all the time.
fn worse(so_far: Option<ClockError>, now: ClockError) -> ClockError {
    so_far.map_or(now, |so_far| ClockError {
        synchronised: so_far.synchronised && now.synchronised,
        most_ns: so_far.most_ns.max(now.most_ns),
    })
}

/// What a first answer tells.
struct Greeted {
    /// Who lets queries wait, as the time tells at which the first one left.
    departed_by: DepartedBy,
    /// The form in which the reflector is asked of itself: one that it knows, if there is any.
    watch_form: Option<WatchForm>,
    /// What it says of itself until then.
    watch: Option<Watch>,
}

/// Waits for a first answer, on a socket of its own: the session begins afterwards.
fn greet(asked: &Asked, stamps: &Stamps) -> Result<Greeted, Error> {
    let wall = &stamps.wall;
    let socket = stamps.of(Udp::connect(asked.to, 0, asked.dscp)?)?;
    // The kernel takes the time at which a packet is to leave for a stamp of its own, and hides the card's.
    let may_wait = asked.txtime != Txtime::Off && stamps.card().is_none() && socket.allow_times();
    let mut batch = Batch::new();
    let (began_ns, mut refused, mut wrong_key) = (wall.now(), None, 0_u32);
    let (mut waits, mut is_stamped) = (None, false);
    let (mut extensions, mut older_forms) = (asked.extensions, WatchForm::ALL.into_iter().skip(1));
    let mut asked_forms = Vec::new();
    for seq in 0..TRIES {
        let now_ns = wall.now();
        let query =
            Query { seq, sent_ns: wall.of_day(now_ns), error: stamps.clock_error(), ssid: 0 };
        query.write(batch.write(0, asked.sizes[0]), extensions, &asked.form);
        asked_forms.push(extensions.watch);
        let at_ns = now_ns + ASKED_AHEAD_NS;
        if may_wait {
            batch.packet(0).leave_at(wall.monotonic(at_ns));
        }
        if let (_, Some(error)) = socket.send(&mut batch, &[0]) {
            if !is_refusal(&error) && !is_of_this_packet(&error) {
                return Err(socket.failed("send", error));
            }
            refused = Some(error);
        }
        let handed_ns = wall.now();
        // What is refused now may be answered when the other program has begun.
        std::thread::sleep(TRY);
        loop {
            let returned = socket.returned(&mut batch)?;
            for at in 0..returned {
                let beside = batch.packet(at).beside;
                if beside.is_untimely {
                    return Err(Error::OtherTimes { to: asked.to });
                }
                refused = beside.refused.map(io::Error::from_raw_os_error).or(refused);
                let left_ns = stamps.place(&beside, (now_ns, wall.now()));
                is_stamped |= left_ns.is_some();
                // A program that was kept waiting proves nothing.
                let is_proof = handed_ns + EARLY_NS < at_ns - EARLY_NS;
                if may_wait && is_proof {
                    waits = left_ns.and_then(|left_ns| has_waited(left_ns, at_ns)).or(waits);
                }
            }
            if returned == 0 {
                break;
            }
        }
        let may_be_told = may_wait && waits.is_none() && is_stamped;
        for at in 0..socket.receive(&mut batch)? {
            let by_card = is_stamped && batch.packet(at).beside.card_ns.is_some();
            // A card may have no room for the time of a single packet.
            let is_silent = stamps.card().is_some() && !by_card;
            match Answer::read(batch.packet(at).bytes(), &asked.form) {
                Ok(_) if seq < OPEN_TRIES && (may_be_told || is_silent) => {}
                Ok(answer) => {
                    let asked_form = asked_forms.get(answer.query_seq as usize).copied().flatten();
                    if answer.watch.is_none() && asked_form.is_some() {
                        // It does not know this form. Once it knows none of them, it is of others.
                        if asked_form == extensions.watch {
                            extensions.watch = older_forms.next();
                        }
                        if extensions.watch.is_some() {
                            continue;
                        }
                    }
                    return Ok(Greeted {
                        departed_by: departed_by(asked, stamps, waits, by_card)?,
                        watch_form: asked_form.filter(|_| answer.watch.is_some()),
                        watch: answer.watch,
                    });
                }
                Err(Unread::WrongKey) => wrong_key += 1,
                Err(Unread::Short) => {}
            }
        }
    }
    let said = match refused {
        _ if wrong_key > 0 => format!(": {wrong_key} that came are not sealed by this key"),
        Some(error) => format!(": {error}{}", what_it_means(&error)),
        None => String::new(),
    };
    let waited = Nanos((wall.now() - began_ns) / NS_PER_MS * NS_PER_MS);
    Err(Error::NoAnswer { to: asked.to, waited, said })
}

/// Whether a query is the one of so many; multiples of the golden ratio keep no step with bursts.
fn is_queue_timed(seq: u64, each: u32) -> bool {
    (seq as u32).wrapping_mul(0x9e37_79b1) <= u32::MAX / each
}

/// What an error means for who wants an answer.
fn what_it_means(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => ", as its port is closed: no program listens there",
        Some(libc::ENOBUFS) => {
            ", as a queue or link of this host drops them: it is full, or the other end of the link has \
             a smaller MTU"
        }
        Some(libc::EPERM) => ", as a firewall of this host drops them",
        _ => "",
    }
}

/// Whether a queue let a packet wait until its time; `None` of one that was delayed, which proves nothing.
fn has_waited(left_ns: u64, at_ns: u64) -> Option<bool> {
    (left_ns <= at_ns + BEHIND_NS).then_some(left_ns + EARLY_NS >= at_ns)
}

/// Who lets queries wait, if that is known and as asked; a card that takes no times is refused.
fn departed_by(
    asked: &Asked,
    stamps: &Stamps,
    waits: Option<bool>,
    by_card: bool,
) -> Result<DepartedBy, Error> {
    if let Some(card) = stamps.card().filter(|_| !by_card) {
        return Err(Error::CardSilent { link: card.link().into(), to: asked.to });
    }
    match (waits, asked.txtime) {
        (Some(true), _) => Ok(DepartedBy::Queue),
        (_, Txtime::On) => Err(Error::NoTxtime { to: asked.to }),
        _ => Ok(DepartedBy::Program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_twice_is_of_one_query() {
        let mut heard = Heard::default();
        for seq in [3, 3, 0, 64, 200, 64, 0] {
            heard.add(seq);
        }
        assert_eq!(heard.count, 4);
    }

    #[test]
    fn of_so_many_queries_one_is_timed_in_each_place_of_a_burst() {
        assert!((0..1000).all(|seq| is_queue_timed(seq, 1)));
        for place in 0..8 {
            let timed = (0..1000).filter(|burst| is_queue_timed(8 * burst + place, 8)).count();
            assert!((115..135).contains(&timed), "{place}: {timed}");
        }
    }

    #[test]
    fn a_delay_is_no_queue_that_lets_packets_wait() {
        let at_ns = ASKED_AHEAD_NS;
        let told = [10_000, at_ns - 50_000, at_ns + 60_000, 10_000_000];
        let expected = [Some(false), Some(true), Some(true), None];
        assert_eq!(told.map(|left_ns| has_waited(left_ns, at_ns)), expected);
    }
}
