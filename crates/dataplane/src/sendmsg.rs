//! The `sendmsg` that DPDK's drivers call: the system's, but that what is said to a peer that has gone counts as said.
//!
//! When it cannot greet who has just connected, the memif driver closes the connection, and leaves its thread to wait
//! on it: DPDK ends the process ("Error adding fd ... Bad file descriptor"). Told of no error, the driver reads next,
//! finds that the peer has gone, and takes the connection apart as it should.

use std::ffi::c_int;
use std::io::Error;

/// Sends.
///
/// # Safety
/// As the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(
    socket: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: what the caller promises is what the system asks for.
    let sent = unsafe { libc::syscall(libc::SYS_sendmsg, socket, message, flags) as isize };
    let has_gone =
        || matches!(Error::last_os_error().raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET));
    if sent >= 0 || !has_gone() {
        return sent;
    }
    // SAFETY: a message that the system has read.
    let parts = unsafe { std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen) };
    parts.iter().map(|part| part.iov_len as isize).sum()
}
