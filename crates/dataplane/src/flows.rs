//! Flows: addresses and ports by list or range, and the headers that follow from them.

use crate::error::Error;
use crate::mix::gcd;
use probe::headers::{Addresses, Headers, Protocol};
use probe::tunnel::Outer;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

/// Flows, at most.
pub const MOST: usize = 65_535;

/// Values that flows take in turn. As text: `53`, `1024..1123`, `10.0.0.1,10.0.0.7`.
#[derive(Clone, Debug)]
pub struct Values<T>(pub Vec<T>);

/// What a range can be of.
pub trait Counted: Copy + FromStr + Display {
    /// The values from this one to `last`, both included; `None` if it does not come after this one.
    fn up_to(self, last: Self) -> Option<Vec<Self>>;
}

impl Counted for u16 {
    fn up_to(self, last: Self) -> Option<Vec<Self>> {
        (self <= last).then(|| (self..=last).collect())
    }
}

impl Counted for IpAddr {
    fn up_to(self, last: Self) -> Option<Vec<Self>> {
        let some = |count: u128| (count < MOST as u128).then_some(0..=count);
        match (self, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let count = last.to_bits().checked_sub(first.to_bits())?;
                let all = some(count.into())?.map(|more| first.to_bits() + more as u32);
                Some(all.map(|bits| IpAddr::V4(bits.into())).collect())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let all = some(last.to_bits().checked_sub(first.to_bits())?)?;
                Some(all.map(|more| IpAddr::V6((first.to_bits() + more).into())).collect())
            }
            _ => None,
        }
    }
}

impl<T: Counted> FromStr for Values<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| {
            format!("{part:?} is neither a value nor a range FIRST..LAST of at most {MOST}")
        };
        let mut values = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let range = first.parse().ok().zip(last.parse().ok());
            let range = range.and_then(|(first, last): (T, T)| first.up_to(last));
            values.extend(range.ok_or_else(|| wrong(part))?);
        }
        if values.len() > MOST {
            return Err(format!("{} values: expected at most {MOST}", values.len()));
        }
        Ok(Self(values))
    }
}

/// What flows are made of.
#[derive(Clone, Debug)]
pub struct Flows {
    pub to_mac: [u8; 6],
    pub from_mac: [u8; 6],
    pub vlan: Option<u16>,
    pub outer: Option<Outer>,
    pub protocol: Protocol,
    pub from: Values<IpAddr>,
    pub to: Values<IpAddr>,
    pub from_port: Values<u16>,
    pub to_port: Values<u16>,
    /// How many there are by source port alone.
    pub count: Option<u16>,
}

impl Flows {
    /// The headers of each flow; of packets that travel `back`, with source and destination exchanged.
    pub fn headers(&self, back: bool) -> Result<Vec<Headers>, Error> {
        let lens =
            [self.from.0.len(), self.to.0.len(), self.from_port.0.len(), self.to_port.0.len()];
        let by_values = lens.into_iter().try_fold(1, |count: usize, len| {
            let step = gcd(count as u32, len as u32) as usize;
            Some(count / step * len).filter(|count| *count <= MOST)
        });
        let by_port = usize::from(self.count.unwrap_or(1));
        let count = match by_values {
            Some(1) => by_port,
            Some(count) if self.count.is_none() || count == by_port => count,
            found => {
                let makes = found.map_or(format!("more than {MOST}"), |found| found.to_string());
                return Err(Error::Option {
                    option: "--flows",
                    got: by_port.to_string(),
                    expected: format!("as many as addresses and ports make, {makes}"),
                });
            }
        };
        (0..count).map(|at| self.flow(at, by_values == Some(1), back)).collect()
    }

