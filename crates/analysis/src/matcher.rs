//! Matching of packets before and after a device, in one pass over both streams merged by time.
//!
//! A match becomes final only when its pre packet leaves the window: until then a second pre packet
//! of the same key would make it ambiguous. So three queues hold what is undecided, each for at most
//! one window: `pre` (packets sent), `unmatched` (unique packets that left the window without a
//! match: a late post may still come) and `orphans` (posts that came without a pre packet: their
//! pre packet may still come, if the clocks disagree).

use std::collections::HashMap;
use std::ops::RangeInclusive;

use probe::key::Key;
use units::Nanos;

use crate::error::Error;
use crate::flight::{Entry, Flight, MOST};

/// What became of every packet (`docs/statistics.md`).
///
/// `pre packets = pre_trimmed + pre_unkeyed + ambiguous + sent`, `sent = matched + lost + late + corrupt`,
/// `post packets = post_trimmed + post_unkeyed + matched + duplicated + negative + post_ambiguous +
/// post_late + post_unknown`. [`Counts::assert_conserved`] holds them to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets of pre outside of the trimmed interval.
    pub pre_trimmed: u64,
    /// Packets of pre that have no key, such as one without the probe payload.
    pub pre_unkeyed: u64,
    /// Packets of pre whose key another one carries within the window: not matched.
    pub ambiguous: u64,
    /// Packets of pre whose key is unique within the window.
    pub sent: u64,
    /// Sent packets with a match.
    pub matched: u64,
    /// Sent packets with neither a match nor a late arrival.
    pub lost: u64,
    /// Sent packets that arrived after the window, before a second one had passed.
    pub late: u64,
    /// Sent packets that only came back changed. A recording knows them; in captures they are lost.
    pub corrupt: u64,
    /// Packets of post outside of the trimmed interval.
    pub post_trimmed: u64,
    /// Packets of post that have no key.
    pub post_unkeyed: u64,
    /// Further posts of a matched packet.
    pub duplicated: u64,
    /// Posts at or before their pre packet: the clocks disagree.
    pub negative: u64,
    /// Posts of an ambiguous key.
    pub post_ambiguous: u64,
    /// Posts after the window of their pre packet.
    pub post_late: u64,
    /// Posts whose key no pre packet carries.
    pub post_unknown: u64,
}

impl Counts {
    /// # Panics
    /// When packets were lost count of.
    pub fn assert_conserved(&self, pre_packets: u64, post_packets: u64) {
        let [sent, pre, post] = self.sums();
        assert_eq!(u128::from(self.sent), sent, "sent: {self:?}");
        assert_eq!(u128::from(pre_packets), pre, "pre: {self:?}");
        assert_eq!(u128::from(post_packets), post, "post: {self:?}");
    }

    pub(crate) fn are_conserved(&self, pre_packets: u64, post_packets: u64) -> bool {
        self.sums() == [self.sent, pre_packets, post_packets].map(u128::from)
    }

    /// Sent packets, packets of pre and of post, as what became of them adds up to.
    fn sums(&self) -> [u128; 3] {
        let sum = |counts: &[u64]| counts.iter().copied().map(u128::from).sum();
        let arrived = [self.matched, self.duplicated, self.negative, self.post_ambiguous];
        let strayed = [self.post_late, self.post_unknown, self.post_trimmed, self.post_unkeyed];
        [
            sum(&[self.matched, self.lost, self.late, self.corrupt]),
            sum(&[self.pre_trimmed, self.pre_unkeyed, self.ambiguous, self.sent]),
            sum(&[arrived, strayed].concat()),
        ]
    }

    /// Adds the counts of another stretch of the same pair. What one counts as lost another may take
    /// back: see [`Matcher`].
    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, count) in self.all().into_iter().zip(other.all()) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// Every count, in a fixed order.
    pub(crate) fn all(&mut self) -> [&mut u64; 15] {
        [
            &mut self.pre_trimmed,
            &mut self.pre_unkeyed,
            &mut self.ambiguous,
            &mut self.sent,
            &mut self.matched,
            &mut self.lost,
            &mut self.late,
            &mut self.corrupt,
            &mut self.post_trimmed,
            &mut self.post_unkeyed,
            &mut self.duplicated,
            &mut self.negative,
            &mut self.post_ambiguous,
            &mut self.post_late,
            &mut self.post_unknown,
        ]
    }
}

