//! TCP segments: the connection that they belong to, and the bytes of its streams that they carry.

use crate::flow::Flow;
use crate::headers;
use crate::layers::Layers;

const HEADER: usize = 20;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A TCP segment of the innermost packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// Number of the next byte that is expected from the other end, if the segment says it.
    pub acknowledged: Option<u32>,
    /// True if it opens the stream.
    pub syn: bool,
    /// True if it ends the stream.
    pub fin: bool,
    /// True if it ends the connection at once.
    pub rst: bool,
    /// Number of bytes of the stream that it carries.
    pub len: u32,
    /// The bytes that were captured of them.
    pub payload: &'a [u8],
    /// Length that the frame must have to hold all of them.
    pub need: u32,
}

/// Returns the TCP segment of a frame, if it has one, and its flow: without type of service, as packets of one
/// stream may differ in it.
#[must_use]
pub fn segment(data: &[u8], orig_len: u32) -> Option<(Flow, Segment<'_>)> {
    let network = Layers::new(data, orig_len).innermost().ok()?;
    if network.protocol != headers::TCP || network.is_later_fragment() {
        return None;
    }
    let at = network.transport;
    let tcp = data.get(at..at + HEADER)?;
    let payload_at = at + usize::from(tcp[12] >> 4).max(5) * 4;
    let len = network.end.checked_sub(payload_at)?;
    let held = |place: usize| place.min(data.len());
    let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let has = |flag: u8| tcp[13] & flag != 0;
    let segment = Segment {
        sequence: word(4),
        acknowledged: has(ACK).then(|| word(8)),
        syn: has(SYN),
        fin: has(FIN),
        rst: has(RST),
        len: len as u32,
        payload: &data[held(payload_at)..held(network.end)],
        need: network.end as u32,
    };
    Some((Flow { tos: 0, ..Flow::of(data, orig_len) }, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0xb8]);
        frame.extend((44 + body.len() as u16).to_be_bytes());
        frame.extend([0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x9c, 0x40, 0, 80, 0, 0, 1, 0, 0, 0, 2, 0, 0x60, flags]);
        frame.extend([0; 10]);
        frame.extend(body);
        frame
    }

    #[test]
    fn a_segment_has_what_follows_options_and_no_padding() {
        let mut padded = frame(ACK | FIN, b"seven b");
        let need = padded.len() as u32;
        padded.extend([0; 9]);
        let (flow, found) = segment(&padded, padded.len() as u32).expect("a segment");
        assert_eq!((flow.from_port, flow.to_port, flow.tos), (Some(40_000), Some(80), 0));
        let expected = Segment {
            sequence: 256,
            acknowledged: Some(512),
            syn: false,
            fin: true,
            rst: false,
            len: 7,
            payload: b"seven b",
            need,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn what_the_capture_cut_off_counts() {
        let whole = frame(SYN, b"0123456789");
        let (_, found) = segment(&whole[..whole.len() - 4], whole.len() as u32).expect("a segment");
        assert_eq!((found.len, found.payload), (10, &b"012345"[..]));
        assert_eq!((found.syn, found.acknowledged), (true, None));
        for len in 0..whole.len() {
            let _ = segment(&whole[..len], whole.len() as u32);
        }
    }

    #[test]
    fn other_packets_have_none() {
        let mut udp = frame(0, b"");
        udp[23] = headers::UDP;
        assert_eq!(segment(&udp, udp.len() as u32), None);
        let mut fragment = frame(0, b"");
        fragment[21] = 5;
        assert_eq!(segment(&fragment, fragment.len() as u32), None);
    }
}
