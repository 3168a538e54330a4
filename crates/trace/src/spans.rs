//! The events of one CPU as spans, and as segments that do not overlap.

use crate::event::{Kind, What};
use std::collections::{BTreeMap, BTreeSet};

/// Something that kept a CPU from the measured task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Kind of the interruption.
    pub kind: Kind,
    /// Time at which it began,
    pub start: u64,
    /// Time at which it ended; equal for what is told only once.
    pub end: u64,
    /// Duration without what interrupted it.
    pub own: u64,
    /// The function that was called in it last, by address; 0 for none. What a worker runs is its
    /// kind's.
    pub function: u64,
    /// True if it flushed the translation buffer for another CPU.
    pub flush: bool,
}

/// A stretch of a span that nothing interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Time at which it began,
    pub start: u64,
    /// and when it ended.
    pub end: u64,
    /// The span, by its place in the list.
    pub span: usize,
}

const NS_PER_S: u128 = 1_000_000_000;
/// Softirqs of packets: sent and received.
const OF_PACKETS: [u64; 2] = [2, 3];

/// Follows one CPU.
#[derive(Debug, Default)]
pub struct Follower {
    measured: BTreeSet<i32>,
    ticks_per_s: u64,
    /// The task that runs, where that is known.
    running: Option<i32>,
    /// Time at which the last event was,
    last: u64,
    /// and the last one before a loss that is not over.
    lost_since: Option<u64>,
    /// Open ones by place; what is above interrupts what is below.
    open: Vec<usize>,
    /// Time since which the top one runs without interruption.
    since: u64,
    /// Softirqs of packets that were wanted and have not begun since.
    pending: BTreeSet<u64>,
    /// Functions of workqueues that workers have begun here, by the worker's number.
    works: BTreeMap<i32, u64>,
    /// Place of the first span of the turn that is told by one function.
    turn: usize,
    /// Interruptions in the order in which they began, or were told.
    pub spans: Vec<Span>,
    /// Segments in order of time.
    pub segments: Vec<Segment>,
    /// Gaps in what is known: times of the last event before, and of the first one after.
    pub gaps: Vec<(u64, u64)>,
    /// Switches to another task that the kernel did not tell.
    pub untold_switches: u64,
}

impl Follower {
    /// Returns a stack that takes the tasks `measured`, and the idle one, for what the CPU is for;
    /// times are in ticks of a clock of `ticks_per_s`.
    #[must_use]
    pub fn new(measured: impl IntoIterator<Item = i32>, ticks_per_s: u64) -> Self {
        let measured = measured.into_iter().chain([0]).collect();
        Self { measured, ticks_per_s, ..Self::default() }
    }

    /// Takes the next event, during which the task `pid` was the CPU's.
    pub fn take(&mut self, time: u64, pid: i32, what: What) {
        if what.tells_task() {
            self.see(time, pid, matches!(what, What::Switch { .. }));
        }
        self.last = time;
        match what {
            What::Enter(kind) => {
                let begun = if let Kind::Softirq(vec) = kind { Some(vec) } else { None };
                self.enter(time, kind);
                self.pending.retain(|vec| Some(*vec) != begun);
            }
            What::RaiseSoftirq(vec) => {
                self.segment(time);
                self.pending.extend(OF_PACKETS.contains(&vec).then_some(vec));
            }
            What::ExitVector(name) => {
                self.exit(time, |kind| matches!(kind, Kind::Vector(own) if *own == name));
            }
            What::ExitIrq(irq) => {
                self.exit(time, |kind| matches!(kind, Kind::Irq { number, .. } if *number == irq));
            }
            What::ExitSoftirq(vec) => self.exit(time, |kind| *kind == Kind::Softirq(vec)),
            What::Instant(kind) => self.spans.push(Span::at(time, kind)),
            What::Past { kind, duration_ns } => self.past(time, kind, duration_ns),
            What::Switch { pid: next, comm } => {
                let goes_on_here = self.is_bound();
                self.end(time);
                if !goes_on_here {
                    self.works.remove(&pid);
                }
                self.running = Some(next);
                self.begin_task(time, next, comm);
            }
            What::RemoteFlush => {
                if let Some(span) = self.top() {
                    span.flush = true;
                }
            }
            What::Function(address) => {
                if let Some(span) = self.top() {
                    span.function = address;
                }
            }
            What::Work(address) => match self.work() {
                Some(before) => {
                    self.works.insert(pid, address);
                    if before == 0 {
                        self.name_turn(address);
                    } else {
                        self.begin_turn(time, address);
                    }
                }
                None => {
                    if let Some(span) = self.top() {
                        span.function = address;
                    }
                }
            },
            What::EndWork(address) => {
                if let Some(before) = self.work() {
                    self.works.remove(&pid);
                    if before == 0 && address == 0 {
                        self.begin_turn(time, 0);
                    } else if before == 0 {
                        self.name_turn(address);
                    }
                }
            }
            What::Send { .. } => {}
        }
    }

