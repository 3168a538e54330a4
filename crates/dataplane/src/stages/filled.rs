//! Points that the BPF programs did not see, by the kernel's trace.
//!
//! Some kernels call no program while process 1 has the CPU, in whose time packets may be handled as in that
//! of any other. The trace tells of them: which buffer passed which link when. What the programs said of
//! that buffer before says which packet it was.

use super::tracer::{Event, buffer_of};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trace::format::{Field, Format};
use trace::page;

const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// The threads of process 1.
const THREADS: &str = "/proc/1/task";
const HEADER: &str = "/sys/kernel/tracing/events/header_page";
/// The tracepoints of the programs that have a link, by the number of their point.
const POINTS: [(&str, u16); 5] = [
    ("netif_rx", ARRIVED),
    ("napi_gro_receive_entry", ARRIVED),
    ("netif_receive_skb", 1),
    ("net_dev_queue", 2),
    ("net_dev_start_xmit", STARTED),
];
const ARRIVED: u16 = 0;
const STARTED: u16 = 3;
/// Where the number of an event is among its bytes.
const KIND: Field = Field { offset: 0, size: 2 };
const BUFFER_KB: &str = "256";

/// How an event tells of a point.
struct Told {
    kind: u64,
    point: u16,
    buffer: Field,
    name: Field,
}

/// The trace of packets that pass some links in the time of process 1, until it is dropped.
pub struct Points {
    instance: PathBuf,
    links: Vec<(String, u32)>,
    told: Vec<Told>,
    pages: Vec<File>,
    page: Vec<u8>,
}

impl Points {
    /// Begins to trace, in an instance of the kernel's tracer of this name.
    pub fn trace(name: &str, links: &[(String, u32)]) -> io::Result<Self> {
        let instance = Path::new(INSTANCES).join(name);
        fs::create_dir(&instance)?;
        let mut points = Self {
            instance,
            links: links.to_vec(),
            told: Vec::new(),
            pages: Vec::new(),
            page: Vec::new(),
        };
        points.set_up()?;
        Ok(points)
    }

    fn set_up(&mut self) -> io::Result<()> {
        let write = |name: &str, text: &str| fs::write(self.instance.join(name), text);
        write("trace_clock", "mono")?;
        write("buffer_size_kb", BUFFER_KB)?;
        // The kernel says it in one piece: what a second call reads of it is nothing.
        let mut head = [0; 4096];
        let read = File::open(HEADER)?.read(&mut head)?;
        let head = String::from_utf8_lossy(&head[..read]);
        let bytes = head.lines().find_map(page_bytes).ok_or(ErrorKind::InvalidData)?;
        self.page = vec![0; bytes];
        let any = |tests: Vec<String>| format!("({})", tests.join(" || "));
        let links = self.links.iter().map(|(link, _)| format!("name == \"{link}\"")).collect();
        let mut threads = Vec::new();
        for folder in fs::read_dir(THREADS)? {
            threads.push(format!("common_pid == {}", folder?.file_name().to_string_lossy()));
        }
        let filter = format!("{} && {}", any(threads), any(links));
        for (name, point) in POINTS {
            let event = format!("events/net/{name}");
            let format = fs::read_to_string(self.instance.join(&event).join("format"))?;
            let format = Format::parse(&format).map_err(io::Error::other)?;
            let field = |name| format.field(name).map_err(io::Error::other);
            let (buffer, name) = (field("skbaddr")?, field("name")?);
            self.told.push(Told { kind: format.id.into(), point, buffer, name });
            write(&format!("{event}/filter"), &filter)?;
            write(&format!("{event}/enable"), "1")?;
        }
        for folder in fs::read_dir(self.instance.join("per_cpu"))? {
            let path = folder?.path().join("trace_pipe_raw");
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            self.pages.push(file);
        }
        Ok(())
    }

    /// Takes what was traced since: events without the number of a packet.
    pub fn take(&mut self, taken: &mut Vec<Event>) -> io::Result<()> {
        for file in &mut self.pages {
            loop {
                match file.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                let broken = |broken: page::Broken| io::Error::other(broken.what);
                page::events(&self.page, |time_ns, bytes| {
                    let event = event_of(&self.told, &self.links, bytes);
                    taken.extend(event.map(|event| Event { time_ns, ..event }));
                })
                .map_err(broken)?;
            }
        }
        Ok(())
    }
}

impl Drop for Points {
    fn drop(&mut self) {
        self.pages.clear();
        // What is left is removed with what else a measurement leaves behind.
        let _ = fs::remove_dir(&self.instance);
    }
}

