//! Errors that keep a pair of captures from being analysed.

use probe::encryption::Encryption;
use units::Nanos;

/// What keeps packets from being known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// They are encrypted anew.
    Encrypted(Encryption),
    /// They are HTTP, which a proxy may write anew.
    Http,
    /// A capture has only their beginnings.
    Cut(CutPackets),
}

/// Packets of a sample that were not captured whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutPackets {
    /// Side: 0 before the device, 1 behind it.
    pub side: usize,
    /// Number of packets that are cut.
    pub cut: usize,
    /// Number of packets of the sample.
    pub of: usize,
    /// Most bytes that are left of one.
    pub kept: usize,
}

/// Stretches of streams that a capture has once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Those that both captures have.
    pub both: usize,
    /// Those that the one before the device has.
    pub of: usize,
}

/// The reason why a pair of captures gives no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] capture::Error),
    /// A capture has no packets to match.
    #[error("{file}: no packets: got 0, expected at least 1 {side} the device")]
    NoPackets {
        /// The file.
        file: String,
        /// `before` or `behind`.
        side: &'static str,
    },
    /// A capture of all devices of a host has packets as they came and as they left.
    #[error("{file}: the capture is of {} devices of a host, and has packets twice: {}", .devices.len(), listed(.devices))]
    SeveralDevices {
        /// The file.
        file: String,
        /// The devices.
        devices: Vec<capture::Device>,
    },
    /// Both captures are one.
    #[error(
        "{pre} and {post} are the same capture: every packet has the same time and bytes in both"
    )]
    SameCapture {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
    },
    /// No packet is in both captures.
    #[error(
        "{pre} and {post} hold different traffic: no more packets of one are in the other than by chance{tried}"
    )]
    DifferentTraffic {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// The keys that were tried, in words.
        tried: String,
    },
    /// No packet is in both captures, as what passes the device is encrypted anew.
    #[error(
        "{pre} and {post} have no packets in common: they hold different traffic, or the device terminates {}, which \
         changes all bytes",
        name_of(*.what)
    )]
    Encrypted {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// What encrypts.
        what: Encryption,
    },
    /// No packet is in both captures, and both carry HTTP.
    #[error(
        "{pre} and {post} have no TCP stream in common: they hold different traffic, or the device is an HTTP proxy, \
         which writes heads anew, and too little else tells messages apart"
    )]
    Http {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
    },
    /// No TCP stream is in both captures, but parts of streams are, and no segment ends in one.
    #[error(
        "{pre} and {post} have no TCP stream in common, but {} % of what the streams of {pre} contain once: the device \
         changes what it passes on, as a proxy does that adds headers, or both carry the same at different times",
        100 * shared.both / shared.of
    )]
    BytesChanged {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// Stretches of streams that are in both.
        shared: Shared,
    },
    /// No packet is in both captures by what is left of packets that were not captured whole.
    #[error(
        "{}: {} of the first {} packets are cut, to {} bytes: by what is left, {pre} and {post} have no packets in \
         common", if cut.side == 0 { pre } else { post }, cut.cut, cut.of, cut.kept
    )]
    Cut {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// The packets.
        cut: CutPackets,
    },
    /// Some packets are alike, and chance explains that.
    #[error(
        "{pre} and {post} hold different traffic: only {matched} of {of} packets that they would have in common are \
         alike"
    )]
    FewAlike {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// Packets that are alike.
        matched: usize,
        /// Packets of the time that both captures would have in common.
        of: usize,
    },
    /// Packets carry the same, and seem to be those of two runs.
    #[error(
        "{pre} and {post} seem to be of two runs: packets carry the same, but {why}, and lie {} from one to the \
         other",
        readable(offset.0)
    )]
    TwoRuns {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// What they have not in common.
        why: &'static str,
        /// How far apart they are.
        offset: Nanos,
    },
    /// Packets passed the capture behind the device first, as their hops tell.
    #[error(
        "{pre} and {post} are swapped: packets have a higher TTL behind the device than before it"
    )]
    Swapped {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
    },
    /// The same, and nothing tells whether the clocks are apart.
    #[error(
        "{pre} and {post}: every packet was seen behind the device first, by up to {}: they are \
         swapped, or their clocks are apart",
        readable(ns.unsigned_abs())
    )]
    SwappedOrApart {
        /// The file before the device.
        pre: String,
        /// The file behind it.
        post: String,
        /// The least time from before the device to behind it, in ns.
        ns: i64,
    },
    /// The two clocks differ.
    #[error("the clocks of the two captures are apart: {why}")]
    ClocksApart {
        /// Observation that shows it.
        why: String,
    },
    /// The two clocks differ, and the pair is matched by bytes of TCP streams, which does not tell by how much.
    #[error(
        "the clocks of the two captures are apart, and bytes of TCP streams do not tell by how much: {why}"
    )]
    StreamClocksApart {
        /// Observation that shows it.
        why: String,
    },
    /// One of the two clocks stepped.
    #[error(
        "one of the two clocks stepped: {} after the first packet before the device, packets begin to \
         lie {} further {way} from one capture to the other",
        readable(at.0),
        readable(by.0)
    )]
    ClockSteps {
        /// Time since the first packet before the device.
        at: Nanos,
        /// Size of the step.
        by: Nanos,
        /// Direction of the step: `on` or `back`.
        way: &'static str,
    },
    /// Some packets come out in another form only behind the beginning of the captures.
    #[error("packets change their form within the captures: only {key} joins those that are left")]
    KeyChanges {
        /// The key by which all are the same.
        key: String,
    },
    /// The difference of two clocks cannot be told from so little.
    #[error(
        "the clocks of the two captures are apart, and {got} do not suffice to estimate by how much"
    )]
    ClocksUnknown {
        /// Description of the packets that there are.
        got: String,
    },
    /// A packet was captured shorter than its key.
    #[error(
        "{file}: byte {offset}: packet {packet}: captured too short for its key: got {got} bytes, \
         expected at least {need}"
    )]
    ShortCapture {
        /// The file.
        file: String,
        /// Offset at which the record starts, in bytes (after decompression where the capture is
        /// compressed).
        offset: u64,
        /// The packet's number; the first is 1.
        packet: u64,
        /// The captured bytes.
        got: usize,
        /// The bytes that the key needs.
        need: u32,
    },
    /// Packets are further out of order than can be mended on the way.
    #[error(
        "{file}: byte {offset}: packet {packet}: time goes back: got {} before an earlier packet, \
         expected packets in the order of their times",
        readable(expected_ns - got_ns)
    )]
    TimeGoesBack {
        /// The file.
        file: String,
        /// Offset at which the record starts, in bytes (after decompression where the capture is
        /// compressed).
        offset: u64,
        /// The packet's number; the first is 1.
        packet: u64,
        /// The packet's time.
        got_ns: u64,
        /// The time that was reached before.
        expected_ns: u64,
    },
    /// More packets wait for their counterpart than memory is meant for.
    #[error(
        "{file}: packet {packet}: too many packets wait for their counterpart at {at_ns} ns, within a \
         window of {window}: expected at most {limit}{}; {unmatched} have left the window unmatched, \
         {orphans} behind the device have none before it",
        bytes.map_or(String::new(), |bytes| format!(" of two captures of {bytes} bytes"))
    )]
    InFlight {
        /// The file that was read.
        file: String,
        /// The number of the packet there is no room for, in order of time; the first is 1.
        packet: u64,
        /// The time that was reached.
        at_ns: u64,
        /// The window.
        window: Nanos,
        /// The bound.
        limit: usize,
        /// The bytes of both captures, if the bound follows from them.
        bytes: Option<u64>,
        /// Packets that were not matched within the window.
        unmatched: usize,
        /// Posts without a pre packet.
        orphans: usize,
    },
    /// A capture holds more bytes of TCP streams than are kept.
    #[error(
        "{file}: packet {packet}: more bytes of TCP streams than are kept to match them: expected at most {limit}"
    )]
    StreamsTooLong {
        /// The file.
        file: String,
        /// The packet's number; the first is 1.
        packet: u64,
        /// The bound.
        limit: usize,
    },
    /// The window is too long to be counted.
    #[error("window: got {got}, expected 1ns to {max}")]
    Window {
        /// The window asked for.
        got: Nanos,
        /// The longest one.
        max: Nanos,
    },
    /// A recording contradicts itself.
    #[error("recording: {field}[{at}]: got {got}, expected {expected}")]
    Recording {
        /// The array.
        field: &'static str,
        /// The entry.
        at: usize,
        /// Its value.
        got: u64,
        /// The expected value.
        expected: String,
    },
    /// A capture that can only be read once cannot be read in slices.
    #[error("{file}: cannot be divided: got a pipe, expected a file")]
    Pipe {
        /// Its name.
        file: String,
    },
    /// Packets that share a key reach from one slice into the next.
    #[error(
        "packets share their key over more than the window of {window}: slices do not tell them apart"
    )]
    Torn {
        /// The window.
        window: Nanos,
    },
    /// Packets cannot be grouped by this.
    #[error("by: got {got:?}, expected {expected}")]
    By {
        /// What was asked for.
        got: String,
        /// What may be.
        expected: String,
    },
    /// A capture of several files is not divided.
    #[error("{file}: a capture of several files is not divided")]
    SeveralFiles {
        /// The capture.
        file: String,
    },
    /// A flow is never seen behind the device, and slices do not tell whether it goes elsewhere.
    #[error("packets of a flow are never seen behind the device: slices do not tell why")]
    FlowsUnseen,
    /// Parts are not those of one pair.
    #[error("parts: {what}: got {got}, expected {expected}")]
    Parts {
        /// Property that does not fit.
        what: &'static str,
        /// Its value.
        got: String,
        /// The expected value.
        expected: String,
    },
    /// Bytes that are no slice, or no part.
    #[error("{what}: byte {offset}: got {got}, expected {expected}")]
    Encoded {
        /// Name of what was expected.
        what: &'static str,
        /// Offset in the bytes, after decompression.
        offset: usize,
        /// Value that is there.
        got: String,
        /// The expected value.
        expected: String,
    },
    /// Bytes that are no histogram of HdrHistogram.
    #[error("{0}")]
    Hdr(String),
    /// The observer asked to stop.
    #[error("stopped")]
    Stopped,
}

