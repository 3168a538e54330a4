//! How captures are stored: compression in every shape, files, pipes and memory.

use std::fs::{self, File};
use std::io::Write;
use std::thread;

use crate::common::{COMPRESSED, Owned, compress, drain, stored, written};
use capture::{Compression, Error, Format, InterfaceChoice, Reader, Writer};
use units::Nanos;

fn packets(count: u64) -> Vec<Owned> {
    let packet = |seq: u64| Owned {
        ts: Nanos(seq * 1_000),
        orig_len: 100,
        data: (0..100).map(|at| (seq.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8).collect(),
    };
    (0..count).map(packet).collect()
}

fn read(bytes: Vec<u8>) -> (Vec<Owned>, Reader) {
    let mut reader = Reader::from_bytes("stored", bytes).expect("a capture");
    let (packets, error) = drain(&mut reader);
    assert!(error.is_none(), "{error:?}");
    (packets, reader)
}

fn skippable(len: u32) -> Vec<u8> {
    let mut frame = 0x184d_2a5cu32.to_le_bytes().to_vec();
    frame.extend(len.to_le_bytes());
    frame.resize(8 + len as usize, 0xaa);
    frame
}

#[test]
fn members_and_frames_are_read_as_one_stream() {
    let expected = packets(5_000);
    let plain = written(&expected, Format::Pcap, Compression::None);
    let (head, tail) = plain.split_at(123_456);
    let whole = |compression| {
        let packed = |bytes| compress(bytes, compression);
        vec![
            [packed(head), packed(tail)].concat(),
            [packed(head), packed(&[]), packed(tail)].concat(),
            [packed(&[]), packed(&plain)].concat(),
        ]
    };
    let mut all: Vec<_> = COMPRESSED
        .into_iter()
        .flat_map(|compression| {
            whole(compression).into_iter().map(move |bytes| (bytes, compression))
        })
        .collect();
    let [zstd, lz4] = [Compression::Zstd, Compression::Lz4]
        .map(|compression| [head, tail, &plain].map(|bytes| compress(bytes, compression)));
    all.extend([
        (
            [&skippable(9), &zstd[0], &skippable(0), &zstd[1]].map(|v| &v[..]).concat(),
            Compression::Zstd,
        ),
        ([&zstd[2][..], &skippable(300_000)].concat(), Compression::Zstd),
        ([&lz4[0][..], &skippable(0), &skippable(9), &lz4[1]].concat(), Compression::Lz4),
        ([&lz4[2][..], &skippable(300_000)].concat(), Compression::Lz4),
        // Padding between streams, and behind them.
        (
            [
                &compress(head, Compression::Xz)[..],
                &[0; 8],
                &compress(tail, Compression::Xz),
                &[0; 4],
            ]
            .concat(),
            Compression::Xz,
        ),
    ]);
    for (bytes, compression) in all {
        let len = bytes.len() as u64;
        let (packets, reader) = read(bytes);
        assert!(packets == expected && reader.cut().is_none());
        assert_eq!(reader.info().compression, compression);
        assert_eq!((reader.consumed_bytes(), reader.total_bytes()), (len, Some(len)));
    }
}

#[test]
fn a_stream_cut_at_any_byte_of_its_second_half_is_cut() {
    let expected = packets(3);
    let plain = written(&expected, Format::Pcap, Compression::None);
    let (head, tail) = plain.split_at(200);
    for compression in COMPRESSED {
        let first = compress(head, compression);
        let both = [&first[..], &compress(tail, compression)].concat();
        for len in first.len() + 1..both.len() {
            let (packets, reader) = read(both[..len].into());
            assert!(packets == expected[..packets.len()]);
            assert!(reader.cut().is_some(), "{compression} {len} of {}", both.len());
        }
    }
}

#[test]
fn what_is_only_read_is_not_written() {
    for compression in [Compression::Xz, Compression::Lz4, Compression::Bzip2] {
        let error = Writer::new(Vec::new(), Format::Pcap, compression).err().expect("an error");
        let text = format!("capture: cannot write: {compression} is read, not written");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_dictionary_beyond_all_memory_is_refused() {
    // A block header of xz that asks for 4 GiB less one byte.
    let mut stream = compress(&[0; 100], Compression::Xz);
    let header = 12..24;
    assert_eq!(stream[header.start..header.start + 5], [2, 0, 0x21, 1, 12]);
    stream[16] = 40;
    let mut crc = flate2::Crc::new();
    crc.update(&stream[12..20]);
    stream[20..24].copy_from_slice(&crc.sum().to_le_bytes());
    let error = Reader::from_bytes("x", stream).err().expect("an error");
    assert!(error.to_string().contains("damaged xz data: got needed memory"), "{error}");
}

#[test]
fn long_windows_are_read() {
    let expected = packets(100);
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(30).expect("a long window");
    encoder.write_all(&written(&expected, Format::PcapNg, Compression::None)).expect("memory");
    assert!(read(encoder.finish().expect("zstd")).0 == expected);
}

#[test]
fn a_missing_tail_is_a_cut() {
    let expected = packets(20_000);
    for compression in COMPRESSED {
        let mut bytes = stored(&expected, Format::Pcap, compression);
        bytes.truncate(bytes.len() / 2);
        let (packets, reader) = read(bytes);
        assert!(!packets.is_empty() && packets == expected[..packets.len()]);
        let cut = reader.cut().expect("a cut");
        assert_eq!((cut.packets, cut.offset), (packets.len() as u64, 24 + cut.packets * 116));
        assert_eq!(cut.reason, format!("the {compression} data end in the middle"));
    }
}

#[test]
fn what_lies_before_a_cut_is_read_as_far_as_blocks_allow() {
    let (count, share) = (20_000, 0.8);
    let expected = packets(count);
    // As many bytes of a capture as can be missing: the rest of a block, as the tools write them.
    for (compression, block) in [
        (Compression::Gzip, 32 << 10),
        (Compression::Zstd, 256 << 10),
        (Compression::Xz, 4 << 10),
        (Compression::Lz4, 64 << 10),
        (Compression::Bzip2, 900_000),
    ] {
        let whole = stored(&expected, Format::Pcap, compression);
        let (got, reader) = read(whole[..(whole.len() as f64 * share) as usize].to_vec());
        assert!(reader.cut().is_some() && got == expected[..got.len()]);
        let read_bytes = 116 * got.len() as u64 + block;
        // Packets are alike to a compressor: a share of its bytes is about that share of them.
        let least = (116.0 * count as f64 * (share - 0.02)) as u64;
        assert!(read_bytes > least, "{compression}: {} packets", got.len());
    }
}

#[test]
fn a_short_xz_stream_is_read_up_to_its_cut() {
    let expected = packets(300);
    let whole = stored(&expected, Format::Pcap, Compression::Xz);
    let (got, reader) = read(whole[..whole.len() * 3 / 4].to_vec());
    assert!(got.len() > 150 && got == expected[..got.len()], "{} packets", got.len());
    assert!(reader.cut().is_some());
}

#[test]
fn a_stream_cut_between_two_packets_is_still_cut() {
    let expected = packets(10);
    for compression in COMPRESSED {
        // The data are whole; only the end of the checksum, or of what follows it, is missing.
        let mut bytes = stored(&expected, Format::Pcap, compression);
        bytes.pop();
        let (packets, reader) = read(bytes);
        assert_eq!(packets, expected);
        assert!(reader.cut().is_some(), "{compression}");
    }
}

#[test]
fn damaged_data_are_an_error() {
    for compression in COMPRESSED {
        let mut bytes = stored(&packets(20_000), Format::Pcap, compression);
        let last = bytes.len() - 1;
        // The last bytes are a checksum: everything before is read, and yet nothing is trusted.
        // gzip has a length behind it, and bzip2 up to seven bits.
        let back = match compression {
            Compression::Gzip => 4,
            Compression::Bzip2 => 1,
            _ => 0,
        };
        bytes[last - back] ^= 1;
        let mut reader = Reader::from_bytes("damaged", bytes).expect("a good start");
        let error = drain(&mut reader).1.expect("an error");
        assert!(
            matches!(&error, Error::Compressed { offset, .. } if *offset == last as u64 + 1),
            "{error}"
        );
        assert!(error.to_string().starts_with("damaged: near byte "), "{error}");
        assert!(reader.next().is_err(), "the error comes again");
    }
}

#[test]
fn what_follows_a_compressed_capture_is_an_error() {
    for compression in COMPRESSED {
        let mut bytes = stored(&packets(10), Format::Pcap, compression);
        bytes.extend(b"something else");
        let mut reader = Reader::from_bytes("x", bytes).expect("a good start");
        assert!(matches!(drain(&mut reader).1, Some(Error::Compressed { .. })), "{compression}");
    }
}

#[test]
fn compressed_nothing_is_empty_and_compressed_text_is_no_capture() {
    for compression in COMPRESSED {
        let error = |bytes: &[u8]| {
            Reader::from_bytes("x", compress(bytes, compression)).err().expect("an error")
        };
        assert!(matches!(error(b""), Error::Empty { .. }));
        assert!(matches!(error(b"hello"), Error::NotACapture { got, .. } if got == b"hell"));
    }
    for compression in COMPRESSED {
        let bytes = compress(b"hello", compression)[..5].into();
        let cut = Reader::from_bytes("x", bytes).err().expect("an error");
        assert!(matches!(cut, Error::CompressedCut { got_bytes: 5, .. }), "{compression}: {cut}");
        assert!(cut.to_string().starts_with("x: cut off: the "), "{cut}");
        assert!(cut.hint().is_some());
    }
}

#[test]
fn offsets_of_a_stream_count_decompressed_bytes() {
    let expected = packets(10_000);
    let bytes = written(&expected, Format::Pcap, Compression::Zstd);
    let mut reader = Reader::from_bytes("x", bytes).expect("a capture");
    let mut count = 0;
    while let Some(packet) = reader.next().expect("packets") {
        assert_eq!(packet.offset, 24 + 116 * count);
        count += 1;
    }
    assert_eq!(count, 10_000);
}

#[test]
fn packets_of_all_sizes_are_read_across_the_chunks_of_a_stream() {
    let packet = |seq: u64| Owned {
        ts: Nanos(seq),
        orig_len: 1 << 18,
        data: (0..seq * seq * 7919 % (1 << 18) + 1)
            .map(|at| ((at * at * seq) >> 9) as u8)
            .collect(),
    };
    let expected: Vec<_> = (0..60).map(packet).collect();
    let bytes = written(&expected, Format::Pcap, Compression::Zstd);
    let mut reader = Reader::from_bytes("x", bytes).expect("a capture");
    let mut offset = 24;
    for expected in &expected {
        let packet = reader.next().expect("packets").expect("one more");
        assert_eq!(packet.offset, offset);
        assert!(packet.data == expected.data, "the packet at {offset}");
        offset += 16 + packet.data.len() as u64;
    }
    assert_eq!(reader.next().expect("the end"), None);
    assert_eq!(reader.offset(), offset);
}

#[test]
fn a_dropped_reader_does_not_wait_for_its_stream() {
    let bytes = written(&packets(50_000), Format::Pcap, Compression::Zstd);
    let mut reader = Reader::from_bytes("x", bytes).expect("a capture");
    assert!(reader.next().expect("a packet").is_some());
    drop(reader);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "only a program makes a named pipe")]
fn a_pipe_is_read_as_a_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = packets(5_000);
    for compression in COMPRESSED.into_iter().chain([Compression::None]) {
        // A process that another test starts may hold a pipe that was read for a moment longer.
        let path = folder.path().join(compression.to_string());
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        let bytes = stored(&expected, Format::PcapNg, compression);
        let writing = thread::spawn({
            let path = path.clone();
            move || {
                File::options().write(true).open(path).and_then(|mut pipe| pipe.write_all(&bytes))
            }
        });
        let mut reader =
            Reader::open_interface(&path, InterfaceChoice::Number(0)).expect("a capture");
        assert_eq!((reader.total_bytes(), reader.info().compression), (None, compression));
        assert!(drain(&mut reader).0 == expected, "{compression}");
        assert!(writing.join().expect("a thread").is_ok());
    }
}

#[test]
fn files_that_can_not_be_read_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("missing.pcap");
    let error = Reader::open(&path).err().expect("an error");
    let text = error.to_string();
    assert!(text.contains("missing.pcap: cannot open: No such file or directory"), "{text}");
    let error = Reader::open(folder.path()).err().expect("an error");
    assert!(error.to_string().contains("Is a directory"), "{error}");
    File::create(&path).expect("a file");
    assert!(matches!(Reader::open(&path), Err(Error::Empty { .. })));
}

