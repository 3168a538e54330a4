//! Packets under way: a queue in order of time with an index by key.
//!
//! Entries lie in chunks that are recycled, so that memory follows what is under way and never the
//! length of a capture. The index is a hash table of buckets, each one cache line: it leads from a
//! key to its newest entry, keeps 32 bits of the key beside the place, and the entry keeps another
//! 64, so that two keys are taken for one only if 96 bits of their hashes agree.
//!
//! Nothing is ever removed from the index. What left the queue is known by its place, which lies
//! before the head, and its slot is free for the next key: a removal would cost a second miss of a
//! cache for every packet.

use probe::key::Key;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const HELD: &str = "a place under way has its chunk";

/// Bits of a place that the index keeps: enough to tell apart all that is under way.
const PLACE_MASK: u64 = (1 << 31) - 1;

/// A slot that no packet had yet. Bit 31 is set in no other.
const EMPTY: u64 = u64::MAX;
const NEVER_USED: u64 = 1 << 31;

/// The most entries that can be under way.
pub const MOST: usize = 1 << 30;

/// Entries under way for each bucket before the index grows: with three for its seven slots, one
/// bucket in a hundred overflows into the next. An index of 64 MiB is filled tighter before it takes
/// as much again.
const PER_BUCKET: usize = 3;
const PER_BUCKET_LARGE: usize = 5;
const LARGE_BUCKETS: usize = 1 << 20;

const FIRST_BUCKETS: usize = 1 << 9;

/// A cache line of the index: 32 bits of a key and 31 of a place in each slot.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Bucket {
    slots: [u64; 7],
    /// The newest entry that found no slot here and went on to the next bucket.
    overflow: u64,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const NEW: Self = Self { slots: [EMPTY; 7], overflow: EMPTY };
}

type Chunk<T> = Box<[Entry<T>; CHUNK]>;

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
}

/// A queue of packets in order of time, with an index of the newest packet of each key.
#[derive(Debug)]
pub struct Flight<T> {
    /// Chunk `place / CHUNK` lies at that index, modulo the length, which is a power of two.
    chunks: Vec<Option<Chunk<T>>>,
    spare: Vec<Chunk<T>>,
    head: u64,
    tail: u64,
    buckets: Vec<Bucket>,
}

impl<T: Copy + Default> Flight<T> {
    pub fn new() -> Self {
        Self {
            chunks: vec![None],
            spare: Vec::new(),
            head: 0,
            tail: 0,
            buckets: vec![Bucket::NEW; FIRST_BUCKETS],
        }
    }

    pub fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    /// The place of the oldest packet, or of the next one when nothing is under way.
    #[inline]
    pub fn oldest(&self) -> u64 {
        self.head
    }

    /// The time of the oldest packet.
    #[inline]
    pub fn oldest_ts(&self) -> Option<u64> {
        (self.head < self.tail).then(|| self.get(self.head).ts)
    }

    #[inline]
    pub fn get(&self, place: u64) -> &Entry<T> {
        let chunk = &self.chunks[self.chunk_of(place)];
        &chunk.as_ref().expect(HELD)[place as usize % CHUNK]
    }

    #[inline]
    pub fn get_mut(&mut self, place: u64) -> &mut Entry<T> {
        let index = self.chunk_of(place);
        &mut self.chunks[index].as_mut().expect(HELD)[place as usize % CHUNK]
    }

    #[inline]
    fn chunk_of(&self, place: u64) -> usize {
        (place >> CHUNK_BITS) as usize & (self.chunks.len() - 1)
    }

    /// Appends a packet that cannot be found by key; returns its place.
    #[inline]
    pub fn push(&mut self, entry: Entry<T>) -> u64 {
        assert!(self.len() < MOST, "more packets under way than the index can address");
        let place = self.tail;
        if place as usize % CHUNK == 0 {
            self.add_chunk();
        }
        self.tail += 1;
        *self.get_mut(place) = entry;
        place
    }

