//! A look at the beginning of both captures: by which key packets are known again, which way they
//! travel, on which grid their times lie, and whether the two clocks agree.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use capture::{Reader, Trailer};
use probe::headers::addresses;
use probe::key::{Key, Keyed, Keyer, MatchOn, Tap};
use units::Nanos;

use crate::basis::{Basis, Clocks, Flow, Tried, grid_of, nearest_whole, whole};
use crate::config::Config;
use crate::error::Error;
use crate::floor::{Floor, Hull};
use crate::ingest::Ahead;
use crate::runs::{Alike, Unproven};

/// The bit of a number that tells the side of a packet; those below tell its place in the sample.
const SIDE_BIT: usize = 31;

/// Packets of each capture that are looked at: the fewest that tell enough are.
pub(crate) const LOOKS: [usize; 2] = [4096, 65_536];
/// Number of looks at a pipe: only the first is taken, for who fills it may wait for the other side
/// to be read.
const LOOKS_OF_PIPES: usize = 1;
/// Bytes of packets that are kept meanwhile, of each capture.
pub(crate) const MOST_BYTES: usize = 8 << 20;
/// Matches that tell enough.
pub(crate) const ENOUGH: u64 = 100;
/// A less specific key is taken if it matches more, by one packet in so many at least: what it finds
/// is not lost.
const WORTH: u64 = 500;
/// If fewer than one packet in so many is told apart by a key, another may do better.
const ALIKE: u64 = 10;
/// Share of packets that may have a wrong time.
const STRAY: f64 = 0.01;
/// Routers between two captures, at most.
const MOST_HOPS: i32 = 8;
/// Flows of packets that travel the other way that are remembered.
const MOST_FLOWS: usize = 4096;
/// One packet in so many may match although both captures are of different traffic.
const CHANCE: u64 = 1_000;
/// One packet in so many that a capture has again may be a copy for other reasons than that the
/// capture is of all devices of a host.
const TWICE: usize = 10;
/// Share of packets keyed by what they carry that must differ.
const DISTINCT: f64 = 0.4;
/// Copies of a mirror port follow each other within this time, in ns.
const COPIES_NS: u64 = 1_000_000;
/// They are at most so many.
const MOST_COPIES: usize = 8;
/// Number of packets with copies that a partly mirrored capture needs, and the time of a copy, in
/// ns.
const COPIED: usize = 20;
const PARTIAL_COPIES_NS: u64 = 100_000;
/// Packets that one capture alone has, by which the order of the two is told, and how many times fewer the other one
/// alone has at most.
const ALONE: u64 = 20;
const HARDLY: u64 = 20;

/// Packets come in bursts if the mean gap is so many times as long as the median one.
const BURST: u64 = 4;

/// So many of the longest gaps may be pauses of the traffic.
const PAUSES: usize = 8;

/// The results of a survey, and the packets that were read for it.
pub(crate) struct Survey {
    pub match_on: MatchOn,
    pub basis: Basis,
    pub relation: Option<Relation>,
    /// Hull above the times, negative, by which packets of the other way prove the clock behind the
    /// device to be ahead.
    pub backward: Hull,
    pub ahead: [Vec<Ahead>; 2],
    /// The reason why both captures are not taken for one traffic.
    pub unproven: Option<Unproven>,
}

/// The relation of the times behind the device to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Times that one clock can give.
    Same,
    /// Every packet was seen behind the device first. How the time from one to the other is spread
    /// tells whether the captures were swapped (`Some(true)`) or the clocks are apart.
    Before { least_ns: i64, swapped: Option<bool> },
    /// Times that step: from one time on, the packets of the sample lie further on, or back, than
    /// all before.
    Stepped { at: Nanos, by_ns: i64 },
    /// Times that one clock cannot give.
    Apart { offset_ns: i64 },
}

/// Returns in words how far packets lie from one capture to the other.
fn lie_apart(offset_ns: i64) -> String {
    let offset = whole(nearest_whole(offset_ns)).unwrap_or_else(|| format!("{offset_ns} ns"));
    format!("packets lie {offset} from one to the other")
}

/// The directions in which packets travel.
#[derive(Default)]
struct Ways {
    two_way: bool,
    /// True if packets of both directions bound the offset of the clocks.
    bounded: bool,
    back: BTreeSet<Flow>,
    forth: BTreeSet<Flow>,
    back_behind: BTreeSet<Flow>,
    backward: Hull,
    relation: Option<Relation>,
}

