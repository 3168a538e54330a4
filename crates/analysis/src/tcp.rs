//! The analysis of a pair by the bytes of TCP streams: each segment before the device is found again when the last of
//! its bytes was first seen behind it, in whatever segments that was.
//!
//! `stream.rs` reads the streams of both captures, `connections.rs` pairs them by their content (`align.rs`); if none
//! comes out as it is, `stretches.rs` finds the parts that do. What became of each segment is then handed to the matcher (`pair.rs`) as packets with keys, so that all figures are the same as
//! by other keys.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

use capture::{Cut, Files, Info, Reader};
use probe::encryption::{Encryption, is_tls};
use probe::key::{Key, MatchOn};

use crate::basis::{Basis, Grid, Skew, Tried, grid_of};
use crate::config::Config;
use crate::connections::{Partner, Partners, partners};
use crate::counts::{Counts, TcpCounts, TcpSide};
use crate::doubts::Doubts;
use crate::error::{Error, Obstacle, Shared};
use crate::ingest::{Kind, Stamped};
use crate::order::BATCH;
use crate::pair::{Analysis, Captured, Observer, Progress, Run, Source};
use crate::side::Side;
use crate::stream::{Connection, Piece, Role, Seen, Stream, Streams};
use crate::stretches::{Name, Stretch, stretches};
use crate::survey::Relation;
use crate::varieties::News;

/// Differences of times that tell on which grid these lie, at most.
const MOST_APART: usize = 65_536;
const SECOND_NS: i64 = 1_000_000_000;
/// What requests and answers of HTTP/1 begin with.
const HTTP: [&[u8]; 6] = [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"HTTP/1."];

/// Matches two captures by the bytes of TCP streams. `tried` says what other keys have matched.
///
/// # Errors
/// As [`analyze_pair`](crate::analyze_pair), and when a capture holds too little of packets, or too many bytes.
pub(crate) fn analyze_streams(
    [mut pre, mut post]: [Reader; 2],
    config: &Config,
    tried: Vec<Tried>,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    config.check()?;
    let total_bytes = pre.total_bytes().zip(post.total_bytes()).map(|(pre, post)| pre + post);
    let start = Progress { done_bytes: 0, total_bytes };
    let before = Streams::read(&mut pre, Skew::NONE, start, observer)?;
    let half = Progress { done_bytes: pre.consumed_bytes(), total_bytes };
    let behind = Streams::read(&mut post, config.clocks.skew(), half, observer)?;
    let names = [pre.info().name, post.info().name];
    let [pre_name, post_name] = names.clone();
    if before.packets.is_empty() {
        return Err(Error::NoPackets { file: pre_name, side: "before" });
    }
    if behind.packets.is_empty() && !config.whole {
        return Err(Error::NoPackets { file: post_name, side: "behind" });
    }
    let mut judged = Judged::new([&before, &behind], config);
    let shared = judged.divide();
    let tried = [tried, vec![judged.tried()]].concat();
    let basis = Basis { grid: judged.grid(), tried, ..Basis::default() };
    let Some(relation) = judged.relation() else {
        let tried = basis.in_words();
        if let Some(shared) = shared {
            return Err(Error::BytesChanged { pre: pre_name, post: post_name, shared });
        }
        let error = Error::DifferentTraffic { pre: pre_name, post: post_name, tried };
        return Err(error.explained_by(judged.obstacle()));
    };
    relation.check(config.clocks, names).map_err(without_estimate)?;
    let config = Config { match_on: MatchOn::TcpBytes, ..config.clone() };
    let (outcomes, tcp) = (judged.outcomes(), judged.counts());
    let (sent, seen) = (judged.sent(&outcomes), judged.seen(&outcomes));
    let unkeyed = Unkeyed::new(&before, (&outcomes, &seen), config.trim);
    let [pre_gaps, post_gaps] = judged.gaps;
    let seen = seen.iter().map(|event| event.packet).collect();
    let sources = [
        Events::new(pre, before, (sent, pre_gaps), config.trim),
        Events::new(post, behind, (seen, post_gaps), config.trim),
    ];
    let [pre, post] = sources;
    let mut analysis = Run::whole(pre, post, config, basis, None)?.finish(observer)?;
    unkeyed.count(&mut analysis.counts);
    let packets = [&analysis.pre, &analysis.post].map(|side| side.side.packets);
    analysis.counts.assert_conserved(packets[0], packets[1]);
    analysis.tcp = Some(tcp);
    let analysis = analysis.judged();
    analysis.check_clocks().map_err(without_estimate)?;
    analysis.check_step(&[vec![], vec![]])?;
    Ok(analysis)
}