    /// Appends a packet and makes it the newest of its key; returns its place and that of the
    /// former newest one, if that is still under way.
    #[inline]
    pub fn insert(&mut self, entry: Entry<T>) -> (u64, Option<u64>) {
        if self.len() >= self.capacity() {
            self.grow();
        }
        let former = self.find(entry.slot, entry.tag);
        let place = self.push(entry);
        let value = value_of(entry.slot, place);
        if let Some((bucket, slot, former)) = former {
            self.note_overflow(value, bucket);
            self.buckets[bucket].slots[slot] = value;
            return (place, Some(former));
        }
        self.add(value);
        (place, None)
    }

    /// The place of the newest packet of `key` that is under way.
    #[inline]
    pub fn newest(&self, key: Key) -> Option<u64> {
        self.find(key.lo as u32, key.hi).map(|(_, _, place)| place)
    }

    /// Bucket, slot and place of a key, from its bucket on as far as entries went on.
    #[inline]
    fn find(&self, key_slot: u32, tag: u64) -> Option<(usize, usize, u64)> {
        let mut index = self.home(key_slot);
        loop {
            let bucket = &self.buckets[index];
            for (slot, &value) in bucket.slots.iter().enumerate() {
                if (value >> 32) as u32 == key_slot && self.is_live(value) {
                    let place = self.widen(value);
                    if self.get(place).tag == tag {
                        return Some((index, slot, place));
                    }
                }
            }
            if !self.is_live(bucket.overflow) {
                return None;
            }
            index = self.next(index);
        }
    }

    /// Puts an entry into the first free slot from its bucket on.
    #[inline]
    fn add(&mut self, value: u64) {
        let mut index = self.home((value >> 32) as u32);
        loop {
            let free = self.buckets[index].slots.iter().position(|slot| !self.is_live(*slot));
            if let Some(slot) = free {
                self.note_overflow(value, index);
                self.buckets[index].slots[slot] = value;
                return;
            }
            index = self.next(index);
        }
    }

    /// Notes in the buckets from an entry's own up to `bucket` that it went on.
    #[inline]
    fn note_overflow(&mut self, value: u64, bucket: usize) {
        let mut index = self.home((value >> 32) as u32);
        while index != bucket {
            let newest = self.buckets[index].overflow;
            if !self.is_live(newest) || self.widen(newest) < self.widen(value) {
                self.buckets[index].overflow = value;
            }
            index = self.next(index);
        }
    }

    /// Entries under way that the index is meant for.
    #[inline]
    fn capacity(&self) -> usize {
        let large = self.buckets.len() >= LARGE_BUCKETS;
        self.buckets.len() * if large { PER_BUCKET_LARGE } else { PER_BUCKET }
    }

