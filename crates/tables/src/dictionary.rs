//! Chunks of columns in which few cells differ: a page of those, and the place of each cell.
//!
//! The format's own writer looks every cell up, which takes longer for texts than everything else
//! that is written of a packet. Here a text comes with its place, and a number mostly is the one
//! before it.

use std::collections::HashMap;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use crate::error::Error;
use crate::new::{NewCells, NewColumn};

/// Most bytes of cells that differ: where there are more, the format's writer decides what to do.
const MOST_BYTES: usize = 1 << 20;
/// Most numbers that differ.
const MOST_NUMBERS: usize = 1 << 12;
/// Fewest equal places that are written as a run.
const RUN: usize = 8;

/// What the cells of a column are.
struct Dictionary {
    /// The place of each cell that is not missing.
    places: Vec<u32>,
    /// Cells that differ, as the format has them, in order of their places.
    cells: Vec<u8>,
    count: usize,
    statistics: Statistics,
}

/// A chunk that can be appended to a group of rows.
pub(crate) struct Chunk {
    pub bytes: Bytes,
    pub close: ColumnCloseResult,
}

/// Encodes a column; None where too many cells differ, or of other types.
///
/// # Errors
///
/// If a text has no name.
pub(crate) fn chunk(
    column: NewColumn<'_>,
    descriptor: &ColumnDescPtr,
    rows: usize,
) -> Result<Option<Chunk>, Error> {
    let nulls = column.missing.map_or(0, |missing| missing.iter().filter(|gone| **gone).count());
    if rows == nulls {
        return Ok(None);
    }
    let there = |at: &usize| column.missing.is_none_or(|missing| !missing[*at]);
    let rows_there = (0..rows).filter(there);
    let found = match column.cells {
        NewCells::Text(places, names) => {
            let places = rows_there.map(|at| places[at]);
            of_texts(places, names, nulls, descriptor.name())?
        }
        NewCells::UInt64(cells) => of_numbers(rows_there.map(|at| cells[at]), nulls),
        _ => None,
    };
    found.map(|found| found.written(column, descriptor, rows)).transpose()
}

fn of_texts(
    places: impl Iterator<Item = u32>,
    names: &[String],
    nulls: usize,
    column: &str,
) -> Result<Option<Dictionary>, Error> {
    const NONE: u32 = u32::MAX;
    let mut codes = vec![NONE; names.len()];
    let mut used: Vec<&str> = Vec::new();
    let mut cells = Vec::new();
    let mut own = Vec::with_capacity(places.size_hint().1.unwrap_or(0));
    for place in places {
        let code = codes
            .get_mut(place as usize)
            .ok_or_else(|| Error::Damaged(format!("{column}: no text at {place}")))?;
        if *code == NONE {
            let name = names[place as usize].as_str();
            *code = used.len() as u32;
            cells.extend((name.len() as u32).to_le_bytes());
            cells.extend(name.as_bytes());
            if cells.len() > MOST_BYTES {
                return Ok(None);
            }
            used.push(name);
        }
        own.push(*code);
    }
    let ends = [used.iter().min(), used.iter().max()].map(|end| end.map(|text| (*text).into()));
    let [min, max]: [Option<ByteArray>; 2] = ends;
    let statistics = ValueStatistics::new(min, max, None, Some(nulls as u64), false);
    let statistics = statistics.with_min_is_exact(true).with_max_is_exact(true).into();
    Ok(Some(Dictionary { places: own, cells, count: used.len(), statistics }))
}

fn of_numbers(numbers: impl Iterator<Item = u64>, nulls: usize) -> Option<Dictionary> {
    let (mut codes, mut cells) = (HashMap::new(), Vec::new());
    let mut own = Vec::with_capacity(numbers.size_hint().1.unwrap_or(0));
    let mut before = None;
    for number in numbers {
        let code = match before {
            Some((same, code)) if same == number => code,
            _ => {
                let next = codes.len() as u32;
                *codes.entry(number).or_insert_with(|| {
                    cells.extend(number.to_le_bytes());
                    next
                })
            }
        };
        if codes.len() > MOST_NUMBERS {
            return None;
        }
        before = Some((number, code));
        own.push(code);
    }
    let ends = [codes.keys().min(), codes.keys().max()].map(|end| end.map(|of| *of as i64));
    let [min, max] = ends;
    let statistics = Statistics::int64(min, max, None, Some(nulls as u64), false);
    Some(Dictionary { places: own, cells, count: codes.len(), statistics })
}

