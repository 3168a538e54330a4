//! Matching of packets before and after a device, in one pass over both streams merged by time.
//!
//! A match becomes final only when its pre packet leaves the window. So three queues hold what is
//! undecided, each for at most one window: `pre` (packets sent), `unmatched` (packets that left the
//! window without a match: a late post may still come) and `orphans` (posts that came without a pre
//! packet: their pre packet may still come, if it travels the other way or the clocks disagree).
//! Packets that share a key within the window are matched in order where order proves it
//! (`chain.rs`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;

use probe::key::Key;
use units::Nanos;

use crate::chain::{Answer, Chains, Posts, Waiting};
use crate::chunk::{Entry, State};
use crate::counts::Counts;
use crate::doubts::Doubts;
use crate::error::Error;
use crate::flight::{Flight, MOST};
use crate::ingest::{Kind, Stamped};
use crate::residue::Residue;

/// A packet that was seen on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Place of the packet in pre, in order of time; 0 is the first.
    pub seq: u64,
    /// Place of the packet in post, in order of time.
    pub post_seq: u64,
    /// Time at which it was seen before the device, in ns.
    pub pre_ns: u64,
    /// Time until it was seen behind it, in ns; never 0.
    pub latency_ns: u64,
    pub(crate) tag: u64,
}

/// What became of a packet that has no match, by its place in pre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It counts as lost, unless it turns out to be late.
    Lost { seq: u64, pre_ns: u64 },
    /// One that counts as lost so far is late.
    Late { seq: u64 },
    /// It is not judged.
    Outside { seq: u64, pre_ns: u64 },
    /// It was seen behind the device before it was sent.
    Negative { seq: u64 },
    /// It may have been seen behind the device.
    Ambiguous { seq: u64, pre_ns: u64 },
}

impl Fate {
    /// Returns the place of the packet that was decided about; 0 if that was decided before.
    pub fn at(&self) -> u64 {
        match *self {
            Self::Lost { seq, .. }
            | Self::Outside { seq, .. }
            | Self::Negative { seq }
            | Self::Ambiguous { seq, .. } => seq,
            Self::Late { .. } => 0,
        }
    }
}

/// A pre packet within its window. Twelve bytes, so that an [`Entry`] has 32.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    latency: [u32; 2],
    /// The place of the match in post. Without one, of a packet of a chain: how far the next is.
    post: u32,
}

const _: () = assert!(size_of::<Entry<Sent>>() == 32);

impl Sent {
    /// Flag of a packet that has no key.
    const UNKEYED: u32 = 1 << 31;
    /// Flag of a packet that has a match, or perhaps one.
    const ANSWERED: u32 = 1 << 30;
    /// Flag of a packet that has further posts.
    const EXTRA: u32 = 1 << 29;
    /// A post of its key came before it.
    const SEEN_BEFORE: u32 = 1 << 28;
    /// Others within the window share its key.
    const CHAINED: u32 = 1 << 27;
    /// Flag of a packet that concerns its link only.
    const LOCAL: u32 = 1 << 26;
    /// The capture holds it once more.
    const COPY: u32 = 1 << 25;
    /// Flag of a packet that travels the other way, as its addresses tell.
    const BACK: u32 = 1 << 24;
    const FLAGS: u32 = !(Self::BACK - 1);

    /// Returns the latency of the match, 0 without one.
    fn latency(self) -> u64 {
        u64::from(self.latency[1] & !Self::FLAGS) << 32 | u64::from(self.latency[0])
    }

    fn set_match(&mut self, latency: u64, post: u64) {
        debug_assert!(!self.is(Self::ANSWERED), "a packet has one match");
        debug_assert!(latency <= MAX_WINDOW.0, "the flags are left alone");
        self.latency[0] = latency as u32;
        self.latency[1] |= (latency >> 32) as u32 | Self::ANSWERED;
        self.post = post as u32;
    }

    fn set(&mut self, flag: u32) {
        self.latency[1] |= flag;
    }

    /// Returns true if it can be told apart from all others within the window, and came out once.
    fn is_told_apart(self) -> bool {
        self.latency[1] & Self::FLAGS == Self::ANSWERED
    }

    /// Returns true if it is under way, and nothing else is known of it.
    fn is_plain(self) -> bool {
        self.latency[1] == 0
    }

    fn is(self, flag: u32) -> bool {
        self.latency[1] & flag != 0
    }
}

impl State for Sent {
    fn numbers(self) -> (u64, u32) {
        let [low, high] = self.latency.map(u64::from);
        // With the flags at the lower end, a short latency is a small number.
        ((high << 32 | low).rotate_left(Self::FLAGS.count_ones()), self.post)
    }

    fn of_numbers(latency: u64, post: u32) -> Self {
        let latency = latency.rotate_right(Self::FLAGS.count_ones());
        Self { latency: [latency as u32, (latency >> 32) as u32], post }
    }
}

/// The longest window: what fits beside the flags.
pub const MAX_WINDOW: Nanos = Nanos((1 << 56) - 1);

impl Waiting for Flight<Sent> {
    fn sent_ns(&self, place: u64) -> u64 {
        self.get(place).ts
    }

    fn next(&self, place: u64) -> u64 {
        place + u64::from(self.get(place).state.post)
    }

    fn set_next(&mut self, place: u64, next: u64) {
        assert!((1..MOST as u64).contains(&(next - place)), "the next one is in reach");
        self.get_mut(place).state.post = (next - place) as u32;
    }
}

/// A pre packet that left its window without a match.
#[derive(Clone, Copy, Debug, Default)]
struct Unmatched {
    /// Its place in pre.
    seq: u64,
    late: bool,
    /// True if it is not judged: it was sent before the capture behind the device began, or in a gap or doubt.
    early: bool,
}

/// A post packet whose pre packet has not been seen.
#[derive(Clone, Copy, Debug, Default)]
struct Orphan {
    /// The next older orphan of this key, counted back from this one; 0 is none.
    back: u32,
    kept: bool,
    claimed: bool,
    kind: Kind,
    lateness: Lateness,
    /// True if one of the times is in doubt by which it is late.
    in_doubt: bool,
    /// The place of the packet that it is late for, and the place of that one in pre.
    late_of: u64,
    late_seq: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lateness {
    #[default]
    Unknown,
    /// The first late post of a pre packet that counts as lost so far.
    OfLost,
    /// The same of one that counts as outside so far.
    OfOutside,
    /// The same for a pre packet outside of the trimmed interval, or a further late post.
    Further,
}

/// Posts of a pre packet that are no match, counted only within the trimmed interval.
#[derive(Clone, Copy, Debug, Default)]
struct Extra {
    further: u64,
    before: u64,
}

/// Packets that take as much memory as the chain of a key.
const CHAIN_COSTS: usize = 2;

/// Packets decided at once in the end.
const PART: usize = 1 << 16;

/// Packets of a side that are taken at once where a device keeps the order.
const IN_ORDER: usize = 64;

fn entry_of(packet: &Stamped) -> Entry<Sent> {
    let key = packet.key().expect("it was looked at");
    Entry::new(key, packet.ts, Sent::default())
}

/// Packets whose places in the index are loaded together.
pub(crate) const AT_ONCE: usize = 16;

/// A stretch of a pair: what is counted here, and what of the captures lies before what is read.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// The times that are counted here, in ns.
    pub own: RangeInclusive<u64>,
    /// The first time that is read, in ns.
    pub read_from: u64,
    /// Packets of pre before the first that is read.
    pub before_pre: u64,
    /// Packets of post before the first that is read.
    pub before_post: u64,
}