/// Returns the error for clocks that are apart, the difference of which is not estimated.
fn without_estimate(error: Error) -> Error {
    match error {
        Error::ClocksApart { why } => Error::StreamClocksApart { why },
        other => other,
    }
}

/// Returns how many packets before the device the bytes of streams join with what is behind it.
pub(crate) fn joined_by_bytes(
    [mut pre, mut post]: [Reader; 2],
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<u64, Error> {
    let start = Progress { done_bytes: 0, total_bytes: None };
    let before = Streams::read(&mut pre, Skew::NONE, start, observer)?;
    let behind = Streams::read(&mut post, config.clocks.skew(), start, observer)?;
    let judged = Judged::new([&before, &behind], config);
    let arrived = judged.outcomes().into_iter().filter(|of| matches!(of, Outcome::Arrived(_)));
    Ok(arrived.count() as u64)
}

/// What became of a segment before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It has no bytes that are new.
    None,
    /// All of its bytes had been seen behind the device at this time, in ns.
    Arrived(u64),
    /// Some of its bytes never came out, although the stream went on or ended.
    Lost,
    /// The captures do not tell.
    Unresolved,
    /// Its connection may be one of several behind the device.
    Ambiguous,
    /// It travels the other way.
    Back,
}

impl Outcome {
    /// Returns what became of a segment, parts of which met different fates.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (Self::Arrived(one), Self::Arrived(other)) => Self::Arrived(one.max(other)),
            (Self::Lost, _) | (_, Self::Lost) => Self::Lost,
            (Self::Arrived(_), one) | (one, _) => one,
        }
    }
}

/// A stream before the device with what it has in common with those behind it: it comes out there, or came from there.
#[derive(Clone, Copy)]
struct Joined<'a> {
    before: &'a Stream,
    common: Common<'a>,
    /// Times in ns at which what was sent may have come out between two files, in order.
    gaps: &'a [(u64, u64)],
    doubts: &'a Doubts,
}

/// What a stream before the device has in common with those behind it.
#[derive(Clone, Copy)]
enum Common<'a> {
    /// All of it, in one stream.
    Whole(Whole<'a>),
    /// Stretches, each in one of these connections.
    Parts(&'a [Stretch], &'a [Connection]),
}

/// A stream behind the device that has the bytes of one before it.
#[derive(Clone, Copy)]
struct Whole<'a> {
    name: Name,
    stream: &'a Stream,
    shift: i64,
    reset: bool,
}

impl Whole<'_> {
    fn seen(&self, piece: &Piece) -> Seen {
        let place = |place: u64| place.saturating_add_signed(self.shift);
        self.stream.seen(place(piece.start), place(piece.end))
    }

    /// Returns true if the byte at this place behind the device never was there: the stream went on, or ended, and the
    /// other end has not confirmed it.
    fn is_lost(&self, place: u64) -> bool {
        let Some((first, last)) = self.stream.span() else { return false };
        let confirmed = self.stream.acknowledged.is_some_and(|reached| reached > place);
        let ended = self.reset || self.stream.end.is_some_and(|end| end <= place);
        place >= first && !confirmed && (place < last || ended)
    }
}

/// Returns when the last byte of a piece was seen behind the device, in ns, if it is in a stretch, and with it those
/// before it in the same stretch.
fn arrival_of_parts(parts: &[Stretch], connections: &[Connection], piece: &Piece) -> Option<u64> {
    let part = parts.get(parts.partition_point(|part| part.end < piece.end))?;
    if part.start >= piece.end {
        return None;
    }
    let (start, end) = part.behind(piece.start, piece.end);
    match connections[part.behind.0].streams[part.behind.1].seen(start, end) {
        Seen::At(ts) => Some(ts),
        Seen::Not(_) => unreachable!("bytes that were compared were seen"),
    }
}

