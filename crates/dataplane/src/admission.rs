//! Whom a reflector answers: prefixes, ports, and packets a second of each source.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Addresses of one's own networks: nobody else can be made to believe that he asked.
pub const OWN_NETWORKS: &str = "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,169.254.0.0/16,\
                                100.64.0.0/10,::1/128,fe80::/10,fc00::/7";
/// Services listen below: two that answer each other would never end.
pub const FIRST_PORT: u16 = 1024;
/// Sources that are told apart at once.
const SOURCES: usize = 1 << 14;
/// A source may send as many at once as it may in this time.
const AT_ONCE_NS: u64 = 100_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    bits: u128,
    mask: u128,
}

impl Prefix {
    fn has(&self, address: IpAddr) -> bool {
        number(address) & self.mask == self.bits
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no prefix: expected ADDRESS/BITS, such as 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        let mask = u128::MAX.checked_shl(most - bits).unwrap_or(0);
        // Of an address of IPv4, what is before it says so.
        let mask = if address.is_ipv4() { mask | (u128::MAX << 32) } else { mask };
        Ok(Self { bits: number(address) & mask, mask })
    }
}

/// Why a query is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It comes from an address that is not allowed.
    Source,
    /// It comes from a port that is no sender's.
    Port,
    /// Its source sends more than it may.
    Rate,
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// When all that it has sent would have been sent at the highest rate.
    paid_ns: u64,
    denied: Denied,
}

/// What a source has not got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// Queries that were refused, as they were too many.
    pub refused: u32,
    /// Answers that the system did not take.
    pub unsent: u32,
}

/// Decides whom to answer.
#[derive(Debug)]
pub struct Admission {
    allowed: Vec<Prefix>,
    own_port: u16,
    packet_ns: u64,
    sources: HashMap<u128, Source>,
    pruned_ns: u64,
}

impl Admission {
    /// Answers these at most so many packets a second each.
    pub fn new(allowed: Vec<Prefix>, own_port: u16, rate_pps: u64) -> Self {
        let packet_ns = NS_PER_S / rate_pps.min(NS_PER_S);
        Self { allowed, own_port, packet_ns, sources: HashMap::new(), pruned_ns: 0 }
    }

    /// Admits a query, or says why not; an admitted one says what its source was denied before.
    pub fn admit(&mut self, from: SocketAddr, now_ns: u64) -> Result<Denied, Refusal> {
        if from.port() < FIRST_PORT || from.port() == self.own_port {
            return Err(Refusal::Port);
        }
        if !self.allowed.iter().any(|prefix| prefix.has(from.ip())) {
            return Err(Refusal::Source);
        }
        let name = name(from.ip());
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&name) {
            self.prune(now_ns);
            if self.sources.len() >= SOURCES {
                return Err(Refusal::Rate);
            }
        }
        let source = self.sources.entry(name).or_default();
        if source.paid_ns > now_ns + AT_ONCE_NS {
            source.denied.refused = source.denied.refused.wrapping_add(1);
            return Err(Refusal::Rate);
        }
        source.paid_ns = source.paid_ns.max(now_ns) + self.packet_ns;
        Ok(source.denied)
    }

    /// Notes what an admitted source has not got all the same.
    pub fn deny(&mut self, address: IpAddr, note: impl FnOnce(&mut Denied)) {
        if let Some(source) = self.sources.get_mut(&name(address)) {
            note(&mut source.denied);
        }
    }

    /// Forgets who has sent nothing for long; once a second, so that strangers cannot make it costly.
    fn prune(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.pruned_ns) >= NS_PER_S {
            self.pruned_ns = now_ns;
            self.sources.retain(|_, source| source.paid_ns + NS_PER_S > now_ns);
        }
    }
}

/// An address as 128 bits; one of IPv4 as IPv6 maps it.
fn number(address: IpAddr) -> u128 {
    u128::from(match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    })
}

/// What a source is known by: a host of IPv6 has a network of addresses.
pub fn name(address: IpAddr) -> u128 {
    let mask = if address.is_ipv4() {
        u128::MAX
    } else {
        u128::from(Ipv6Addr::from_bits(u128::MAX << 64))
    };
    number(address) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Denied = Denied { refused: 0, unsent: 0 };

    fn admission(allowed: &str, rate_pps: u64) -> Admission {
        Admission::new(
            allowed.split(',').map(|text| text.parse().unwrap()).collect(),
            8620,
            rate_pps,
        )
    }

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_allowed_prefixes_are_answered() {
        let mut admission = admission(OWN_NETWORKS, 1_000);
        for near in ["10.1.2.3:4000", "127.0.0.1:1024", "[::1]:4000", "[fe80::1]:4000"] {
            assert_eq!(admission.admit(from(near), 0), Ok(NONE), "{near}");
        }
        for far in ["8.8.8.8:4000", "[2001:db8::1]:4000", "172.32.0.1:4000"] {
            assert_eq!(admission.admit(from(far), 0), Err(Refusal::Source), "{far}");
        }
        for port in ["10.1.2.3:53", "10.1.2.3:862", "10.1.2.3:8620"] {
            assert_eq!(admission.admit(from(port), 0), Err(Refusal::Port), "{port}");
        }
    }

    #[test]
    fn a_prefix_is_an_address_and_bits() {
        let mut all = admission("0.0.0.0/0", 1_000);
        assert_eq!(all.admit(from("8.8.8.8:4000"), 0), Ok(NONE));
        assert_eq!(all.admit(from("[2001:db8::1]:4000"), 0), Err(Refusal::Source));
        assert_eq!(admission("::/0", 1).admit(from("8.8.8.8:4000"), 0), Ok(NONE));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/x", "host"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_that_is_too_fast_waits_and_others_do_not() {
        let mut admission = admission("0.0.0.0/0", 1_000);
        let at_once =
            (0..1_000).take_while(|_| admission.admit(from("1.1.1.1:4000"), 0).is_ok()).count();
        assert_eq!(at_once, 101);
        assert_eq!(admission.admit(from("1.1.1.2:4000"), 0), Ok(NONE));
        assert_eq!(admission.admit(from("1.1.1.1:4001"), 0), Err(Refusal::Rate));
        admission.deny(from("1.1.1.1:4000").ip(), |denied| denied.unsent += 1);
        assert_eq!(
            admission.admit(from("1.1.1.1:4000"), 1_000_000),
            Ok(Denied { refused: 2, unsent: 1 })
        );
    }

    #[test]
    fn many_sources_take_no_more_memory() {
        let mut admission = admission("0.0.0.0/0", 1_000);
        let mut admit = |number: u32, now_ns| {
            admission.admit(SocketAddr::new(IpAddr::V4(number.into()), 4000), now_ns)
        };
        assert!((0..SOURCES as u32).all(|number| admit(number, 1).is_ok()));
        assert_eq!(admit(u32::MAX, 2), Err(Refusal::Rate));
        assert_eq!(admit(u32::MAX, 2 * NS_PER_S), Ok(NONE));
    }
}
