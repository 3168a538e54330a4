//! A file that appears under its name only when it is complete.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file under a temporary name in its final folder; removed when dropped.
pub struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        // As any new file: what the user's mask leaves of it.
        let permissions = Permissions::from_mode(0o666);
        let file = Builder::new()
            .prefix(".")
            .suffix(".part")
            .permissions(permissions)
            .tempfile_in(folder(path))?;
        Ok(Self { file, path: path.into() })
    }

    /// Makes the file durable, then gives it its name.
    pub(crate) fn publish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path)?;
        File::open(folder(&self.path))?.sync_all()
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}
