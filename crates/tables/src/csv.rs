//! CSV: columns of numbers, by the names in its first line.

use csv::{ByteRecord, ReaderBuilder, Trim};

/// The numbers of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// Whole ones.
    Whole(Vec<u64>),
    /// Those that may have fractions.
    Fractions(Vec<f64>),
}

/// Why numbers cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// It is no CSV: a line has another number of cells than the first.
    #[error("{0}")]
    Format(#[from] csv::Error),
    /// Its first line names no such column.
    #[error("line 1: expected a column {expected}, got {got:?}")]
    Column {
        /// The name of the column.
        expected: String,
        /// The first line.
        got: String,
    },
    /// A cell is no such number.
    #[error("line {line}: expected {column} as {expected}, got {got:?}")]
    Number {
        /// The number of the line, from 1.
        line: u64,
        /// The name of the column.
        column: String,
        /// What can be read.
        expected: &'static str,
        /// What is there.
        got: String,
    },
}

impl CsvError {
    /// A short name of what is wrong.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Number { .. } => "not-a-number",
            _ => "csv",
        }
    }
}

/// Reads columns, each by its name and whether its numbers may have fractions.
///
/// # Errors
///
/// If it is no CSV with such columns of numbers.
pub fn read_numbers(content: &[u8], wanted: &[(String, bool)]) -> Result<Vec<Numbers>, CsvError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(content);
    let header = reader.byte_headers()?.clone();
    let mut columns = Vec::new();
    for (name, is_fraction) in wanted {
        let place = header.iter().position(|cell| cell == name.as_bytes());
        let at = place.ok_or_else(|| CsvError::Column {
            expected: name.clone(),
            got: shown(&header.iter().collect::<Vec<_>>().join(&b","[..])),
        })?;
        let numbers = match is_fraction {
            true => Numbers::Fractions(Vec::new()),
            false => Numbers::Whole(Vec::new()),
        };
        columns.push((at, numbers));
    }
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record)? {
        for ((at, numbers), (name, _)) in columns.iter_mut().zip(wanted) {
            let cell = &record[*at];
            if !numbers.add(cell) {
                return Err(CsvError::Number {
                    line: record.position().map_or(0, |start| line_of(content, start)),
                    column: name.clone(),
                    expected: numbers.expected(),
                    got: shown(cell),
                });
            }
        }
    }
    Ok(columns.into_iter().map(|(_, numbers)| numbers).collect())
}

/// The line of a record; the reader's own place is before the empty lines that it skips.
fn line_of(content: &[u8], start: &csv::Position) -> u64 {
    let from = usize::try_from(start.byte()).map_or(content.len(), |at| at.min(content.len()));
    let skipped = content[from..].iter().take_while(|byte| byte.is_ascii_whitespace());
    start.line() + skipped.filter(|byte| **byte == b'\n').count() as u64
}

impl Numbers {
    fn add(&mut self, cell: &[u8]) -> bool {
        let text = std::str::from_utf8(cell).unwrap_or_default();
        match self {
            Self::Whole(numbers) => text.parse().map(|number| numbers.push(number)).is_ok(),
            Self::Fractions(numbers) => {
                let number = text.parse().ok().filter(|number: &f64| !number.is_nan());
                number.map(|number| numbers.push(number)).is_some()
            }
        }
    }

    fn expected(&self) -> &'static str {
        match self {
            Self::Whole(_) => "a whole number",
            Self::Fractions(_) => "a number",
        }
    }
}

/// The beginning of bytes, as a message shows it.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Numbers>, String> {
        let wanted = [("b".into(), false), ("a".into(), true)];
        read_numbers(text.as_bytes(), &wanted).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let expected = vec![Numbers::Whole(vec![2, 4]), Numbers::Fractions(vec![1.5, 3.0])];
        assert_eq!(read("a,x,b\n1.5,-,2\r\n\n3, ,4"), Ok(expected));
    }

    #[test]
    fn an_error_names_line_column_and_cell() {
        for (text, expected) in [
            ("a,b\n1,2\n\n1,-2\n", "line 4: expected b as a whole number, got \"-2\""),
            ("a,b\nnan,2\n", "line 2: expected a as a number, got \"nan\""),
            ("a,b\n1,18446744073709551616\n", "line 2: expected b as a whole number"),
            ("a,c\n1,2\n", "line 1: expected a column b, got \"a,c\""),
            ("", "line 1: expected a column b, got \"\""),
            ("a,b\n1,2,3\n", "CSV error: record 1 (line: 2"),
        ] {
            let got = read(text).unwrap_err();
            assert!(got.starts_with(expected), "{got}");
        }
    }
}
