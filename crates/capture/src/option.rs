//! Options of pcapng blocks.

use crate::error::Error;
use crate::info::ByteOrder;
use crate::step::Site;
use crate::time::Resolution;

const END: u16 = 0;

/// Options, one after the other: each has a code and a value.
pub(crate) struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

/// An option that claims to be longer than what is there.
pub(crate) struct TooLong {
    pub len: usize,
    pub most: usize,
}

impl<'a> Options<'a> {
    pub fn new(order: ByteOrder, list: &'a [u8]) -> Self {
        Self { order, rest: list }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u16, &'a [u8]), TooLong>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = std::mem::take(&mut self.rest).split_at_checked(4)?;
        let code = self.order.u16([head[0], head[1]]);
        let len = usize::from(self.order.u16([head[2], head[3]]));
        if code == END {
            return None;
        }
        let Some(value) = rest.get(..len) else {
            return Some(Err(TooLong { len, most: rest.len() }));
        };
        // Behind the last option of a packet block the padding may be missing.
        self.rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok((code, value)))
    }
}

/// Returns `if_name` and `if_description`; some writers end them with a zero.
pub(crate) fn text(value: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(value);
    let text = text.trim_end_matches('\0');
    (!text.is_empty()).then(|| text.into())
}

pub(crate) fn tsresol(value: &[u8], site: Site<'_>) -> Result<Resolution, Error> {
    let &[byte] = value else {
        return Err(site.corrupt("length of if_tsresol", value.len(), 1));
    };
    Resolution::from_tsresol(byte)
        .ok_or_else(|| Error::Resolution { place: site.place(), got: byte })
}

pub(crate) fn tsoffset(order: ByteOrder, value: &[u8], site: Site<'_>) -> Result<i64, Error> {
    match number(order, value) {
        Some(offset_s) => Ok(offset_s as i64),
        None => Err(site.corrupt("length of if_tsoffset", value.len(), 8)),
    }
}

/// Returns the bytes of a frame check sequence. The format's drafts count them in bits, most
/// writers in bytes; no number is both.
pub(crate) fn fcslen(value: &[u8], site: Site<'_>) -> Result<u8, Error> {
    match value {
        [bytes @ (0 | 2 | 4)] => Ok(*bytes),
        [bits @ (16 | 32)] => Ok(bits / 8),
        [other] => Err(site.corrupt("if_fcslen", other, "0, 2 or 4 bytes, or 16 or 32 bits")),
        _ => Err(site.corrupt("length of if_fcslen", value.len(), 1)),
    }
}

/// Returns a number of 64 bits.
pub(crate) fn number(order: ByteOrder, value: &[u8]) -> Option<u64> {
    let bytes = value.try_into().ok()?;
    Some(match order {
        ByteOrder::Little => u64::from_le_bytes(bytes),
        ByteOrder::Big => u64::from_be_bytes(bytes),
    })
}
