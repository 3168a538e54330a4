//! Reading of the kernel's traces: formats of events, raw pages, and what follows from them.

use trace::event::{Decoder, Kind, What};
use trace::page;
use trace::senders::{Senders, Sent};
use trace::spans::{Follower, Span};

/// Small, so that an input has several.
const PAGE_BYTES: usize = 256;
/// The CPU that is followed, and the one that sends it interrupts.
const CPU: u32 = 0;
const SENDER: u32 = 1;
const MEASURED: i32 = 1;
const WITHIN: u64 = 1_000;
const TICKS_PER_S: u64 = 2_600_000_000;

/// Up to the first zero it is formats, a form feed between them, each after a line with its group;
/// the rest is pages, the last of which may be cut.
pub fn run(bytes: &[u8]) -> bool {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let pages = &bytes[bytes.len().min(text.len() + 1)..];
    let mut follower = Follower::new([MEASURED], TICKS_PER_S);
    let (mut sent, mut last) = (Vec::new(), 0);
    let decoder = decoder(&String::from_utf8_lossy(text));
    for page in pages.chunks(PAGE_BYTES) {
        let Some((lost, events)) = events(page) else { break };
        if lost {
            follower.forget();
        }
        for (time, data) in events {
            last = time;
            let Some((pid, what)) = decoder.decode(&data) else { continue };
            if let What::Send { to, call } = what.clone() {
                sent.push(Sent { time, pid, cpu: SENDER, to, call });
            }
            follower.take(time, pid, what);
        }
    }
    follower.end(last);
    check_spans(&follower);
    check_senders(&Senders::new(sent), &follower.spans);
    true
}

fn decoder(text: &str) -> Decoder {
    let parts = text.split('\x0c').filter_map(|one| one.split_once('\n'));
    let formats: Vec<_> = parts.map(|(group, format)| (group.into(), format.into())).collect();
    Decoder::new(&formats).or_else(|_| Decoder::new(&[])).expect("no format is none that is wrong")
}

/// An event: its time and its bytes.
type Event = (u64, Vec<u8>);

/// Whether some were lost, and the events, none of which shares a byte with another.
fn events(page: &[u8]) -> Option<(bool, Vec<Event>)> {
    let mut events = Vec::new();
    let lost = page::events(page, |time, data| events.push((time, data.to_vec())));
    let used: usize = events.iter().map(|(_, data)| 4 + data.len()).sum();
    assert!(used <= page.len());
    Some((lost.ok()?.any, events))
}

fn check_spans(Follower { spans, segments, .. }: &Follower) {
    assert!(segments.iter().all(|part| part.start < part.end));
    assert!(segments.windows(2).all(|pair| pair[0].end <= pair[1].start));
    let mut own = vec![0; spans.len()];
    for part in segments {
        let span = &spans[part.span];
        assert!(span.start <= part.start && part.end <= span.end);
        own[part.span] += part.end - part.start;
    }
    for (span, own) in spans.iter().zip(own) {
        assert_eq!(span.own, own);
        assert!(span.start <= span.end && (span.start == span.end || span.kind != Kind::PageFault));
    }
}

fn check_senders(senders: &Senders, spans: &[Span]) {
    for (span, call) in spans.iter().flat_map(|span| [(span, false), (span, true)]) {
        let after = span.start.saturating_sub(WITHIN);
        let Some(sent) = senders.first(CPU, call, after, span.start) else { continue };
        assert!(sent.call == call && sent.to.contain(CPU.into()));
        assert!(after < sent.time && sent.time <= span.start);
        assert!(senders.first(SENDER, call, after, span.start).is_none());
    }
}
