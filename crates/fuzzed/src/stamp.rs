//! Packets of STAMP, and frames that have some: whatever comes, an answer is as long as its query, and says what the reflector knew.

use probe::returned::datagrams;
use probe::stamp::{Answer, Cause, FollowUp, LEAST, Query, Reply, Watch};

/// The bytes are a query, and an answer.
pub fn run(bytes: &[u8]) -> bool {
    assert!(datagrams(bytes).all(|found| bytes.ends_with(found.payload)));
    let query = Query::read(bytes);
    assert_eq!(query.is_some(), bytes.len() >= LEAST);
    assert_eq!(Answer::read(bytes).is_some(), query.is_some());
    let follow_up = Some(FollowUp { seq: 5, sent_ns: 1_800_000_000_000_000_007 });
    let watch = Watch { stalls: 9, cause: Cause::Paged, lasted_ns: 11, ..Watch::default() };
    let reply = Reply {
        seq: 3,
        received_ns: 1_800_000_000_000_000_001,
        sent_ns: 1_800_000_000_000_000_002,
        follow_up,
        watch,
        ..Reply::default()
    };
    let mut answered = bytes.to_vec();
    let used = reply.write(&mut answered);
    assert_eq!((used.is_some(), answered.len()), (query.is_some(), bytes.len()));
    let (Some(query), Some(used)) = (query, used) else { return false };
    let answer = Answer::read(&answered).expect("an answer");
    assert_eq!((answer.seq, answer.query_seq, answer.ssid), (3, query.seq, query.ssid));
    assert_eq!((answer.received_ns, answer.sent_ns), (reply.received_ns, reply.sent_ns));
    assert_eq!(answer.follow_up, follow_up.filter(|_| used.follow_up));
    assert!(answer.watch.is_none_or(|told| told == watch));
    true
}
