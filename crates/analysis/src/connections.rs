//! Which connection before the device is which behind it: by the bytes of both of its streams, and where several have
//! the same bytes, by what time leaves possible. What is not certain is ambiguous.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use xxhash_rust::xxh3::xxh3_128;

use crate::align::{Anchor, DENSE_FIRST, Fit, PROOF, View, anchors};
use crate::doubts::Doubts;
use crate::stream::{BASE, Connection, Seen, Stream, Streams};

/// Bytes of the beginning of a stream that find others which begin alike: so many, or as many as there are.
const HEADS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// An anchor or a beginning of more streams tells nothing.
const MOST_ALIKE: usize = 4096;
/// Of more candidates only those are kept that time leaves possible.
const MOST_KEPT: usize = 64;
/// Of so many pairs of connections, each is tried.
const FEW_PAIRS: usize = 4096;
/// Anchors of a stream that are found behind the device which are followed.
const MOST_FOUND: usize = 64;

/// The counterpart of a connection before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// None is known.
    Unknown,
    /// One of several connections, or bytes that repeat.
    Ambiguous,
    /// This one.
    Known(Pair),
}

/// A connection behind the device, and how one before it lies over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Its place behind the device.
    pub behind: usize,
    /// True if the first stream of one is the second of the other.
    pub crossed: bool,
    /// How each stream before the device lies over its counterpart; `None` where one of the two has no bytes.
    pub fits: [Option<Fit>; 2],
}

impl Pair {
    /// Returns which stream behind the device is that of `way` before it.
    pub fn way_behind(&self, way: usize) -> usize {
        if self.crossed { 1 - way } else { way }
    }

    /// Returns how far on behind the device places of the stream `way` lie.
    pub fn shift(&self, way: usize) -> Option<i64> {
        match self.fits[way] {
            Some(Fit::One { shift, .. }) => Some(shift),
            _ => None,
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = self.fits.iter().flatten().map(|fit| match fit {
            Fit::One { bytes, .. } => *bytes,
            Fit::None | Fit::Several => 0,
        });
        bytes.sum()
    }

    fn repeats(&self) -> bool {
        self.fits.contains(&Some(Fit::Several))
    }
}

/// The connections of two captures that belong together.
pub(crate) struct Partners {
    /// The counterpart of each connection before the device.
    pub of: Vec<Partner>,
    /// Connections behind the device that may be those of ambiguous ones.
    pub ambiguous_behind: BTreeSet<usize>,
}

/// One side, as content is looked for in it.
struct Contents<'a> {
    streams: &'a Streams,
    anchors: Vec<[Vec<Anchor>; 2]>,
    /// Streams of the same content have the same number.
    classes: Vec<[u32; 2]>,
    /// Times in ns of the first and the last bytes of each connection.
    spans_ns: Vec<(u64, u64)>,
}

impl<'a> Contents<'a> {
    fn new(streams: &'a Streams, classes: &mut HashMap<u128, u32>) -> Self {
        let (anchors_of, spans_ns) = (Vec::new(), Vec::new());
        let mut contents = Self { streams, anchors: anchors_of, classes: Vec::new(), spans_ns };
        for connection in &streams.connections {
            let anchors = |stream| anchors(streams, stream, DENSE_FIRST);
            contents.anchors.push([0, 1].map(|way: usize| anchors(&connection.streams[way])));
            contents.classes.push([0, 1].map(|way: usize| {
                let next = classes.len() as u32;
                *classes.entry(streams.hash(&connection.streams[way])).or_insert(next)
            }));
            let times = connection.streams.iter().flat_map(|of| &of.pieces).map(|piece| piece.ts);
            let first_ns = times.clone().min().unwrap_or(0);
            contents.spans_ns.push((first_ns, times.max().unwrap_or(0)));
        }
        contents
    }

