//! Arrays as NumPy's own files (format 1.0), which NumPy maps without reading.

use crate::error::Error;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

/// As long for every number of values, and such that they are aligned to 64 bytes.
const HEADER: usize = 256;
/// The type of a row that is a number.
const NUMBER: &str = "'<u8'";

/// Writes `values` to a new file.
pub fn write(path: &Path, values: impl Iterator<Item = u64>) -> Result<(), Error> {
    write_all(path, values).map_err(|source| Error::File { path: path.into(), source })
}

fn write_all(path: &Path, values: impl Iterator<Item = u64>) -> std::io::Result<()> {
    let mut rows = Rows::create(path, NUMBER)?;
    for value in values {
        rows.add(&value.to_le_bytes())?;
    }
    rows.finish().map(drop)
}

/// An array that is written a row at a time; how many there are is known in the end.
pub struct Rows {
    file: BufWriter<File>,
    descr: &'static str,
    len: usize,
}

impl Rows {
    /// Begins a new file; `descr` is the type of a row as NumPy writes it.
    pub fn create(path: &Path, descr: &'static str) -> std::io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 18, File::create(path)?);
        file.write_all(&header(descr, 0))?;
        Ok(Self { file, descr, len: 0 })
    }

    /// Adds a row.
    pub fn add(&mut self, row: &[u8]) -> std::io::Result<()> {
        self.len += 1;
        self.file.write_all(row)
    }

    /// Ends the file, and says how many there are.
    pub fn finish(mut self) -> std::io::Result<usize> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header(self.descr, self.len))?;
        self.file.flush()?;
        Ok(self.len)
    }
}

fn header(descr: &str, len: usize) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({len},), }}");
    let room = HEADER - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((room as u16).to_le_bytes());
    bytes.extend(format!("{text:<width$}\n", width = room - 1).into_bytes());
    assert_eq!(bytes.len(), HEADER, "any number fits");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_behind_a_header_that_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for values in [vec![], vec![1], (0..100_000).collect::<Vec<u64>>()] {
            write(&path, values.iter().copied()).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            assert_eq!(start % 64, 0);
            let text = std::str::from_utf8(&bytes[10..start]).unwrap();
            assert!(text.contains(&format!("({},)", values.len())) && text.ends_with('\n'));
            let read =
                bytes[start..].chunks(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap()));
            assert!(read.eq(values));
        }
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let error = write(Path::new("/dev/full"), vec![1; 1 << 16].into_iter()).unwrap_err();
        assert!(error.to_string().starts_with("/dev/full: "), "{error}");
    }
}
