//! Writing: a group of rows at a time, compressed by zstd.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding as Coding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

use crate::dictionary;
use crate::error::Error;
use crate::kind::Kind;
use crate::new::{NewCells, NewColumn};

/// Rows of a column that are handed to the format's writer at once.
const ROWS_AT_ONCE: usize = 1 << 16;

/// How the cells of a column are encoded before they are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Places in a dictionary of those that differ.
    Dictionary,
    /// As they are.
    Plain,
    /// Differences, in as few bits as they need.
    Delta,
}

/// A column of a table that is written.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// The type of its cells.
    pub kind: Kind,
    /// Whether cells may be missing.
    pub is_nullable: bool,
    /// How it is encoded.
    pub encoding: Encoding,
}

/// Writes a table.
pub struct Writer {
    writer: SerializedFileWriter<Vec<u8>>,
    fields: Vec<Field>,
}

impl Writer {
    /// Begins a table.
    ///
    /// # Errors
    ///
    /// If the format cannot hold such columns.
    pub fn new(fields: Vec<Field>) -> Result<Self, Error> {
        let columns = fields.iter().map(|field| field.kind.schema(&field.name, field.is_nullable));
        let schema = Type::group_type_builder("schema")
            .with_fields(columns.collect::<Result<_, _>>()?)
            .build()?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_data_page_row_count_limit(usize::MAX)
            .set_created_by(concat!("tailscope ", env!("CARGO_PKG_VERSION")).into());
        for Field { name, encoding, .. } in &fields {
            let column = ColumnPath::new(vec![name.clone()]);
            let is_dictionary = *encoding == Encoding::Dictionary;
            properties = properties.set_column_dictionary_enabled(column.clone(), is_dictionary);
            if *encoding == Encoding::Delta {
                properties = properties.set_column_encoding(column, Coding::DELTA_BINARY_PACKED);
            }
        }
        let writer =
            SerializedFileWriter::new(Vec::new(), schema.into(), Arc::new(properties.build()))?;
        Ok(Self { writer, fields })
    }

    /// Writes a group of rows, and returns the bytes of the file that follow those before.
    ///
    /// # Errors
    ///
    /// If columns are not those of the table, or differ in length.
    pub fn write(&mut self, rows: usize, columns: &[NewColumn<'_>]) -> Result<Vec<u8>, Error> {
        self.check(rows, columns)?;
        let schema = self.writer.schema_descr().columns().to_vec();
        let mut group = self.writer.next_row_group()?;
        for ((column, field), descriptor) in columns.iter().zip(&self.fields).zip(&schema) {
            if field.encoding == Encoding::Dictionary {
                if let Some(chunk) = dictionary::chunk(*column, descriptor, rows)? {
                    group.append_column(&chunk.bytes, chunk.close)?;
                    continue;
                }
            }
            let writer = group.next_column()?;
            write_column(writer.expect("as many as fields"), *column, field, rows)?;
        }
        group.close()?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Ends the table, and returns its last bytes.
    ///
    /// # Errors
    ///
    /// If the format's writer cannot.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        Ok(self.writer.into_inner()?)
    }

    fn check(&self, rows: usize, columns: &[NewColumn<'_>]) -> Result<(), Error> {
        if columns.len() != self.fields.len() {
            let text = format!("expected {} columns, got {}", self.fields.len(), columns.len());
            return Err(Error::Damaged(text));
        }
        for (column, field) in columns.iter().zip(&self.fields) {
            let kind = column.cells.kind().unwrap_or(field.kind);
            if kind != field.kind {
                return Err(Error::Type {
                    column: field.name.clone(),
                    expected: field.kind.name(),
                    got: kind.name().into(),
                });
            }
            let has_gaps = matches!(column.cells, NewCells::Missing) || column.missing.is_some();
            if has_gaps && !field.is_nullable {
                return Err(Error::Damaged(format!("{}: expected every cell", field.name)));
            }
            let marks = column.missing.map_or(rows, <[bool]>::len);
            for got in [column.cells.rows().unwrap_or(rows), marks] {
                if got != rows {
                    let column = field.name.clone();
                    return Err(Error::Short { column, got, expected: rows });
                }
            }
        }
        Ok(())
    }
}

fn write_column(
    mut writer: SerializedColumnWriter<'_>,
    column: NewColumn<'_>,
    field: &Field,
    rows: usize,
) -> Result<(), Error> {
    let cells = Marked { rows, missing: column.missing, is_nullable: field.is_nullable };
    match (column.cells, field.kind) {
        (NewCells::Bool(of), _) => cells.write::<BoolType>(&mut writer, |at| of[at])?,
        (NewCells::Int64(of), _) => cells.write::<Int64Type>(&mut writer, |at| of[at])?,
        (NewCells::UInt64(of), _) => {
            cells.write::<Int64Type>(&mut writer, |at| of[at] as i64)?;
        }
        (NewCells::Double(of), _) => cells.write::<DoubleType>(&mut writer, |at| of[at])?,
        (NewCells::Text(places, names), _) => {
            let texts: Vec<ByteArray> = names.iter().map(|name| name.as_str().into()).collect();
            if let Some(place) = places.iter().find(|&&place| place as usize >= texts.len()) {
                return Err(Error::Damaged(format!("{}: no text at {place}", field.name)));
            }
            cells.write::<ByteArrayType>(&mut writer, |at| texts[places[at] as usize].clone())?;
        }
        (NewCells::Missing, Kind::Bool) => write_missing::<BoolType>(&mut writer, rows)?,
        (NewCells::Missing, Kind::Int64 | Kind::UInt64) => {
            write_missing::<Int64Type>(&mut writer, rows)?;
        }
        (NewCells::Missing, Kind::Double) => write_missing::<DoubleType>(&mut writer, rows)?,
        (NewCells::Missing, Kind::Text) => write_missing::<ByteArrayType>(&mut writer, rows)?,
    }
    Ok(writer.close()?)
}

fn write_missing<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    rows: usize,
) -> Result<(), Error> {
    let levels = vec![0; rows.min(ROWS_AT_ONCE)];
    for from in (0..rows).step_by(ROWS_AT_ONCE) {
        let part = &levels[..levels.len().min(rows - from)];
        writer.typed::<T>().write_batch(&[], Some(part), None)?;
    }
    Ok(())
}

/// Which cells of a column there are.
struct Marked<'a> {
    rows: usize,
    missing: Option<&'a [bool]>,
    is_nullable: bool,
}

impl Marked<'_> {
    fn write<T: DataType>(
        &self,
        writer: &mut SerializedColumnWriter<'_>,
        cell: impl Fn(usize) -> T::T,
    ) -> Result<(), Error> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for from in (0..self.rows).step_by(ROWS_AT_ONCE) {
            let part = from..self.rows.min(from + ROWS_AT_ONCE);
            values.clear();
            levels.clear();
            if let Some(missing) = self.missing {
                values.extend(part.clone().filter(|&at| !missing[at]).map(&cell));
                levels.extend(missing[part].iter().map(|&is_missing| i16::from(!is_missing)));
            } else {
                levels.resize(part.len(), 1);
                values.extend(part.map(&cell));
            }
            let levels = self.is_nullable.then_some(&levels[..]);
            writer.typed::<T>().write_batch(&values, levels, None)?;
        }
        Ok(())
    }
}
