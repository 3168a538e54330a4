//! The key of a packet: what makes it the same packet before and after a device.
//!
//! - `frame`: bytes 12 to 63 of the frame (so no MAC addresses), with the IPv4 header checksum and,
//!   when IPv4 has no options, the UDP or TCP checksum set to zero; of IPv6 20 bytes more, as its
//!   header is longer. VLAN tags shift what is masked. Of a shorter packet the bytes up to its end:
//!   neither padding nor a check sequence belongs to the key.
//! - `l3`: as `frame`, with TTL or hop limit set to zero too.
//! - `payload`: what the transport header carries ([`content`]).
//! - `inner`: the same of the innermost packet of a tunnel.
//! - `probe`: the sequence number in the probe payload.
//! - `tcp-bytes` is no key of single packets: of those that it tells of, it shows the bytes of `payload`.
//! - `bytes:OFF+LEN,…`: those bytes of the frame, as they are; `bytes:…/…`: others behind the device.
//!
//! A key is kept as a 128-bit hash (XXH3) of those bytes, of which the matcher compares 96: among 10⁸
//! packets in flight, two different ones share them with a probability of about 10⁻¹³. Of a probe its upper
//! half is the sequence number itself: keys ascend as the numbers do, and no two share one.

use crate::missing::Missing;
use crate::{headers, payload};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

pub use match_on::{ByteRange, MatchOn};

mod content;
mod frame;
mod match_on;

/// A packet's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The upper 64 bits of the hash, or the sequence number of a probe.
    pub hi: u64,
    /// The lower 64 bits of the hash.
    pub lo: u64,
}

/// Odd, with bits spread evenly: 2⁶⁴ over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Key {
    /// Returns the key of the probe with this sequence number.
    #[inline]
    #[must_use]
    pub fn of_probe(seq: u64) -> Self {
        Self { hi: seq, lo: (!seq).wrapping_mul(SPREAD).rotate_left(32) }
    }

    /// Returns the key of these bytes, one after the other.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Xxh3::new();
        parts.iter().for_each(|part| hash.update(part));
        Self::of_hash(hash.digest128())
    }

    fn of_hash(hash: u128) -> Self {
        Self { hi: (hash >> 64) as u64, lo: hash as u64 }
    }
}

/// The result of the search for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// The packet has this key.
    Key(Key),
    /// The packet has none: it carries no probe, or is shorter than the bytes that were asked for.
    None,
    /// The packet had a key on the wire, but too little of it was captured.
    Short {
        /// Bytes that the capture should have kept of this packet.
        need: u32,
    },
}

/// The side of the device on which a packet is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// Before it.
    Pre,
    /// Behind it.
    Post,
}

/// Computes keys in one way, decided before the first packet.
#[derive(Clone, Debug)]
pub struct Keyer {
    rule: Rule,
    /// True if keys were cut to what the captures hold.
    limited: bool,
}

#[derive(Clone, Debug)]
enum Rule {
    Frame(frame::Rule),
    Content(content::Rule),
    Probe,
    Bytes(Vec<ByteRange>),
}

impl Keyer {
    /// Returns a keyer for `match_on`, at `tap`. [`MatchOn::Auto`] means `frame`.
    ///
    /// `limit_bytes`: bytes of each packet, from its network header on, that both captures hold; keys
    /// go no further, and a packet of which the capture holds less has none.
    #[must_use]
    pub fn new(match_on: &MatchOn, tap: Tap, limit_bytes: Option<u32>) -> Self {
        let limit = limit_bytes.map_or(usize::MAX, |limit| limit as usize);
        let rule = match match_on {
            MatchOn::Auto | MatchOn::Frame => {
                Rule::Frame(frame::Rule { masks: &frame::FRAME, limit })
            }
            MatchOn::L3 => Rule::Frame(frame::Rule { masks: &frame::L3, limit }),
            MatchOn::Payload | MatchOn::TcpBytes => {
                Rule::Content(content::Rule { inner: false, limit })
            }
            MatchOn::Inner => Rule::Content(content::Rule { inner: true, limit }),
            MatchOn::Probe => Rule::Probe,
            MatchOn::Bytes { pre, post } => Rule::Bytes(match tap {
                Tap::Pre => pre.clone(),
                Tap::Post => post.clone(),
            }),
        };
        Self { rule, limited: limit_bytes.is_some() }
    }

    /// Returns the key of a packet of which `data` was captured and `orig_len` bytes were on the
    /// wire.
    // Always: a probe that is quick to tell stays in registers.
    #[inline(always)]
    #[must_use]
    pub fn key(&self, data: &[u8], orig_len: u32) -> Keyed {
        if let (Rule::Probe, Some(payload)) = (&self.rule, headers::plain_udp_payload(data)) {
            if let Some(seq) = payload::read(payload) {
                return Keyed::Key(Key::of_probe(seq));
            }
        }
        self.key_of_any(data, orig_len)
    }

