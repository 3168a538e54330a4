//! Small disorder put in order.

/// Packets a batch, as a rule. Disorder within a batch is mended; what goes further back is refused.
pub(crate) const BATCH: usize = 4096;
/// Packets a batch of a capture whose clock is in doubt: where it is set back, many are out of order.
pub(crate) const BATCH_IN_DOUBT: usize = 1 << 17;

/// A value with a time.
pub(crate) trait Timed: Copy {
    /// Returns the time, in ns.
    fn ts(&self) -> u64;
}

impl Timed for u64 {
    fn ts(&self) -> u64 {
        *self
    }
}

/// Packets of a capture in batches in order of time; those of one time stay as they came.
///
/// Each batch waits until the next is full, so that a packet in disorder can still find its place in
/// it.
pub(crate) struct Order<T> {
    batch: usize,
    held: Vec<T>,
    filling: Vec<T>,
    ordered: bool,
    /// The latest time that was seen.
    pub newest_ns: u64,
    sent_ns: u64,
    /// Packets whose time lay before that of a packet in front of them.
    pub disordered: u64,
    /// Largest disorder, in ns.
    pub disorder_ns_max: u64,
}

impl<T: Timed> Order<T> {
    pub fn new(batch: usize) -> Self {
        Self {
            batch,
            held: Vec::with_capacity(batch),
            filling: Vec::with_capacity(batch),
            ordered: true,
            newest_ns: 0,
            sent_ns: 0,
            disordered: 0,
            disorder_ns_max: 0,
        }
    }

    /// Returns true if a batch is full: then [`next`](Self::next) takes one.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.filling.len() >= self.batch
    }

    /// Looks at the time of the packet that is pushed next.
    ///
    /// # Errors
    /// When it lies before what was taken already: then it is the time that was reached.
    #[inline]
    pub fn look_at(&mut self, ts: u64) -> Result<(), u64> {
        if ts < self.newest_ns {
            return self.note_disorder(ts);
        }
        self.newest_ns = ts;
        Ok(())
    }

    #[inline]
    pub fn push(&mut self, packet: T) {
        self.filling.push(packet);
    }

    #[cold]
    fn note_disorder(&mut self, ts: u64) -> Result<(), u64> {
        if ts < self.sent_ns {
            return Err(self.sent_ns);
        }
        self.ordered = false;
        self.disordered += 1;
        self.disorder_ns_max = self.disorder_ns_max.max(self.newest_ns - ts);
        Ok(())
    }

    /// Returns the batch before the one that was just filled: none the first time. In the end it
    /// takes two calls to have everything. `spare` becomes the next batch.
    pub fn next(&mut self, mut spare: Vec<T>) -> Vec<T> {
        if !self.ordered {
            self.put_in_order();
        }
        spare.clear();
        let filled = std::mem::replace(&mut self.filling, spare);
        let batch = std::mem::replace(&mut self.held, filled);
        debug_assert!(batch.is_sorted_by_key(Timed::ts), "a batch is in order of time");
        assert!(batch.first().is_none_or(|first| self.sent_ns <= first.ts()), "batches are, too");
        self.sent_ns = batch.last().map_or(self.sent_ns, Timed::ts);
        batch
    }

    #[cold]
    fn put_in_order(&mut self) {
        let held = self.held.len();
        self.held.append(&mut self.filling);
        self.held.sort_by_key(Timed::ts);
        self.filling.extend(self.held.drain(held..));
        self.ordered = true;
    }
}
