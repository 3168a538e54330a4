//! Packets that came out damaged: one without a counterpart on either side that differ in a few bytes, of which the
//! packet's own checksums tell.

use std::collections::HashMap;

use probe::damage::{Damage, Family, Form, is_damaged};
use probe::flow::Flow;
use probe::key::MatchOn;

use crate::ingest::Ahead;

/// Damaged packets behind the device that are compared: of more, checksums tell nothing, as a card fills them in.
const MOST: usize = 4096;
/// Those of one family that are compared with one packet: of more, which are alike, nothing tells the one.
const MOST_ALIKE: usize = 16;

/// A packet that came out damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Time before the device, in ns.
    pub pre_ns: u64,
    /// Time behind it, in ns.
    pub post_ns: u64,
    /// Its flow before the device.
    pub flow: Flow,
    /// Its length on the wire before the device, in bytes.
    pub size_bytes: u32,
    /// How it differs.
    pub damage: Damage,
}

/// Packets behind the device that may be damaged, and those before it that they may be.
pub(crate) struct Suspects<'a> {
    match_on: &'a MatchOn,
    /// The longest time from one to the other, in ns.
    longest_ns: u64,
    families: HashMap<Family, Vec<Suspect>>,
    found: Vec<(Family, usize, Corruption)>,
}

/// A packet behind the device whose checksums do not fit.
struct Suspect {
    ts: u64,
    form: Form,
    /// Packets before the device that it may be.
    candidates: usize,
}

impl<'a> Suspects<'a> {
    /// Returns those of `seen` whose checksums do not fit.
    pub fn new(mut seen: Vec<Ahead>, match_on: &'a MatchOn, longest_ns: u64) -> Self {
        let mut families: HashMap<Family, Vec<Suspect>> = HashMap::new();
        if seen.len() > MOST {
            seen.clear();
        }
        seen.sort_by_key(|packet| packet.ts().0);
        for packet in seen {
            let form = Form::of(&packet.data, packet.orig_len(), match_on);
            if let Some(form) = form.filter(Form::is_damaged) {
                let suspect = Suspect { ts: packet.ts().0, form, candidates: 0 };
                families.entry(*suspect.form.family()).or_default().push(suspect);
            }
        }
        Self { match_on, longest_ns, families, found: Vec::new() }
    }

    /// Returns true if a packet behind the device is kept, beside `kept` others.
    pub fn wants(data: &[u8], orig_len: u32, kept: usize) -> bool {
        kept <= MOST && is_damaged(data, orig_len)
    }

    /// Compares a packet before the device that did not come out, sent at `ts`.
    pub fn compare(&mut self, ts: u64, data: &[u8], orig_len: u32) {
        if self.families.is_empty() {
            return;
        }
        let Some(sent) = Form::of(data, orig_len, self.match_on) else { return };
        let Some(family) = self.families.get_mut(sent.family()) else { return };
        let first = family.partition_point(|suspect| suspect.ts < ts);
        let in_time = family[first..].partition_point(|of| of.ts - ts <= self.longest_ns);
        if in_time > MOST_ALIKE {
            // Then none of them is known to be another packet, either.
            self.families.remove(sent.family());
            return;
        }
        let mut told = Vec::new();
        for (place, suspect) in (first..).zip(&mut family[first..first + in_time]) {
            if let Some(damage) = suspect.form.damage_of(&sent) {
                suspect.candidates += 1;
                let flow = Flow::of(data, orig_len);
                let (pre_ns, post_ns, size_bytes) = (ts, suspect.ts, orig_len);
                let found = Corruption { pre_ns, post_ns, flow, size_bytes, damage };
                told.push((*sent.family(), place, found));
            }
        }
        // One that may be several is none of them.
        if told.len() == 1 {
            self.found.append(&mut told);
        }
    }

    /// Returns the packets that are damaged for certain, in order of time before the device.
    pub fn certain(self) -> Vec<Corruption> {
        let is_certain = |(family, place, _): &(Family, usize, _)| {
            self.families.get(family).is_some_and(|of| of[*place].candidates == 1)
        };
        let certain = self.found.into_iter().filter(is_certain);
        let mut found: Vec<_> = certain.map(|(_, _, corruption)| corruption).collect();
        found.sort_by_key(|corruption| corruption.pre_ns);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Packet;
    use probe::key::MatchOn::Frame;
    use units::Nanos;

    /// A frame of UDP, whose checksum fits; `swapped` swaps two words, which it does not tell.
    fn frame(number: u32, swapped: bool) -> Vec<u8> {
        let mut frame = vec![7; 14 + 20 + 8 + 1000];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 4, 4, 0, 1, 0, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 1, 1]);
        frame[34..42].copy_from_slice(&[0x30, 0x39, 0, 9, 3, 0xf0, 0, 0]);
        frame[42..46].copy_from_slice(&number.to_be_bytes());
        if swapped {
            frame[50..54].copy_from_slice(&[9, 9, 5, 5]);
        } else {
            frame[50..54].copy_from_slice(&[5, 5, 9, 9]);
        }
        set_sum(&mut frame, 14..34, 24, 0);
        set_sum(&mut frame, 26..1042, 40, 17 + 1008);
        frame
    }

    fn set_sum(frame: &mut [u8], of: std::ops::Range<usize>, at: usize, more: u32) {
        frame[at..at + 2].fill(0);
        let words = frame[of].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = 0xffff - (words.sum::<u32>() + more) % 0xffff;
        frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    }

    fn seen(ts: u64, mut frame: Vec<u8>) -> Ahead {
        frame[100] ^= 0x20;
        assert!(Suspects::wants(&frame, frame.len() as u32, 0));
        Ahead::of(&Packet { ts: Nanos(ts), orig_len: frame.len() as u32, data: &frame, offset: 0 })
    }

    fn compare(suspects: &mut Suspects<'_>, ts: u64, frame: &[u8]) {
        suspects.compare(ts, frame, frame.len() as u32);
    }

    #[test]
    fn each_of_many_packets_finds_its_own_with_few_compared() {
        let damaged = (0..4000).map(|at| seen(1000 + 2 * u64::from(at), frame(at, false)));
        let mut suspects = Suspects::new(damaged.collect(), &Frame, 1 << 40);
        // Compared with each other, they would take minutes.
        for at in 0..5000 {
            compare(&mut suspects, 2 * u64::from(at), &frame(at, false));
        }
        let found = suspects.certain();
        assert_eq!(found.len(), 4000);
        assert!(found.iter().all(|of| (of.post_ns - of.pre_ns, of.damage.bytes) == (1000, 1)));
    }

    #[test]
    fn of_too_many_that_are_alike_none_is_told() {
        let alike = |count| (0..count).map(|at| seen(10 + at, frame(1, true))).collect::<Vec<_>>();
        for (count, told) in [(MOST_ALIKE as u64 - 1, 1), (MOST_ALIKE as u64, 0)] {
            let seen = alike(count).into_iter().chain([seen(1000, frame(1, false))]).collect();
            let mut suspects = Suspects::new(seen, &Frame, 2000);
            compare(&mut suspects, 900, &frame(1, false));
            compare(&mut suspects, 1, &frame(1, true));
            assert_eq!(suspects.certain().len(), told, "{count}");
        }
    }
}
