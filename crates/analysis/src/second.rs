//! A second look at files of which much was found on one side alone: do the packets that are left come
//! in another form, or did a clock step?

use std::collections::{HashMap, HashSet};

use capture::{Packet, Reader};
use probe::flow::Flow;
use probe::key::{Keyed, MatchOn, Tap};
use probe::parts::{fragment, segment};
use probe::tcp::segment as tcp_segment;
use units::Nanos;

use crate::basis::Clocks;
use crate::config::Config;
use crate::corrupt::{Corruption, Suspects};
use crate::error::{Error, Obstacle};
use crate::forms::{Part, divided};
use crate::ingest::{Ahead, Reading};
use crate::obstacles::obstacle;
use crate::pair::{Analysis, Observer, Progress, analyze_pair, continue_unless_stopped, start_on};
use crate::residue::{Residue, Trace, Traces};
use crate::survey::{Join, Survey, decide_on_files, join_by_best};
use crate::tcp::{self, analyze_streams};

/// Packets of what is left that are compared by other keys, of each side, and bytes of them.
const SAMPLE: usize = 65_536;
const SAMPLE_BYTES: usize = 8 << 20;
/// Packets of the beginning that another key must tell apart as well.
const BEGINNING: usize = 4096;
/// Fewest packets that prove something, and at least one for so many that are left.
const PROOF: usize = 3;
const SHARE: usize = 100;
/// Between two looks at whether to stop.
const AT_ONCE: u64 = 1 << 14;

/// The unmatched packets of one side.
#[derive(Default)]
struct Left {
    parts: Vec<Part>,
    /// Flow and length of each part.
    flows: Vec<(Flow, u32)>,
    sample: Vec<Ahead>,
}

/// Does the same as [`analyze_pair`](crate::analyze_pair) for captures that `open` opens as often
/// as it is asked to. What was found on one side alone is looked at once more, if there is much of
/// it: packets that were divided or merged are not lost. Pipes are read once.
///
/// # Errors
/// As [`analyze_pair`](crate::analyze_pair), and when a clock stepped, or when another key joins what is left
/// ([`Error::KeyChanges`]): then all is void that `observer` was told.
pub fn analyze_files(
    open: impl Fn() -> Result<[Reader; 2], Error>,
    asked: &Config,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    let [mut pre, mut post] = open()?;
    if tcp::is_asked(asked) {
        return analyze_streams([pre, post], asked, vec![], observer);
    }
    if pre.total_bytes().is_none() || post.total_bytes().is_none() {
        return analyze_pair(pre, post, asked, observer);
    }
    asked.check()?;
    let (config, Survey { basis, relation, ahead, .. }) =
        decide_on_files([&mut pre, &mut post], &open, asked)?;
    let names = [pre.info().name, post.info().name];
    let mut obstacle = if relation.is_none() { obstacle(&ahead) } else { None };
    if relation.is_none() && asked.match_on == MatchOn::Auto && ahead.iter().all(|of| has_bytes(of))
    {
        match analyze_streams(open()?, asked, basis.tried.clone(), observer) {
            // What other keys say of it says more.
            Err(Error::Http { .. }) => obstacle = obstacle.or(Some(Obstacle::Http)),
            Err(
                Error::DifferentTraffic { .. }
                | Error::Encrypted { .. }
                | Error::ShortCapture { .. }
                | Error::StreamsTooLong { .. },
            ) => {}
            // Bytes that repeat themselves fit anywhere: that is no match.
            Ok(found) if found.counts.matched == 0 => {}
            found => return found,
        }
    }
    let mut found =
        start_on((pre, post), ahead, &config, basis)?.keeping_residue().finish(observer)?;
    let considerable = Residue::is_considerable(&found.counts);
    if considerable || Residue::may_be_damaged(&found.counts, found.local_behind) {
        look_again(&mut found, &open, (asked, considerable), observer)?;
    } else {
        found.check_step(&[vec![], vec![]])?;
    }
    found.checked(relation, names).map_err(|error| error.explained_by(obstacle))
}

