//! What is written: the cells of columns.

use crate::kind::Kind;

/// The cells of a column that are written.
#[derive(Debug, Clone, Copy)]
pub enum NewCells<'a> {
    /// None of them is there.
    Missing,
    /// True or false.
    Bool(&'a [bool]),
    /// Signed numbers.
    Int64(&'a [i64]),
    /// Unsigned numbers.
    UInt64(&'a [u64]),
    /// Floating-point numbers.
    Double(&'a [f64]),
    /// Texts: the place of each among those that differ.
    Text(&'a [u32], &'a [String]),
}

impl NewCells<'_> {
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Missing => None,
            Self::Bool(_) => Some(Kind::Bool),
            Self::Int64(_) => Some(Kind::Int64),
            Self::UInt64(_) => Some(Kind::UInt64),
            Self::Double(_) => Some(Kind::Double),
            Self::Text(..) => Some(Kind::Text),
        }
    }

    pub(crate) fn rows(&self) -> Option<usize> {
        match self {
            Self::Missing => None,
            Self::Bool(cells) => Some(cells.len()),
            Self::Int64(cells) => Some(cells.len()),
            Self::UInt64(cells) => Some(cells.len()),
            Self::Double(cells) => Some(cells.len()),
            Self::Text(places, _) => Some(places.len()),
        }
    }
}

/// A column of a group of rows that is written.
#[derive(Debug, Clone, Copy)]
pub struct NewColumn<'a> {
    /// A cell for each row.
    pub cells: NewCells<'a>,
    /// Whether the cell of a row is missing; None where none is.
    pub missing: Option<&'a [bool]>,
}