/// Reads the beginning of both captures and decides what `config` leaves open.
pub(crate) fn survey(
    pre: &mut Reader,
    post: &mut Reader,
    config: &Config,
) -> Result<Survey, Error> {
    let pipes = pre.total_bytes().is_none() || post.total_bytes().is_none();
    let looks = if pipes { &LOOKS[..LOOKS_OF_PIPES] } else { &LOOKS };
    let mut ahead = [Vec::new(), Vec::new()];
    let (candidates, may_limit) = (candidates(config), config.match_on == MatchOn::Auto);
    let mut found = None;
    for &most in looks {
        let before = [ahead[0].len(), ahead[1].len()];
        Ahead::read_on(pre, &mut ahead[0], most, MOST_BYTES)?;
        Ahead::read_on(post, &mut ahead[1], most, MOST_BYTES)?;
        if ahead[0].is_empty() {
            return Err(Error::NoPackets { file: pre.info().name, side: "before" });
        }
        // Where all that came was captured, nothing came: all is lost.
        if ahead[1].is_empty() && !config.whole {
            return Err(Error::NoPackets { file: post.info().name, side: "behind" });
        }
        if found.is_some() && before == [ahead[0].len(), ahead[1].len()] {
            break;
        }
        let joined = join_by_best(&candidates, may_limit, &ahead);
        let enough = joined.tried.iter().any(|tried| tried.matched >= ENOUGH);
        found = Some(joined);
        if enough {
            break;
        }
    }
    for (side, reader) in [&*pre, &*post].into_iter().enumerate() {
        check_devices(reader, &ahead[side])?;
    }
    let found = found.expect("a look was taken");
    if are_one(&ahead) {
        return Err(Error::SameCapture { pre: pre.info().name, post: post.info().name });
    }
    Ok(conclude(found, ahead, config))
}

/// Surveys packets that have come so far.
pub(crate) fn survey_packets(ahead: [Vec<Ahead>; 2], config: &Config) -> Survey {
    let joined = join_by_best(&candidates(config), config.match_on == MatchOn::Auto, &ahead);
    conclude(joined, ahead, config)
}

/// Refuses a capture of all devices of a host that has packets twice, as they came and as they left:
/// each would be matched with itself.
fn check_devices(reader: &Reader, ahead: &[Ahead]) -> Result<(), Error> {
    let devices = reader.devices();
    if devices.len() < 2 {
        return Ok(());
    }
    let keyer = Keyer::new(&MatchOn::Payload, Tap::Pre, None);
    let keys = ahead.iter().filter_map(|packet| match keyer.key(&packet.data, packet.orig_len()) {
        Keyed::Key(key) => Some(key),
        Keyed::None | Keyed::Short { .. } => None,
    });
    let mut keys: Vec<Key> = keys.collect();
    let packets = keys.len();
    keys.sort_unstable();
    keys.dedup();
    if packets - keys.len() <= packets / TWICE {
        return Ok(());
    }
    Err(Error::SeveralDevices { file: reader.info().name, devices })
}

/// Returns the keys that may be taken.
fn candidates(config: &Config) -> Vec<MatchOn> {
    match (&config.match_on, &config.joined_by) {
        (MatchOn::Auto, None) => MatchOn::CANDIDATES.to_vec(),
        (MatchOn::Auto, Some(least)) => {
            MatchOn::CANDIDATES.into_iter().skip_while(|key| key != least).collect()
        }
        (decided, _) => vec![decided.clone()],
    }
}

/// Returns true if one side alone has so many packets that this tells the order, and the other hardly any.
pub(crate) fn is_more_alone(many: u64, few: u64) -> bool {
    many >= ALONE && few.saturating_mul(HARDLY) <= many
}

/// Returns true if latencies reach further above their median than below it.
pub(crate) fn has_tail(below_ns: u64, above_ns: u64) -> bool {
    above_ns > below_ns + below_ns / 4
}

/// Returns true if most packets come close behind the one before, in far less than the mean time between packets,
/// a few pauses left out.
fn comes_in_bursts(ahead: &[Ahead]) -> bool {
    let mut times_ns: Vec<u64> = ahead.iter().map(|packet| packet.ts().0).collect();
    times_ns.sort_unstable();
    let mut gaps_ns: Vec<u64> = times_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps_ns.sort_unstable();
    gaps_ns.truncate(gaps_ns.len().saturating_sub(PAUSES));
    let mean_ns = gaps_ns.iter().sum::<u64>() / (gaps_ns.len() as u64).max(1);
    gaps_ns
        .get(gaps_ns.len() / 2)
        .is_some_and(|median_ns| median_ns.saturating_mul(BURST) < mean_ns)
}

