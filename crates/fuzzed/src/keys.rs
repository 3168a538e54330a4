//! Keys of any frame: there is one, or it is told why not, and the same bytes have the same key.

use probe::headers::{addresses, ttl};
use probe::is_local;
use probe::key::{Keyed, Keyer, MatchOn, Tap};

/// The first two bytes say how much more was on the wire, and how far keys may go.
pub fn run(bytes: &[u8]) -> bool {
    let [more, limit, frame @ ..] = bytes else { return false };
    let wire = frame.len() as u32 + u32::from(*more);
    let limit = (*limit > 0).then(|| u32::from(*limit));
    for on in MatchOn::CANDIDATES.into_iter().chain(["bytes:12+2,40+4".parse().expect("ranges")]) {
        for limit in [None, limit] {
            let keyer = Keyer::new(&on, Tap::Pre, limit);
            let key = keyer.key(frame, wire);
            assert_eq!(key, Keyer::new(&on, Tap::Post, limit).key(frame, wire), "{on}");
            let mut found = vec![1];
            keyer.bytes(frame, wire, &mut found);
            match key {
                Keyed::Key(_) => {}
                Keyed::None | Keyed::Short { .. } => assert!(found.is_empty(), "{on}"),
            }
            assert!(!matches!(key, Keyed::Short { .. }) || limit.is_none(), "{on}");
            let held = keyer.held_bytes(frame, wire);
            assert!(held.is_none_or(|held| held as usize <= frame.len()), "{on}");
        }
    }
    let _ = (is_local(frame), addresses(frame), ttl(frame));
    true
}
