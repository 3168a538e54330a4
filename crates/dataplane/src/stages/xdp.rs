//! How long the XDP programs of this machine run, which see packets before the kernel's stack does.

use super::tracer::info_of;
use crate::error::Error;
use libbpf_rs::{ErrorExt, libbpf_sys};
use messages::XdpProgram;
use std::ffi::CStr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// An XDP program, and its calls before.
struct Watched {
    program: OwnedFd,
    calls: u64,
    ns_total: u64,
}

/// The XDP programs that are there when it is made.
pub struct XdpPrograms {
    watched: Vec<Watched>,
    _statistics: Option<OwnedFd>,
}

impl XdpPrograms {
    /// Finds them; their calls count from now on. The kernel takes the times of all BPF programs then, which costs
    /// time in each: not where there are none of XDP.
    pub fn find() -> Result<Self, Error> {
        let (mut found, mut id) = (Vec::new(), 0);
        while let Some(next) = next_id(id) {
            id = next;
            let Some(program) = program_of(id) else { continue };
            if info_of(program.as_fd())?.type_ == libbpf_sys::BPF_PROG_TYPE_XDP {
                found.push(program);
            }
        }
        let statistics = (!found.is_empty()).then(count_calls).transpose().map_err(Error::Bpf)?;
        let watched = found.into_iter().map(|program| {
            let info = info_of(program.as_fd())?;
            Ok(Watched { program, calls: info.run_cnt, ns_total: info.run_time_ns })
        });
        Ok(Self { watched: watched.collect::<Result<_, Error>>()?, _statistics: statistics })
    }

    /// Those that ran since.
    pub fn ran(&self) -> Result<Vec<XdpProgram>, Error> {
        let all = self.watched.iter().map(|watched| {
            let info = info_of(watched.program.as_fd())?;
            let name = info.name.map(|byte| byte as u8);
            let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
            Ok(XdpProgram {
                id: info.id.into(),
                name: name.into_owned(),
                calls: (info.run_cnt - watched.calls).into(),
                ns_total: (info.run_time_ns - watched.ns_total).into(),
            })
        });
        let all: Result<Vec<_>, Error> = all.collect();
        Ok(all?.into_iter().filter(|program| program.calls.0 > 0).collect())
    }
}

/// Has the kernel count the calls of programs and take their times, until it is dropped.
fn count_calls() -> Result<OwnedFd, libbpf_rs::Error> {
    // SAFETY: a system call, which returns a descriptor that nobody else has, or fails.
    unsafe {
        match libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(std::io::Error::last_os_error()).context("cannot count calls of BPF programs"),
        }
    }
}

/// The number of the program behind the one with this number.
fn next_id(id: u32) -> Option<u32> {
    let mut next = 0;
    // SAFETY: a system call that writes a number.
    let answer = unsafe { libbpf_sys::bpf_prog_get_next_id(id, &raw mut next) };
    (answer == 0).then_some(next)
}

/// The program with a number, unless it has ended.
fn program_of(id: u32) -> Option<OwnedFd> {
    // SAFETY: a system call, which returns a descriptor that nobody else has, or fails.
    unsafe {
        let fd = libbpf_sys::bpf_prog_get_fd_by_id(id);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}
