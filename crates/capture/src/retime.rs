//! A capture once more, in the time of another clock.

use std::path::Path;

use units::Ahead;

use crate::draft::Draft;
use crate::error::Error;
use crate::info::{Compression, Format};
use crate::reader::Reader;
use crate::writer::Writer;

/// Packets between two looks whether to go on.
const BATCH: u64 = 1 << 16;

/// Writes all packets of a capture to `target`, as pcapng in zstd, with the times of the clock that
/// the capture's own is ahead of. Returns the number of packets; `None` if `go_on` said no.
///
/// # Errors
/// When the capture cannot be read to its end, or the other one not be written.
pub fn retime(
    mut source: Reader,
    target: &Path,
    clock: &Ahead,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<u64>, Error> {
    let mut writer: Writer<Draft> = Writer::create(target, Format::PcapNg, Compression::Zstd)?;
    let mut packets = 0;
    while let Some(packet) = source.next()? {
        if packets % BATCH == 0 && !go_on() {
            return Ok(None);
        }
        writer.write(clock.undo(packet.ts), packet.orig_len, packet.data)?;
        packets += 1;
    }
    writer.finish()?;
    Ok(Some(packets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    #[test]
    fn only_times_change() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) =
            (folder.path().join("a.pcapng.zst"), folder.path().join("b.pcapng.zst"));
        let mut writer = Writer::create(&before, Format::PcapNg, Compression::Zstd).unwrap();
        for number in 0..100_u8 {
            let time = Nanos(1_000_000 + 1000 * u64::from(number));
            writer.write(time, 60 + u32::from(number), &[number; 60]).unwrap();
        }
        writer.finish().unwrap();
        let clock = Ahead::new(vec![(Nanos(1_000_000), 500), (Nanos(1_100_000), 600)]).unwrap();
        let written = retime(Reader::open(&before).unwrap(), &after, &clock, || true).unwrap();
        assert_eq!(written, Some(100));
        let mut reader = Reader::open(&after).unwrap();
        for number in 0..100_u8 {
            let packet = reader.next().unwrap().unwrap();
            assert_eq!(packet.ts, Nanos(999_500 + 999 * u64::from(number)));
            assert_eq!((packet.orig_len, packet.data), (60 + u32::from(number), &[number; 60][..]));
        }
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn nothing_is_left_of_one_that_was_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (folder.path().join("a.pcap"), folder.path().join("b.pcapng.zst"));
        let mut writer = Writer::create(&before, Format::Pcap, Compression::None).unwrap();
        writer.write(Nanos(1), 60, &[0; 60]).unwrap();
        writer.finish().unwrap();
        let clock = Ahead::new(vec![(Nanos(0), 0)]).unwrap();
        let given_up = retime(Reader::open(&before).unwrap(), &after, &clock, || false).unwrap();
        assert_eq!(given_up, None);
        assert!(!after.exists());
    }
}