/// Returns what follows from two samples that were joined.
fn conclude(mut found: Joined, ahead: [Vec<Ahead>; 2], config: &Config) -> Survey {
    let times: Vec<u64> = ahead.iter().flatten().map(|packet| packet.ts().0).collect();
    let apart = found.best.as_ref().map_or_else(Vec::new, |best| best.apart(&ahead));
    let routed = found.best.as_ref().is_some_and(|best| best.is_routed(&ahead));
    let gains = found.best.as_ref().is_some_and(|best| best.gains(&ahead));
    if let Some(best) = &mut found.best {
        let ts = |side: usize, place: usize| ahead[side][place].ts().0;
        best.pairs.retain(|(pre, post)| !config.doubts.concern(ts(0, *pre), ts(1, *post)));
    }
    let ways = found.best.as_ref().map_or(Ways::default(), |best| best.ways(&ahead));
    let basis = Basis {
        limit_bytes: found.best.as_ref().and_then(|best| best.limit_bytes),
        copies_ns: found.best.as_ref().map_or(0, |best| best.copies_ns(&ahead)),
        two_way: ways.two_way,
        routed,
        gains,
        back: ways.back,
        forth: ways.forth,
        back_behind: ways.back_behind,
        trailers: [0, 1].map(|side: usize| {
            let found = Trailer::of(ahead[side].iter().map(Ahead::packet));
            found.filter(|trailer| !trailer.is_guess())
        }),
        grid: grid_of(&times, &apart),
        tried: found.tried,
    };
    let fallback = match (&config.match_on, &config.joined_by) {
        (MatchOn::Auto, least) => least.clone().unwrap_or(MatchOn::Frame),
        (decided, _) => decided.clone(),
    };
    let unproven = found.best.as_ref().and_then(|best| {
        Unproven::of(&best.alike(&ahead), ways.relation?.offset_ns(), ways.bounded)
    });
    let match_on = found.best.map_or(fallback, |best| best.match_on);
    let (relation, backward) = (ways.relation, ways.backward);
    Survey { match_on, basis, relation, backward, ahead, unproven }
}

/// Surveys files, which `open` opens again: if their beginnings have nothing in common, the sample
/// is taken where the second of them begins.
fn survey_files(
    [pre, post]: [&mut Reader; 2],
    open: &dyn Fn() -> Result<[Reader; 2], Error>,
    config: &Config,
) -> Result<Survey, Error> {
    let found = survey(pre, post, config)?;
    let [Some(pre), Some(post)] = [0, 1].map(|side: usize| found.ahead[side].first()) else {
        return Ok(found);
    };
    let begin_ns = [pre.ts().0, post.ts().0];
    if found.relation.is_some() || begin_ns[0] == begin_ns[1] {
        return Ok(found);
    }
    let later = begin_ns[0].max(begin_ns[1]);
    let mut ahead = [Vec::new(), Vec::new()];
    for (mut reader, ahead) in open()?.into_iter().zip(&mut ahead) {
        Ahead::skip_to(&mut reader, ahead, later)?;
        Ahead::read_on(&mut reader, ahead, LOOKS[1], MOST_BYTES)?;
    }
    let joined = join_by_best(&candidates(config), config.match_on == MatchOn::Auto, &ahead);
    if joined.best.is_none() {
        return Ok(found);
    }
    Ok(Survey { ahead: found.ahead, ..conclude(joined, ahead, config) })
}

/// Surveys captures, and returns `config` with what was found; refuses what nothing can follow
/// from.
pub(crate) fn decide(
    pre: &mut Reader,
    post: &mut Reader,
    config: &Config,
) -> Result<(Config, Survey), Error> {
    let found = survey(pre, post, config)?;
    settle(found, [pre, post], config)
}

/// Does the same for files.
pub(crate) fn decide_on_files(
    [pre, post]: [&mut Reader; 2],
    open: &dyn Fn() -> Result<[Reader; 2], Error>,
    config: &Config,
) -> Result<(Config, Survey), Error> {
    let found = survey_files([pre, post], open, config)?;
    settle(found, [pre, post], config)
}

fn settle(
    found: Survey,
    captures: [&mut Reader; 2],
    config: &Config,
) -> Result<(Config, Survey), Error> {
    let names = captures.map(|capture| capture.info().name);
    if let Some(unproven) = found.unproven.filter(|_| config.clocks == Clocks::Detect) {
        return Err(unproven.error(names, found.relation.map_or(0, Relation::offset_ns)));
    }
    if let Some(relation) = found.relation {
        relation.check(config.clocks, names)?;
    }
    Ok((Config { match_on: found.match_on.clone(), ..config.clone() }, found))
}