impl Joined<'_> {
    /// Returns when the last byte of a piece before the device was seen behind it, in ns.
    fn arrival(&self, piece: &Piece) -> Option<u64> {
        match self.common {
            Common::Whole(whole) => match whole.seen(piece) {
                Seen::At(ts) => Some(ts),
                Seen::Not(_) => None,
            },
            Common::Parts(parts, connections) => arrival_of_parts(parts, connections, piece),
        }
    }

    /// Returns the time from each piece before the device to its last byte behind it, in ns, if no clock is in doubt
    /// then.
    fn apart(&self) -> impl Iterator<Item = i64> {
        self.before.pieces.iter().filter_map(|piece| {
            let ts = self.arrival(piece).filter(|ts| !self.doubts.concern(piece.ts, *ts))?;
            Some((i128::from(ts) - i128::from(piece.ts)) as i64)
        })
    }

    /// Returns the least and the most of these times.
    fn bounds(&self) -> Option<RangeInclusive<i64>> {
        let (mut least, mut most) = (None, None);
        for ns in self.apart() {
            least = Some(least.map_or(ns, |least: i64| least.min(ns)));
            most = most.max(Some(ns));
        }
        Some(least?..=most?)
    }

    fn outcome(&self, piece: &Piece) -> Outcome {
        let Common::Whole(whole) = self.common else {
            // What a device changes is not lost.
            return self.arrival(piece).map_or(Outcome::Unresolved, Outcome::Arrived);
        };
        match whole.seen(piece) {
            Seen::At(ts) => Outcome::Arrived(ts),
            Seen::Not(_) if self.in_gap(piece.ts) => Outcome::Unresolved,
            // If any byte of a gap is lost for certain, its last one is.
            Seen::Not(missing) if missing.iter().any(|bytes| whole.is_lost(bytes.end - 1)) => {
                Outcome::Lost
            }
            Seen::Not(_) => Outcome::Unresolved,
        }
    }

    fn in_gap(&self, ts: u64) -> bool {
        let next = self.gaps.partition_point(|(_, to)| *to < ts);
        self.gaps.get(next).is_some_and(|(from, _)| *from <= ts)
    }

    /// Returns what is behind the device of it: streams, each with places there and how far on these lie.
    fn behind(&self) -> Vec<(Name, Range<u64>, i64)> {
        match self.common {
            Common::Whole(Whole { name, shift, .. }) => vec![(name, 0..u64::MAX, shift)],
            Common::Parts(parts, _) => {
                let places =
                    parts.iter().map(|part| (part.behind, part.behind(0, u64::MAX), part.shift));
                places.map(|(name, (start, end), shift)| (name, start..end, shift)).collect()
            }
        }
    }
}

/// Two captures whose connections are paired, and which way their streams travel.
struct Judged<'a> {
    sides: [&'a Streams; 2],
    partners: Partners,
    /// Stretches of each stream before the device that come out as they are, if few connections do.
    parts: Vec<[Vec<Stretch>; 2]>,
    /// For each connection before the device the stream that comes out behind it.
    forward: Vec<[bool; 2]>,
    /// Times in ns at which packets of either side are not judged, as the other one lacks what came between its files:
    /// those of the other side's packets, with the longest time from one to the other.
    gaps: [Vec<(u64, u64)>; 2],
    doubts: Doubts,
}

