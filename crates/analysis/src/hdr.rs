//! Histograms as HdrHistogram encodes them, in its first and second version.
//!
//! The crate of that name reads the second version. The first differs in its counts, which have a
//! fixed width; they are encoded anew.

use std::borrow::Cow;
use std::io::Read;

use hdrhistogram::serialization::Deserializer;

use crate::error::Error;

/// A part of the values that a histogram tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its lowest value.
    pub low: u64,
    /// Its highest value.
    pub high: u64,
    /// Number of values in it.
    pub count: u64,
}

const HEADER_BYTES: usize = 40;
const FIRST: u32 = 0x1C84_9301;
const SECOND: u32 = 0x1C84_9303;
const WIDTH_BITS: u32 = 0xF0;
/// Cookie of the second version with the width that the crate asks for.
const SECOND_COOKIE: u32 = SECOND | 0x10;
const MOST_DIGITS: u32 = 5;
const VARINT_BYTES: usize = 9;

/// Reads the buckets that hold values, in ascending order, of a histogram that is not compressed.
///
/// # Errors
/// When it is something else, contradicts itself, or more than `most` buckets hold values.
///
/// # Panics
/// Never: what is read from the header has that many bytes.
pub fn read_hdr(content: &[u8], most: usize) -> Result<Vec<Bucket>, Error> {
    let Some((header, rest)) = content.split_first_chunk::<HEADER_BYTES>() else {
        return wrong(format!("expected a header of {HEADER_BYTES} bytes, got {}", content.len()));
    };
    let word = |at| u32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    let double = |at| u64::from_be_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let (cookie, length) = (word(0), word(4) as usize);
    check_values(word(12), double(16), double(24), f64::from_bits(double(32)))?;
    let Some(counts) = rest.get(..length) else {
        return wrong(format!("expected {length} bytes of counts, got {}", rest.len()));
    };
    let counts = match cookie & !WIDTH_BITS {
        FIRST => Cow::from(encoded_anew(counts, (cookie & WIDTH_BITS) as usize >> 4)?),
        SECOND => Cow::from(counts),
        _ => return wrong(format!("expected version 1 or 2, got cookie {cookie:#x}")),
    };
    // It would be negated, which this number alone cannot be.
    if counts.windows(VARINT_BYTES).any(|bytes| bytes == [0xFF; VARINT_BYTES]) {
        return wrong("expected fewer than 2^63 empty buckets");
    }
    let Ok(length) = u32::try_from(counts.len()) else {
        return wrong(format!("expected fewer than 2^32 bytes of counts, got {}", counts.len()));
    };
    let begin = [SECOND_COOKIE.to_be_bytes(), length.to_be_bytes()].concat();
    let histogram = Deserializer::new()
        .deserialize(&mut begin.chain(&header[8..]).chain(&*counts))
        .or_else(|error| wrong(error.to_string()))?;
    filled(&histogram, most)
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Hdr(what.into()))
}

fn check_values(digits: u32, lowest: u64, highest: u64, ratio: f64) -> Result<(), Error> {
    if ratio.to_bits() != 1f64.to_bits() {
        return wrong("histograms of fractions are not read, only of whole numbers");
    }
    if !(1..=MOST_DIGITS).contains(&digits) {
        return wrong(format!("expected 1 to {MOST_DIGITS} digits, got {digits}"));
    }
    if lowest < 1 || lowest > highest / 2 || i64::try_from(highest).is_err() {
        return wrong(format!(
            "expected values from 1 to twice that at least, got {lowest} to {highest}"
        ));
    }
    Ok(())
}

/// Encodes counts of a fixed width as the second version has them.
fn encoded_anew(counts: &[u8], width: usize) -> Result<Vec<u8>, Error> {
    if ![1, 2, 4, 8].contains(&width) {
        return wrong(format!("expected counts of 1, 2, 4 or 8 bytes, got {width}"));
    }
    if counts.len() % width != 0 {
        return wrong(format!("expected counts of {width} bytes, got {} in all", counts.len()));
    }
    let mut encoded = Vec::with_capacity(counts.len());
    for count in counts.chunks_exact(width) {
        let sign = if count[0] < 0x80 { 0 } else { -1 };
        let count = count.iter().fold(sign, |above, &byte| above << 8 | i64::from(byte));
        let Ok(count) = u64::try_from(count) else {
            return wrong(format!("expected counts of at least 0, got {count}"));
        };
        push_varint(&mut encoded, count << 1);
    }
    Ok(encoded)
}

