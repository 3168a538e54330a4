//! Stretches of streams that a device passes on as they are, while it changes what lies around them, as a proxy does that
//! writes heads anew.
//!
//! A stretch is known by what it contains once in either capture, and reaches as far as the bytes are equal, within its
//! message: the heads of messages that have nothing to do with each other begin alike. What two stretches claim is
//! neither's.

use crate::align::{Anchor, Spread, anchors};
use crate::error::Shared;
use crate::stream::{Connection, Stream, Streams};

/// One place in 64 is an anchor, wherever it lies in a stream.
const SPREAD: Spread = &[(u64::MAX, 6)];
/// Bytes from the first to the last place of a stretch that is nowhere else, at least. Times of day in a head, which
/// another message may have too, are shorter.
const PROOF: u64 = 256;
/// Places in common that say that streams were changed, and are not others: so many, and one in so many.
const FEWEST_SHARED: usize = 16;
const SHARE: usize = 10;

/// What a head of HTTP/1 has in its first line.
const VERSION: &[u8] = b"HTTP/1.";
const METHODS: [&[u8]; 9] =
    [b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE"];
/// The longest first line of a head that is looked for, in bytes.
const LONGEST_LINE: usize = 16_384;

/// A stream: its connection, and its number there.
pub(crate) type Name = (usize, usize);

/// Bytes of a stream before the device that are those of one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub start: u64,
    pub end: u64,
    pub behind: Name,
    /// How far on behind the device its places lie.
    pub shift: i64,
}

impl Stretch {
    /// Returns the places behind the device of those of its bytes that lie from `start` to `end` before it.
    pub fn behind(&self, start: u64, end: u64) -> (u64, u64) {
        let place = |place: u64| place.saturating_add_signed(self.shift);
        (place(self.start.max(start)), place(self.end.min(end)))
    }
}

/// What two captures have in common.
pub(crate) struct Stretches {
    /// Stretches of each stream before the device, by its connection and number, in order of their places.
    pub of: Vec<[Vec<Stretch>; 2]>,
    /// How much of what a capture has once both have.
    pub shared: Shared,
}

/// A place that a capture has once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    hash: u64,
    name: Name,
    place: u64,
}

/// A stretch, with the first and the last mark in it.
struct Found {
    name: Name,
    stretch: Stretch,
    first: u64,
    last: u64,
}

/// Returns the stretches of two captures; `None` if too little is in both to say that one traffic is.
pub(crate) fn stretches([before, behind]: [&Streams; 2]) -> Option<Stretches> {
    let [sent, seen] = [before, behind].map(marks);
    let met = |mark: &Mark| {
        let at = seen.binary_search_by_key(&mark.hash, |of| of.hash).ok()?;
        Some((mark.name, mark.place, seen[at]))
    };
    let mut both: Vec<_> = sent.iter().filter_map(met).collect();
    let shared = Shared { both: both.len(), of: sent.len() };
    if shared.both < FEWEST_SHARED || shared.both * SHARE < shared.of {
        return None;
    }
    both.sort_unstable();
    let mut found: Vec<Found> = Vec::new();
    let (mut of_heads, mut heads) = (None, Vec::new());
    for (name, place, mark) in both {
        let shift = mark.place as i64 - place as i64;
        let former = found.last_mut().filter(|former| former.name == name);
        let floor = former.as_ref().map_or(0, |former| former.last);
        if let Some(former) = former.filter(|former| place <= former.stretch.end) {
            former.last = place;
            continue;
        }
        let mine = &before.connections[name.0].streams[name.1];
        let others = &behind.connections[mark.name.0].streams[mark.name.1];
        if of_heads.replace(name) != Some(name) {
            heads = heads_of(before, mine);
        }
        let next = heads.partition_point(|head| *head < place);
        let floor = floor.max(if next == 0 { 0 } else { heads[next - 1] });
        let most = heads.get(next).map_or(usize::MAX, |head| (head - place) as usize);
        let equal = |pair: &(u8, u8)| pair.0 == pair.1;
        let back = before.backwards(mine, place).zip(behind.backwards(others, mark.place));
        let on = before.onwards(mine, place).zip(behind.onwards(others, mark.place));
        let back = back.take((place - floor) as usize).take_while(equal).count() as u64;
        let on = on.take(most).take_while(equal).count() as u64;
        let stretch = Stretch { start: place - back, end: place + on, behind: mark.name, shift };
        found.push(Found { name, stretch, first: place, last: place });
    }
    // Those before the device are in order already.
    let starts = |of: &Found| (of.name, of.stretch.start, of.stretch.end);
    let own = own_parts(found.iter().map(starts));
    let mut order: Vec<usize> = (0..found.len()).collect();
    let starts = |of: &Found| {
        let (start, end) = of.stretch.behind(0, u64::MAX);
        (of.stretch.behind, start, end)
    };
    order.sort_unstable_by_key(|at| starts(&found[*at]));
    let others = own_parts(order.iter().map(|at| starts(&found[*at])));
    let mut of: Vec<[Vec<Stretch>; 2]> = vec![Default::default(); before.connections.len()];
    let mut parts: Vec<Stretch> = found.iter().map(|found| found.stretch).collect();
    for (part, (start, end)) in parts.iter_mut().zip(own) {
        (part.start, part.end) = (start, end);
    }
    for (at, (start, end)) in order.into_iter().zip(others) {
        let part = &mut parts[at];
        let place = |place: u64| place.saturating_add_signed(-part.shift);
        (part.start, part.end) = (part.start.max(place(start)), part.end.min(place(end)));
    }
    for (part, found) in parts.into_iter().zip(found) {
        if part.start < part.end && found.last - found.first >= PROOF {
            of[found.name.0][found.name.1].push(part);
        }
    }
    Some(Stretches { of, shared })
}