/// Returns true if packets of a sample carry bytes of TCP streams.
fn has_bytes(sample: &[Ahead]) -> bool {
    sample.iter().any(|packet| {
        tcp_segment(&packet.data, packet.orig_len()).is_some_and(|(_, segment)| segment.len > 0)
    })
}

/// Looks at what `found` has left, in captures opened again, and counts what was damaged; if much is left, also what
/// was divided or merged.
///
/// # Errors
/// When the captures cannot be read, when a clock stepped, or when another key joins what is left.
fn look_again(
    found: &mut Analysis,
    open: &dyn Fn() -> Result<[Reader; 2], Error>,
    (asked, considerable): (&Config, bool),
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let Some(residue) = found.residue.take() else { return Ok(()) };
    let Residue { unmatched: [lost, unknown], negative: [early, before] } = residue;
    let [pre, post] = open()?;
    let longest_ns = found.latency.max().unwrap_or(found.config.window.0 - 1);
    let mut look = |mut reader: Reader, tap, traces: [Traces; 2], each: &mut Each<'_>| {
        let reading = Reading::new(&found.config, &found.basis, tap);
        let mut begin = Vec::new();
        Ahead::read_on(&mut reader, &mut begin, BEGINNING, SAMPLE_BYTES)?;
        let left = Left::read((&mut reader, &begin), &reading, traces, (each, observer))?;
        Ok::<_, Error>((begin, left))
    };
    let mut damaged = Vec::new();
    let (post_begin, mut post_left) =
        look(post, Tap::Post, [unknown, before], &mut |ts, packet| {
            if Suspects::wants(packet.data, packet.orig_len, damaged.len()) {
                damaged.push(Ahead::of(&Packet { ts: Nanos(ts), ..*packet }));
            }
        })?;
    let mut suspects = Suspects::new(damaged, &found.config.match_on, longest_ns);
    let (pre_begin, mut pre_left) = look(pre, Tap::Pre, [lost, early], &mut |ts, packet| {
        suspects.compare(ts, packet.data, packet.orig_len);
    })?;
    let corruptions = suspects.certain();
    pre_left.leave_out(&corruptions.iter().map(|of| of.pre_ns).collect());
    post_left.leave_out(&corruptions.iter().map(|of| of.post_ns).collect());
    found.set_corrupt(corruptions);
    if !considerable {
        return found.check_step(&[vec![], vec![]]);
    }
    let beginnings = [pre_begin, post_begin];
    let samples = [pre_left.sample, post_left.sample];
    found.check_step(&samples)?;
    if let Some(key) = found.joined_by(&samples, &beginnings, asked) {
        return Err(Error::KeyChanges { key: key.to_string() });
    }
    let parts = [&pre_left.parts[..], &post_left.parts[..]];
    let divided = divided(parts);
    let left =
        [0, 1].map(|side: usize| segments(parts[side]).saturating_sub(divided[side].len() as u64));
    if asked.match_on == MatchOn::Auto && bytes_join_more(found, open, left, observer)? {
        return Err(Error::KeyChanges { key: MatchOn::TcpBytes.to_string() });
    }
    let [sent, seen] = divided;
    let sent = sent.into_iter().map(|at| (pre_left.parts[at].ts, pre_left.flows[at])).collect();
    let seen = seen.into_iter().map(|at| post_left.parts[at].ts).collect();
    let set_aside = found.take_back(sent, seen);
    found.counts.resegmented += set_aside[0];
    found.counts.post_resegmented += set_aside[1];
    Ok(())
}

/// Returns the number of segments that carry bytes of a TCP stream.
fn segments(parts: &[Part]) -> u64 {
    parts.iter().filter(|part| part.segment.is_some()).count() as u64
}