    #[inline]
    fn home(&self, key_slot: u32) -> usize {
        key_slot as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// Whether the entry of a slot is under way: places of what is differ in their lower 31 bits.
    #[inline]
    fn is_live(&self, value: u64) -> bool {
        let behind_head = value.wrapping_sub(self.head) & PLACE_MASK;
        value & NEVER_USED == 0 && behind_head < self.tail - self.head
    }

    /// Loads what [`insert`](Self::insert) and [`newest`](Self::newest) will look at first for
    /// these keys, all at once: the misses of a large table overlap instead of adding up.
    #[inline]
    pub fn warm_up(&self, slots: impl Iterator<Item = u32>) {
        let touched = slots.fold(0, |sum, slot| sum ^ self.buckets[self.home(slot)].overflow);
        std::hint::black_box(touched);
    }

    /// Removes the oldest packet.
    ///
    /// # Panics
    /// When nothing is under way.
    #[inline]
    pub fn pop(&mut self) -> (u64, Entry<T>) {
        assert!(self.head < self.tail, "something is under way");
        let place = self.head;
        let entry = *self.get(place);
        self.head += 1;
        if self.head as usize % CHUNK == 0 {
            let index = self.chunk_of(place);
            self.spare.extend(self.chunks[index].take());
        }
        (place, entry)
    }

    /// Makes room behind the newest packet, which fills its chunk.
    #[cold]
    fn add_chunk(&mut self) {
        if self.chunks[self.chunk_of(self.tail)].is_some() {
            let wider = self.chunks.len() * 2;
            let mut chunks: Vec<_> = std::iter::repeat_with(|| None).take(wider).collect();
            for number in (self.head >> CHUNK_BITS)..(self.tail >> CHUNK_BITS) {
                let old = number as usize & (self.chunks.len() - 1);
                chunks[number as usize & (wider - 1)] = self.chunks[old].take();
            }
            self.chunks = chunks;
        }
        let index = self.chunk_of(self.tail);
        let fresh = || Box::new([Entry::default(); CHUNK]);
        self.chunks[index] = Some(self.spare.pop().unwrap_or_else(fresh));
    }

    /// The full place of a live slot.
    #[inline]
    fn widen(&self, found: u64) -> u64 {
        self.head + ((found & PLACE_MASK).wrapping_sub(self.head) & PLACE_MASK)
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Bucket::NEW; self.buckets.len() * 2];
        let buckets = std::mem::replace(&mut self.buckets, larger);
        for value in buckets.into_iter().flat_map(|bucket| bucket.slots) {
            if self.is_live(value) {
                self.add(value);
            }
        }
    }
}

fn value_of(key_slot: u32, place: u64) -> u64 {
    (u64::from(key_slot) << 32) | (place & PLACE_MASK)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8),
        Push,
        Pop,
        Find(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<u8>().prop_map(Step::Insert),
            1 => Just(Step::Push),
            3 => Just(Step::Pop),
            2 => any::<u8>().prop_map(Step::Find),
        ];
        prop::collection::vec(step, 0..600)
    }

    /// Many keys share a slot, some share all but the tag.
    fn key(name: u8) -> Key {
        Key { hi: u64::from(name), lo: (u64::from(name % 37) * 0x1_0000) | u64::from(name % 5) }
    }

    proptest! {
        #[test]
        fn it_is_a_queue_with_a_dictionary(steps in steps()) {
            let mut flight = Flight::new();
            let mut queue = VecDeque::new();
            let mut newest: HashMap<u8, u64> = HashMap::new();
            for (now, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(name) => {
                        let entry = Entry::new(key(name), now as u64, name);
                        let (place, former) = flight.insert(entry);
                        prop_assert_eq!(former, newest.insert(name, place));
                        queue.push_back((place, Some(name)));
                    }
                    Step::Push => {
                        let place = flight.push(Entry { ts: now as u64, ..Entry::default() });
                        queue.push_back((place, None));
                    }
                    Step::Pop => if let Some((place, name)) = queue.pop_front() {
                        let (popped, entry) = flight.pop();
                        prop_assert_eq!(popped, place);
                        if let Some(name) = name {
                            prop_assert_eq!(entry.state, name);
                            if newest.get(&name) == Some(&place) {
                                newest.remove(&name);
                            }
                        }
                    },
                    Step::Find(name) => {
                        prop_assert_eq!(flight.newest(key(name)), newest.get(&name).copied());
                    }
                }
                prop_assert_eq!(flight.len(), queue.len());
            }
        }
    }

    #[test]
    fn memory_follows_what_is_under_way() {
        let mut flight = Flight::new();
        for i in 0..100 * CHUNK as u64 {
            let spread = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            flight.insert(Entry::new(Key { hi: i, lo: spread >> 32 }, i, ()));
            if i >= 1000 {
                flight.pop();
            }
        }
        let held = flight.chunks.iter().flatten().count();
        assert!(held + flight.spare.len() <= 3);
        assert_eq!(flight.buckets.len(), FIRST_BUCKETS);
    }
}