/// Returns where the heads of HTTP/1 begin in a stream, in order.
fn heads_of(streams: &Streams, stream: &Stream) -> Vec<u64> {
    let (mut heads, mut line, mut reached) = (Vec::new(), Vec::new(), 0);
    for piece in &stream.pieces {
        if piece.start != reached {
            line.clear();
        }
        for (place, byte) in (piece.start + 1..).zip(streams.bytes(piece)) {
            if *byte == b'\n' || line.len() == LONGEST_LINE {
                line.clear();
            } else {
                line.push(*byte);
                if *byte == b'.' && line.ends_with(VERSION) {
                    heads.push(place - first_line(&line) as u64);
                }
            }
        }
        reached = piece.end;
    }
    heads
}

/// Returns how many bytes of the first line of a head are there, where a line ends with `VERSION`. The content of the
/// message before it may end in this line.
fn first_line(line: &[u8]) -> usize {
    let request = || {
        let words = line[..line.len() - VERSION.len()].strip_suffix(b" ")?;
        let method = &words[..words.iter().rposition(|byte| *byte == b' ')?];
        let known = METHODS.iter().find(|known| method.ends_with(known))?;
        Some(line.len() - method.len() + known.len())
    };
    request().unwrap_or(VERSION.len())
}

/// Returns the places that a capture has once, in order of their hashes.
fn marks(streams: &Streams) -> Vec<Mark> {
    let named = |(number, connection): (usize, &Connection)| {
        [0, 1].map(|way| ((number, way), anchors(streams, &connection.streams[way], SPREAD)))
    };
    let of = |(name, anchors): (Name, Vec<Anchor>)| {
        anchors.into_iter().map(move |Anchor { hash, place }| Mark { hash, name, place })
    };
    let all = streams.connections.iter().enumerate().flat_map(named).flat_map(of);
    let mut all: Vec<Mark> = all.collect();
    all.sort_unstable();
    let once = all.chunk_by(|one, other| one.hash == other.hash).filter(|alike| alike.len() == 1);
    once.flatten().copied().collect()
}

