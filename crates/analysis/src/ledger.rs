//! What became of the packets of each flow: sent, matched, lost, and the runs of losses.
//!
//! A packet's variety waits here by its place before the device until the matcher has decided about it. That a
//! packet is lost is final some windows later: it may come late. Until then it waits, too.

use std::collections::{BTreeMap, VecDeque};

use probe::flow::Flow;

use crate::matcher::{Fate, Match};
use crate::tally::{Tallies, Tally};
use crate::varieties::{News, OTHERS, Variety};

/// Windows after which a packet that was lost can no longer turn out to be late.
const LATEST_WINDOWS: u64 = 4;
/// Fewest packets of a flow that prove that it goes elsewhere, and fewest of a run that is told.
pub(crate) const FEWEST: u64 = 10;
/// Probability that chance explains that a flow is never seen, for all flows together.
const CHANCE: f64 = 1e-6;
/// Packets that may wait for being lost for certain; of further ones only the number is kept.
const MOST_PENDING: usize = 1 << 20;
/// Latencies of flows that are kept as they are while packets come for days.
const MOST_EXACT_FOR_DAYS: usize = 1 << 18;
/// Runs of losses that are kept: those of the most packets.
const MOST_RUNS: usize = 1000;

/// Bounds of sizes, as of counters of switches (RFC 2819): less than 64 bytes, less than 128, ...
pub(crate) const SIZES: [u32; 6] = [64, 128, 256, 512, 1024, 1519];

/// A packet that did not come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Place of the packet in pre, in order of time; 0 is the first.
    pub seq: u64,
    /// Time at which it was seen before the device, in ns.
    pub pre_ns: u64,
    pub(crate) variety: u32,
    /// Packets of its flow, and of all flows, before it.
    nth: [u64; 2],
}

/// Packets that became final, with their flows and sizes: matches within the trimmed interval, and packets that
/// were lost, each in order of pre.
#[derive(Debug)]
pub struct Packets<'a> {
    /// Names of the flows that are new since the last call; flows are numbered from 0 in this order.
    pub flows: Vec<String>,
    /// The matches.
    pub matches: &'a [Match],
    /// Flow and size in bytes of each match.
    pub of_matches: [Vec<u32>; 2],
    /// The lost packets.
    pub lost: &'a [Lost],
    /// Flow and size in bytes of each of them.
    pub of_lost: [Vec<u32>; 2],
}

/// Packets of a flow, or of all, that were lost one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRun {
    /// The flow; `None` for all packets, whatever their flow.
    pub flow: Option<String>,
    /// Time of the first, in ns.
    pub start_ns: u64,
    /// Time of the last, in ns.
    pub end_ns: u64,
    /// Number of them.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Place of the next that would continue it.
    next: u64,
    start_ns: u64,
    end_ns: u64,
    lost: u64,
}

/// Account of a flow.
#[derive(Clone, Debug, Default)]
struct Account {
    /// Packets that are to be found behind the device, of which the fate is known.
    passed: u64,
    /// Packets that were seen behind the device, whatever the latency.
    seen: u64,
    run: Run,
    /// Matched and lost packets of all flows before its first packet, and up to its last.
    life: Option<[[u64; 2]; 2]>,
}

/// Packets of a group: of one flow, and one class of size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolls {
    pub matched: u64,
    pub lost: u64,
    pub elsewhere: u64,
    pub longest_ns: u64,
}

/// What became of the packets of each flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    window: u64,
    waiting: Waiting,
    flows: Vec<Flow>,
    varieties: Vec<Variety>,
    /// The group of each variety.
    groups: Vec<u32>,
    group_of: BTreeMap<(u32, u8), u32>,
    tolls: Vec<Tolls>,
    tallies: Tallies,
    accounts: Vec<Account>,
    pending: VecDeque<Lost>,
    /// Numbers of further packets that wait by their varieties, and the time of the last.
    crowd: BTreeMap<u32, u64>,
    crowd_ns: u64,
    /// Matched and lost packets of all flows.
    passed: [u64; 2],
    all: Run,
    runs: Vec<(Option<u32>, Run)>,
}

