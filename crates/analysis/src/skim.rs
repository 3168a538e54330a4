//! A first pass over a capture: only the times of its packets.

use capture::{Compression, Cut, Info, Mark, Reader};
use units::Nanos;

use crate::error::Error;
use crate::ingest::Ahead;
use crate::order::{BATCH, Order};
use crate::pair::{Captured, Observer, Progress, continue_unless_stopped};
use crate::side::Side;

/// Number of places, and of times, of a capture that are remembered.
const REMEMBERED: usize = 4096;

/// The facts about a capture that each stretch of it must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub info: Info,
    pub cut: Option<Cut>,
    pub packets: u64,
    pub first_ns: Option<u64>,
    pub last_ns: Option<u64>,
    /// The first packet after the trim.
    pub origin_ns: Option<u64>,
    pub disordered: u64,
    pub disorder_ns_max: u64,
}

impl Head {
    /// Returns a side that has counted nothing yet.
    pub fn side(&self, trim: Nanos) -> Side {
        Side { first_ns: self.first_ns, origin_ns: self.origin_ns, ..Side::new(trim) }
    }

    /// Returns what was counted of the capture, with what is known of all of it.
    pub fn captured(&self, side: Side) -> Captured {
        let &Self { last_ns, disordered, disorder_ns_max, .. } = self;
        let (name, info, cut) = (self.info.name.clone(), self.info.clone(), self.cut.clone());
        let side = Side { last_ns, disordered, disorder_ns_max, ..side };
        Captured { name, info: Some(info), files: None, cut, side }
    }
}

/// A place between two batches of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// No packet before is later.
    newest_ns: u64,
    offset: u64,
    packets: u64,
    headers: usize,
    consumed_bytes: u64,
}

impl Spot {
    /// Returns where a reader is that has read no packet.
    pub fn start(reader: &Reader) -> Self {
        Self {
            newest_ns: 0,
            offset: reader.offset(),
            packets: 0,
            headers: reader.headers().len(),
            consumed_bytes: reader.consumed_bytes(),
        }
    }
}

/// The results of the first pass.
#[derive(Debug)]
pub(crate) struct Skimmed {
    pub head: Head,
    /// Times of packets, in order, with the same number of packets between any two.
    pub times: Thinned<u64>,
    spots: Thinned<Spot>,
    headers: Vec<u64>,
    pub file_bytes: u64,
}

impl Skimmed {
    /// Returns where to begin to read packets that are not before `first_ns`, and about how many
    /// bytes lie from there to those after `last_ns`.
    pub fn portion(&self, first_ns: u64, last_ns: u64) -> (Mark, u64) {
        let spots = &self.spots.kept;
        let at = spots[1..].partition_point(|spot| spot.newest_ns < first_ns);
        let behind = spots.partition_point(|spot| spot.newest_ns <= last_ns);
        let Spot { offset, packets, headers, consumed_bytes, .. } = spots[at];
        let end = spots.get(behind).map_or(self.file_bytes, |spot| spot.consumed_bytes);
        let plain = self.head.info.compression == Compression::None;
        let start = if plain { consumed_bytes } else { 0 };
        let headers = self.headers[..headers].to_vec();
        let mark = Mark { file_bytes: self.file_bytes, offset, packets, headers };
        (mark, end.saturating_sub(start))
    }
}

/// Reads the times of all packets, behind those that were read `ahead` from `start` on. `done` bytes were read before, of `total_bytes`.
pub(crate) fn skim(
    mut reader: Reader,
    (start, ahead): (Spot, &[Ahead]),
    trim: Nanos,
    observer: &mut dyn Observer,
    done: u64,
    total_bytes: u64,
) -> Result<Skimmed, Error> {
    let mut skimming = Skimming::new(trim, &reader, start);
    for packet in ahead {
        skimming.take(&packet.packet())?;
        if skimming.order.is_full() {
            skimming.next_batch();
        }
    }
    while let Some(packet) = reader.next()? {
        skimming.take(&packet)?;
        if skimming.order.is_full() {
            skimming.next_batch();
            skimming.remember(&reader);
            let done_bytes = done + reader.consumed_bytes();
            let progress = Progress { done_bytes, total_bytes: Some(total_bytes) };
            continue_unless_stopped(observer.progress(progress))?;
        }
    }
    skimming.next_batch();
    skimming.next_batch();
    Ok(skimming.finish(&reader))
}

