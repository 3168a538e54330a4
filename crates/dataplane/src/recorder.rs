//! Frames on their way from a polling loop to a file: the loop never waits for a disk.

use crate::error::Error;
use capture::{Compression, Format, Writer};
use rtrb::{Consumer, Producer, RingBuffer};
use std::path::Path;
use std::time::Duration;
use units::{Clock, Nanos};

/// Bytes kept of a frame: headers and probe are well within.
pub const KEPT_BYTES: usize = 128;
/// Frames that may wait: a tenth of a second at a million a second.
const WAITING: usize = 1 << 17;
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A frame that waits to be written.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// When it was seen: ticks, or the device's own ns.
    pub time: u64,
    /// The frame's length.
    pub len: u16,
    /// The bytes kept, the first `len` of them.
    pub bytes: [u8; KEPT_BYTES],
}

/// The polling loop's end.
pub type Slots = Producer<Slot>;

/// Writes what comes out of the other end.
pub struct Recorder {
    slots: Consumer<Slot>,
    writer: Writer<capture::Draft>,
}

/// What a recorder wrote.
#[derive(Debug, Default)]
pub struct Written {
    /// Frames.
    pub frames: u64,
    /// Why it stopped writing before the end.
    pub error: Option<Error>,
}

impl Recorder {
    /// Begins a file.
    pub fn create(path: &Path) -> Result<(Slots, Self), Error> {
        let writer = Writer::create(path, Format::PcapNg, Compression::Zstd)?;
        let (producer, slots) = RingBuffer::new(WAITING);
        Ok((producer, Self { slots, writer }))
    }

    /// Writes until the loop has dropped its end and nothing is left. `clock` turns ticks into time;
    /// without one, times are ns. After an error the rest is thrown away, so that the loop goes on.
    pub fn run(mut self, clock: Option<&Clock>) -> Written {
        let mut written = Written::default();
        loop {
            let over = self.slots.is_abandoned();
            while let Ok(slot) = self.slots.pop() {
                if written.error.is_none() {
                    match write(&mut self.writer, &slot, clock) {
                        Ok(()) => written.frames += 1,
                        Err(error) => written.error = Some(error.into()),
                    }
                }
            }
            if over {
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        if written.error.is_none() {
            written.error = self.writer.finish().err().map(Error::from);
        }
        written
    }
}

fn write(
    writer: &mut Writer<capture::Draft>,
    slot: &Slot,
    clock: Option<&Clock>,
) -> Result<(), capture::Error> {
    let time = clock.map_or(Nanos(slot.time), |clock| clock.unix(slot.time));
    let kept = usize::from(slot.len).min(KEPT_BYTES);
    writer.write(time, slot.len.into(), &slot.bytes[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Reader;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng.zst");
        let (mut slots, recorder) = Recorder::create(&path).unwrap();
        let clock = Clock { tsc_hz: 2_000_000_000, tsc: 0, unix_ns: 1_000 };
        let written = std::thread::scope(|scope| {
            let writing = scope.spawn(|| recorder.run(Some(&clock)));
            for time in 0..1000_u64 {
                let len = 60 + time as u16;
                slots.push(Slot { time: 2 * time, len, bytes: [time as u8; KEPT_BYTES] }).unwrap();
            }
            drop(slots);
            writing.join().unwrap()
        });
        assert!(written.error.is_none() && written.frames == 1000);
        let mut reader = Reader::open(&path).unwrap();
        for time in 0..1000_u64 {
            let packet = reader.next().unwrap().unwrap();
            assert_eq!((packet.ts, packet.orig_len), (Nanos(1000 + time), 60 + time as u32));
            assert_eq!(packet.data.len(), KEPT_BYTES.min(packet.orig_len as usize));
            assert!(packet.data.iter().all(|byte| *byte == time as u8));
        }
        assert!(reader.next().unwrap().is_none());
    }
}