impl Stretch {
    /// The stretch that is all of a pair.
    pub const WHOLE: Self = Self { own: 0..=u64::MAX, read_from: 0, before_pre: 0, before_post: 0 };
}

/// The rules by which packets are matched and judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Longest time that a packet may take.
    pub window: Nanos,
    /// Time up to which packets are trimmed; `None` keeps everything.
    pub cut: Option<Nanos>,
    /// Time at which the two captures began, before and behind the device, in ns; what is not found
    /// of a packet before is not judged.
    pub begin_ns: [u64; 2],
    /// A packet alike that follows so soon is a copy in the capture, in ns; 0: none is.
    pub copies_ns: u64,
    /// True if packets travel both ways.
    pub two_way: bool,
    /// Number of packets that may wait for their counterpart. Further posts of one, and packets
    /// that share a key, count again.
    pub max_in_flight: usize,
}

/// Number of packets that may wait, however small the captures are.
const ALWAYS_IN_FLIGHT: usize = 1 << 20;
/// Number of further packets that may wait for each byte of the captures: a packet takes more than
/// half a byte of its capture, even compressed, unless all of them are alike and their times as
/// well.
const IN_FLIGHT_PER_BYTE: u64 = 2;

/// Packets without a counterpart that were decided since the other capture last saw a packet: if it
/// never sees one again, it may have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Times of lost packets that were sent less than a window before the last post, in ns.
    pub near_ns: Vec<u64>,
    /// Lost packets that were sent after it.
    pub after: u64,
    /// Unknown posts after the last packet of pre.
    pub post_after: u64,
}

/// Decides what became of every packet, and counts it if it lies within the stretch.
///
/// A packet of pre is counted by its time, and with it all posts that belong to it; a post that
/// belongs to none by its own. One that turns out to be the first late one takes back that its packet
/// was lost, which another stretch may have counted: there `lost` is less than nothing, and wraps.
/// So every packet is counted in one stretch, and what is decided of it rests on what lies around
/// (`slice.rs` says how far).
pub(crate) struct Matcher {
    rules: Rules,
    window: u64,
    own_from: u64,
    own_span: u64,
    read_from: u64,
    before_pre: u64,
    pre: Flight<Sent>,
    /// The place behind the packet that was matched last: devices keep the order, so the next post is
    /// nearly always its match.
    expected: u64,
    /// True if the latest post was.
    in_order: bool,
    unmatched: Flight<Unmatched>,
    orphans: Flight<Orphan>,
    /// Further posts of packets in `pre`, by place.
    extras: HashMap<u64, Extra>,
    chains: Chains,
    /// The place in post of the packet that left last, if it could be told apart.
    left: Option<u32>,
    /// True if a chain hangs on what lies before what is read.
    torn: bool,
    next_settling: u64,
    post_packets: u64,
    newest_pre_ns: Option<u64>,
    newest_post_ns: Option<u64>,
    tail: Tail,
    counts: Counts,
    /// Times of which the capture before and that behind the device has nothing, in ns, in order of their begin; they
    /// may overlap.
    gaps: [VecDeque<(u64, u64)>; 2],
    /// Control traffic behind the device that nobody sent, and may be unknown.
    local_behind: u64,
    /// Packets without a counterpart, if they are to be kept.
    residue: Option<Residue>,
    matches: Vec<Match>,
    /// Matches of which a time is in doubt.
    untimed: Vec<Match>,
    fates: Vec<Fate>,
    /// Times at which one of the clocks is in doubt.
    doubts: Doubts,
    /// Packets in `pre` that were seen too early, at a time in doubt.
    early: HashSet<u64>,
    /// Names of the two sides.
    names: [String; 2],
    /// The bytes of both captures, if they bound how many packets may wait.
    sized_for: Option<u64>,
}

impl Matcher {
    pub fn new(rules: Rules, stretch: &Stretch, names: [String; 2]) -> Self {
        let (first, last) = (*stretch.own.start(), *stretch.own.end());
        assert!((Nanos(1)..=MAX_WINDOW).contains(&rules.window), "the window was checked");
        assert!(first <= last, "a stretch has a time");
        Self {
            rules: Rules { max_in_flight: rules.max_in_flight.min(MOST), ..rules },
            window: rules.window.0,
            own_from: first,
            own_span: last - first,
            read_from: stretch.read_from,
            before_pre: stretch.before_pre,
            pre: Flight::new(),
            expected: 0,
            in_order: true,
            unmatched: Flight::new(),
            orphans: Flight::new(),
            extras: HashMap::new(),
            chains: Chains::default(),
            left: None,
            torn: false,
            next_settling: 0,
            post_packets: stretch.before_post,
            newest_pre_ns: None,
            newest_post_ns: None,
            tail: Tail::default(),
            counts: Counts::default(),
            gaps: [VecDeque::new(), VecDeque::new()],
            local_behind: 0,
            residue: None,
            matches: Vec::new(),
            untimed: Vec::new(),
            fates: Vec::new(),
            doubts: Doubts::default(),
            early: HashSet::new(),
            names,
            sized_for: None,
        }
    }

    /// Has no more packets wait than captures of so many bytes have, even compressed, unless somebody
    /// made them to: memory follows the size of what is read, not what it can be decompressed to.
    pub fn size_for(&mut self, bytes: Option<u64>) {
        let more = bytes.map_or(u64::MAX, |bytes| bytes.saturating_mul(IN_FLIGHT_PER_BYTE));
        let most = ALWAYS_IN_FLIGHT.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
        if most < self.rules.max_in_flight {
            (self.rules.max_in_flight, self.sized_for) = (most, bytes);
        }
    }

    /// Judges what lies before the other side's first packet, too: somebody looked.
    pub fn judge_all(&mut self) {
        self.rules.begin_ns = [0, 0];
    }

    /// Sets packets apart that were seen when one of the clocks is in doubt.
    pub fn doubt(&mut self, doubts: Doubts) {
        self.doubts = doubts;
    }

    /// Keeps what is left without a counterpart.
    pub fn keep_residue(&mut self) {
        self.residue = Some(Residue::default());
    }

    pub fn take_residue(&mut self) -> Option<Residue> {
        self.residue.take()
    }

