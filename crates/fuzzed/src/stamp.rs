//! Packets of STAMP, and frames that have some: whatever comes, an answer is as long as its query, and says what the reflector knew.

use probe::returned::datagrams;
use probe::seal::Key;
use probe::stamp::{Answer, Cause, FollowUp, Form, Query, Reply, Unread, Watch};

const SENT_NS: u64 = 1_800_000_000_000_000_002;

/// The bytes are a query, and an answer.
pub fn run(bytes: &[u8]) -> bool {
    assert!(datagrams(bytes).all(|found| bytes.ends_with(found.payload)));
    is_answered(bytes, &Form::new(None));
    let [sealed, other] = [b'1', b'2'].map(|digit| Form::new(Key::from_hex(&[digit; 32])));
    let is_long = bytes.len() >= sealed.least_bytes();
    let unread = if is_long { Unread::WrongKey } else { Unread::Short };
    assert_eq!(Query::read(bytes, &other).err(), Some(unread), "nobody guesses a seal");
    let mut owned = bytes.to_vec();
    if is_long {
        sealed.depart(&mut owned, SENT_NS);
        is_answered(&owned, &sealed);
    }
    bytes.len() >= Form::new(None).least_bytes()
}

/// Answers a query, if it is one.
fn is_answered(bytes: &[u8], form: &Form) {
    let query = Query::read(bytes, form);
    assert_eq!(query.is_ok(), bytes.len() >= form.least_bytes());
    assert_eq!(Answer::read(bytes, form).is_ok(), query.is_ok());
    let Ok(query) = query else { return };
    let follow_up = Some(FollowUp { seq: 5, sent_ns: 1_800_000_000_000_000_007 });
    let watch = Watch { stalls: 9, cause: Cause::Paged, lasted_ns: 11, ..Watch::default() };
    let received_ns = 1_800_000_000_000_000_001;
    let reply = Reply { seq: 3, received_ns, follow_up, watch, ..Reply::default() };
    let mut answered = bytes.to_vec();
    let used = reply.write(&mut answered, form);
    form.depart(&mut answered, SENT_NS);
    assert_eq!(answered.len(), bytes.len());
    let answer = Answer::read(&answered, form).expect("an answer");
    assert_eq!((answer.seq, answer.query_seq, answer.ssid), (3, query.seq, query.ssid));
    assert_eq!((answer.received_ns, answer.sent_ns), (received_ns, SENT_NS));
    assert_eq!(answer.follow_up, follow_up.filter(|_| used.follow_up));
    // A form of before has no error of a card.
    let is_told = |told: Watch| Watch { card_error_ns: None, ..told } == watch;
    assert!(answer.watch.is_none_or(is_told));
}
