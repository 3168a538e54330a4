//! The files that a simulation writes.

use capture::{Compression, Format, Reader};
use sim::{Error, Scenario, SimPacket, simulate, write_pair};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

fn read(path: &Path) -> (Vec<SimPacket>, bool) {
    let mut reader = Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next().unwrap() {
        let (ts, orig_len, data) = (packet.ts, packet.orig_len, packet.data.to_vec());
        packets.push(SimPacket { ts, orig_len, data });
    }
    (packets, reader.cut().is_some())
}

fn go_on(_packets: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn files_hold_what_the_simulation_says() {
    let scenario = Scenario::arbitrary(3, 2_000);
    let pair = simulate(&scenario).unwrap();
    for (format, compression, suffix) in [
        (Format::Pcap, Compression::None, "pcap"),
        (Format::Pcap, Compression::Gzip, "pcap.gz"),
        (Format::PcapNg, Compression::None, "pcapng"),
        (Format::PcapNg, Compression::Zstd, "pcapng.zst"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("made on demand");
        let written = write_pair(&scenario, &dir, format, compression, &mut go_on).unwrap();
        assert_eq!(read(&written.pre), (pair.pre.clone(), false));
        assert_eq!(read(&written.post), (pair.post.clone(), false));
        assert_eq!(written.totals, pair.totals);
        let name = |side| format!("latencies-{side}-rate{}-seed3.{suffix}", scenario.rate_pps);
        assert_eq!(names(&dir), [name("post"), name("pre"), "truth.json".into()]);
    }
}

#[test]
fn the_truth_is_json() {
    let scenario = Scenario { packets: 1_000, loss: 0.5, ..Scenario::default() };
    let dir = tempfile::tempdir().unwrap();
    let (format, compression) = (Format::Pcap, Compression::None);
    let written = write_pair(&scenario, dir.path(), format, compression, &mut go_on).unwrap();
    let truth: serde_json::Value =
        serde_json::from_slice(&fs::read(&written.truth).unwrap()).unwrap();
    assert_eq!(truth["totals"]["lost"], written.totals.lost);
    assert_eq!(truth["totals"]["latency_ns_max"], written.totals.latency_ns_max.unwrap());
    assert_eq!(truth["scenario"]["rate_pps"], 10_000);
    assert_eq!(truth["scenario"]["pattern"], "cbr");
    assert_eq!(truth["scenario"]["latency"], scenario.latency.to_string());
    assert_eq!(truth["scenario"]["stalls"]["period_ns"], 4_000_200);
}

#[test]
fn a_cut_shortens_the_second_capture_alone() {
    let scenario = Scenario { packets: 100, cut_bytes: 77, ..Scenario::default() };
    let dir = tempfile::tempdir().unwrap();
    let (format, compression) = (Format::Pcap, Compression::None);
    let written = write_pair(&scenario, dir.path(), format, compression, &mut go_on).unwrap();
    let pair = simulate(&scenario).unwrap();
    assert_eq!(read(&written.pre), (pair.pre, false));
    // A record has 76 bytes: the last is gone, and the one before it cut.
    assert_eq!(read(&written.post), (pair.post[..98].to_vec(), true));
}

#[test]
fn who_breaks_off_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut heard = Vec::new();
    let mut progress = |packets| {
        heard.push(packets);
        if heard.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let (format, compression) = (Format::Pcap, Compression::None);
    let scenario = Scenario::default();
    let error = write_pair(&scenario, dir.path(), format, compression, &mut progress).unwrap_err();
    assert!(matches!(error, Error::Interrupted { packets } if packets == heard[1]));
    assert!(heard[0] < heard[1] && heard[1] < scenario.packets);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let (format, compression) = (Format::Pcap, Compression::None);
    let error = write_pair(&Scenario::default(), &file, format, compression, &mut go_on);
    assert!(matches!(error, Err(Error::Io { path, .. }) if path == file));
}
