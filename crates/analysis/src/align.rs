//! Where the bytes of one stream lie in another one, by nothing but the bytes.

use crate::stream::{Stream, Streams};

/// Bytes that tell one place of a stream from others.
const WINDOW: usize = 32;
/// Odd, with bits spread evenly.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// How dense anchors are: up to so many bytes behind the beginning of what was seen without a gap, one place in two to
/// the power of a number is one. What is an anchor far behind it is one nearer to it, too.
pub(crate) type Spread = &'static [(u64, u32)];
/// Many at the beginning, as streams may be short, and few far behind it.
pub(crate) const DENSE_FIRST: Spread = &[(1 << 11, 3), (1 << 16, 6), (u64::MAX, 12)];
/// Streams that are no longer together are laid over each other at every place.
const SHORT: u64 = 4096;
/// Anchors that two streams have in common which are looked at, and places of one in a stream.
const MOST_SHARED: usize = 64;
const MOST_PLACES: usize = 4;
/// Fewest bytes in common that prove a place that is not the beginning of both.
pub(crate) const PROOF: u64 = 8;

/// A place of a stream that is known by the bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Anchor {
    pub hash: u64,
    pub place: u64,
}

/// A stream, with its bytes and its anchors in the order of their hashes.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub streams: &'a Streams,
    pub stream: &'a Stream,
    pub anchors: &'a [Anchor],
}

/// How a stream lies over another one: all bytes that both have are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// No place fits.
    None,
    /// One place fits: what is to be added to a place of the first for that of the second, and the bytes in common.
    One { shift: i64, bytes: u64 },
    /// Several places fit about as well, as the content repeats.
    Several,
}

/// Returns the anchors of a stream, in the order of their hashes.
pub(crate) fn anchors(streams: &Streams, stream: &Stream, spread: Spread) -> Vec<Anchor> {
    let behind = (0..WINDOW).fold(1u64, |power, _| power.wrapping_mul(SPREAD));
    let mut found = Vec::new();
    let (mut window, mut held, mut hash) = ([0u8; WINDOW], 0u64, 0u64);
    let mut reached = 0;
    for piece in &stream.pieces {
        if piece.start != reached {
            (window, held, hash) = ([0; WINDOW], 0, 0);
        }
        for (place, byte) in (piece.start + 1..).zip(streams.bytes(piece)) {
            let oldest = std::mem::replace(&mut window[held as usize % WINDOW], *byte);
            // One more than the byte, so that zeros count.
            let out = if held < WINDOW as u64 { 0 } else { u64::from(oldest) + 1 };
            hash = hash.wrapping_mul(SPREAD).wrapping_add(u64::from(*byte) + 1);
            hash = hash.wrapping_sub(out.wrapping_mul(behind));
            held += 1;
            let mixed = (hash ^ hash >> 32).wrapping_mul(SPREAD);
            let (_, bits) = spread.iter().find(|(most, _)| held <= *most).expect("all are");
            if held >= WINDOW as u64 && mixed >> (u64::BITS - bits) == 0 {
                found.push(Anchor { hash: mixed ^ mixed >> 29, place });
            }
        }
        reached = piece.end;
    }
    found.sort_unstable();
    found
}

impl View<'_> {
    /// Returns how the stream lies over another one.
    pub fn fit(&self, other: &View<'_>) -> Fit {
        let (Some((start, end)), Some((first, last))) = (self.stream.span(), other.stream.span())
        else {
            return Fit::None;
        };
        let both_open = self.stream.opened && other.stream.opened;
        if let Some(bytes) = self.common(other, 0).filter(|bytes| both_open && *bytes > 0) {
            return Fit::One { shift: 0, bytes };
        }
        let shifts: Vec<i64> = if end - start + (last - first) <= SHORT {
            let reach = |place: u64, from: u64| place as i64 - from as i64;
            let proof = PROOF as i64;
            (reach(first, end) + proof..=reach(last, start) - proof).collect()
        } else {
            self.shared(other)
        };
        let fits = shifts.into_iter().filter_map(|shift| Some((self.common(other, shift)?, shift)));
        let mut fits: Vec<(u64, i64)> = fits.filter(|(bytes, _)| *bytes >= PROOF).collect();
        fits.sort_unstable();
        match fits[..] {
            [] => Fit::None,
            // A few bytes may be equal elsewhere, too.
            [.., (next, _), (bytes, _)] if 2 * next >= bytes => Fit::Several,
            [.., (bytes, shift)] => Fit::One { shift, bytes },
        }
    }

    /// Returns by how much anchors that both have lie apart, and beginnings of segments if they have few bytes.
    fn shared(&self, other: &View<'_>) -> Vec<i64> {
        let mut shifts = Vec::new();
        if self.stream.len() + other.stream.len() <= SHORT {
            for piece in self.stream.pieces.iter().take(MOST_SHARED) {
                let others = other.stream.pieces.iter().take(MOST_SHARED);
                shifts.extend(others.map(|of| of.start as i64 - piece.start as i64));
            }
        }
        let mut shared = 0;
        for anchor in self.anchors {
            let first = other.anchors.partition_point(|of| of.hash < anchor.hash);
            let alike = other.anchors[first..].iter().take_while(|of| of.hash == anchor.hash);
            let before = shifts.len();
            shifts.extend(alike.take(MOST_PLACES).map(|of| of.place as i64 - anchor.place as i64));
            shared += usize::from(shifts.len() > before);
            if shared == MOST_SHARED {
                break;
            }
        }
        shifts.sort_unstable();
        shifts.dedup();
        shifts
    }

    /// Returns how many bytes both have, the other one `shift` further on; `None` if any differ.
    fn common(&self, other: &View<'_>, shift: i64) -> Option<u64> {
        let (mine, others) = (&self.stream.pieces, &other.stream.pieces);
        let (start, _) = self.stream.span()?;
        let start = start.checked_add_signed(shift)?;
        let mut j = others.partition_point(|piece| piece.end <= start);
        let (mut i, mut bytes) = (0, 0);
        while let (Some(a), Some(b)) = (mine.get(i), others.get(j)) {
            let from = a.start.checked_add_signed(shift)?.max(b.start);
            let a_end = a.end.checked_add_signed(shift)?;
            let to = a_end.min(b.end);
            if from < to {
                let len = (to - from) as usize;
                let ours = &self.streams.bytes(a)[(from - (a_end - (a.end - a.start))) as usize..];
                let theirs = &other.streams.bytes(b)[(from - b.start) as usize..];
                if ours[..len] != theirs[..len] {
                    return None;
                }
                bytes += len as u64;
            }
            if a_end <= b.end { i += 1 } else { j += 1 }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::samples::{Sent, streams};

    #[test]
    fn few_bytes_far_apart_fit() {
        let parts = [(5, *b"abcdefghijklmnopqrst"), (1_000_000_005, *b"0123456789ABCDEFGHIJ")];
        let far = |by: u32| {
            let sent = parts.map(|(at, data)| Sent {
                ts: u64::from(at),
                sequence: at + by,
                data: data.to_vec(),
                ..Sent::default()
            });
            streams(&sent)
        };
        let sides = [far(0), far(77)];
        let anchors = [0, 1].map(|side: usize| {
            anchors(&sides[side], &sides[side].connections[0].streams[0], DENSE_FIRST)
        });
        let [one, other] = [0, 1].map(|side: usize| View {
            streams: &sides[side],
            stream: &sides[side].connections[0].streams[0],
            anchors: &anchors[side],
        });
        assert_eq!(one.fit(&other), Fit::One { shift: 0, bytes: 40 });
    }
}
