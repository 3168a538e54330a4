//! Packets that share a key within the window, and what order proves of them.
//!
//! A chain is anchored if nothing that went in before its first packet can still come out behind it
//! (`Matcher::is_anchored`). From there on order proves each match as long as packets go in and come
//! out by turns: a packet goes in where none waits, and a post comes where one does. Where two wait, one
//! of them may have been lost. Where a post comes and none waits, one came out twice. Either ends the
//! proof, also of what is still in its window: nobody knows since when the posts are those of other
//! packets. As many in as out proves nothing: a loss and a copy make up for each other.
//!
//! Posts are given to the oldest packet that waits all the same, to tell packets that may have come out
//! from those that did not. So those that wait are the newest of a chain: one place says it of any
//! number of packets. Each packet that waits holds the way to the next one ([`Waiting`]), so that a
//! chain needs no list of its own.

use std::collections::HashMap;

use probe::key::Key;

/// The relation of a post to its chain of packets with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The match of the packet at this place, if its answer is certain.
    Match(u64),
    /// A further post of a packet that was answered.
    Further,
}

/// The number of posts of a packet before another one alike goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posts {
    None,
    One,
    Several,
}

/// The packets under way, by place.
pub(crate) trait Waiting {
    /// Returns when the packet at `place` was sent, in ns.
    fn sent_ns(&self, place: u64) -> u64;
    /// Returns the place of the next packet of its chain, of one that waits and is not the newest.
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
    /// Time at which the first packet was sent, in ns.
    first_ns: u64,
    /// True if it is anchored, which is known when it leaves.
    anchored: Option<bool>,
    /// True if packets went in and came out by turns, all of the time.
    by_turns: bool,
    /// The newest that was answered was sent then, in ns.
    answered_ns: Option<u64>,
}

impl Chain {
    fn waits(&self) -> bool {
        self.oldest <= self.newest
    }

    /// Lets the oldest wait no longer; `next` is the one behind it, if there is one.
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
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// Begins the chain of `key` with a packet that was alone so far: its place, when it was sent, and
    /// how many posts it has.
    pub fn begin(&mut self, key: Key, (place, ts): (u64, u64), posts: Posts) {
        let answered = posts != Posts::None;
        let chain = Chain {
            oldest: place + u64::from(answered),
            newest: place,
            first_ns: ts,
            anchored: None,
            by_turns: posts == Posts::One,
            answered_ns: answered.then_some(ts),
        };
        let former = self.chains.insert(name(key), chain);
        assert!(former.is_none(), "a chain ends when its last packet leaves the window");
    }

    /// Adds the next packet of a chain, and returns the time at which its first was sent, in ns.
    pub fn add(&mut self, key: Key, place: u64, waiting: &mut impl Waiting) -> u64 {
        let chain = self.of(key);
        assert!(chain.newest < place, "packets come in order");
        if chain.waits() {
            waiting.set_next(chain.newest, place);
            chain.by_turns = false;
        } else {
            chain.oldest = place;
        }
        chain.newest = place;
        chain.first_ns
    }

    /// Answers a post of the chain. What left the window has left the chain.
    pub fn answer(&mut self, key: Key, waiting: &impl Waiting) -> Answer {
        let chain = self.of(key);
        if !chain.waits() {
            chain.by_turns = false;
            return Answer::Further;
        }
        let place = chain.oldest;
        chain.answered_ns = Some(waiting.sent_ns(place));
        chain.pass_on(|| waiting.next(place));
        Answer::Match(place)
    }

    /// Lets the packet at `place`, sent at `ts`, leave its window. If it waits, `next` is the one
    /// behind it in its chain; if it is the first, `anchored` says whether it is. Returns true if
    /// it is not known what became of it: its answer is not certain, or it has none, but one sent
    /// less than a window before has.
    pub fn leaves_ambiguous(
        &mut self,
        key: Key,
        (place, ts): (u64, u64),
        next: u64,
        window: u64,
        anchored: bool,
    ) -> bool {
        let chain = self.of(key);
        let anchored = *chain.anchored.get_or_insert(anchored);
        let ambiguous = if chain.waits() && chain.oldest == place {
            chain.pass_on(|| next);
            chain.answered_ns.is_some_and(|answered| ts - answered < window)
        } else {
            !(anchored && chain.by_turns)
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
