//! Arrays as NumPy's own files (format 1.0), which NumPy maps without reading.

use crate::error::Error;
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// As long for every number of values, and such that they are aligned to 64 bytes.
const HEADER: usize = 512;
/// Rows of a file that the system may keep in memory, on top of those that it wants to: 64 MiB.
const IN_MEMORY: usize = 1 << 23;
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

/// An array that is written a row at a time; its header says how many of them are safely there.
pub struct Rows {
    file: BufWriter<File>,
    descr: &'static str,
    len: usize,
    counted: usize,
    dropped: usize,
}

impl Rows {
    /// Begins a new file; `descr` is the type of a row as NumPy writes it.
    pub fn create(path: &Path, descr: &'static str) -> std::io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 18, File::create(path)?);
        file.write_all(&header(descr, 0))?;
        Ok(Self { file, descr, len: 0, counted: 0, dropped: 0 })
    }

    /// Begins a new file of numbers, on a disk that has room for `values` of them.
    pub fn with_room(path: &Path, values: u64) -> std::io::Result<Self> {
        let mut rows = Self::create(path, NUMBER)?;
        rows.file.flush()?;
        let bytes = HEADER as u64 + values.saturating_mul(8);
        let bytes = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        let fd = rows.file.get_ref().as_raw_fd();
        // SAFETY: a system call on an open file.
        if unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, 0, bytes) } != 0 {
            let error = std::io::Error::last_os_error();
            // Not every file system can do that.
            if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
                return Err(error);
            }
        }
        Ok(rows)
    }

    /// Adds a row.
    pub fn add(&mut self, row: &[u8]) -> std::io::Result<()> {
        self.len += 1;
        self.file.write_all(row)
    }

    /// Adds a row that is a number.
    #[inline]
    pub fn push(&mut self, value: u64) -> std::io::Result<()> {
        self.add(&value.to_le_bytes())
    }

    /// Hands all rows so far to the system.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }

    /// Brings to the disk what was handed to the system, and takes it out of the memory for files now and
    /// then: that interrupts all CPUs.
    pub fn sync(&mut self) -> std::io::Result<()> {
        if self.len == self.counted {
            return Ok(());
        }
        let file = self.file.get_ref();
        file.sync_data()?;
        if self.len - self.dropped >= IN_MEMORY {
            self.dropped = self.len;
            // SAFETY: a system call on an open file; without effect if it is refused.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
        Ok(())
    }

    /// Gives back room that was not needed.
    pub fn fit(&mut self) -> std::io::Result<()> {
        let end = self.file.stream_position()?;
        self.file.get_ref().set_len(end)
    }

    /// Says in the header that all rows so far are there.
    pub fn count(&mut self) -> std::io::Result<()> {
        if self.len > self.counted {
            self.file.get_ref().write_all_at(&header(self.descr, self.len), 0)?;
            self.counted = self.len;
        }
        Ok(())
    }

    /// Ends the file, and says how many there are.
    pub fn finish(mut self) -> std::io::Result<usize> {
        self.flush()?;
        self.count()?;
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
