//! The BPF programs: loaded, attached, listened to.

use crate::error::Error;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;
use libbpf_rs::{ErrorExt, Link, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use std::collections::BTreeMap;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stages.bpf.o"));

/// What the programs are told.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The network namespace to look into, by its number.
    pub namespace: u32,
    /// Of so many probes one is looked at.
    pub every: u32,
}

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

/// The programs, attached until it is dropped.
pub struct Tracer {
    object: Object,
    _links: Vec<Link>,
}

impl Tracer {
    /// Loads the programs and attaches them.
    pub fn attach(config: Config) -> Result<Self, Error> {
        Self::try_attach(config).map_err(Error::Bpf)
    }

    fn try_attach(config: Config) -> Result<Self, libbpf_rs::Error> {
        let mut object = ObjectBuilder::default().open_memory(PROGRAMS)?;
        for mut map in object.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                let told = [config.namespace.to_ne_bytes(), config.every.to_ne_bytes()].concat();
                map.set_initial_value(&told).context("cannot tell the BPF programs what to do")?;
            }
        }
        let object = object.load().context("the kernel does not take the BPF programs")?;
        let links = object
            .progs_mut()
            .map(|program| {
                let name = program.name().to_string_lossy().into_owned();
                program.attach_trace().with_context(|| format!("cannot attach {name}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { object, _links: links })
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
                heard(Event::read(bytes).expect("events are as long as the programs make them"));
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
