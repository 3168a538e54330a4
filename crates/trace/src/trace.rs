//! A whole trace: the recorded pages of several CPUs.

use crate::error::Error;
use crate::event::{Decoder, Kind, What};
use crate::page;
use crate::senders::{Senders, Sent};
use crate::spans::{Follower, Segment, Span};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The raw pages of one CPU.
#[derive(Clone, Debug)]
pub struct Source {
    /// The CPU.
    pub cpu: u32,
    /// The file, whole pages one after the other.
    pub path: PathBuf,
}

/// The record of one CPU.
#[derive(Debug)]
pub struct CpuTrace {
    /// The CPU.
    pub cpu: u32,
    /// Interruptions in the order in which they began, or were told.
    pub spans: Vec<Span>,
    /// Time at which and by whom the interrupt of each span was sent, where that is known.
    pub senders: Vec<Option<Sender>>,
    /// Segments in order of time.
    pub segments: Vec<Segment>,
    /// Events in the pages.
    pub events: u64,
    /// Events that pages say were lost before them.
    pub lost: u64,
    /// Switches to another task that the kernel did not tell, though it lost nothing.
    pub untold_switches: u64,
    /// Gaps in what is known: times of the last event before, and of the first one after.
    pub gaps: Vec<(u64, u64)>,
}

/// The sender of an interrupt that was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The task that ran,
    pub pid: i32,
    /// on this CPU,
    pub cpu: u32,
    /// and when. Nothing of its sort was handled between then and the span.
    pub time: u64,
}

/// The record of all CPUs.
#[derive(Debug)]
pub struct Trace {
    /// Records in the order of the sources.
    pub cpus: Vec<CpuTrace>,
}

/// Reads a trace.
///
/// `formats` are the groups and texts of the events' formats, `page_bytes` the size of a page, `measured` the tasks
/// that the CPUs are for, `ticks_per_s` the rate of the trace's clock.
///
/// # Errors
/// [`Error`] when a file cannot be read, or a page is broken.
pub fn read(
    formats: &[(String, String)],
    sources: &[Source],
    senders: &[Source],
    page_bytes: usize,
    measured: &[i32],
    ticks_per_s: u64,
) -> Result<Trace, Error> {
    let decoder = Decoder::new(formats)?;
    let senders = read_senders(&decoder, senders, page_bytes)?;
    let cpus = sources.iter().map(|source| {
        let follower = Follower::new(measured.iter().copied(), ticks_per_s);
        let mut trace = read_cpu(&decoder, source, page_bytes, follower)?;
        trace.senders = senders_of(&trace, &senders);
        Ok(trace)
    });
    Ok(Trace { cpus: cpus.collect::<Result<_, Error>>()? })
}

fn read_cpu(
    decoder: &Decoder,
    source: &Source,
    page_bytes: usize,
    mut follower: Follower,
) -> Result<CpuTrace, Error> {
    let (mut events, mut last, mut lost) = (0, 0, 0);
    let mut batch = Vec::new();
    pages(&source.path, page_bytes, |page| {
        let before = page::events(page, |time, data| {
            batch.push((time, decoder.decode(data)));
        })?;
        if before.any {
            follower.forget();
            lost += before.count;
        }
        for (time, decoded) in batch.drain(..) {
            events += 1;
            last = time;
            if let Some((pid, what)) = decoded {
                follower.take(time, pid, what);
            }
        }
        Ok(())
    })?;
    follower.end(last);
    let Follower { spans, segments, gaps, untold_switches, .. } = follower;
    Ok(CpuTrace {
        cpu: source.cpu,
        spans,
        senders: Vec::new(),
        segments,
        events,
        lost,
        untold_switches,
        gaps,
    })
}

fn read_senders(
    decoder: &Decoder,
    sources: &[Source],
    page_bytes: usize,
) -> Result<Senders, Error> {
    let mut all = Vec::new();
    for Source { cpu, path } in sources {
        pages(path, page_bytes, |page| {
            page::events(page, |time, data| {
                if let Some((pid, What::Send { to, call })) = decoder.decode(data) {
                    all.push(Sent { time, pid, cpu: *cpu, to, call });
                }
            })?;
            Ok(())
        })?;
    }
    Ok(Senders::new(all))
}

/// Returns the sender of each span's interrupt: the first one since the last of its sort was
/// handled. What was sent before events were lost may have been handled then.
fn senders_of(trace: &CpuTrace, senders: &Senders) -> Vec<Option<Sender>> {
    let mut handled = [None; 2];
    let mut gaps = trace.gaps.iter().peekable();
    let mut known_since = 0;
    let mut found = Vec::with_capacity(trace.spans.len());
    for span in &trace.spans {
        while let Some(&&(_, end)) = gaps.peek().filter(|gap| gap.1 <= span.start) {
            known_since = end;
            gaps.next();
        }
        let Some(call) = is_call(&span.kind) else {
            found.push(None);
            continue;
        };
        let last = handled[usize::from(call)].replace(span.start);
        let sent = last.and_then(|last: u64| {
            senders.first(trace.cpu, call, last.max(known_since), span.start)
        });
        found.push(sent.map(|sent| Sender { pid: sent.pid, cpu: sent.cpu, time: sent.time }));
    }
    found
}

/// Returns true if an interrupt from another CPU is to call a function, rather than to schedule;
/// `None` for all others.
fn is_call(kind: &Kind) -> Option<bool> {
    let Kind::Vector(name) = kind else { return None };
    match name.as_str() {
        "reschedule" => Some(false),
        "call_function" | "call_function_single" => Some(true),
        _ => None,
    }
}

/// Hands out one page after the other. A file that ends within one was cut when the recorder was killed: the rest is
/// left out.
fn pages(
    path: &Path,
    page_bytes: usize,
    mut each: impl FnMut(&[u8]) -> Result<(), page::Broken>,
) -> Result<(), Error> {
    let file = || path.display().to_string();
    let refused = |source| Error::Io { file: file(), source };
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(refused)?);
    let mut page = vec![0; page_bytes];
    let mut offset = 0;
    loop {
        match reader.read_exact(&mut page) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(refused(error)),
        }
        each(&page).map_err(|broken| Error::Corrupt {
            file: file(),
            offset: offset + broken.offset as u64,
            what: broken.what,
            got: broken.got,
            expected: broken.expected,
        })?;
        offset += page_bytes as u64;
    }
}
