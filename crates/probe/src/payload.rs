//! The payload by which a probe packet is known, big endian:
//!
//! ```text
//!  0        4                 12           15          18
//!  +--------+-----------------+------------+-----------+
//!  | magic  | sequence number | intended   | actual    |   departure: low 24 bits of its ns
//!  +--------+-----------------+------------+-----------+
//! ```
//!
//! The first 12 bytes name the packet; a payload may end there. All 18 fit a 60-byte UDP frame. Of
//! the two departures the low 24 bits (16.7 ms) are enough: a packet that could not leave within less
//! than that is not sent at all, so their difference is exact, and whoever captured the packet knows
//! the rest of the time.

use crate::headers::transport_payload;
use crate::layers::innermost_payload;

/// The bytes that every probe payload starts with. No text and no common protocol does.
pub const MAGIC: [u8; 4] = [0xf5, b't', b's', 0xa1];

/// The length of what names a packet.
pub const LEN: usize = 12;

/// The length with both departures.
pub const DEPARTED_LEN: usize = 18;

/// A departure error is below this: 2²⁴ ns.
pub const MAX_ERROR_NS: u64 = 1 << 24;

/// Writes magic and number of packet `seq` to the start of `payload`.
///
/// # Panics
/// When `payload` is shorter than [`LEN`].
#[inline]
pub fn write(payload: &mut [u8], seq: u64) {
    payload[..4].copy_from_slice(&MAGIC);
    payload[4..LEN].copy_from_slice(&seq.to_be_bytes());
}

/// Writes when the packet was meant to leave, and when it did.
///
/// # Panics
/// When `payload` is shorter than [`DEPARTED_LEN`].
#[inline]
pub fn write_departure(payload: &mut [u8], intended_ns: u64, actual_ns: u64) {
    payload[LEN..15].copy_from_slice(&intended_ns.to_be_bytes()[5..]);
    payload[15..DEPARTED_LEN].copy_from_slice(&actual_ns.to_be_bytes()[5..]);
}

/// Returns the sequence number, where `payload` starts with a whole probe payload.
#[inline]
#[must_use]
pub fn read(payload: &[u8]) -> Option<u64> {
    let (magic, rest) = payload.split_first_chunk::<4>()?;
    let (seq, _) = rest.split_first_chunk::<8>()?;
    (*magic == MAGIC).then(|| u64::from_be_bytes(*seq))
}

/// Returns the bytes of a frame from its probe payload on: behind the outermost transport header, or
/// in the innermost packet of a tunnel.
#[must_use]
pub fn find(frame: &[u8]) -> Option<&[u8]> {
    let at = |offset: usize| frame.get(offset..).filter(|bytes| bytes.starts_with(&MAGIC));
    let outermost = transport_payload(frame).offset().and_then(at);
    outermost.or_else(|| innermost_payload(frame).and_then(at))
}

/// Returns the low 24 bits of the actual departure, and how much later than intended it was, both
/// in ns.
#[inline]
#[must_use]
pub fn read_departure(payload: &[u8]) -> Option<(u32, u32)> {
    let times = payload.get(LEN..DEPARTED_LEN)?;
    let low = |at: usize| u32::from_be_bytes([0, times[at], times[at + 1], times[at + 2]]);
    let (intended, actual) = (low(0), low(3));
    Some((actual, actual.wrapping_sub(intended) & (MAX_ERROR_NS as u32 - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_comes_back() {
        let mut bytes = [0xaa; DEPARTED_LEN];
        for seq in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            write(&mut bytes, seq);
            assert_eq!(read(&bytes), Some(seq));
        }
        assert_eq!(bytes[LEN..], [0xaa; 6]);
    }

    #[test]
    fn a_departure_comes_back_across_the_wrap() {
        let mut bytes = [0xaa; DEPARTED_LEN];
        write(&mut bytes, 7);
        for intended in [0, 5, MAX_ERROR_NS - 3, 0x1234_5678_9abc_def0] {
            for error in [0, 1, 9_999_999, MAX_ERROR_NS - 1] {
                write_departure(&mut bytes, intended, intended + error);
                let actual = (intended + error) as u32 & 0x00ff_ffff;
                assert_eq!(read_departure(&bytes), Some((actual, error as u32)));
                assert_eq!(read(&bytes), Some(7));
            }
        }
        assert_eq!(read_departure(&bytes[..DEPARTED_LEN - 1]), None);
    }

    #[test]
    fn what_is_no_whole_probe_payload_is_none() {
        let mut bytes = [0; LEN];
        write(&mut bytes, 7);
        for len in 0..LEN {
            assert_eq!(read(&bytes[..len]), None);
        }
        for at in 0..MAGIC.len() {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(read(&other), None);
        }
    }
}
