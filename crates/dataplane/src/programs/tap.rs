//! `tap`: matches what crosses two links of the kernel while it comes.

use crate::cpus::Cpus;
use crate::error::Error;
use crate::events;
use crate::hearer::{Ended as Heard, Hearer, Report, StampClock};
use crate::live::Live as Buckets;
use crate::options;
use crate::packet_ring::{Hearing, Ring};
use crate::privileges::{self, capability};
use crate::program::{Program, Spec};
use crate::recorder::KEPT_BYTES;
use crate::stop::Stop;
use crate::surroundings::{Surroundings, WorstPacket};
use analysis::{Config, Ended, Group, Live, Second};
use clap::Args;
use messages::{Count, Message, Recorded, TapKey, TapSecond, TappedFlow, TappedLink, TappedLinks};
use probe::filter::instructions;
use probe::key::{MatchOn, Tap as Side};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use units::Nanos;

/// As the command line knows it.
pub const SPEC: Spec = Spec {
    name: "tap",
    about: "match what crosses two links of the kernel while it comes",
    parse: |own| Ok(Box::new(options::parse::<Tap>("tap", SPEC.about, own)?)),
};

/// Reports that may wait.
const AHEAD: usize = 16;
/// Flows that are told in the end.
const MOST_FLOWS: usize = 1000;
/// Beside the window, what is remembered for captures: a second, and what surrounds its worst packet.
const REMEMBERED_NS: u64 = 1_100_000_000;

#[derive(Args, Debug)]
struct Tap {
    /// The link by which packets come.
    #[arg(long, value_name = "LINK")]
    pre: String,
    /// The link by which they leave.
    #[arg(long, value_name = "LINK")]
    post: String,
    /// Packets come in by the second link, too: both are fed by taps.
    #[arg(long)]
    taps: bool,
    /// The clock of the cards of both links, which take the times of frames; else the kernel does.
    #[arg(long, value_name = "DEVICE", requires = "taps")]
    card_clock: Option<PathBuf>,
    /// A program of classic BPF that accepts packets: its length, and its instructions.
    #[arg(long, value_name = "N,CODE JT JF K,...", default_value = "0")]
    filter: String,
    /// What makes a packet the same before and behind the device.
    #[arg(long, value_name = "KEY", default_value = "auto")]
    match_on: String,
    /// Longest time that a packet may take.
    #[arg(long, value_name = "NS")]
    window_ns: u64,
    /// Quantiles of the latency to tell every second.
    #[arg(long, value_name = "Q,...", value_delimiter = ',', value_parser = quantile)]
    quantiles: Vec<f64>,
    /// Latencies in ns: each second tells how many packets took as long, or longer.
    #[arg(long, value_name = "NS,...", value_delimiter = ',')]
    limits_ns: Vec<u64>,
    /// Number of the worst packets to keep.
    #[arg(long, value_name = "N")]
    worst: usize,
    /// Write captures of what surrounds the worst packets into this folder.
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
    /// Number of packets with captures.
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Write the figures of all packets into this file in the end.
    #[arg(long, value_name = "FILE")]
    figures: PathBuf,
}

impl Tap {
    fn config(&self) -> Result<Config, Error> {
        let match_on = self.match_on.parse::<MatchOn>();
        let match_on = match_on.map_err(|error| Error::Usage(format!("--match-on: {error}")))?;
        if match_on == MatchOn::TcpBytes {
            let expected = "a key of single packets: streams are matched as a whole".into();
            let got = self.match_on.clone();
            return Err(Error::Option { option: "--match-on", got, expected });
        }
        let (window, worst) = (Nanos(self.window_ns), self.worst);
        Ok(Config { match_on, window, worst, ..Config::default() })
    }

