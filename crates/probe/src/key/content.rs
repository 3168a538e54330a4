//! The key that `payload` and `inner` are: what the transport header carries, wherever it lies.
//!
//! Addresses, ports, TTL, options, tags and checksums are left out, and so is everything behind the
//! packet's own end. Of TCP the sequence numbers and flags belong to the key, of ICMP the type and
//! the sequence number; of a fragment its identification and place. Control traffic of a link has no
//! key.

use crate::headers::{self, ICMP, ICMPV6};
use crate::layers::{Layers, Network};
use crate::local::is_control;
use crate::missing::Missing;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the payload that belong to the key.
const PAYLOAD: usize = 64;
/// Bytes that stand before them.
const FIXED: usize = 16;

/// Returns true if an ICMP message quotes the packet that it is about (RFC 792, RFC 4443).
fn is_error(protocol: u8, kind: u8) -> bool {
    match protocol {
        ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        _ => matches!(kind, 1..=4),
    }
}

/// The key of what a frame carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// True if tunnels are looked into.
    pub inner: bool,
    /// Bytes from the network header on that both captures hold of every packet.
    pub limit: usize,
}

/// The bytes of a key.
pub(super) struct Content {
    bytes: [u8; FIXED + PAYLOAD],
    len: usize,
}

impl Content {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn new(parts: &[&[u8]]) -> Self {
        let mut content = Self { bytes: [0; FIXED + PAYLOAD], len: 0 };
        for part in parts {
            content.bytes[content.len..][..part.len()].copy_from_slice(part);
            content.len += part.len();
        }
        content
    }
}

impl Rule {
    pub fn hash(&self, data: &[u8], orig_len: u32) -> Result<u128, Missing> {
        self.content(data, orig_len).map(|content| xxh3_128(content.bytes()))
    }

    /// Returns where the network header starts whose packet is keyed.
    pub fn network_at(&self, data: &[u8], orig_len: u32) -> Option<usize> {
        let layers = Layers::new(data, orig_len);
        let network = if self.inner { layers.innermost() } else { layers.network() };
        network.ok().map(|network| network.at)
    }

    pub fn content(&self, data: &[u8], orig_len: u32) -> Result<Content, Missing> {
        // Every link has such packets of its own, alike but for the addresses.
        if is_control(data) {
            return Err(Missing::NotThere);
        }
        let layers = Layers::new(data, orig_len);
        let network = if self.inner { layers.innermost()? } else { layers.network()? };
        self.transport(data, network)
    }

    fn transport(&self, data: &[u8], network: Network) -> Result<Content, Missing> {
        let at = network.transport;
        let header = |len: usize| {
            if network.end < at + len {
                return Err(Missing::NotThere);
            }
            data.get(at..at + len).ok_or(Missing::Short((at + len) as u32))
        };
        let protocol = [network.protocol];
        match network.protocol {
            _ if network.is_later_fragment() => {
                self.with_payload(data, network, at, &[&protocol, &network.fragment])
            }
            headers::UDP => {
                header(8)?;
                self.with_payload(data, network, at + 8, &[&protocol])
            }
            headers::TCP => {
                let tcp = header(20)?;
                let payload = at + usize::from(tcp[12] >> 4).max(5) * 4;
                self.with_payload(data, network, payload, &[&protocol, &tcp[4..12], &tcp[13..14]])
            }
            ICMP | ICMPV6 if is_error(network.protocol, header(8)?[0]) => {
                self.quoted(data, network, at)
            }
            ICMP | ICMPV6 => {
                let icmp = header(8)?;
                self.with_payload(data, network, at + 8, &[&protocol, &icmp[..2], &icmp[6..8]])
            }
            _ => self.with_payload(data, network, at, &[&protocol]),
        }
    }

    /// Returns the content of an error, which is known by the packet that it quotes: its addresses
    /// are translated like those of the error.
    fn quoted(&self, data: &[u8], network: Network, at: usize) -> Result<Content, Missing> {
        let kind = [network.protocol, data[at], data[at + 1]];
        let quoted = Layers::new(data, network.end as u32).packet(at + 8)?;
        let about = if quoted.protocol == ICMP || quoted.protocol == ICMPV6 {
            self.with_payload(data, quoted, quoted.transport + 8, &[&[quoted.protocol]])
        } else {
            self.transport(data, quoted)
        };
        // The quotation may end before the transport header does.
        let Ok(about) = about else { return Ok(Content::new(&[&kind])) };
        let most = FIXED + PAYLOAD - kind.len();
        Ok(Content::new(&[&kind, &about.bytes()[..about.len.min(most)]]))
    }

    /// Returns `fixed` and the beginning of the payload; a packet that carries neither cannot be
    /// told apart.
    fn with_payload(
        &self,
        data: &[u8],
        network: Network,
        payload_at: usize,
        fixed: &[&[u8]],
    ) -> Result<Content, Missing> {
        let len = network.end.saturating_sub(payload_at);
        if len == 0 && fixed.len() == 1 {
            return Err(Missing::NotThere);
        }
        let most = (network.at.saturating_add(self.limit)).saturating_sub(payload_at);
        let kept = len.min(PAYLOAD).min(most);
        let payload = match kept {
            0 => &[][..],
            _ => {
                let end = payload_at + kept;
                data.get(payload_at..end).ok_or(Missing::Short(end as u32))?
            }
        };
        let len = (len.min(usize::from(u16::MAX)) as u16).to_be_bytes();
        Ok(Content::new(&[&fixed.concat(), &len, payload]))
    }
}
