//! Packets under way, in chunks: as they are, or in less memory.
//!
//! In less memory means fields side by side, each as what it differs by from a straight line, in as many
//! bytes as the largest difference needs. Of a steady stream that are 12 bytes a packet instead of 32:
//! sequence numbers and places follow each other, and times and latencies fit in four bytes.

use probe::key::Key;

pub(crate) const CHUNK_BITS: u32 = 12;
pub(crate) const CHUNK: usize = 1 << CHUNK_BITS;

/// A packet under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<T> {
    pub tag: u64,
    pub ts: u64,
    pub slot: u32,
    pub state: T,
}

impl<T> Entry<T> {
    pub fn new(key: Key, ts: u64, state: T) -> Self {
        Self { tag: key.hi, ts, slot: key.lo as u32, state }
    }

    /// Returns true if its key is `key`, as far as it is compared.
    #[inline]
    pub fn is_of(&self, key: Key) -> bool {
        self.tag == key.hi && self.slot == key.lo as u32
    }

    /// Returns as much of its key as is compared.
    pub fn key(&self) -> Key {
        Key { hi: self.tag, lo: u64::from(self.slot) }
    }
}

pub(crate) type Wide<T> = Box<[Entry<T>; CHUNK]>;

#[derive(Debug)]
pub(crate) enum Chunk<T> {
    Wide(Wide<T>),
    Narrow(Narrow<T>),
}

/// The state of a packet besides key and time, as numbers that are small if little is known.
pub(crate) trait State: Copy + Default {
    fn numbers(self) -> (u64, u32);
    fn of_numbers(large: u64, small: u32) -> Self;
}

/// Tag, time, slot and the two numbers of the state.
type Fields = [u64; FIELDS];
const FIELDS: usize = 5;

/// Growth of a steady stream's fields from packet to packet.
const STEP: Fields = [1, 0, 0, 0, 1];

const SHORT: u64 = u32::MAX as u64;
const LONG: u64 = u64::MAX;
/// The largest value of each, which numbers wrap at.
const MOST: Fields = [LONG, LONG, SHORT, LONG, SHORT];

/// The distances of a field's values above the line.
#[derive(Debug)]
enum Beyond {
    Nothing,
    Short(Box<[u32; CHUNK]>),
    Long(Box<[u64; CHUNK]>),
}

static NOTHING: [u32; CHUNK] = [0; CHUNK];

impl Beyond {
    fn short(&self) -> Option<&[u32; CHUNK]> {
        match self {
            Self::Nothing => Some(&NOTHING),
            Self::Short(short) => Some(short),
            Self::Long(_) => None,
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Short(short) => size_of_val(&**short),
            Self::Long(long) => size_of_val(&**long),
        }
    }

    #[inline]
    fn get(&self, i: usize) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Short(short) => u64::from(short[i]),
            Self::Long(long) => long[i],
        }
    }
}

/// A chunk in less memory.
#[derive(Debug)]
pub(crate) struct Narrow<T> {
    /// Place at which the lines begin.
    first: Fields,
    beyond: [Beyond; FIELDS],
    // Pointers, because a queue that is never narrowed holds states that are no numbers.
    widen: fn(&Self, &mut [Entry<T>; CHUNK]),
    entry_of: fn(Fields) -> Entry<T>,
}

impl<T> Narrow<T> {
    #[inline]
    pub fn get(&self, i: usize) -> Entry<T> {
        let field = |f: usize| line(self.first, f, i).wrapping_add(self.beyond[f].get(i));
        (self.entry_of)(std::array::from_fn(field))
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.beyond.iter().map(Beyond::bytes).sum()
    }

    pub fn widen(&self, into: &mut [Entry<T>; CHUNK]) {
        (self.widen)(self, into);
    }
}

impl<T: State> Narrow<T> {
    pub fn of(entries: &[Entry<T>; CHUNK]) -> Self {
        let [tag, ts, _, _, place] = fields_of(&entries[0]);
        let first = [tag, ts, 0, 0, place];
        let beyond =
            |i: usize, f: usize, value: u64| value.wrapping_sub(line(first, f, i)) & MOST[f];
        let mut bits = [0; FIELDS];
        let mut short = [[0; CHUNK]; FIELDS];
        for (i, entry) in entries.iter().enumerate() {
            let fields = fields_of(entry);
            for f in 0..FIELDS {
                let beyond = beyond(i, f, fields[f]);
                bits[f] |= beyond;
                short[f][i] = beyond as u32;
            }
        }
        let long = |f: usize| {
            let mut long = Box::new([0; CHUNK]);
            let values = entries.iter().map(|entry| fields_of(entry)[f]).enumerate();
            long.iter_mut().zip(values).for_each(|(long, (i, value))| *long = beyond(i, f, value));
            long
        };
        let kept = |f: usize| match bits[f] {
            0 => Beyond::Nothing,
            1..=SHORT => Beyond::Short(Box::new(short[f])),
            _ => Beyond::Long(long(f)),
        };
        Self { first, beyond: std::array::from_fn(kept), widen: Self::widen_all, entry_of }
    }

    fn widen_all(&self, into: &mut [Entry<T>; CHUNK]) {
        let [Some(tag), Some(ts), Some(slot), Some(large), Some(small)] =
            self.beyond.each_ref().map(Beyond::short)
        else {
            return into.iter_mut().enumerate().for_each(|(i, entry)| *entry = self.get(i));
        };
        let short = [tag, ts, slot, large, small];
        for (i, entry) in into.iter_mut().enumerate() {
            let field = |f: usize| line(self.first, f, i).wrapping_add(u64::from(short[f][i]));
            *entry = entry_of(std::array::from_fn(field));
        }
    }
}

#[inline]
fn line(first: Fields, field: usize, i: usize) -> u64 {
    first[field].wrapping_add(STEP[field] * i as u64)
}

#[inline]
fn fields_of<T: State>(entry: &Entry<T>) -> Fields {
    let (large, small) = entry.state.numbers();
    [entry.tag, entry.ts, u64::from(entry.slot), large, u64::from(small)]
}

#[inline]
fn entry_of<T: State>([tag, ts, slot, large, small]: Fields) -> Entry<T> {
    Entry { tag, ts, slot: slot as u32, state: T::of_numbers(large, small as u32) }
}