    fn view(&self, connection: usize, way: usize) -> View<'_> {
        let stream = &self.streams.connections[connection].streams[way];
        View { streams: self.streams, stream, anchors: &self.anchors[connection][way] }
    }

    /// Returns the beginning of a stream, as far as it is known.
    fn head(&self, stream: &Stream) -> Vec<u8> {
        let (mut head, mut reached) = (Vec::new(), BASE);
        for piece in stream.pieces.iter().filter(|_| stream.opened) {
            if piece.start != reached || head.len() >= HEADS[HEADS.len() - 1] {
                break;
            }
            head.extend_from_slice(self.streams.bytes(piece));
            reached = piece.end;
        }
        head
    }
}

/// A stream: its connection, and its number there.
type Name = (u32, u8);

/// Streams behind the device by what they contain.
#[derive(Default)]
struct Index {
    by_class: HashMap<u32, Vec<Name>>,
    by_anchor: HashMap<u64, Vec<Name>>,
    /// By hash of the beginning: those of which no longer one is known, and others.
    by_head: HashMap<u128, [Vec<Name>; 2]>,
}

/// Returns hashes of the beginnings by which others that begin alike are found, the longest last.
fn heads(head: &[u8]) -> impl DoubleEndedIterator<Item = u128> {
    HEADS.iter().filter_map(|len| head.get(..*len)).map(xxh3_128)
}

impl Index {
    fn new(behind: &Contents<'_>) -> Self {
        let mut index = Self::default();
        for (number, connection) in (0u32..).zip(&behind.streams.connections) {
            for way in [0u8, 1] {
                let name = (number, way);
                if !connection.streams[usize::from(way)].pieces.is_empty() {
                    let class = behind.classes[number as usize][usize::from(way)];
                    index.by_class.entry(class).or_default().push(name);
                }
                for anchor in &behind.anchors[number as usize][usize::from(way)] {
                    let alike = index.by_anchor.entry(anchor.hash).or_default();
                    if alike.last() != Some(&name) {
                        alike.push(name);
                    }
                }
                let head = behind.head(&connection.streams[usize::from(way)]);
                for (at, begin) in heads(&head).rev().enumerate() {
                    let alike = index.by_head.entry(begin).or_default();
                    alike[usize::from(at > 0)].push(name);
                }
            }
        }
        index
    }

    /// Returns streams that may be those of `way` of a connection before the device: of equal content, with the rarest
    /// anchors that it has, or that begin alike. Only the first that are found may be many.
    fn find(&self, before: &Contents<'_>, (number, way): (usize, usize)) -> Cow<'_, [Name]> {
        let equal = self.by_class.get(&before.classes[number][way]).map_or(&[][..], Vec::as_slice);
        if equal.len() > MOST_KEPT {
            return Cow::Borrowed(equal);
        }
        let mut all: BTreeSet<Name> = equal.iter().copied().collect();
        let mut add = |alike: &mut dyn Iterator<Item = Name>| {
            let most =
                if all.is_empty() { MOST_ALIKE } else { MOST_KEPT.saturating_sub(all.len()) };
            let names: Vec<Name> = alike.take(most + 1).collect();
            if names.len() <= most {
                all.extend(names);
            }
        };
        let anchors = &before.anchors[number][way];
        let found = anchors.iter().filter_map(|anchor| self.by_anchor.get(&anchor.hash));
        let mut rarest: Vec<&Vec<Name>> = found.collect();
        rarest.sort_by_key(|alike| alike.len());
        rarest.iter().take(MOST_FOUND).for_each(|alike| add(&mut alike.iter().copied()));
        let head = before.head(&before.streams.connections[number].streams[way]);
        for (at, begin) in heads(&head).rev().enumerate() {
            let alike = self.by_head.get(&begin).into_iter();
            // Of a shorter beginning, only those that end with it: of others more is known.
            let kinds = if at == 0 { 2 } else { 1 };
            add(&mut alike.flat_map(|of| of[..kinds].iter().flatten().copied()));
        }
        Cow::Owned(all.into_iter().collect())
    }
}

/// Which end of a connection sends what comes out behind the device: the one that opened it, or the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Opener,
    Answerer,
}

