//! Packets under way: a queue in order of time with an index by key.
//!
//! Entries lie in chunks that are recycled, so that memory follows what is under way and never the
//! length of a capture. The index is a hash table of buckets, each one cache line: it leads from a
//! key to its newest entry, keeps 32 bits of the key beside the place, and the entry keeps another
//! 64, so that two keys are taken for one only if 96 bits of their hashes agree.
//!
//! While the tags of all entries under way ascend, as sequence numbers do, no two share a key, and a
//! key is found by bisection: nothing is put into the index. The first tag that does not ascend has
//! all entries put there.
//!
//! Chunks that will hardly be looked at again are narrowed (`chunk.rs`) until they are.
//!
//! Nothing is ever removed from the index. What left the queue is known by its place, which lies
//! before the head, and its slot is free for the next key: a removal would cost a second miss of a
//! cache for every packet.

use probe::key::Key;

use crate::chunk::{CHUNK, CHUNK_BITS, Chunk, Entry, Narrow, State, Wide};

/// The most chunks kept for reuse, 8 MiB: as many as are narrowed at once at some million packets per second.
const SPARE: usize = 64;

const HELD: &str = "a place under way has its chunk";

/// The most entries that can be under way.
pub const MOST: usize = 1 << 30;

/// Entries under way for each bucket before the index grows. With five for its seven slots, one bucket in
/// eight overflows into the next; that costs less than the misses of a cache of an index twice as large.
const PER_BUCKET: usize = 5;

const FIRST_BUCKETS: usize = 1 << 9;

const SLOTS: usize = 7;

/// A cache line of the index: in each slot 32 bits of a key and the lower 32 of a place. Laid out by
/// field, so that all slots are looked at in a few instructions.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    keys: [u32; SLOTS],
    /// Nonzero if an entry ever found no slot here and went on to the next bucket.
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

    /// Returns the slots with `key`, as bits.
    #[inline]
    fn with_key(&self, key: u32) -> u32 {
        (0..SLOTS).fold(0, |bits, slot| bits | (u32::from(self.keys[slot] == key) << slot))
    }

    /// Returns the slots whose entry is under way, as bits.
    #[inline]
    fn live(&self, flight: Live) -> u32 {
        (0..SLOTS).fold(0, |bits, slot| bits | (u32::from(flight.has(self.places[slot])) << slot))
    }

    #[inline]
    fn goes_on(&self, flight: Live) -> bool {
        self.overflowed != 0 && flight.has(self.overflow)
    }
}

/// The packets under way, by the lower 32 bits of their places.
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

/// A queue of packets in order of time, with an index of the newest packet of each key.
#[derive(Debug)]
pub struct Flight<T> {
    /// Chunk `place / CHUNK` lies at that index, modulo the length, which is a power of two.
    chunks: Vec<Option<Chunk<T>>>,
    spare: Vec<Wide<T>>,
    head: u64,
    tail: u64,
    /// Place before which all chunks were narrowed once.
    narrowed_to: u64,
    buckets: Vec<Bucket>,
    /// The tag and the slot of the newest packet that can be found by key.
    newest: (u64, u32),
    /// Place from which on tags ascend.
    ascending_from: u64,
    /// Offset at which the packets begin that were not put into the index while they all ascended.
    indexed_to: u64,
}

impl<T: Copy + Default> Flight<T> {
    pub fn new() -> Self {
        Self {
            chunks: vec![None],
            spare: Vec::new(),
            head: 0,
            tail: 0,
            narrowed_to: 0,
            buckets: vec![Bucket::NEW; FIRST_BUCKETS],
            newest: (0, 0),
            ascending_from: 0,
            indexed_to: 0,
        }
    }

    pub fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    /// Returns the place of the oldest packet, or of the next one when nothing is under way.
    #[inline]
    pub fn oldest(&self) -> u64 {
        self.head
    }

    /// Returns the place of the next packet.
    #[inline]
    pub fn next_place(&self) -> u64 {
        self.tail
    }

    /// Returns the time of the oldest packet.
    #[inline]
    pub fn oldest_ts(&self) -> Option<u64> {
        (self.head < self.tail).then(|| self.get(self.head).ts)
    }

    /// Returns the time of the newest packet.
    #[inline]
    pub fn newest_ts(&self) -> Option<u64> {
        (self.head < self.tail).then(|| self.get(self.tail - 1).ts)
    }

