//! Reading: a table's columns in batches of rows, whatever its groups and pages are.

use std::collections::HashMap;
use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use crate::error::{Error, guarded};
use crate::kind::{Kind, type_name};
use crate::source::{Chunks, Source};

/// A column as the file describes it.
#[derive(Debug, Clone)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// The name of its type, as Arrow has it.
    pub type_name: String,
}

/// Cells of a column; one that is missing is 0.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// True or false.
    Bool(Vec<bool>),
    /// Signed numbers.
    Int64(Vec<i64>),
    /// Unsigned numbers.
    UInt64(Vec<u64>),
    /// Floating-point numbers.
    Double(Vec<f64>),
    /// Texts: the place of each among those that differ.
    Text(Vec<u32>, Vec<String>),
}

/// A column of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// A cell for each row.
    pub cells: Cells,
    /// Whether the cell of a row is missing; None where none is.
    pub missing: Option<Vec<bool>>,
}

/// A table that is read.
pub struct Table<S> {
    source: Arc<Chunks<S>>,
    metadata: ParquetMetaData,
    columns: Vec<Described>,
    rows: i64,
}

impl<S: Source + 'static> Table<S> {
    /// Reads what a file says of itself.
    ///
    /// # Errors
    ///
    /// If it is no Parquet.
    pub fn open(source: S) -> Result<Self, Error> {
        let source = Arc::new(Chunks(Arc::new(source)));
        let metadata = guarded(|| Ok(ParquetMetaDataReader::new().parse_and_finish(&*source)?))?;
        let described = metadata.file_metadata().schema_descr().columns();
        let columns = described
            .iter()
            .map(|each| Described { name: each.path().string(), type_name: type_name(each) })
            .collect();
        let rows = metadata.row_groups().iter().try_fold(0_i64, |sum, group| {
            sum.checked_add(group.num_rows()).filter(|_| group.num_rows() >= 0)
        });
        let rows = rows.ok_or_else(|| Error::Damaged("no number of rows".into()))?;
        Ok(Self { source, metadata, columns, rows })
    }

    /// Its columns, in their order.
    pub fn columns(&self) -> &[Described] {
        &self.columns
    }

    /// The number of its rows, as the file has it.
    pub fn rows(&self) -> i64 {
        self.rows
    }

    /// The number of batches of at most so many rows.
    pub fn batch_count(&self, rows: usize) -> usize {
        self.metadata.row_groups().iter().map(|group| rows_of(group).div_ceil(rows)).sum()
    }

    /// Reads some columns, by their places, at most so many rows at a time.
    ///
    /// # Errors
    ///
    /// If one has a type that is not read.
    pub fn batches(self: &Arc<Self>, columns: &[usize], rows: usize) -> Result<Batches<S>, Error> {
        let wanted = columns.iter().map(|&at| {
            let column = &self.columns[at];
            Kind::named(&column.type_name).map(|kind| (at, kind)).ok_or_else(|| Error::Type {
                column: column.name.clone(),
                expected: "bool, int64, uint64, double or string",
                got: column.type_name.clone(),
            })
        });
        let wanted = wanted.collect::<Result<_, _>>()?;
        Ok(Batches {
            table: self.clone(),
            wanted,
            rows,
            group: 0,
            left: 0,
            passed: 0,
            readers: Vec::new(),
        })
    }
}

/// Reads the batches of a table, one after the other.
pub struct Batches<S> {
    table: Arc<Table<S>>,
    wanted: Vec<(usize, Kind)>,
    rows: usize,
    /// The group of rows that comes next.
    group: usize,
    /// Rows of the group before it that were not read yet.
    left: usize,
    /// Rows of that group, before those, that nobody wants and that were not passed over yet.
    passed: usize,
    readers: Vec<ColumnReader>,
}

