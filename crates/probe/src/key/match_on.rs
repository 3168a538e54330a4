use crate::error::Error;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The way in which packets before and after a device are recognised as the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MatchOn {
    /// The most specific of the others by which a sample of both captures matches.
    #[default]
    Auto,
    /// The frame behind the MAC addresses.
    Frame,
    /// The frame behind the MAC addresses, without TTL or hop limit.
    L3,
    /// The sequence number of the probe payload.
    Probe,
    /// The content of the transport header.
    Payload,
    /// The content of the transport header of a tunnel's innermost packet.
    Inner,
    /// The bytes of TCP streams, whatever segments carry them.
    TcpBytes,
    /// These bytes of the frame.
    Bytes {
        /// Ranges before the device.
        pre: Vec<ByteRange>,
        /// Ranges behind it; as many.
        post: Vec<ByteRange>,
    },
}

/// Bytes of a frame: at least one, and their end fits 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    offset: u32,
    len: u32,
}

impl MatchOn {
    /// The keys that [`Auto`](Self::Auto) tries, the most specific first.
    pub const CANDIDATES: [Self; 5] =
        [Self::Probe, Self::Frame, Self::L3, Self::Payload, Self::Inner];
}

impl ByteRange {
    /// Returns `len` bytes from `offset` on; `None` where that is nothing or too far out.
    #[must_use]
    pub const fn new(offset: u32, len: u32) -> Option<Self> {
        match offset.checked_add(len) {
            Some(_) if len > 0 => Some(Self { offset, len }),
            _ => None,
        }
    }

    /// Returns the length that a frame must have.
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
            "payload" => Ok(Self::Payload),
            "inner" => Ok(Self::Inner),
            "tcp-bytes" => Ok(Self::TcpBytes),
            _ => match text.strip_prefix("bytes:") {
                Some(ranges) => bytes(ranges),
                None => Err(Error::MatchOn { got: text.into() }),
            },
        }
    }
}

/// Returns byte ranges, of either side behind a slash where they differ.
fn bytes(text: &str) -> Result<MatchOn, Error> {
    let ranges = |text: &str| text.split(',').map(str::parse).collect::<Result<Vec<_>, _>>();
    let (pre, post) = text.split_once('/').unwrap_or((text, text));
    let (pre, post) = (ranges(pre)?, ranges(post)?);
    let len = |ranges: &[ByteRange]| ranges.iter().map(|range| u64::from(range.len)).sum::<u64>();
    if len(&pre) != len(&post) {
        let got = format!("{} and {} bytes", len(&pre), len(&post));
        return Err(Error::Sides { got });
    }
    Ok(MatchOn::Bytes { pre, post })
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
            Self::Payload => f.write_str("payload"),
            Self::Inner => f.write_str("inner"),
            Self::TcpBytes => f.write_str("tcp-bytes"),
            Self::Bytes { pre, post } => {
                let text = |ranges: &[ByteRange]| {
                    ranges.iter().map(ByteRange::to_string).collect::<Vec<_>>().join(",")
                };
                write!(f, "bytes:{}", text(pre))?;
                if pre == post { Ok(()) } else { write!(f, "/{}", text(post)) }
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
        for text in [
            "auto",
            "frame",
            "l3",
            "payload",
            "inner",
            "tcp-bytes",
            "probe",
            "bytes:42+8",
            "bytes:0+1,63+1,12+4294967283",
            "bytes:42+8/92+8",
            "bytes:0+2,5+1/7+3",
        ] {
            assert_eq!(text.parse::<MatchOn>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn both_sides_take_as_many_bytes() {
        let got = "bytes:0+2/5+3".parse::<MatchOn>();
        assert_eq!(got, Err(Error::Sides { got: "2 and 3 bytes".into() }));
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
}
