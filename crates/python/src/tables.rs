//! Tables in Parquet.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ::tables::{
    Cells, Column, Encoding, Field, Kind, NewCells, NewColumn, Numbers, Source, Table, Writer,
};
use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// A file of Python's.
struct PyFile {
    file: Py<PyAny>,
    size: u64,
}

impl Source for PyFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, size: usize) -> io::Result<Vec<u8>> {
        Python::attach(|py| {
            let file = self.file.bind(py);
            file.call_method1("seek", (at,))?;
            let found = file.call_method1("read", (size,))?;
            Ok(found.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes().to_vec())
        })
        .map_err(|error: PyErr| io::Error::other(error.to_string()))
    }
}

#[pyclass(frozen, module = "tailscope._engine")]
pub struct TableReader(Arc<Table<PyFile>>);

#[pymethods]
impl TableReader {
    #[new]
    fn new(py: Python<'_>, file: Py<PyAny>, size: u64) -> PyResult<Self> {
        let opened = py.detach(|| Table::open(PyFile { file, size }));
        Ok(Self(Arc::new(opened.map_err(|error| errors::table(&error))?)))
    }

    #[getter]
    fn rows(&self) -> i64 {
        self.0.rows()
    }

    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let columns = self.0.columns().iter();
        columns.map(|each| (each.name.clone(), each.type_name.clone())).collect()
    }

    fn batch_count(&self, rows: usize) -> usize {
        self.0.batch_count(rows)
    }

    fn batches(&self, columns: Vec<usize>, rows: usize) -> PyResult<TableBatches> {
        let batches = self.0.batches(&columns, rows).map_err(|error| errors::table(&error))?;
        Ok(TableBatches(Mutex::new(batches)))
    }
}

#[pyclass(frozen, module = "tailscope._engine")]
pub struct TableBatches(Mutex<::tables::Batches<PyFile>>);

type Marks<'py> = Bound<'py, PyArray1<bool>>;

#[derive(IntoPyObject)]
pub enum Read<'py> {
    Bool(Bound<'py, PyArray1<bool>>),
    Int64(Bound<'py, PyArray1<i64>>),
    UInt64(Bound<'py, PyArray1<u64>>),
    Double(Bound<'py, PyArray1<f64>>),
    Text((Bound<'py, PyArray1<u32>>, Vec<String>)),
}

#[pymethods]
impl TableBatches {
    #[allow(clippy::type_complexity)]
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<(Read<'py>, Option<Marks<'py>>)>>> {
        let read = || self.0.lock().expect("reading does not panic").next();
        let found = py.detach(read).map_err(|error| errors::table(&error))?;
        Ok(found.map(|columns| columns.into_iter().map(|column| as_arrays(py, column)).collect()))
    }

    fn skip(&self, py: Python<'_>, batches: usize) -> PyResult<()> {
        let pass = || self.0.lock().expect("reading does not panic").skip(batches);
        py.detach(pass).map_err(|error| errors::table(&error))
    }
}

/// Reads columns of numbers from CSV.
#[pyfunction]
pub fn read_numbers<'py>(
    py: Python<'py>,
    content: &[u8],
    columns: Vec<(String, bool)>,
) -> PyResult<Vec<Read<'py>>> {
    let found = py.detach(|| ::tables::read_numbers(content, &columns));
    let columns = found.map_err(|error| errors::csv(&error))?.into_iter();
    Ok(columns
        .map(|numbers| match numbers {
            Numbers::Whole(numbers) => Read::UInt64(numbers.into_pyarray(py)),
            Numbers::Fractions(numbers) => Read::Double(numbers.into_pyarray(py)),
        })
        .collect())
}

/// Reads a file as a whole, decompressed if it is compressed, up to so many bytes.
#[pyfunction]
pub fn read_whole(py: Python<'_>, path: PathBuf, most: u64) -> PyResult<Bound<'_, PyBytes>> {
    let content = py.detach(|| capture::read_whole(&path, most))?;
    Ok(PyBytes::new(py, &content))
}

fn as_arrays(py: Python<'_>, column: Column) -> (Read<'_>, Option<Marks<'_>>) {
    let cells = match column.cells {
        Cells::Bool(cells) => Read::Bool(cells.into_pyarray(py)),
        Cells::Int64(cells) => Read::Int64(cells.into_pyarray(py)),
        Cells::UInt64(cells) => Read::UInt64(cells.into_pyarray(py)),
        Cells::Double(cells) => Read::Double(cells.into_pyarray(py)),
        Cells::Text(places, names) => Read::Text((places.into_pyarray(py), names)),
    };
    (cells, column.missing.map(|missing| missing.into_pyarray(py)))
}

#[derive(FromPyObject)]
pub enum Given<'py> {
    Bool(PyReadonlyArray1<'py, bool>),
    Int64(PyReadonlyArray1<'py, i64>),
    UInt64(PyReadonlyArray1<'py, u64>),
    Double(PyReadonlyArray1<'py, f64>),
    Text(PyReadonlyArray1<'py, u32>, Vec<String>),
}

impl Given<'_> {
    fn cells(&self) -> PyResult<NewCells<'_>> {
        Ok(match self {
            Self::Bool(of) => NewCells::Bool(of.as_slice()?),
            Self::Int64(of) => NewCells::Int64(of.as_slice()?),
            Self::UInt64(of) => NewCells::UInt64(of.as_slice()?),
            Self::Double(of) => NewCells::Double(of.as_slice()?),
            Self::Text(places, names) => NewCells::Text(places.as_slice()?, names),
        })
    }
}

#[pyclass(module = "tailscope._engine")]
pub struct TableWriter(Option<Writer>);

#[pymethods]
impl TableWriter {
    #[new]
    fn new(fields: Vec<(String, String, bool, String)>) -> PyResult<Self> {
        let fields = fields.into_iter().map(|(name, kind, is_nullable, encoding)| {
            let encoding = match encoding.as_str() {
                "dictionary" => Encoding::Dictionary,
                "delta" => Encoding::Delta,
                _ => Encoding::Plain,
            };
            let kind = Kind::named(&kind).ok_or_else(|| {
                errors::argument(format!("{name}: no column is of type {kind}"), "column-type")
            })?;
            Ok(Field { name, kind, is_nullable, encoding })
        });
        let writer = Writer::new(fields.collect::<PyResult<_>>()?);
        Ok(Self(Some(writer.map_err(|error| errors::table(&error))?)))
    }

    fn write<'py>(
        &mut self,
        py: Python<'py>,
        rows: usize,
        columns: Vec<(Option<Given<'py>>, Option<PyReadonlyArray1<'py, bool>>)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let columns = columns.iter().map(|(cells, missing)| {
            let cells = cells.as_ref().map_or(Ok(NewCells::Missing), Given::cells)?;
            Ok(NewColumn { cells, missing: missing.as_ref().map(slice).transpose()? })
        });
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let writer = self.0.as_mut().ok_or_else(ended)?;
        let written = py.detach(|| writer.write(rows, &columns));
        Ok(PyBytes::new(py, &written.map_err(|error| errors::table(&error))?))
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let last = self.0.take().ok_or_else(ended)?.finish();
        Ok(PyBytes::new(py, &last.map_err(|error| errors::table(&error))?))
    }
}

fn ended() -> PyErr {
    errors::argument("the table has ended", "table-ended")
}

fn slice<'a, T: Element>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    Ok(array.as_slice()?)
}
