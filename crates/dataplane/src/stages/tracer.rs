//! The BPF programs: loaded, attached, listened to.

use super::filter;
use crate::error::Error;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func, Typedef};
use libbpf_rs::libbpf_sys;
use libbpf_rs::{
    AsRawLibbpf, ErrorExt, Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, ProgramType,
    RingBufferBuilder,
};
use probe::filter::Instruction;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stages.bpf.o"));

/// How the names of programs begin that only a flow needs, and that only probes need.
const OF_FLOWS: &str = "flow_";
const OF_PROBES: &str = "probe_";

/// What the programs follow.
#[derive(Clone, Copy, Debug)]
pub enum Followed<'a> {
    /// Probes on their way through a device.
    Probes(Config<'a>),
    /// What a filter accepts, in all of them.
    Flow(&'a [Instruction]),
}

impl Followed<'_> {
    fn is_flow(self) -> bool {
        matches!(self, Self::Flow(_))
    }

    /// As the programs have it.
    fn told(self) -> Vec<u8> {
        let (namespace, every) = match self {
            Self::Probes(config) => (config.namespace, config.every),
            Self::Flow(_) => (0, 1),
        };
        [namespace, every, self.is_flow().into()].map(u32::to_ne_bytes).concat()
    }

    /// The links that programs are attached to: of the namespace that this thread is in.
    fn links(&self) -> &[u32] {
        match self {
            Self::Probes(config) => config.links,
            Self::Flow(_) => &[],
        }
    }
}

/// Which probes are followed.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The network namespace of the device, by its number.
    pub namespace: u32,
    /// The device's links, by their numbers there.
    pub links: &'a [u32],
    /// Of so many probes one is looked at.
    pub every: u32,
}

/// The length of what the programs say, which tell one event or several together.
const EVENT: usize = 32;

/// What the programs say, as `struct event` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// By the monotonic clock.
    pub time_ns: u64,
    /// The number of the probe.
    pub seq: u64,
    /// The point that it passed.
    pub point: u32,
    /// The number of the interface, in its namespace.
    pub ifindex: u32,
    /// The CPU.
    pub cpu: u32,
    /// Why it was dropped, where that is the point; else 0.
    pub reason: u32,
}

impl Event {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (long, short) = bytes.split_first_chunk::<16>()?;
        let long = |at: usize| long[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
        let short = |at: usize| short.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok();
        Some(Self {
            time_ns: long(0)?,
            seq: long(8)?,
            point: short(0)?,
            ifindex: short(4)?,
            cpu: short(8)?,
            reason: short(12)?,
        })
    }
}

/// The kernel's names for why it drops packets, by number.
pub fn drop_reasons() -> Result<BTreeMap<u32, String>, Error> {
    let types = Btf::from_vmlinux().map_err(Error::Bpf)?;
    let reasons = types.type_by_name::<Enum<'_>>("skb_drop_reason");
    let members = reasons.iter().flat_map(|reasons| reasons.iter());
    let named = members.filter_map(|member| {
        let name = member.name?.to_str()?.strip_prefix("SKB_DROP_REASON_")?;
        Some((u32::try_from(member.value).ok()?, name.to_owned()))
    });
    Ok(named.collect())
}

/// Calls of programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// How many there were.
    pub count: u64,
    /// How long they took in all, by those of which the time was taken.
    pub ns_total: u64,
    /// Calls that the kernel left out.
    pub missed: u64,
}

/// The programs, attached until it is dropped.
pub struct Tracer {
    object: Object,
    lacking: Vec<String>,
    _links: Vec<Link>,
}

impl Tracer {
    /// Loads the programs and attaches them.
    pub fn attach(followed: Followed<'_>) -> Result<Self, Error> {
        let mut programs = PROGRAMS.to_vec();
        let accepted = if let Followed::Flow(accepted) = followed { accepted } else { &[] };
        filter::put_into(&mut programs, accepted)?;
        // Some kernels call no programs from functions, and say so when these are loaded or attached.
        Self::try_attach(&programs, followed, followed.is_flow())
            .or_else(|_| Self::try_attach(&programs, followed, false))
            .map_err(Error::Bpf)
    }

