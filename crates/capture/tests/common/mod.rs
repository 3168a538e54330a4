//! What the black-box tests share.

use capture::{Compression, Error, Format, Packet, Reader, Writer};
use units::Nanos;

/// A packet that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub ts: Nanos,
    pub orig_len: u32,
    pub data: Vec<u8>,
}

impl From<Packet<'_>> for Owned {
    fn from(packet: Packet<'_>) -> Self {
        Self { ts: packet.ts, orig_len: packet.orig_len, data: packet.data.into() }
    }
}

/// Reads to the end: what came before it, and the error if it is one.
pub fn drain(reader: &mut Reader) -> (Vec<Owned>, Option<Error>) {
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(packet)) => packets.push(packet.into()),
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error)),
        }
    }
}

/// A capture of `packets` as this crate writes it.
pub fn written(packets: &[Owned], format: Format, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), format, compression).expect("a writer");
    for packet in packets {
        writer.write(packet.ts, packet.orig_len, &packet.data).expect("a packet that fits");
    }
    writer.into_inner().expect("a whole capture")
}
