use crate::error::Error;
use crate::{headers, payload};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// How packets before and after a device are recognised as the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MatchOn {
    /// `probe` when the payload magic is there, else `frame`.
    #[default]
    Auto,
    /// The frame behind the MAC addresses.
    Frame,
    /// The frame behind the MAC addresses, without TTL or hop limit.
    L3,
    /// The sequence number of the probe payload.
    Probe,
    /// These bytes of the frame.
    Bytes(Vec<ByteRange>),
}

/// Bytes of a frame: at least one, and their end fits 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    offset: u32,
    len: u32,
}

impl MatchOn {
    /// Decides [`Auto`](Self::Auto) by the first frames of a capture: `probe` when one of them
    /// carries a probe payload, else `frame`. Everything else stays what it is.
    #[must_use]
    pub fn resolve<'a>(self, first_frames: impl IntoIterator<Item = &'a [u8]>) -> Self {
        match self {
            Self::Auto if first_frames.into_iter().any(carries_probe) => Self::Probe,
            Self::Auto => Self::Frame,
            decided => decided,
        }
    }
}

fn carries_probe(frame: &[u8]) -> bool {
    match headers::udp_payload(frame) {
        headers::UdpPayload::At(at) => frame.get(at..).and_then(payload::read).is_some(),
        _ => false,
    }
}

impl ByteRange {
    /// `len` bytes from `offset` on; `None` where that is nothing or too far out.
    #[must_use]
    pub const fn new(offset: u32, len: u32) -> Option<Self> {
        match offset.checked_add(len) {
            Some(_) if len > 0 => Some(Self { offset, len }),
            _ => None,
        }
    }

    /// The length that a frame must have.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.offset + self.len
    }

    pub(super) fn range(self) -> Range<usize> {
        self.offset as usize..self.end() as usize
    }
}

impl FromStr for MatchOn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "frame" => Ok(Self::Frame),
            "l3" => Ok(Self::L3),
            "probe" => Ok(Self::Probe),
            _ => match text.strip_prefix("bytes:") {
                Some(ranges) => ranges.split(',').map(str::parse).collect::<Result<_, _>>(),
                None => Err(Error::MatchOn { got: text.into() }),
            }
            .map(Self::Bytes),
        }
    }
}

impl FromStr for ByteRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |digits: &str| match digits.bytes().all(|digit| digit.is_ascii_digit()) {
            true => digits.parse().ok(),
            false => None,
        };
        text.split_once('+')
            .and_then(|(offset, len)| Self::new(number(offset)?, number(len)?))
            .ok_or_else(|| Error::ByteRange { got: text.into() })
    }
}

impl fmt::Display for MatchOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Frame => f.write_str("frame"),
            Self::L3 => f.write_str("l3"),
            Self::Probe => f.write_str("probe"),
            Self::Bytes(ranges) => {
                let ranges: Vec<_> = ranges.iter().map(ByteRange::to_string).collect();
                write!(f, "bytes:{}", ranges.join(","))
            }
        }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_read_as_it_is_written() {
        for text in ["auto", "frame", "l3", "probe", "bytes:42+8", "bytes:0+1,63+1,12+4294967283"] {
            assert_eq!(text.parse::<MatchOn>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_way_is_named() {
        for got in ["", "Frame", "bytes", "ip"] {
            assert_eq!(got.parse::<MatchOn>(), Err(Error::MatchOn { got: got.into() }));
        }
        for got in ["", "5", "5+", "+5", "5+0", "-1+2", "++5", "4294967295+1", "0x1+2", "1+2+3"] {
            let error = Err(Error::ByteRange { got: got.into() });
            assert_eq!(format!("bytes:0+4,{got}").parse::<MatchOn>(), error);
        }
    }

    #[test]
    fn auto_looks_for_the_probe_payload() {
        let mut probe = vec![0; 60];
        probe[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        probe[23] = headers::UDP;
        let other = probe.clone();
        payload::write(&mut probe[42..], 1);
        let resolve = |way: MatchOn, frames: &[&[u8]]| way.resolve(frames.iter().copied());
        assert_eq!(resolve(MatchOn::Auto, &[]), MatchOn::Frame);
        assert_eq!(resolve(MatchOn::Auto, &[&other, &other[..20]]), MatchOn::Frame);
        assert_eq!(resolve(MatchOn::Auto, &[&other, &probe]), MatchOn::Probe);
        assert_eq!(resolve(MatchOn::L3, &[&probe]), MatchOn::L3);
    }
}
