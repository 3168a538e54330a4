use crate::book::Book;
use crate::counters::Counters;
use crate::template::Content;
use crate::ticks::Ticks;
use crate::turns::Turns;
use dpdk::{Burst, Mempool, RxQueue, TxQueue, tsc};

/// Packets received at once.
const RX_BURST: usize = 64;

/// What the generator sends by and receives from.
#[derive(Debug)]
pub struct Wire<C> {
    pub rx: Vec<RxQueue>,
    /// Flows take them in turn.
    pub tx: Vec<TxQueue>,
    /// Packets for what is sent.
    pub pool: Mempool,
    pub content: C,
    pub ticks: Ticks,
    /// Packets sent at once, at most.
    pub tx_burst: usize,
    /// A packet that the wire has not taken so many ticks after its time is not sent at all.
    pub give_up: u64,
    /// How long to wait for the last packets, in ticks.
    pub drain: u64,
}

/// One direction: what is sent by a wire when `schedule` (ascending ticks) says so, and its book.
#[derive(Debug)]
pub struct Line<'a, C, B, S> {
    wire: &'a mut Wire<C>,
    book: &'a mut B,
    schedule: S,
    next: Option<u64>,
    due: Due,
    arrived: Burst,
    /// When it ends at the latest, once everything was sent.
    drained: Option<u64>,
}

/// Sends when schedules say so, whatever comes back, and books every departure and every arrival. Ends
/// when everything was sent and has arrived, or did not while the wires drained.
pub fn generate<C: Content, B: Book, S: Iterator<Item = u64>, const N: usize>(
    mut lines: [Line<'_, C, B, S>; N],
    mut turns: Turns<'_>,
    counters: &Counters,
) {
    let mut handled = 0;
    while let Some(now) = turns.next(handled) {
        handled = 0;
        let mut over = true;
        for line in &mut lines {
            handled += line.turn(now, counters);
            over &= line.is_over(now);
        }
        if over {
            break;
        }
    }
    for line in &mut lines {
        line.due.give_up(u64::MAX, 0, line.book);
    }
}

impl<'a, C: Content, B: Book, S: Iterator<Item = u64>> Line<'a, C, B, S> {
    /// A line that begins to send when the schedule does.
    pub fn new(wire: &'a mut Wire<C>, book: &'a mut B, mut schedule: S) -> Self {
        let next = schedule.next();
        let due = Due::new(wire.tx_burst);
        Self { wire, book, schedule, next, due, arrived: Burst::new(), drained: None }
    }

    /// Receives and sends once; says how many packets were worked on.
    #[inline(always)]
    fn turn(&mut self, now: u64, counters: &Counters) -> usize {
        let Self { wire, book, schedule, next, due, arrived, .. } = self;
        let mut handled = 0;
        for rx in &mut wire.rx {
            let count = rx.receive(arrived, RX_BURST);
            if count > 0 {
                let at = tsc::now();
                arrived.iter().for_each(|packet| book.arrived(packet.data(), at));
                arrived.clear();
                counters.rx_packets.add(count as u64);
            }
            handled += count;
        }
        while let Some(intended) = next.filter(|intended| *intended <= now && due.has_room()) {
            due.push(intended);
            *next = schedule.next();
        }
        if !due.is_empty() {
            due.give_up(now, wire.give_up, *book);
            handled += send(wire, due, *book, counters);
        }
        handled
    }

    /// Whether everything was sent, and has arrived or will not any more.
    #[inline(always)]
    fn is_over(&mut self, now: u64) -> bool {
        if self.next.is_some() || !self.due.is_empty() {
            return false;
        }
        let end = *self.drained.get_or_insert(now + self.wire.drain);
        now >= end || self.book.all_arrived()
    }
}

/// Sends what is due and says how many packets were worked on. What a full ring does not take stays
/// due, and is stamped again.
#[inline(always)]
fn send<C: Content, B: Book>(
    wire: &mut Wire<C>,
    due: &mut Due,
    book: &mut B,
    counters: &Counters,
) -> usize {
    let all = due.intended.len();
    if !wire.pool.fill(&mut due.burst, all) {
        // The wire still has all that were sent.
        due.refused = tsc::now();
        return 0;
    }
    let first = book.next_seq(all);
    let actual = tsc::now();
    let actual_ns = wire.ticks.unix_ns(actual);
    for ((packet, intended), seq) in due.burst.iter_mut().zip(&due.intended).zip(first..) {
        wire.content.fill(packet, seq, wire.ticks.unix_ns(*intended), actual_ns);
    }
    debug_assert!(all <= due.burst.len(), "a packet for each that is due");
    let sent = match wire.tx.as_mut_slice() {
        [tx] => tx.send(&mut due.burst, all),
        queues => send_by_flow(queues, &wire.content, &mut due.burst, first, all),
    };
    book.departed(&due.intended[..sent], actual);
    due.intended.drain(..sent);
    if sent < all {
        due.refused = actual;
    }
    counters.tx_packets.add(sent as u64);
    all
}

/// Sends each packet by the queue of its flow, until a ring is full; says how many.
fn send_by_flow<C: Content>(
    queues: &mut [TxQueue],
    content: &C,
    burst: &mut Burst,
    first: u64,
    all: usize,
) -> usize {
    let mut send = |seq: &u64| queues[content.flow(*seq) % queues.len()].send(burst, 1) == 1;
    (first..).take(all).take_while(|seq| send(seq)).count()
}

/// Packets whose time has come: when that was, and the packets, as far as they were made.
#[derive(Debug)]
struct Due {
    intended: Vec<u64>,
    burst: Burst,
    /// When the wire last took less than was due.
    refused: u64,
}

impl Due {
    fn new(most: usize) -> Self {
        Self { intended: Vec::with_capacity(most), burst: Burst::new(), refused: 0 }
    }

    fn is_empty(&self) -> bool {
        self.intended.is_empty()
    }

    fn has_room(&self) -> bool {
        self.intended.len() < self.intended.capacity()
    }

    fn push(&mut self, intended: u64) {
        debug_assert!(self.intended.last().is_none_or(|last| *last <= intended), "time goes on");
        self.intended.push(intended);
    }

    /// Forgets the times of packets that are too late. The packets that were made for them have no
    /// number yet: they serve the others.
    fn give_up(&mut self, now: u64, limit: u64, book: &mut impl Book) {
        let late = self.intended.iter().take_while(|intended| now - **intended > limit).count();
        if late > 0 {
            let late = &self.intended[..late];
            book.gave_up(late, late.partition_point(|intended| *intended <= self.refused));
        }
        self.intended.drain(..late);
    }
}