/// A packet that was seen on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Place of the packet in pre, in order of time; 0 is the first.
    pub seq: u64,
    /// Place of the packet in post, in order of time.
    pub post_seq: u64,
    /// When it was seen before the device, in ns.
    pub pre_ns: u64,
    /// How much later it was seen behind it, in ns; never 0.
    pub latency_ns: u64,
    pub(crate) tag: u64,
}

/// A pre packet within its window. Twelve bytes, so that an [`Entry`] has 32.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    latency: [u32; 2],
    post: u32,
}

const _: () = assert!(size_of::<Entry<Sent>>() == 32);

impl Sent {
    const UNKEYED: u32 = 1 << 31;
    const AMBIGUOUS: u32 = 1 << 30;
    const EXTRA: u32 = 1 << 29;
    const FLAGS: u32 = Self::UNKEYED | Self::AMBIGUOUS | Self::EXTRA;

    /// The latency of the match, 0 without one.
    fn latency(self) -> u64 {
        u64::from(self.latency[1] & !Self::FLAGS) << 32 | u64::from(self.latency[0])
    }

    fn set_match(&mut self, latency: u64, post: u64) {
        debug_assert!(self.latency() == 0, "a packet has one match");
        debug_assert!((1..=MAX_WINDOW.0).contains(&latency), "the flags are left alone");
        self.latency[0] = latency as u32;
        self.latency[1] |= (latency >> 32) as u32;
        self.post = post as u32;
    }

    fn set(&mut self, flag: u32) {
        self.latency[1] |= flag;
    }

    fn is(self, flag: u32) -> bool {
        self.latency[1] & flag != 0
    }
}

/// The longest window: what fits beside the flags.
pub const MAX_WINDOW: Nanos = Nanos((1 << 61) - 1);

/// A unique pre packet that left its window without a match.
#[derive(Clone, Copy, Debug, Default)]
struct Unmatched {
    late: bool,
}

/// A post packet whose pre packet has not been seen.
#[derive(Clone, Copy, Debug, Default)]
struct Orphan {
    /// The next older orphan of this key, counted back from this one; 0 is none.
    back: u32,
    kept: bool,
    claimed: bool,
    lateness: Lateness,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lateness {
    #[default]
    Unknown,
    /// The first late post of a pre packet that counts as lost so far.
    First,
    /// The same for a pre packet outside of the trimmed interval, or a further late post.
    Further,
}

/// Posts of a pre packet that are no match, counted only within the trimmed interval.
#[derive(Clone, Copy, Debug, Default)]
struct Extra {
    duplicated: u64,
    negative: u64,
}

/// Packets decided at once in the end.
const PART: usize = 1 << 16;

/// Packets whose places in the index are loaded together.
pub(crate) const AT_ONCE: usize = 16;

/// A stretch of a pair: what is counted here, and what of the captures lies before what is read.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// The times that are counted here, in ns.
    pub own: RangeInclusive<u64>,
    /// Packets of pre before the first that is read.
    pub before_pre: u64,
    /// Packets of post before the first that is read.
    pub before_post: u64,
}

impl Stretch {
    /// All of a pair.
    pub const WHOLE: Self = Self { own: 0..=u64::MAX, before_pre: 0, before_post: 0 };
}

/// Decides what became of every packet, and counts it if it lies within the stretch.
///
/// A packet of pre is counted by its time, and with it all posts that belong to it; a post that
/// belongs to none by its own. One that turns out to be the first late one takes back that its packet
/// was lost, which another stretch may have counted: there `lost` is less than nothing, and wraps.
/// So every packet is counted in one stretch, and what is decided of it rests on what lies around
/// (`slice.rs` says how far).
pub(crate) struct Matcher {
    window: u64,
    own_from: u64,
    own_span: u64,
    before_pre: u64,
    cut: Option<u64>,
    max_in_flight: usize,
    pre: Flight<Sent>,
    unmatched: Flight<Unmatched>,
    orphans: Flight<Orphan>,
    extras: HashMap<u64, Extra>,
    next_settling: u64,
    post_packets: u64,
    counts: Counts,
    matches: Vec<Match>,
}

impl Matcher {
    /// `cut`: what lies at or before this time is trimmed; `None` keeps everything.
    pub fn new(window: Nanos, cut: Option<Nanos>, max_in_flight: usize, stretch: &Stretch) -> Self {
        let (first, last) = (*stretch.own.start(), *stretch.own.end());
        assert!((Nanos(1)..=MAX_WINDOW).contains(&window), "the window was checked");
        assert!(first <= last, "a stretch has a time");
        Self {
            window: window.0,
            own_from: first,
            own_span: last - first,
            before_pre: stretch.before_pre,
            cut: cut.map(|cut| cut.0),
            max_in_flight: max_in_flight.min(MOST),
            pre: Flight::new(),
            unmatched: Flight::new(),
            orphans: Flight::new(),
            extras: HashMap::new(),
            next_settling: 0,
            post_packets: stretch.before_post,
            counts: Counts::default(),
            matches: Vec::new(),
        }
    }