#[test]
fn a_capture_appears_only_when_it_is_finished() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pcap.zst");
    fs::write(&path, "what was there before").expect("a file");
    let files = || fs::read_dir(folder.path()).expect("a folder").count();

    let mut writer = Writer::create(&path, Format::Pcap, Compression::Zstd).expect("a writer");
    writer.write(Nanos(1), 1, &[1]).expect("a packet");
    assert_eq!(files(), 2);
    drop(writer);
    assert_eq!(files(), 1);
    assert_eq!(fs::read(&path).expect("the file"), b"what was there before");

    let mut writer = Writer::create(&path, Format::Pcap, Compression::Zstd).expect("a writer");
    writer.write(Nanos(1), 1, &[1]).expect("a packet");
    writer.finish().expect("a file");
    assert_eq!(files(), 1);
    assert_eq!(drain(&mut Reader::open(&path).expect("a capture")).0.len(), 1);
    let error = Writer::create(&folder.path().join("no/a.pcap"), Format::Pcap, Compression::None);
    assert!(error.err().expect("an error").to_string().contains("no/a.pcap: cannot create"));
}

#[test]
fn packets_that_would_not_be_read_are_not_written() {
    let mut pcap = Writer::new(Vec::new(), Format::Pcap, Compression::None).expect("a writer");
    let refused = |result: Result<(), Error>| matches!(result, Err(Error::Unwritable { .. }));
    assert!(refused(pcap.write(Nanos(0), 0, &[])));
    assert!(refused(pcap.write(Nanos(0), 1, &[1, 2])));
    assert!(refused(pcap.write(Nanos(0), 300_000, &[0; 262_145])));
    assert!(refused(pcap.write(Nanos(4_294_967_296_000_000_000), 1, &[1])));
    assert_eq!(pcap.into_inner().expect("memory").len(), 24);
    let mut ng = Writer::new(Vec::new(), Format::PcapNg, Compression::None).expect("a writer");
    assert!(ng.write(Nanos(u64::MAX), 1, &[1]).is_ok());
}