    fn key_of_any(&self, data: &[u8], orig_len: u32) -> Keyed {
        let key = match &self.rule {
            Rule::Frame(rule) => rule.hash(data, orig_len).map(Key::of_hash),
            Rule::Content(rule) => rule.hash(data, orig_len).map(Key::of_hash),
            Rule::Probe => probe(data, orig_len).map(Key::of_probe),
            Rule::Bytes(ranges) => hash_of_ranges(ranges, data, orig_len).map(Key::of_hash),
        };
        match key {
            Ok(key) => Keyed::Key(key),
            Err(Missing::NotThere) => Keyed::None,
            Err(Missing::Short(_)) if self.limited => Keyed::None,
            Err(Missing::Short(need)) => Keyed::Short { need },
        }
    }

    /// Copies the bytes that the key is a hash of into `bytes`; nothing if there is no key.
    pub fn bytes(&self, data: &[u8], orig_len: u32, bytes: &mut Vec<u8>) {
        bytes.clear();
        match &self.rule {
            Rule::Frame(rule) => {
                if let Ok((frame, key)) = rule.masked(data, orig_len) {
                    bytes.extend_from_slice(&frame[key]);
                }
            }
            Rule::Content(rule) => {
                if let Ok(content) = rule.content(data, orig_len) {
                    bytes.extend_from_slice(content.bytes());
                }
            }
            Rule::Probe => {
                if let Ok(seq) = probe(data, orig_len) {
                    bytes.extend_from_slice(&seq.to_be_bytes());
                }
            }
            Rule::Bytes(ranges) => {
                if within(ranges, data, orig_len).is_ok() {
                    ranges.iter().for_each(|range| bytes.extend_from_slice(&data[range.range()]));
                }
            }
        }
    }

    /// Returns the bytes of a partly captured packet from the network header on; `None` if it was
    /// captured whole, or its key does not go by it.
    #[must_use]
    pub fn held_bytes(&self, data: &[u8], orig_len: u32) -> Option<u32> {
        if data.len() >= orig_len as usize {
            return None;
        }
        let network = match &self.rule {
            Rule::Frame(_) => headers::network(data).map_or(data.len(), |network| network.offset),
            Rule::Content(rule) => rule.network_at(data, orig_len).unwrap_or(data.len()),
            Rule::Probe | Rule::Bytes(_) => return None,
        };
        Some(data.len().saturating_sub(network) as u32)
    }
}

fn probe(data: &[u8], orig_len: u32) -> Result<u64, Missing> {
    // Nearly every probe is UDP over IPv4.
    if let Some(payload) =
        headers::plain_udp_payload(data).filter(|rest| rest.len() >= payload::LEN)
    {
        return payload::read(payload).ok_or(Missing::NotThere);
    }
    probe_in_any(data, orig_len)
}

fn probe_in_any(data: &[u8], orig_len: u32) -> Result<u64, Missing> {
    let need = match headers::transport_payload(data) {
        headers::Payload::Absent => {
            let seq = payload::find(data).and_then(payload::read);
            return seq.ok_or(Missing::NotThere);
        }
        headers::Payload::Cut { need } => need,
        headers::Payload::At(at) => match data.get(at..) {
            Some(bytes) if bytes.len() >= payload::LEN => {
                let seq = payload::read(bytes).or_else(|| payload::read(payload::find(data)?));
                return seq.ok_or(Missing::NotThere);
            }
            _ => at + payload::LEN,
        },
    };
    Err(if orig_len as usize >= need { Missing::Short(need as u32) } else { Missing::NotThere })
}

fn hash_of_ranges(ranges: &[ByteRange], data: &[u8], orig_len: u32) -> Result<u128, Missing> {
    within(ranges, data, orig_len)?;
    if let [range] = ranges {
        return Ok(xxh3_128(&data[range.range()]));
    }
    let mut hash = Xxh3::new();
    ranges.iter().for_each(|range| hash.update(&data[range.range()]));
    Ok(hash.digest128())
}

/// Checks that all the bytes are there.
fn within(ranges: &[ByteRange], data: &[u8], orig_len: u32) -> Result<(), Missing> {
    let need = ranges.iter().map(ByteRange::end).max().unwrap_or(0);
    if data.len() >= need as usize {
        Ok(())
    } else if orig_len >= need {
        Err(Missing::Short(need))
    } else {
        Err(Missing::NotThere)
    }
}

#[cfg(test)]
mod tests;