impl<'a> Judged<'a> {
    fn new(sides: [&'a Streams; 2], config: &Config) -> Self {
        let doubts = config.doubts.undone(config.clocks.skew());
        let partners = partners(sides[0], sides[1], (config.window.0, &doubts));
        let (parts, forward, gaps) = (Vec::new(), Vec::new(), [vec![], vec![]]);
        let mut judged = Self { sides, partners, parts, forward, gaps, doubts };
        judged.find_ways();
        judged
    }

    fn find_ways(&mut self) {
        self.forward = self.ways();
        self.gaps = self.gaps();
    }

    /// Looks for parts of streams if less than half of the connections come out as they are; returns how much of what
    /// both captures contain is the same.
    fn divide(&mut self) -> Option<Shared> {
        let Tried { matched, of, .. } = self.tried();
        if 2 * matched >= of {
            return None;
        }
        let found = stretches(self.sides)?;
        self.parts = found.of;
        self.find_ways();
        Some(found.shared)
    }

    fn joined(&self, number: usize, way: usize) -> Option<Joined<'_>> {
        let behind = &self.sides[1].connections;
        let common = if let Partner::Known(pair) = self.partners.of[number] {
            let name = (pair.behind, pair.way_behind(way));
            let connection = &behind[pair.behind];
            let (stream, shift) = (&connection.streams[name.1], pair.shift(way)?);
            Common::Whole(Whole { name, stream, shift, reset: connection.reset })
        } else {
            let parts = &self.parts.get(number)?[way];
            Common::Parts(Some(parts).filter(|parts| !parts.is_empty())?, behind)
        };
        let before = &self.sides[0].connections[number].streams[way];
        Some(Joined { before, common, gaps: &self.gaps[1], doubts: &self.doubts })
    }

    /// Returns which streams of each connection come out behind the device. Where all times are in doubt, it is that of
    /// the same end as of most others: the one that opened it, or was heard first, or the other one.
    fn ways(&self) -> Vec<[bool; 2]> {
        let connections = &self.sides[0].connections;
        let opener = |number: usize| connections[number].opener.unwrap_or(0);
        let told: Vec<_> = (0..connections.len()).map(|number| self.forward(number)).collect();
        let ways = told.iter().enumerate().filter_map(|(number, ways)| Some((number, (*ways)?)));
        let by = |way: fn(usize) -> usize| {
            ways.clone().filter(|(number, ways)| ways[way(opener(*number))]).count()
        };
        let opens = by(|opener| opener) >= by(|opener| 1 - opener);
        let usual = |number: usize| [0, 1].map(|way| (way == opener(number)) == opens);
        let all = told.iter().enumerate();
        all.map(|(number, ways)| ways.unwrap_or_else(|| usual(number))).collect()
    }

    /// Returns which streams of a connection come out behind the device, unless all times are in doubt: of two the one
    /// that takes longer.
    fn forward(&self, number: usize) -> Option<[bool; 2]> {
        let bounds = [0, 1].map(|way| self.joined(number, way).and_then(|joined| joined.bounds()));
        let is_first = match bounds {
            [Some(one), Some(other)] => (one.start(), one.end()) > (other.start(), other.end()),
            alone if self.doubts.is_empty() => {
                return Some(alone.map(|bounds| bounds.is_some_and(|bounds| *bounds.end() >= 0)));
            }
            [Some(one), None] => *one.end() >= 0,
            [None, Some(other)] => *other.end() < 0,
            [None, None] => return None,
        };
        Some([is_first, !is_first])
    }

    fn gaps(&self) -> [Vec<(u64, u64)>; 2] {
        let forth = self.joins().filter(|(is_forward, _)| *is_forward);
        let longest = forth.filter_map(|(_, joined)| Some(*joined.bounds()?.end())).max();
        let longest_ns = longest.unwrap_or(0).max(0).unsigned_abs();
        let [pre, post] = self.sides.map(|side| side.gaps.iter());
        [
            pre.map(|(from, to)| (*from, to.saturating_add(longest_ns))).collect(),
            post.map(|(from, to)| (from.saturating_sub(longest_ns), *to)).collect(),
        ]
    }

    fn joins(&self) -> impl Iterator<Item = (bool, Joined<'_>)> {
        (0..self.forward.len()).flat_map(move |number| {
            let ways = [0, 1].into_iter();
            ways.filter_map(move |way| Some((self.forward[number][way], self.joined(number, way)?)))
        })
    }