fn name_of(what: Encryption) -> &'static str {
    match what {
        Encryption::Tls => "TLS",
        Encryption::Dtls => "DTLS",
        Encryption::Quic => "QUIC",
    }
}

/// Returns devices as their user chooses them.
fn listed(devices: &[capture::Device]) -> String {
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Writes a duration in the unit that suits it, with four digits.
fn readable(ns: u64) -> String {
    let (unit, scale, digits) = [("s", 1_000_000_000, 9), ("ms", 1_000_000, 6), ("µs", 1_000, 3)]
        .into_iter()
        .find(|(_, scale, _)| ns >= *scale)
        .unwrap_or(("ns", 1, 0));
    let decimals = match ns / scale {
        0..=9 => 3,
        10..=99 => 2,
        100..=999 => 1,
        _ => 0,
    }
    .min(digits);
    let fraction = ns % scale / 10_u64.pow(digits - decimals);
    if decimals == 0 {
        return format!("{} {unit}", ns / scale);
    }
    format!("{}.{fraction:0width$} {unit}", ns / scale, width = decimals as usize)
}

impl Error {
    #[cold]
    pub(crate) fn time_goes_back(
        file: &str,
        packet: &capture::Packet<'_>,
        number: u64,
        expected_ns: u64,
    ) -> Self {
        let (offset, got_ns) = (packet.offset, packet.ts.0);
        Self::TimeGoesBack { file: file.into(), offset, packet: number, got_ns, expected_ns }
    }

    pub(crate) fn clock_steps(at: Nanos, by_ns: i64) -> Self {
        let way = if by_ns < 0 { "back" } else { "on" };
        Self::ClockSteps { at, by: Nanos(by_ns.unsigned_abs()), way }
    }

    pub(crate) fn wrong(field: &'static str, at: usize, got: u64, expected: &str) -> Self {
        Self::Recording { field, at, got, expected: expected.into() }
    }

    /// Returns why captures have no packets in common, if this is so, and that is known.
    pub(crate) fn explained_by(self, obstacle: Option<Obstacle>) -> Self {
        match (self, obstacle) {
            (Self::DifferentTraffic { pre, post, .. }, Some(Obstacle::Encrypted(what))) => {
                Self::Encrypted { pre, post, what }
            }
            (Self::DifferentTraffic { pre, post, .. }, Some(Obstacle::Cut(cut))) => {
                Self::Cut { pre, post, cut }
            }
            (Self::DifferentTraffic { pre, post, .. }, Some(Obstacle::Http)) => {
                Self::Http { pre, post }
            }
            (error, _) => error,
        }
    }

    /// Returns the stable code of the error, which programs compare instead of the message.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Capture(error) => error.code(),
            Self::NoPackets { .. } => "no-packets",
            Self::SeveralDevices { .. } => "several-devices",
            Self::SameCapture { .. } => "same-capture",
            Self::Encrypted { what: Encryption::Tls, .. } => "encrypted-tls",
            Self::Encrypted { what: Encryption::Dtls, .. } => "encrypted-dtls",
            Self::Encrypted { what: Encryption::Quic, .. } => "encrypted-quic",
            Self::DifferentTraffic { .. } | Self::FewAlike { .. } => "different-traffic",
            Self::BytesChanged { .. } => "bytes-changed",
            Self::Http { .. } => "http-proxy",
            Self::Cut { .. } => "packets-cut",
            Self::TwoRuns { .. } => "two-runs",
            Self::Swapped { .. } => "swapped",
            Self::SwappedOrApart { .. } => "swapped-or-apart",
            Self::ClocksApart { .. } => "clocks-apart",
            Self::StreamClocksApart { .. } => "stream-clocks-apart",
            Self::ClockSteps { .. } => "clock-steps",
            Self::KeyChanges { .. } => "key-changes",
            Self::ClocksUnknown { .. } => "clocks-unknown",
            Self::ShortCapture { .. } => "packet-too-short",
            Self::TimeGoesBack { .. } => "time-goes-back",
            Self::InFlight { .. } => "too-many-in-flight",
            Self::StreamsTooLong { .. } => "streams-too-long",
            Self::Window { .. } => "window",
            Self::Recording { .. } => "recording",
            Self::Pipe { .. } => "pipe",
            Self::Torn { .. } => "keys-repeat",
            Self::SeveralFiles { .. } => "several-files",
            Self::FlowsUnseen => "flows-unseen",
            Self::By { .. } => "by",
            Self::Parts { what: "times", .. } => "parts-missing",
            Self::Parts { what: "begin of one", .. } => "parts-overlap",
            Self::Parts { what: "captures", .. } => "parts-captures",
            Self::Parts { what: "settings", .. } => "parts-settings",
            Self::Parts { .. } => "parts",
            Self::Encoded { what: "slice", .. } => "not-a-slice",
            Self::Encoded { .. } => "not-a-part",
            Self::Hdr(_) => "hdr-histogram",
            Self::Stopped => "stopped",
        }
    }

    /// Returns advice apart from the message, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Capture(error) => error.hint(),
            Self::ShortCapture { .. } => Some(
                "capture whole packets (tcpdump -s 0), or match on fewer bytes: --match-on bytes:OFF+LEN",
            ),
            Self::BytesChanged { .. } | Self::Http { .. } => Some(
                "of a stream that a device changes, only segments have a latency that end in parts that are the same \
                 and nowhere else, of a kilobyte or so, such as bodies that differ: let the proxy pass TCP on as it \
                 is (HAProxy: mode tcp), or take its own log of requests",
            ),
            Self::Cut { .. } => Some(
                "capture whole packets (tcpdump -s 0): through a proxy or a tunnel, only what they carry stays as it is; \
                 check, too, that both were taken at the same time",
            ),
            Self::SeveralDevices { .. } => Some(
                "choose one by its index, FILE:if2 for the 2 of `ip link`; --pre FILE:if2 --post FILE:if3 \
                 analyses a file with both sides",
            ),
            Self::SameCapture { .. } => {
                Some("name the capture before the device, then the one behind it")
            }
            Self::TwoRuns { .. } => Some(
                "give both captures of one run; if they are, and the clocks differ by that, say --clocks estimate",
            ),
            Self::DifferentTraffic { .. } | Self::FewAlike { .. } => Some(
                "check that both were taken at the same time; a device that changes the payload needs \
                 --match-on bytes:OFF+LEN/OFF+LEN",
            ),
            Self::Encrypted { .. } => Some(
                "take both captures where the same connection passes, or where it is not encrypted",
            ),
            Self::Swapped { .. } => Some("give the captures in the other order"),
            Self::SwappedOrApart { .. } => Some(
                "give the captures in the other order; or, if two clocks stamped them, say --clocks estimate",
            ),
            Self::ClocksApart { .. } => Some(
                "--clocks estimate gives latencies above the fastest packet, --clocks offset=TIME,drift=PPM \
                 takes a difference that you know, --clocks same trusts the captures",
            ),
            Self::ClockSteps { .. } => Some(
                "cut both captures there, for instance with editcap -A and -B, and analyse each part; \
                 --clocks same trusts the captures, if it was the device that became slower",
            ),
            Self::KeyChanges { .. } => Some("match on that key: --match-on KEY"),
            Self::StreamClocksApart { .. } => Some(
                "--clocks offset=TIME takes a difference that you know, --clocks same trusts the captures",
            ),
            Self::StreamsTooLong { .. } => Some(
                "cut both captures at the same time, for instance with editcap -A and -B, and analyse each part",
            ),
            Self::ClocksUnknown { .. } => {
                Some("say --clocks offset=TIME, if you know the difference")
            }
            Self::Torn { .. } | Self::FlowsUnseen | Self::SeveralFiles { .. } => {
                Some("analyse the pair in one piece")
            }
            Self::TimeGoesBack { .. } => {
                Some("sort the capture by time first, for instance with reordercap")
            }
            Self::InFlight { bytes: Some(_), .. } => Some(
                "shorten --window; a compressed capture seldom holds so many packets in so few bytes: \
                 if you trust it, decompress it first",
            ),
            Self::InFlight { .. } => Some(
                "shorten --window, or check that both captures hold the same traffic and time base",
            ),
            _ => None,
        }
    }
}