    /// Returns the tag of the newest packet that can be found by key.
    #[inline]
    pub fn newest_tag(&self) -> u64 {
        self.newest.0
    }

    /// Returns the time of the first packet at `ts` or later.
    pub fn first_ts_from(&self, ts: u64) -> Option<u64> {
        let (mut low, mut high) = (self.head, self.tail);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).ts < ts { low = middle + 1 } else { high = middle }
        }
        (low < self.tail).then(|| self.get(low).ts)
    }

    #[inline]
    pub fn get(&self, place: u64) -> Entry<T> {
        debug_assert!((self.head..self.tail).contains(&place), "the packet is under way");
        let at = place as usize % CHUNK;
        match self.chunks[self.chunk_of(place)].as_ref().expect(HELD) {
            Chunk::Wide(entries) => entries[at],
            Chunk::Narrow(entries) => entries.get(at),
        }
    }

    #[inline]
    pub fn get_mut(&mut self, place: u64) -> &mut Entry<T> {
        debug_assert!((self.head..self.tail).contains(&place), "the packet is under way");
        let index = self.chunk_of(place);
        if let Some(Chunk::Narrow(_)) = &self.chunks[index] {
            self.widen_chunk(index);
        }
        match &mut self.chunks[index] {
            Some(Chunk::Wide(entries)) => &mut entries[place as usize % CHUNK],
            _ => unreachable!("{HELD}"),
        }
    }

    #[cold]
    fn widen_chunk(&mut self, index: usize) {
        let mut wide = self.fresh();
        if let Some(Chunk::Narrow(entries)) = &self.chunks[index] {
            entries.widen(&mut wide);
        }
        self.chunks[index] = Some(Chunk::Wide(wide));
    }

    fn recycle(&mut self, entries: Wide<T>) {
        if self.spare.len() < SPARE {
            self.spare.push(entries);
        }
    }

    fn fresh(&mut self) -> Wide<T> {
        self.spare.pop().unwrap_or_else(|| Box::new([Entry::default(); CHUNK]))
    }

    /// Returns the packet at a place, if it is under way.
    #[inline]
    pub fn at_mut(&mut self, place: u64) -> Option<&mut Entry<T>> {
        (self.head..self.tail).contains(&place).then(|| self.get_mut(place))
    }

    #[inline]
    fn chunk_of(&self, place: u64) -> usize {
        (place >> CHUNK_BITS) as usize & (self.chunks.len() - 1)
    }

    /// Appends a packet that cannot be found by key; returns its place.
    #[inline]
    pub fn push(&mut self, ts: u64, state: T) -> u64 {
        // In the order of the others, and equal to none of them.
        let (tag, slot) = self.newest;
        let place = self.append(Entry { tag, ts, slot: !slot, state });
        if !self.all_ascend() {
            self.indexed_to = self.tail;
        }
        place
    }

    #[inline]
    fn append(&mut self, entry: Entry<T>) -> u64 {
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
        if entry.tag <= self.newest.0 {
            self.ascending_from = self.tail;
        }
        self.newest = (entry.tag, entry.slot);
        if self.all_ascend() {
            return (self.append(entry), None);
        }
        self.index_all();
        if self.len() >= PER_BUCKET * self.buckets.len() {
            self.grow();
        }
        let former = self.find(entry.slot, entry.tag);
        let place = self.append(entry);
        self.indexed_to = self.tail;
        if let Some((bucket, slot, former)) = former {
            self.put(entry.slot, place, bucket, slot);
            return (place, Some(former));
        }
        self.add(entry.slot, place);
        (place, None)
    }

    /// Returns true if the tags of all packets under way ascend.
    #[inline]
    pub fn all_ascend(&self) -> bool {
        self.ascending_from <= self.head
    }

    /// Puts into the index what was left out while all tags ascended.
    #[inline]
    fn index_all(&mut self) {
        self.indexed_to = self.indexed_to.max(self.head);
        while self.indexed_to < self.tail {
            self.index_next();
        }
    }

    #[cold]
    fn index_next(&mut self) {
        if self.len() > PER_BUCKET * self.buckets.len() {
            self.grow();
        }
        let place = self.indexed_to;
        self.add(self.get(place).slot, place);
        self.indexed_to += 1;
    }

    /// Returns the place of the newest packet of `key` that is under way.
    #[inline]
    pub fn newest(&self, key: Key) -> Option<u64> {
        if self.all_ascend() {
            return self.bisect(key);
        }
        self.find(key.lo as u32, key.hi).map(|(_, _, place)| place)
    }

    /// Returns the same for tags that ascend. Most numbers follow each other without a gap.
    fn bisect(&self, key: Key) -> Option<u64> {
        let is_there =
            |place: &u64| (self.head..self.tail).contains(place) && self.get(*place).is_of(key);
        let behind = self.newest.0.checked_sub(key.hi)?;
        let without_gap =
            self.tail.checked_sub(1).and_then(|newest| newest.checked_sub(behind)).filter(is_there);
        let by_halves = || {
            let (mut low, mut high) = (self.head, self.tail);
            while low < high {
                let middle = low + (high - low) / 2;
                if self.get(middle).tag < key.hi { low = middle + 1 } else { high = middle }
            }
            Some(low).filter(is_there)
        };
        without_gap.or_else(by_halves)
    }

    /// Returns bucket, slot and place of a key, from its bucket on as far as entries went on.
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
        if self.all_ascend() {
            return;
        }
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
        let entry = *self.get_mut(place);
        self.head += 1;
        if self.head as usize % CHUNK == 0 {
            let index = self.chunk_of(place);
            if let Some(Chunk::Wide(entries)) = self.chunks[index].take() {
                self.recycle(entries);
            }
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
        self.chunks[index] = Some(Chunk::Wide(self.fresh()));
    }

    /// Returns the full place of a slot whose entry is under way.
    #[inline]
    fn widen(&self, place: u32) -> u64 {
        self.head + u64::from(place.wrapping_sub(self.head as u32))
    }

    #[cold]
    fn grow(&mut self) {
        let former = std::mem::take(&mut self.buckets);
        let mut count = former.len();
        while self.len() >= PER_BUCKET * count {
            count *= 2;
        }
        self.buckets = vec![Bucket::NEW; count];
        for bucket in former {
            let live = bucket.live(self.live());
            for slot in (0..SLOTS).filter(|slot| live >> slot & 1 == 1) {
                self.add(bucket.keys[slot], self.widen(bucket.places[slot]));
            }
        }
    }
}