impl Ledger {
    pub fn new(window: u64, first_place: u64) -> Self {
        Self { window, waiting: Waiting::new(first_place), ..Self::default() }
    }

    /// Keeps fewer latencies as they are: packets come for days.
    pub fn for_days(mut self) -> Self {
        self.tallies = Tallies::keeping(MOST_EXACT_FOR_DAYS);
        self
    }

    /// Learns what varieties there are.
    pub fn learn(&mut self, news: News) {
        if self.flows.is_empty() {
            self.flows.push(Flow::default());
        }
        self.flows.extend(news.flows);
        self.accounts.resize_with(self.flows.len(), Account::default);
        for variety in news.varieties {
            let class = SIZES.partition_point(|bound| *bound <= variety.size_bytes) as u8;
            let next = self.group_of.len() as u32;
            self.groups.push(*self.group_of.entry((variety.flow, class)).or_insert(next));
            self.varieties.push(variety);
        }
        self.tolls.resize_with(self.group_of.len(), Tolls::default);
        self.tallies.grow(self.group_of.len());
    }

    /// Returns true if nothing is known of flows.
    pub fn is_empty(&self) -> bool {
        self.varieties.is_empty()
    }

    /// Takes the variety of the next packet before the device.
    #[inline]
    pub fn push(&mut self, variety: u32) {
        self.waiting.push(variety);
    }

    /// Returns the variety of a packet that is undecided, or was decided just now.
    pub fn variety(&self, seq: u64) -> Option<u32> {
        (!self.is_empty()).then(|| self.waiting.get(seq))
    }

    pub fn variety_of(&self, number: u32) -> Variety {
        self.varieties[number as usize]
    }

    pub fn forget_before(&mut self, seq: u64) {
        self.waiting.forget_before(seq);
    }

    pub fn flow_count(&self) -> usize {
        self.flows.len().saturating_sub(1)
    }

    pub fn flow(&self, number: u32) -> &Flow {
        &self.flows[number as usize]
    }

    /// Returns what a flow is called.
    pub fn flow_name(&self, number: u32) -> String {
        name_of(number, self.flow(number))
    }

