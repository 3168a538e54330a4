//! Slices of a pair, joined in any order, are the analysis of the pair.

use analysis::{Analysis, Config, Error, Match, Part, Plan, Slice, Value, analyze_slice};
use capture::Reader;

use crate::engine::{self, Found, figures};
use crate::equal::{difference, shrunk, stir};
use crate::generate::{self, Case, Dice, pcap};
use crate::reference::{Figures, MatchOn, Packet, Question};

const CASES: u64 = 1_000;

/// A pair in memory.
struct Pair {
    pre: Vec<u8>,
    post: Vec<u8>,
}

/// Everything that can be asked of an analysis.
#[derive(Debug, PartialEq)]
struct Said {
    summary: Vec<(String, Value)>,
    warnings: Vec<String>,
    config: Config,
    hlog: String,
}

fn said(analysis: &Analysis) -> Said {
    let (summary, warnings) = (analysis.summary(), analysis.warnings());
    Said { summary, warnings, config: analysis.config.clone(), hlog: analysis.hlog() }
}

impl Pair {
    fn of(case: &Case) -> Self {
        Self { pre: pcap(&case.pre), post: pcap(&case.post) }
    }

    fn readers(&self) -> Result<(Reader, Reader), Error> {
        let pre = Reader::from_bytes("pre", self.pre.clone())?;
        Ok((pre, Reader::from_bytes("post", self.post.clone())?))
    }

    fn whole(&self, ask: &Question) -> Result<(Analysis, Figures), Error> {
        engine::ask(self.pre.clone(), self.post.clone(), ask)
    }

    fn plan(&self, ask: &Question) -> Result<Plan, Error> {
        let (pre, post) = self.readers()?;
        Plan::on(pre, post, &engine::config(ask), engine::basis(ask), &mut ())
    }

    fn part(&self, slice: &Slice) -> Result<(Part, Vec<Match>), Error> {
        let (pre, post) = self.readers()?;
        let mut found = Found::default();
        let part = analyze_slice(pre, post, slice, &mut found)?;
        Ok((part, found.matches))
    }

    /// Divides, sends slices there and parts back, and joins these in any order.
    /// Which packets were lost, slices do not say: they are taken from the whole pair.
    fn joined(
        &self,
        slices: &[Slice],
        lost: &[u64],
        dice: &mut Dice,
    ) -> Result<(Analysis, Figures), Error> {
        let (mut parts, mut matches) = (Vec::new(), Vec::new());
        for slice in slices {
            let sent = Slice::from_bytes(&slice.to_bytes())?;
            assert_eq!(sent, *slice);
            assert!(slice.times().start <= slice.times().end);
            let (part, some) = self.part(&sent)?;
            parts.push(sent_back(&part)?);
            matches.extend(some);
        }
        while parts.len() > 1 {
            let one = parts.swap_remove(dice.below(parts.len() as u64) as usize);
            let other = parts.swap_remove(dice.below(parts.len() as u64) as usize);
            parts.push(sent_back(&one.join(&other)?)?);
        }
        let analysis = parts.remove(0).finish()?;
        let figures = figures(&analysis, &matches, lost);
        Ok((analysis, figures))
    }
}

fn sent_back(part: &Part) -> Result<Part, Error> {
    let bytes = part.to_bytes();
    let read = Part::from_bytes(&bytes)?;
    assert_eq!(read.to_bytes(), bytes);
    Ok(read)
}

