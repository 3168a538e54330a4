//! The bytes of a frame that make its key, masked by one AND.

use super::missing::Missing;
use crate::headers;
use std::array;
use std::ops::Range;

/// Where the keyed part of a frame starts: behind the MAC addresses.
const START: usize = 12;
/// Where it ends.
const END: usize = 64;
const WORDS: usize = END / 8;

type Words = [u64; WORDS];

/// For each number of VLAN tags and each [`Kind`], the bytes that stay.
pub(super) type Masks = [[Words; Kind::COUNT]; headers::MAX_VLAN_TAGS + 1];

/// The masks of `frame`.
pub(super) static FRAME: Masks = masks(false);
/// The masks of `l3`.
pub(super) static L3: Masks = masks(true);

/// Frames that are masked alike.
#[derive(Clone, Copy)]
enum Kind {
    Other,
    Ipv4,
    Ipv4Udp,
    Ipv4Tcp,
    Ipv6,
}

impl Kind {
    const COUNT: usize = 5;

    #[inline]
    fn of(ethertype: u16, header: &[u8]) -> Self {
        match ethertype {
            headers::IPV4 => match (header[0], header[9]) {
                (0x45, headers::UDP) => Self::Ipv4Udp,
                (0x45, headers::TCP) => Self::Ipv4Tcp,
                _ => Self::Ipv4,
            },
            headers::IPV6 => Self::Ipv6,
            _ => Self::Other,
        }
    }

    /// What devices rewrite, as offsets in the network header.
    const fn rewritten(self) -> &'static [usize] {
        match self {
            Self::Other | Self::Ipv6 => &[],
            Self::Ipv4 => &[10, 11],
            Self::Ipv4Udp => &[10, 11, 26, 27],
            Self::Ipv4Tcp => &[10, 11, 36, 37],
        }
    }

    /// TTL or hop limit, as offset in the network header.
    const fn ttl(self) -> Option<usize> {
        match self {
            Self::Other => None,
            Self::Ipv6 => Some(7),
            Self::Ipv4 | Self::Ipv4Udp | Self::Ipv4Tcp => Some(8),
        }
    }
}

const fn masks(mask_ttl: bool) -> Masks {
    let mut masks = [[[0; WORDS]; Kind::COUNT]; headers::MAX_VLAN_TAGS + 1];
    let kinds = [Kind::Other, Kind::Ipv4, Kind::Ipv4Udp, Kind::Ipv4Tcp, Kind::Ipv6];
    let mut tags = 0;
    while tags < masks.len() {
        let header = START + 2 + tags * headers::TAG_LEN;
        let mut kind = 0;
        while kind < kinds.len() {
            masks[tags][kinds[kind] as usize] = mask(header, kinds[kind], mask_ttl);
            kind += 1;
        }
        tags += 1;
    }
    masks
}

/// The mask for a network header at `header`. Behind two VLAN tags all of it still lies within.
const fn mask(header: usize, kind: Kind, mask_ttl: bool) -> Words {
    let mut mask = [u64::MAX; WORDS];
    let mut mac = 0;
    while mac < START {
        clear(&mut mask, mac);
        mac += 1;
    }
    let mut field = 0;
    while field < kind.rewritten().len() {
        clear(&mut mask, header + kind.rewritten()[field]);
        field += 1;
    }
    if let (true, Some(ttl)) = (mask_ttl, kind.ttl()) {
        clear(&mut mask, header + ttl);
    }
    mask
}

const fn clear(mask: &mut Words, byte: usize) {
    mask[byte / 8] &= !(0xff << (byte % 8 * 8));
}

/// The frame with what is masked zeroed, the MAC addresses too, and the bytes that are its key.
/// Zeros stand for what a short frame does not have.
#[inline]
pub(super) fn masked(
    data: &[u8],
    orig_len: u32,
    masks: &Masks,
) -> Result<([u8; END], Range<usize>), Missing> {
    if let Some(whole) = data.first_chunk() {
        return Ok((apply(mask_of(whole, masks), words(whole)), START..END));
    }
    let end = data.len().max(orig_len as usize).min(END);
    if end <= START {
        return Err(Missing::NotThere);
    }
    let frame = data.get(..end).ok_or(Missing::Short(end as u32))?;
    if let Some(words) = padded_in_registers(frame) {
        return Ok((apply(mask_of(frame, masks), words), START..end));
    }
    let mut padded = [0; END];
    padded[..end].copy_from_slice(frame);
    Ok((apply(mask_of(&padded, masks), words(&padded)), START..end))
}

#[inline]
fn words(frame: &[u8; END]) -> Words {
    array::from_fn(|word| {
        u64::from_le_bytes(*frame[word * 8..].first_chunk().expect("a word is within the frame"))
    })
}

/// The words of a frame that ends within the last two of them, as most small packets do. Copied
/// piece by piece and read back in words it would stall the processor for longer than the hash
/// takes.
#[inline]
fn padded_in_registers(frame: &[u8]) -> Option<Words> {
    let missing_bits = 8 * (END - frame.len()) as u32;
    let tail = u128::from_le_bytes(*frame.last_chunk()?).checked_shr(missing_bits)?;
    let mut words: Words = array::from_fn(|word| match frame.get(word * 8..word * 8 + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().expect("a word has 8 bytes")),
        None => 0,
    });
    words[WORDS - 2] = tail as u64;
    words[WORDS - 1] = (tail >> 64) as u64;
    Some(words)
}

/// The mask of a frame that is long enough for every header.
#[inline]
fn mask_of<'a>(frame: &[u8], masks: &'a Masks) -> &'a Words {
    let Some((ethertype, at)) = headers::behind_tags(&frame[START..]) else { return &masks[0][0] };
    let kind = Kind::of(ethertype, &frame[START + at..]);
    &masks[at / headers::TAG_LEN][kind as usize]
}

#[inline]
fn apply(mask: &Words, frame: Words) -> [u8; END] {
    let mut masked = [0; END];
    for (bytes, (word, mask)) in masked.chunks_exact_mut(8).zip(frame.iter().zip(mask)) {
        bytes.copy_from_slice(&(word & mask).to_le_bytes());
    }
    masked
}