impl Dictionary {
    fn written(
        self,
        column: NewColumn<'_>,
        descriptor: &ColumnDescPtr,
        rows: usize,
    ) -> Result<Chunk, Error> {
        let mut content = Vec::new();
        if descriptor.max_def_level() > 0 {
            let levels = match column.missing {
                Some(missing) => {
                    let levels: Vec<_> = missing.iter().map(|gone| u32::from(!gone)).collect();
                    hybrid(&levels, 1)
                }
                None => run_of(1, rows, 1),
            };
            content.extend((levels.len() as u32).to_le_bytes());
            content.extend(levels);
        }
        let width = (usize::BITS - (self.count - 1).leading_zeros()).max(1) as u8;
        content.push(width);
        content.extend(hybrid(&self.places, width));

        let mut sink = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut sink);
        let dictionary = Page::DictionaryPage {
            buf: compressed(&self.cells)?,
            num_values: self.count as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let first = pages.write_page(CompressedPage::new(dictionary, self.cells.len()))?;
        let data = Page::DataPage {
            buf: compressed(&content)?,
            num_values: rows as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let second = pages.write_page(CompressedPage::new(data, content.len()))?;
        let bytes = sink.into_inner()?;
        let metadata = ColumnChunkMetaData::builder(descriptor.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_num_values(rows as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(
                (first.uncompressed_size + second.uncompressed_size) as i64,
            )
            .set_dictionary_page_offset(Some(first.offset as i64))
            .set_data_page_offset(second.offset as i64)
            .set_statistics(self.statistics)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(Chunk { bytes: bytes.into(), close })
    }
}

fn compressed(content: &[u8]) -> Result<Bytes, Error> {
    let level = ZstdLevel::default().compression_level();
    let made = zstd::bulk::compress(content, level);
    Ok(made.map_err(|error| Error::Damaged(format!("zstd: {error}")))?.into())
}

/// Encodes numbers of so many bits as the format does: runs of equal ones, and eights of others.
fn hybrid(numbers: &[u32], width: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut at, mut waiting) = (0, 0);
    while at < numbers.len() {
        let run = numbers[at..].iter().take_while(|number| **number == numbers[at]).count();
        // What waits is filled up to whole eights from the run.
        let fill = (at - waiting).next_multiple_of(8) - (at - waiting);
        if run >= RUN + fill {
            pack(&numbers[waiting..at + fill], width, &mut out);
            out.extend(run_of(numbers[at], run - fill, width));
            waiting = at + run;
        }
        at += run;
    }
    pack(&numbers[waiting..], width, &mut out);
    out
}

fn run_of(number: u32, count: usize, width: u8) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint((count as u64) << 1, &mut out);
    out.extend(&number.to_le_bytes()[..usize::from(width).div_ceil(8)]);
    out
}

fn pack(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let eights = numbers.len().div_ceil(8);
    put_varint((eights as u64) << 1 | 1, out);
    let (mut bits, mut held) = (0u64, 0);
    let padding = std::iter::repeat_n(&0, eights * 8 - numbers.len());
    for number in numbers.iter().chain(padding) {
        bits |= u64::from(*number) << held;
        held += u32::from(width);
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_eights_are_those_of_the_format() {
        assert_eq!(hybrid(&[7; 100], 3), [200, 1, 7]);
        assert_eq!(hybrid(&[0, 1, 2, 3, 4, 5, 6, 7], 3), [3, 0x88, 0xc6, 0xfa]);
        // Three wait: five of the twenty fill them up.
        let mixed = [&[1, 0, 1][..], &[1; 20]].concat();
        assert_eq!(hybrid(&mixed, 1), [3, 0b1111_1101, 30, 1]);
        assert_eq!(hybrid(&[1, 1], 1), [3, 0b11]);
    }
}