/// The size of a page with its head, by a line such as `field: char data; offset:16; size:4080; signed:1;`.
fn page_bytes(line: &str) -> Option<usize> {
    let rest = line.trim().strip_prefix("field: char data;")?;
    let value = |key: &str| {
        let part = rest.split(';').find_map(|part| part.trim().strip_prefix(key));
        part.and_then(|number| number.parse::<usize>().ok())
    };
    Some(value("offset:")? + value("size:")?)
}

fn event_of(told: &[Told], links: &[(String, u32)], bytes: &[u8]) -> Option<Event> {
    let kind = KIND.number(bytes)?;
    let told = told.iter().find(|told| told.kind == kind)?;
    let name = told.name.text(bytes)?;
    let (_, ifindex) = links.iter().find(|(link, _)| *link == name)?;
    let buffer = buffer_of(told.buffer.number(bytes)?);
    let (point, ifindex) = (told.point, *ifindex);
    Some(Event { time_ns: 0, seq: 0, point, cpu: 0, ifindex, buffer, reason: 0 })
}

/// Joins what the programs say with what they have left out.
#[derive(Default)]
pub struct Filled {
    events: Vec<Event>,
    traced: Vec<Event>,
    /// The packet in each buffer, and the last point that it passed.
    packets: HashMap<u32, (u64, u16)>,
}

impl Filled {
    /// Takes the programs' events, and those of the trace, which have no number; returns all until a time, up to
    /// which nothing more will come, in order.
    pub fn join(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        traced: impl IntoIterator<Item = Event>,
        until_ns: u64,
    ) -> Vec<Event> {
        self.events.extend(events);
        self.traced.extend(traced);
        let mut ready: Vec<(Event, bool)> = Vec::new();
        for (waiting, is_traced) in [(&mut self.events, false), (&mut self.traced, true)] {
            let all = std::mem::take(waiting).into_iter();
            let (come, later) = all.partition::<Vec<_>, _>(|event| event.time_ns <= until_ns);
            *waiting = later;
            ready.extend(come.into_iter().map(|event| (event, is_traced)));
        }
        ready.sort_by_key(|(event, is_traced)| (event.time_ns, *is_traced));
        ready.into_iter().filter_map(|(event, is_traced)| self.pass(event, is_traced)).collect()
    }

    /// Remembers where a packet is; returns the event, with the packet's number.
    fn pass(&mut self, mut event: Event, is_traced: bool) -> Option<Event> {
        if is_traced {
            let (seq, last) = *self.packets.get(&event.buffer)?;
            if event.point <= last {
                return None;
            }
            event.seq = seq;
        }
        if event.point < STARTED {
            self.packets.insert(event.buffer, (event.seq, event.point));
        } else {
            self.packets.remove(&event.buffer);
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, seq: u64, point: u16, buffer: u32) -> Event {
        Event { time_ns, seq, point, cpu: 0, ifindex: 3, buffer, reason: 0 }
    }

    /// Times, packets and points.
    fn told(events: &[Event]) -> Vec<(u64, u64, u16)> {
        events.iter().map(|event| (event.time_ns, event.seq, event.point)).collect()
    }

    #[test]
    fn what_the_programs_left_out_is_filled_by_the_buffer() {
        let mut filled = Filled::default();
        let events = [event(1, 70, 0, 5), event(2, 71, 0, 6), event(9, 71, 3, 6)];
        let traced = [event(3, 0, 1, 5), event(4, 0, 2, 5), event(5, 0, 3, 5), event(6, 0, 1, 6)];
        let expected =
            [(1, 70, 0), (2, 71, 0), (3, 70, 1), (4, 70, 2), (5, 70, 3), (6, 71, 1), (9, 71, 3)];
        assert_eq!(told(&filled.join(events, traced, 10)), expected);
        // The buffers have other packets by now.
        assert!(filled.join([], [event(11, 0, 1, 5), event(12, 0, 1, 6)], 20).is_empty());
    }

    #[test]
    fn what_the_programs_saw_is_not_told_twice() {
        let mut filled = Filled::default();
        let events = [event(1, 70, 0, 5), event(3, 70, 1, 5)];
        let traced = [event(3, 0, 1, 5), event(4, 0, 1, 5)];
        assert_eq!(told(&filled.join(events, traced, 10)), [(1, 70, 0), (3, 70, 1)]);
    }

    #[test]
    fn what_may_be_incomplete_waits() {
        let mut filled = Filled::default();
        let events = [event(1, 70, 0, 5), event(30, 70, 3, 5)];
        assert_eq!(told(&filled.join(events, [], 10)), [(1, 70, 0)]);
        let late = filled.join([], [event(20, 0, 1, 5)], 40);
        assert_eq!(told(&late), [(20, 70, 1), (30, 70, 3)]);
    }

    #[test]
    fn the_size_of_a_page_is_read() {
        let line = "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;";
        assert_eq!(page_bytes(line), Some(4096));
        assert_eq!(page_bytes("\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;"), None);
    }
}
