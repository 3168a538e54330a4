use units::{Nanos, Pps};

/// An invalid request to this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text names no way to match packets.
    #[error(
        "{got:?} is not a way to match packets: \
         expected auto, probe, frame, l3, payload, inner, tcp-bytes or bytes:OFF+LEN,..., like bytes:42+8"
    )]
    MatchOn {
        /// The text as given.
        got: String,
    },
    /// A part of a `bytes:` list is not a range of bytes.
    #[error("{got:?} is not a range of bytes: expected OFF+LEN with LEN at least 1, like 42+8")]
    ByteRange {
        /// The part as given.
        got: String,
    },
    /// The two sides of a `bytes:` list differ in length.
    #[error("both sides of a slash take as many bytes of a frame, got {got}")]
    Sides {
        /// The lengths.
        got: String,
    },
    /// The text names no pattern of departures.
    #[error(
        "{got:?} is not a pattern: expected cbr, poisson, burst:SIZE,GAP or poisson:SIZE,GAP, \
         like burst:32,67ns"
    )]
    Pattern {
        /// The text as given.
        got: String,
    },
    /// The text describes no tunnel.
    #[error(
        "{got:?} is not a tunnel: expected gtpu:teid=N[,qfi=N], vxlan:vni=N, geneve:vni=N, gre[:key=N], \
         mpls:label=N, srv6:segments=IP/IP... or ipip, each but mpls with src=IP and dst=IP where the \
         tunnel's ends are not the packets' own (srv6: src)"
    )]
    Tunnel {
        /// The text as given.
        got: String,
    },
    /// A schedule without packets.
    #[error("a rate of {got} sends nothing: expected at least 1 packet/s")]
    Rate {
        /// The rate as given.
        got: Pps,
    },
    /// A burst without packets.
    #[error("a burst of 0 packets sends nothing: expected at least 1")]
    EmptyBurst,
    /// Bursts that run into each other.
    #[error("a burst of {size} packets lasts {got}: expected less than the {expected} between two")]
    Burst {
        /// Packets in a burst.
        size: u32,
        /// Duration of one burst.
        got: Nanos,
        /// The time from one burst to the next.
        expected: Nanos,
    },
}

impl Error {
    /// Returns the stable code of the error, which programs compare instead of the message.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::MatchOn { .. } => "match-on",
            Self::ByteRange { .. } => "byte-range",
            Self::Sides { .. } => "byte-range-sides",
            Self::Pattern { .. } => "pattern",
            Self::Tunnel { .. } => "tunnel",
            Self::Rate { .. } => "rate",
            Self::EmptyBurst => "burst-empty",
            Self::Burst { .. } => "burst-too-long",
        }
    }
}
