//! Files with a key that nobody else may read.

use crate::error::Error;
use probe::seal::Key;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of such a file, at most.
const MOST_BYTES: u64 = 1_024;
/// Rights of a group and of everybody.
const OF_OTHERS: u32 = 0o077;

/// Reads a key of hexadecimal digits.
pub fn read(path: &Path) -> Result<Key, Error> {
    let failed = |source| Error::File { path: path.into(), source };
    let mut file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    // SAFETY: asks for an attribute of this process.
    let user = unsafe { libc::geteuid() };
    if user != 0 && about.uid() != user {
        // A capability that this program may have is for no key of another user.
        return Err(failed(std::io::ErrorKind::PermissionDenied.into()));
    }
    if about.is_file() && about.mode() & OF_OTHERS != 0 {
        return Err(Error::OpenKey { path: path.into(), mode: about.mode() & 0o7777 });
    }
    let mut text = Vec::new();
    file.by_ref().take(MOST_BYTES).read_to_end(&mut text).map_err(failed)?;
    Key::from_hex(text.trim_ascii_end()).ok_or_else(|| Error::Key { path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_read_if_nobody_else_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read_with = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path).map_err(|error| error.code())
        };
        let digits = "0123456789abcdefABCDEF0123456789";
        for (text, mode) in [(digits, 0o600), (&format!("{digits}\n"), 0o400)] {
            assert!(read_with(text, mode).is_ok());
        }
        for mode in [0o640, 0o604, 0o610] {
            assert_eq!(read_with(digits, mode).unwrap_err(), "key-open-to-others");
        }
        for text in
            ["", "0123", &digits.repeat(5), &digits.repeat(100), "no hexadecimal digits at all!"]
        {
            assert_eq!(read_with(text, 0o600).unwrap_err(), "key-file");
        }
        assert_eq!(read(&folder.path().join("none")).unwrap_err().code(), "file");
    }
}
