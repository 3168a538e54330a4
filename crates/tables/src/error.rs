use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

/// Why a table cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its bytes are not what the format asks for.
    #[error("{0}")]
    Damaged(String),
    /// A column ends before its group of rows does.
    #[error("{column}: ends after {got} of {expected} rows")]
    Short {
        /// The name of the column.
        column: String,
        /// Rows that it has.
        got: usize,
        /// Rows that its group has.
        expected: usize,
    },
    /// A column has another type than the one that is written, or can be read.
    #[error("{column}: expected {expected}, got {got}")]
    Type {
        /// The name of the column.
        column: String,
        /// What can be read or written.
        expected: &'static str,
        /// What is there.
        got: String,
    },
}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Does what may panic on bytes that contradict themselves: the format's own reader asserts some
/// of what a file claims.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::Damaged(told(&*panic))))
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it contradicts itself").into()
}
