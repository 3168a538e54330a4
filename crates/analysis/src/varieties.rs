//! Packets by flow and size: each pair of the two has a number, which a packet carries.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use probe::flow::{Flow, Head};

/// Flows that are told apart; packets of further ones are those of [`OTHERS`].
const MOST_FLOWS: usize = 1 << 16;
/// Pairs of flow and size that are told apart; further packets are those of [`OTHERS`].
const MOST_VARIETIES: usize = 1 << 20;
/// The number of the flow of what is not told apart.
pub(crate) const OTHERS: u32 = 0;

/// A flow and a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Variety {
    /// Number of the flow.
    pub flow: u32,
    /// Length of the packet on the wire, in bytes.
    pub size_bytes: u32,
}

/// Flows and varieties that were seen for the first time, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub flows: Vec<Flow>,
    pub varieties: Vec<Variety>,
}

impl News {
    pub fn is_empty(&self) -> bool {
        self.varieties.is_empty()
    }

    pub fn extend(&mut self, other: Self) {
        self.flows.extend(other.flows);
        self.varieties.extend(other.varieties);
    }
}

/// Gives varieties their numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    flows: HashMap<Flow, Numbered, BuildHasherDefault<Folded>>,
    varieties: HashMap<Variety, u32, BuildHasherDefault<Folded>>,
    /// The latest variety of each of some headers.
    latest: Latest,
    news: News,
}

/// Places of headers: as many as fit beside all else into the nearest cache.
const LATEST: usize = 256;

#[derive(Debug)]
struct Latest(Box<[(Head, u32, u32); LATEST]>);

impl Default for Latest {
    fn default() -> Self {
        Self(Box::new([Default::default(); LATEST]))
    }
}

/// The number of a flow, and of its latest variety.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    flow: u32,
    size_bytes: u32,
    variety: u32,
}

impl Numbers {
    /// Returns the number of a frame's variety.
    #[inline]
    pub fn of_frame(&mut self, frame: &[u8], size_bytes: u32) -> u32 {
        let Some(head) = Head::of(frame) else { return self.of_other(frame, size_bytes) };
        let (last, last_bytes, variety) = self.latest.0[head.hash() % LATEST];
        if last == head && last_bytes == size_bytes {
            return variety;
        }
        self.of_new(frame, head, size_bytes)
    }

    #[inline(never)]
    fn of_new(&mut self, frame: &[u8], head: Head, size_bytes: u32) -> u32 {
        let Some(flow) = Flow::plain(frame) else { return self.of_other(frame, size_bytes) };
        let variety = self.of(flow, size_bytes);
        self.latest.0[head.hash() % LATEST] = (head, size_bytes, variety);
        variety
    }

    #[inline(never)]
    fn of_other(&mut self, frame: &[u8], size_bytes: u32) -> u32 {
        self.of(Flow::of(frame, size_bytes), size_bytes)
    }

    fn of(&mut self, flow: Flow, size_bytes: u32) -> u32 {
        if let Some(known) = self.flows.get(&flow).copied() {
            let number = if known.size_bytes == size_bytes {
                known
            } else {
                self.sized(Variety { flow: known.flow, size_bytes })
            };
            if number.flow != OTHERS {
                self.flows.insert(flow, number);
            }
            return number.variety;
        }
        // Those that are not told apart are the first.
        if self.flows.len() + 1 >= MOST_FLOWS {
            return self.sized(Variety { flow: OTHERS, size_bytes }).variety;
        }
        self.news.flows.push(flow);
        let place = self.flows.len() as u32 + 1;
        let number = self.sized(Variety { flow: place, size_bytes });
        self.flows.insert(flow, Numbered { flow: place, ..number });
        number.variety
    }

    fn sized(&mut self, variety: Variety) -> Numbered {
        let Variety { flow, size_bytes } = variety;
        if let Some(&number) = self.varieties.get(&variety) {
            return Numbered { flow, size_bytes, variety: number };
        }
        if self.varieties.len() >= MOST_VARIETIES && flow != OTHERS {
            return self.sized(Variety { flow: OTHERS, size_bytes });
        }
        let number = self.varieties.len() as u32;
        self.varieties.insert(variety, number);
        self.news.varieties.push(variety);
        Numbered { flow, size_bytes, variety: number }
    }

    /// Takes what is new since the last call.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }
}

/// A hash of a few numbers: each is folded in by a multiplication.
#[derive(Default)]
struct Folded(u64);

impl Folded {
    #[inline]
    fn fold(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.fold(u64::from(*byte) + 1));
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.fold(u64::from(number).wrapping_add(1));
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.fold(u64::from(number).wrapping_add(1));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.fold(u64::from(number).wrapping_add(1));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.fold((number as u64).wrapping_add(1));
        self.fold((number >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.fold((number as u64).wrapping_add(1));
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.fold((number as u64).wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: usize) -> Flow {
        Flow { from: number as u128, ..Flow::default() }
    }

    #[test]
    fn each_flow_and_size_has_one_number() {
        let mut numbers = Numbers::default();
        let asked = [(1, 64), (1, 64), (2, 64), (1, 1500), (2, 64), (1, 64), (1, 1500)];
        let got: Vec<u32> = asked.iter().map(|(of, size)| numbers.of(flow(*of), *size)).collect();
        assert_eq!(got, [0, 0, 1, 2, 1, 0, 2]);
        let news = numbers.take_news();
        assert_eq!(news.flows, [flow(1), flow(2)]);
        let all = [(1, 64), (2, 64), (1, 1500)];
        let all = all.map(|(flow, size_bytes)| Variety { flow, size_bytes });
        assert_eq!(news.varieties, all);
        assert!(numbers.take_news().is_empty());
    }

    #[test]
    fn too_many_flows_are_not_told_apart() {
        let mut numbers = Numbers::default();
        for of in 0..MOST_FLOWS + 5 {
            let _ = numbers.of(flow(of), 64);
        }
        let news = numbers.take_news();
        assert_eq!(news.flows.len(), MOST_FLOWS - 1);
        assert_eq!(news.varieties.last().unwrap().flow, OTHERS);
        assert_eq!(numbers.of(flow(3), 64), 3);
    }
}
