//! Long captures: more packets than any batch or table of the engine holds at once.

use super::{Case, Dice, Frames};
use crate::reference::{Packet, Question};

/// A few thousand to a few ten thousand packets under every law at once: loss, copies, late and
/// early arrivals, keys that return, keys that nobody sent.
pub fn long_case(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let frames = Frames::new(&mut dice);
    let packets = dice.pick(&[3_000, 9_000, 20_000]);
    let gap = dice.pick(&[1, 40, 1_000]);
    let window = gap * dice.pick(&[1, 30, 500, 6_000, 40_000]);
    let delay = (window / dice.pick(&[2, 10, 100])).max(1);
    let ids = dice.pick(&[50, 5_000, 1 << 40]);
    let rare = dice.pick(&[3, 20, 500]);

    let (mut now, mut sent, mut seen) = (1_600_000_000_000_000_000, Vec::new(), Vec::new());
    for number in 0..packets {
        now += if dice.chance(50) { 0 } else { dice.below(2 * gap) };
        let id = if dice.chance(rare) { dice.below(number + 1) } else { number } % ids;
        sent.push((now, id));
        if !dice.chance(rare) {
            seen.push((now + 1 + dice.below(delay), id));
        }
        if dice.chance(rare) {
            seen.push((now + dice.below(3 * window), id));
        }
        if dice.chance(rare) {
            seen.push((now - dice.below(window.min(now)), id));
        }
        if dice.chance(rare) {
            seen.push((now, dice.next() % (2 * ids)));
        }
    }
    seen.sort_by_key(|&(ts, _)| ts);
    let trim = if dice.chance(2) { dice.below(packets * gap) } else { 0 };
    let ask = Question {
        match_on: frames.match_on(),
        window,
        trim,
        worst: 100,
        copies: 0,
        two_way: false,
    };
    let mut dress = |times: Vec<(u64, u64)>| -> Vec<Packet> {
        times.into_iter().map(|(ts, id)| frames.packet(ts, id, &mut dice)).collect()
    };
    Case { pre: dress(sent), post: dress(seen), ask }
}