/// Returns true if bytes of TCP streams join more packets than the key of `found` does, which leaves so many segments.
fn bytes_join_more(
    found: &Analysis,
    open: &dyn Fn() -> Result<[Reader; 2], Error>,
    [sent, seen]: [u64; 2],
    observer: &mut dyn Observer,
) -> Result<bool, Error> {
    if sent <= found.counts.matched || seen == 0 {
        return Ok(false);
    }
    match tcp::joined_by_bytes(open()?, &found.config, observer) {
        Err(Error::ShortCapture { .. } | Error::StreamsTooLong { .. }) => Ok(false),
        joined => Ok(joined? > found.counts.matched),
    }
}

/// Hears of each packet without a counterpart, and its time in ns.
type Each<'a> = dyn FnMut(u64, &Packet<'_>) + 'a;

impl Left {
    /// Leaves out packets that are known, at these times.
    fn leave_out(&mut self, known_ns: &HashSet<u64>) {
        if known_ns.is_empty() {
            return;
        }
        let parts = std::mem::take(&mut self.parts).into_iter();
        let flows = std::mem::take(&mut self.flows);
        (self.parts, self.flows) =
            parts.zip(flows).filter(|(part, _)| !known_ns.contains(&part.ts)).unzip();
        self.sample.retain(|packet| !known_ns.contains(&packet.ts().0));
    }

    /// Reads a capture, of which `begin` was read, for the packets of `unmatched` and `negative`.
    fn read(
        (reader, begin): (&mut Reader, &[Ahead]),
        reading: &Reading,
        [mut unmatched, mut negative]: [Traces; 2],
        (each, observer): (&mut Each<'_>, &mut dyn Observer),
    ) -> Result<Self, Error> {
        unmatched.sort();
        negative.sort();
        let (mut left, mut bytes) = (Self::default(), 0);
        let mut take = |packet: &Packet<'_>| {
            let Packet { data, orig_len, .. } = *packet;
            let ts = reading.skew.undo(packet.ts.0);
            let Keyed::Key(key) = reading.keyer.key(data, orig_len) else { return };
            let trace = Trace::new(ts, key);
            let is_unmatched = unmatched.contain(&trace);
            if is_unmatched {
                each(ts, packet);
                let (segment, fragment) = (segment(data, orig_len), fragment(data, orig_len));
                left.parts.push(Part { ts, segment, fragment });
                left.flows.push((Flow::of(data, orig_len), orig_len));
            }
            if !is_unmatched && !negative.contain(&trace) {
                return;
            }
            if left.sample.len() < SAMPLE && bytes < SAMPLE_BYTES {
                bytes += data.len();
                left.sample.push(Ahead::of(&Packet { ts: Nanos(ts), ..*packet }));
            }
        };
        begin.iter().for_each(|ahead| take(&ahead.packet()));
        let mut read = 0;
        while let Some(packet) = reader.next()? {
            take(&packet);
            read += 1;
            if read % AT_ONCE == 0 {
                let total_bytes = reader.total_bytes();
                let progress = Progress { done_bytes: reader.consumed_bytes(), total_bytes };
                continue_unless_stopped(observer.progress(progress))?;
            }
        }
        Ok(left)
    }
}

impl Analysis {
    /// Returns true if so much was found on one side alone that it should be looked at again.
    #[must_use]
    pub fn deserves_second_look(&self) -> bool {
        self.considerable
    }

    /// Returns a less specific key of those that may be tried, by which packets that are left are
    /// the same, if it tells the others apart as well.
    fn joined_by(
        &self,
        samples: &[Vec<Ahead>; 2],
        beginnings: &[Vec<Ahead>; 2],
        asked: &Config,
    ) -> Option<MatchOn> {
        let used = &self.config.match_on;
        if asked.match_on != MatchOn::Auto || *used == MatchOn::Probe {
            return None;
        }
        let behind = MatchOn::CANDIDATES.iter().skip_while(|key| *key != used).skip(1);
        let others: Vec<MatchOn> = behind.cloned().collect();
        let best = join_by_best(&others, true, samples).best?;
        let in_time = best.apart(samples).into_iter().filter(|ns| self.is_in_time(*ns)).count();
        let least = samples[0].len().min(samples[1].len()) / SHARE;
        let told = |key| Join::new(key, true, beginnings).pairs.len();
        let as_well = told(&best.match_on) + PROOF >= told(used);
        (in_time >= least.max(PROOF) && as_well).then_some(best.match_on)
    }

