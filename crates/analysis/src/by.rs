//! Figures by what packets have in common: their flow, port, protocol, size, VLAN or type of service.

use std::collections::BTreeMap;
use std::str::FromStr;

use probe::flow::Flow;

use crate::error::Error;
use crate::ledger::{LossRun, SIZES, Tolls, name_of};
use crate::pair::Analysis;
use crate::tally::Tally;
use crate::varieties::OTHERS;

/// The quantile above which packets are those of the tail.
const TAIL: f64 = 0.99;

/// What packets of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Addresses, ports, protocol and VLAN.
    Flow,
    /// Protocol and port of the destination.
    ToPort,
    /// The transport protocol, or the ethertype.
    Protocol,
    /// The length on the wire, in classes.
    Size,
    /// The VLAN.
    Vlan,
    /// Type of service, without congestion marks.
    Tos,
}

impl By {
    /// Every one, with its name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("flow", Self::Flow),
        ("dst_port", Self::ToPort),
        ("protocol", Self::Protocol),
        ("size", Self::Size),
        ("vlan", Self::Vlan),
        ("tos", Self::Tos),
    ];

    fn name(self, number: u32, flow: &Flow, class: u8) -> String {
        match self {
            Self::Size => size_name(class),
            _ if number == OTHERS => name_of(number, flow),
            Self::Flow => flow.to_string(),
            Self::ToPort => match flow.to_port {
                Some(port) => format!("{} {port}", flow.protocol()),
                None => flow.protocol(),
            },
            Self::Protocol => flow.protocol(),
            Self::Vlan => flow.vlan.map_or_else(|| "none".into(), |vlan| vlan.to_string()),
            Self::Tos => format!("{:#04x}", flow.tos),
        }
    }
}

impl FromStr for By {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, by)| *by).ok_or_else(|| {
            let expected = Self::ALL.map(|(name, _)| name).join(", ");
            Error::By { got: text.into(), expected }
        })
    }
}

fn size_name(class: u8) -> String {
    let class = usize::from(class);
    match (class.checked_sub(1).map(|below| SIZES[below]), SIZES.get(class)) {
        (None, Some(bound)) => format!("up to {} bytes", bound - 1),
        (Some(low), Some(bound)) => format!("{low} to {} bytes", bound - 1),
        (Some(low), None) => format!("{low} bytes and more"),
        (None, None) => unreachable!("there are bounds"),
    }
}

/// Figures of one group of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they have in common.
    pub name: String,
    /// Packets that are to be found behind the device.
    pub sent: u64,
    /// Those that were matched.
    pub matched: u64,
    /// Those that count as lost.
    pub lost: u64,
    /// Of `lost`, those of flows that are never seen behind the device: they may go elsewhere.
    pub unseen: u64,
    /// Median and 99th percentile of the latency in ns; `None` without samples, or with too many groups.
    pub quantiles_ns: [Option<u64>; 2],
    /// Highest latency, in ns.
    pub worst_ns: Option<u64>,
    /// Matches above the 99th percentile of all.
    pub tail: Option<u64>,
    /// True if quantiles are exact; else they are at most a 2048th too low.
    pub exact: bool,
}

impl Analysis {
    /// Returns the flows of which no packet is seen behind the device, though chance does not explain that.
    pub(crate) fn unseen_flows(&self) -> Vec<u32> {
        if self.config.whole { Vec::new() } else { self.ledger.unseen() }
    }

    /// Returns the figures of each group, those of the most packets first; none of a recording, and of a pair that
    /// was joined from slices.
    #[must_use]
    pub fn groups(&self, by: By) -> Vec<Group> {
        let unseen = self.unseen_flows();
        let mut groups: BTreeMap<String, (Tolls, u64, Vec<&Tally>)> = BTreeMap::new();
        for (number, class, tolls, tally) in self.ledger.groups() {
            let name = by.name(number, self.ledger.flow(number), class);
            let (sum, lost_unseen, tallies) = groups.entry(name).or_default();
            sum.matched += tolls.matched;
            sum.lost += tolls.lost;
            sum.elsewhere += tolls.elsewhere;
            sum.longest_ns = sum.longest_ns.max(tolls.longest_ns);
            *lost_unseen += if unseen.contains(&number) { tolls.lost } else { 0 };
            tallies.push(tally);
        }
        let limit = self.latency.quantiles(&[TAIL]).first().map(|quantile| quantile.value_ns);
        let mut found: Vec<Group> = groups
            .into_iter()
            .map(|(name, (tolls, unseen, tallies))| {
                let Tolls { matched, lost, elsewhere, longest_ns } = tolls;
                let joined = Tally::joined(tallies);
                Group {
                    name,
                    sent: matched + lost + elsewhere,
                    matched,
                    lost,
                    unseen,
                    quantiles_ns: [0.5, TAIL].map(|q| joined.quantile(q)),
                    worst_ns: (matched > 0).then_some(longest_ns),
                    tail: limit.and_then(|limit| joined.above(limit)),
                    exact: joined.is_exact(),
                }
            })
            .filter(|group| group.sent > 0)
            .collect();
        found.sort_by_key(|group| std::cmp::Reverse(group.sent));
        found
    }

    /// Returns the runs of at least ten packets that were lost one behind the other, those of the most packets first.
    #[must_use]
    pub fn loss_runs(&self) -> Vec<LossRun> {
        let unseen = self.unseen_flows();
        self.ledger.runs(|flow| !unseen.contains(&flow))
    }

    /// Returns flow and size in bytes of each of the worst packets; none where flows are not told apart.
    #[must_use]
    pub fn worst_flows(&self) -> Option<Vec<(String, u64)>> {
        let of = |number: u32| {
            let variety = self.ledger.variety_of(number);
            (name_of(variety.flow, self.ledger.flow(variety.flow)), variety.size_bytes.into())
        };
        self.worst.iter().map(|packet| packet.variety.map(of)).collect()
    }

    /// Says which flows are never seen behind the device.
    pub(crate) fn warn_of_flows(&self, warnings: &mut Vec<String>) {
        let unseen = self.unseen_flows();
        if let Some(first) = unseen.first() {
            let (count, packets) = (unseen.len(), self.ledger.lost_of(&unseen));
            let which = if count == 1 { "" } else { ", among others" };
            warnings.push(format!(
                "flows that never appear behind the device: {count} of {} ({}{which}). Their {packets} packets may \
                 leave by another port, or be filtered: they count as lost, but the captures do not prove it",
                self.ledger.flow_count(),
                self.ledger.flow(*first)
            ));
        }
    }
}