/// Returns true if both are the same packets at the same times, to the last byte.
fn are_one([pre, post]: &[Vec<Ahead>; 2]) -> bool {
    let same = pre.iter().zip(post).all(|(a, b)| a.ts() == b.ts() && a.data == b.data);
    same && pre.len() == post.len() && pre.len() > 1
}

/// A map by key.
type KeyMap<T> = HashMap<Key, T, BuildHasherDefault<KeyHasher>>;

/// Keys are hashes already: one multiplication spreads what is not.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key is two words");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) struct Joined {
    pub best: Option<Join>,
    tried: Vec<Tried>,
}

/// Returns the most specific candidate of those by which most packets match.
pub(crate) fn join_by_best(
    candidates: &[MatchOn],
    may_limit: bool,
    ahead: &[Vec<Ahead>; 2],
) -> Joined {
    let joins: Vec<Join> = candidates.iter().map(|key| Join::new(key, may_limit, ahead)).collect();
    let tried = joins.iter().map(Join::tried).collect();
    let mut best: Option<Join> = None;
    for join in joins {
        // A mirror of both ports of a router has each packet twice, one hop apart.
        let doubled = join.match_on == MatchOn::L3 && join.copies_ns(ahead) > 0;
        if doubled && best.as_ref().is_some_and(|best| best.copies_ns(ahead) == 0) {
            best = Some(join);
            continue;
        }
        let worth = |best: &Join| {
            join.matched > best.matched + best.matched / WORTH + 1 || join.tells_apart(best)
        };
        if join.is_more_than_chance(ahead) && best.as_ref().is_none_or(worth) {
            best = Some(join);
        }
    }
    Joined { best, tried }
}

/// Source and destination of a packet.
type Way<'a> = (&'a [u8], &'a [u8]);

fn owned((from, to): &Way<'_>) -> Flow {
    (from.to_vec(), to.to_vec())
}

/// Two samples, joined by a key whatever their times are.
pub(crate) struct Join {
    pub match_on: MatchOn,
    limit_bytes: Option<u32>,
    keys: [Vec<Option<Key>>; 2],
    matched: u64,
    of: u64,
    /// Packets whose key is carried once on either side, by place.
    pub pairs: Vec<(usize, usize)>,
}

/// A packet of a sample, and its copies behind it.
struct Original {
    key: Key,
    copies: usize,
    /// Time from it to its last copy, in ns.
    longest_ns: u64,
    /// True if the copies equal it to the last byte.
    identical: bool,
}

impl Original {
    fn add(&mut self, gap_ns: u64, identical: bool) {
        self.copies += 1;
        self.longest_ns = self.longest_ns.max(gap_ns);
        self.identical &= identical;
    }
}

impl Join {
    pub fn new(match_on: &MatchOn, may_limit: bool, ahead: &[Vec<Ahead>; 2]) -> Self {
        let limit_bytes = if may_limit { limit(match_on, ahead) } else { None };
        let keys_of = |tap, packets: &[Ahead]| {
            let keyer = Keyer::new(match_on, tap, limit_bytes);
            let key = |packet: &Ahead| match keyer.key(&packet.data, packet.orig_len()) {
                Keyed::Key(key) => Some(key),
                Keyed::None | Keyed::Short { .. } => None,
            };
            packets.iter().map(key).collect::<Vec<_>>()
        };
        let keys = [keys_of(Tap::Pre, &ahead[0]), keys_of(Tap::Post, &ahead[1])];
        let mut join = Self {
            match_on: match_on.clone(),
            limit_bytes,
            keys,
            matched: 0,
            of: 0,
            pairs: vec![],
        };
        join.join(ahead);
        join
    }

