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

/// The most entries that can be under way.
pub const MOST: usize = 1 << 30;

/// Entries under way for each bucket before the index grows: with three for its seven slots, one
/// bucket in a hundred overflows into the next. An index of 64 MiB is filled tighter before it takes
/// as much again.
const PER_BUCKET: usize = 3;
const PER_BUCKET_LARGE: usize = 5;
const LARGE_BUCKETS: usize = 1 << 20;

const FIRST_BUCKETS: usize = 1 << 9;

const SLOTS: usize = 7;

/// A cache line of the index: in each slot 32 bits of a key and the lower 32 of a place. Laid out by
/// field, so that all slots are looked at in a few instructions.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    keys: [u32; SLOTS],
    /// Whether an entry ever found no slot here and went on to the next bucket.
    overflowed: u32,
    places: [u32; SLOTS],
    /// The newest entry that did.
    overflow: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// A slot that was never used has the last place that 32 bits can name. Once in four billion
    /// packets that one is under way: then the slot seems taken, and the entry's own key tells that
    /// it is not the one looked for.
    const NEW: Self =
        Self { keys: [0; SLOTS], overflowed: 0, places: [u32::MAX; SLOTS], overflow: 0 };

    /// The slots with `key`, as bits.
    #[inline]
    fn with_key(&self, key: u32) -> u32 {
        (0..SLOTS).fold(0, |bits, slot| bits | (u32::from(self.keys[slot] == key) << slot))
    }

    /// The slots whose entry is under way, as bits.
    #[inline]
    fn live(&self, flight: Live) -> u32 {
        (0..SLOTS).fold(0, |bits, slot| bits | (u32::from(flight.has(self.places[slot])) << slot))
    }

    #[inline]
    fn goes_on(&self, flight: Live) -> bool {
        self.overflowed != 0 && flight.has(self.overflow)
    }
}

/// What is under way, by the lower 32 bits of its places.
#[derive(Clone, Copy)]
struct Live {
    head: u32,
    len: u32,
}

impl Live {
    #[inline]
    fn has(self, place: u32) -> bool {
        place.wrapping_sub(self.head) < self.len
    }
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

    /// As much of its key as is compared.
    pub fn key(&self) -> Key {
        Key { hi: self.tag, lo: u64::from(self.slot) }
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

    /// The place of the next packet.
    #[inline]
    pub fn next_place(&self) -> u64 {
        self.tail
    }

    /// The time of the oldest packet.
    #[inline]
    pub fn oldest_ts(&self) -> Option<u64> {
        (self.head < self.tail).then(|| self.get(self.head).ts)
    }

    /// The time of the newest packet.
    #[inline]
    pub fn newest_ts(&self) -> Option<u64> {
        (self.head < self.tail).then(|| self.get(self.tail - 1).ts)
    }

    #[inline]
    pub fn get(&self, place: u64) -> &Entry<T> {
        debug_assert!((self.head..self.tail).contains(&place), "the packet is under way");
        let chunk = &self.chunks[self.chunk_of(place)];
        &chunk.as_ref().expect(HELD)[place as usize % CHUNK]
    }

    #[inline]
    pub fn get_mut(&mut self, place: u64) -> &mut Entry<T> {
        debug_assert!((self.head..self.tail).contains(&place), "the packet is under way");
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
        if let Some((bucket, slot, former)) = former {
            self.put(entry.slot, place, bucket, slot);
            return (place, Some(former));
        }
        self.add(entry.slot, place);
        (place, None)
    }

    /// The place of the newest packet of `key` that is under way.
    #[inline]
    pub fn newest(&self, key: Key) -> Option<u64> {
        self.find(key.lo as u32, key.hi).map(|(_, _, place)| place)
    }

    /// Bucket, slot and place of a key, from its bucket on as far as entries went on.
    #[inline]
    fn find(&self, key: u32, tag: u64) -> Option<(usize, usize, u64)> {
        let live = self.live();
        let mut index = self.home(key);
        loop {
            let bucket = &self.buckets[index];
            let mut candidates = bucket.with_key(key);
            while candidates != 0 {
                let slot = candidates.trailing_zeros() as usize % SLOTS;
                if live.has(bucket.places[slot]) {
                    let place = self.widen(bucket.places[slot]);
                    if self.get(place).tag == tag {
                        return Some((index, slot, place));
                    }
                }
                candidates &= candidates - 1;
            }
            if !bucket.goes_on(live) {
                return None;
            }
            index = self.next(index);
        }
    }

    /// Puts an entry into the first free slot from its bucket on.
    #[inline]
    fn add(&mut self, key: u32, place: u64) {
        let live = self.live();
        let mut index = self.home(key);
        loop {
            let slot = self.buckets[index].live(live).trailing_ones() as usize;
            if slot < SLOTS {
                return self.put(key, place, index, slot);
            }
            index = self.next(index);
        }
    }

    /// Fills a slot, and notes in the buckets from the key's own up to it that an entry went on.
    #[inline]
    fn put(&mut self, key: u32, place: u64, bucket: usize, slot: usize) {
        let live = self.live();
        let mut index = self.home(key);
        while index != bucket {
            let overflow = self.buckets[index].overflow;
            if !self.buckets[index].goes_on(live) || self.widen(overflow) < place {
                self.buckets[index].overflow = place as u32;
                self.buckets[index].overflowed = 1;
            }
            index = self.next(index);
        }
        self.buckets[bucket].keys[slot] = key;
        self.buckets[bucket].places[slot] = place as u32;
    }

    #[inline]
    fn live(&self) -> Live {
        Live { head: self.head as u32, len: self.len() as u32 }
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
        assert!(self.chunks[index].is_none(), "no packet under way lies in the new chunk");
        let fresh = || Box::new([Entry::default(); CHUNK]);
        self.chunks[index] = Some(self.spare.pop().unwrap_or_else(fresh));
    }

    /// The full place of a slot whose entry is under way.
    #[inline]
    fn widen(&self, place: u32) -> u64 {
        self.head + u64::from(place.wrapping_sub(self.head as u32))
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Bucket::NEW; self.buckets.len() * 2];
        let buckets = std::mem::replace(&mut self.buckets, larger);
        for bucket in buckets {
            let live = bucket.live(self.live());
            for slot in (0..SLOTS).filter(|slot| live >> slot & 1 == 1) {
                self.add(bucket.keys[slot], self.widen(bucket.places[slot]));
            }
        }
        assert!(self.len() < self.capacity(), "the larger index has room");
    }
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
