//! When a forwarder saw packets: a few of them, so that its clock can be brought to that of captures.

use dpdk::{Mbuf, tsc};
use probe::key::{Keyer, MatchOn, Tap};

/// One is noted at most this often: more would tell little, and cost turns of the loop.
const EVERY_NS: u64 = 4_000_000;
/// Room for an hour and ten minutes.
const ROOM: usize = 1 << 20;

/// A packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Its number, from its probe payload.
    pub seq: u64,
    /// A reading of the counter after it was received and before it was handed on.
    pub tsc: u64,
}

/// Sightings in memory that was there beforehand.
#[derive(Debug)]
pub struct Sightings {
    seen: Vec<Sighting>,
    due: u64,
    every: u64,
    keyer: Keyer,
    key: Vec<u8>,
}

impl Sightings {
    /// Room for some where they are `wanted`; else for none, and none is looked for. Memory is touched
    /// now, so that no page fault becomes a stall later.
    pub fn new(wanted: bool) -> Self {
        let every = (u128::from(EVERY_NS) * u128::from(tsc::hz()) / 1_000_000_000) as u64;
        Self::with_room(if wanted { ROOM } else { 0 }, every)
    }

    fn with_room(room: usize, every: u64) -> Self {
        let mut seen = vec![Sighting { seq: 1, tsc: 1 }; room];
        seen.clear();
        Self {
            seen,
            due: if room == 0 { u64::MAX } else { 0 },
            every,
            keyer: Keyer::new(&MatchOn::Probe, Tap::Pre, None),
            key: Vec::with_capacity(size_of::<u64>()),
        }
    }

    /// Whether it is time to note one.
    #[inline(always)]
    pub fn are_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// Notes a packet that was just received, if it is a probe.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, packet: &Mbuf) {
        let now = tsc::now();
        self.note_frame(packet.data(), packet.frame_len(), now);
    }

    fn note_frame(&mut self, frame: &[u8], frame_len: u32, now: u64) {
        self.keyer.bytes(frame, frame_len, &mut self.key);
        let Ok(seq) = self.key.as_slice().try_into().map(u64::from_be_bytes) else { return };
        self.seen.push(Sighting { seq, tsc: now });
        let is_full = self.seen.len() == self.seen.capacity();
        self.due = if is_full { u64::MAX } else { now + self.every };
    }

    /// What was seen, in order of time.
    pub fn into_seen(self) -> Vec<Sighting> {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe::headers::{Addresses, Headers, Protocol};
    use probe::payload;

    fn frame(seq: u64) -> Vec<u8> {
        let headers = Headers {
            to_mac: [2; 6],
            from_mac: [4; 6],
            vlan: Some(7),
            outer: None,
            addresses: Addresses::V4([10, 0, 0, 1].into(), [10, 0, 1, 1].into()),
            protocol: Protocol::Udp,
            from_port: 1,
            to_port: 2,
            ttl: 64,
        };
        let mut frame = vec![0; 72];
        headers.write(&mut frame);
        payload::write(&mut frame[headers.payload_offset()..], seq);
        frame
    }

    #[test]
    fn one_is_noted_now_and_then_until_there_is_no_room() {
        let mut sightings = Sightings::with_room(2, 10);
        for now in 100..140 {
            if sightings.are_due(now) {
                sightings.note_frame(&frame(now), 72, now);
            }
        }
        let expected = [100, 110].map(|tsc| Sighting { seq: tsc, tsc });
        assert!(!sightings.are_due(u64::MAX - 1));
        assert_eq!(sightings.into_seen(), expected);
    }

    #[test]
    fn what_is_no_probe_is_passed_over() {
        let mut sightings = Sightings::with_room(2, 10);
        sightings.note_frame(&[0; 60], 60, 5);
        assert!(sightings.are_due(6));
        assert!(sightings.into_seen().is_empty());
    }

    #[test]
    fn without_room_none_is_looked_for() {
        assert!(!Sightings::with_room(0, 10).are_due(u64::MAX - 1));
    }
}