    /// Takes the next packet of pre. Times must not go back, and at one time pre comes before post.
    #[inline]
    pub fn pre(&mut self, ts: u64, key: Option<Key>, kind: Kind) -> Result<(), Error> {
        debug_assert!(self.pre.newest_ts().is_none_or(|newest| newest <= ts), "time goes on");
        debug_assert!(self.orphans.newest_ts().is_none_or(|newest| newest < ts), "pre comes first");
        self.advance(ts);
        self.check_room(ts, [0, 1 + self.before_pre + self.pre.next_place()])?;
        self.newest_pre_ns = Some(ts);
        if self.tail.post_after > 0 {
            self.counts.post_unknown += std::mem::take(&mut self.tail.post_after);
        }
        let mut state = Sent::default();
        let Some(key) = key else {
            state.set(Sent::UNKEYED);
            self.pre.push(ts, state);
            return Ok(());
        };
        if self.is_copy(key, ts) {
            state.set(Sent::COPY);
            self.pre.push(ts, state);
            return Ok(());
        }
        match kind {
            Kind::Forward | Kind::Forth => {}
            Kind::Local => state.set(Sent::LOCAL),
            Kind::Back => state.set(Sent::BACK),
        }
        let may_be_back = self.rules.two_way && kind != Kind::Forth;
        if may_be_back && self.orphans.len() > 0 {
            self.settle(ts);
            if self.claims_oldest(key) {
                state.set(Sent::EXTRA | Sent::SEEN_BEFORE | Sent::BACK);
                self.pre.push(ts, state);
                return Ok(());
            }
        }
        if kind == Kind::Back {
            self.pre.push(ts, state);
            return Ok(());
        }
        let (place, former) = self.pre.insert(Entry::new(key, ts, state));
        if let Some(former) = former.filter(|former| ts - self.pre.get(*former).ts < self.window) {
            self.chain(key, former, place, ts);
        }
        if !may_be_back && self.orphans.len() > 0 {
            self.settle(ts);
            self.claim_orphans(key, place);
        }
        Ok(())
    }

    /// Takes the next packet of post.
    #[inline]
    pub fn post(&mut self, ts: u64, key: Option<Key>, kind: Kind) -> Result<(), Error> {
        debug_assert!(self.pre.newest_ts().is_none_or(|newest| newest <= ts), "time goes on");
        debug_assert!(self.orphans.newest_ts().is_none_or(|newest| newest <= ts), "time goes on");
        self.advance(ts);
        self.newest_post_ns = Some(ts);
        if self.tail.after > 0 || !self.tail.near_ns.is_empty() {
            self.tail = Tail { post_after: self.tail.post_after, ..Tail::default() };
        }
        let index = self.post_packets;
        self.post_packets += 1;
        let kept = self.keeps(ts);
        let owned = self.owns(ts);
        self.counts.post_trimmed += u64::from(owned && !kept);
        let Some(key) = key else {
            self.counts.post_unkeyed += u64::from(owned && kept);
            return Ok(());
        };
        if let Some(entry) = self.pre.at_mut(self.expected) {
            if entry.is_of(key) && entry.state.is_plain() && ts - entry.ts < self.window {
                entry.state.set_match(ts - entry.ts, index);
                self.expected += 1;
                self.in_order = true;
                return Ok(());
            }
        }
        self.post_out_of_order(ts, (key, kind), index, kept)
    }

    /// Takes the first packets of both sides as long as a device that keeps the order would let them pass, and
    /// nothing else has to be looked after; returns how many. Whatever follows is for [`pre`](Self::pre) and
    /// [`post`](Self::post).
    pub fn take_in_order(&mut self, pre: &[Stamped], post: &[Stamped]) -> [usize; 2] {
        let Some(first) = post.first().filter(|_| self.is_at_rest()) else { return [0, 0] };
        let pre = self.plain(pre);
        let (Some(last), true) = (pre.last(), self.keeps(first.ts)) else { return [0, 0] };
        // Of a post that came later, it is not known what was sent before it.
        let until_ns = last.ts.min(self.next_settling);
        let known = post.iter().take(IN_ORDER).position(|packet| packet.ts >= until_ns);
        let known = &post[..known.unwrap_or(post.len().min(IN_ORDER))];
        let (mut sent, mut seen) = (0, 0);
        for packet in known {
            let (key, index, window) = (packet.key(), self.post_packets, self.window);
            let is_match = |entry: &Entry<Sent>| {
                let took = packet.ts.checked_sub(entry.ts).is_some_and(|ns| ns < window);
                took && key.is_some_and(|key| entry.is_of(key)) && entry.state.is_plain()
            };
            if self.expected == self.pre.next_place() {
                let Some(mut entry) = pre.get(sent).map(entry_of).filter(is_match) else { break };
                entry.state.set_match(packet.ts - entry.ts, index);
                self.pre.insert(entry);
                sent += 1;
            } else {
                let Some(entry) = self.pre.at_mut(self.expected).filter(|entry| is_match(entry))
                else {
                    break;
                };
                entry.state.set_match(packet.ts - entry.ts, index);
            }
            self.expected += 1;
            self.post_packets += 1;
            seen += 1;
        }
        let reached_ns = post.get(seen).unwrap_or(&post[post.len() - 1]).ts;
        let until_then = pre[sent..].iter().take_while(|packet| packet.ts <= reached_ns);
        sent += until_then.map(|packet| self.pre.insert(entry_of(packet))).count();
        self.newest_pre_ns = pre[..sent].last().map(|packet| packet.ts).or(self.newest_pre_ns);
        self.newest_post_ns = known[..seen].last().map(|packet| packet.ts).or(self.newest_post_ns);
        [sent, seen]
    }

    /// Returns true if nothing is known of packets under way but that their keys ascend.
    fn is_at_rest(&self) -> bool {
        let waiting = self.pre.len() + self.unmatched.len() + self.extras.len();
        self.pre.all_ascend()
            && self.orphans.len() == 0
            && self.chains.len() == 0
            && self.rules.copies_ns == 0
            && self.tail == Tail::default()
            && waiting + IN_ORDER <= self.rules.max_in_flight
    }