    /// Events were lost: what was open may have ended since, and is followed no further; another task
    /// may run.
    pub fn forget(&mut self) {
        self.end(self.since);
        self.pending.clear();
        self.works.clear();
        self.running = None;
        self.lost_since = self.lost_since.or(Some(self.last));
    }

    /// Ends what is open now: nothing more comes.
    pub fn end(&mut self, time: u64) {
        while !self.open.is_empty() {
            self.close(time);
        }
    }

    /// Notes that the task `pid` has the CPU. If another one had it, a switch was not told: some
    /// kernels leave out a few.
    fn see(&mut self, time: u64, pid: i32, leaves: bool) {
        if self.running.is_some_and(|running| running != pid) {
            self.untold_switches += 1;
            self.forget();
        }
        self.gaps.extend(self.lost_since.take().map(|from| (from, time)));
        if self.running.replace(pid).is_none() && !leaves {
            self.begin_task(time, pid, String::new());
        }
    }

    fn begin_task(&mut self, time: u64, pid: i32, comm: String) {
        self.turn = self.spans.len();
        if !self.measured.contains(&pid) {
            let work = self.works.get(&pid).copied().unwrap_or(0);
            self.enter(time, Kind::Task { pid, comm, holds: false, work });
        }
    }

    /// Returns true if the task that runs is a worker of this CPU alone: `kworker/CPU:NUMBER`.
    fn is_bound(&self) -> bool {
        let Some(Kind::Task { comm, .. }) = self.open.first().map(|at| &self.spans[*at].kind)
        else {
            return false;
        };
        let place = comm.strip_prefix("kworker/").unwrap_or_default();
        place.starts_with(|first: char| first.is_ascii_digit())
    }

    /// Returns the work by which the task that runs is told, 0 for none; `None` if there is no task,
    /// or something interrupts it.
    fn work(&self) -> Option<u64> {
        match self.open.last().map(|at| &self.spans[*at].kind) {
            Some(Kind::Task { work, .. }) => Some(*work),
            _ => None,
        }
    }

    /// Tells what the task has done since its turn began by a work.
    fn name_turn(&mut self, address: u64) {
        for span in &mut self.spans[self.turn..] {
            if let Kind::Task { work, .. } = &mut span.kind {
                *work = address;
            }
        }
    }

    /// Tells what the task does from now on by a work.
    fn begin_turn(&mut self, time: u64, work: u64) {
        let top = self.top().map(|span| span.kind.clone());
        if let Some(Kind::Task { pid, comm, .. }) = top {
            self.close(time);
            self.turn = self.spans.len();
            self.enter(time, Kind::Task { pid, comm, holds: false, work });
        }
    }

    fn top(&mut self) -> Option<&mut Span> {
        self.open.last().map(|at| &mut self.spans[*at])
    }

    fn enter(&mut self, time: u64, kind: Kind) {
        self.segment(time);
        self.open.push(self.spans.len());
        self.spans.push(Span::at(time, kind));
    }

    fn exit(&mut self, time: u64, is: impl Fn(&Kind) -> bool) {
        // One whose beginning was not seen, or was lost, ends nothing.
        let Some(depth) = self.open.iter().rposition(|at| is(&self.spans[*at].kind)) else {
            return;
        };
        while self.open.len() > depth {
            self.close(time);
        }
    }

    /// Adds an interruption that was above all that is open; nothing was above it.
    fn past(&mut self, time: u64, kind: Kind, duration_ns: u64) {
        let ticks = u128::from(duration_ns) * u128::from(self.ticks_per_s) / NS_PER_S;
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        self.enter(time.saturating_sub(ticks).max(self.since), kind);
        self.close(time);
    }

    fn close(&mut self, time: u64) {
        self.segment(time);
        if let Some(at) = self.open.pop() {
            let span = &mut self.spans[at];
            span.end = self.since;
            assert!(span.start <= span.end, "a span ends after it began");
            assert!(span.own <= span.end - span.start, "no more is its own than there is");
        }
    }

