//! A capture that is sent again: its frames as they are, and when.

use crate::book::{Found, Identify};
use crate::error::Error;
use crate::series::Departures;
use crate::template::Content;
use capture::Reader;
use dpdk::Mbuf;
use probe::key::{Key, Keyed, Keyer, MatchOn, Tap};
use std::collections::HashMap;
use std::path::Path;
use units::Nanos;

/// The frames of a capture, one behind the other.
#[derive(Debug)]
pub struct Replay {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
    /// When each leaves, counted from the first.
    pub departures: Vec<Nanos>,
    longest: usize,
}

impl Replay {
    /// Reads a capture whose frames were kept whole, to be sent `speed` times as fast.
    pub fn read(path: &Path, speed: f64, most_bytes: usize) -> Result<Self, Error> {
        let mut reader = Reader::open(path)?;
        let mut replay = Self { bytes: vec![], ends: vec![], departures: vec![], longest: 0 };
        let mut first = None;
        while let Some(packet) = reader.next()? {
            let (len, number) = (packet.data.len(), replay.ends.len() + 1);
            let refuse = |expected: String| {
                Err(Error::Frame { path: path.into(), number, got: len, expected })
            };
            if len < packet.orig_len as usize {
                return refuse(format!("all {} of the frame", packet.orig_len));
            }
            if len > most_bytes || len < 14 {
                return refuse(format!("14 to {most_bytes}"));
            }
            let since = packet.ts.0.saturating_sub(*first.get_or_insert(packet.ts.0));
            let at = Nanos((since as f64 / speed) as u64);
            // A capture may be slightly out of order; a schedule is not.
            let at = replay.departures.last().map_or(at, |last| at.max(*last));
            replay.departures.push(at);
            replay.bytes.extend_from_slice(packet.data);
            replay.ends.push(replay.bytes.len());
            replay.longest = replay.longest.max(len);
        }
        if replay.ends.is_empty() {
            return Err(Error::Empty { path: path.into() });
        }
        assert_eq!(replay.departures.len(), replay.ends.len(), "every frame has its time");
        assert!(replay.departures.is_sorted(), "a schedule goes on");
        assert!(replay.longest <= most_bytes, "packets have room for every frame");
        Ok(replay)
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline(always)]
    fn frame(&self, seq: u64) -> &[u8] {
        let at = seq as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// What its frames are known by when they come back.
    pub fn names(&self) -> Names {
        let keyer = Keyer::new(&MatchOn::Frame, Tap::Pre, None);
        let mut seqs = HashMap::with_capacity(2 * self.len());
        let mut ambiguous = 0;
        for seq in 0..self.len() as u64 {
            let frame = self.frame(seq);
            let Keyed::Key(key) = keyer.key(frame, frame.len() as u32) else { continue };
            seqs.entry(key)
                .and_modify(|found: &mut Option<u64>| {
                    ambiguous += 1 + u64::from(found.is_some());
                    *found = None;
                })
                .or_insert(Some(seq));
        }
        Names { keyer, seqs, ambiguous }
    }
}

impl Content for Replay {
    #[inline(always)]
    fn fill(&self, packet: &mut Mbuf, seq: u64, _intended_ns: u64, _actual_ns: u64) {
        let frame = self.frame(seq);
        packet.set_len(frame.len() as u16);
        packet.data_mut().copy_from_slice(frame);
    }

    fn copy(&self, frame: &mut Vec<u8>, seq: u64, _intended_ns: u64, _actual_ns: u64) {
        frame.clear();
        frame.extend_from_slice(self.frame(seq));
    }

    /// A capture is sent by one queue, in its order.
    fn flow(&self, _seq: u64) -> usize {
        0
    }

    fn frame_len(&self, seq: u64) -> usize {
        self.frame(seq).len()
    }

    fn longest(&self) -> usize {
        self.longest
    }
}

/// Frames by their key, which survives new MAC addresses and checksums.
#[derive(Debug)]
pub struct Names {
    keyer: Keyer,
    seqs: HashMap<Key, Option<u64>>,
    /// Frames that share their key with another one: they are sent, and not matched.
    pub ambiguous: u64,
}

impl Identify for Names {
    const IS_NUMBERED: bool = false;

    #[inline(always)]
    fn identify(&self, frame: &[u8], _departures: &Departures) -> Found {
        let Keyed::Key(key) = self.keyer.key(frame, frame.len() as u32) else {
            return Found::Foreign;
        };
        match self.seqs.get(&key) {
            Some(Some(seq)) => Found::Packet(*seq),
            Some(None) => Found::Ambiguous,
            None => Found::Foreign,
        }
    }

    fn mark(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{Compression, Format, Writer};

    fn capture(frames: &[(u64, Vec<u8>, u32)]) -> Result<Replay, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        let mut writer = Writer::create(&path, Format::Pcap, Compression::None).unwrap();
        for (ns, frame, len) in frames {
            writer.write(Nanos(*ns), *len, frame).unwrap();
        }
        writer.finish().unwrap();
        Replay::read(&path, 2.0, 1514)
    }

    #[test]
    fn frames_keep_their_gaps_and_are_known_again() {
        let frame = |byte| vec![byte; 60];
        let replay = capture(&[
            (1000, frame(1), 60),
            (3000, frame(2), 60),
            (2900, frame(1), 60),
            (9000, frame(4), 60),
        ])
        .unwrap();
        assert_eq!(replay.departures, [0, 1000, 1000, 4000].map(Nanos));
        let (names, none) = (replay.names(), Departures::with_room(0).unwrap());
        assert_eq!(names.ambiguous, 2);
        let mut changed = frame(4);
        changed[..12].fill(9);
        assert_eq!(names.identify(&changed, &none), Found::Packet(3));
        assert_eq!(names.identify(&frame(1), &none), Found::Ambiguous);
        assert_eq!(names.identify(&frame(5), &none), Found::Foreign);
        let mut copied = vec![];
        replay.copy(&mut copied, 3, 0, 0);
        assert_eq!((copied, replay.longest()), (frame(4), 60));
    }

    #[test]
    fn what_cannot_be_sent_as_it_was_is_refused() {
        let message = |frames: &[_]| capture(frames).unwrap_err().to_string();
        let good = (0, vec![0; 60], 60);
        assert!(message(&[good.clone(), (1, vec![0; 60], 61)]).contains("packet 2: got 60 bytes"));
        assert!(message(&[good, (1, vec![0; 1515], 1515)]).contains("expected 14 to 1514"));
        assert!(message(&[]).contains("no packets"));
    }
}
