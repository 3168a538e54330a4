//! Packets that a device, or the card of a tap, has divided or merged: those of which each byte was
//! seen on the other side in packets that have no counterpart either.
//!
//! Of a TCP stream bytes are known by their sequence numbers (segmentation offload), of a longer IP
//! packet by its fragments.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use probe::key::Key;
use probe::parts::{Fragment, Segment};

/// A packet without a counterpart, and what of a stream or of a longer packet it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub ts: u64,
    pub segment: Option<Segment>,
    pub fragment: Option<Fragment>,
}

/// Returns the places of those on each side that came in other packets, in order.
pub(crate) fn divided(sides: [&[Part]; 2]) -> [Vec<usize>; 2] {
    let mut found = sides.map(|parts| vec![false; parts.len()]);
    mark_segments(sides, &mut found);
    mark_fragments(sides, &mut found);
    found.map(|marks| (0..marks.len()).filter(|place| marks[*place]).collect())
}

/// The number of times that each byte of a stream was seen, from one place on to the next.
#[derive(Debug, Default)]
struct Cover(BTreeMap<u64, u32>);

impl Cover {
    fn at(&self, place: u64) -> u32 {
        self.0.range(..=place).next_back().map_or(0, |(_, count)| *count)
    }

    fn change(&mut self, bytes: &Range<u64>, by: impl Fn(u32) -> u32) {
        for edge in [bytes.start, bytes.end] {
            let count = self.at(edge);
            self.0.insert(edge, count);
        }
        self.0.range_mut(bytes.clone()).for_each(|(_, count)| *count = by(*count));
        for edge in [bytes.start, bytes.end] {
            let before = edge.checked_sub(1).map_or(0, |before| self.at(before));
            if self.at(edge) == before {
                self.0.remove(&edge);
            }
        }
    }

    fn add(&mut self, bytes: &Range<u64>) {
        self.change(bytes, |count| count + 1);
    }

    /// Takes these bytes out once, if all of them are there.
    fn take(&mut self, bytes: &Range<u64>) -> bool {
        let within = self.0.range(bytes.clone()).all(|(_, count)| *count > 0);
        let all = within && self.at(bytes.start) > 0;
        if all {
            self.change(bytes, |count| count - 1);
        }
        all
    }
}

/// Marks segments whose bytes were all seen on the other side.
fn mark_segments(sides: [&[Part]; 2], found: &mut [Vec<bool>; 2]) {
    let held = bytes_of_streams(sides);
    let mut covers: HashMap<Key, [Cover; 2]> = HashMap::new();
    for held in &held {
        covers.entry(held.flow).or_default()[held.side].add(&held.bytes);
    }
    for held in &held {
        let others = &mut covers.get_mut(&held.flow).expect("it was added")[1 - held.side];
        found[held.side][held.place] = others.take(&held.bytes);
    }
}

/// The bytes of a stream that a packet holds, counted from its beginning on.
struct Held {
    side: usize,
    place: usize,
    flow: Key,
    bytes: Range<u64>,
}

fn bytes_of_streams(sides: [&[Part]; 2]) -> Vec<Held> {
    let mut all: Vec<(u64, usize, usize, Segment)> = Vec::new();
    for (side, parts) in sides.iter().enumerate() {
        let of_side = parts.iter().enumerate();
        all.extend(of_side.filter_map(|(place, p)| Some((p.ts, side, place, p.segment?))));
    }
    all.sort_unstable_by_key(|(ts, side, place, _)| (*ts, *side, *place));
    // Sequence numbers begin again behind 2^32: each is near the one before.
    let mut reached: HashMap<Key, u64> = HashMap::new();
    let held = all.into_iter().map(|(_, side, place, Segment { flow, sequence, len })| {
        let last = reached.entry(flow).or_insert((1 << 32) | u64::from(sequence));
        let step = sequence.wrapping_sub(*last as u32) as i32;
        let start = last.saturating_add_signed(step.into());
        *last = start;
        Held { side, place, flow, bytes: start..start + u64::from(len) }
    });
    held.collect()
}

/// A packet whose fragments are collected.
#[derive(Debug, Default)]
struct Whole {
    places: Vec<usize>,
    bytes: u32,
    end: Option<u32>,
    head: Option<Key>,
}

impl Whole {
    fn add(&mut self, place: usize, fragment: &Fragment) {
        self.places.push(place);
        self.bytes = self.bytes.saturating_add(fragment.len);
        self.head = self.head.or(fragment.head);
        if !fragment.more {
            self.end = Some(fragment.start + fragment.len);
        }
    }

    /// Returns the packet's beginning and length, once all of it is there.
    fn identity(&self) -> Option<(Key, u32)> {
        self.head.zip(self.end.filter(|end| *end == self.bytes))
    }
}

