//! Matching by the bytes of TCP streams: whatever segments come, no packet is lost count of.

use analysis::{Clocks, Config, Error, Match, Observer, analyze_files};
use capture::{Compression, Format, Reader, Writer};
use probe::key::MatchOn;
use std::ops::ControlFlow;
use units::Nanos;

/// Bytes of a packet: where it is seen, when, place, length, flags, content.
const PACKET: usize = 6;
/// Sequence numbers of all streams begin near their end.
const FIRST: u32 = u32::MAX - 100;

/// The first bytes are window and trim; then six bytes are a packet.
pub fn run(bytes: &[u8]) -> bool {
    let [window, trim, packets @ ..] = bytes else { return false };
    let config = Config {
        match_on: MatchOn::TcpBytes,
        window: Nanos(1 + (u64::from(*window) << 4)),
        trim: Nanos(u64::from(*trim)),
        worst: 3,
        clocks: Clocks::Same,
        ..Config::default()
    };
    let sides = [0, 1].map(|side| side_of(packets, side));
    let open = || Ok(sides.clone().map(|bytes| Reader::from_bytes("fuzz", bytes).expect("pcap")));
    let mut watch = Watch { window: config.window.0, matches: 0 };
    match analyze_files(open, &config, &mut watch) {
        Ok(found) => {
            assert_eq!(found.counts.matched, watch.matches);
            let tcp = found.tcp.expect("streams were counted");
            assert!(tcp.bytes_matched <= tcp.bytes);
            assert!(tcp.paired + tcp.ambiguous <= tcp.sides[0].connections);
            assert!(!found.summary().is_empty() && !found.warnings().is_empty());
        }
        Err(
            Error::NoPackets { .. }
            | Error::DifferentTraffic { .. }
            | Error::BytesChanged { .. }
            | Error::Http { .. }
            | Error::SwappedOrApart { .. }
            | Error::InFlight { .. },
        ) => {}
        Err(error) => panic!("{error}"),
    }
    true
}

fn side_of(packets: &[u8], side: u8) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::Pcap, Compression::None).expect("memory");
    let mut now = 1_000;
    for packet in packets.chunks_exact(PACKET) {
        now += u64::from(packet[1]);
        if packet[0] & 1 == side {
            let frame = frame(packet);
            writer.write(Nanos(now), frame.len() as u32, &frame).expect("memory");
        }
    }
    writer.into_inner().expect("memory")
}

/// A segment of one of four connections. Bytes follow from their place, and the content.
fn frame(packet: &[u8]) -> Vec<u8> {
    let [from, _, place, len, flags, content] = packet else { unreachable!("six bytes") };
    let port = 1 + (from >> 1 & 3) + if from & 1 == 0 { 0 } else { 8 };
    let (source, target) = if from & 8 == 0 { (port, 99) } else { (99, port) };
    let sequence = FIRST.wrapping_add(u32::from(*place));
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((40 + u16::from(*len)).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, source, 10, 0, 0, target]);
    frame.extend([0, source, 0, target]);
    frame.extend(sequence.to_be_bytes());
    frame.extend(FIRST.wrapping_add(u32::from(*content)).to_be_bytes());
    frame.extend([0x50, flags & 0x17, 0, 0, 0, 0, 0, 0]);
    let kind = u32::from(content >> 6);
    frame.extend((0..u32::from(*len)).map(|at| byte(u32::from(*place) + at, kind)));
    frame
}

/// A byte of a stream, of which some repeat and others do not.
fn byte(place: u32, kind: u32) -> u8 {
    let period = [u32::MAX, 1, 7, 97][kind as usize];
    (place % period).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]
}

struct Watch {
    window: u64,
    matches: u64,
}

impl Observer for Watch {
    fn matches(&mut self, batch: &[Match]) -> ControlFlow<()> {
        assert!(batch.iter().all(|found| found.latency_ns < self.window));
        assert!(batch.is_sorted_by_key(|found| found.seq));
        self.matches += batch.len() as u64;
        ControlFlow::Continue(())
    }
}