    /// Returns how the times of both captures lie; `None` if no connection is in both.
    fn relation(&self) -> Option<Relation> {
        let (mut forth, mut back): (Option<i64>, Option<i64>) = (None, None);
        for (is_forward, joined) in self.joins() {
            let Some(bounds) = joined.bounds() else { continue };
            if is_forward {
                forth = Some(forth.map_or(*bounds.start(), |least| least.min(*bounds.start())));
            } else {
                back = Some(back.map_or(*bounds.end(), |most| most.max(*bounds.end())));
            }
        }
        match (forth, back) {
            (None, None) => {
                let is_found = |of: &Partner| match of {
                    Partner::Known(_) => !self.doubts.is_empty(),
                    Partner::Ambiguous => true,
                    Partner::Unknown => false,
                };
                self.partners.of.iter().any(is_found).then_some(Relation::Same)
            }
            (Some(least), Some(most)) if most < least && !(most <= 0 && 0 <= least) => {
                Some(Relation::Apart { offset_ns: most + (least - most) / 2 })
            }
            (Some(least), None) if least >= SECOND_NS => Some(Relation::Apart { offset_ns: least }),
            (None, Some(least_ns)) => Some(Relation::Before { least_ns, swapped: None }),
            _ => Some(Relation::Same),
        }
    }

    fn grid(&self) -> Grid {
        let apart: Vec<i64> = self
            .joins()
            .flat_map(|(_, joined)| joined.apart().collect::<Vec<_>>())
            .take(MOST_APART)
            .collect();
        let times = self.sides.iter().flat_map(|side| side.packets.iter().take(MOST_APART));
        let times: Vec<u64> = times.map(|packet| packet.ts).collect();
        grid_of(&times, &apart)
    }

