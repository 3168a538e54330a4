//! The payload by which a probe packet is known: four bytes of magic, then its sequence number,
//! big endian. Its 12 bytes fit the 18 that a 60-byte UDP frame leaves.

/// The bytes that every probe payload starts with. No text and no common protocol does.
pub const MAGIC: [u8; 4] = [0xf5, b't', b's', 0xa1];

/// The length of the probe payload.
pub const LEN: usize = 12;

/// Writes the payload of packet `seq` to the start of `payload`.
///
/// # Panics
/// When `payload` is shorter than [`LEN`].
pub fn write(payload: &mut [u8], seq: u64) {
    payload[..4].copy_from_slice(&MAGIC);
    payload[4..LEN].copy_from_slice(&seq.to_be_bytes());
}

/// The sequence number, where `payload` starts with a whole probe payload.
#[must_use]
pub fn read(payload: &[u8]) -> Option<u64> {
    let (magic, rest) = payload.split_first_chunk::<4>()?;
    let (seq, _) = rest.split_first_chunk::<8>()?;
    (*magic == MAGIC).then(|| u64::from_be_bytes(*seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_comes_back() {
        let mut bytes = [0xaa; 18];
        for seq in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            write(&mut bytes, seq);
            assert_eq!(read(&bytes), Some(seq));
        }
        assert_eq!(bytes[LEN..], [0xaa; 6]);
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
