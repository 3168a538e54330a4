//! What must hold of each parser, whatever bytes it is given: functions that `fuzz/` feeds, and that
//! the tests of this crate feed with `fuzz/corpus`.
//!
//! Each panics if it does not hold, and says whether the bytes are of the kind that the parser reads.

pub mod compressed;
pub mod erf;
pub mod filter;
pub mod hdr;
pub mod interfaces;
pub mod keys;
pub mod mscap;
pub mod pair;
pub mod part;
pub mod pcap;
pub mod pcapng;
pub mod snoop;
pub mod stamp;
pub mod streams;
pub mod survey;
pub mod trace;
pub mod trailer;

/// Takes any bytes; whether they are of the kind that the parser reads.
pub type Target = fn(&[u8]) -> bool;

/// The functions by their names.
pub const TARGETS: [(&str, Target); 16] = [
    ("compressed", compressed::run),
    ("erf", erf::run),
    ("filter", filter::run),
    ("hdr", hdr::run),
    ("interfaces", interfaces::run),
    ("keys", keys::run),
    ("mscap", mscap::run),
    ("pair", pair::run),
    ("part", part::run),
    ("pcap", pcap::run),
    ("pcapng", pcapng::run),
    ("snoop", snoop::run),
    ("stamp", stamp::run),
    ("streams", streams::run),
    ("trace", trace::run),
    ("trailer", trailer::run),
];
