//! Reading of pcapng.

use capture::Format;

/// Reads all packets, as they are and with the lengths at the ends of blocks put right.
pub fn run(bytes: &[u8]) -> bool {
    let known = crate::survey::survey(&crate::survey::mended(bytes), Format::PcapNg);
    crate::survey::survey(bytes, Format::PcapNg) || known
}