    /// The next packet of pre. Times must not go back, and at one time pre comes before post.
    #[inline]
    pub fn pre(&mut self, ts: u64, key: Option<Key>) -> Result<(), Error> {
        debug_assert!(self.pre.newest_ts().is_none_or(|newest| newest <= ts), "time goes on");
        debug_assert!(self.orphans.newest_ts().is_none_or(|newest| newest < ts), "pre comes first");
        self.advance(ts);
        self.check_room(ts)?;
        let Some(key) = key else {
            let mut entry = Entry { ts, ..Entry::default() };
            Sent::set(&mut entry.state, Sent::UNKEYED);
            self.pre.push(entry);
            return Ok(());
        };
        let (place, former) = self.pre.insert(Entry::new(key, ts, Sent::default()));
        if let Some(former) = former.filter(|former| ts - self.pre.get(*former).ts < self.window) {
            self.pre.get_mut(former).state.set(Sent::AMBIGUOUS);
            self.pre.get_mut(place).state.set(Sent::AMBIGUOUS);
        }
        if self.orphans.len() > 0 {
            self.settle(ts);
            self.claim_orphans(key, place);
        }
        Ok(())
    }

    /// The next packet of post.
    #[inline]
    pub fn post(&mut self, ts: u64, key: Option<Key>) -> Result<(), Error> {
        debug_assert!(self.pre.newest_ts().is_none_or(|newest| newest <= ts), "time goes on");
        debug_assert!(self.orphans.newest_ts().is_none_or(|newest| newest <= ts), "time goes on");
        self.advance(ts);
        let index = self.post_packets;
        self.post_packets += 1;
        let kept = self.keeps(ts);
        let owned = self.owns(ts);
        self.counts.post_trimmed += u64::from(owned && !kept);
        let Some(key) = key else {
            self.counts.post_unkeyed += u64::from(owned && kept);
            return Ok(());
        };
        let Some(place) = self.within_window(key, ts) else {
            self.settle(ts);
            self.check_room(ts)?;
            self.orphan(ts, key, kept);
            return Ok(());
        };
        let entry = self.pre.get_mut(place);
        let latency = ts - entry.ts;
        if latency > 0 && entry.state.latency() == 0 {
            entry.state.set_match(latency, index);
        } else {
            entry.state.set(Sent::EXTRA);
            let extra = self.extras.entry(place).or_default();
            extra.duplicated += u64::from(kept && latency > 0);
            extra.negative += u64::from(kept && latency == 0);
        }
        Ok(())
    }

    /// Loads what the next packets will look at; `slots` are the lower 32 bits of their keys.
    #[inline]
    pub fn warm_up(&self, slots: impl Iterator<Item = u32>) {
        self.pre.warm_up(slots);
    }

    /// Everything was seen: decides what is still open, a part at a time; `false` when nothing is.
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

