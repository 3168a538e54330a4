//! The network namespace of a device.

use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const OWN: &str = "/proc/thread-self/ns/net";
const NAMED: &str = "/run/netns";

/// Moves this thread into the network namespace with a number, which has a name or a process.
pub fn enter(number: u32) -> Result<(), Error> {
    let number = u64::from(number);
    let own = fs::metadata(OWN).map_err(|source| Error::File { path: OWN.into(), source })?;
    if own.ino() == number {
        return Ok(());
    }
    let is_it = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (own.dev(), number))
    };
    let members = entries("/proc").map(|process| process.join("ns/net"));
    let Some(path) = entries(NAMED).chain(members).find(is_it) else {
        let source = io::ErrorKind::NotFound.into();
        return Err(Error::File { path: format!("net:[{number}]").into(), source });
    };
    moved_to(&path).map_err(|source| Error::File { path, source })
}

fn entries(folder: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn moved_to(path: &Path) -> io::Result<()> {
    let namespace = File::open(path)?;
    // SAFETY: a system call about this thread, with a file that is open.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
