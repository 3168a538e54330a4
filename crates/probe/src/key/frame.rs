//! The bytes of a frame that make its key, masked by one AND.
//!
//! What the frame carries behind its IP packet, padding or a check sequence, is no part of the key:
//! one side may have it and the other not.

use crate::headers;
use crate::missing::Missing;
use std::array;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Offset at which the keyed part of a frame starts: behind the MAC addresses.
const START: usize = 12;
/// Offset at which it ends.
const END: usize = 64;
/// Offset at which it ends with an IPv6 header, which is longer than that of IPv4 by so much.
const END_IPV6: usize = END + headers::IPV6_LEN - headers::IPV4_LEN;
const WORDS: usize = END / 8;

/// A key that is `frame` or `l3`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub masks: &'static Masks,
    /// Bytes from the network header on that both captures hold of every packet.
    pub limit: usize,
}

type Words = [u64; WORDS];

/// The bytes that stay, for each number of VLAN tags and each [`Kind`].
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

    /// Returns what devices rewrite, as offsets in the network header.
    const fn rewritten(self) -> &'static [usize] {
        match self {
            Self::Other | Self::Ipv6 => &[],
            Self::Ipv4 => &[10, 11],
            Self::Ipv4Udp => &[10, 11, 26, 27],
            Self::Ipv4Tcp => &[10, 11, 36, 37],
        }
    }

    /// Returns TTL or hop limit, as offset in the network header.
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

/// Returns the mask for a network header at `header`. Behind two VLAN tags all of it still lies
/// within.
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

impl Rule {
    /// Returns the hash of the key of a frame.
    #[inline]
    pub fn hash(&self, data: &[u8], orig_len: u32) -> Result<u128, Missing> {
        if let Some(whole) = data.first_chunk() {
            let look = Look::at(whole);
            if self.limit >= END && look.packet_end(whole).is_some_and(|end| end >= END) {
                return Ok(hash(&apply(look.mask(self.masks), words(whole)), END - START));
            }
        } else if data.len() >= orig_len as usize {
            if let Some(words) = padded_in_registers(data) {
                let look = Look::at(data);
                if self.limit >= END && look.packet_end(data) == Some(data.len()) {
                    return Ok(hash(&apply(look.mask(self.masks), words), data.len() - START));
                }
            }
        }
        let (masked, key) = self.masked(data, orig_len)?;
        Ok(hash(&masked[..key.end.max(END)], key.len()))
    }

    /// Returns the frame with what is masked zeroed, the MAC addresses too, and the bytes that are
    /// its key. Zeros stand for what a short frame does not have.
    pub fn masked(
        &self,
        data: &[u8],
        orig_len: u32,
    ) -> Result<([u8; END_IPV6], Range<usize>), Missing> {
        let wire = data.len().max(orig_len as usize);
        let own = own_end(data);
        let end = own.unwrap_or(wire).min(wire).min(self.reach(data));
        if end <= START {
            return Err(Missing::NotThere);
        }
        let frame = data.get(..end).ok_or(Missing::Short(end as u32))?;
        let mut padded = [0; END_IPV6];
        padded[..end].copy_from_slice(frame);
        let (head, _) = padded.split_first_chunk_mut().expect("it is longer than the masks");
        *head = apply(Look::at(head).mask(self.masks), words(head));
        let end = if own.is_some() { end } else { behind_last_byte(&padded[..end]) };
        Ok((padded, START..end.max(START)))
    }

    /// Returns where the key ends at most.
    fn reach(&self, data: &[u8]) -> usize {
        let Some(network) = headers::network(data) else { return END };
        let most = if network.ethertype == headers::IPV6 { END_IPV6 } else { END };
        most.min(network.offset.saturating_add(self.limit))
    }
}

#[inline]
fn hash(masked: &[u8], key_len: usize) -> u128 {
    xxh3_128_with_seed(masked, key_len as u64)
}

/// Returns where the packet in a frame ends, where its header says so: what lies behind is no part
/// of it.
fn own_end(data: &[u8]) -> Option<usize> {
    let network = headers::network(data)?;
    let len = headers::packet_len(network.ethertype, &data[network.offset..])?;
    Some(network.offset + len)
}

/// Returns where the last byte lies that is not 0: zeros at the end of a packet that does not tell
/// its length may be padding.
fn behind_last_byte(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The content of a frame, as far as masks go.
#[derive(Clone, Copy)]
struct Look {
    kind: Kind,
    /// Offset at which the network header starts.
    header: usize,
    tags: usize,
}

impl Look {
    /// Looks at a frame that is long enough for every header.
    #[inline]
    fn at(frame: &[u8]) -> Self {
        let Some((ethertype, at)) = headers::behind_tags(&frame[START..]) else {
            return Self { kind: Kind::Other, header: END, tags: 0 };
        };
        let (header, tags) = (START + at, at / headers::TAG_LEN);
        Self { kind: Kind::of(ethertype, &frame[header..]), header, tags }
    }

    #[inline]
    fn mask(self, masks: &Masks) -> &Words {
        &masks[self.tags][self.kind as usize]
    }

    /// Returns where an IPv4 packet ends.
    #[inline]
    fn packet_end(self, frame: &[u8]) -> Option<usize> {
        if !matches!(self.kind, Kind::Ipv4 | Kind::Ipv4Udp | Kind::Ipv4Tcp) {
            return None;
        }
        let len = u16::from_be_bytes([frame[self.header + 2], frame[self.header + 3]]);
        Some(self.header + usize::from(len))
    }
}

#[inline]
fn words(frame: &[u8; END]) -> Words {
    array::from_fn(|word| {
        u64::from_le_bytes(*frame[word * 8..].first_chunk().expect("a word is within the frame"))
    })
}

/// Returns the words of a frame that ends within the last two of them, as most small packets do.
/// Copied piece by piece and read back in words it would stall the processor for longer than the
/// hash takes.
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

#[inline]
fn apply(mask: &Words, frame: Words) -> [u8; END] {
    let mut masked = [0; END];
    for (bytes, (word, mask)) in masked.chunks_exact_mut(8).zip(frame.iter().zip(mask)) {
        bytes.copy_from_slice(&(word & mask).to_le_bytes());
    }
    masked
}
