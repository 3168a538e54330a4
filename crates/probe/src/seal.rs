//! Seals of packets: HMAC-SHA-256 of 128 bits (RFC 8762, section 4.4), by a key that both ends have.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a seal.
pub const SEAL: usize = 16;
/// Bytes that a key may have: as strong as the seal, and no more than the algorithm takes as they are.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// A key, which nothing prints.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    /// Reads a key of hexadecimal digits; `None` if it is none, or too short or too long.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let bytes: Vec<u8> = text
            .chunks(2)
            .map(|pair| {
                let [high, low] = *pair else { return None };
                let digit = |letter: u8| char::from(letter).to_digit(16);
                Some((digit(high)? * 16 + digit(low)?) as u8)
            })
            .collect::<Option<_>>()?;
        KEY_BYTES.contains(&bytes.len()).then(|| {
            Self(Hmac::new_from_slice(&bytes).expect("the algorithm takes a key of any length"))
        })
    }

    /// The seal of these bytes, one part behind the other.
    #[must_use]
    pub fn seal(&self, parts: &[&[u8]]) -> [u8; SEAL] {
        let full = self.over(parts).finalize().into_bytes();
        full[..SEAL].try_into().expect("it is longer")
    }

    /// Whether a seal is that of these bytes; how long that takes says nothing of the right one.
    #[must_use]
    pub fn has_sealed(&self, parts: &[&[u8]], seal: &[u8]) -> bool {
        seal.len() == SEAL && self.over(parts).verify_truncated_left(seal).is_ok()
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 1 of RFC 4231: a key of 20 bytes 0x0b.
    #[test]
    fn a_seal_is_that_of_the_standard() {
        let key = Key::from_hex(&[b"0b".as_slice(); 20].concat()).unwrap();
        let expected = *b"\xb0\x34\x4c\x61\xd8\xdb\x38\x53\x5c\xa8\xaf\xce\xaf\x0b\xf1\x2b";
        assert_eq!(key.seal(&[b"Hi ", b"There"]), expected);
        assert!(key.has_sealed(&[b"Hi There"], &expected));
        assert!(!key.has_sealed(&[b"Hi There"], &expected[..15]));
        assert!(!key.has_sealed(&[b"Hi there"], &expected));
    }

    #[test]
    fn a_key_is_of_16_to_64_bytes_in_hexadecimal() {
        let is_key = |text: &[u8]| Key::from_hex(text).is_some();
        for (digits, expected) in [(0, false), (31, false), (32, true), (128, true), (130, false)] {
            assert_eq!(is_key(&vec![b'A'; digits]), expected, "{digits}");
        }
        for wrong in [b'g', b' ', b'\n', 0xff] {
            assert!(!is_key(&[wrong; 32]));
        }
    }
}