impl<T: State> Flight<T> {
    /// Narrows what lies before `place`, chunk by chunk, but for the oldest, which is about to leave.
    /// Only where tags ascend: hashes are as long as they are.
    pub fn narrow_before(&mut self, place: u64) {
        if !self.all_ascend() {
            return;
        }
        let behind_oldest = (self.head | (CHUNK as u64 - 1)) + 1;
        self.narrowed_to = self.narrowed_to.max(behind_oldest);
        while self.narrowed_to + CHUNK as u64 <= place {
            let index = self.chunk_of(self.narrowed_to);
            if let Some(Chunk::Wide(entries)) = self.chunks[index].take() {
                self.chunks[index] = Some(Chunk::Narrow(Narrow::of(&entries)));
                self.recycle(entries);
            }
            self.narrowed_to += CHUNK as u64;
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

    /// Names that mostly ascend, as sequence numbers do.
    fn ascending_steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            60 => Just(Step::Insert(1)),
            1 => Just(Step::Insert(0)),
            10 => Just(Step::Push),
            55 => Just(Step::Pop),
            30 => any::<u8>().prop_map(Step::Find),
        ];
        let named = |steps: Vec<Step>| {
            let mut name = 0u8;
            let step = |step| match step {
                Step::Insert(by) => {
                    name = if by == 0 { name / 2 } else { name.saturating_add(by) };
                    Step::Insert(name)
                }
                Step::Find(back) => Step::Find(name.saturating_sub(back % 16)),
                other => other,
            };
            steps.into_iter().map(step).collect()
        };
        prop::collection::vec(step, 0..600).prop_map(named)
    }

    /// Returns a key; many keys share a slot, some share all but the tag.
    fn key(name: u8) -> Key {
        Key { hi: u64::from(name), lo: (u64::from(name % 37) * 0x1_0000) | u64::from(name % 5) }
    }