/// Marks packets whose fragments were all seen on the other side, and those fragments.
fn mark_fragments(sides: [&[Part]; 2], found: &mut [Vec<bool>; 2]) {
    let [mut before, mut behind] = sides.map(wholes);
    for (identity, before) in &mut before {
        let Some(behind) = behind.get_mut(identity) else { continue };
        while let (Some(a), Some(b)) = (before.last(), behind.last()) {
            // Two whole ones are one packet in another form: that is for a less specific key.
            if a.len() > 1 || b.len() > 1 {
                a.iter().for_each(|place| found[0][*place] = true);
                b.iter().for_each(|place| found[1][*place] = true);
            }
            before.pop();
            behind.pop();
        }
    }
}

/// Returns the places of the fragments of each packet that is complete, by what it is known by.
fn wholes(parts: &[Part]) -> HashMap<(Key, u32), Vec<Vec<usize>>> {
    let mut open: HashMap<Key, Whole> = HashMap::new();
    let mut complete: HashMap<(Key, u32), Vec<Vec<usize>>> = HashMap::new();
    for (place, part) in parts.iter().enumerate() {
        let Some(fragment) = part.fragment else { continue };
        let begun = fragment.of.and_then(|of| open.remove(&of));
        // Identifications come again: of a packet that has a beginning, a part was lost.
        let begun = begun.filter(|whole| whole.head.is_none() || fragment.head.is_none());
        let mut whole = begun.unwrap_or_default();
        whole.add(place, &fragment);
        match (whole.identity(), fragment.of) {
            (Some(identity), _) => complete.entry(identity).or_default().push(whole.places),
            (None, Some(of)) => drop(open.insert(of, whole)),
            (None, None) => {}
        }
    }
    complete
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLOW: Key = Key { hi: 1, lo: 1 };

    fn segments(of: &[(u32, u32)]) -> Vec<Part> {
        let part = |(ts, &(sequence, len)): (usize, &(u32, u32))| {
            let segment = Some(Segment { flow: FLOW, sequence, len });
            Part { ts: ts as u64, segment, fragment: None }
        };
        of.iter().enumerate().map(part).collect()
    }

    #[test]
    fn a_segment_comes_out_in_several() {
        let before = segments(&[(u32::MAX - 9, 30), (20, 30), (50, 10)]);
        let behind = segments(&[(u32::MAX - 9, 10), (0, 20), (20, 20), (50, 10)]);
        assert_eq!(divided([&before, &behind]), [vec![0, 2], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn what_was_sent_twice_and_came_once_is_lost_once() {
        let before = segments(&[(0, 30), (0, 30)]);
        let behind = segments(&[(0, 15), (15, 15)]);
        assert_eq!(divided([&before, &behind]), [vec![0], vec![0, 1]]);
    }

    #[test]
    fn a_packet_comes_out_in_fragments_or_is_lost() {
        let head = |name| Some(Key { hi: name, lo: 0 });
        let part = |of: Option<u64>, start, len, more, head| {
            let of = of.map(|hi| Key { hi, lo: 9 });
            Part { ts: 0, segment: None, fragment: Some(Fragment { of, start, len, more, head }) }
        };
        let before = [part(None, 0, 60, false, head(1)), part(None, 0, 60, false, head(2))];
        let behind = [
            part(Some(5), 40, 20, false, None),
            part(Some(6), 0, 40, true, head(2)),
            part(Some(5), 0, 40, true, head(1)),
        ];
        assert_eq!(divided([&before, &behind]), [vec![0], vec![0, 2]]);
        let whole = [part(None, 0, 60, false, head(1))];
        assert_eq!(divided([&whole, &whole]), [Vec::<usize>::new(), Vec::new()]);
    }

    /// Does the same, byte by byte.
    fn slowly(sides: [&[(u32, u32)]; 2]) -> [Vec<usize>; 2] {
        [0, 1].map(|side| {
            let mut seen: HashMap<u32, u32> = HashMap::new();
            for (start, len) in sides[1 - side] {
                (*start..start + len).for_each(|byte| *seen.entry(byte).or_default() += 1);
            }
            let mut found = Vec::new();
            for (place, (start, len)) in sides[side].iter().enumerate() {
                if (*start..start + len).all(|byte| seen.get(&byte).is_some_and(|n| *n > 0)) {
                    (*start..start + len).for_each(|byte| *seen.get_mut(&byte).unwrap() -= 1);
                    found.push(place);
                }
            }
            found
        })
    }

    proptest! {
        #[test]
        fn streams_are_told_byte_by_byte(
            before in prop::collection::vec((1000u32..1060, 1u32..30), 0..12),
            behind in prop::collection::vec((1000u32..1060, 1u32..30), 0..12),
        ) {
            let found = divided([&segments(&before), &segments(&behind)]);
            prop_assert_eq!(found, slowly([&before, &behind]));
        }
    }
}