    fn run(&self) -> Result<(), Error> {
        if self.pre == self.post {
            let expected = format!("another link than --pre, {}", self.pre);
            return Err(Error::Option { option: "--post", got: self.post.clone(), expected });
        }
        let (config, filter) = (self.config()?, instructions(&self.filter)?);
        let stop = Stop::on_signals()
            .map_err(|source| Error::File { path: "signal handlers".into(), source })?;
        // What leaves is heard before what comes: each packet that is judged can be seen twice.
        let clock =
            self.card_clock.as_deref().map_or(Ok(StampClock::default()), StampClock::of_card)?;
        let hearing = Hearing { leaving: !self.taps, filter, by_card: clock.is_of_card() };
        let post = Ring::open(&self.post, &hearing)?;
        let pre = Ring::open(&self.pre, &Hearing { leaving: false, ..hearing })?;
        let folder = self.figures.parent();
        privileges::give_back(capability::NONE, &[self.captures.as_deref(), folder])?;
        let names = [self.pre.clone(), self.post.clone()];
        let live = Live::new(config, names, KEPT_BYTES as u32, clock.now_ns())?;
        events::recording(SPEC.name);
        let (sender, reports) = sync_channel(AHEAD);
        let (heard, matched) = std::thread::scope(|scope| {
            let rings = [(Side::Pre, &self.pre, pre), (Side::Post, &self.post, post)];
            let threads = rings.map(|(side, link, ring)| {
                let hearer = Hearer::new((link, ring), side, clock.clone(), sender.clone());
                Cpus::allowed().run(scope, || hearer.run(&stop).inspect_err(|_| stop.ask()))
            });
            drop(sender);
            let matched = self.matched(live, reports).inspect_err(|_| stop.ask());
            (threads.map(|one| one.join().expect("hearing does not panic")), matched)
        });
        let [pre, post] = heard;
        self.tell([pre?, post?], matched?)
    }

