//! A file that appears under its name only when it is complete.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::{Builder, NamedTempFile};

/// A file under a temporary name in its final folder; removed when dropped.
pub struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Opens a file under a temporary name, as `tailscope.store.atomic` does: its lock tells that
    /// its writer lives.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // As any new file: what the user's mask leaves of it.
        let permissions = Permissions::from_mode(0o666);
        loop {
            let file = Builder::new()
                .prefix(&format!(".{name}."))
                .rand_bytes(8)
                .suffix(".tailscope-part")
                .permissions(permissions.clone())
                .tempfile_in(folder(path))?;
            // A disk without locks has no leftovers either: nobody can tell them.
            let _ = flock(file.as_file(), FlockOperation::LockExclusive);
            // Unless another writer took it for a leftover before it was locked.
            if file.as_file().metadata()?.nlink() > 0 {
                return Ok(Self { file, path: path.into() });
            }
        }
    }

    /// Makes the file durable, then gives it its name.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn publish(self) -> io::Result<()> {
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