    /// Returns what became of each packet before the device.
    fn outcomes(&self) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::None; self.sides[0].packets.len()];
        for (number, connection) in self.sides[0].connections.iter().enumerate() {
            for (way, stream) in connection.streams.iter().enumerate() {
                let joined = self.joined(number, way);
                for piece in &stream.pieces {
                    let outcome = match joined {
                        Some(_) if !self.forward[number][way] => Outcome::Back,
                        Some(joined) => joined.outcome(piece),
                        None if self.partners.of[number] == Partner::Ambiguous => {
                            Outcome::Ambiguous
                        }
                        None => Outcome::Unresolved,
                    };
                    let all = &mut outcomes[piece.packet as usize];
                    *all = all.and(outcome);
                }
            }
        }
        outcomes
    }

    /// Returns the packets before the device for the matcher, in order of time.
    fn sent(&self, outcomes: &[Outcome]) -> Vec<Stamped> {
        let packets = self.sides[0].packets.iter().zip(outcomes).enumerate();
        let sent = packets.map(|(seq, (packet, outcome))| {
            let (key, kind) = match outcome {
                Outcome::Arrived(_) | Outcome::Lost => (Some(key_of(seq)), Kind::Forward),
                Outcome::Back => (Some(key_of(seq)), Kind::Back),
                Outcome::None | Outcome::Unresolved | Outcome::Ambiguous => (None, Kind::Forward),
            };
            Stamped::new(packet.ts, key).of(kind, packet.variety)
        });
        sent.collect()
    }

    /// Returns for the matcher, in order of time, each segment that came out, when it had, and the packets behind the device
    /// with which none had.
    fn seen(&self, outcomes: &[Outcome]) -> Vec<Event> {
        let arrived = outcomes.iter().enumerate().filter_map(|(seq, outcome)| match outcome {
            Outcome::Arrived(ts) => Some(Event::plain(Stamped::new(*ts, Some(key_of(seq))))),
            _ => None,
        });
        let mut seen: Vec<Event> = arrived.collect();
        let times: HashSet<u64> = seen.iter().map(|event| event.packet.ts).collect();
        let explained = self.explained();
        let back: HashSet<Name> = self.behind(false).map(|(name, ..)| name).collect();
        let packets = self.sides[1].packets.iter().zip(explained).enumerate();
        for (place, (packet, explained)) in packets {
            if explained && times.contains(&packet.ts) {
                continue;
            }
            let plain = Event::plain(Stamped::new(packet.ts, None));
            seen.push(match packet.role {
                _ if explained => Event { doubt: Some(Doubt::Part), ..plain },
                Role::First { connection, way } => {
                    let name = (connection as usize, usize::from(way));
                    if self.partners.ambiguous_behind.contains(&name.0) {
                        Event { doubt: Some(Doubt::Ambiguous), ..plain }
                    } else {
                        let is_back = back.contains(&name);
                        let kind = if is_back { Kind::Back } else { Kind::Forward };
                        let key = key_of(outcomes.len() + place);
                        Event::plain(Stamped::new(packet.ts, Some(key)).of(kind, 0))
                    }
                }
                Role::Other | Role::Empty | Role::Again => plain,
            });
        }
        seen.sort_by_key(|event| event.packet.ts);
        seen
    }

    /// Returns what is behind the device of streams that come out there, or do not, with the stream before it.
    fn behind(&self, comes_out: bool) -> impl Iterator<Item = (Name, Range<u64>, i64, &Stream)> {
        let joins = self.joins().filter(move |(is_forward, _)| *is_forward == comes_out);
        joins.flat_map(|(_, joined)| {
            let before = joined.before;
            joined
                .behind()
                .into_iter()
                .map(move |(name, places, shift)| (name, places, shift, before))
        })
    }

    /// Returns which packets behind the device carry bytes that came out of it.
    fn explained(&self) -> Vec<bool> {
        let mut explained = vec![false; self.sides[1].packets.len()];
        for (name, places, shift, before) in self.behind(true) {
            let pieces = &self.sides[1].connections[name.0].streams[name.1].pieces;
            let first = pieces.partition_point(|piece| piece.end <= places.start);
            for piece in pieces[first..].iter().take_while(|piece| piece.start < places.end) {
                let place = |place: u64| place.saturating_add_signed(-shift);
                if before.has_some(place(piece.start), place(piece.end)) {
                    explained[piece.packet as usize] = true;
                }
            }
        }
        explained
    }

    /// Returns how many connections of those before the device are known behind it.
    fn tried(&self) -> Tried {
        let with_bytes = |of: &&Connection| of.streams.iter().any(|stream| stream.len() > 0);
        let of = self.sides[0].connections.iter().filter(with_bytes).count() as u64;
        let known = self.partners.of.iter().filter(|of| matches!(of, Partner::Known(_)));
        Tried { key: MatchOn::TcpBytes.to_string(), matched: known.count() as u64, of }
    }

    /// Returns why no stream may be the same on both sides, as its first bytes tell.
    fn obstacle(&self) -> Option<Obstacle> {
        if [0, 1].into_iter().any(|side| self.mostly_begins(side, is_tls)) {
            return Some(Obstacle::Encrypted(Encryption::Tls));
        }
        [0, 1].into_iter().all(|side| self.mostly_begins(side, is_http)).then_some(Obstacle::Http)
    }

    /// Returns true if at least half of the connections of a side have a stream that begins so.
    fn mostly_begins(&self, side: usize, so: fn(&[u8]) -> bool) -> bool {
        let (mut all, mut fitting) = (0, 0);
        for connection in &self.sides[side].connections {
            let first = connection.streams.iter().filter_map(|stream| stream.pieces.first());
            let begins: Vec<bool> = first.map(|piece| so(self.sides[side].bytes(piece))).collect();
            all += usize::from(!begins.is_empty());
            fitting += usize::from(begins.contains(&true));
        }
        fitting > 0 && 2 * fitting >= all
    }

    fn counts(&self) -> TcpCounts {
        let mut counts = TcpCounts { sides: self.sides.map(side_counts), ..TcpCounts::default() };
        for partner in &self.partners.of {
            counts.paired += u64::from(matches!(partner, Partner::Known(_)));
            counts.ambiguous += u64::from(*partner == Partner::Ambiguous);
        }
        for (_, joined) in self.joins().filter(|(is_forward, _)| *is_forward) {
            if let Common::Parts(parts, _) = joined.common {
                counts.stretches += parts.len() as u64;
            }
            for piece in &joined.before.pieces {
                let bytes = piece.end - piece.start;
                counts.bytes += bytes;
                if let Outcome::Arrived(_) = joined.outcome(piece) {
                    counts.bytes_matched += bytes;
                }
            }
        }
        counts
    }
}

