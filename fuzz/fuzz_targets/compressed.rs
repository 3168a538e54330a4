//! Reading of compressed captures: any bytes, and whole and cut ones of several members.

#![no_main]

use capture::{Compression, Format, Reader, Writer};
use libfuzzer_sys::{Corpus, fuzz_target};
use units::Nanos;

const COMPRESSIONS: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Xz, Compression::Lz4, Compression::Bzip2];

// The first byte says whether the rest is compressed as it is. Else it is what is compressed: the
// second byte is where the first member ends, and the third how much of the second is cut off.
fuzz_target!(|bytes: &[u8]| -> Corpus {
    match bytes {
        [0, rest @ ..] => read(rest.into()),
        [mode, end, cut, packets @ ..] => {
            store(COMPRESSIONS[usize::from(*mode) % COMPRESSIONS.len()], *end, *cut, packets)
        }
        _ => Corpus::Reject,
    }
});

fn read(bytes: Vec<u8>) -> Corpus {
    let Ok(mut reader) = Reader::from_bytes("fuzz", bytes) else { return Corpus::Reject };
    while let Ok(Some(_)) = reader.next() {}
    if reader.info().compression == Compression::None { Corpus::Reject } else { Corpus::Keep }
}

fn store(compression: Compression, end: u8, cut: u8, content: &[u8]) -> Corpus {
    let packets: Vec<survey::Owned> =
        content.chunks(7).map(|data| (Nanos(data.len() as u64), 7, data.into())).collect();
    let mut writer = Writer::new(Vec::new(), Format::Pcap, Compression::None).expect("memory");
    for (ts, orig_len, data) in &packets {
        writer.write(*ts, *orig_len, data).expect("a packet");
    }
    let plain = writer.into_inner().expect("memory");
    let (head, tail) = plain.split_at(usize::from(end).min(plain.len()));
    let [first, second] = [head, tail].map(|part| survey::compress(part, compression));
    // Cut where the first member ends, a capture looks whole; that is another question.
    let cut = usize::from(cut).min(second.len() - 1);
    let bytes = [&first[..], &second[..second.len() - cut]].concat();
    survey::assert_beginning(bytes, &packets, cut == 0);
    Corpus::Keep
}