    /// Matches until nothing more is heard.
    fn matched(&self, mut live: Live, reports: Receiver<Report>) -> Result<Matched, Error> {
        let mut clear_ns = [0; 2];
        let mut surroundings = Surroundings::new(self.captures.as_deref(), self.keep);
        let (mut late, mut is_told, mut reached_ns) = ([0; 2], false, 0);
        for Report { tap, piece, clear_ns: clear, missed } in reports {
            let side = tap as usize;
            let came_late = piece.packets().filter(|packet| !live.take(tap, packet)).count() as u64;
            surroundings.hear(tap, piece);
            if let Some((gap, packets)) = missed {
                live.miss(tap, gap, packets);
            }
            if came_late > 0 {
                late[side] += came_late;
                live.miss(tap, (reached_ns, reached_ns), came_late);
            }
            clear_ns[side] = clear.max(clear_ns[side]);
            let until_ns = clear_ns[0].min(clear_ns[1]);
            if until_ns <= reached_ns {
                continue;
            }
            reached_ns = until_ns;
            self.tell_seconds(&live.advance(until_ns)?, &mut surroundings);
            surroundings.forget_before(
                until_ns.saturating_sub(self.window_ns.saturating_add(REMEMBERED_NS)),
            );
            if let Some(key) = live.key().filter(|_| !is_told) {
                events::print(&Message::Matching(TapKey { match_on: key.to_string() }));
                is_told = true;
            }
        }
        let ended = match live.finish() {
            Ok(ended) => Some(ended),
            Err(analysis::Error::DifferentTraffic { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(ended) = &ended {
            self.tell_seconds(&ended.seconds, &mut surroundings);
            let bytes = ended.part.to_bytes();
            std::fs::write(&self.figures, bytes)
                .map_err(|source| Error::File { path: self.figures.clone(), source })?;
        }
        Ok(Matched { ended, late, unwritten: surroundings.unwritten })
    }

    fn tell_seconds(&self, seconds: &[Second], surroundings: &mut Surroundings) {
        for second in seconds {
            if let Some(worst) = &second.worst {
                let (pre_ns, latency_ns) = (worst.pre_ns, worst.latency_ns);
                surroundings.note(&WorstPacket { pre_ns, latency_ns });
            }
            events::print(&Message::Second(told(second, self)));
        }
    }

    fn tell(&self, heard: [Heard; 2], matched: Matched) -> Result<(), Error> {
        let Matched { ended, late, unwritten } = matched;
        let mut partial = Vec::new();
        for (link, (heard, late)) in [&self.pre, &self.post].into_iter().zip(heard.iter().zip(late))
        {
            let missed = heard.counted.dropped + heard.unstamped + late;
            let downs = heard.downs;
            if missed > 0 {
                partial.push(format!("{link}: {missed} frames were missed"));
            }
            if heard.unstamped > 0 {
                partial
                    .push(format!("{link}: the card took no time of {} frames", heard.unstamped));
            }
            if downs > 0 {
                partial.push(format!("{link} went down {downs} time(s)"));
            }
        }
        if unwritten > 0 {
            partial.push(format!("{unwritten} captures of the worst packets were not written"));
        }
        let link = |side: usize, link: &str| TappedLink {
            link: link.into(),
            received: heard[side].counted.received.into(),
            dropped: heard[side].counted.dropped.into(),
            unstamped: heard[side].unstamped.into(),
            late: late[side].into(),
            downs: heard[side].downs.into(),
        };
        let flows = ended.as_ref().map_or(&[][..], |ended| &ended.flows);
        let tap = TappedLinks {
            pre: link(0, &self.pre),
            post: link(1, &self.post),
            flows: flows.iter().take(MOST_FLOWS).map(flow).collect(),
            joined: ended.is_some(),
            unwritten: unwritten.into(),
        };
        let complete = partial.is_empty();
        events::print(&Message::Recorded(Box::new(Recorded::Tap { complete, partial, tap })));
        Ok(())
    }
}

/// What was matched, and what came too late to be.
struct Matched {
    ended: Option<Ended>,
    late: [u64; 2],
    unwritten: u64,
}

/// The message about a second.
fn told(second: &Second, asked: &Tap) -> TapSecond {
    let buckets = Buckets::new();
    second.latencies_ns.iter().for_each(|ns| buckets.record(*ns));
    let quantile = |q| second.quantile(q).map(Count);
    let [missed_pre, missed_post] = second.missed.map(Count);
    TapSecond {
        start_unix_ns: second.start_ns.into(),
        sent: second.sent().into(),
        matched: second.latencies_ns.len().into(),
        lost: second.lost.into(),
        late: second.late.into(),
        unresolved: second.unresolved.into(),
        ambiguous: second.ambiguous.into(),
        missed_pre,
        missed_post,
        latency_ns_quantiles: asked.quantiles.iter().filter_map(|q| quantile(*q)).collect(),
        latency_ns_max: quantile(1.0),
        beyond: asked.limits_ns.iter().map(|ns| second.at_least(*ns).into()).collect(),
        latency_ns_sum: buckets.sum().into(),
        latency_ns_buckets: buckets.filled().map(|(ns, count)| (Count(ns), count.into())).collect(),
        lost_flows: second
            .lost_flows
            .iter()
            .map(|(flow, lost)| (flow.clone(), Count(*lost)))
            .collect(),
    }
}

fn flow(group: &Group) -> TappedFlow {
    let [p50, p99] = group.quantiles_ns;
    TappedFlow {
        flow: group.name.clone(),
        sent: group.sent.into(),
        matched: group.matched.into(),
        lost: group.lost.into(),
        unseen: group.unseen.into(),
        latency_ns_p50: p50.map(Count),
        latency_ns_p99: p99.map(Count),
        latency_ns_max: group.worst_ns.map(Count),
    }
}

fn quantile(text: &str) -> Result<f64, String> {
    let quantile = text.parse().ok().filter(|q| (0.0..=1.0).contains(q));
    quantile.ok_or_else(|| "expected 0 to 1".into())
}

impl Program for Tap {
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error> {
        options::refuse_eal(SPEC.name, &eal)?;
        Self::run(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_not_matched_while_they_come() {
        let words = ["--pre=a", "--post=b", "--window-ns=1", "--worst=1", "--figures=f"];
        let of = |key: &str| {
            let key = format!("--match-on={key}");
            let words = words.into_iter().map(str::to_owned).chain([key]).collect();
            let tap: Tap = options::parse("tap", SPEC.about, words).expect("options");
            tap.config()
        };
        assert_eq!(of("payload").expect("a key").match_on, MatchOn::Payload);
        assert_eq!(of("tcp-bytes").expect_err("no key").code(), "option-value");
    }
}
