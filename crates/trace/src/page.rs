//! Raw pages of a ring buffer: `include/linux/ring_buffer.h` and `events/header_page` of the kernel.

/// Bytes before an event's data: time and commit.
const HEADER: usize = 16;
const LENGTH: u64 = (1 << 27) - 1;
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// An absolute time has so many bits; those above are the page's.
const STAMP_BITS: u32 = 59;

/// The reason why a page cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Offset in the page.
    pub offset: usize,
    /// Field or property that is wrong.
    pub what: &'static str,
    /// The value that is there.
    pub got: u64,
    /// The values that are right.
    pub expected: String,
}

/// A page's statement that events before it were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// True if events before this page were lost.
    pub any: bool,
    /// Number of lost events, if the page says so.
    pub count: u64,
}

/// Takes all events out of a page, in order; says what was lost before it.
///
/// # Errors
/// [`Broken`] when the page is too short for what it says.
pub fn events(page: &[u8], mut each: impl FnMut(u64, &[u8])) -> Result<Lost, Broken> {
    let broken = |offset, what, got, expected: String| Broken { offset, what, got, expected };
    let header = (number::<8>(page, 0), number::<8>(page, 8));
    let (Some(mut time), Some(commit)) = header else {
        return Err(broken(0, "a page", page.len() as u64, format!("at least {HEADER} bytes")));
    };
    let end = HEADER + (commit & LENGTH) as usize;
    if end > page.len() {
        let room = page.len() - HEADER;
        return Err(broken(8, "bytes in use", commit & LENGTH, format!("at most {room}")));
    }
    let data = &page[..end];
    let mut at = HEADER;
    while let Some(header) = number::<4>(data, at) {
        let (kind, delta) = (header as u32 & 31, header >> 5);
        let first = number::<4>(data, at + 4);
        let cut =
            |expected: &str| broken(at, "an event's length", (end - at) as u64, expected.into());
        let (from, length) = match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                time = time.wrapping_add(delta);
                at += 4 + first.ok_or_else(|| cut("at least 8"))? as usize;
                continue;
            }
            TIME_EXTEND => {
                let high = first.ok_or_else(|| cut("at least 8"))?;
                time = time.wrapping_add(delta + (high << DELTA_BITS));
                at += 8;
                continue;
            }
            TIME_STAMP => {
                let high = first.ok_or_else(|| cut("at least 8"))?;
                time = (time >> STAMP_BITS << STAMP_BITS) | (delta + (high << DELTA_BITS));
                at += 8;
                continue;
            }
            0 => {
                let length = first.ok_or_else(|| cut("at least 8"))? as usize;
                if length < 4 {
                    return Err(broken(
                        at + 4,
                        "an event's length",
                        length as u64,
                        "at least 4".into(),
                    ));
                }
                (at + 8, length - 4)
            }
            words => (at + 4, 4 * words as usize),
        };
        time = time.wrapping_add(delta);
        let bytes = data.get(from..from + length);
        let bytes = bytes.ok_or_else(|| {
            broken(at, "an event's length", length as u64, format!("at most {}", end - at))
        })?;
        each(time, bytes);
        at = (from + length).next_multiple_of(4);
    }
    let any = commit & MISSED != 0;
    let stored = any && commit & MISSED_STORED != 0;
    let count = if stored { number::<8>(page, end).unwrap_or(0) } else { 0 };
    Ok(Lost { any, count })
}

fn number<const N: usize>(page: &[u8], at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(page.get(at..at + N)?);
    Some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(time: u64, flags: u64, data: &[u8]) -> Vec<u8> {
        let mut page = time.to_le_bytes().to_vec();
        page.extend((data.len() as u64 | flags).to_le_bytes());
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    fn entry(kind: u32, delta: u32, words: &[u32]) -> Vec<u8> {
        let header = kind | delta << 5;
        std::iter::once(&header).chain(words).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn all(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, Lost) {
        let mut found = Vec::new();
        let lost = events(page, |time, data| found.push((time, data.to_vec()))).unwrap();
        (found, lost)
    }

    #[test]
    fn every_kind_of_entry_is_understood() {
        let data = [
            entry(2, 5, &[1, 2]),
            entry(TIME_EXTEND, 1, &[1]),
            entry(0, 3, &[12, 7, 8]),
            entry(PADDING, 4, &[8, 0]),
            entry(TIME_STAMP, 9, &[2]),
            entry(1, 1, &[6]),
            entry(PADDING, 0, &[0]),
        ];
        let (found, lost) = all(&page(1000, 0, &data.concat()));
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        let stamp = 9 + (2 << 27) + 1;
        let extended = 1005 + 1 + (1 << 27) + 3;
        assert_eq!(
            found,
            [(1005, bytes(&[1, 2])), (extended, bytes(&[7, 8])), (stamp, bytes(&[6]))]
        );
        assert!(!lost.any);
    }

    #[test]
    fn losses_are_counted() {
        let mut some = page(0, MISSED | MISSED_STORED, &entry(1, 0, &[1]));
        some[24..32].copy_from_slice(&17_u64.to_le_bytes());
        assert_eq!(all(&some).1, Lost { any: true, count: 17 });
        assert_eq!(all(&page(0, MISSED, &[])).1, Lost { any: true, count: 0 });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let broken = events(&page(0, 0, &entry(28, 0, &[1])), |_, _| ()).unwrap_err();
        assert_eq!((broken.offset, broken.got), (HEADER, 112));
        assert!(events(&[0; 15], |_, _| ()).is_err());
        let mut long = page(0, 0, &[]);
        long[8..16].copy_from_slice(&5000_u64.to_le_bytes());
        assert_eq!(events(&long, |_, _| ()).unwrap_err().expected, "at most 4080");
    }

    proptest! {
        #[test]
        fn arbitrary_pages_do_no_harm(page in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = events(&page, |_, data| assert!(data.len() < 300));
        }
    }
}
