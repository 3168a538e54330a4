//! Sessions of a reflector: what it keeps of each, and how many of them a source may have.

use crate::admission::name;
use probe::stamp::FollowUp;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Sessions at once, those of one source, and how long one may be silent.
const SESSIONS: usize = 1 << 16;
const OF_SOURCE: u32 = 1 << 12;
const SILENT_NS: u64 = 60_000_000_000;
/// Answers of a session whose departure is still to be told.
const UNTOLD: usize = 64;
const NS_PER_S: u64 = 1_000_000_000;

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

/// Sessions by who asks.
#[derive(Debug, Default)]
pub struct Sessions {
    all: HashMap<Partner, Session>,
    of_source: HashMap<u128, u32>,
    pruned_ns: u64,
    /// How many began.
    pub began: u64,
}

impl Sessions {
    /// The session of a query that came; `None` if its source, or all together, have too many.
    pub fn of(&mut self, partner: Partner, now_ns: u64) -> Option<&mut Session> {
        if !self.all.contains_key(&partner) {
            if self.is_full(partner) {
                self.prune(now_ns);
                if self.is_full(partner) {
                    return None;
                }
            }
            *self.of_source.entry(name(partner.address)).or_default() += 1;
        }
        let session = self.all.entry(partner).or_default();
        if session.seen_ns == 0 || session.seen_ns + SILENT_NS <= now_ns {
            *session = Session { began_ns: now_ns, ..Session::default() };
            self.began += 1;
        }
        session.seen_ns = now_ns;
        Some(session)
    }

    /// A session that is there.
    pub fn get_mut(&mut self, partner: &Partner) -> Option<&mut Session> {
        self.all.get_mut(partner)
    }

    fn is_full(&self, partner: Partner) -> bool {
        let of_source = self.of_source.get(&name(partner.address)).copied().unwrap_or_default();
        self.all.len() >= SESSIONS || of_source >= OF_SOURCE
    }

    /// Forgets who is silent; once a second, so that strangers cannot make it costly.
    fn prune(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.pruned_ns) < NS_PER_S {
            return;
        }
        self.pruned_ns = now_ns;
        self.all.retain(|_, session| session.seen_ns + SILENT_NS > now_ns);
        self.of_source.clear();
        for partner in self.all.keys() {
            *self.of_source.entry(name(partner.address)).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partner(address: &str, ssid: u16) -> Partner {
        Partner::new(SocketAddr::new(address.parse().unwrap(), 4000), ssid)
    }

    #[test]
    fn a_source_with_many_sessions_shuts_nobody_else_out() {
        let mut sessions = Sessions::default();
        let mut may = |address, ssid, now_ns| sessions.of(partner(address, ssid), now_ns).is_some();
        assert_eq!((0..u16::MAX).filter(|ssid| may("10.0.0.1", *ssid, 1)).count(), 4096);
        assert!(may("10.0.0.2", 0, 2) && may("10.0.0.1", 5, SILENT_NS));
        assert!(!may("10.0.0.1", 5000, SILENT_NS - NS_PER_S));
        // All are silent but one.
        let kept =
            (0..u16::MAX).filter(|ssid| may("10.0.0.1", *ssid, SILENT_NS + NS_PER_S)).count();
        assert_eq!(kept, 4096);
        assert_eq!(sessions.began, 4096 + 1 + 4095);
    }

    #[test]
    fn a_session_tells_when_its_own_answers_left() {
        let mut sessions = Sessions::default();
        let session = sessions.of(partner("::1", 7), 100).unwrap();
        let follow_up = |seq| FollowUp { seq, sent_ns: 0 };
        session.has_left(99, follow_up(1));
        assert_eq!(session.untold(), None);
        for seq in 0..=UNTOLD as u32 {
            session.has_left(100, follow_up(seq));
        }
        assert_eq!(session.untold(), Some(follow_up(1)));
        session.told();
        assert_eq!(session.untold(), Some(follow_up(2)));
        assert!(sessions.of(partner("::1", 7), 100 + SILENT_NS).unwrap().untold().is_none());
    }
}
