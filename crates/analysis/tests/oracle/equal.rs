//! The engine equals the reference in every figure.

use std::fmt::Debug;

use crate::engine;
use crate::generate::{self, Case, Dice, pcap};
use crate::reference::{Figures, Packet, Twist, figures};

/// Pairs of hostile captures. Each is a few dozen packets, so that a failure can be read.
const CASES: u64 = 3_000;

/// Where two sets of figures first differ, in words.
pub fn difference(got: &Figures, want: &Figures) -> Option<String> {
    fn differ<T: PartialEq + Debug>(what: &str, got: &T, want: &T) -> Option<String> {
        (got != want).then(|| format!("{what}: got {got:?}, expected {want:?}"))
    }
    differ("counts", &got.counts, &want.counts)
        .or_else(|| differ("matches", &got.matches, &want.matches))
        .or_else(|| differ("lost", &got.lost, &want.lost))
        .or_else(|| differ("latencies", &got.latencies, &want.latencies))
        .or_else(|| differ("ipdv", &got.ipdv, &want.ipdv))
        .or_else(|| differ("ipdv range", &got.ipdv_range, &want.ipdv_range))
        .or_else(|| differ("worst", &got.worst, &want.worst))
        .or_else(|| differ("pre", &got.pre, &want.pre))
        .or_else(|| differ("post", &got.post, &want.post))
}

/// What the engine gets wrong of a case.
fn complaint(case: &Case, twist: Twist) -> Option<String> {
    let run = engine::ask(pcap(&case.pre), pcap(&case.post), &case.ask);
    match run {
        Err(error) => Some(error.to_string()),
        Ok((_, got)) => difference(&got, &figures(&case.pre, &case.post, &case.ask, twist)),
    }
}

/// The smallest case, packet by packet left out, that is still wrong.
pub fn shrunk(case: &Case, wrong: impl Fn(&Case) -> bool) -> Case {
    let mut small = case.clone();
    let fewer = |case: &Case, at: usize| {
        let mut fewer = case.clone();
        match at.checked_sub(case.pre.len()) {
            None => drop(fewer.pre.remove(at)),
            Some(at) => drop(fewer.post.remove(at)),
        }
        fewer
    };
    while let Some(fewer) =
        (0..small.pre.len() + small.post.len()).map(|at| fewer(&small, at)).find(&wrong)
    {
        small = fewer;
    }
    small
}

fn check(seed: u64, case: &Case) {
    let wrong = |case: &Case| complaint(case, Twist::None).is_some();
    if wrong(case) {
        let small = shrunk(case, wrong);
        let complaint = complaint(&small, Twist::None);
        panic!("seed {seed}: {}\n{small:#?}", complaint.unwrap_or_default());
    }
}

/// Shuffles packets among their neighbours, as a capture of several queues does.
pub fn stir(packets: &mut [Packet], reach: usize, dice: &mut Dice) {
    for near in packets.chunks_mut(reach) {
        for at in 1..near.len() {
            near.swap(at, dice.below(at as u64 + 1) as usize);
        }
    }
}

#[test]
fn hostile_pairs() {
    for seed in 0..CASES {
        check(seed, &generate::case(seed));
    }
}

#[test]
fn captures_slightly_out_of_order() {
    for seed in 0..CASES / 4 {
        let mut case = generate::case(seed);
        let mut dice = Dice::new(!seed);
        let reach = dice.pick(&[2, 4, 50]);
        stir(&mut case.pre, reach, &mut dice);
        stir(&mut case.post, reach, &mut dice);
        check(seed, &case);
    }
}

/// A figure that long pairs never move would not be tested beyond the first batch.
fn assert_all_moved(total: &[u64]) {
    assert!(total.iter().all(|&packets| packets > 3_000), "{total:?}");
}

#[test]
fn long_pairs() {
    let mut total = [0; 13];
    for seed in 0..60 {
        let mut case = generate::long_case(seed);
        let mut dice = Dice::new(!seed);
        if dice.chance(2) {
            stir(&mut case.pre, 2_000, &mut dice);
            stir(&mut case.post, 2_000, &mut dice);
        }
        let want = figures(&case.pre, &case.post, &case.ask, Twist::None);
        let run = engine::ask(pcap(&case.pre), pcap(&case.post), &case.ask);
        let got = run.unwrap_or_else(|error| panic!("seed {seed}: {error}")).1;
        let complaint =
            difference(&got, &want).map(|text| text[..1_000.min(text.len())].to_owned());
        assert_eq!(complaint, None, "seed {seed}");
        let c = want.counts;
        let pre = [c.pre_trimmed, c.ambiguous, c.count, c.lost, c.late, c.reordered];
        let post = [c.post_trimmed, c.duplicated, c.post_negative, c.post_ambiguous, c.post_late];
        for (sum, packets) in
            total.iter_mut().zip([&pre[..], &post, &[c.post_unknown, c.negative]].concat())
        {
            *sum += packets;
        }
    }
    assert_all_moved(&total);
}

/// The comparison itself is tested: the engine must be found to differ from every wrong rule.
#[test]
fn the_engine_differs_from_every_wrong_rule() {
    for twist in Twist::WRONG {
        let found = (0..CASES).any(|seed| complaint(&generate::case(seed), twist).is_some());
        assert!(found, "the engine cannot be told from {twist:?}");
    }
}