    proptest! {
        #[test]
        fn it_is_a_queue_with_a_dictionary(steps in prop_oneof![steps(), ascending_steps()]) {
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
                        let place = flight.push(now as u64, 0);
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

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Numbers(u64, u32);

    impl State for Numbers {
        fn numbers(self) -> (u64, u32) {
            (self.0, self.1)
        }

        fn of_numbers(large: u64, small: u32) -> Self {
            Self(large, small)
        }
    }

    #[derive(Clone, Debug)]
    enum Stretch {
        /// So many packets, their numbers and times this far apart, with states of this many bits.
        Insert(u64, u64, u32),
        /// One whose number does not ascend.
        Repeat,
        Pop(u64),
        /// Changes the state of one at this share of the queue.
        Change(f64),
        Narrow(f64),
    }

    fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
        let step = prop_oneof![Just(1), Just(1), 2..100u64, any::<u32>().prop_map(u64::from)];
        let stretch = prop_oneof![
            4 => (1..9000u64, step, 0..=64u32).prop_map(|(n, by, bits)| Stretch::Insert(n, by, bits)),
            1 => Just(Stretch::Repeat),
            2 => (1..9000u64).prop_map(Stretch::Pop),
            3 => (0.0..1.0).prop_map(Stretch::Change),
            4 => (0.0..=1.0).prop_map(Stretch::Narrow),
        ];
        prop::collection::vec(stretch, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn narrowed_packets_are_what_they_were(stretches in stretches()) {
            let [mut flight, mut wide] = [Flight::new(), Flight::new()];
            let mut number = 1u64 << 40;
            let at = |flight: &Flight<Numbers>, share: f64| {
                flight.oldest() + (flight.len() as f64 * share) as u64
            };
            for stretch in stretches {
                match stretch {
                    Stretch::Insert(packets, by, bits) => for i in 0..packets {
                        number += by;
                        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        let state = Numbers(random & !(u64::MAX.checked_shl(bits).unwrap_or(0)), i as u32);
                        let entry = Entry::new(Key { hi: number, lo: random >> 32 }, number, state);
                        prop_assert_eq!(flight.insert(entry), wide.insert(entry));
                    },
                    Stretch::Repeat => {
                        let entry = Entry::new(Key { hi: number - 1, lo: 7 }, number, Numbers(0, 0));
                        prop_assert_eq!(flight.insert(entry), wide.insert(entry));
                    }
                    Stretch::Pop(packets) => for _ in 0..packets.min(wide.len() as u64) {
                        let [narrow, wide] = [flight.pop(), wide.pop()].map(|(place, entry)| (place, all_of(entry)));
                        prop_assert_eq!(narrow, wide);
                    },
                    Stretch::Change(share) => {
                        let place = at(&wide, share);
                        for flight in [&mut flight, &mut wide] {
                            if let Some(entry) = flight.at_mut(place) {
                                entry.state = Numbers(place, !0);
                            }
                        }
                    }
                    Stretch::Narrow(share) => flight.narrow_before(at(&wide, share)),
                }
                for place in wide.oldest()..wide.next_place() {
                    prop_assert_eq!(all_of(flight.get(place)), all_of(wide.get(place)));
                }
                let newest = Key { hi: number, lo: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 };
                prop_assert_eq!(flight.newest(newest), wide.newest(newest));
            }
        }
    }

    fn all_of(entry: Entry<Numbers>) -> (u64, u64, u32, Numbers) {
        (entry.tag, entry.ts, entry.slot, entry.state)
    }

    #[test]
    fn a_steady_stream_narrows_to_what_it_does_not_tell_by_itself() {
        let mut flight = Flight::new();
        for i in 0..4 * CHUNK as u64 {
            let spread = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            flight.insert(Entry::new(
                Key { hi: i, lo: spread >> 32 },
                1000 * i,
                Numbers(5000, i as u32),
            ));
        }
        flight.narrow_before(3 * CHUNK as u64);
        let narrow = flight.chunks.iter().flatten().filter_map(|chunk| match chunk {
            Chunk::Wide(_) => None,
            Chunk::Narrow(narrow) => Some(narrow.bytes()),
        });
        // The oldest is about to leave, the newest is still awaited: time, slot and latency of the two between.
        assert_eq!(narrow.collect::<Vec<_>>(), [12 * CHUNK; 2]);
    }

    #[test]
    fn many_chunks_narrowed_at_once_are_not_all_kept_for_reuse() {
        let mut flight = Flight::new();
        for i in 0..4 * (SPARE * CHUNK) as u64 {
            flight.insert(Entry::new(Key { hi: i, lo: 0 }, i, Numbers(0, 0)));
        }
        flight.narrow_before(flight.next_place());
        let is_wide = |chunk: &&Chunk<_>| matches!(chunk, Chunk::Wide(_));
        assert_eq!(flight.chunks.iter().flatten().filter(is_wide).count(), 1);
        assert_eq!(flight.spare.len(), SPARE);
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
