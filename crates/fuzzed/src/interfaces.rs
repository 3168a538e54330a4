//! Reading of one interface of a pcapng: the packets of each are those of all, and no others.

use std::collections::BTreeMap;

use capture::{Error, Format, InterfaceChoice, Packet, Reader};

/// More are not asked for.
const MOST: u32 = 8;

/// By the byte offset, which no two packets share.
type Packets = BTreeMap<u64, crate::survey::Owned>;

/// Reads all interfaces, and each.
pub fn run(bytes: &[u8]) -> bool {
    let bytes = crate::survey::mended(bytes);
    let Ok(reader) = open(&bytes, InterfaceChoice::All) else { return false };
    if reader.info().format != Format::PcapNg {
        return false;
    }
    let (all, headers) = drain(reader);
    let mut of_each = Packets::new();
    for number in 0..MOST {
        let reader = match open(&bytes, InterfaceChoice::Number(number)) {
            Ok(reader) => reader,
            Err(Error::Interface { matching: 0, .. }) => break,
            Err(_) => continue,
        };
        let info = reader.info();
        assert_eq!(info.interface.map(|interface| interface.number), Some(number));
        for (offset, packet) in drain(reader).0 {
            // Only one that all are not read up to may be more.
            let last = all.last_key_value().map_or(0, |(offset, _)| *offset);
            assert!(offset > last || all.get(&offset) == Some(&packet));
            assert!(of_each.insert(offset, packet).is_none(), "a packet of two interfaces");
        }
    }
    let first = all.first_key_value().map_or(u64::MAX, |(offset, _)| *offset);
    // Interfaces behind the first packet can not be chosen; a second section may bring some.
    if headers.len() <= MOST as usize && headers.iter().all(|header| *header < first) {
        assert!(all.keys().all(|offset| of_each.contains_key(offset)), "a packet is lost");
    }
    true
}

fn open(bytes: &[u8], choice: InterfaceChoice) -> Result<Reader, Error> {
    Reader::interface_from_bytes("fuzz", bytes.into(), choice)
}

/// The packets up to the end or to an error, and where the headers lie.
fn drain(mut reader: Reader) -> (Packets, Vec<u64>) {
    let mut packets = Packets::new();
    while let Ok(Some(Packet { ts, orig_len, data, offset })) = reader.next() {
        packets.insert(offset, (ts, orig_len, data.into()));
    }
    (packets, reader.headers().to_vec())
}