fn side_counts(streams: &Streams) -> TcpSide {
    let count = |role: Role| streams.packets.iter().filter(|packet| packet.role == role).count();
    TcpSide {
        connections: streams.connections.len() as u64,
        retransmitted: count(Role::Again) as u64,
        without_data: count(Role::Empty) as u64,
        not_tcp: count(Role::Other) as u64,
    }
}

/// Returns true if a stream of HTTP/1 begins like this.
fn is_http(bytes: &[u8]) -> bool {
    HTTP.iter().any(|begin| bytes.starts_with(begin))
}

/// A key that no other packet has.
fn key_of(place: usize) -> Key {
    Key::of_probe(place as u64)
}

/// What a packet is that the matcher takes for one without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// Its connection may be one of several.
    Ambiguous,
    /// It carries a part of a segment before the device.
    Part,
}

/// A packet behind the device, as the matcher sees it.
#[derive(Clone, Copy)]
struct Event {
    packet: Stamped,
    doubt: Option<Doubt>,
}

impl Event {
    fn plain(packet: Stamped) -> Self {
        Self { packet, doubt: None }
    }
}

/// Packets that the matcher takes for such without a key, within the trimmed interval.
struct Unkeyed {
    ambiguous: u64,
    unresolved: u64,
    ambiguous_behind: u64,
    parts_behind: u64,
}

impl Unkeyed {
    fn new(sent: &Streams, (outcomes, seen): (&[Outcome], &[Event]), trim: units::Nanos) -> Self {
        let first = seen.first().map(|event| event.packet.ts).filter(|_| trim.0 > 0);
        let cut = first.map(|first| first.saturating_add(trim.0));
        let is_kept = |ts: u64| cut.is_none_or(|cut| ts > cut);
        let kept = sent.packets.iter().zip(outcomes).filter(|(of, _)| is_kept(of.ts));
        let before = |wanted| kept.clone().filter(|(_, of)| **of == wanted).count() as u64;
        let kept = seen.iter().filter(|event| is_kept(event.packet.ts));
        let behind = |wanted| kept.clone().filter(|of| of.doubt == Some(wanted)).count() as u64;
        Self {
            ambiguous: before(Outcome::Ambiguous),
            unresolved: before(Outcome::Unresolved),
            ambiguous_behind: behind(Doubt::Ambiguous),
            parts_behind: behind(Doubt::Part),
        }
    }

    /// Counts them as what they are.
    fn count(&self, counts: &mut Counts) {
        counts.pre_unkeyed -= self.ambiguous + self.unresolved;
        counts.ambiguous += self.ambiguous;
        counts.sent += self.unresolved;
        counts.outside += self.unresolved;
        counts.post_unkeyed -= self.ambiguous_behind + self.parts_behind;
        counts.post_ambiguous += self.ambiguous_behind;
        counts.post_resegmented += self.parts_behind;
    }
}

/// One side of the pair, for the matcher.
struct Events {
    info: Info,
    files: Option<Files>,
    cut: Option<Cut>,
    events: Vec<Stamped>,
    gaps: Vec<(u64, u64)>,
    next: usize,
    handed: usize,
    news: News,
    side: Side,
}

impl Events {
    fn new(
        reader: Reader,
        streams: Streams,
        (events, gaps): (Vec<Stamped>, Vec<(u64, u64)>),
        trim: units::Nanos,
    ) -> Self {
        let (disordered, disorder_ns_max) = (streams.disordered, streams.disorder_ns_max);
        let (files, cut) = (reader.files().cloned(), reader.cut().cloned());
        let side = Side { disordered, disorder_ns_max, ..Side::new(trim) };
        let (info, news) = (reader.info(), streams.news);
        Self { info, files, cut, events, gaps, next: 0, handed: 0, news, side }
    }
}

impl Source for Events {
    fn name(&self) -> String {
        self.info.name.clone()
    }

