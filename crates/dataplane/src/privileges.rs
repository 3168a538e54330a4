//! What this process inherits, which is reset when it starts, and what root lends it, which is given
//! back once everything is open.

use crate::error::Error;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Capabilities, as bits of a set.
pub mod capability {
    pub const NONE: u64 = 0;
    pub const DAC_OVERRIDE: u64 = 1 << 1;
    pub const NET_ADMIN: u64 = 1 << 12;
    pub const NET_RAW: u64 = 1 << 13;
    pub const IPC_LOCK: u64 = 1 << 14;
    pub const SYS_RAWIO: u64 = 1 << 17;
    pub const SYS_ADMIN: u64 = 1 << 21;
    #[cfg(feature = "stages")]
    pub const PERFMON: u64 = 1 << 38;
    pub const BPF: u64 = 1 << 39;
}

/// The user and group that own nothing, by convention.
const NOBODY: u32 = 65_534;
/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits, as two structures.
const VERSION: u32 = 0x2008_0522;
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOKS: u32 = 2_000;

static KEPT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Undoes what whoever started this process may have left to it, and forbids it to gain privileges.
pub fn reset() {
    // SAFETY: attributes of this process, which has one thread yet; the set lives on the stack.
    unsafe {
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::umask(0o022);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
}

/// Lets the kernel kill this process when the one that started it ends, unless it is asked to end then:
/// no loop polls for nobody.
pub fn die_with_parent() {
    let mut asked: libc::c_int = 0;
    // SAFETY: reads an attribute of this process into a word, and sets it.
    unsafe {
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut asked);
        if asked == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
    }
}

/// Makes a process of root that of a user who owns nothing. Where that user does not exist it stays.
pub fn become_nobody() {
    let mut asked: libc::c_int = 0;
    // SAFETY: attributes of this process, which has one thread yet; what asks for the end of the process
    // is forgotten when its user changes.
    unsafe {
        if libc::geteuid() != 0 {
            return;
        }
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut asked);
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(NOBODY, NOBODY, NOBODY);
        libc::setresuid(NOBODY, NOBODY, NOBODY);
        libc::prctl(libc::PR_SET_PDEATHSIG, asked);
    }
}

/// Gives back, in every thread, all capabilities but those of `kept`, and but the one that writing into
/// `folders` takes, where they are in a place of another user.
pub fn give_back(kept: u64, folders: &[Option<&Path>]) -> Result<(), Error> {
    let is_foreign = folders.iter().flatten().any(|folder| !is_ours(folder));
    KEPT.store(kept | if is_foreign { capability::DAC_OVERRIDE } else { 0 }, Ordering::Relaxed);
    in_every_thread().map_err(|source| Error::File { path: "capabilities".into(), source })
}

/// Whether files can be made in a folder without any capability.
fn is_ours(folder: &Path) -> bool {
    let mut sets = held();
    let effective = sets.map(|set| set[0]);
    sets.iter_mut().for_each(|set| set[0] = 0);
    set(&sets);
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).unwrap_or_default();
    let rights = libc::W_OK | libc::X_OK;
    // SAFETY: asks about a path that outlives the call.
    let answer =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), rights, libc::AT_EACCESS) };
    sets.iter_mut().zip(effective).for_each(|(set, before)| set[0] = before);
    set(&sets);
    answer == 0
}

/// The kernel sets them for a thread, and knows no way to set them for a process: each thread does so
/// in a signal handler, as the C library changes users.
fn in_every_thread() -> io::Result<()> {
    let signal = libc::SIGRTMAX() - 1;
    // SAFETY: a handler that only makes system calls, of a signal that nothing else uses.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = give_back_here as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    for _ in 0..LOOKS {
        let holders = holders()?;
        if holders.is_empty() {
            return Ok(());
        }
        for thread in holders {
            // SAFETY: a signal that is handled, to a thread of this process, if it still lives.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// The threads that may still use what is given back.
fn holders() -> io::Result<Vec<libc::pid_t>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        // A thread may have ended meanwhile.
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
        let permitted = permitted.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        if permitted.unwrap_or(0) & !KEPT.load(Ordering::Relaxed) != 0 {
            found.extend(
                task.file_name().to_str().and_then(|name| name.parse::<libc::pid_t>().ok()),
            );
        }
    }
    Ok(found)
}

extern "C" fn give_back_here(_signal: libc::c_int) {
    let kept = KEPT.load(Ordering::Relaxed);
    let halves = [kept as u32, (kept >> 32) as u32];
    let mut sets = held();
    for (set, kept) in sets.iter_mut().zip(halves) {
        *set = set.map(|bits| bits & kept);
    }
    set(&sets);
}

/// The sets of this thread: effective, permitted, inheritable, of the lower and of the upper bits.
fn held() -> [[u32; 3]; 2] {
    let (mut sets, header) = ([[0; 3]; 2], [VERSION, 0]);
    // SAFETY: the structures of this version.
    unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    sets
}

fn set(sets: &[[u32; 3]; 2]) {
    let header = [VERSION, 0];
    // SAFETY: the structures of this version.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
}