/// Returns what of each interval of a stream no other one has, which may be nothing. They come in order.
fn own_parts(intervals: impl Iterator<Item = (Name, u64, u64)>) -> Vec<(u64, u64)> {
    let intervals: Vec<_> = intervals.collect();
    let (mut own, mut reached) = (Vec::with_capacity(intervals.len()), 0);
    for (at, &(name, start, end)) in intervals.iter().enumerate() {
        if at == 0 || intervals[at - 1].0 != name {
            reached = 0;
        }
        let next = intervals.get(at + 1).filter(|next| next.0 == name);
        own.push((start.max(reached), next.map_or(end, |next| end.min(next.1))));
        reached = reached.max(end);
    }
    own
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::BASE;
    use crate::stream::samples::{Sent, streams};

    /// Bytes that are nowhere else.
    fn unique(seed: u64, len: usize) -> Vec<u8> {
        let of = |at: u64| (seed << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        (0..len as u64).map(|at| (of(at).wrapping_mul(0x9e37_79b9) >> 40) as u8).collect()
    }

    /// A stream of one connection, in segments of a size.
    fn sent(connection: u16, data: &[u8], size: usize) -> Vec<Sent> {
        let syn = Sent { connection, syn: true, ..Sent::default() };
        let segments = data.chunks(size).enumerate().map(|(number, data)| Sent {
            ts: 1 + number as u64,
            connection,
            sequence: 1 + (number * size) as u32,
            data: data.to_vec(),
            ..Sent::default()
        });
        std::iter::once(syn).chain(segments).collect()
    }

    fn found(pre: &[Sent], post: &[Sent]) -> Option<Vec<Stretch>> {
        let sides = [streams(pre), streams(post)];
        let found = stretches([&sides[0], &sides[1]])?;
        Some(found.of.into_iter().flatten().flatten().collect())
    }

    #[test]
    fn bodies_of_one_connection_are_found_in_several() {
        let bodies = [1, 2].map(|seed| unique(seed, 3000));
        let pre = [b"1st", &bodies[0][..], b"2nd", &bodies[1][..]].concat();
        let post = [1, 0].map(|at: usize| [b"more than one", &bodies[at][..]].concat());
        let post = [sent(1, &post[0], 1400), sent(2, &post[1], 700)].concat();
        let expected = [(3, 1, 10), (3006, 0, 10 - 3003)].map(|(start, connection, shift)| {
            let start = BASE + start;
            Stretch { start, end: start + 3000, behind: (connection, 0), shift }
        });
        assert_eq!(found(&sent(0, &pre, 900), &post), Some(expected.to_vec()));
    }

    #[test]
    fn a_stretch_ends_where_the_next_message_begins() {
        let posted = |line: &str, bodies: &[&[u8]]| {
            let of = |body: &&[u8]| {
                let head = format!("POST /upload HTTP/1.1\r\nHost: one\r\n{line}\r\n\r\n");
                [head.as_bytes(), body].concat()
            };
            bodies.iter().flat_map(of).collect::<Vec<u8>>()
        };
        let bodies = [1, 2, 3].map(|seed| unique(seed, 3000));
        let [one, two, three] = bodies.each_ref().map(|body| &body[..]);
        let pre = posted("Client: a", &[one, two, three]);
        let post = [&[one, three][..], &[two]].map(|of| posted("Proxied: yes", of));
        let post = [sent(1, &post[0], 1400), sent(2, &post[1], 700)].concat();
        let found = found(&sent(0, &pre, 900), &post).unwrap();
        let head = (pre.len() / 3 - 3000) as u64;
        let ends: Vec<u64> = found.iter().map(|part| part.end - BASE).collect();
        assert_eq!(ends, [1, 2, 3].map(|number| number * (head + 3000)));
    }

    #[test]
    fn a_head_begins_with_its_method_or_version() {
        fn begins(line: &str) -> &str {
            &line[line.len() - first_line(line.as_bytes())..]
        }
        assert_eq!(begins("endPOST /a?b=c HTTP/1."), "POST /a?b=c HTTP/1.");
        assert_eq!(begins("of it HTTP/1."), "HTTP/1.");
        assert_eq!(begins("HTTP/1."), "HTTP/1.");
    }

    #[test]
    fn what_is_there_twice_is_no_proof() {
        let [body, other] = [1, 2].map(|seed| unique(seed, 3000));
        let once = sent(0, &[b"one", &body[..]].concat(), 900);
        let twice = |behind: &[u8]| [b"head", &body[..], b"and again", behind].concat();
        assert_eq!(found(&once, &sent(0, &twice(&body), 900)), None);
        assert_eq!(found(&sent(0, &twice(&body), 900), &once), None);
        assert_eq!(found(&once, &sent(0, &twice(&other), 900)).map(|found| found.len()), Some(1));
    }

    #[test]
    fn a_time_of_day_is_no_proof() {
        // Each answer is on a connection of its own, and has the time that the next one has behind the device.
        let answers = |first: u16| {
            let of = |number: u16| {
                let time = unique(u64::from(first + number), 90);
                let answer = [b"HTTP/1.1 200 OK\r\nDate: ", &time[..], b"\r\n\r\nok"].concat();
                sent(number, &answer, 400)
            };
            (0..200).flat_map(of).collect::<Vec<_>>()
        };
        assert_eq!(found(&answers(0), &answers(1)), Some(vec![]));
    }

    proptest! {
        #[test]
        fn each_byte_of_a_stretch_is_the_same_on_both_sides(
            parts in prop::collection::vec((0u64..6, 1usize..900, any::<bool>()), 1..12),
            sizes in (1usize..1500, 1usize..1500),
        ) {
            let content = |kept: bool| {
                let parts = parts.iter().filter(|(_, _, both)| *both || kept);
                parts.flat_map(|(seed, len, _)| unique(*seed, *len)).collect::<Vec<_>>()
            };
            let [pre, post] = [content(true), content(false)];
            let Some(found) = found(&sent(0, &pre, sizes.0), &sent(0, &post, sizes.1)) else { return Ok(()) };
            prop_assert!(found.is_sorted_by(|one, next| one.end <= next.start));
            for Stretch { start, end, behind, shift } in found {
                let [from, to] = [start, end].map(|place| (place - BASE) as usize);
                let [after, until] = [from, to].map(|place| (place as i64 + shift) as usize);
                prop_assert_eq!((behind, &pre[from..to]), ((0, 0), &post[after..until]));
            }
        }
    }
}
