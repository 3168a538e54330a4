//! Matching of a pair: the engine asserts that no packet is lost count of.

use analysis::{Basis, Clocks, Config, Error, Observer, analyze_pair_on};
use capture::{Compression, Format, Reader, Writer};
use std::ops::ControlFlow;
use units::Nanos;

/// Times step back by at most this, so that disorder is mended as well as refused.
const BACK_NS: u64 = 3;

/// The first bytes are window, trim, bound and what is known of the pair; then two bytes are a packet: side and key, time.
pub fn run(bytes: &[u8]) -> bool {
    let [window, trim, bound, known, packets @ ..] = bytes else { return false };
    let config = Config {
        match_on: "bytes:0+1".parse().expect("a range"),
        window: Nanos(u64::from(*window) + 1),
        trim: Nanos(u64::from(*trim)),
        worst: 3,
        max_in_flight: usize::from(*bound) + 1,
        joined_by: None,
        clocks: Clocks::Same,
        ..Config::default()
    };
    let (two_way, copies_ns) = (known & 1 != 0, u64::from(known >> 1 & 7));
    let basis = Basis { two_way, copies_ns, ..Basis::default() };
    let sides = [0, 1].map(|side| side_of(packets, side));
    let [pre, post] = sides.map(|bytes| Reader::from_bytes("fuzz", bytes).expect("a capture"));
    let mut watch = Watch { window: config.window.0, matches: 0 };
    match analyze_pair_on(pre, post, &config, basis, &mut watch) {
        Ok(found) => {
            assert_eq!(found.counts.matched, watch.matches);
            assert!(found.reordered <= watch.matches);
            assert!(found.worst.is_sorted_by(|a, b| a.latency_ns >= b.latency_ns));
            assert!(!found.summary().is_empty());
        }
        Err(Error::InFlight { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    true
}

fn side_of(packets: &[u8], side: u8) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::Pcap, Compression::None).expect("memory");
    let mut now = 1_000;
    for packet in packets.chunks_exact(2).filter(|packet| packet[0] & 1 == side) {
        now += u64::from(packet[1] & 0x7f);
        let back = if packet[1] & 0x80 == 0 { 0 } else { BACK_NS };
        writer.write(Nanos(now - back), 1, &[packet[0] >> 1]).expect("memory");
    }
    writer.into_inner().expect("memory")
}

struct Watch {
    window: u64,
    matches: u64,
}

impl Observer for Watch {
    fn matches(&mut self, batch: &[analysis::Match]) -> ControlFlow<()> {
        assert!(batch.iter().all(|found| found.latency_ns < self.window));
        assert!(batch.is_sorted_by_key(|found| found.seq));
        self.matches += batch.len() as u64;
        ControlFlow::Continue(())
    }
}
