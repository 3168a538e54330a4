//! Sessions of a reflector: what it keeps of each, and which one makes room for another.

use probe::stamp::FollowUp;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};

/// Places of sessions, and how many are of one place.
const PLACES: usize = 1 << 13;
const OF_PLACE: usize = 1 << 3;
/// How long a session may be silent.
const SILENT_NS: u64 = 60_000_000_000;
/// Answers of a session whose departure is still to be told.
const UNTOLD: usize = 64;

/// Who asks: an address, a port, and a session of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partner {
    pub address: IpAddr,
    port: u16,
    ssid: u16,
}

impl Partner {
    pub fn new(from: SocketAddr, ssid: u16) -> Self {
        Self { address: from.ip(), port: from.port(), ssid }
    }
}

/// What is kept of a session.
#[derive(Debug, Default)]
pub struct Session {
    /// The number of its next answer.
    pub next: u32,
    began_ns: u64,
    seen_ns: u64,
    untold: VecDeque<FollowUp>,
}

impl Session {
    /// Keeps when an answer left, for a later one to tell; `left_ns` is by the clock that runs on.
    pub fn has_left(&mut self, left_ns: u64, follow_up: FollowUp) {
        // A session before it may have had the same name.
        if left_ns < self.began_ns {
            return;
        }
        if self.untold.len() == UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(follow_up);
    }

    /// What the next answer can tell.
    pub fn untold(&self) -> Option<FollowUp> {
        self.untold.front().copied()
    }

    /// It was told.
    pub fn told(&mut self) {
        self.untold.pop_front();
    }
}

/// Sessions by who asks. Everybody has one: where a place is full, the one that is missed least makes room,
/// and nobody can know whose place is whose.
#[derive(Debug)]
pub struct Sessions {
    places: Vec<Vec<(Partner, Session)>>,
    hasher: RandomState,
    /// How many began.
    pub began: u64,
}

impl Default for Sessions {
    fn default() -> Self {
        let places = std::iter::repeat_with(Vec::new).take(PLACES).collect();
        Self { places, hasher: RandomState::new(), began: 0 }
    }
}

impl Sessions {
    /// The session of a query that came.
    pub fn of(&mut self, partner: Partner, now_ns: u64) -> &mut Session {
        let place = &mut self.places[self.hasher.hash_one(partner) as usize % PLACES];
        let found = place.iter().position(|(other, _)| *other == partner);
        let at = found.unwrap_or_else(|| {
            if place.len() < OF_PLACE {
                place.push((partner, Session::default()));
                return place.len() - 1;
            }
            // Who asked once only may be nobody: of the others, those that ask now are missed most.
            let is_missed = |(_, session): &(Partner, Session)| (session.next > 1, session.seen_ns);
            let least = (0..OF_PLACE).min_by_key(|at| is_missed(&place[*at])).expect("it is full");
            place[least] = (partner, Session::default());
            least
        });
        let session = &mut place[at].1;
        if session.seen_ns == 0 || session.seen_ns + SILENT_NS <= now_ns {
            *session = Session { began_ns: now_ns, ..Session::default() };
            self.began += 1;
        }
        session.seen_ns = now_ns;
        session
    }

    /// A session that is there.
    pub fn get_mut(&mut self, partner: &Partner) -> Option<&mut Session> {
        let place = &mut self.places[self.hasher.hash_one(partner) as usize % PLACES];
        place.iter_mut().find(|(other, _)| other == partner).map(|(_, session)| session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partner(address: &str, ssid: u16) -> Partner {
        Partner::new(SocketAddr::new(address.parse().unwrap(), 4000), ssid)
    }

    #[test]
    fn strangers_take_no_session_of_who_asks_on() {
        let mut sessions = Sessions::default();
        let own = Partner::new("10.0.0.1:5000".parse().unwrap(), 7);
        let strangers = (0..4_u8).flat_map(|host| (0..=u16::MAX).map(move |ssid| (host, ssid)));
        for (at, (host, ssid)) in strangers.enumerate() {
            // It asks now and then, they ask all the time, some of them twice.
            if at % 1_000 == 0 {
                let session = sessions.of(own, 1 + at as u64);
                assert_eq!(session.next, at as u32 / 1_000);
                session.next += 1;
            }
            for _ in 0..=ssid % 2 {
                sessions.of(partner(&format!("10.0.0.{host}"), ssid), 1 + at as u64).next += 1;
            }
        }
        assert_eq!(sessions.began, 1 + (4 << 16));
        assert!(sessions.places.iter().all(|place| place.len() <= OF_PLACE));
    }

    #[test]
    fn who_is_silent_begins_anew() {
        let mut sessions = Sessions::default();
        sessions.of(partner("::1", 7), 100).next = 5;
        assert_eq!(sessions.of(partner("::1", 7), 99 + SILENT_NS).next, 5);
        assert_eq!(sessions.of(partner("::1", 7), 99 + 2 * SILENT_NS).next, 0);
    }

    #[test]
    fn a_session_tells_when_its_own_answers_left() {
        let mut sessions = Sessions::default();
        let session = sessions.of(partner("::1", 7), 100);
        let follow_up = |seq| FollowUp { seq, sent_ns: 0 };
        session.has_left(99, follow_up(1));
        assert_eq!(session.untold(), None);
        for seq in 0..=UNTOLD as u32 {
            session.has_left(100, follow_up(seq));
        }
        assert_eq!(session.untold(), Some(follow_up(1)));
        session.told();
        assert_eq!(session.untold(), Some(follow_up(2)));
        assert!(sessions.of(partner("::1", 7), 100 + SILENT_NS).untold().is_none());
    }
}