const SENDERS: [Sender; 2] = [Sender::Opener, Sender::Answerer];

impl Sender {
    /// Returns the streams of a connection that may be the one that comes out behind the device.
    fn ways(self, connection: &Connection) -> &'static [usize] {
        match (connection.opener, self) {
            (None, _) => &[0, 1],
            (Some(0), Self::Opener) | (Some(1), Self::Answerer) => &[0],
            (Some(_), _) => &[1],
        }
    }
}

/// Two captures, of which connections are paired.
struct Pairing<'a> {
    before: Contents<'a>,
    behind: Contents<'a>,
    window_ns: u64,
    doubts: &'a Doubts,
    /// How streams lie over each other, by their classes, if they do.
    fits: HashMap<(u32, u32), Fit>,
}

/// Pairs the connections of two captures: bytes take less than a window, unless a clock is in doubt.
pub(crate) fn partners(
    before: &Streams,
    behind: &Streams,
    (window_ns, doubts): (u64, &Doubts),
) -> Partners {
    let mut classes = HashMap::new();
    let before = Contents::new(before, &mut classes);
    let behind = Contents::new(behind, &mut classes);
    let pairs = before.streams.connections.len() * behind.streams.connections.len();
    let index = (pairs > FEW_PAIRS).then(|| Index::new(&behind));
    let mut pairing = Pairing { before, behind, window_ns, doubts, fits: HashMap::new() };
    let mut candidates = BTreeMap::new();
    for number in 0..pairing.before.streams.connections.len() {
        let found = pairing.candidates(number, index.as_ref());
        if !found.is_empty() {
            candidates.insert(number, found);
        }
    }
    pairing.resolve(candidates)
}

/// Candidates by connection before the device.
type Candidates = BTreeMap<usize, Vec<Pair>>;