    fn try_attach(
        programs: &[u8],
        followed: Followed<'_>,
        with_functions: bool,
    ) -> Result<Self, libbpf_rs::Error> {
        let mut object = ObjectBuilder::default().open_memory(programs)?;
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata") {
                map.set_initial_value(&followed.told())
                    .context("cannot tell the BPF programs what to do")?;
            }
        }
        let types = Btf::from_vmlinux()?;
        let mut lacking = Vec::new();
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if !name.starts_with(OF_FLOWS) {
                program.set_autoload(!(followed.is_flow() && name.starts_with(OF_PROBES)));
                continue;
            }
            let section = program.section().to_string_lossy().into_owned();
            let point = section.rsplit('/').next().unwrap_or_default();
            let is_there = if section.starts_with("fentry/") || section.starts_with("fexit/") {
                with_functions && types.type_by_name::<Func<'_>>(point).is_some()
            } else {
                types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{point}")).is_some()
            };
            if followed.is_flow() && !is_there {
                lacking.push(point.to_owned());
            }
            program.set_autoload(followed.is_flow() && is_there);
        }
        let object = object.load().context("the kernel does not take the BPF programs")?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            let attached = if program.prog_type() == ProgramType::SchedCls {
                let each = followed.links().iter();
                each.map(|link| attach_to_link(&program, *link)).collect::<Result<Vec<_>, _>>()
            } else {
                program.attach_trace().map(|link| vec![link])
            };
            let name = program.name().to_string_lossy().into_owned();
            links.extend(attached.with_context(|| format!("cannot attach {name}"))?);
        }
        lacking.dedup();
        Ok(Self { object, lacking, _links: links })
    }

    /// The tracepoints and functions that this kernel lacks.
    pub fn lacking(&self) -> &[String] {
        &self.lacking
    }

    /// The calls of all programs so far, where a flow is followed.
    pub fn calls(&self) -> Result<Calls, Error> {
        let only = 0_u32.to_ne_bytes();
        let each = self.map("costs").lookup_percpu(&only, MapFlags::ANY).map_err(Error::Bpf)?;
        let mut sums = [0_u64; 3];
        for cost in each.expect("an array has its first entry") {
            for (sum, bytes) in sums.iter_mut().zip(cost.chunks_exact(8)) {
                // The time of a CPU may be below 0, in two's complement.
                *sum = sum.wrapping_add(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
            }
        }
        let [count, timed, ns_timed] = sums;
        // Two readings of a clock are taken off each: they may have been interrupted.
        let ns_timed = (ns_timed as i64).max(0) as u64;
        let ns_total = u128::from(ns_timed) * u128::from(count) / u128::from(timed.max(1));
        let mut calls = Calls { count, ns_total: ns_total as u64, missed: 0 };
        for program in self.object.progs().filter(libbpf_rs::Program::autoload) {
            calls.missed += info_of(program.as_fd())?.recursion_misses;
        }
        Ok(calls)
    }

    /// Calls `listen` with what takes all events that are there by now.
    pub fn listen<T>(
        &self,
        mut heard: impl FnMut(Event),
        listen: impl FnOnce(&dyn Fn() -> Result<(), Error>) -> T,
    ) -> Result<T, Error> {
        let mut builder = RingBufferBuilder::new();
        let events = self.map("events");
        builder
            .add(&events, move |bytes| {
                for event in bytes.chunks(EVENT) {
                    heard(Event::read(event).expect("events are as long as programs make them"));
                }
                0
            })
            .map_err(Error::Bpf)?;
        let ring = builder.build().map_err(Error::Bpf)?;
        Ok(listen(&|| ring.consume().map_err(Error::Bpf)))
    }

    /// Events for which there was no room.
    pub fn lost(&self) -> Result<u64, Error> {
        let bytes =
            self.map(".bss").lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(Error::Bpf)?;
        let bytes = bytes.expect("an array has its first entry");
        let count = bytes.first_chunk().expect("it is a number");
        Ok(u64::from_ne_bytes(*count))
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        let is_it = |map: &libbpf_rs::Map<'_>| map.name().to_string_lossy().ends_with(name);
        self.object.maps().find(is_it).expect("the programs have it")
    }
}

/// Attaches a program to a link of the namespace that this thread is in.
fn attach_to_link(program: &ProgramMut<'_>, link: u32) -> Result<Link, libbpf_rs::Error> {
    let program = program.as_libbpf_object().as_ptr();
    // SAFETY: the program is loaded; what comes back, if anything, is nobody else's.
    unsafe {
        let attached = libbpf_sys::bpf_program__attach_tcx(program, link as i32, std::ptr::null());
        NonNull::new(attached)
            .map(|attached| Link::from_ptr(attached))
            .ok_or_else(|| std::io::Error::last_os_error().into())
    }
}

/// What the kernel says of a program.
pub fn info_of(program: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info, Error> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    let fd = program.as_raw_fd();
    // SAFETY: the kernel writes no more than the structure has.
    let answer = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut bytes) };
    if answer != 0 {
        let said: Result<_, libbpf_rs::Error> = Err(std::io::Error::last_os_error().into());
        return said.context("cannot ask for calls of a program").map_err(Error::Bpf);
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_the_programs_write_it() {
        let mut bytes = [7_u64.to_ne_bytes(), 9_u64.to_ne_bytes()].concat();
        bytes.extend([1_u32, 2, 3, 4].map(u32::to_ne_bytes).concat());
        let event = Event { time_ns: 7, seq: 9, point: 1, ifindex: 2, cpu: 3, reason: 4 };
        assert_eq!(Event::read(&bytes), Some(event));
        assert_eq!(Event::read(&bytes[..31]), None);
    }
}
