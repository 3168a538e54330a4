//! Packets under way: a queue in order of time with an index by key.
//!
//! Entries lie in chunks that are recycled, so that memory follows what is under way and never the
//! length of a capture. The index is an open-addressing table from a key to its newest entry; it
//! keeps 32 bits of the key beside the place, the entry another 64, so that two keys are taken for
//! one only if 96 bits of their hashes agree.

use probe::key::Key;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const PLACE_MASK: u64 = (1 << 31) - 1;
const EMPTY: u64 = u64::MAX;
const FIRST_SLOTS: usize = 1 << 12;
const HELD: &str = "a place under way has its chunk";

/// The most entries that can be under way.
pub const MOST: usize = 1 << 30;

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
    slots: Vec<u64>,
    used: usize,
}

impl<T: Copy + Default> Flight<T> {
    pub fn new() -> Self {
        Self {
            chunks: vec![None],
            spare: Vec::new(),
            head: 0,
            tail: 0,
            slots: vec![EMPTY; FIRST_SLOTS],
            used: 0,
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
        if (self.used + 1) * 8 > self.slots.len() * 5 {
            self.grow();
        }
        let place = self.push(entry);
        let value = u64::from(entry.slot) << 32 | (place & PLACE_MASK);
        let mask = self.slots.len() - 1;
        let mut at = entry.slot as usize & mask;
        loop {
            let found = self.slots[at];
            if found == EMPTY {
                self.slots[at] = value;
                self.used += 1;
                return (place, None);
            }
            if (found >> 32) as u32 == entry.slot {
                let former = self.widen(found);
                if self.get(former).tag == entry.tag {
                    self.slots[at] = value;
                    return (place, Some(former));
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The place of the newest packet of `key` that is under way.
    #[inline]
    pub fn newest(&self, key: Key) -> Option<u64> {
        let mask = self.slots.len() - 1;
        let mut at = key.lo as usize & mask;
        loop {
            let found = self.slots[at];
            if found == EMPTY {
                return None;
            }
            if (found >> 32) as u32 == key.lo as u32 {
                let place = self.widen(found);
                if self.get(place).tag == key.hi {
                    return Some(place);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Loads what [`insert`](Self::insert) and [`newest`](Self::newest) will look at first for
    /// these keys, all at once: the misses of a large table overlap instead of adding up.
    #[inline]
    pub fn warm_up(&self, slots: impl Iterator<Item = u32>) {
        let mask = self.slots.len() - 1;
        let touched = slots.fold(0, |sum, slot| sum ^ self.slots[slot as usize & mask]);
        std::hint::black_box(touched);
    }

    /// The same for the `most` packets that [`pop`](Self::pop) removes next.
    #[inline]
    pub fn warm_up_oldest(&self, most: u64) {
        let last = self.tail.min(self.head + most);
        self.warm_up((self.head..last).map(|place| self.get(place).slot));
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
        self.forget(entry.slot, place);
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

    /// Takes the index entry of `place` out, if it has one, and closes the gap.
    #[inline]
    fn forget(&mut self, slot: u32, place: u64) {
        let mask = self.slots.len() - 1;
        let value = u64::from(slot) << 32 | (place & PLACE_MASK);
        let mut at = slot as usize & mask;
        while self.slots[at] != value {
            if self.slots[at] == EMPTY {
                return;
            }
            at = (at + 1) & mask;
        }
        self.used -= 1;
        let mut next = (at + 1) & mask;
        while self.slots[next] != EMPTY {
            let home = (self.slots[next] >> 32) as usize & mask;
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask) {
                self.slots[at] = self.slots[next];
                at = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[at] = EMPTY;
    }

    /// The full place of an index entry: places of what is under way differ in their lower 31 bits.
    #[inline]
    fn widen(&self, found: u64) -> u64 {
        self.head + ((found & PLACE_MASK).wrapping_sub(self.head) & PLACE_MASK)
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 2];
        let mask = larger.len() - 1;
        let slots = std::mem::replace(&mut self.slots, larger);
        for value in slots.into_iter().filter(|value| *value != EMPTY) {
            let mut at = (value >> 32) as usize & mask;
            while self.slots[at] != EMPTY {
                at = (at + 1) & mask;
            }
            self.slots[at] = value;
        }
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
        assert_eq!(flight.slots.len(), FIRST_SLOTS);
    }
}