impl Pairing<'_> {
    fn candidates(&mut self, number: usize, index: Option<&Index>) -> Vec<Pair> {
        let Some(index) = index else {
            let behind = 0..self.behind.streams.connections.len();
            let all = behind.flat_map(|of| [(of, false), (of, true)]);
            return all.filter_map(|(of, crossed)| self.pair(number, of, crossed)).collect();
        };
        let mut found = [0, 1].map(|way| (way, index.find(&self.before, (number, way))));
        found.sort_by_key(|(_, names)| names.len());
        let (mut pairs, mut all) = (Vec::new(), BTreeSet::new());
        for (way, names) in found {
            let few = names.len() <= MOST_KEPT;
            // Both streams of one fit: where one tells which it may be, the other one need not.
            if !few && !pairs.is_empty() {
                break;
            }
            for (behind, other) in names.iter() {
                let (behind, crossed) = (*behind as usize, usize::from(*other) != way);
                if !(few || self.is_near(number, behind)) || !all.insert((behind, crossed)) {
                    continue;
                }
                let Some(pair) = self.pair(number, behind, crossed) else { continue };
                let possible = |sender: &Sender| self.is_possible(number, &pair, *sender);
                if few || SENDERS.iter().any(possible) {
                    pairs.push(pair);
                }
            }
        }
        pairs
    }

    /// Returns true if a connection and one behind the device are less than a window apart, or a clock is in doubt.
    fn is_near(&self, number: usize, behind: usize) -> bool {
        let (one, other) = (self.before.spans_ns[number], self.behind.spans_ns[behind]);
        let apart_ns = one.0.saturating_sub(other.1).max(other.0.saturating_sub(one.1));
        apart_ns < self.window_ns || !self.doubts.is_empty()
    }

    /// Returns how a connection lies over one behind the device, if both streams fit.
    fn pair(&mut self, number: usize, behind: usize, crossed: bool) -> Option<Pair> {
        let (one, other) =
            (&self.before.streams.connections[number], &self.behind.streams.connections[behind]);
        if let (Some(opener), Some(behind)) = (one.opener, other.opener) {
            if (opener != behind) != crossed {
                return None;
            }
        }
        let mut pair = Pair { behind, crossed, fits: [None; 2] };
        for way in [0, 1] {
            let other_way = pair.way_behind(way);
            let has_bytes = |stream: &Stream| !stream.pieces.is_empty();
            if has_bytes(&one.streams[way]) && has_bytes(&other.streams[other_way]) {
                let classes =
                    (self.before.classes[number][way], self.behind.classes[behind][other_way]);
                let (mine, others) =
                    (self.before.view(number, way), self.behind.view(behind, other_way));
                let known = self.fits.get(&classes).copied();
                let fit = known.unwrap_or_else(|| mine.fit(&others));
                if fit == Fit::None {
                    return None;
                }
                self.fits.insert(classes, fit);
                pair.fits[way] = Some(fit);
            }
        }
        (pair.bytes() >= PROOF || pair.repeats()).then_some(pair)
    }

    /// Returns true if every byte was seen first where it came from, if `sender` sends what comes out behind the
    /// device, and later at the other side, within the window.
    fn is_possible(&self, number: usize, pair: &Pair, sender: Sender) -> bool {
        let (before, behind) = (
            &self.before.streams.connections[number],
            &self.behind.streams.connections[pair.behind],
        );
        let ways = sender.ways(before);
        ways.iter().any(|forward| {
            [0, 1].into_iter().all(|way| {
                let Some(shift) = pair.shift(way) else { return true };
                let (mine, others) = (&before.streams[way], &behind.streams[pair.way_behind(way)]);
                let in_time =
                    |from: u64, to: u64| to.checked_sub(from).is_some_and(|ns| ns < self.window_ns);
                let doubted = |pre_ns, post_ns| self.doubts.concern(pre_ns, post_ns);
                if way == *forward {
                    follows(mine, others, shift, |from, to| in_time(from, to) || doubted(from, to))
                } else {
                    follows(others, mine, -shift, |from, to| in_time(from, to) || doubted(to, from))
                }
            })
        })
    }

    fn resolve(&self, mut candidates: Candidates) -> Partners {
        let mut of = vec![Partner::Unknown; self.before.streams.connections.len()];
        take_certain(&mut candidates, &mut of);
        let mut tried = self.senders(&of).into_iter().map(|sender| {
            let (mut left, mut of) = (candidates.clone(), of.clone());
            for (number, pairs) in &mut left {
                pairs.retain(|pair| self.is_possible(*number, pair, sender));
            }
            (take_certain(&mut left, &mut of), left, of)
        });
        let one = tried.next().expect("one way at least");
        let (left, mut of) = match tried.next() {
            // Neither way explains more: what both say is certain, and nothing else.
            Some(other) if one.0 == other.0 && one.2 == other.2 => (candidates, one.2),
            Some(other) if one.0 == other.0 => (candidates, of),
            Some(other) if one.0 < other.0 => (other.1, other.2),
            _ => (one.1, one.2),
        };
        let mut ambiguous_behind = BTreeSet::new();
        for (number, pairs) in left.into_iter().filter(|(_, pairs)| !pairs.is_empty()) {
            if of[number] == Partner::Unknown {
                of[number] = Partner::Ambiguous;
                ambiguous_behind.extend(pairs.iter().map(|pair| pair.behind));
            }
        }
        Partners { of, ambiguous_behind }
    }

    /// Returns which ends may send what comes out behind the device, as known pairs tell.
    fn senders(&self, of: &[Partner]) -> Vec<Sender> {
        let known = of.iter().enumerate().filter_map(|(number, partner)| match partner {
            Partner::Known(pair) => Some((number, pair)),
            Partner::Unknown | Partner::Ambiguous => None,
        });
        let connections = &self.before.streams.connections;
        let known = known.filter(|(number, _)| connections[*number].opener.is_some());
        let possible = |sender: &Sender| {
            known.clone().any(|(number, pair)| self.is_possible(number, pair, *sender))
        };
        let found: Vec<Sender> = SENDERS.into_iter().filter(possible).collect();
        if found.is_empty() { SENDERS.to_vec() } else { found }
    }
}