    fn waiting(&mut self) -> Result<&[Stamped], Error> {
        if self.next == self.handed {
            let handed = (self.handed + BATCH).min(self.events.len());
            self.side.record_all(&self.events[self.handed..handed]);
            self.handed = handed;
        }
        Ok(&self.events[self.next..self.handed])
    }

    fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    fn take_gaps(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.gaps)
    }

    fn take(&mut self, count: usize) {
        assert!(count <= self.handed - self.next, "no more are taken than wait");
        self.next += count;
    }

    fn done_bytes(&self) -> u64 {
        0
    }

    fn finish(self) -> Captured {
        let Self { info, files, cut, side, .. } = self;
        Captured { name: info.name.clone(), info: Some(info), files, cut, side }
    }
}

/// Returns true if a pair is matched by bytes of streams.
pub(crate) fn is_asked(config: &Config) -> bool {
    config.match_on == MatchOn::TcpBytes || config.joined_by == Some(MatchOn::TcpBytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use capture::InterfaceChoice;

    use super::*;
    use crate::basis::Clocks;
    use crate::stream::samples::{Sent, write};

    /// The analysis of captures, each in files.
    fn analyzed(sides: [&[&[Sent]]; 2], doubts: Doubts) -> Counts {
        let folder = tempfile::tempdir().unwrap();
        let readers = [0, 1].map(|side: usize| {
            let files = sides[side].iter().enumerate().map(|(number, segments)| {
                let path: PathBuf = folder.path().join(format!("{side}_{number}.pcap"));
                write(&path, segments);
                (path, InterfaceChoice::default())
            });
            Reader::open_all(&files.collect::<Vec<_>>()).unwrap()
        });
        let clocks = Clocks::Same;
        let config = Config { match_on: MatchOn::TcpBytes, clocks, doubts, ..Config::default() };
        analyze_streams(readers, &config, vec![], &mut ()).unwrap().counts
    }

    /// A connection of segments that are a millisecond apart.
    fn sent(connection: u16, start_ns: i64, count: u32) -> Vec<Sent> {
        let each = (0..count).map(|number| {
            let unique = (u64::from(connection) << 32 | u64::from(number)).to_be_bytes();
            let ts = start_ns.unsigned_abs() + 1_000_000 * u64::from(number);
            let (syn, sequence) =
                (number == 0, number.saturating_sub(1) * 8 + u32::from(number > 0));
            let data = if syn { vec![] } else { unique.to_vec() };
            Sent { ts, connection, syn, sequence, data, ..Sent::default() }
        });
        each.collect()
    }

    #[test]
    fn what_comes_between_two_files_is_not_lost() {
        let (pre, post) = (sent(0, 1_000_000_000, 3000), sent(0, 1_000_050_000, 3000));
        let (first, last) = (&post[..1000], &post[2000..]);
        let counts = analyzed([&[&pre], &[first, last]], Doubts::default());
        assert_eq!((counts.matched, counts.lost, counts.outside), (1999, 0, 1000));
        let (first, last) = (&pre[..1000], &pre[2000..]);
        let counts = analyzed([&[first, last], &[&post]], Doubts::default());
        assert_eq!((counts.matched, counts.lost, counts.post_unknown), (1999, 0, 0));
    }

    #[test]
    fn times_in_doubt_do_not_tell_which_way_a_connection_goes() {
        let second = 1_000_000_000;
        let pre = [sent(0, second, 51), sent(1, 10 * second, 51)].concat();
        let post = [sent(0, second - 50_000_000, 51), sent(1, 10 * second + 1000, 51)].concat();
        let doubts = Doubts::new([vec![], vec![(0, 5_000_000_000)]]);
        let counts = analyzed([&[&pre], &[&post]], doubts.clone());
        assert_eq!((counts.matched, counts.untimed, counts.reverse), (50, 50, 0));
        let [pre, post] = [pre, post].map(|side| side[..51].to_vec());
        let counts = analyzed([&[&pre], &[&post]], doubts);
        assert_eq!((counts.untimed, counts.reverse), (50, 0));
    }
}
