//! What is encrypted anew for each connection, as the first bytes of its packets tell: TLS, DTLS and QUIC.

use crate::headers::{self, be16};
use crate::layers::Layers;

const UDP_LEN: usize = 8;
const TCP_LEN: usize = 20;
const HANDSHAKE: u8 = 22;
/// Longest record of TLS, with what encryption adds (RFC 5246).
const MOST_TLS: usize = (1 << 14) + 2048;
/// Types of records of TLS and DTLS: change of cipher, alert, handshake, data, heartbeat, and those of later versions.
const RECORDS: std::ops::RangeInclusive<u8> = 20..=26;
/// Versions of DTLS, as records say them.
const DTLS: [u16; 3] = [0xfeff, 0xfefd, 0xfefc];
const DTLS_HEADER: usize = 13;
/// Long headers of QUIC, with the bit that is always set (RFC 9000).
const QUIC_LONG: u8 = 0xc0;
/// Version 2 (RFC 9369).
const QUIC_2: u32 = 0x6b33_43cf;

/// A protocol that encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encryption {
    /// Over TCP.
    Tls,
    /// Over UDP.
    Dtls,
    /// Over UDP, with streams of its own.
    Quic,
}

/// Returns what a frame shows to encrypt its flow; nothing for packets that show no beginning of a record or connection.
#[must_use]
pub fn encryption(data: &[u8], orig_len: u32) -> Option<Encryption> {
    let network = Layers::new(data, orig_len).innermost().ok()?;
    if network.is_later_fragment() {
        return None;
    }
    let at = network.transport;
    let payload = |len: usize| data.get(at + len..network.end.min(data.len()));
    match network.protocol {
        headers::TCP => {
            let tcp = data.get(at..at + TCP_LEN)?;
            is_tls(payload(usize::from(tcp[12] >> 4).max(5) * 4)?).then_some(Encryption::Tls)
        }
        headers::UDP => of_datagram(payload(UDP_LEN)?, network.end - at - UDP_LEN),
        _ => None,
    }
}

/// Returns true if a stream of TLS begins like this: with a handshake.
#[must_use]
pub fn is_tls(bytes: &[u8]) -> bool {
    let [kind, major, minor, ..] = *bytes else { return false };
    let fits = be16(bytes, 3).is_some_and(|len| (4..=MOST_TLS).contains(&usize::from(len)));
    kind == HANDSHAKE && major == 3 && minor <= 4 && fits
}

fn of_datagram(bytes: &[u8], len: usize) -> Option<Encryption> {
    let first = *bytes.first()?;
    let version = be16(bytes, 1)?;
    let record = || be16(bytes, DTLS_HEADER - 2).map(|record| DTLS_HEADER + usize::from(record));
    if RECORDS.contains(&first) && DTLS.contains(&version) {
        return record().is_some_and(|record| record <= len).then_some(Encryption::Dtls);
    }
    let version = u32::from(version) << 16 | u32::from(be16(bytes, 3)?);
    // Version 1, version 2, and drafts.
    let is_known = matches!(version, 1 | QUIC_2 | 0xff00_0000..=0xff00_00ff);
    (first & QUIC_LONG == QUIC_LONG && is_known).then_some(Encryption::Quic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, body: &[u8]) -> Vec<u8> {
        let header = if protocol == headers::TCP { TCP_LEN } else { UDP_LEN };
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + header as u16 + body.len() as u16).to_be_bytes());
        frame.extend([0, 9, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(vec![0x50; header]);
        frame.extend(body);
        frame
    }

    #[test]
    fn each_is_known_by_its_first_bytes() {
        let dtls = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0];
        let tls = [22, 3, 1, 0, 200, 1, 0, 0, 196];
        for (protocol, body, expected) in [
            (headers::UDP, &dtls[..], Some(Encryption::Dtls)),
            (headers::UDP, &dtls[..14], None),
            (headers::UDP, &[0xc3, 0, 0, 0, 1, 8][..], Some(Encryption::Quic)),
            (headers::UDP, &[0xd3, 0x6b, 0x33, 0x43, 0xcf, 8][..], Some(Encryption::Quic)),
            (headers::UDP, &[0xc3, 0, 0, 0, 7, 8][..], None),
            (headers::UDP, &[0x43, 0, 0, 0, 1, 8][..], None),
            (headers::UDP, &tls[..], None),
            (headers::TCP, &tls[..], Some(Encryption::Tls)),
            (headers::TCP, &[23, 3, 3, 0, 200, 1][..], None),
            (headers::TCP, b"GET / HTTP/1.1\r\n", None),
            (headers::ICMP, &tls[..], None),
        ] {
            let frame = frame(protocol, body);
            assert_eq!(encryption(&frame, frame.len() as u32), expected, "{body:?}");
            for len in 0..frame.len() {
                let _ = encryption(&frame[..len], frame.len() as u32);
            }
        }
    }
}
