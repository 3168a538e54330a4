//! Which port forwards to which, and which lcore does it.

use crate::error::Error;
use crate::path::Path;
use crate::session::{Open, Session};
use dpdk::Lcore;

/// Parses a mask of ports, such as `3` or `0xf`.
pub fn mask(text: &str) -> Result<u64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|mask| *mask != 0)
        .ok_or_else(|| format!("{text:?} is no mask of ports: expected hexadecimal, like 3"))
}

/// Pairs of ports, as `(0,1),(2,3)` says.
#[derive(Clone, Debug)]
pub struct PortMap(pub Vec<(u16, u16)>);

/// Parses pairs of ports, such as `(0,1),(2,3)`.
pub fn port_map(text: &str) -> Result<PortMap, String> {
    let wrong = || format!("{text:?} is no list of pairs: expected (PORT,PORT),..., like (0,1)");
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(wrong)?;
    let pair = |pair: &str| {
        let (left, right) = pair.split_once(',')?;
        Some((left.trim().parse().ok()?, right.trim().parse().ok()?))
    };
    let pairs = inner.split("),(").map(pair).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    Ok(PortMap(pairs))
}

/// For each port that takes part, the port that its packets leave by: its neighbour, as in DPDK's
/// l2fwd, and itself where it is alone.
pub fn partners(
    ports: &[u16],
    mask: Option<u64>,
    map: Option<&PortMap>,
) -> Result<Vec<(u16, u16)>, Error> {
    let wrong =
        |option, got: String, expected: String| Err(Error::Option { option, got, expected });
    let known = || format!("ports among {ports:?}");
    if let Some(PortMap(pairs)) = map {
        let mut flat: Vec<u16> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        if flat.iter().any(|port| !ports.contains(port)) {
            return wrong("--portmap", format!("{pairs:?}"), known());
        }
        let both =
            |(a, b): &(u16, u16)| if a == b { vec![(*a, *b)] } else { vec![(*a, *b), (*b, *a)] };
        let all: Vec<_> = pairs.iter().flat_map(both).collect();
        flat.sort_unstable();
        flat.dedup();
        if all.len() != flat.len() {
            return wrong("--portmap", format!("{pairs:?}"), "each port in one pair".into());
        }
        return Ok(all);
    }
    let mask = mask.unwrap_or(u64::MAX);
    let used: Vec<u16> = ports.iter().copied().filter(|port| mask >> port & 1 == 1).collect();
    let missing = mask != u64::MAX && mask.count_ones() as usize != used.len();
    if used.is_empty() || missing {
        return wrong("-p", format!("{mask:#x}"), known());
    }
    let own = |at: usize| if at ^ 1 < used.len() { used[at ^ 1] } else { used[at] };
    Ok((0..used.len()).map(|at| (used[at], own(at))).collect())
}

/// Takes the queues of `pairs` out of the ports and spreads them over the lcores; the lcores that get
/// none are left out.
pub fn spread(session: &mut Session, pairs: &[(u16, u16)]) -> Vec<(Lcore, Vec<Path>)> {
    let lcores = session.lcores.clone();
    let mut lanes: Vec<(Lcore, Vec<Path>)> =
        lcores.into_iter().take(pairs.len()).map(|lcore| (lcore, Vec::new())).collect();
    let count = lanes.len();
    for (at, (from, to)) in pairs.iter().enumerate() {
        let rx = open(&mut session.ports, *from).rx.remove(0);
        let leaves = open(&mut session.ports, *to);
        let path = Path { rx, tx: leaves.tx.remove(0), mac: leaves.info.mac, to: *to };
        lanes[at % count].1.push(path);
    }
    lanes
}

fn open(ports: &mut [Open], id: u16) -> &mut Open {
    ports.iter_mut().find(|open| open.port.id() == id).expect("partners are known ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_forward_to_each_other_and_a_single_port_to_itself() {
        let pairs = |ports: &[u16], mask| partners(ports, mask, None).unwrap();
        assert_eq!(pairs(&[0, 1], None), [(0, 1), (1, 0)]);
        assert_eq!(pairs(&[0], None), [(0, 0)]);
        assert_eq!(pairs(&[0, 1, 2], None), [(0, 1), (1, 0), (2, 2)]);
        assert_eq!(pairs(&[0, 1, 2, 3], Some(0xa)), [(1, 3), (3, 1)]);
    }

    #[test]
    fn a_map_names_its_pairs() {
        let map = port_map("(0,2),(1,1)").unwrap();
        assert_eq!(partners(&[0, 1, 2], None, Some(&map)).unwrap(), [(0, 2), (2, 0), (1, 1)]);
        for text in ["", "0,1", "(0,1", "(0)", "(0,1),(0,2)", "(0,7)"] {
            let map = port_map(text);
            assert!(
                map.is_err() || partners(&[0, 1, 2], None, map.as_ref().ok()).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn ports_that_are_not_there_are_refused() {
        assert!(partners(&[0, 1], Some(0x4), None).is_err());
        assert!(partners(&[0, 1], Some(0x5), None).is_err());
        assert!(mask("0").is_err() && mask("ports").is_err());
        assert_eq!(mask("0xf"), Ok(15));
    }
}