    fn join(&mut self, ahead: &[Vec<Ahead>; 2]) {
        if self.is_carried() && ![0, 1].into_iter().all(|side| self.is_distinct(side, ahead)) {
            return;
        }
        // Of each packet what the matcher compares of its key, then side and place: those of a key lie together, the
        // places of each side in order.
        let keyed = |side: usize| {
            let keys = self.keys[side].iter().enumerate();
            keys.filter_map(move |(place, key)| {
                let Key { hi, lo } = (*key)?;
                let compared = u128::from(hi) << 64 | u128::from(lo as u32) << 32;
                Some(compared | (side << SIDE_BIT | place) as u128)
            })
        };
        let mut packets: Vec<u128> = keyed(0).chain(keyed(1)).collect();
        packets.sort_unstable();
        let place = |packet: u128| packet as usize & ((1 << SIDE_BIT) - 1);
        let mut span: Option<(usize, usize)> = None;
        for alike in packets.chunk_by(|one, other| one >> 32 == other >> 32) {
            let is_pre = |packet: &u128| packet >> SIDE_BIT & 1 == 0;
            let (pre, post) = alike.split_at(alike.partition_point(is_pre));
            let pairs = pre.len().min(post.len());
            self.matched += pairs as u64;
            if let [first, ..] = pre[..pairs] {
                let (first, last) = (place(first), place(pre[pairs - 1]));
                span = Some(span.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
            }
            if let ([pre], [post]) = (pre, post) {
                self.pairs.push((place(*pre), place(*post)));
            }
        }
        self.pairs.sort_unstable();
        self.of = span.map_or(0, |(first, last)| (last - first + 1) as u64);
    }

    /// Returns true if packets differ by this key that `other` cannot tell apart: all of a tunnel may have one header.
    fn tells_apart(&self, other: &Self) -> bool {
        let alike = (other.pairs.len() as u64) < other.matched / ALIKE;
        alike && 2 * self.pairs.len() as u64 >= other.matched
    }

    /// Returns true if more packets match than by chance: laid over each other at a packet that does,
    /// samples of one traffic have nearly all others in common.
    fn is_more_than_chance(&self, ahead: &[Vec<Ahead>; 2]) -> bool {
        match self.common(ahead) {
            0 => self.matched > 0,
            common => self.matched * CHANCE >= common as u64,
        }
    }

    /// Returns the packets that both samples would have in common if they were laid over each other at one that is
    /// alike; 0 without one.
    fn common(&self, ahead: &[Vec<Ahead>; 2]) -> usize {
        let Some((pre, post)) = self.pairs.get(self.pairs.len() / 2) else { return 0 };
        let [behind_pre, behind_post] = [ahead[0].len() - pre, ahead[1].len() - post];
        pre.min(post) + behind_pre.min(behind_post)
    }

    fn alike<'a>(&self, ahead: &'a [Vec<Ahead>; 2]) -> Alike<'a> {
        let packets = |(pre, post): &(usize, usize)| (&ahead[0][*pre], &ahead[1][*post]);
        Alike {
            matched: self.matched as usize,
            common: self.common(ahead),
            pairs: self.pairs.iter().map(packets).collect(),
            by_payload: self.match_on == MatchOn::Payload,
        }
    }

    /// Returns true if the key leaves addresses out, so that packets of two flows may share it.
    fn is_carried(&self) -> bool {
        matches!(self.match_on, MatchOn::Payload | MatchOn::Inner)
    }

    fn is_distinct(&self, side: usize, ahead: &[Vec<Ahead>; 2]) -> bool {
        let originals = self.originals(side, ahead);
        different(&originals) as f64 >= DISTINCT * originals.len() as f64
    }

    fn tried(&self) -> Tried {
        Tried { key: self.match_on.to_string(), matched: self.matched, of: self.of }
    }

    /// Returns the time within which a packet alike is a copy, if the capture before the device
    /// holds nearly every packet several times; or many, of which only one each comes out.
    fn copies_ns(&self, ahead: &[Vec<Ahead>; 2]) -> u64 {
        let originals = self.originals(0, ahead);
        let copied: Vec<&Original> = originals.iter().filter(|one| one.copies > 0).collect();
        let longest = copied.iter().map(|one| one.longest_ns).max();
        let keyed = self.keys[0].iter().flatten().count();
        let nearly_all = |part: usize| part >= originals.len() * 9 / 10;
        let whole = nearly_all(copied.len())
            && nearly_all(different(&originals))
            && keyed <= MOST_COPIES * originals.len();
        let span = longest.filter(|_| whole && keyed > 1);
        let span = span.or_else(|| self.partial_copies_ns(&copied));
        span.map_or(0, |gap| (2 * gap).clamp(1, COPIES_NS))
    }

    /// Returns the longest time to a copy, where it is copies, and not packets alike, that do not
    /// come out.
    fn partial_copies_ns(&self, copied: &[&Original]) -> Option<u64> {
        let soon = |one: &&&Original| one.identical && one.longest_ns <= PARTIAL_COPIES_NS;
        let copied: Vec<_> = copied.iter().filter(soon).collect();
        if copied.len() < COPIED {
            return None;
        }
        let mut arrived: HashMap<Key, usize> = HashMap::new();
        self.keys[1].iter().flatten().for_each(|key| *arrived.entry(*key).or_default() += 1);
        let keys: HashSet<Key> = copied.iter().map(|one| one.key).collect();
        let came_out = keys.iter().filter_map(|key| arrived.get(key));
        let (once, several): (Vec<usize>, Vec<usize>) = came_out.partition(|count| **count == 1);
        let proven = once.len() >= COPIED && several.len() * 20 <= once.len();
        copied.iter().map(|one| one.longest_ns).max().filter(|_| proven)
    }

    /// Returns the packets of one side that are no copies, each with how many copies follow it.
    fn originals(&self, side: usize, ahead: &[Vec<Ahead>; 2]) -> Vec<Original> {
        let mut newest: KeyMap<(usize, &Ahead)> = KeyMap::default();
        newest.reserve(self.keys[side].len());
        let mut originals: Vec<Original> = Vec::new();
        for (key, packet) in self.keys[side].iter().zip(&ahead[side]) {
            let Some(key) = *key else { continue };
            if let Some((at, first)) = newest.get(&key) {
                let gap_ns = packet.ts().0.abs_diff(first.ts().0);
                let identical = packet.data == first.data;
                if gap_ns <= COPIES_NS && (identical || !self.is_carried()) {
                    originals[*at].add(gap_ns, identical);
                    continue;
                }
            }
            newest.insert(key, (originals.len(), packet));
            originals.push(Original { key, copies: 0, longest_ns: 0, identical: true });
        }
        originals
    }

    /// Returns the time from before the device to behind it, of each packet that is known for
    /// certain, in
    /// ns.
    pub fn apart(&self, ahead: &[Vec<Ahead>; 2]) -> Vec<i64> {
        let ts = |side: usize, place: usize| i128::from(ahead[side][place].ts().0);
        self.pairs.iter().map(|&(pre, post)| (ts(1, post) - ts(0, pre)) as i64).collect()
    }

    /// Returns when a clock stepped within the sample, in ns, and by how much.
    fn step(&self, apart: &[i64], ahead: &[Vec<Ahead>; 2]) -> Option<(u64, i64)> {
        let mut floor = Floor::default();
        let pairs = self.pairs.iter().zip(apart);
        pairs.for_each(|((pre, _), ns)| floor.push(ahead[0][*pre].ts().0, *ns));
        floor.step()
    }

    /// Returns which ways packets travel, and how the times lie.
    fn ways(&self, ahead: &[Vec<Ahead>; 2]) -> Ways {
        let apart = self.apart(ahead);
        let mut flows: HashMap<Way<'_>, Vec<i64>> = HashMap::new();
        for (&(pre, _), ns) in self.pairs.iter().zip(&apart) {
            if let Some(flow) = addresses(&ahead[0][pre].data) {
                flows.entry(flow).or_default().push(*ns);
            }
        }
        if apart.is_empty() {
            return Ways::default();
        }
        if let Some((at_ns, by_ns)) = self.step(&apart, ahead) {
            let at = Nanos(at_ns.saturating_sub(ahead[0][0].ts().0));
            return Ways { relation: Some(Relation::Stepped { at, by_ns }), ..Ways::default() };
        }
        let Some((most_back, least_forth)) = both_ways(&flows) else {
            let relation = Some(self.one_way(apart, ahead));
            let back = if relation == Some(Relation::Same) {
                self.answers(&flows, &ahead[0])
            } else {
                BTreeSet::new()
            };
            let back_behind = self.back_behind(&back, ahead);
            let two_way = !back.is_empty();
            let forth = if two_way { some_of(&flows) } else { BTreeSet::new() };
            return Ways { two_way, back, forth, back_behind, relation, ..Ways::default() };
        };
        let is_back = |ns: &Vec<i64>| ns.iter().all(|ns| *ns <= most_back);
        let known = flows.iter().filter(|(_, ns)| is_back(ns)).map(|(flow, _)| owned(flow));
        let mut back: BTreeSet<Flow> = known.collect();
        let backward = self.backward(&back, &apart, &ahead[0]);
        flows.retain(|_, ns| !is_back(ns));
        back.extend(self.answers(&flows, &ahead[0]));
        let relation = if most_back <= 0 && 0 <= least_forth {
            Relation::Same
        } else {
            Relation::Apart { offset_ns: most_back + (least_forth - most_back) / 2 }
        };
        let back_behind = self.back_behind(&back, ahead);
        let forth = some_of(&flows);
        let relation = Some(relation);
        Ways { two_way: true, bounded: true, back, forth, back_behind, backward, relation }
    }

    /// Returns the flows of `back` as the sample behind the device has them: those of the same packets, and answers
    /// to the others.
    fn back_behind(&self, back: &BTreeSet<Flow>, ahead: &[Vec<Ahead>; 2]) -> BTreeSet<Flow> {
        let (mut found, mut forth) = (BTreeSet::new(), BTreeSet::new());
        if back.is_empty() {
            return found;
        }
        for &(pre, post) in &self.pairs {
            let [before, behind] = [&ahead[0][pre], &ahead[1][post]].map(|of| addresses(&of.data));
            let (Some(before), Some(behind)) = (before, behind) else { continue };
            let is_back = back.contains(&owned(&before));
            if is_back { &mut found } else { &mut forth }.insert(owned(&behind));
        }
        let answers = ahead[1].iter().filter_map(|packet| addresses(&packet.data));
        let is_answer = |flow: &Flow| forth.contains(&(flow.1.clone(), flow.0.clone()));
        let answers = answers.map(|way| owned(&way)).filter(is_answer);
        found.extend(answers.filter(|flow| flow.0 != flow.1));
        found.retain(|flow| !forth.contains(flow));
        found.into_iter().take(MOST_FLOWS).collect()
    }

    /// Returns when packets of the flows `back` were seen before the device, and how much sooner
    /// behind it.
    fn backward(&self, back: &BTreeSet<Flow>, apart: &[i64], sent: &[Ahead]) -> Hull {
        let mut points: Vec<(u64, i64)> = Vec::new();
        for (&(pre, _), ns) in self.pairs.iter().zip(apart) {
            let flow = addresses(&sent[pre].data);
            if flow.is_some_and(|flow| back.contains(&owned(&flow))) {
                points.push((sent[pre].ts().0, -ns));
            }
        }
        points.sort_unstable();
        let mut hull = Hull::default();
        points.into_iter().for_each(|(ts, ns)| hull.push(ts, ns));
        hull
    }

    /// Flows of packets without a counterpart that answer those with one.
    fn answers(&self, forth: &HashMap<Way<'_>, Vec<i64>>, sent: &[Ahead]) -> BTreeSet<Flow> {
        let flows = sent.iter().filter_map(|packet| addresses(&packet.data));
        let answers = flows.filter(|way| {
            let (from, to) = *way;
            from != to && forth.contains_key(&(to, from)) && !forth.contains_key(way)
        });
        answers.map(|way| owned(&way)).take(MOST_FLOWS).collect()
    }

    fn one_way(&self, mut apart: Vec<i64>, ahead: &[Vec<Ahead>; 2]) -> Relation {
        const SECOND: i64 = 1_000_000_000;
        apart.sort_unstable();
        // A few times may be wrong.
        let at = |share: f64| apart[((apart.len() - 1) as f64 * share) as usize];
        let (least, most) = (at(STRAY), at(1.0 - STRAY));
        let hops = self.hops(ahead);
        if (-MOST_HOPS..0).contains(&hops) {
            return Relation::Before { least_ns: least, swapped: Some(true) };
        }
        if (0..SECOND).contains(&least) {
            return Relation::Same;
        }
        if most >= 0 || nearest_whole(least) != 0 || least < -SECOND {
            return Relation::Apart { offset_ns: least };
        }
        // Latencies have a floor and a tail: mirrored, the tail lies on the other side. Not so in bursts: the first
        // packets of a batch wait longest, and most latencies may lie above those of the last.
        let (below, above) = (at(0.5) - at(0.01), at(0.99) - at(0.5));
        // A device makes no packets; what it seems to lose, a capture may have dropped, whichever way they were given.
        let looks_forward = has_tail(below.unsigned_abs(), above.unsigned_abs())
            && !ahead.iter().any(|side| comes_in_bursts(side))
            && !self.gains(ahead);
        let forward = hops > 0 || looks_forward;
        Relation::Before { least_ns: least, swapped: forward.then_some(false) }
    }

    /// Returns true if the side behind the device alone has some packets, and the one before it alone hardly any.
    fn gains(&self, ahead: &[Vec<Ahead>; 2]) -> bool {
        is_more_alone(self.alone(1, ahead), self.alone(0, ahead))
    }

    /// Counts packets that only one side has, in flows that match, between the first and the last that do.
    fn alone(&self, side: usize, ahead: &[Vec<Ahead>; 2]) -> u64 {
        let places = self.pairs.iter().map(|&(pre, post)| [pre, post][side]);
        let flows: HashSet<Way<'_>> =
            places.clone().filter_map(|at| addresses(&ahead[side][at].data)).collect();
        let known: HashSet<Key> = self.keys[1 - side].iter().flatten().copied().collect();
        let is_alone = |at: &usize| {
            self.keys[side][*at].is_some_and(|key| !known.contains(&key))
                && addresses(&ahead[side][*at].data).is_some_and(|flow| flows.contains(&flow))
        };
        let (first, last) = (places.clone().min(), places.max());
        first.zip(last).map_or(0, |(first, last)| (first..=last).filter(is_alone).count() as u64)
    }

    /// Hops that each packet loses from one capture to the other, by its TTL.
    fn lost_hops(&self, ahead: &[Vec<Ahead>; 2]) -> impl Iterator<Item = Option<i32>> {
        let ttl = |packet: &Ahead| probe::headers::ttl(&packet.data).map(i32::from);
        self.pairs
            .iter()
            .map(move |&(pre, post)| Some(ttl(&ahead[0][pre])? - ttl(&ahead[1][post])?))
    }

    /// Returns true if every packet loses hops, whichever way it travels.
    fn is_routed(&self, ahead: &[Vec<Ahead>; 2]) -> bool {
        let loses = |hops: Option<i32>| hops.is_some_and(|hops| hops != 0);
        self.match_on == MatchOn::L3 && !self.pairs.is_empty() && self.lost_hops(ahead).all(loses)
    }

    /// Hops between the captures, by the TTL of a packet; 0 where not all agree that there are some.
    fn hops(&self, ahead: &[Vec<Ahead>; 2]) -> i32 {
        let mut hops = self.lost_hops(ahead);
        let first = hops.next().flatten().unwrap_or(0);
        if self.match_on == MatchOn::L3 && hops.all(|other| other == Some(first)) {
            first
        } else {
            0
        }
    }
}