    /// Returns packets as an observer hears of them that knows the names of `told` flows.
    pub fn packets<'a>(
        &self,
        told: &mut usize,
        matches: &'a [Match],
        lost: &'a [Lost],
    ) -> Packets<'a> {
        let new = (0u32..).zip(&self.flows).skip(*told);
        let flows = new.map(|(number, flow)| name_of(number, flow)).collect();
        *told = self.flows.len();
        let columns = |varieties: &mut dyn Iterator<Item = u32>| {
            let all = varieties.map(|number| self.varieties[number as usize]);
            let (flow, size_bytes) = all.map(|of| (of.flow, of.size_bytes)).unzip();
            [flow, size_bytes]
        };
        let of_matches = columns(&mut matches.iter().map(|found| self.waiting.get(found.seq)));
        let of_lost = columns(&mut lost.iter().map(|lost| lost.variety));
        Packets { flows, matches, of_matches, lost, of_lost }
    }

    /// Takes what became of packets.
    pub fn settle(&mut self, matches: &[Match], fates: &[Fate]) {
        let mut rest = matches;
        for fate in fates {
            let (before, behind) = rest.split_at(rest.partition_point(|of| of.seq <= fate.at()));
            self.take_matches(before);
            self.take(fate);
            rest = behind;
        }
        self.take_matches(rest);
    }

    /// Takes matches, as many at once as are of one variety.
    fn take_matches(&mut self, mut matches: &[Match]) {
        while let Some(first) = matches.first() {
            let (variety, end) = self.waiting.run(first.seq);
            let alike = matches.iter().position(|of| of.seq >= end).unwrap_or(matches.len());
            let (alike, behind) = matches.split_at(alike);
            self.take_alike(variety as usize, alike);
            matches = behind;
        }
    }

    #[inline]
    fn take_alike(&mut self, variety: usize, alike: &[Match]) {
        let (group, count) = (self.groups[variety] as usize, alike.len() as u64);
        let latencies = alike.iter().map(|found| found.latency_ns);
        let toll = &mut self.tolls[group];
        toll.matched += count;
        toll.longest_ns = latencies.clone().fold(toll.longest_ns, u64::max);
        self.tallies.record_all(group, latencies);
        let account = &mut self.accounts[self.varieties[variety].flow as usize];
        account.passed += count;
        account.seen += count;
        account.lives([self.passed[0] + 1, self.passed[1]]);
        self.passed[0] += count;
        account.lives(self.passed);
    }

    fn take(&mut self, fate: &Fate) {
        match *fate {
            Fate::Late { seq } => {
                if let Ok(at) = self.pending.binary_search_by_key(&seq, |lost| lost.seq) {
                    let lost = self.pending.remove(at).expect("it was found");
                    let flow = self.varieties[lost.variety as usize].flow;
                    self.accounts[flow as usize].seen += 1;
                    self.tolls[self.groups[lost.variety as usize] as usize].elsewhere += 1;
                }
            }
            Fate::Lost { seq, pre_ns } => {
                let variety = self.waiting.get(seq);
                let account = &mut self.accounts[self.varieties[variety as usize].flow as usize];
                let nth = [account.passed, self.passed[0] + self.passed[1]];
                account.passed += 1;
                self.passed[1] += 1;
                account.lives(self.passed);
                if self.pending.len() < MOST_PENDING && self.crowd.is_empty() {
                    self.pending.push_back(Lost { seq, pre_ns, variety, nth });
                } else {
                    *self.crowd.entry(variety).or_default() += 1;
                    self.crowd_ns = pre_ns;
                }
            }
            Fate::Outside { seq, .. } => self.pass(seq, [1, 0]),
            Fate::Negative { seq } => self.pass(seq, [1, 1]),
            Fate::Ambiguous { seq, .. } => self.pass(seq, [0, 1]),
        }
    }

    /// Takes that a packet has no latency, and is not lost: whether it was seen behind the device.
    pub fn pass(&mut self, seq: u64, [elsewhere, seen]: [u64; 2]) {
        let variety = self.waiting.get(seq) as usize;
        self.tolls[self.groups[variety] as usize].elsewhere += elsewhere;
        self.accounts[self.varieties[variety].flow as usize].seen += seen;
    }

    /// Takes the lost packets that no longer can be late at a time, when the last packet behind the device was seen
    /// at `newest_post_ns`: those that were sent later may be outside of its capture.
    pub fn take_lost(&mut self, now_ns: u64, newest_post_ns: u64, into: &mut Vec<Lost>) {
        let latest = now_ns.saturating_sub(LATEST_WINDOWS.saturating_mul(self.window));
        let latest = latest.min(newest_post_ns.saturating_sub(self.window));
        while self.pending.front().is_some_and(|lost| lost.pre_ns < latest) {
            let lost = self.pending.pop_front().expect("there is one");
            self.count_lost(&lost);
            into.push(lost);
        }
        if self.pending.is_empty() && !self.crowd.is_empty() && newest_post_ns > self.crowd_ns {
            self.count_crowd(false);
        }
    }

    /// Counts those that did not fit beside the others, of which only the number is known.
    fn count_crowd(&mut self, is_outside: bool) {
        for (variety, count) in std::mem::take(&mut self.crowd) {
            let toll = &mut self.tolls[self.groups[variety as usize] as usize];
            let sum = if is_outside { &mut toll.elsewhere } else { &mut toll.lost };
            *sum += count;
        }
    }

    /// Takes all that are left, except those that the captures do not prove to be lost.
    pub fn take_rest(&mut self, is_outside: impl Fn(u64) -> bool, into: &mut Vec<Lost>) {
        self.count_crowd(is_outside(self.crowd_ns));
        for lost in std::mem::take(&mut self.pending) {
            if is_outside(lost.pre_ns) {
                self.tolls[self.groups[lost.variety as usize] as usize].elsewhere += 1;
                continue;
            }
            self.count_lost(&lost);
            into.push(lost);
        }
        let flows = (0u32..).zip(&mut self.accounts);
        let open = flows.map(|(flow, account)| (Some(flow), std::mem::take(&mut account.run)));
        let open: Vec<_> = open.chain([(None, std::mem::take(&mut self.all))]).collect();
        open.into_iter().for_each(|(flow, run)| self.end_run(flow, run));
    }

    fn count_lost(&mut self, lost: &Lost) {
        self.tolls[self.groups[lost.variety as usize] as usize].lost += 1;
        let flow = self.varieties[lost.variety as usize].flow;
        let ended = self.accounts[flow as usize].run.extend(lost.nth[0], lost.pre_ns);
        self.end_run(Some(flow), ended);
        let ended = self.all.extend(lost.nth[1], lost.pre_ns);
        self.end_run(None, ended);
    }

    fn end_run(&mut self, flow: Option<u32>, run: Run) {
        if run.lost < FEWEST {
            return;
        }
        self.runs.push((flow, run));
        if self.runs.len() >= 2 * MOST_RUNS {
            self.runs.sort_by_key(|(_, run)| std::cmp::Reverse(run.lost));
            self.runs.truncate(MOST_RUNS);
        }
    }

    /// Takes back that a packet of a flow was lost: it came out in another form.
    pub fn take_back(&mut self, flow: &Flow, size_bytes: u32) {
        let Some(number) = self.flows.iter().position(|known| known == flow) else { return };
        let number = number as u32;
        let class = SIZES.partition_point(|bound| *bound <= size_bytes) as u8;
        let Some(&group) = self.group_of.get(&(number, class)) else { return };
        let toll = &mut self.tolls[group as usize];
        let one = toll.lost.min(1);
        toll.lost -= one;
        toll.elsewhere += one;
        self.accounts[number as usize].seen += one;
    }

    /// Returns the numbers of flows that are never seen behind the device, where chance does not explain that:
    /// they may go elsewhere.
    pub fn unseen(&self) -> Vec<u32> {
        let mut lost = vec![0; self.accounts.len()];
        for ((flow, _), group) in &self.group_of {
            lost[*flow as usize] += self.tolls[*group as usize].lost;
        }
        let flows = self.accounts.len().max(1) as f64;
        let is_unseen = |(number, account): &(u32, &Account)| {
            let own = lost[*number as usize];
            let Some([before, until]) = account.life else { return false };
            let others = [until[0] - before[0], until[1] - before[1]];
            let (matched, lost) = (others[0] as f64, others[1].saturating_sub(own) as f64);
            let share = (lost + 1.0) / (matched + lost + 1.0);
            *number != OTHERS
                && account.seen == 0
                && own >= FEWEST
                && own as f64 * share.ln() < (CHANCE / flows).ln()
        };
        let all = (0u32..).zip(&self.accounts).filter(is_unseen);
        all.map(|(number, _)| number).collect()
    }

    /// Returns how often packets of each flow were seen behind the device, and how many were not.
    pub fn sightings(&self) -> BTreeMap<Flow, [u64; 2]> {
        let mut lost = vec![0; self.accounts.len()];
        for ((flow, _), group) in &self.group_of {
            lost[*flow as usize] += self.tolls[*group as usize].lost;
        }
        let all = self.flows.iter().zip(&self.accounts).zip(lost).skip(1);
        all.map(|((flow, account), lost)| (*flow, [account.seen, lost])).collect()
    }

    /// Returns the number of lost packets of some flows.
    pub fn lost_of(&self, flows: &[u32]) -> u64 {
        let own = self.group_of.iter().filter(|((flow, _), _)| flows.contains(flow));
        own.map(|(_, group)| self.tolls[*group as usize].lost).sum()
    }

    /// Returns flow, class of size, numbers and latencies of each group.
    pub fn groups(&self) -> impl Iterator<Item = (u32, u8, Tolls, &Tally)> + '_ {
        self.group_of.iter().map(|(&(flow, class), &group)| {
            (flow, class, self.tolls[group as usize], self.tallies.of(group as usize))
        })
    }

    /// Returns the runs of at least ten lost packets of flows that are told, and of all, those of the most packets
    /// first.
    pub fn runs(&self, is_told: impl Fn(u32) -> bool) -> Vec<LossRun> {
        let mut runs = self.runs.clone();
        runs.retain(|(flow, _)| flow.is_none_or(&is_told));
        runs.sort_by_key(|(flow, run)| (std::cmp::Reverse(run.lost), run.start_ns, *flow));
        runs.truncate(MOST_RUNS);
        let named = |(flow, run): (Option<u32>, Run)| LossRun {
            flow: flow.map(|number| name_of(number, self.flow(number))),
            start_ns: run.start_ns,
            end_ns: run.end_ns,
            lost: run.lost,
        };
        runs.into_iter().map(named).collect()
    }
}

