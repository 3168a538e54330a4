//! Numbers and texts as bytes, compressed and checked, and back.
//!
//! A line that says what it is and in which version, then a frame of zstd with its checksum. In it a
//! number is seven bits a byte, the lowest first, the eighth bit set but in the last.

use std::io::Read;

use crate::error::Error;

/// The most bytes that are believed, after decompression.
const MOST_BYTES: u64 = 1 << 30;

/// Fast, and as small as what is sent once needs to be.
const LEVEL: i32 = 1;

/// Limit on the number of packets, bytes or items, so that sums do not overflow.
pub(crate) const MOST: u64 = 1 << 48;

/// Bytes that are written.
#[derive(Default)]
pub(crate) struct Writing(Vec<u8>);

impl Writing {
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Writes a number that is small if it is near zero on either side.
    pub fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }

    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    pub fn option<T>(&mut self, of: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.number(of.is_some().into());
        if let Some(item) = of {
            write(self, item);
        }
    }

    pub fn list<T>(&mut self, of: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number(of.len() as u64);
        of.iter().for_each(|item| write(self, item));
    }

    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns what was written, as `what`.
    pub fn finish(self, what: &str, version: u32) -> Vec<u8> {
        let mut bytes = head(what, version).into_bytes();
        let mut encoder = zstd::Encoder::new(&mut bytes, LEVEL).expect("a level that there is");
        encoder.include_checksum(true).expect("an option that there is");
        std::io::Write::write_all(&mut encoder, &self.0).expect("memory takes it");
        encoder.finish().expect("memory takes it");
        bytes
    }
}

fn head(what: &str, version: u32) -> String {
    format!("tailscope {what} {version}\n")
}

/// Bytes that are read. Nothing in them is trusted.
pub(crate) struct Reading<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

/// Returns the content of what [`Writing::finish`] has made.
pub(crate) fn open(bytes: &[u8], what: &'static str, version: u32) -> Result<Vec<u8>, Error> {
    let reading = Reading { what, bytes, at: 0 };
    let head = head(what, version);
    let Some(frame) = bytes.strip_prefix(head.as_bytes()) else {
        let got = String::from_utf8_lossy(&bytes[..bytes.len().min(head.len())]).into_owned();
        return Err(reading.flaw(format!("{got:?}"), format!("{head:?}")));
    };
    let mut content = Vec::new();
    zstd::Decoder::with_buffer(frame)
        .and_then(|decoder| decoder.take(MOST_BYTES + 1).read_to_end(&mut content))
        .map_err(|error| reading.flaw(error, "a whole frame of zstd"))?;
    if content.len() as u64 > MOST_BYTES {
        return Err(reading.flaw("more", format!("at most {MOST_BYTES} bytes")));
    }
    Ok(content)
}

impl<'a> Reading<'a> {
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub fn flaw(&self, got: impl ToString, expected: impl ToString) -> Error {
        let (got, expected) = (got.to_string(), expected.to_string());
        Error::Encoded { what: self.what, offset: self.at, got, expected }
    }

    /// Checks that what was just read holds.
    pub fn expect(&self, holds: bool, got: impl ToString, expected: &str) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(self.flaw(got, expected)) }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            return Err(self.flaw(format!("{} bytes", rest.len()), format!("at least {len}")));
        };
        self.at += len;
        Ok(taken)
    }

    pub fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.flaw("more", "a number of at most 64 bits"))
    }

    pub fn signed(&mut self) -> Result<i64, Error> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Returns a number of packets, bytes or items.
    pub fn count(&mut self) -> Result<u64, Error> {
        let count = self.number()?;
        self.expect(count < MOST, count, "less than 2^48")?;
        Ok(count)
    }

    pub fn text(&mut self) -> Result<String, Error> {
        let len = self.count()? as usize;
        let text = std::str::from_utf8(self.take(len)?);
        text.map(Into::into).map_err(|error| self.flaw(error, "a text in UTF-8"))
    }

    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match self.number()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(self.flaw(other, "0 or 1")),
        }
    }

    /// Reads a list; memory follows what is there, not the length that is claimed.
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let len = self.count()?;
        let mut list = Vec::new();
        for _ in 0..len {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), Error> {
        let left = self.bytes.len() - self.at;
        self.expect(left == 0, format!("{left} bytes more"), "the end")
    }
}
