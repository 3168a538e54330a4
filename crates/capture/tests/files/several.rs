//! Several files are one capture: their packets, merged by time.

use std::path::{Path, PathBuf};

use crate::common::{Owned, drain, written};
use capture::{Compression, Format, InterfaceChoice, Reader};
use proptest::prelude::*;
use units::Nanos;

/// Packets that carry their number; times ascend within a file.
fn packets(times: &[u64], first: u32) -> Vec<Owned> {
    let numbered = (first..).zip(times);
    let packet = |(number, ts): (u32, &u64)| {
        let mut data = vec![0; 60];
        data[..4].copy_from_slice(&number.to_be_bytes());
        Owned { ts: Nanos(*ts), orig_len: 60, data }
    };
    numbered.map(packet).collect()
}

fn write(folder: &Path, name: &str, packets: &[Owned]) -> (PathBuf, InterfaceChoice) {
    let path = folder.join(name);
    std::fs::write(&path, written(packets, Format::Pcap, Compression::None)).unwrap();
    (path, InterfaceChoice::All)
}

/// Reads as an analysis does: what is quick to tell first.
fn read(reader: &mut Reader) -> Vec<Owned> {
    let mut found = Vec::new();
    loop {
        while let Some(packet) = reader.next_quick() {
            found.push(packet.into());
        }
        match reader.next().unwrap() {
            Some(packet) => found.push(packet.into()),
            None => return found,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn files_are_merged_by_time(
        files in prop::collection::vec(prop::collection::vec(0..500_u64, 0..30), 1..8),
        together in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut paths, mut expected) = (Vec::new(), Vec::new());
        for (number, mut times) in files.into_iter().enumerate() {
            // A ring, or one file for each port.
            let begin = if together { 0 } else { 1000 * (number * 7 % 8) as u64 };
            times.iter_mut().for_each(|ts| *ts += begin);
            times.sort_unstable();
            let own = packets(&times, 100 * number as u32);
            paths.push(write(folder.path(), &format!("{number}.pcap"), &own));
            expected.extend(own);
        }
        let mut reader = Reader::open_all(&paths).unwrap();
        let found = read(&mut reader);
        let key = |packet: &Owned| (packet.ts, packet.data.clone());
        prop_assert!(found.is_sorted_by_key(|packet| packet.ts));
        let sorted = |mut packets: Vec<Owned>| { packets.sort_by_key(key); packets };
        prop_assert_eq!(sorted(found), sorted(expected));
        prop_assert_eq!(Some(reader.consumed_bytes()), reader.total_bytes());
        let (slow, error) = drain(&mut Reader::open_all(&paths).unwrap());
        prop_assert!(error.is_none() && slow.is_sorted_by_key(|packet| packet.ts));
    }
}

#[test]
fn gaps_and_overlaps_between_files_are_told() {
    const S: u64 = 1_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, start: u64| {
        let times: Vec<u64> = (0..1000).map(|i| start + i * 1_000_000).collect();
        write(folder.path(), name, &packets(&times, 0))
    };
    // The second goes on where the first ends, the third is missing, and the last two overlap.
    let files = [file("a", S), file("b", 2 * S), file("d", 4 * S), file("e", 4 * S + S / 2)];
    let mut reader = Reader::open_all(&files).unwrap();
    assert_eq!(read(&mut reader).len(), 4000);
    let told = reader.files().unwrap();
    assert_eq!((told.count, told.overlapping), (4, 1));
    assert_eq!(told.gaps, [(3 * S - 1_000_000, 4 * S)]);
    assert!(reader.info().name.ends_with("a and 3 more"));
}

#[test]
fn five_hundred_files_are_read_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = |number: u64| {
        let times: Vec<u64> = (0..10).map(|i| number * 1000 + i * 100).collect();
        write(folder.path(), &format!("{number:03}"), &packets(&times, 0))
    };
    let files: Vec<_> = (0..500).map(file).collect();
    let mut reader = Reader::open_all(&files).unwrap();
    let maps = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let folder = folder.path().to_str().unwrap();
        maps.lines().filter(|line| line.contains(folder)).count()
    };
    let mut most = 0;
    while reader.next().unwrap().is_some() {
        most = most.max(maps());
    }
    assert!(most <= 2, "{most} files were mapped at once");
    assert_eq!(reader.files().unwrap().count, 500);
}

#[test]
fn many_files_at_a_time_are_read_in_short_steps() {
    let folder = tempfile::tempdir().unwrap();
    let (files, packets_each) = (40, 4000);
    let mut paths = Vec::new();
    for number in 0..files {
        let times: Vec<u64> = (0..packets_each).map(|at| at * files + number).collect();
        let own = packets(&times, (number * packets_each) as u32);
        paths.push(write(folder.path(), &format!("{number}.pcap"), &own));
    }
    let found = read(&mut Reader::open_all(&paths).unwrap());
    let times: Vec<u64> = found.iter().map(|packet| packet.ts.0).collect();
    assert_eq!(times, (0..files * packets_each).collect::<Vec<_>>());
}