    fn is_in_time(&self, ns: i64) -> bool {
        u64::try_from(ns).is_ok_and(|ns| ns < self.config.window.0)
    }

    /// Checks that no clock stepped within the captures, as far as it is asked for.
    pub(crate) fn check_step(&self, samples: &[Vec<Ahead>; 2]) -> Result<(), Error> {
        if !matches!(self.config.clocks, Clocks::Detect | Clocks::Apart { relative: true, .. }) {
            return Ok(());
        }
        match self.floor.step().or_else(|| self.step_of(samples)) {
            None => Ok(()),
            Some((at_ns, by_ns)) => {
                let first_ns = self.pre.side.first_ns.unwrap_or(0);
                Err(Error::clock_steps(Nanos(at_ns.saturating_sub(first_ns)), by_ns))
            }
        }
    }

    /// Returns when packets that are left begin to lie as far from one side to the other as they
    /// cannot on one clock, in ns, and how much further than the others.
    fn step_of(&self, samples: &[Vec<Ahead>; 2]) -> Option<(u64, i64)> {
        let join = Join::new(&self.config.match_on, true, samples);
        let apart = join.apart(samples);
        let far = join.pairs.iter().zip(&apart).filter(|(_, ns)| !self.is_in_time(**ns));
        let (places, mut far): (Vec<usize>, Vec<i64>) =
            far.map(|((pre, _), ns)| (*pre, *ns)).unzip();
        let fewer = samples[0].len().min(samples[1].len());
        if far.len() < PROOF.max(fewer / 2) {
            return None;
        }
        far.sort_unstable();
        let by_ns = far[far.len() / 2];
        let near = |ns: &&i64| ns.abs_diff(by_ns) <= by_ns.unsigned_abs() / 10;
        let agree = far.iter().filter(near).count();
        let at_ns = places.into_iter().map(|place| samples[0][place].ts().0).min()?;
        (agree * 10 >= far.len() * 9).then_some((at_ns, by_ns))
    }

    /// These packets came out damaged.
    fn set_corrupt(&mut self, corruptions: Vec<Corruption>) {
        let sent = corruptions.iter().map(|of| (of.pre_ns, (of.flow, of.size_bytes))).collect();
        let seen = corruptions.iter().map(|of| of.post_ns).collect();
        let [sent, seen] = self.take_back(sent, seen);
        self.counts.corrupt += sent;
        self.counts.post_corrupt += seen;
        self.corruptions = corruptions;
    }

    /// Takes back that packets at these times are lost, and unknown: they came out in another form. Returns how many.
    fn take_back(&mut self, sent: Vec<(u64, (Flow, u32))>, seen: Vec<u64>) -> [u64; 2] {
        let last = |side: &crate::side::Side| side.last_ns.unwrap_or(0);
        let (pre_last, post_last) = (last(&self.pre.side), last(&self.post.side));
        let mut told: HashMap<u64, u64> = HashMap::new();
        let mut taken = [0, 0];
        for (ts, (flow, size_bytes)) in sent.into_iter().filter(|(ts, _)| *ts <= post_last) {
            if self.counts.lost == 0 {
                break;
            }
            self.counts.lost -= 1;
            taken[0] += 1;
            self.ledger.take_back(&flow, size_bytes);
            self.resegmented_ns.push(ts);
            *told.entry(ts).or_default() += 1;
        }
        self.tail.near_ns.retain(|ts| match told.get_mut(ts) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
        for ts in seen {
            if self.counts.post_unknown == 0 {
                break;
            }
            self.counts.post_unknown -= 1;
            taken[1] += 1;
            if ts > pre_last {
                self.tail.post_after = self.tail.post_after.saturating_sub(1);
            }
        }
        taken
    }
}
