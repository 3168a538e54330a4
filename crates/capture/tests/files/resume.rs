//! Reading that goes on where another reader has stopped.

use std::fs;

use crate::common::{Bytes, Owned, drain, written};
use capture::{ByteOrder, Compression, Error, Format, Mark, Reader};
use units::Nanos;

/// Packets, so that the file is longer than what of it is mapped at a time.
const MANY: u64 = 60_000;

fn packets() -> Vec<Owned> {
    let data = |seq: u64| vec![seq as u8; 20 + (seq % 90) as usize];
    (0..MANY).map(|seq| Owned { ts: Nanos(seq), orig_len: 500, data: data(seq) }).collect()
}

/// Sections in both orders, interfaces of other units between packets, blocks that say nothing.
fn sections() -> Vec<u8> {
    let nanoseconds = |options: Bytes| options.option(9, &[9]).option(0, &[]);
    let one = |order| {
        Bytes::new(order)
            .section()
            .interface(1, nanoseconds)
            .enhanced(0, 5, &[1, 2])
            .block(0x0bad, |body| body.u32(7))
            .enhanced(0, 6, &[3])
            .interface(1, |options| options)
            .enhanced(1, 7, &[4, 5, 6])
            .enhanced(0, 8, &[7])
            .bytes
    };
    let both = [ByteOrder::Little, ByteOrder::Big].map(one).concat();
    [&both[..], &both[..]].concat()
}

/// A mark behind the first `count` packets.
fn mark(mut reader: Reader, count: u64) -> Mark {
    for _ in 0..count {
        assert!(reader.next().expect("a capture").is_some());
    }
    Mark {
        file_bytes: reader.total_bytes().expect("a file"),
        offset: reader.offset(),
        packets: count,
        headers: reader.headers().to_vec(),
    }
}

fn assert_resumes(open: impl Fn() -> Reader, counts: impl Iterator<Item = u64>) {
    let all = drain(&mut open()).0;
    for count in counts.chain([all.len() as u64]) {
        let mut reader = open();
        reader.resume(&mark(open(), count)).expect("the same capture");
        let (rest, error) = drain(&mut reader);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(rest, all[count as usize..], "after {count}");
    }
}

#[test]
fn every_packet_can_be_the_next() {
    let memory = |bytes: Vec<u8>| move || Reader::from_bytes("memory", bytes.clone()).unwrap();
    assert_resumes(memory(sections()), 0..16);
    let compressed = zstd::encode_all(&sections()[..], 1).expect("zstd");
    assert_resumes(memory(compressed), 0..16);
}

#[test]
fn large_files_are_not_read_up_to_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for format in [Format::Pcap, Format::PcapNg] {
        let path = folder.path().join("many");
        fs::write(&path, written(&packets(), format, Compression::None)).expect("a file");
        let open = || Reader::open(&path).expect("a capture");
        assert_resumes(open, [0, 1, 30_000, 59_999].into_iter());
        let mut damaged = fs::read(&path).expect("a file");
        let mark = mark(open(), 50_000);
        let middle = damaged.len() / 2;
        damaged[middle..middle + 500].fill(0xff);
        fs::write(&path, damaged).expect("a file");
        let mut reader = open();
        reader.resume(&mark).expect("nothing in between is looked at");
        assert_eq!(drain(&mut reader).0, packets()[50_000..]);
    }
}

#[test]
fn another_capture_is_refused() {
    let open = |count: usize| {
        let bytes = written(&packets()[..count], Format::Pcap, Compression::None);
        Reader::from_bytes("other", bytes).expect("a capture")
    };
    let refused = |mark: &Mark| match open(10).resume(mark) {
        Err(Error::Changed { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mark(open(11), 3)), "bytes of the file");
    let good = mark(open(10), 10);
    open(10).resume(&good).expect("the same capture");
    let beyond = Mark { offset: good.offset + 1, ..good.clone() };
    assert_eq!(refused(&beyond), "offset of a packet");
    assert_eq!(refused(&Mark { offset: 3, ..good.clone() }), "offset of a packet");
    assert_eq!(refused(&Mark { headers: vec![24], ..good }), "headers");
}
