//! Reading of compressed captures: any bytes, and whole and cut ones of several members.

use capture::{Compression, Format, Reader, Writer};
use units::Nanos;

const COMPRESSIONS: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Xz, Compression::Lz4, Compression::Bzip2];

/// The first byte says whether the rest is compressed as it is. Else it is what is compressed: the
/// second byte is where the first member ends, and the third how much of the second is cut off.
pub fn run(bytes: &[u8]) -> bool {
    match bytes {
        [0, rest @ ..] => read(rest.into()),
        [mode, end, cut, packets @ ..] => {
            store(COMPRESSIONS[usize::from(*mode) % COMPRESSIONS.len()], *end, *cut, packets)
        }
        _ => false,
    }
}

fn read(bytes: Vec<u8>) -> bool {
    let Ok(mut reader) = Reader::from_bytes("fuzz", bytes) else { return false };
    while let Ok(Some(_)) = reader.next() {}
    reader.info().compression != Compression::None
}

fn store(compression: Compression, end: u8, cut: u8, content: &[u8]) -> bool {
    let packets: Vec<crate::survey::Owned> =
        content.chunks(7).map(|data| (Nanos(data.len() as u64), 7, data.into())).collect();
    let mut writer = Writer::new(Vec::new(), Format::Pcap, Compression::None).expect("memory");
    for (ts, orig_len, data) in &packets {
        writer.write(*ts, *orig_len, data).expect("a packet");
    }
    let plain = writer.into_inner().expect("memory");
    let (head, tail) = plain.split_at(usize::from(end).min(plain.len()));
    let [first, second] = [head, tail].map(|part| crate::survey::compress(part, compression));
    // Cut where the first member ends, a capture looks whole; that is another question.
    let cut = usize::from(cut).min(second.len() - 1);
    let bytes = [&first[..], &second[..second.len() - cut]].concat();
    crate::survey::assert_beginning(bytes, &packets, cut == 0);
    true
}