/// Takes connections that are each other's only candidates; returns how many.
fn take_certain(candidates: &mut Candidates, of: &mut [Partner]) -> usize {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for pair in candidates.values().flatten() {
        *counts.entry(pair.behind).or_default() += 1;
    }
    let mut taken = 0;
    candidates.retain(|number, pairs| {
        let [pair] = pairs[..] else { return !pairs.is_empty() };
        if counts[&pair.behind] > 1 || pair.repeats() {
            return true;
        }
        of[*number] = Partner::Known(pair);
        taken += 1;
        false
    });
    taken
}

/// Returns true if all bytes of `source` that `sink` has too, `shift` further on, may have been seen there by their
/// times, and the sink has none behind the end of the source.
fn follows(
    source: &Stream,
    sink: &Stream,
    shift: i64,
    is_possible: impl Fn(u64, u64) -> bool,
) -> bool {
    let place = |place: u64| place.saturating_add_signed(shift);
    let ends = |end: u64| sink.span().is_none_or(|(_, last)| last <= place(end));
    source.end.is_none_or(ends)
        && source.pieces.iter().all(|piece| match sink.seen(place(piece.start), place(piece.end)) {
            Seen::At(ts) => is_possible(piece.ts, ts),
            Seen::Not(_) => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::samples::{Sent, streams};

    /// Requests that begin and end alike, each on its own connection, and the same answer to all.
    fn asked(count: u16, side: u64) -> Vec<Sent> {
        let each = (0..count).flat_map(|number| {
            let ts = u64::from(number) * 100_000 + side * 5_000;
            let request = format!(
                "GET /api/v1/items HTTP/1.1\r\nX-Request-Id: {:016x}\r\nHost: items.example\r\n\
                 User-Agent: a client of items\r\nAccept: application/json, text/plain\r\n\r\n",
                u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            );
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text\r\n\r\nok";
            let sent = Sent { ts, connection: number, ..Sent::default() };
            [
                Sent { syn: true, ..sent.clone() },
                Sent { ts: ts + 10_000, sequence: 1, data: request.into(), ..sent.clone() },
                Sent {
                    ts: ts + 40_000 - 2 * side * 5_000,
                    back: true,
                    data: answer.into(),
                    ..sent
                },
            ]
        });
        each.collect()
    }

    #[test]
    fn many_connections_that_begin_alike_are_told_apart() {
        let count = 4000;
        let sides = [streams(&asked(count, 0)), streams(&asked(count, 1))];
        let found = partners(&sides[0], &sides[1], (5_000_000_000, &Doubts::default()));
        for (number, partner) in found.of.iter().enumerate() {
            assert!(
                matches!(partner, Partner::Known(pair) if pair.behind == number),
                "{partner:?}"
            );
        }
    }

    #[test]
    fn many_connections_of_which_bytes_are_missing_are_told_apart() {
        let count = 1000;
        let mut behind = asked(count, 1);
        for request in behind.iter_mut().filter(|sent| sent.sequence == 1) {
            request.data.truncate(request.data.len() - 20);
        }
        let sides = [streams(&asked(count, 0)), streams(&behind)];
        let found = partners(&sides[0], &sides[1], (5_000_000_000, &Doubts::default()));
        let known = found.of.iter().enumerate().filter(
            |(number, partner)| matches!(partner, Partner::Known(pair) if pair.behind == *number),
        );
        assert_eq!(known.count(), usize::from(count));
    }
}