    fn flow(&self, at: usize, by_port: bool, back: bool) -> Result<Headers, Error> {
        fn turn<T: Copy>(values: &Values<T>, at: usize) -> T {
            values.0[at % values.0.len()]
        }
        let (from, to) = (turn(&self.from, at), turn(&self.to, at));
        let step = if by_port { at as u16 } else { 0 };
        let from_port = turn(&self.from_port, at).wrapping_add(step);
        let there = Headers {
            to_mac: self.to_mac,
            from_mac: self.from_mac,
            vlan: self.vlan,
            outer: self.outer.clone(),
            addresses: addresses(from, to)?,
            protocol: self.protocol,
            from_port,
            to_port: turn(&self.to_port, at),
            ttl: 64,
        };
        // The identifier of an echo request stays what it is.
        let exchange = |headers: Headers| match headers.protocol {
            Protocol::Icmp => headers,
            _ => Headers { from_port: headers.to_port, to_port: headers.from_port, ..headers },
        };
        Ok(match back {
            false => there,
            true => exchange(Headers { addresses: addresses(to, from)?, ..there }),
        })
    }
}

/// Whether both addresses are of one family.
fn addresses(from: IpAddr, to: IpAddr) -> Result<Addresses, Error> {
    use IpAddr::{V4, V6};
    match (from, to) {
        (V4(from), V4(to)) => Ok(Addresses::V4(from, to)),
        (V6(from), V6(to)) => Ok(Addresses::V6(from, to)),
        _ => Err(Error::Option {
            option: "--dst-ip",
            got: to.to_string(),
            expected: format!("an address of the family of --src-ip, {from}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn flows(from: &str, to: &str, from_port: &str, count: Option<u16>) -> Flows {
        Flows {
            to_mac: [2; 6],
            from_mac: [4; 6],
            vlan: None,
            outer: None,
            protocol: Protocol::Udp,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            from_port: from_port.parse().unwrap(),
            to_port: "53".parse().unwrap(),
            count,
        }
    }

    #[test]
    fn values_are_lists_and_ranges() {
        let ports = |text: &str| text.parse::<Values<u16>>().map(|values| values.0);
        assert_eq!(ports("53"), Ok(vec![53]));
        assert_eq!(ports("7..9,53"), Ok(vec![7, 8, 9, 53]));
        for wrong in ["", "9..7", "70000", "1..", "a"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
        let hosts = |text: &str| text.parse::<Values<IpAddr>>().map(|values| values.0.len());
        assert_eq!(hosts("10.0.0.250..10.0.1.4"), Ok(11));
        assert_eq!(hosts("fd00::1..fd00::ff"), Ok(255));
        assert!(hosts("10.0.0.1..fd00::1").is_err() && hosts("10.0.0.0..10.255.0.0").is_err());
    }

    #[test]
    fn every_combination_of_the_turns_is_one_flow() {
        let all = flows("10.0.0.1..10.0.0.4", "10.0.1.1", "1..6", None).headers(false).unwrap();
        let different: HashSet<_> = all.iter().map(|flow| format!("{flow:?}")).collect();
        assert_eq!((all.len(), different.len()), (12, 12));
    }

    #[test]
    fn a_number_of_flows_counts_up_source_ports() {
        let all = flows("10.0.0.1", "10.0.1.1", "65534", Some(4)).headers(false).unwrap();
        let ports: Vec<_> = all.iter().map(|flow| flow.from_port).collect();
        assert_eq!(ports, [65534, 65535, 0, 1]);
        let error = flows("10.0.0.1", "10.0.1.1", "1..6", Some(4)).headers(false).unwrap_err();
        assert!(error.to_string().contains("--flows: got 4"), "{error}");
        assert!(flows("10.0.0.1", "10.0.1.1", "1..6", Some(6)).headers(false).is_ok());
        assert!(flows("10.0.0.1..10.0.100.0", "10.0.1.1", "1..1009", None).headers(false).is_err());
        assert!(flows("10.0.0.1", "fd00::1", "1", None).headers(false).is_err());
    }

    #[test]
    fn what_travels_back_has_source_and_destination_exchanged() {
        let flows = flows("10.0.0.1..10.0.0.2", "10.0.1.1", "1000", None);
        for (there, back) in flows.headers(false).unwrap().iter().zip(flows.headers(true).unwrap())
        {
            let (Addresses::V4(from, to), Addresses::V4(back_from, back_to)) =
                (there.addresses, back.addresses)
            else {
                panic!("of one family")
            };
            assert_eq!((from, to), (back_to, back_from));
            assert_eq!((there.from_port, there.to_port), (back.to_port, back.from_port));
        }
    }
}
