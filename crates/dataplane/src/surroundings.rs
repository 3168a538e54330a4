//! What both links saw around the worst packets, as captures of which there are never more than so
//! many.

use crate::error::Error;
use crate::hearer::Piece;
use capture::{Compression, Format, Writer};
use probe::key::Tap;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// What is kept before and behind each of the two times of a packet, in ns.
const AROUND_NS: u64 = 5_000_000;
/// Between the two times, all is kept of a packet that took no longer.
const WHOLE_NS: u64 = 50_000_000;
/// Memory for what was heard of a link.
const MOST_BYTES: usize = 128 << 20;

/// A packet among the worst.
#[derive(Clone, Copy, Debug)]
pub struct WorstPacket {
    /// When it came, in ns.
    pub pre_ns: u64,
    /// How long it took to leave, in ns.
    pub latency_ns: u64,
}

/// The latest of both links, and the captures that were made of it.
pub struct Surroundings {
    folder: Option<PathBuf>,
    most: usize,
    heard: [History; 2],
    /// The worst packets with captures.
    kept: Vec<WorstPacket>,
    /// Captures that could not be written.
    pub unwritten: u64,
}

#[derive(Default)]
struct History {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl History {
    fn push(&mut self, piece: Piece) {
        self.bytes += piece.memory_bytes();
        self.pieces.push_back(piece);
    }

    fn forget_before(&mut self, ts: u64) {
        let is_old = |piece: &Piece| piece.times().is_none_or(|(_, last)| last < ts);
        while self.pieces.front().is_some_and(|piece| self.bytes > MOST_BYTES || is_old(piece)) {
            let piece = self.pieces.pop_front().expect("there is one");
            self.bytes -= piece.memory_bytes();
        }
    }
}

impl Surroundings {
    /// Keeps captures of the `most` worst packets in a folder; none without one.
    pub fn new(folder: Option<&Path>, most: usize) -> Self {
        let folder = folder.filter(|_| most > 0).map(Path::to_owned);
        Self { folder, most, heard: Default::default(), kept: Vec::new(), unwritten: 0 }
    }

    /// Remembers what was heard of a link.
    pub fn hear(&mut self, tap: Tap, piece: Piece) {
        if self.folder.is_some() && piece.times().is_some() {
            self.heard[tap as usize].push(piece);
        }
    }

    /// Forgets what is older, or does not fit.
    pub fn forget_before(&mut self, ts: u64) {
        self.heard.iter_mut().for_each(|heard| heard.forget_before(ts));
    }

    /// Takes the worst packet of a second: if it is among the worst of all, captures are made.
    pub fn note(&mut self, worst: &WorstPacket) {
        let Some(folder) = &self.folder else { return };
        let least = self.kept.iter().copied().enumerate().min_by_key(|(_, kept)| kept.latency_ns);
        let least = least.filter(|_| self.kept.len() >= self.most);
        if least.is_some_and(|(_, least)| worst.latency_ns <= least.latency_ns) {
            return;
        }
        if self.write(folder, worst).is_err() {
            // What was begun of them would stay.
            remove(folder, worst);
            self.unwritten += 1;
            return;
        }
        if let Some((place, least)) = least {
            self.kept.remove(place);
            remove(folder, &least);
        }
        self.kept.push(*worst);
    }

