//! A mapped capture does not fill the memory as it is read.

#![cfg(target_os = "linux")]

use std::fs;

use capture::{Compression, Format, Reader, Writer};
use units::Nanos;

const PACKETS: u64 = 60_000;
const FRAME: [u8; 1_500] = [7; 1_500];
/// Two strides, and a folio of the page cache at either end.
const MOST_KB: u64 = 8 * 1024;

/// The resident pages of mapped files, in kB.
fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("RssFile:")).expect("its line");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}

#[test]
fn pages_behind_the_read_position_are_handed_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.pcap");
    let mut writer = Writer::create(&path, Format::Pcap, Compression::None).expect("a writer");
    for seq in 0..PACKETS {
        writer.write(Nanos(seq), 1_500, &FRAME).expect("a packet");
    }
    writer.finish().expect("a file");

    let mut reader = Reader::open(&path).expect("a capture");
    let before_kb = resident_kb();
    let (mut count, mut peak_kb) = (0, 0);
    while let Some(packet) = reader.next().expect("packets") {
        assert!(packet.data == FRAME);
        count += 1;
        if count % 500 == 0 {
            peak_kb = peak_kb.max(resident_kb());
        }
    }
    assert_eq!(count, PACKETS);
    assert!(peak_kb - before_kb <= MOST_KB, "{} kB are resident", peak_kb - before_kb);
}
