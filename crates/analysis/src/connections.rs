//! Which connection before the device is which behind it: by the bytes of both of its streams, and where several have
//! the same bytes, by what time leaves possible. What is not certain is ambiguous.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::align::{Anchor, Fit, PROOF, View, anchors};
use crate::stream::{BASE, Connection, Seen, Stream, Streams};

/// Bytes of the beginning of a stream that find others which begin alike: so many, or as many as there are.
const HEADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// An anchor of more streams tells nothing.
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
}

impl<'a> Contents<'a> {
    fn new(streams: &'a Streams, classes: &mut HashMap<u128, u32>) -> Self {
        let mut contents = Self { streams, anchors: Vec::new(), classes: Vec::new() };
        for connection in &streams.connections {
            contents.anchors.push([0, 1].map(|way| anchors(streams, &connection.streams[way])));
            contents.classes.push([0, 1].map(|way: usize| {
                let next = classes.len() as u32;
                *classes.entry(streams.hash(&connection.streams[way])).or_insert(next)
            }));
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
    by_anchor: HashMap<u64, Vec<Name>>,
    /// By beginning; with each stream whether it is no longer than that.
    by_head: HashMap<Vec<u8>, Vec<(Name, bool)>>,
}

/// Returns the beginnings by which others that begin alike are found, the longest last.
fn heads(head: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    HEADS.iter().filter_map(|len| head.get(..*len))
}

impl Index {
    fn new(behind: &Contents<'_>) -> Self {
        let mut index = Self::default();
        for (number, connection) in (0u32..).zip(&behind.streams.connections) {
            for way in [0u8, 1] {
                let name = (number, way);
                for anchor in &behind.anchors[number as usize][usize::from(way)] {
                    let alike = index.by_anchor.entry(anchor.hash).or_default();
                    if alike.last() != Some(&name) {
                        alike.push(name);
                    }
                }
                let head = behind.head(&connection.streams[usize::from(way)]);
                for (at, begin) in heads(&head).rev().enumerate() {
                    let alike = index.by_head.entry(begin.to_vec()).or_default();
                    alike.push((name, at == 0));
                }
            }
        }
        index
    }

    /// Adds streams that may be those of `way` of a connection before the device.
    fn find(&self, before: &Contents<'_>, (number, way): (usize, usize), to: &mut BTreeSet<Name>) {
        let anchors = &before.anchors[number][way];
        let found = anchors.iter().filter_map(|anchor| self.by_anchor.get(&anchor.hash));
        let telling = found.filter(|alike| alike.len() <= MOST_ALIKE);
        telling.take(MOST_FOUND).for_each(|alike| to.extend(alike));
        let head = before.head(&before.streams.connections[number].streams[way]);
        for (at, begin) in heads(&head).rev().enumerate() {
            let alike = self.by_head.get(begin).into_iter().flatten();
            // Of a shorter beginning, only those that end with it: of others more is known.
            to.extend(alike.filter(|(_, ends)| at == 0 || *ends).map(|(name, _)| *name));
        }
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
    /// How streams lie over each other, by their classes.
    fits: HashMap<(u32, u32), Fit>,
}

/// Pairs the connections of two captures.
pub(crate) fn partners(before: &Streams, behind: &Streams, window_ns: u64) -> Partners {
    let mut classes = HashMap::new();
    let before = Contents::new(before, &mut classes);
    let behind = Contents::new(behind, &mut classes);
    let pairs = before.streams.connections.len() * behind.streams.connections.len();
    let index = (pairs > FEW_PAIRS).then(|| Index::new(&behind));
    let mut pairing = Pairing { before, behind, window_ns, fits: HashMap::new() };
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
        let mut all: BTreeSet<(usize, bool)> = BTreeSet::new();
        if let Some(index) = index {
            for way in [0, 1] {
                let mut names = BTreeSet::new();
                index.find(&self.before, (number, way), &mut names);
                let crossed = |other: u8| usize::from(other) != way;
                all.extend(names.into_iter().map(|(of, other)| (of as usize, crossed(other))));
            }
        } else {
            let behind = 0..self.behind.streams.connections.len();
            all.extend(behind.flat_map(|of| [(of, false), (of, true)]));
        }
        let few = index.is_none() || all.len() <= MOST_KEPT;
        let pairs = all.into_iter().filter_map(|(behind, crossed)| {
            let pair = self.pair(number, behind, crossed)?;
            let possible = || SENDERS.iter().any(|sender| self.is_possible(number, &pair, *sender));
            (few || possible()).then_some(pair)
        });
        pairs.collect()
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
                let fit = *self.fits.entry(classes).or_insert_with(|| mine.fit(&others));
                if fit == Fit::None {
                    return None;
                }
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
                if way == *forward {
                    follows(mine, others, shift, self.window_ns)
                } else {
                    follows(others, mine, -shift, self.window_ns)
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

/// Returns true if all bytes of `source` that `sink` has too, `shift` further on, were seen there at the same time or
/// later, within a window, and the sink has none behind the end of the source.
fn follows(source: &Stream, sink: &Stream, shift: i64, window_ns: u64) -> bool {
    let place = |place: u64| place.saturating_add_signed(shift);
    let ends = |end: u64| sink.span().is_none_or(|(_, last)| last <= place(end));
    source.end.is_none_or(ends)
        && source.pieces.iter().all(|piece| match sink.seen(place(piece.start), place(piece.end)) {
            Seen::At(ts) => ts.checked_sub(piece.ts).is_some_and(|ns| ns < window_ns),
            Seen::Not(_) => true,
        })
}