impl<S: Source + 'static> Batches<S> {
    /// Reads the next batch; None at the end. A batch has rows of one group.
    ///
    /// # Errors
    ///
    /// If the file is damaged: there is no next batch then.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Vec<Column>>, Error> {
        guarded(|| {
            while self.left == 0 {
                if self.group == self.table.metadata.num_row_groups() {
                    return Ok(None);
                }
                self.enter();
            }
            if self.readers.is_empty() {
                self.open()?;
            }
            while self.passed > 0 {
                let rows = self.passed.min(self.rows);
                self.read(rows)?;
                self.passed -= rows;
            }
            let rows = self.left.min(self.rows);
            self.left -= rows;
            self.read(rows).map(Some)
        })
    }

    /// Passes over so many batches, without reading groups of rows of which none is wanted.
    ///
    /// # Errors
    ///
    /// If the file is damaged.
    pub fn skip(&mut self, batches: usize) -> Result<(), Error> {
        guarded(|| {
            for _ in 0..batches {
                while self.left == 0 {
                    if self.group == self.table.metadata.num_row_groups() {
                        return Ok(());
                    }
                    self.enter();
                }
                let rows = self.left.min(self.rows);
                self.left -= rows;
                self.passed += rows;
            }
            Ok(())
        })
    }

    fn read(&mut self, rows: usize) -> Result<Vec<Column>, Error> {
        let columns = self.wanted.iter().zip(&mut self.readers).map(|(&(at, kind), reader)| {
            let name = &self.table.columns[at].name;
            column(reader, kind, rows, name)
        });
        columns.collect()
    }

    /// Enters the next group of rows, of which nothing is read before something is wanted.
    fn enter(&mut self) {
        self.left = rows_of(self.table.metadata.row_group(self.group));
        self.passed = 0;
        self.readers.clear();
        self.group += 1;
    }

    fn open(&mut self) -> Result<(), Error> {
        let table = &*self.table;
        let group = table.metadata.row_group(self.group - 1);
        let rows = rows_of(group);
        let readers = self.wanted.iter().map(|&(at, _)| {
            let chunk = group.column(at);
            let pages = SerializedPageReader::new(table.source.clone(), chunk, rows, None)?;
            Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
        });
        self.readers = readers.collect::<Result<_, Error>>()?;
        Ok(())
    }
}

fn rows_of(group: &RowGroupMetaData) -> usize {
    usize::try_from(group.num_rows()).unwrap_or(0)
}

fn column(reader: &mut ColumnReader, kind: Kind, rows: usize, name: &str) -> Result<Column, Error> {
    let (cells, missing) = match (reader, kind) {
        (ColumnReader::BoolColumnReader(reader), Kind::Bool) => {
            let (values, missing) = cells(reader, rows, name, Default::default())?;
            (Cells::Bool(values), missing)
        }
        (ColumnReader::Int64ColumnReader(reader), Kind::Int64) => {
            let (values, missing) = cells(reader, rows, name, Default::default())?;
            (Cells::Int64(values), missing)
        }
        (ColumnReader::Int64ColumnReader(reader), Kind::UInt64) => {
            let (values, missing) = cells(reader, rows, name, Default::default())?;
            (Cells::UInt64(values.into_iter().map(|cell| cell as u64).collect()), missing)
        }
        (ColumnReader::DoubleColumnReader(reader), Kind::Double) => {
            let (values, missing) = cells(reader, rows, name, Default::default())?;
            (Cells::Double(values), missing)
        }
        (ColumnReader::ByteArrayColumnReader(reader), Kind::Text) => {
            let (values, missing) = cells(reader, rows, name, ByteArray::from(""))?;
            let (places, names) = texts(values, name)?;
            (Cells::Text(places, names), missing)
        }
        _ => return Err(Error::Damaged(format!("{name}: two types"))),
    };
    Ok(Column { cells, missing })
}

type Found<T> = (Vec<T>, Option<Vec<bool>>);

fn cells<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    name: &str,
    absent: T::T,
) -> Result<Found<T::T>, Error> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut got = 0;
    while got < rows {
        let (read, ..) = reader.read_records(rows - got, Some(&mut levels), None, &mut values)?;
        if read == 0 {
            return Err(Error::Short { column: name.into(), got, expected: rows });
        }
        got += read;
    }
    if values.len() == rows {
        return Ok((values, None));
    }
    let missing: Vec<bool> = levels.iter().map(|&level| level == 0).collect();
    let there = missing.iter().filter(|is_missing| !**is_missing).count();
    if missing.len() != rows || values.len() != there {
        return Err(Error::Short { column: name.into(), got: values.len(), expected: there });
    }
    let mut values = values.into_iter();
    let spread = missing.iter().map(|&is_missing| match is_missing {
        true => absent.clone(),
        false => values.next().unwrap_or_else(|| absent.clone()),
    });
    Ok((spread.collect(), Some(missing)))
}

fn texts(values: Vec<ByteArray>, name: &str) -> Result<(Vec<u32>, Vec<String>), Error> {
    let mut places = HashMap::<Vec<u8>, u32>::new();
    let mut names = Vec::new();
    let mut codes = Vec::with_capacity(values.len());
    let mut before: Option<(ByteArray, u32)> = None;
    for value in values {
        if let Some((_, code)) = before.as_ref().filter(|(text, _)| text.data() == value.data()) {
            codes.push(*code);
            continue;
        }
        let code = match places.get(value.data()) {
            Some(&code) => code,
            None => {
                let text = std::str::from_utf8(value.data())
                    .map_err(|error| Error::Damaged(format!("{name}: {error}")))?;
                let code = u32::try_from(names.len()).expect("a batch has fewer rows");
                names.push(text.to_owned());
                places.insert(value.data().to_vec(), code);
                code
            }
        };
        codes.push(code);
        before = Some((value, code));
    }
    Ok((codes, names))
}