    /// Ends the stretch of the top one. A task in which softirqs begin to wait, or no longer do, is
    /// another span from then on.
    fn segment(&mut self, time: u64) {
        let (start, end) = (self.since, time.max(self.since));
        self.since = end;
        if let Some(at) = self.open.last_mut().filter(|_| end > start) {
            let holds = !self.pending.is_empty();
            if let Some(kind) = self.spans[*at].kind.changed(holds) {
                self.spans[*at].end = start;
                *at = self.spans.len();
                self.spans.push(Span::at(start, kind));
            }
            let span = *at;
            let apart = self.segments.last().is_none_or(|last| last.end <= start);
            assert!(apart, "segments never overlap");
            self.spans[span].own += end - start;
            self.segments.push(Segment { start, end, span });
        }
    }
}

impl Span {
    fn at(time: u64, kind: Kind) -> Self {
        Self { kind, start: time, end: time, own: 0, function: 0, flush: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector(name: &str) -> Kind {
        Kind::Vector(name.into())
    }

    #[test]
    fn what_interrupts_is_not_counted_twice() {
        let mut follower = Follower::new([5], 1);
        let task = |pid| What::Switch { pid, comm: "other".into() };
        for (time, pid, what) in [
            (10, 5, task(9)),
            (20, 9, What::Enter(vector("local_timer"))),
            (22, 9, What::Function(77)),
            (25, 9, What::ExitVector("local_timer".into())),
            (25, 9, What::Enter(Kind::Softirq(1))),
            (26, 9, What::Instant(Kind::PageFault)),
            (28, 9, What::ExitSoftirq(1)),
            (40, 9, task(5)),
            (50, 5, What::Enter(vector("call_function"))),
            (51, 5, What::RemoteFlush),
            (53, 5, What::ExitVector("call_function".into())),
        ] {
            follower.take(time, pid, what);
        }
        let spans: Vec<_> =
            follower.spans.iter().map(|span| (span.start, span.end, span.own)).collect();
        assert_eq!(spans, [(10, 40, 22), (20, 25, 5), (25, 28, 3), (26, 26, 0), (50, 53, 3)]);
        assert_eq!(follower.spans[1].function, 77);
        assert!(follower.spans[4].flush && !follower.spans[1].flush);
        let segments: Vec<_> =
            follower.segments.iter().map(|part| (part.start, part.end, part.span)).collect();
        assert_eq!(segments, [(10, 20, 0), (20, 25, 1), (25, 28, 2), (28, 40, 0), (50, 53, 4)]);
        assert!(follower.gaps.is_empty() && follower.untold_switches == 0);
    }

    #[test]
    fn a_task_holds_softirqs_from_when_they_are_wanted_until_they_begin() {
        let mut follower = Follower::new([5], 1);
        let timer = || What::Enter(vector("local_timer"));
        for (time, pid, what) in [
            (10, 5, What::Switch { pid: 9, comm: "other".into() }),
            (20, 9, timer()),
            (21, 9, What::RaiseSoftirq(1)),
            (22, 9, What::RaiseSoftirq(3)),
            (25, 9, What::ExitVector("local_timer".into())),
            (25, 9, What::Enter(Kind::Softirq(3))),
            (28, 9, What::RaiseSoftirq(3)),
            (30, 9, What::ExitSoftirq(3)),
            (50, 9, What::Switch { pid: 4, comm: "ksoftirqd/0".into() }),
            (51, 4, What::Enter(Kind::Softirq(3))),
            (55, 4, What::ExitSoftirq(3)),
            (60, 4, What::Switch { pid: 5, comm: "own".into() }),
        ] {
            follower.take(time, pid, what);
        }
        let parts: Vec<_> = follower
            .segments
            .iter()
            .filter_map(|part| match follower.spans[part.span].kind {
                Kind::Task { pid, holds, .. } => Some((part.start, part.end, pid, holds)),
                _ => None,
            })
            .collect();
        // What an interrupt wants begins right behind it: the task below holds up nothing.
        let ksoftirqd = [(50, 51, 4, true), (55, 60, 4, false)];
        assert_eq!(parts, [vec![(10, 20, 9, false), (30, 50, 9, true)], ksoftirqd.into()].concat());
    }

    /// Stretches of tasks, with the function of a workqueue that ran in each.
    fn works(follower: &Follower) -> Vec<(u64, u64, u64)> {
        let stretch = |part: &Segment| match follower.spans[part.span].kind {
            Kind::Task { work, .. } => Some((part.start, part.end, work)),
            _ => None,
        };
        follower.segments.iter().filter_map(stretch).collect()
    }

    #[test]
    fn a_worker_is_told_by_its_work_and_its_way_there_and_back_too() {
        let to = |pid, comm: &str| What::Switch { pid, comm: comm.into() };
        let mut follower = Follower::new([5], 1);
        for (time, pid, what) in [
            (10, 5, to(9, "kworker/1:2")),
            (12, 9, What::Work(71)),
            (20, 9, What::Enter(vector("local_timer"))),
            (21, 9, What::Enter(Kind::Softirq(6))),
            // A work that runs in a softirq is none of the task below.
            (22, 9, What::Work(99)),
            (23, 9, What::EndWork(99)),
            (24, 9, What::ExitSoftirq(6)),
            (25, 9, What::ExitVector("local_timer".into())),
            (30, 9, What::EndWork(71)),
            (31, 9, What::Work(72)),
            // It sleeps within, and goes on later.
            (40, 9, to(5, "own")),
            (50, 5, to(9, "kworker/1:2")),
            (60, 9, What::EndWork(72)),
            (61, 9, to(5, "own")),
            // It looks for work, and finds none.
            (70, 5, to(9, "kworker/1:2")),
            (72, 9, to(5, "own")),
        ] {
            follower.take(time, pid, what);
        }
        let told = [(10, 20, 71), (25, 31, 71), (31, 40, 72), (50, 61, 72), (70, 72, 0)];
        assert_eq!(works(&follower), told);
        let softirq = follower.spans.iter().find(|span| span.kind == Kind::Softirq(6));
        assert_eq!(softirq.map(|span| span.function), Some(99));
    }

    #[test]
    fn a_worker_that_may_go_on_elsewhere_is_told_by_what_it_ends() {
        let to = |pid, comm: &str| What::Switch { pid, comm: comm.into() };
        for (comm, then) in [("kworker/u8:1", 0), ("writeback", 0), ("kworker/0:1", 71)] {
            let mut follower = Follower::new([5], 1);
            for (time, pid, what) in [
                (10, 5, to(9, comm)),
                (10, 9, What::Work(71)),
                (20, 9, to(5, "own")),
                (30, 5, to(9, comm)),
                (40, 9, to(5, "own")),
                (50, 5, to(9, comm)),
                (52, 9, What::RaiseSoftirq(3)),
                (55, 9, What::EndWork(71)),
                (60, 9, to(5, "own")),
            ] {
                follower.take(time, pid, what);
            }
            let told = [(10, 20, 71), (30, 40, then), (50, 52, 71), (52, 60, 71)];
            assert_eq!(works(&follower), told);
            follower.forget();
            follower.take(70, 5, to(9, comm));
            follower.end(80);
            assert_eq!(works(&follower).last(), Some(&(70, 80, 0)));
        }
    }

    #[test]
    fn a_work_that_began_unseen_is_not_told_by_the_next_one() {
        let mut follower = Follower::new([5], 1);
        let worker = What::Switch { pid: 9, comm: "kworker/u8:1".into() };
        follower.take(5, 5, worker);
        for (time, what) in [(10, What::EndWork(0)), (12, What::Work(72)), (20, What::EndWork(0))] {
            follower.take(time, 9, what);
        }
        follower.end(21);
        assert_eq!(works(&follower), [(5, 10, 0), (10, 21, 72)]);
    }

    #[test]
    fn an_end_without_a_beginning_is_nothing() {
        let mut follower = Follower::new([], 1);
        follower.take(5, 0, What::ExitIrq(3));
        follower.take(6, 0, What::Enter(vector("reschedule")));
        follower.forget();
        follower.take(9, 0, What::ExitVector("reschedule".into()));
        assert!(follower.segments.is_empty() && follower.spans.len() == 1);
    }

    #[test]
    fn the_task_that_runs_is_known_from_the_first_event_on() {
        let mut follower = Follower::new([5], 1);
        let timer = || What::Enter(vector("local_timer"));
        follower.take(10, 7, timer());
        follower.take(12, 7, What::ExitVector("local_timer".into()));
        follower.take(20, 7, What::Switch { pid: 5, comm: "own".into() });
        follower.forget();
        follower.take(50, 8, timer());
        follower.end(60);
        let spans: Vec<_> = follower.spans.iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(spans, [(10, 20), (10, 12), (50, 60), (50, 60)]);
        assert_eq!(follower.gaps, [(20, 50)]);
        assert!(matches!(follower.spans[2].kind, Kind::Task { pid: 8, .. }));
    }

    #[test]
    fn a_switch_that_was_not_told_is_noticed_at_the_next_event() {
        let mut follower = Follower::new([5], 1);
        let timer = || What::Enter(vector("local_timer"));
        let over = || What::ExitVector("local_timer".into());
        let task = |pid| What::Switch { pid, comm: "other".into() };
        for (time, pid, what) in [
            (10, 5, task(9)),
            (12, 9, timer()),
            (14, 9, over()),
            // Task 5 runs again.
            (70, 5, timer()),
            (72, 5, over()),
            // Task 8 came, and leaves.
            (90, 8, task(5)),
            // An NMI in the middle of a switch.
            (95, 8, What::Instant(Kind::Nmi)),
        ] {
            follower.take(time, pid, what);
        }
        let spans: Vec<_> = follower.spans.iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(spans, [(10, 14), (12, 14), (70, 72), (95, 95)]);
        assert_eq!(follower.gaps, [(14, 70), (72, 90)]);
        assert_eq!(follower.untold_switches, 2);
    }

    #[test]
    fn what_was_seen_before_a_loss_remains() {
        let mut follower = Follower::new([], 1);
        follower.take(10, 0, What::Enter(vector("local_timer")));
        follower.take(15, 0, What::Enter(Kind::Softirq(1)));
        follower.forget();
        follower.take(90, 0, What::ExitSoftirq(1));
        let spans: Vec<_> =
            follower.spans.iter().map(|span| (span.start, span.end, span.own)).collect();
        assert_eq!(spans, [(10, 15, 5), (15, 15, 0)]);
    }

    #[test]
    fn what_is_told_afterwards_has_its_time() {
        let mut follower = Follower::new([], 2_000_000_000);
        let nmi = |duration_ns| What::Past { kind: Kind::Nmi, duration_ns };
        for (time, what) in [
            (10, nmi(3)),
            (20, What::Enter(vector("local_timer"))),
            (30, nmi(2)),
            (40, nmi(50)),
            (45, What::ExitVector("local_timer".into())),
        ] {
            follower.take(time, 0, what);
        }
        let spans: Vec<_> =
            follower.spans.iter().map(|span| (span.start, span.end, span.own)).collect();
        assert_eq!(spans, [(4, 10, 6), (20, 45, 11), (26, 30, 4), (30, 40, 10)]);
        let segments: Vec<_> =
            follower.segments.iter().map(|part| (part.start, part.end, part.span)).collect();
        assert_eq!(segments, [(4, 10, 0), (20, 26, 1), (26, 30, 2), (30, 40, 3), (40, 45, 1)]);
    }

    fn anything() -> impl Strategy<Value = What> {
        let name = prop::sample::select(vec!["local_timer", "reschedule"]);
        prop_oneof![
            name.clone().prop_map(|name| What::Enter(vector(name))),
            name.prop_map(|name| What::ExitVector(name.into())),
            (0..3_u64).prop_map(|vec| What::Enter(Kind::Softirq(vec))),
            (0..3_u64).prop_map(What::ExitSoftirq),
            (1..4_u64).prop_map(What::RaiseSoftirq),
            (0..4).prop_map(|pid| What::Switch { pid, comm: format!("kworker/{pid}:0") }),
            (1..3_u64).prop_map(What::Work),
            (0..3_u64).prop_map(What::EndWork),
            Just(What::Instant(Kind::PageFault)),
            (0..60_u64).prop_map(|duration_ns| What::Past { kind: Kind::Nmi, duration_ns }),
        ]
    }

    proptest! {
        #[test]
        fn segments_never_overlap_and_make_up_spans(
            events in prop::collection::vec((0..50_u64, 0..4, prop::option::of(anything())), 0..60)
        ) {
            let mut follower = Follower::new([1], 2_000_000_000);
            let mut time = 0;
            for (after, pid, what) in events {
                time += after;
                match what {
                    Some(what) => follower.take(time, pid, what),
                    None => follower.forget(),
                }
            }
            follower.end(time);
            prop_assert!(follower.segments.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for (at, span) in follower.spans.iter().enumerate() {
                let parts = follower.segments.iter().filter(|part| part.span == at);
                prop_assert_eq!(parts.map(|part| part.end - part.start).sum::<u64>(), span.own);
                prop_assert!(span.own <= span.end - span.start);
            }
            for &(from, to) in &follower.gaps {
                let apart = |part: &Segment| part.end <= from || part.start >= to;
                let told = |part: &Segment| follower.spans[part.span].kind == Kind::Nmi;
                prop_assert!(follower.segments.iter().all(|part| apart(part) || told(part)));
            }
        }
    }
}
