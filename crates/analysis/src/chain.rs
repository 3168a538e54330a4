//! Packets that share a key within the window, and what order proves of them.
//!
//! Alike packets leave a device in the order in which they came. So a post of their key answers the
//! oldest that was not answered yet. Where only one waits, that is certain. Where several wait, one of
//! them may have been lost; the answer holds only if, before the packet leaves its window, all that
//! waited were answered: then as many came out as went in.
//!
//! Packets are answered in order, and leave in order. So those that wait are the newest of a chain, and
//! those whose answer is certain the oldest: two places say it of any number of packets. Each packet
//! that waits holds the way to the next one ([`Waiting`]), so that a chain needs no list of its own.

use std::collections::HashMap;

use probe::key::Key;

/// What a post of a key that several packets carry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The match of the packet at this place, if it is certain when that leaves the window.
    Match(u64),
    /// A further post of a packet that was answered.
    Further,
}

/// The packets under way, by place.
pub(crate) trait Waiting {
    /// When the packet at `place` was sent, in ns.
    fn sent_ns(&self, place: u64) -> u64;
    /// The place of the next packet of its chain, of one that waits and is not the newest.
    fn next(&self, place: u64) -> u64;
    /// Sets it.
    fn set_next(&mut self, place: u64, next: u64);
}

/// The packets of one key, each less than a window behind the one before.
#[derive(Debug)]
struct Chain {
    /// The oldest packet that waits; it lies behind the newest if none does.
    oldest: u64,
    /// The newest packet.
    newest: u64,
    /// The answers of all packets before this place are certain.
    certain: u64,
    /// The newest that was answered was sent then, in ns.
    answered_ns: Option<u64>,
    /// Whether packets before the first may belong to it.
    torn: bool,
}

impl Chain {
    fn waits(&self) -> bool {
        self.oldest <= self.newest
    }

    /// The oldest waits no longer; `next` is the one behind it, if there is one.
    fn pass_on(&mut self, next: impl FnOnce() -> u64) {
        self.oldest = if self.oldest == self.newest { self.newest + 1 } else { next() };
    }
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
    /// How many there are.
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// Begins the chain of `key` with the packet at `place`, sent at `ts`, that was alone so far.
    /// `torn`: perhaps only in what was read.
    pub fn begin(&mut self, key: Key, (place, ts): (u64, u64), answered: bool, torn: bool) {
        let behind = place + u64::from(answered);
        let answered_ns = answered.then_some(ts);
        let chain = Chain { oldest: behind, newest: place, certain: behind, answered_ns, torn };
        let former = self.chains.insert(name(key), chain);
        assert!(former.is_none(), "a chain ends when its last packet leaves the window");
    }

    /// The next packet of a chain; whether that may have begun before what was read.
    pub fn add(&mut self, key: Key, place: u64, waiting: &mut impl Waiting) -> bool {
        let chain = self.of(key);
        assert!(chain.newest < place, "packets come in order");
        if chain.waits() {
            waiting.set_next(chain.newest, place);
        } else {
            chain.oldest = place;
        }
        chain.newest = place;
        chain.torn
    }

    /// A post of the chain. What left the window has left the chain.
    pub fn answer(&mut self, key: Key, waiting: &impl Waiting) -> Answer {
        let chain = self.of(key);
        if !chain.waits() {
            return Answer::Further;
        }
        let place = chain.oldest;
        chain.answered_ns = Some(waiting.sent_ns(place));
        chain.pass_on(|| waiting.next(place));
        if !chain.waits() {
            chain.certain = place + 1;
        }
        Answer::Match(place)
    }

    /// The packet at `place`, sent at `ts`, leaves its window; `next` is the one behind it in its chain
    /// if it waits. Whether it is not known if it arrived: its answer is not certain, or there is none,
    /// but for one that was sent less than a window before.
    pub fn leaves_ambiguous(
        &mut self,
        key: Key,
        (place, ts): (u64, u64),
        next: u64,
        window: u64,
    ) -> bool {
        let chain = self.of(key);
        let ambiguous = if chain.waits() && chain.oldest == place {
            chain.pass_on(|| next);
            chain.answered_ns.is_some_and(|answered| ts - answered < window)
        } else {
            place >= chain.certain
        };
        if chain.newest == place {
            assert!(!chain.waits(), "the newest leaves last");
            self.chains.remove(&name(key));
        }
        ambiguous
    }

    fn of(&mut self, key: Key) -> &mut Chain {
        self.chains.get_mut(&name(key)).expect("a packet of a chain is marked, and leaves it last")
    }
}