/// Times to cut at: on packets, beside them, and anywhere.
fn cuts(case: &Case, dice: &mut Dice) -> Vec<u64> {
    let times: Vec<u64> = case.pre.iter().chain(&case.post).map(|packet| packet.ts).collect();
    let (Some(&first), Some(&last)) = (times.iter().min(), times.iter().max()) else {
        return vec![7];
    };
    let mut cuts: Vec<u64> = (0..dice.pick(&[1, 1, 2, 3, 8]))
        .map(|_| match dice.below(3) {
            0 => first + dice.below(last - first + 2),
            _ => dice.pick(&times) + dice.below(3),
        })
        .map(|cut| cut.saturating_sub(1).max(1))
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// What is wrong with a pair that is cut at these times.
fn complaint(pair: &Pair, ask: &Question, cuts: &[u64], dice: &mut Dice) -> Option<String> {
    let (whole, want) = match (pair.whole(ask), pair.plan(ask)) {
        (Ok(whole), Ok(_)) => whole,
        (Err(one), Err(other)) if one.to_string() == other.to_string() => return None,
        (one, other) => return Some(format!("whole: {:?}, plan: {:?}", one.err(), other.err())),
    };
    let plan = pair.plan(ask).expect("it was there before");
    let (got, figures) = match pair.joined(&plan.cut_at(cuts), &want.lost, dice) {
        Ok(joined) => joined,
        Err(Error::Torn { .. }) if cuts.is_empty() => return Some("torn into one piece".into()),
        Err(Error::Torn { .. } | Error::FlowsUnseen) => return None,
        Err(error) => return Some(error.to_string()),
    };
    let (one, other) = (said(&got), said(&whole));
    let told = || format!("got {one:?}, expected {other:?}");
    difference(&figures, &want).or_else(|| (one != other).then(told))
}

fn check(seed: u64, case: &Case, dice: &mut Dice) {
    let cuts = cuts(case, dice);
    let complain = |case: &Case| complaint(&Pair::of(case), &case.ask, &cuts, &mut Dice::new(seed));
    if complain(case).is_some() {
        let small = shrunk(case, |case| complain(case).is_some());
        panic!("seed {seed}, cut at {cuts:?}: {:?}\n{small:#?}", complain(&small));
    }
}

#[test]
fn hostile_pairs_in_slices() {
    for seed in 0..CASES {
        check(seed, &generate::case(seed), &mut Dice::new(!seed));
    }
}

#[test]
fn slices_of_captures_slightly_out_of_order() {
    for seed in 0..CASES / 4 {
        let mut case = generate::case(seed);
        let mut dice = Dice::new(!seed);
        let reach = dice.pick(&[2, 4, 50]);
        stir(&mut case.pre, reach, &mut dice);
        stir(&mut case.post, reach, &mut dice);
        check(seed, &case, &mut dice);
    }
}

#[test]
fn long_pairs_in_slices() {
    for seed in 0..30 {
        let mut case = generate::long_case(seed);
        let mut dice = Dice::new(!seed);
        if dice.chance(2) {
            stir(&mut case.pre, 2_000, &mut dice);
            stir(&mut case.post, 2_000, &mut dice);
        }
        let cuts = cuts(&case, &mut dice);
        let complaint = complaint(&Pair::of(&case), &case.ask, &cuts, &mut dice);
        assert_eq!(
            complaint.map(|text| text.chars().take(1_000).collect()),
            None::<String>,
            "{seed}"
        );
    }
}

/// What anchors a train may lie before what a slice reads: here, that the post at 975 is no stray.
#[test]
fn a_slice_does_not_judge_a_train_whose_anchor_it_may_not_see() {
    let packet = |&(ts, id): &(u64, u8)| Packet { ts, orig_len: 1, data: vec![id] };
    let pre = [(971, 7), (983, 7), (991, 7), (1000, 7), (1008, 8)];
    let post = [(975, 7), (984, 7), (992, 7), (1001, 7), (1009, 8)];
    let ask = Question {
        match_on: MatchOn::Bytes(vec![(0, 1)]),
        window: 10,
        trim: 0,
        worst: 9,
        copies: 0,
        two_way: false,
    };
    let case = Case {
        pre: pre.iter().map(packet).collect(),
        post: post.iter().map(packet).collect(),
        ask,
    };
    let pair = Pair::of(&case);
    assert_eq!(pair.whole(&case.ask).unwrap().1.counts.count, 5);
    for cut in 960..1_020 {
        assert_eq!(complaint(&pair, &case.ask, &[cut], &mut Dice::new(cut)), None, "{cut}");
    }
}

/// Whatever is done to the bytes of a part, what is read of them is refused or has figures.
#[test]
fn damaged_parts_are_refused_or_told() {
    let case = (0..).map(generate::case).find(|case| case.pre.len() > 30 && case.ask.trim > 0);
    let case = case.expect("one of them");
    let pair = Pair::of(&case);
    let plan = pair.plan(&case.ask).unwrap();
    let middle = case.pre[15].ts + 1;
    let (mut dice, mut read) = (Dice::new(1), 0);
    for slice in plan.cut_at(&[]).iter().chain(&plan.cut_at(&[middle])) {
        let sealed = pair.part(slice).unwrap().0.to_bytes();
        let head = sealed.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let content = zstd::decode_all(&sealed[head..]).unwrap();
        for _ in 0..3_000 {
            let mut damaged = content.clone();
            for _ in 0..=dice.below(3) {
                let at = dice.below(damaged.len() as u64) as usize;
                damaged[at] = dice.pick(&[0, 1, 0x7f, 0x80, 0xff, damaged[at] ^ 1]);
            }
            damaged.truncate(damaged.len() - usize::from(dice.chance(9)));
            let frame = zstd::encode_all(&damaged[..], 1).unwrap();
            match Part::from_bytes(&[&sealed[..head], &frame].concat()) {
                Ok(part) => {
                    read += 1;
                    if let Ok(analysis) = part.finish() {
                        assert!(!said(&analysis).summary.is_empty());
                    }
                }
                Err(Error::Encoded { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(read > 100, "{read}");
}

/// In what order figures are joined makes no difference on the way either.
#[test]
fn joining_is_associative_and_commutative() {
    for seed in 0..20 {
        let case = generate::long_case(seed);
        let pair = Pair::of(&case);
        let times: Vec<u64> = [0.2, 0.5, 0.9]
            .map(|share| case.pre[(share * case.pre.len() as f64) as usize].ts)
            .to_vec();
        let slices = pair.plan(&case.ask).unwrap().cut_at(&times);
        let part = |at: usize| pair.part(&slices[at]).unwrap().0;
        let (a, b, c) = (part(0), part(seed as usize % 3 + 1), part((seed as usize + 1) % 3 + 1));
        let join = |one: &Part, other: &Part| one.clone().join(other).unwrap();
        let expected = join(&join(&a, &b), &c).to_bytes();
        assert_eq!(join(&a, &join(&b, &c)).to_bytes(), expected, "seed {seed}");
        assert_eq!(join(&c, &join(&b, &a)).to_bytes(), expected, "seed {seed}");
        assert_eq!(join(&join(&c, &a), &b).to_bytes(), expected, "seed {seed}");
    }
}