    /// Returns the first packets whose keys ascend, and of which nothing else has to be known.
    fn plain<'a>(&self, pre: &'a [Stamped]) -> &'a [Stamped] {
        let mut newest = self.pre.newest_tag();
        let is_plain = |packet: &&Stamped| {
            let ascends = packet.key().is_some_and(|key| key.hi > newest);
            newest = packet.key().map_or(newest, |key| key.hi);
            let is_forward = matches!(packet.kind(), Kind::Forward | Kind::Forth);
            ascends && is_forward && packet.ts < self.next_settling
        };
        let count = pre.iter().take(IN_ORDER).take_while(is_plain).count();
        &pre[..count]
    }

    /// Takes a post that does not follow the one before.
    fn post_out_of_order(
        &mut self,
        ts: u64,
        (key, kind): (Key, Kind),
        index: u64,
        kept: bool,
    ) -> Result<(), Error> {
        self.in_order = false;
        let Some(place) = self.within_window(key, ts) else {
            self.settle(ts);
            self.check_room(ts, [1, self.post_packets])?;
            self.orphan(ts, key, kind, kept);
            return Ok(());
        };
        let entry = self.pre.get_mut(place);
        if entry.state.is(Sent::CHAINED) {
            self.answer(key, place, ts, index, kept);
        } else if entry.state.is(Sent::ANSWERED) {
            self.further(place, kept);
        } else {
            entry.state.set_match(ts - entry.ts, index);
            self.expected = place + 1;
        }
        Ok(())
    }

    /// Returns true if the latest post followed the one before it.
    #[inline]
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Loads what the next packets will look at; `slots` are the lower 32 bits of their keys.
    #[inline]
    pub fn warm_up(&self, slots: impl Iterator<Item = u32>) {
        self.pre.warm_up(slots);
    }

    /// Decides what is still open once everything was seen, a part at a time; `false` when nothing
    /// is.
    pub fn finish(&mut self) -> bool {
        for _ in 0..self.pre.len().min(PART) {
            self.settle_pre();
        }
        while self.pre.len() == 0 && self.orphans.len() > 0 {
            self.settle_orphan();
        }
        if self.pre.len() == 0 {
            assert_eq!(self.orphans.len(), 0, "every post is decided in the end");
            assert!(self.extras.is_empty(), "further posts left with their packet");
        }
        self.pre.len() > 0
    }

    /// Goes on to a time before which all packets were taken.
    pub fn pass(&mut self, now: u64) {
        self.settle(now);
    }

    /// Takes the matches that became final since the last call, those of other stretches too, in
    /// order of pre.
    pub fn take_matches(&mut self, into: &mut Vec<Match>) {
        into.clear();
        std::mem::swap(into, &mut self.matches);
        debug_assert!(into.is_sorted_by_key(|found| found.seq), "matches are in order of pre");
    }

    /// Takes those of which a time is in doubt, likewise.
    pub fn take_untimed(&mut self, into: &mut Vec<Match>) {
        into.clear();
        std::mem::swap(into, &mut self.untimed);
    }

    /// Takes what became of packets of this stretch without a match, in the order in which that was
    /// decided.
    pub fn take_fates(&mut self, into: &mut Vec<Fate>) {
        into.clear();
        std::mem::swap(into, &mut self.fates);
    }

    /// Returns the place in pre of the oldest packet that is undecided.
    pub fn oldest_seq(&self) -> u64 {
        self.before_pre + self.pre.oldest()
    }

    /// Returns the counts, in which unknown posts behind the last pre packet are unknown.
    pub fn counts(&self) -> Counts {
        let post_unknown = self.counts.post_unknown + self.tail.post_after;
        Counts { post_unknown, ..self.counts }
    }

    /// Takes gaps between the files of a side, where packets take up to `longest_ns`: what was sent before or behind
    /// the device then is not judged by what the other side lacks.
    pub fn add_gaps(&mut self, side: usize, gaps: Vec<(u64, u64)>, longest_ns: u64) {
        for (from, to) in gaps {
            let gap = if side == 0 {
                (from, to.saturating_add(longest_ns))
            } else {
                (from.saturating_sub(longest_ns), to)
            };
            let gaps = &mut self.gaps[side];
            gaps.insert(gaps.partition_point(|(known, _)| *known <= gap.0), gap);
        }
    }

    /// Returns true if a time lies in a gap of a side; times do not go back.
    fn in_gap(&mut self, side: usize, ts: u64) -> bool {
        while self.gaps[side].front().is_some_and(|(_, to)| *to < ts) {
            self.gaps[side].pop_front();
        }
        let mut begun = self.gaps[side].iter().take_while(|(from, _)| *from <= ts);
        begun.any(|(_, to)| ts <= *to)
    }

    /// Returns the number of packets behind the device that nobody sent, and that are control traffic of their link.
    pub fn local_behind(&self) -> u64 {
        self.local_behind
    }

    /// Returns the time of the last packet of post, in ns.
    pub fn newest_post_ns(&self) -> Option<u64> {
        self.newest_post_ns
    }

    /// Returns what has no counterpart behind the last packet of the other capture.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Returns true if packets that share a key reach back further than what was read.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    fn keeps(&self, ts: u64) -> bool {
        self.rules.cut.is_none_or(|cut| ts > cut.0)
    }

    #[inline]
    fn owns(&self, ts: u64) -> bool {
        ts.wrapping_sub(self.own_from) <= self.own_span
    }

    /// Returns the newest pre packet of `key`, if its window is open.
    #[inline]
    fn within_window(&self, key: Key, now: u64) -> Option<u64> {
        self.pre.newest(key).filter(|place| now - self.pre.get(*place).ts < self.window)
    }

    #[inline]
    fn is_copy(&self, key: Key, ts: u64) -> bool {
        let soon = |place: u64| ts - self.pre.get(place).ts <= self.rules.copies_ns;
        self.rules.copies_ns > 0 && self.pre.newest(key).is_some_and(soon)
    }

    /// Decides, now and then, what left its window. What is left lying a little longer is passed
    /// over where it is found, and wherever that would not do, [`settle`](Self::settle) comes first.
    #[inline]
    fn advance(&mut self, now: u64) {
        if now >= self.next_settling {
            self.settle(now);
            self.pre.narrow_before(self.expected);
            self.next_settling = now.saturating_add(self.window / 64 + 1);
        }
    }

    fn settle(&mut self, now: u64) {
        let left = |ts: Option<u64>, window| ts.is_some_and(|ts| now - ts >= window);
        while left(self.pre.oldest_ts(), self.window) {
            self.settle_pre();
        }
        while left(self.orphans.oldest_ts(), self.window) {
            self.settle_orphan();
        }
        while left(self.unmatched.oldest_ts(), 2 * self.window) {
            self.unmatched.pop();
        }
    }

    /// Chains a packet of pre that shares its key with a former one within the window.
    #[cold]
    fn chain(&mut self, key: Key, former: u64, place: u64, ts: u64) {
        self.settle(ts);
        let first = self.pre.get(former);
        if !first.state.is(Sent::CHAINED) {
            self.pre.get_mut(former).state.set(Sent::CHAINED);
            let posts = match first.state {
                state if !state.is(Sent::ANSWERED) => Posts::None,
                state if !state.is(Sent::EXTRA) => Posts::One,
                _ => Posts::Several,
            };
            self.chains.begin(key, (former, first.ts), posts);
        }
        self.pre.get_mut(place).state.set(Sent::CHAINED);
        let first_ns = self.chains.add(key, place, &mut self.pre);
        self.torn |= self.is_torn_off(first_ns, ts);
    }

    /// Returns true if a chain that reaches from `first_ns` to `ts` hangs on what was not read, and
    /// so may what is counted here: it may begin before, or what anchors it may (`slice.rs`).
    fn is_torn_off(&self, first_ns: u64, ts: u64) -> bool {
        let borders = [self.window, 2 * self.window - 1];
        let mut borders = borders.map(|ns| self.read_from.saturating_add(ns)).into_iter();
        self.read_from > 0 && borders.any(|border| first_ns < border && border <= ts)
    }

    /// Answers a post of a key that several packets within the window carry, the newest at
    /// `newest`.
    #[cold]
    fn answer(&mut self, key: Key, newest: u64, ts: u64, index: u64, kept: bool) {
        self.settle(ts);
        match self.chains.answer(key, &self.pre) {
            Answer::Match(place) => {
                let entry = self.pre.get_mut(place);
                entry.state.set_match(ts - entry.ts, index);
            }
            Answer::Further => self.further(newest, kept),
        }
    }

    #[cold]
    fn further(&mut self, place: u64, kept: bool) {
        self.pre.get_mut(place).state.set(Sent::EXTRA);
        self.extras.entry(place).or_default().further += u64::from(kept);
    }

    #[inline]
    fn settle_pre(&mut self) {
        let (place, entry) = self.pre.pop();
        let owned = self.owns(entry.ts);
        let (state, latency) = (entry.state, entry.state.latency());
        debug_assert!(latency < self.window, "a match lies within the window");
        let ambiguous = state.is(Sent::CHAINED) && self.leaves_ambiguous(place, &entry);
        let matched = state.is(Sent::ANSWERED) && !ambiguous;
        if state.is(Sent::EXTRA) || (ambiguous && state.is(Sent::ANSWERED)) {
            self.settle_posts(place, entry, ambiguous, owned);
        }
        self.left = (matched && state.is_told_apart()).then_some(state.post);
        let kept = self.keeps(if matched { entry.ts + latency } else { entry.ts });
        if matched && kept {
            self.counts.sent += u64::from(owned);
            let (seq, post_seq) = (self.before_pre + place, self.widen(state.post));
            let (pre_ns, latency_ns, tag) = (entry.ts, latency, entry.tag);
            let found = Match { seq, post_seq, pre_ns, latency_ns, tag };
            if self.doubts.concern(pre_ns, pre_ns + latency_ns) {
                self.counts.untimed += u64::from(owned);
                self.counts.post_untimed += u64::from(owned);
                self.untimed.push(found);
            } else {
                self.counts.matched += u64::from(owned);
                self.matches.push(found);
            }
        } else {
            self.settle_without_match(place, entry, [matched, ambiguous, owned, kept]);
        }
    }

    #[cold]
    fn settle_without_match(&mut self, place: u64, entry: Entry<Sent>, decided: [bool; 4]) {
        let [matched, ambiguous, owned, kept] = decided;
        let Entry { ts, state, .. } = entry;
        let seq = self.before_pre + place;
        let passed = Sent::UNKEYED | Sent::COPY | Sent::SEEN_BEFORE | Sent::LOCAL | Sent::BACK;
        let passed = state.is(passed);
        // That a packet is lost follows from its time.
        let in_doubt = self.doubts.concern(ts, ts);
        let early = ts < self.rules.begin_ns[1] || self.in_gap(1, ts) || in_doubt;
        if !matched && !ambiguous && !passed {
            self.unmatched.insert(Entry::new(
                entry.key(),
                ts,
                Unmatched { seq, late: !kept, early },
            ));
        }
        if !owned {
            return;
        }
        let counts = &mut self.counts;
        match () {
            () if !kept => return counts.pre_trimmed += 1,
            () if state.is(Sent::UNKEYED) => return counts.pre_unkeyed += 1,
            () if state.is(Sent::COPY) => return counts.repeated += 1,
            () if ambiguous => {
                self.fates.push(Fate::Ambiguous { seq, pre_ns: ts });
                return counts.ambiguous += 1;
            }
            () if state.is(Sent::BACK) => return counts.reverse += 1,
            () if state.is(Sent::SEEN_BEFORE) && self.early.remove(&place) => {
                counts.untimed += 1;
                self.fates.push(Fate::Negative { seq });
            }
            () if state.is(Sent::SEEN_BEFORE) => {
                counts.negative += 1;
                self.fates.push(Fate::Negative { seq });
                if let Some(residue) = &mut self.residue {
                    residue.negative[0].push(ts, entry.key());
                }
            }
            () if state.is(Sent::LOCAL) => return counts.local += 1,
            () if early => {
                counts.outside += 1;
                self.fates.push(Fate::Outside { seq, pre_ns: ts });
            }
            () => {
                counts.lost = counts.lost.wrapping_add(1);
                self.fates.push(Fate::Lost { seq, pre_ns: ts });
                if let Some(residue) = &mut self.residue {
                    residue.unmatched[0].push(ts, entry.key());
                }
                match self.newest_post_ns {
                    Some(newest) if ts <= newest => {
                        self.tail.near_ns.extend((newest - ts < self.window).then_some(ts));
                    }
                    _ => self.tail.after += 1,
                }
            }
        }
        counts.sent += 1;
    }

    /// Returns true if a packet that shares its key leaves without anybody knowing if it arrived.
    #[cold]
    fn leaves_ambiguous(&mut self, place: u64, entry: &Entry<Sent>) -> bool {
        let next = place + u64::from(entry.state.post);
        let (anchored, window) = (self.is_anchored(entry), self.window);
        let packet = (place, entry.ts);
        self.chains.leaves_ambiguous(entry.key(), packet, next, window, anchored)
            || entry.state.is(Sent::ANSWERED) && !self.went_on(entry)
    }

    /// Returns true if the capture before the device was still looking when the answer of a packet
    /// came, so that the next one alike cannot have gone in unseen.
    fn went_on(&self, answered: &Entry<Sent>) -> bool {
        let later_ns = self.pre.first_ts_from(answered.ts + answered.state.latency());
        later_ns.is_some_and(|later| later - answered.ts < self.window)
    }

    /// Returns true if the first packet of a chain, which was answered, is known to be the first of
    /// its key that can come out behind it. Either none went in for a window before it: the capture
    /// before the device had been looking for so long, and the one behind it looked when it went
    /// in. Or the packet right before it can be told apart, and came out right before it.
    fn is_anchored(&self, first: &Entry<Sent>) -> bool {
        let [pre_ns, post_ns] = self.rules.begin_ns;
        let looked = first.ts.checked_sub(self.window).is_some_and(|since| pre_ns <= since);
        let silent = looked && post_ns <= first.ts;
        let behind_another = self.left.is_some_and(|post| post.wrapping_add(1) == first.state.post);
        (silent || behind_another) && !first.state.is(Sent::SEEN_BEFORE)
    }

    /// Settles the posts of a pre packet beside its match; all its posts if it is ambiguous.
    #[cold]
    fn settle_posts(&mut self, place: u64, entry: Entry<Sent>, ambiguous: bool, owned: bool) {
        let extra = self.extras.remove(&place);
        assert_eq!(extra.is_some(), entry.state.is(Sent::EXTRA), "the flag tells of further posts");
        let Extra { further, before } = extra.unwrap_or_default();
        if !owned {
            return;
        }
        let kept = self.keeps(entry.ts + entry.state.latency());
        let counts = &mut self.counts;
        if ambiguous {
            let first = entry.state.is(Sent::ANSWERED) && kept;
            counts.post_ambiguous += further + before + u64::from(first);
        } else {
            counts.duplicated += further;
            let way = if entry.state.is(Sent::BACK) {
                &mut counts.post_reverse
            } else {
                &mut counts.post_negative
            };
            *way += before;
        }
    }

    #[cold]
    fn orphan(&mut self, ts: u64, key: Key, kind: Kind, kept: bool) {
        let late_of = self.unmatched.newest(key);
        let late_seq = late_of.map_or(0, |place| self.unmatched.get(place).state.seq);
        let lateness = match late_of {
            Some(place) => {
                let state = &mut self.unmatched.get_mut(place).state;
                match std::mem::replace(&mut state.late, true) {
                    true => Lateness::Further,
                    false if state.early => Lateness::OfOutside,
                    false => Lateness::OfLost,
                }
            }
            None => Lateness::Unknown,
        };
        let in_doubt =
            late_of.is_some_and(|place| self.doubts.concern(self.unmatched.get(place).ts, ts));
        let late_of = late_of.unwrap_or(0);
        let claimed = false;
        let orphan = Orphan { back: 0, kept, claimed, kind, lateness, in_doubt, late_of, late_seq };
        let (place, former) = self.orphans.insert(Entry::new(key, ts, orphan));
        if let Some(former) = former {
            assert!((1..MOST as u64).contains(&(place - former)), "the older orphan is in reach");
            self.orphans.get_mut(place).state.back = (place - former) as u32;
        }
    }

    /// Gives the oldest orphan of `key` to the pre packet that comes next, which travels the other way.
    fn claims_oldest(&mut self, key: Key) -> bool {
        let oldest = self.orphans.oldest();
        let mut next = self.orphans.newest(key).filter(|place| *place >= oldest);
        let (mut found, mut newer) = (None, None);
        while let Some(place) = next {
            let Orphan { back, claimed, .. } = self.orphans.get(place).state;
            if claimed {
                break;
            }
            (newer, found) = (found, Some(place));
            let former = (back > 0).then(|| place.wrapping_sub(u64::from(back)));
            next = former.filter(|place| *place >= oldest);
        }
        let Some(place) = found else { return false };
        let state = &mut self.orphans.get_mut(place).state;
        state.claimed = true;
        let claimed = *state;
        if matches!(claimed.lateness, Lateness::OfLost | Lateness::OfOutside) {
            self.pass_on_lateness(claimed, newer);
        }
        let before = u64::from(claimed.kept);
        let (place, extra) = (self.pre.next_place(), Extra { further: 0, before });
        self.extras.insert(place, extra);
        true
    }

    /// Lets the next post be the first late one of a packet: the post that seemed to be it is none.
    fn pass_on_lateness(&mut self, claimed: Orphan, newer: Option<u64>) {
        if let Some(place) = newer {
            let state = &mut self.orphans.get_mut(place).state;
            if state.lateness == Lateness::Further && state.late_of == claimed.late_of {
                state.lateness = claimed.lateness;
                return;
            }
        }
        if claimed.late_of >= self.unmatched.oldest() {
            self.unmatched.get_mut(claimed.late_of).state.late = false;
        }
    }

    /// Gives the orphans of `key` to the pre packet that came after them.
    #[cold]
    fn claim_orphans(&mut self, key: Key, pre_place: u64) {
        let oldest = self.orphans.oldest();
        let mut next = self.orphans.newest(key);
        let pre_ns = self.pre.get(pre_place).ts;
        while let Some(place) = next.filter(|place| *place >= oldest) {
            let Entry { ts, state, .. } = self.orphans.get_mut(place);
            if std::mem::replace(&mut state.claimed, true) {
                break;
            }
            if self.doubts.concern(pre_ns, *ts) {
                self.early.insert(pre_place);
            }
            next = (state.back > 0).then(|| place.wrapping_sub(u64::from(state.back)));
            self.pre.get_mut(pre_place).state.set(Sent::EXTRA | Sent::SEEN_BEFORE);
            self.extras.entry(pre_place).or_default().before += u64::from(state.kept);
        }
    }

    fn settle_orphan(&mut self) {
        let (_, entry) = self.orphans.pop();
        let Entry { ts, state, .. } = entry;
        let Orphan { kept, claimed, kind, lateness, in_doubt, late_seq, .. } = state;
        let early = ts < self.rules.begin_ns[0] || self.in_gap(0, ts);
        let is_unknown = !claimed && lateness == Lateness::Unknown;
        if is_unknown && kind == Kind::Back {
            self.counts.post_reverse += u64::from(kept && self.owns(ts));
            return;
        }
        if let Some(residue) = self.residue.as_mut().filter(|_| kept) {
            match lateness {
                _ if claimed => residue.negative[1].push(ts, entry.key()),
                Lateness::Unknown if ts >= self.rules.begin_ns[0] => {
                    residue.unmatched[1].push(ts, entry.key());
                }
                _ => {}
            }
        }
        if claimed || !self.owns(ts) {
            return;
        }
        let counts = &mut self.counts;
        match lateness {
            Lateness::OfLost => {
                counts.lost = counts.lost.wrapping_sub(1);
                self.fates.push(Fate::Late { seq: late_seq });
            }
            Lateness::OfOutside => counts.outside = counts.outside.wrapping_sub(1),
            Lateness::Unknown | Lateness::Further => {}
        }
        match lateness {
            Lateness::Unknown if !kept => {}
            Lateness::Unknown if early => counts.post_outside += 1,
            Lateness::Unknown if self.newest_pre_ns.is_none_or(|newest| ts > newest) => {
                self.tail.post_after += 1
            }
            Lateness::Unknown => {
                counts.post_unknown += 1;
                self.local_behind += u64::from(kind == Kind::Local);
            }
            Lateness::Further => counts.post_late += u64::from(kept),
            Lateness::OfLost | Lateness::OfOutside if in_doubt => {
                counts.untimed += 1;
                counts.post_untimed += u64::from(kept);
            }
            Lateness::OfLost | Lateness::OfOutside => {
                counts.late += 1;
                counts.post_late += u64::from(kept);
            }
        }
    }

    /// Returns the full place in post of the lower 32 bits of one that was seen within the window.
    fn widen(&self, post: u32) -> u64 {
        self.post_packets - u64::from((self.post_packets as u32).wrapping_sub(post))
    }

    /// Checks that there is room for one more: the packet of this side, and of this number in it.
    #[inline]
    fn check_room(&self, now: u64, reached: [u64; 2]) -> Result<(), Error> {
        let packets = self.pre.len() + self.unmatched.len() + self.orphans.len();
        let waiting = packets + CHAIN_COSTS * self.chains.len() + self.extras.len();
        if waiting < self.rules.max_in_flight { Ok(()) } else { Err(self.full(now, reached)) }
    }

    #[cold]
    fn full(&self, now: u64, [side, packet]: [u64; 2]) -> Error {
        Error::InFlight {
            file: self.names[side as usize].clone(),
            packet,
            at_ns: now,
            window: Nanos(self.window),
            limit: self.rules.max_in_flight,
            bytes: self.sized_for,
            unmatched: self.unmatched.len(),
            orphans: self.orphans.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Nanos = Nanos(100);

    #[derive(Clone, Copy)]
    enum Seen {
        Pre(u64, u64),
        Post(u64, u64),
    }
    use Seen::{Post, Pre};

    fn rules(cut: Option<u64>, max_in_flight: usize) -> Rules {
        let (cut, begin_ns) = (cut.map(Nanos), [0, 0]);
        Rules { window: WINDOW, cut, begin_ns, copies_ns: 0, two_way: false, max_in_flight }
    }

    fn matcher(rules: Rules) -> Matcher {
        Matcher::new(rules, &Stretch::WHOLE, ["pre", "post"].map(String::from))
    }

    fn run(cut: Option<u64>, seen: &[Seen]) -> (Counts, Vec<(u64, u64)>) {
        let mut matcher = matcher(rules(cut, 1000));
        let key = |name| Some(Key { hi: name, lo: name % 2 });
        for packet in seen {
            match *packet {
                Pre(ts, name) => matcher.pre(ts, key(name), Kind::Forward).unwrap(),
                Post(ts, name) => matcher.post(ts, key(name), Kind::Forward).unwrap(),
            }
        }
        while matcher.finish() {}
        let pre = seen.iter().filter(|packet| matches!(packet, Pre(..))).count() as u64;
        matcher.counts().assert_conserved(pre, seen.len() as u64 - pre);
        let mut matches = Vec::new();
        matcher.take_matches(&mut matches);
        (matcher.counts(), matches.iter().map(|m| (m.seq, m.latency_ns)).collect())
    }

    fn probe(ts: u64, seq: u64) -> Stamped {
        Stamped::new(ts, Some(Key { hi: seq, lo: seq % 7 }))
    }

    /// Packets by the time between them, how long each takes, and what happens to it on the way.
    fn passages() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
        let latency = prop_oneof![8 => 25..35u64, 1 => 0..300u64, 1 => Just(12_000)];
        let happens = prop_oneof![40 => Just(0u8), 3 => 1..6u8];
        prop::collection::vec((0..20u64, latency, happens), 1..400)
    }

    fn sides(passages: &[(u64, u64, u8)]) -> [Vec<Stamped>; 2] {
        let (mut pre, mut post, mut ts) = (Vec::new(), Vec::new(), 0);
        for (seq, &(gap, latency, happens)) in (1u64..).zip(passages) {
            ts += gap;
            pre.push(if happens == 1 { Stamped::new(ts, None) } else { probe(ts, seq) });
            let seen = if happens == 2 { seq + 1_000_000 } else { seq };
            let copies = [1, 1, 1, 0, 2, 1][usize::from(happens)];
            (0..copies).for_each(|copy| post.push(probe(ts + latency + copy, seen)));
            if happens == 5 {
                pre.push(probe(ts, seq));
            }
        }
        post.sort_by_key(|packet| packet.ts);
        [pre, post]
    }

    /// Matches both sides by time, and returns what is known then, and packets that were taken at once.
    fn merged([pre, post]: &[Vec<Stamped>; 2], at_once: bool) -> (String, usize) {
        let mut matcher = matcher(Rules { window: Nanos(10_000), ..rules(None, 1000) });
        let (mut i, mut j, mut taken) = (0, 0, 0);
        while i < pre.len() || j < post.len() {
            if at_once {
                let [sent, seen] = matcher.take_in_order(&pre[i..], &post[j..]);
                (i, j, taken) = (i + sent, j + seen, taken + sent + seen);
            }
            let (sent, seen) = (pre.get(i), post.get(j));
            if sent.is_some_and(|sent| seen.is_none_or(|seen| sent.ts <= seen.ts)) {
                matcher.pre(pre[i].ts, pre[i].key(), Kind::Forward).unwrap();
                i += 1;
            } else if let Some(seen) = seen {
                matcher.post(seen.ts, seen.key(), Kind::Forward).unwrap();
                j += 1;
            }
        }
        while matcher.finish() {}
        matcher.counts().assert_conserved(pre.len() as u64, post.len() as u64);
        let Matcher { matches, fates, tail, counts, .. } = &matcher;
        (format!("{matches:?} {fates:?} {tail:?} {counts:?}"), taken)
    }

    proptest! {
        #[test]
        fn packets_taken_at_once_are_matched_as_one_by_one(passages in passages()) {
            let sides = sides(&passages);
            prop_assert_eq!(merged(&sides, true).0, merged(&sides, false).0);
        }
    }

    #[test]
    fn most_packets_of_a_device_that_keeps_the_order_are_taken_at_once() {
        let sides = sides(&[(10, 30, 0); 1000]);
        let [(found, taken), (one_by_one, _)] =
            [true, false].map(|at_once| merged(&sides, at_once));
        assert_eq!(found, one_by_one);
        assert!(taken > 1600, "{taken} of 2000");
    }

    #[test]
    fn the_first_post_counts() {
        let (counts, matches) = run(None, &[Pre(10, 1), Pre(11, 3), Post(12, 1), Post(13, 1)]);
        assert_eq!(matches, [(0, 2)]);
        assert_eq!((counts.duplicated, counts.lost), (1, 1));
    }

    /// Runs the same behind a packet a window before, and with one more behind them.
    fn run_anchored(seen: &[Seen]) -> (Counts, Vec<(u64, u64)>) {
        run_anchored_until(seen, 190)
    }

    fn run_anchored_until(seen: &[Seen], end: u64) -> (Counts, Vec<(u64, u64)>) {
        let anchored = [Pre(0, 8), Post(1, 8)].into_iter().chain(seen.iter().copied());
        let (counts, matches) = run(None, &anchored.chain([Pre(end, 9)]).collect::<Vec<_>>());
        assert_eq!(matches[0], (0, 1));
        (counts, matches[1..].to_vec())
    }

    #[test]
    fn packets_alike_are_matched_while_they_come_and_go_by_turns() {
        let turns = [Pre(100, 1), Post(105, 1), Pre(106, 1), Post(109, 1)];
        let (counts, matches) = run_anchored(&turns);
        assert_eq!((counts.ambiguous, matches), (0, vec![(1, 5), (2, 3)]));
        let soon = [Pre(90, 1), Post(95, 1), Pre(96, 1), Post(99, 1), Pre(100, 9)];
        let (counts, matches) = run(None, &soon);
        assert_eq!((counts.ambiguous, counts.post_ambiguous), (2, 2), "others may be before them");
        assert_eq!(matches, []);
        let together = [Pre(100, 1), Pre(102, 1), Post(105, 1), Post(106, 1)];
        let (counts, matches) = run_anchored(&together);
        assert_eq!((counts.ambiguous, counts.post_ambiguous), (2, 2), "as many in as out");
        assert_eq!(matches, []);
    }

    #[test]
    fn a_loss_and_a_copy_make_packets_alike_ambiguous_that_are_in_their_window() {
        let (counts, matches) = run_anchored(&[Pre(100, 1), Pre(102, 1), Post(105, 1)]);
        assert_eq!(matches, []);
        assert_eq!((counts.ambiguous, counts.post_ambiguous), (2, 1));
        let (counts, matches) = run_anchored(&[Pre(100, 1), Post(101, 1), Pre(102, 1)]);
        assert_eq!(matches, [(1, 1)], "what may be a copy in the capture is no loss");
        assert_eq!((counts.ambiguous, counts.lost), (1, 1));
        let (counts, _) = run_anchored(&[Pre(100, 1), Pre(102, 1)]);
        assert_eq!((counts.ambiguous, counts.lost), (0, 3), "none of them came out");
        let copied = [
            [Pre(100, 1), Post(101, 1), Pre(150, 1), Post(151, 1)],
            [Pre(210, 1), Post(211, 1), Post(212, 1), Pre(290, 1)],
        ];
        let (counts, matches) = run_anchored_until(&copied.concat(), 300);
        assert_eq!(matches, [(1, 1)]);
        assert_eq!((counts.ambiguous, counts.post_ambiguous), (3, 3));
    }

    #[test]
    fn the_window_is_closed_before_and_open_behind() {
        let (counts, matches) = run(None, &[Pre(0, 1), Pre(0, 2), Post(0, 1), Post(99, 2)]);
        assert_eq!(matches, [(0, 0), (1, 99)]);
        assert_eq!(counts.negative, 0);
        let (counts, _) = run(None, &[Pre(0, 1), Post(100, 1), Post(199, 1), Post(200, 1)]);
        assert_eq!((counts.late, counts.lost), (1, 0));
        assert_eq!((counts.post_late, counts.post_unknown), (2, 1));
    }

    #[test]
    fn a_packet_that_was_seen_before_it_was_sent_is_negative_and_not_lost() {
        let (counts, matches) = run(None, &[Post(0, 1), Post(3, 1), Pre(99, 1), Post(101, 1)]);
        assert_eq!(matches, [(0, 2)]);
        assert_eq!((counts.post_negative, counts.negative, counts.post_unknown), (2, 0, 0));
        let (counts, _) = run(None, &[Post(0, 1), Pre(99, 1)]);
        assert_eq!((counts.post_negative, counts.negative, counts.lost), (1, 1, 0));
        let (counts, _) = run(None, &[Post(0, 1), Pre(100, 1)]);
        assert_eq!((counts.negative, counts.post_unknown, counts.lost), (0, 1, 1));
    }

    #[test]
    fn a_negative_post_is_not_late_as_well() {
        let (counts, _) = run(None, &[Pre(0, 1), Post(150, 1), Pre(160, 1)]);
        assert_eq!((counts.negative, counts.late, counts.lost), (1, 0, 1));
    }

    #[test]
    fn trimming_goes_by_the_post_of_a_match_and_by_the_packet_otherwise() {
        let seen =
            [Pre(1, 1), Pre(9, 2), Pre(10, 3), Post(10, 1), Pre(11, 4), Post(11, 2), Post(12, 9)];
        let (counts, matches) = run(Some(10), &seen);
        assert_eq!(matches, [(1, 2)]);
        assert_eq!((counts.pre_trimmed, counts.sent, counts.lost), (2, 2, 1));
        assert_eq!((counts.post_trimmed, counts.post_unknown), (1, 1));
    }

    #[test]
    fn what_comes_behind_the_window_while_a_clock_is_in_doubt_has_no_time() {
        let counts = |doubts: [Vec<(u64, u64)>; 2], post_ns| {
            let mut matcher = matcher(rules(None, 1000));
            matcher.doubt(Doubts::new(doubts));
            let key = |name| Some(Key { hi: name, lo: 0 });
            matcher.pre(10, key(1), Kind::Forward).unwrap();
            matcher.post(post_ns, key(1), Kind::Forward).unwrap();
            while matcher.finish() {}
            matcher.counts().assert_conserved(1, 1);
            let Counts { untimed, post_untimed, late, post_late, lost, outside, .. } =
                matcher.counts();
            ([untimed, post_untimed], [late, post_late], [lost, outside])
        };
        let sure = counts([vec![], vec![(1000, 1001)]], 130);
        assert_eq!(sure, ([0, 0], [1, 1], [0, 0]));
        let behind = counts([vec![], vec![(130, 140)]], 130);
        assert_eq!(behind, ([1, 1], [0, 0], [0, 0]), "the time behind the device");
        let before = counts([vec![(5, 10)], vec![]], 130);
        assert_eq!(before, ([1, 1], [0, 0], [0, 0]), "the time before it");
        let far = counts([vec![], vec![(5, 400)]], 380);
        assert_eq!(far, ([0, 0], [0, 0], [0, 1]), "too far to be known, and not lost for certain");
    }

    #[test]
    fn gaps_are_known_in_whatever_order_they_come() {
        for gaps in [[(50, 60), (5, 15)], [(5, 15), (50, 60)], [(12, 14), (5, 60)]] {
            let mut matcher = matcher(rules(None, 1000));
            matcher.add_gaps(1, gaps.to_vec(), 0);
            for ts in [10, 30, 55, 70] {
                matcher.pre(ts, Some(Key { hi: ts, lo: 0 }), Kind::Forward).unwrap();
            }
            while matcher.finish() {}
            let outside = if gaps[1] == (5, 60) { 3 } else { 2 };
            let Counts { outside: found, lost, .. } = matcher.counts();
            assert_eq!((found, lost), (outside, 4 - outside), "{gaps:?}");
        }
    }

    #[test]
    fn a_full_table_is_an_error() {
        let mut matcher = matcher(rules(None, 3));
        let fill = (0..4).map(|i| matcher.pre(i, Some(Key { hi: i, lo: i }), Kind::Forward));
        let result: Result<Vec<()>, Error> = fill.collect();
        let Err(Error::InFlight { file, packet, limit: 3, at_ns: 3, .. }) = result else {
            panic!("{result:?}")
        };
        assert_eq!((file.as_str(), packet), ("pre", 4));
    }
}
