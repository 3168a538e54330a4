//! The real captures of the field: the same packets, however they are stored.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{drain, written};
use capture::{Compression, Format, Reader, Resolution, Writer};

const PACKETS: usize = 300_000;

/// The real captures; absent beside a plain clone, required in continuous integration.
#[allow(clippy::disallowed_methods, reason = "whether data may be missing is the runner's to say")]
fn captures() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/noms2020");
    let mut found = Vec::new();
    find(&data, &mut found);
    let required = std::env::var_os("CI").is_some();
    assert!(!required || !found.is_empty(), "no captures in {}, but CI is set", data.display());
    found
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if path.to_string_lossy().ends_with(".pcap.zst") {
            found.push(path);
        }
    }
}

#[test]
fn the_same_packets_come_from_every_storage() {
    let Some(path) = captures().into_iter().next() else { return };
    let (expected, error) = drain(&mut Reader::open(&path).expect("a capture"));
    assert!(error.is_none());
    let folder = tempfile::tempdir().expect("a folder");
    for format in [Format::Pcap, Format::PcapNg] {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let path = folder.path().join(format!("{format}.{compression}"));
            let mut writer = Writer::create(&path, format, compression).expect("a writer");
            for packet in &expected {
                writer.write(packet.ts, packet.orig_len, &packet.data).expect("a packet");
            }
            assert!(!path.exists());
            writer.finish().expect("a capture");
            let mut reader = Reader::open(&path).expect("a capture");
            let info = reader.info();
            assert_eq!((info.format, info.compression), (format, compression));
            let (packets, error) = drain(&mut reader);
            assert!(error.is_none() && reader.cut().is_none());
            assert!(packets == expected, "{format} {compression}");
            assert_eq!(Some(reader.consumed_bytes()), reader.total_bytes());
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 6);
}

#[test]
fn every_capture_is_read_whole() {
    for path in captures() {
        let mut reader = Reader::open(&path).expect("a capture");
        assert_eq!(reader.info().resolution, Some(Resolution::NANO));
        let (packets, error) = drain(&mut reader);
        assert!(error.is_none() && reader.cut().is_none(), "{}", path.display());
        assert_eq!(packets.len(), PACKETS, "{}", path.display());
        assert!(packets.iter().all(|packet| packet.data.len() == 100 && packet.orig_len == 100));
        // What is written again holds the same bytes as the original.
        let original = zstd::decode_all(&fs::read(&path).expect("a file")[..]).expect("zstd");
        assert!(written(&packets, Format::Pcap, Compression::None)[24..] == original[24..]);
    }
}
