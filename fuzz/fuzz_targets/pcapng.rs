//! Reading of pcapng.

#![no_main]

use capture::Format;
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // A mutation seldom hits both places where a block's length stands.
    let known = survey::survey(&mended(bytes), Format::PcapNg);
    if survey::survey(bytes, Format::PcapNg) || known { Corpus::Keep } else { Corpus::Reject }
});

/// The same blocks with the length of each at its end as at its start.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    let big = bytes.get(8..12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
    let mut rest = &mut mended[..];
    while let Some(&[a, b, c, d]) = rest.get(4..8) {
        let word = [a, b, c, d];
        let len = if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) } as usize;
        if len < 12 || len > rest.len() {
            break;
        }
        let (block, behind) = rest.split_at_mut(len);
        block[len - 4..].copy_from_slice(&word);
        rest = behind;
    }
    mended
}
