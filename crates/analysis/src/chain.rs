//! Packets that share a key within the window, and what order proves of them.
//!
//! Alike packets leave a device in the order in which they came. So a post of their key answers the
//! oldest that was not answered yet. Where only one waits, that is certain. Where several wait, one of
//! them may have been lost; the answer holds only if, before the packet leaves its window, all that
//! waited were answered: then as many came out as went in.

use std::collections::{HashMap, VecDeque};

use probe::key::Key;

/// What a post of a key that several packets carry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The match of the packet at this place, if it is certain when that leaves the window.
    Match(u64),
    /// A further post of a packet that was answered.
    Further,
}

/// The packets of one key, each less than a window behind the one before.
#[derive(Debug, Default)]
struct Chain {
    /// Packets that wait, by place and time, in order.
    waiting: VecDeque<(u64, u64)>,
    /// Packets whose answer is not certain, in order.
    uncertain: VecDeque<u64>,
    /// The newest that was answered was sent then, in ns.
    answered_ns: Option<u64>,
    /// The newest packet.
    newest: u64,
    /// Whether packets before the first may belong to it.
    torn: bool,
}

/// All chains under way.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    chains: HashMap<(u64, u32), Chain>,
}

fn name(key: Key) -> (u64, u32) {
    (key.hi, key.lo as u32)
}

impl Chains {
    /// Begins the chain of `key` with the packet at `place`, sent at `ts`, that was alone so far.
    /// `torn`: perhaps only in what was read.
    pub fn begin(&mut self, key: Key, (place, ts): (u64, u64), answered: bool, torn: bool) {
        let waiting = if answered { VecDeque::new() } else { [(place, ts)].into() };
        let answered_ns = answered.then_some(ts);
        let chain = Chain { waiting, answered_ns, newest: place, torn, ..Chain::default() };
        let former = self.chains.insert(name(key), chain);
        assert!(former.is_none(), "a chain ends when its last packet leaves the window");
    }

    /// The next packet of a chain; whether that may have begun before what was read.
    pub fn add(&mut self, key: Key, place: u64, ts: u64) -> bool {
        let chain = self.of(key);
        assert!(chain.newest < place, "packets come in order");
        chain.waiting.push_back((place, ts));
        chain.newest = place;
        chain.torn
    }

    /// A post of the chain. What left the window has left the chain.
    pub fn answer(&mut self, key: Key) -> Answer {
        let chain = self.of(key);
        let Some((place, ts)) = chain.waiting.pop_front() else { return Answer::Further };
        chain.answered_ns = Some(ts);
        if chain.waiting.is_empty() {
            chain.uncertain.clear();
        } else {
            chain.uncertain.push_back(place);
        }
        Answer::Match(place)
    }

    /// The packet at `place`, sent at `ts`, leaves its window. Whether it is not known if it arrived:
    /// its answer is not certain, or there is none, but for one that was sent less than a window
    /// before.
    pub fn leaves_ambiguous(&mut self, key: Key, (place, ts): (u64, u64), window: u64) -> bool {
        let chain = self.of(key);
        let ambiguous = if chain.waiting.front().is_some_and(|(first, _)| *first == place) {
            chain.waiting.pop_front();
            chain.answered_ns.is_some_and(|answered| ts - answered < window)
        } else {
            let uncertain = chain.uncertain.front() == Some(&place);
            if uncertain {
                chain.uncertain.pop_front();
            }
            uncertain
        };
        if chain.newest == place {
            let left = chain.waiting.is_empty() && chain.uncertain.is_empty();
            assert!(left, "the newest leaves last");
            self.chains.remove(&name(key));
        }
        ambiguous
    }

    fn of(&mut self, key: Key) -> &mut Chain {
        self.chains.get_mut(&name(key)).expect("a packet of a chain is marked, and leaves it last")
    }
}
