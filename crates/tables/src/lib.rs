//! The tables of a run in Parquet: flat columns, written a group of rows at a time, read a batch at
//! a time; and numbers of CSV.

mod csv;
mod dictionary;
mod error;
mod kind;
mod new;
mod read;
mod source;
mod write;

pub use csv::{CsvError, Numbers, read_numbers};
pub use error::Error;
pub use kind::Kind;
pub use new::{NewCells, NewColumn};
pub use read::{Batches, Cells, Column, Described, Table};
pub use source::Source;
pub use write::{Encoding, Field, Writer};