    /// The matches that became final since the last call, those of other stretches too, in order of
    /// pre.
    pub fn take_matches(&mut self, into: &mut Vec<Match>) {
        into.clear();
        std::mem::swap(into, &mut self.matches);
        debug_assert!(into.is_sorted_by_key(|found| found.seq), "matches are in order of pre");
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn keeps(&self, ts: u64) -> bool {
        self.cut.is_none_or(|cut| ts > cut)
    }

    #[inline]
    fn owns(&self, ts: u64) -> bool {
        ts.wrapping_sub(self.own_from) <= self.own_span
    }

    /// The newest pre packet of `key`, if its window is open.
    #[inline]
    fn within_window(&self, key: Key, now: u64) -> Option<u64> {
        self.pre.newest(key).filter(|place| now - self.pre.get(*place).ts < self.window)
    }

    /// Decides, now and then, what left its window. What is left lying a little longer is passed
    /// over where it is found, and wherever that would not do, [`settle`](Self::settle) comes first.
    #[inline]
    fn advance(&mut self, now: u64) {
        if now >= self.next_settling {
            self.settle(now);
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

    #[inline]
    fn settle_pre(&mut self) {
        let (place, entry) = self.pre.pop();
        let owned = self.owns(entry.ts);
        let (state, latency) = (entry.state, entry.state.latency());
        let matched = latency > 0 && !state.is(Sent::AMBIGUOUS);
        debug_assert!(latency < self.window, "a match lies within the window");
        debug_assert!(latency == 0 || !state.is(Sent::UNKEYED), "what has no key has no match");
        if state.is(Sent::EXTRA) || (latency > 0 && !matched) {
            self.settle_posts(place, entry, owned);
        }
        let kept = self.keeps(if matched { entry.ts + latency } else { entry.ts });
        let post_seq = self.widen(state.post);
        let counts = &mut self.counts;
        match () {
            () if !owned => {}
            () if !kept => counts.pre_trimmed += 1,
            () if state.is(Sent::UNKEYED) => counts.pre_unkeyed += 1,
            () if state.is(Sent::AMBIGUOUS) => counts.ambiguous += 1,
            () => counts.sent += 1,
        }
        if matched && kept {
            counts.matched += u64::from(owned);
            let seq = self.before_pre + place;
            let (pre_ns, latency_ns, tag) = (entry.ts, latency, entry.tag);
            self.matches.push(Match { seq, post_seq, pre_ns, latency_ns, tag });
        } else if !matched && !state.is(Sent::UNKEYED | Sent::AMBIGUOUS) {
            counts.lost = counts.lost.wrapping_add(u64::from(owned && kept));
            let key = Key { hi: entry.tag, lo: u64::from(entry.slot) };
            self.unmatched.insert(Entry::new(key, entry.ts, Unmatched { late: !kept }));
        }
    }

    /// The posts of a pre packet beside its match; all its posts where it is ambiguous.
    #[cold]
    fn settle_posts(&mut self, place: u64, entry: Entry<Sent>, owned: bool) {
        let extra = self.extras.remove(&place);
        assert_eq!(extra.is_some(), entry.state.is(Sent::EXTRA), "the flag tells of further posts");
        let extra = extra.unwrap_or_default();
        if !owned {
            return;
        }
        let latency = entry.state.latency();
        if entry.state.is(Sent::AMBIGUOUS) {
            let first = latency > 0 && self.keeps(entry.ts + latency);
            self.counts.post_ambiguous += extra.duplicated + extra.negative + u64::from(first);
        } else {
            self.counts.duplicated += extra.duplicated;
            self.counts.negative += extra.negative;
        }
    }

    #[cold]
    fn orphan(&mut self, ts: u64, key: Key, kept: bool) {
        let lateness = match self.unmatched.newest(key) {
            Some(place) => {
                let state = &mut self.unmatched.get_mut(place).state;
                let first = !std::mem::replace(&mut state.late, true);
                if first { Lateness::First } else { Lateness::Further }
            }
            None => Lateness::Unknown,
        };
        let orphan = Orphan { back: 0, kept, claimed: false, lateness };
        let (place, former) = self.orphans.insert(Entry::new(key, ts, orphan));
        if let Some(former) = former {
            assert!((1..MOST as u64).contains(&(place - former)), "the older orphan is in reach");
            self.orphans.get_mut(place).state.back = (place - former) as u32;
        }
    }

    /// Gives the orphans of `key` to the pre packet that came after them.
    #[cold]
    fn claim_orphans(&mut self, key: Key, pre_place: u64) {
        let oldest = self.orphans.oldest();
        let mut next = self.orphans.newest(key);
        while let Some(place) = next.filter(|place| *place >= oldest) {
            let state = &mut self.orphans.get_mut(place).state;
            if std::mem::replace(&mut state.claimed, true) {
                break;
            }
            next = (state.back > 0).then(|| place.wrapping_sub(u64::from(state.back)));
            self.pre.get_mut(pre_place).state.set(Sent::EXTRA);
            self.extras.entry(pre_place).or_default().negative += u64::from(state.kept);
        }
    }

    fn settle_orphan(&mut self) {
        let (_, Entry { ts, state: Orphan { kept, claimed, lateness, .. }, .. }) =
            self.orphans.pop();
        if claimed || !self.owns(ts) {
            return;
        }
        let counts = &mut self.counts;
        if lateness == Lateness::First {
            counts.lost = counts.lost.wrapping_sub(1);
            counts.late += 1;
        }
        match lateness {
            Lateness::Unknown => counts.post_unknown += u64::from(kept),
            Lateness::First | Lateness::Further => counts.post_late += u64::from(kept),
        }
    }

    /// The full place in post of the lower 32 bits of one that was seen within the window.
    fn widen(&self, post: u32) -> u64 {
        self.post_packets - u64::from((self.post_packets as u32).wrapping_sub(post))
    }

    #[inline]
    fn check_room(&self, now: u64) -> Result<(), Error> {
        let waiting = self.pre.len() + self.unmatched.len() + self.orphans.len();
        if waiting < self.max_in_flight {
            return Ok(());
        }
        Err(Error::InFlight {
            limit: self.max_in_flight,
            at_ns: now,
            window: Nanos(self.window),
            unmatched: self.unmatched.len(),
            orphans: self.orphans.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Nanos = Nanos(100);

    enum Seen {
        Pre(u64, u64),
        Post(u64, u64),
    }
    use Seen::{Post, Pre};

    fn run(cut: Option<u64>, seen: &[Seen]) -> (Counts, Vec<(u64, u64)>) {
        let mut matcher = Matcher::new(WINDOW, cut.map(Nanos), 1000, &Stretch::WHOLE);
        let key = |name| Some(Key { hi: name, lo: name % 2 });
        for packet in seen {
            match *packet {
                Pre(ts, name) => matcher.pre(ts, key(name)).unwrap(),
                Post(ts, name) => matcher.post(ts, key(name)).unwrap(),
            }
        }
        while matcher.finish() {}
        let pre = seen.iter().filter(|packet| matches!(packet, Pre(..))).count() as u64;
        matcher.counts().assert_conserved(pre, seen.len() as u64 - pre);
        let mut matches = Vec::new();
        matcher.take_matches(&mut matches);
        (matcher.counts(), matches.iter().map(|m| (m.seq, m.latency_ns)).collect())
    }

    #[test]
    fn the_first_post_counts() {
        let (counts, matches) = run(None, &[Pre(10, 1), Pre(11, 3), Post(12, 1), Post(13, 1)]);
        assert_eq!(matches, [(0, 2)]);
        assert_eq!((counts.duplicated, counts.lost), (1, 1));
    }

    #[test]
    fn a_key_seen_again_revokes_the_match() {
        let (counts, matches) = run(None, &[Pre(0, 1), Post(5, 1), Post(6, 1), Pre(99, 1)]);
        assert_eq!(matches, []);
        assert_eq!((counts.ambiguous, counts.post_ambiguous), (2, 2));
        let (counts, matches) = run(None, &[Pre(0, 1), Post(5, 1), Pre(100, 1), Post(103, 1)]);
        assert_eq!(matches, [(0, 5), (1, 3)], "a window later the key is free again");
        assert_eq!(counts.ambiguous, 0);
    }

    #[test]
    fn the_window_is_open_on_both_sides() {
        let (counts, matches) = run(None, &[Pre(0, 1), Pre(0, 2), Post(0, 1), Post(99, 2)]);
        assert_eq!(matches, [(1, 99)]);
        assert_eq!((counts.negative, counts.lost), (1, 1));
        let (counts, _) = run(None, &[Pre(0, 1), Post(100, 1), Post(199, 1), Post(200, 1)]);
        assert_eq!((counts.late, counts.lost), (1, 0));
        assert_eq!((counts.post_late, counts.post_unknown), (2, 1));
    }

    #[test]
    fn a_post_before_its_pre_is_negative_not_lost_from_sight() {
        let (counts, matches) = run(None, &[Post(0, 1), Post(3, 1), Pre(99, 1), Post(101, 1)]);
        assert_eq!(matches, [(0, 2)]);
        assert_eq!((counts.negative, counts.post_unknown), (2, 0));
        let (counts, _) = run(None, &[Post(0, 1), Pre(100, 1)]);
        assert_eq!((counts.negative, counts.post_unknown, counts.lost), (0, 1, 1));
    }

    #[test]
    fn a_negative_post_is_not_late_as_well() {
        let (counts, _) = run(None, &[Pre(0, 1), Post(150, 1), Pre(160, 1)]);
        assert_eq!((counts.negative, counts.late, counts.lost), (1, 0, 2));
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
    fn a_full_table_is_an_error() {
        let mut matcher = Matcher::new(WINDOW, None, 3, &Stretch::WHOLE);
        let fill = (0..4).map(|i| matcher.pre(i, Some(Key { hi: i, lo: i })));
        let result: Result<Vec<()>, Error> = fill.collect();
        assert!(matches!(result, Err(Error::InFlight { limit: 3, at_ns: 3, .. })));
    }
}
