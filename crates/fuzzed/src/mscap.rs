//! Reading of mscap.

use capture::Format;

/// Reads all packets.
pub fn run(bytes: &[u8]) -> bool {
    crate::survey::survey(bytes, Format::Mscap)
}
