//! The engine's answer, told in the reference's words.

use std::collections::HashMap;
use std::ops::ControlFlow;

use analysis::{
    Analysis, Basis, By, Clocks, Config, Error, Group, Histogram, Match, Observer, Packets,
    analyze_pair_on,
};
use capture::Reader;
use units::Nanos;

use crate::keys::match_on;
use crate::reference::{self, Counts, Figures, Question, Side, Worst};

/// Every match and every lost packet that the engine hands out, and the sizes of both.
#[derive(Default)]
pub struct Found {
    pub matches: Vec<Match>,
    pub lost: Vec<u64>,
    pub sizes: HashMap<u64, u32>,
}

impl Observer for Found {
    fn packets(&mut self, packets: &Packets<'_>) -> ControlFlow<()> {
        self.lost.extend(packets.lost.iter().map(|lost| lost.seq));
        let matched = packets.matches.iter().map(|found| found.seq);
        self.sizes.extend(matched.zip(packets.of_matches[1].iter().copied()));
        let lost = packets.lost.iter().map(|lost| lost.seq);
        self.sizes.extend(lost.zip(packets.of_lost[1].iter().copied()));
        ControlFlow::Continue(())
    }

    fn wants_packets(&self) -> bool {
        true
    }

    fn matches(&mut self, batch: &[Match]) -> ControlFlow<()> {
        self.matches.extend_from_slice(batch);
        ControlFlow::Continue(())
    }
}

/// What is asked, in the engine's words.
pub fn config(ask: &Question) -> Config {
    Config {
        match_on: match_on(&ask.match_on),
        window: Nanos(ask.window),
        trim: Nanos(ask.trim),
        worst: ask.worst,
        clocks: Clocks::Same,
        whole: false,
        ..Config::default()
    }
}

/// What a look at the beginning would have to find for that.
pub fn basis(ask: &Question) -> Basis {
    Basis { copies_ns: ask.copies, two_way: ask.two_way, ..Basis::default() }
}

/// What is asked of two capture files, held in memory, and nothing else.
pub fn ask(pre: Vec<u8>, post: Vec<u8>, ask: &Question) -> Result<(Analysis, Figures), Error> {
    run_on(pre, post, &config(ask), basis(ask))
}

/// Analyses two capture files, held in memory, where everything is decided.
pub fn run(pre: Vec<u8>, post: Vec<u8>, config: &Config) -> Result<(Analysis, Figures), Error> {
    run_on(pre, post, config, Basis::default())
}

fn run_on(
    pre: Vec<u8>,
    post: Vec<u8>,
    config: &Config,
    basis: Basis,
) -> Result<(Analysis, Figures), Error> {
    let (pre, post) = (Reader::from_bytes("pre", pre)?, Reader::from_bytes("post", post)?);
    let mut found = Found::default();
    let analysis = analyze_pair_on(pre, post, config, basis, &mut found)?;
    assert_eq!(found.sizes.len(), found.matches.len() + found.lost.len());
    check_groups(&analysis);
    let figures = figures(&analysis, &found.matches, &found.lost);
    Ok((analysis, figures))
}

/// Each packet that was sent is one of one group, whatever packets are grouped by.
fn check_groups(analysis: &Analysis) {
    let counts = &analysis.counts;
    let worst = analysis.worst.first().map(|packet| packet.latency_ns);
    for (_, by) in By::ALL {
        let groups = analysis.groups(by);
        let sum = |of: fn(&Group) -> u64| groups.iter().map(of).sum::<u64>();
        assert_eq!(sum(|group| group.matched), counts.matched, "{groups:?}");
        assert_eq!(sum(|group| group.lost), counts.lost, "{groups:?}");
        assert_eq!(sum(|group| group.sent), counts.sent, "{groups:?}");
        if worst.is_some() {
            assert_eq!(groups.iter().filter_map(|group| group.worst_ns).max(), worst);
        }
        let tails: u64 = groups.iter().filter_map(|group| group.tail).sum();
        let p99 = analysis.latency.quantiles(&[0.99]).first().map_or(0, |q| q.value_ns);
        let above = values(&analysis.latency).into_iter().filter(|ns| *ns > p99).count();
        assert_eq!(tails, above as u64);
    }
}

/// Every figure of an analysis.
pub fn figures(analysis: &Analysis, matches: &[Match], lost: &[u64]) -> Figures {
    let worst = analysis.worst.iter().map(|worst| Worst {
        latency: worst.latency_ns,
        pre_ts: worst.pre_ns,
        post_ts: worst.pre_ns + worst.latency_ns,
        seq: worst.seq,
    });
    let in_words = |found: &Match| reference::Match {
        seq: found.seq,
        post_seq: found.post_seq,
        pre_ts: found.pre_ns,
        post_ts: found.pre_ns + found.latency_ns,
    };
    Figures {
        counts: counts(analysis),
        matches: matches.iter().map(in_words).collect(),
        lost: lost.to_vec(),
        latencies: values(&analysis.latency),
        ipdv: values(analysis.variation.magnitude()),
        ipdv_range: analysis.variation.range_ns(),
        worst: worst.collect(),
        pre: side(&analysis.pre.side),
        post: side(&analysis.post.side),
    }
}

fn counts(analysis: &Analysis) -> Counts {
    let counts = &analysis.counts;
    Counts {
        pre_packets: analysis.pre.side.packets,
        pre_trimmed: counts.pre_trimmed,
        pre_unkeyed: counts.pre_unkeyed,
        ambiguous: counts.ambiguous,
        repeated: counts.repeated,
        reverse: counts.reverse,
        local: counts.local,
        sent: counts.sent,
        count: counts.matched,
        lost: counts.lost,
        late: counts.late,
        negative: counts.negative,
        outside: counts.outside,
        post_packets: analysis.post.side.packets,
        post_trimmed: counts.post_trimmed,
        post_unkeyed: counts.post_unkeyed,
        duplicated: counts.duplicated,
        post_negative: counts.post_negative,
        post_reverse: counts.post_reverse,
        post_ambiguous: counts.post_ambiguous,
        post_late: counts.post_late,
        post_outside: counts.post_outside,
        post_unknown: counts.post_unknown,
        reordered: analysis.reordered,
    }
}

fn side(side: &analysis::Side) -> Side {
    Side {
        received: side.packets,
        received_trimmed: side.kept,
        gaps: values(&side.gaps),
        per_second: side.rate.clone(),
    }
}

/// The values of a histogram, one by one, in ascending order.
pub fn values(histogram: &Histogram) -> Vec<u64> {
    let mut values = Vec::new();
    histogram.for_each(|value, count| values.extend(std::iter::repeat_n(value, count as usize)));
    values
}