/// Returns the flows, as far as they are few.
fn some_of(flows: &HashMap<Way<'_>, Vec<i64>>) -> BTreeSet<Flow> {
    flows.keys().map(owned).take(MOST_FLOWS).collect()
}

/// Returns how many keys there are.
fn different(originals: &[Original]) -> usize {
    let mut keys: Vec<Key> = originals.iter().map(|original| original.key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

/// Returns, for flows that have one in the opposite direction, the most that one way lies behind,
/// and the least that the other way does, if the two do not overlap.
fn both_ways(flows: &HashMap<Way<'_>, Vec<i64>>) -> Option<(i64, i64)> {
    let (mut back, mut forth): (Option<i64>, Option<i64>) = (None, None);
    for (&(from, to), there) in flows {
        let Some(here) = flows.get(&(to, from)).filter(|_| from != to) else { continue };
        let least = |ns: &[i64]| ns.iter().copied().min();
        let most = |ns: &[i64]| ns.iter().copied().max();
        let (forward, backward) =
            if least(there) > least(here) { (there, here) } else { (here, there) };
        back = back.max(most(backward));
        forth = [forth, least(forward)].into_iter().flatten().min();
    }
    back.zip(forth).filter(|(back, forth)| back < forth)
}

/// Bytes from the network header on that both captures hold of each packet of the sample; of a key
/// that was asked for all of it is expected.
fn limit(match_on: &MatchOn, ahead: &[Vec<Ahead>; 2]) -> Option<u32> {
    let held = |tap, packets: &[Ahead]| {
        let keyer = Keyer::new(match_on, tap, None);
        packets.iter().filter_map(|p| keyer.held_bytes(&p.data, p.orig_len())).min()
    };
    let both = [held(Tap::Pre, &ahead[0]), held(Tap::Post, &ahead[1])];
    both.into_iter().flatten().min()
}

impl Relation {
    /// Checks the clocks, as far as `clocks` does not say how they differ.
    pub fn check(self, clocks: Clocks, names: [String; 2]) -> Result<(), Error> {
        let [pre, post] = names;
        match (self, clocks) {
            (Self::Stepped { at, by_ns }, Clocks::Detect) => Err(Error::clock_steps(at, by_ns)),
            (Self::Same | Self::Stepped { .. }, _) | (_, Clocks::Apart { .. }) => Ok(()),
            (Self::Before { swapped: Some(true), .. }, _) => Err(Error::Swapped { pre, post }),
            (Self::Before { least_ns, swapped: None }, _)
            | (Self::Before { least_ns, .. }, Clocks::Same) => {
                Err(Error::SwappedOrApart { pre, post, ns: least_ns })
            }
            (Self::Apart { .. }, Clocks::Same) => Ok(()),
            (Self::Before { .. } | Self::Apart { .. }, Clocks::Detect) => {
                Err(Error::ClocksApart { why: lie_apart(self.offset_ns()) })
            }
        }
    }

    /// Returns the approximate lead of the clock behind the device, in ns.
    pub fn offset_ns(self) -> i64 {
        match self {
            Self::Same | Self::Stepped { .. } => 0,
            Self::Before { least_ns, .. } => least_ns,
            Self::Apart { offset_ns } => offset_ns,
        }
    }
}