    fn write(&self, folder: &Path, worst: &WorstPacket) -> Result<(), Error> {
        let times = [worst.pre_ns, worst.pre_ns + worst.latency_ns];
        let span = times[0].saturating_sub(AROUND_NS)..=times[1] + AROUND_NS;
        let is_near = |ts: u64| match worst.latency_ns {
            ..=WHOLE_NS => span.contains(&ts),
            _ => times.iter().any(|time| time.abs_diff(ts) <= AROUND_NS),
        };
        for (path, heard) in paths(folder, worst).iter().zip(&self.heard) {
            let mut writer = Writer::create(path, Format::Pcap, Compression::None)?;
            let meets = |piece: &&Piece| {
                piece
                    .times()
                    .is_some_and(|(first, last)| first <= *span.end() && last >= *span.start())
            };
            let packets = heard.pieces.iter().filter(meets).flat_map(Piece::packets);
            for packet in packets.filter(|packet| is_near(packet.ts.0)) {
                writer.write(packet.ts, packet.orig_len, packet.data)?;
            }
            writer.finish()?;
        }
        Ok(())
    }
}

/// The captures around a packet, which name its time and its latency.
fn paths(folder: &Path, worst: &WorstPacket) -> [PathBuf; 2] {
    let name = |side| folder.join(format!("{}-{}ns-{side}.pcap", worst.pre_ns, worst.latency_ns));
    ["pre", "post"].map(name)
}

fn remove(folder: &Path, worst: &WorstPacket) {
    for path in paths(folder, worst) {
        // Somebody may have taken it away.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Reader;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn worst(pre_ns: u64, latency_ns: u64) -> WorstPacket {
        WorstPacket { pre_ns, latency_ns }
    }

    #[test]
    fn captures_of_the_worst_stay_and_hold_what_is_near() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut around = Surroundings::new(Some(folder.path()), 2);
        let times = (0..100).map(|at| 1_000_000_000 + at * 1_000_000);
        for tap in [Tap::Pre, Tap::Post] {
            around.hear(tap, Piece::of(times.clone()));
        }
        around.note(&worst(1_010_000_000, 500));
        around.note(&worst(1_010_000_000, 70_000_000));
        around.note(&worst(1_030_000_000, 400));
        assert_eq!(names(folder.path()).len(), 4, "the third one is less bad");
        around.note(&worst(1_040_000_000, 600));
        assert_eq!(
            names(folder.path()),
            [
                "1010000000-70000000ns-post.pcap",
                "1010000000-70000000ns-pre.pcap",
                "1040000000-600ns-post.pcap",
                "1040000000-600ns-pre.pcap",
            ]
        );
        let near = (5..=15).chain(75..=85).collect::<Vec<_>>();
        assert_eq!((times_ms(folder.path(), "1010000000-70000000ns"), around.unwritten), (near, 0));
        around.note(&worst(1_020_000_000, 40_000_000));
        let whole = (15..=65).collect::<Vec<_>>();
        assert_eq!(times_ms(folder.path(), "1020000000-40000000ns"), whole);
    }

    /// The times in a capture, in ms since the first packet of all.
    fn times_ms(folder: &Path, name: &str) -> Vec<u64> {
        let path = folder.join(format!("{name}-pre.pcap"));
        let mut reader = Reader::open(&path).expect("a capture");
        let mut seen = Vec::new();
        while let Some(packet) = reader.next().expect("a packet") {
            seen.push(packet.ts.0 / 1_000_000 - 1000);
        }
        seen
    }

    #[test]
    fn of_captures_that_cannot_be_written_none_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut around = Surroundings::new(Some(folder.path()), 1);
        // The second of the two cannot be made.
        let [_, post] = paths(folder.path(), &worst(25, 1));
        std::fs::create_dir(&post).expect("a folder in its place");
        around.note(&worst(25, 1));
        assert_eq!((around.unwritten, around.kept.len()), (1, 0));
        assert_eq!(names(folder.path()), ["25-1ns-post.pcap"]);
    }

    #[test]
    fn what_is_older_is_forgotten() {
        let mut around = Surroundings::new(Some(Path::new("nowhere")), 1);
        around.hear(Tap::Pre, Piece::of(10..20));
        around.hear(Tap::Pre, Piece::of(20..30));
        around.forget_before(20);
        assert_eq!(around.heard[0].pieces.len(), 1);
        around.note(&worst(25, 1));
        assert_eq!((around.unwritten, around.kept.len()), (1, 0), "there is no such folder");
    }
}