/// Writes seven bits a byte, lowest first, and eight in the ninth.
fn push_varint(encoded: &mut Vec<u8>, mut value: u64) {
    for _ in 1..VARINT_BYTES {
        if value < 0x80 {
            break;
        }
        encoded.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    encoded.push(value.to_le_bytes()[0]);
}

/// Returns the buckets that hold values. The crate's iterators add counts up, which those of a
/// damaged file may not allow.
fn filled(histogram: &hdrhistogram::Histogram<u64>, most: usize) -> Result<Vec<Bucket>, Error> {
    let mut buckets = Vec::new();
    let mut low = 0;
    for _ in 0..histogram.distinct_values() {
        let (count, next) = (histogram.count_at(low), histogram.next_non_equivalent(low));
        if count > 0 {
            buckets.push(Bucket { low, high: next - 1, count });
        }
        if buckets.len() > most {
            return wrong(format!("expected at most {most} values, got more"));
        }
        low = next;
    }
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 1 << 19;

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut made = Histogram::new_with_bounds(1, 10_000_000, 3).expect("bounds");
        values.iter().for_each(|&value| made.record(value).expect("within the bounds"));
        made
    }

    fn second_version(histogram: &Histogram<u64>) -> Vec<u8> {
        let mut encoded = Vec::new();
        V2Serializer::new().serialize(histogram, &mut encoded).expect("memory");
        encoded
    }

    fn first_version(histogram: &Histogram<u64>, width: u8) -> Vec<u8> {
        let counts: Vec<u8> = histogram
            .iter_all()
            .flat_map(|one| one.count_at_value().to_be_bytes()[8 - usize::from(width)..].to_vec())
            .collect();
        let length = u32::try_from(counts.len()).expect("few");
        let mut encoded = second_version(histogram)[..HEADER_BYTES].to_vec();
        encoded[..4].copy_from_slice(&(FIRST | u32::from(width) << 4).to_be_bytes());
        encoded[4..8].copy_from_slice(&length.to_be_bytes());
        encoded.extend(counts);
        encoded
    }

    proptest! {
        #[test]
        fn both_versions_hold_what_was_recorded(
            values in prop::collection::vec(0..10_000_000u64, 1..100),
            width in prop::sample::select(vec![1, 2, 4, 8]),
        ) {
            let recorded = histogram(&values);
            let found = read_hdr(&second_version(&recorded), MOST).expect("a histogram");
            prop_assert_eq!(&read_hdr(&first_version(&recorded, width), MOST).expect("it"), &found);
            let expected: Vec<_> = recorded
                .iter_recorded()
                .map(|one| Bucket {
                    low: recorded.lowest_equivalent(one.value_iterated_to()),
                    high: recorded.highest_equivalent(one.value_iterated_to()),
                    count: one.count_at_value(),
                })
                .collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn damage_is_no_crash(
            values in prop::collection::vec(0..10_000_000u64, 1..20),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            is_first: bool,
            cut: prop::sample::Index,
        ) {
            let recorded = histogram(&values);
            let mut encoded =
                if is_first { first_version(&recorded, 8) } else { second_version(&recorded) };
            for (at, byte) in damage {
                // Most of the bytes are counts; most of what can go wrong is before them.
                let at = at.index(encoded.len().min(2 * HEADER_BYTES));
                encoded[at] = byte;
            }
            let _ = read_hdr(&encoded, MOST);
            let _ = read_hdr(&encoded[..cut.index(encoded.len())], MOST);
        }
    }

    #[test]
    fn counts_are_bounded() {
        let mut encoded = second_version(&histogram(&[1]));
        let said = |encoded: &[u8]| read_hdr(encoded, 1).expect_err("not read").to_string();
        encoded.truncate(HEADER_BYTES);
        encoded.extend([0xFF; VARINT_BYTES]);
        encoded[7] = 9;
        assert_eq!(said(&encoded), "expected fewer than 2^63 empty buckets");
        let negative = [&first_version(&histogram(&[1]), 8)[..HEADER_BYTES], &[0xFF; 8]].concat();
        let negative = [&negative[..4], &[0, 0, 0, 8], &negative[8..]].concat();
        assert_eq!(said(&negative), "expected counts of at least 0, got -1");
        let more = second_version(&histogram(&[1, 2]));
        assert_eq!(said(&more), "expected at most 1 values, got more");
    }
}