struct Skimming {
    name: String,
    trim: u64,
    order: Order<u64>,
    spare: Vec<u64>,
    packets: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    origin_ns: Option<u64>,
    times: Thinned<u64>,
    spots: Thinned<Spot>,
}

impl Skimming {
    fn new(trim: Nanos, reader: &Reader, start: Spot) -> Self {
        let mut skimming = Self {
            name: reader.info().name,
            trim: trim.0,
            order: Order::new(BATCH),
            spare: Vec::new(),
            packets: 0,
            first_ns: None,
            last_ns: None,
            origin_ns: None,
            times: Thinned::new(),
            spots: Thinned::new(),
        };
        skimming.spots.push(start);
        skimming
    }

    #[inline]
    fn take(&mut self, packet: &capture::Packet<'_>) -> Result<(), Error> {
        self.packets += 1;
        if let Err(reached) = self.order.look_at(packet.ts.0) {
            return Err(Error::time_goes_back(&self.name, packet, self.packets, reached));
        }
        self.order.push(packet.ts.0);
        Ok(())
    }

    fn remember(&mut self, reader: &Reader) {
        self.spots.push(Spot {
            newest_ns: self.order.newest_ns,
            offset: reader.offset(),
            packets: self.packets,
            headers: reader.headers().len(),
            consumed_bytes: reader.consumed_bytes(),
        });
    }

    fn next_batch(&mut self) {
        let batch = self.order.next(std::mem::take(&mut self.spare));
        if let (Some(first), Some(last)) = (batch.first(), batch.last()) {
            let first = *self.first_ns.get_or_insert(*first);
            self.last_ns = Some(*last);
            let kept = |ts: &&u64| self.trim == 0 || **ts - first > self.trim;
            self.origin_ns = self.origin_ns.or_else(|| batch.iter().find(kept).copied());
            batch.iter().for_each(|ts| self.times.push(*ts));
        }
        self.spare = batch;
    }

    fn finish(self, reader: &Reader) -> Skimmed {
        let head = Head {
            info: reader.info(),
            cut: reader.cut().cloned(),
            packets: self.packets,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            origin_ns: self.origin_ns,
            disordered: self.order.disordered,
            disorder_ns_max: self.order.disorder_ns_max,
        };
        assert_eq!(head.first_ns.is_some(), head.packets > 0, "every packet has its time");
        assert!(head.first_ns <= head.last_ns, "time goes on");
        let (headers, file_bytes) = (reader.headers().to_vec(), reader.total_bytes().unwrap_or(0));
        Skimmed { head, times: self.times, spots: self.spots, headers, file_bytes }
    }
}

/// The first of what comes and every n-th after it; n doubles whenever there are too many.
#[derive(Debug)]
pub(crate) struct Thinned<T> {
    pub kept: Vec<T>,
    pub every: usize,
    passed_over: usize,
}

impl<T> Thinned<T> {
    fn new() -> Self {
        Self { kept: Vec::new(), every: 1, passed_over: 0 }
    }

    #[inline]
    fn push(&mut self, item: T) {
        if self.passed_over > 0 {
            self.passed_over -= 1;
            return;
        }
        self.kept.push(item);
        if self.kept.len() > REMEMBERED {
            self.thin();
        }
        self.passed_over = self.every - 1;
    }

    #[cold]
    fn thin(&mut self) {
        // An even number was kept before this one, so that it is among those that stay.
        let mut stays = false;
        self.kept.retain(|_| {
            stays = !stays;
            stays
        });
        self.every *= 2;
        assert!(self.kept.len() <= REMEMBERED, "half of them are forgotten");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_thinned_has_even_steps() {
        for count in [0, 1, REMEMBERED, REMEMBERED + 1, 2 * REMEMBERED + 1, 100_000] {
            let mut thinned = Thinned::new();
            (0..count).for_each(|item| thinned.push(item));
            let expected: Vec<usize> = (0..count).step_by(thinned.every).collect();
            assert_eq!(thinned.kept, expected);
            assert!(thinned.kept.len() <= REMEMBERED);
        }
    }
}