pub(crate) fn name_of(number: u32, flow: &Flow) -> String {
    if number == OTHERS { "other flows".into() } else { flow.to_string() }
}

impl Account {
    #[inline]
    fn lives(&mut self, passed: [u64; 2]) {
        match &mut self.life {
            Some([_, until]) => *until = passed,
            None => self.life = Some([passed, passed]),
        }
    }
}

impl Run {
    /// Adds a lost packet, or begins anew with it: then the former run is returned.
    fn extend(&mut self, place: u64, ts: u64) -> Self {
        if self.lost > 0 && self.next == place {
            (self.next, self.end_ns, self.lost) = (place + 1, ts, self.lost + 1);
            return Self::default();
        }
        let begun = Self { next: place + 1, start_ns: ts, end_ns: ts, lost: 1 };
        std::mem::replace(self, begun)
    }
}

const CHUNK: usize = 4096;

/// Varieties of packets by their place, a chunk in as few bytes as its numbers need.
#[derive(Clone, Debug, Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    /// Place of the first of all.
    first: u64,
    newest: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Chunk {
    Same(u32),
    Bytes(Box<[u8]>),
    Halves(Box<[u16]>),
    Words(Box<[u32]>),
}

impl Waiting {
    fn new(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    #[inline]
    fn push(&mut self, variety: u32) {
        self.newest.push(variety);
        if self.newest.len() == CHUNK {
            self.narrow();
        }
    }

    fn narrow(&mut self) {
        let (first, most) = (self.newest[0], *self.newest.iter().max().expect("it is full"));
        let chunk = if self.newest.iter().all(|variety| *variety == first) {
            Chunk::Same(first)
        } else if most <= u32::from(u8::MAX) {
            Chunk::Bytes(self.newest.iter().map(|variety| *variety as u8).collect())
        } else if most <= u32::from(u16::MAX) {
            Chunk::Halves(self.newest.iter().map(|variety| *variety as u16).collect())
        } else {
            Chunk::Words(self.newest.iter().copied().collect())
        };
        self.chunks.push_back(chunk);
        self.newest.clear();
    }

    #[inline]
    fn get(&self, place: u64) -> u32 {
        let at = (place - self.first) as usize;
        match self.chunks.get(at / CHUNK) {
            None => self.newest[at - self.chunks.len() * CHUNK],
            Some(Chunk::Same(variety)) => *variety,
            Some(Chunk::Bytes(of)) => of[at % CHUNK].into(),
            Some(Chunk::Halves(of)) => of[at % CHUNK].into(),
            Some(Chunk::Words(of)) => of[at % CHUNK],
        }
    }

    /// Returns the variety at a place, and a place up to which all have it.
    #[inline]
    fn run(&self, place: u64) -> (u32, u64) {
        let at = (place - self.first) as usize;
        match self.chunks.get(at / CHUNK) {
            Some(Chunk::Same(variety)) => (*variety, self.first + (at - at % CHUNK + CHUNK) as u64),
            _ => (self.get(place), place + 1),
        }
    }

    fn forget_before(&mut self, place: u64) {
        while !self.chunks.is_empty() && self.first + CHUNK as u64 <= place {
            self.chunks.pop_front();
            self.first += CHUNK as u64;
        }
    }
}
