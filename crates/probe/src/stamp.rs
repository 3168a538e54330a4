//! Packets of STAMP (RFC 8762, unauthenticated) with the extensions of RFC 8972 that tailscope uses.
//! The same bytes serve TWAMP light (RFC 5357, appendix I), whose packets may be shorter.
//!
//! ```text
//!  query   0 seq   4 sent   12 error 14 ssid 16 zero ...............................................  44 TLVs
//!  answer  0 seq   4 sent   12 error 14 ssid 16 received 24 query seq 28 query sent 36 error 40 ttl  44 TLVs
//! ```

/// Length of a packet without extensions.
pub const BASE: usize = 44;
/// Length of the shortest packet that an answer fits in: that of TWAMP light ends behind the hop limit.
pub const LEAST: usize = 41;
/// Port at which reflectors listen.
pub const PORT: u16 = 862;

/// Seconds from 1900, where NTP counts from, to 1970.
const EPOCH_S: u64 = 2_208_988_800;
const NS_PER_S: u64 = 1_000_000_000;
/// Clocks of two hosts differ by less, or one of them is of no use.
const RECENT_NS: u64 = 3_600 * NS_PER_S;

const HEADER: usize = 4;
const UNRECOGNIZED: u8 = 0x80;
const MALFORMED: u8 = 0x40;
const PADDING: u8 = 1;
const CLASS: u8 = 4;
const CLASS_LEN: usize = 4;
const FOLLOW_UP: u8 = 7;
const FOLLOW_UP_LEN: usize = 16;
/// "SW local": the kernel took the time.
const BY_KERNEL: u8 = 2;
/// One of the types that RFC 8972 leaves to private use.
const WATCH: u8 = 252;
const WATCH_LEN: usize = 52;
const WATCH_MAGIC: [u8; 4] = *b"tsw1";

/// Bytes that a follow-up takes.
pub const FOLLOW_UP_BYTES: usize = HEADER + FOLLOW_UP_LEN;
/// Bytes that a watch takes.
pub const WATCH_BYTES: usize = HEADER + WATCH_LEN;
/// Bytes that a class of service takes.
pub const CLASS_BYTES: usize = HEADER + CLASS_LEN;

/// How far a clock may be off, as packets say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockError {
    /// True if the clock follows UTC by an external source.
    pub synchronised: bool,
    /// The most that it is off by; rounded up.
    pub most_ns: u64,
}

impl ClockError {
    /// What 16 bits say: whether it is synchronised, the format of times, a scale and a multiplier.
    fn from_bits(bits: u16) -> Self {
        let (scale, multiplier) = (u32::from(bits >> 8) & 0x3f, u128::from(bits & 0xff));
        let most = ((multiplier << scale) * u128::from(NS_PER_S)).div_ceil(1 << 32);
        let most_ns = u64::try_from(most).unwrap_or(u64::MAX);
        Self { synchronised: bits & 0x8000 != 0, most_ns }
    }

    fn bits(self) -> u16 {
        let units = (u128::from(self.most_ns) << 32).div_ceil(u128::from(NS_PER_S)).max(1);
        let scale = (128 - units.leading_zeros()).saturating_sub(8);
        let (scale, multiplier) = match units.div_ceil(1 << scale) {
            256 => (scale + 1, 128),
            multiplier => (scale, multiplier as u16),
        };
        let synchronised = if self.synchronised { 0x8000 } else { 0 };
        synchronised | ((scale.min(63) as u16) << 8) | multiplier
    }
}

/// What a sender asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The packet's number.
    pub seq: u32,
    /// When it left, in ns since 1970.
    pub sent_ns: u64,
    /// How far that may be off.
    pub error: ClockError,
    /// The session of the sender.
    pub ssid: u16,
}

/// Extensions that a query asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// When earlier answers really left.
    pub follow_up: bool,
    /// What the reflector knows of itself.
    pub watch: bool,
    /// The class of service that answers shall have.
    pub dscp: Option<u8>,
}

impl Extensions {
    /// Bytes of a packet with these extensions.
    #[must_use]
    pub fn packet_bytes(self) -> usize {
        BASE + usize::from(self.follow_up) * FOLLOW_UP_BYTES
            + usize::from(self.watch) * WATCH_BYTES
            + usize::from(self.dscp.is_some()) * CLASS_BYTES
    }
}

impl Query {
    /// Writes the packet into all of `bytes`, padded to its end.
    ///
    /// # Panics
    /// When there is no room for the extensions.
    pub fn write(&self, bytes: &mut [u8], extensions: Extensions) {
        assert!(bytes.len() >= extensions.packet_bytes(), "extensions fit");
        bytes.fill(0);
        put(bytes, 0, &self.seq.to_be_bytes());
        self.write_sent(bytes);
        put(bytes, 12, &self.error.bits().to_be_bytes());
        put(bytes, 14, &self.ssid.to_be_bytes());
        let mut end = BASE;
        if extensions.follow_up {
            begin(bytes, &mut end, FOLLOW_UP, FOLLOW_UP_LEN);
        }
        if extensions.watch {
            let value = begin(bytes, &mut end, WATCH, WATCH_LEN);
            put(bytes, value, &WATCH_MAGIC);
        }
        if let Some(dscp) = extensions.dscp {
            let value = begin(bytes, &mut end, CLASS, CLASS_LEN);
            bytes[value] = dscp << 2;
        }
        if let Some(len) = (bytes.len() - end).checked_sub(HEADER) {
            begin(bytes, &mut end, PADDING, len);
        }
    }

    /// Writes the time at which it leaves once more.
    pub fn write_sent(&self, bytes: &mut [u8]) {
        put(bytes, 4, &to_ntp(self.sent_ns).to_be_bytes());
    }

    /// Reads a packet; `None` if it is too short to be answered.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= LEAST).then(|| Self {
            seq: u32_at(bytes, 0),
            sent_ns: time_at(bytes, 4, u16_at(bytes, 12)),
            error: ClockError::from_bits(u16_at(bytes, 12)),
            ssid: u16_at(bytes, 14),
        })
    }

    /// Whether a packet is an answer, by the time at which it says that its query came. Two reflectors that
    /// answered each other's answers would never end.
    #[must_use]
    pub fn is_answer(bytes: &[u8], now_ns: u64) -> bool {
        bytes.len() >= LEAST && from_ntp(u64_at(bytes, 16)).abs_diff(now_ns) < RECENT_NS
    }
}

/// When an answer left, which is told by a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowUp {
    /// The answer's own number.
    pub seq: u32,
    /// When the kernel handed it to the link, in ns since 1970.
    pub sent_ns: u64,
}

/// Why a loop did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Nobody knows; also what this version does not know.
    #[default]
    Unknown = 0,
    /// The process was stopped by a signal, and continued.
    Stopped = 1,
    /// The quota of its control group was used up.
    Throttled = 2,
    /// It waited for a CPU that others had.
    Preempted = 3,
    /// A page had to be read from a disk.
    Paged = 4,
    /// It was busy with packets that came before.
    Busy = 5,
    /// The clock was set.
    ClockStep = 6,
}

impl Cause {
    /// Every cause, by its number.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Stopped,
        Self::Throttled,
        Self::Preempted,
        Self::Paged,
        Self::Busy,
        Self::ClockStep,
    ];

    fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// What a reflector of tailscope says of itself in each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// A digest of the kernel's boot: two ends with the same one have one clock.
    pub boot: u32,
    /// Packets for which its socket had no room, of all sessions.
    pub dropped: u32,
    /// Packets of this source that it refused, as they came too fast.
    pub refused: u32,
    /// Stalls of its loop so far.
    pub stalls: u32,
    /// Why the last one was.
    pub cause: Cause,
    /// When that began, in ns since 1970.
    pub stall_ns: u64,
    /// How long it took.
    pub lasted_ns: u64,
    /// How long its loop has waited for a CPU in all.
    pub run_delay_us: u32,
    /// How long its control group was throttled in all.
    pub throttled_us: u32,
    /// Answers to this source that its system did not take.
    pub unsent: u32,
}

impl Watch {
    fn write(&self, value: &mut [u8]) {
        put(value, 0, &WATCH_MAGIC);
        put(value, 4, &self.boot.to_be_bytes());
        put(value, 8, &self.dropped.to_be_bytes());
        put(value, 12, &self.refused.to_be_bytes());
        put(value, 16, &self.stalls.to_be_bytes());
        put(value, 20, &[self.cause as u8, 0, 0, 0]);
        put(value, 24, &self.stall_ns.to_be_bytes());
        put(value, 32, &self.lasted_ns.to_be_bytes());
        put(value, 40, &self.run_delay_us.to_be_bytes());
        put(value, 44, &self.throttled_us.to_be_bytes());
        put(value, 48, &self.unsent.to_be_bytes());
    }

    fn read(value: &[u8]) -> Self {
        Self {
            boot: u32_at(value, 4),
            dropped: u32_at(value, 8),
            refused: u32_at(value, 12),
            stalls: u32_at(value, 16),
            cause: Cause::from_number(value[20]),
            stall_ns: u64_at(value, 24),
            lasted_ns: u64_at(value, 32),
            run_delay_us: u32_at(value, 40),
            throttled_us: u32_at(value, 44),
            unsent: u32_at(value, 48),
        }
    }
}

/// What a reflector knows when it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The answer's own number in its session.
    pub seq: u32,
    /// When the query came, in ns since 1970.
    pub received_ns: u64,
    /// When the answer leaves.
    pub sent_ns: u64,
    /// How far both may be off.
    pub error: ClockError,
    /// Hop limit with which the query came; 255 if that is not known.
    pub ttl: u8,
    /// Class of service and congestion bits with which it came.
    pub tos: u8,
    /// When an earlier answer of the session left.
    pub follow_up: Option<FollowUp>,
    /// What it says of itself.
    pub watch: Watch,
}

/// What an answer used of what was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The follow-up was told.
    pub follow_up: bool,
    /// The class of service that the answer shall leave with.
    pub dscp: Option<u8>,
}

impl Reply {
    /// Makes the answer to a query of the query itself: as long, never longer. `None` if the query is too
    /// short for an answer.
    pub fn write(&self, bytes: &mut [u8]) -> Option<Used> {
        if bytes.len() < LEAST {
            return None;
        }
        let query: [u8; 14] = bytes[..14].try_into().expect("so many");
        put(bytes, 0, &self.seq.to_be_bytes());
        self.write_sent(bytes);
        put(bytes, 12, &self.error.bits().to_be_bytes());
        put(bytes, 16, &to_ntp(self.received_ns).to_be_bytes());
        put(bytes, 24, &query);
        let end = BASE.min(bytes.len());
        bytes[38..end].fill(0);
        bytes[40] = self.ttl;
        Some(self.write_extensions(&mut bytes[end..]))
    }

    /// Writes the time at which it leaves once more.
    pub fn write_sent(&self, bytes: &mut [u8]) {
        put(bytes, 4, &to_ntp(self.sent_ns).to_be_bytes());
    }

    fn write_extensions(&self, mut rest: &mut [u8]) -> Used {
        let mut used = Used::default();
        while rest.len() >= HEADER {
            let (header, behind) = rest.split_at_mut(HEADER);
            let (kind, len) = (header[1], usize::from(u16_at(header, 2)));
            if len > behind.len() {
                header[0] = UNRECOGNIZED | MALFORMED;
                return used;
            }
            let (value, behind) = behind.split_at_mut(len);
            let known = match (kind, len) {
                (PADDING, _) => true,
                (CLASS, CLASS_LEN) => {
                    used.dscp = Some(value[0] >> 2);
                    let (dscp, ecn) = (self.tos >> 2, self.tos & 3);
                    value[0] = (value[0] & 0xfc) | (dscp >> 4);
                    value[1] = ((dscp & 0xf) << 4) | (ecn << 2);
                    true
                }
                (FOLLOW_UP, FOLLOW_UP_LEN) => {
                    let told = self.follow_up.unwrap_or_default();
                    used.follow_up = self.follow_up.is_some();
                    value.fill(0);
                    put(value, 0, &told.seq.to_be_bytes());
                    if self.follow_up.is_some() {
                        put(value, 4, &to_ntp(told.sent_ns).to_be_bytes());
                        value[12] = BY_KERNEL;
                    }
                    true
                }
                (WATCH, WATCH_LEN) if value.starts_with(&WATCH_MAGIC) => {
                    self.watch.write(value);
                    true
                }
                (CLASS | FOLLOW_UP, _) => {
                    header[0] = MALFORMED;
                    rest = behind;
                    continue;
                }
                _ => false,
            };
            header[0] = if known { 0 } else { UNRECOGNIZED };
            rest = behind;
        }
        used
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its own number in its session; the query's, of a reflector that keeps no state.
    pub seq: u32,
    /// When it left, in ns since 1970.
    pub sent_ns: u64,
    /// How far the reflector's clock may be off.
    pub error: ClockError,
    /// The session of the sender.
    pub ssid: u16,
    /// When the query came.
    pub received_ns: u64,
    /// The query's number.
    pub query_seq: u32,
    /// Hop limit with which the query came.
    pub ttl: u8,
    /// When an earlier answer left, if this one says so.
    pub follow_up: Option<FollowUp>,
    /// What the reflector says of itself, if it is one of tailscope.
    pub watch: Option<Watch>,
    /// Class of service with which the query came, if it says so.
    pub dscp: Option<u8>,
}

impl Answer {
    /// Reads an answer; `None` if it is too short to be one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < LEAST {
            return None;
        }
        let error = u16_at(bytes, 12);
        let mut answer = Self {
            seq: u32_at(bytes, 0),
            sent_ns: time_at(bytes, 4, error),
            error: ClockError::from_bits(error),
            ssid: u16_at(bytes, 14),
            received_ns: time_at(bytes, 16, error),
            query_seq: u32_at(bytes, 24),
            ttl: bytes[40],
            ..Self::default()
        };
        let mut rest = bytes.get(BASE..).unwrap_or_default();
        while let Some((header, behind)) = rest.split_at_checked(HEADER) {
            let len = usize::from(u16_at(header, 2));
            let Some((value, behind)) = behind.split_at_checked(len) else { break };
            if header[0] & (UNRECOGNIZED | MALFORMED) == 0 {
                answer.take(header[1], value);
            }
            rest = behind;
        }
        Some(answer)
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (FOLLOW_UP, FOLLOW_UP_LEN) if value[12] != 0 => {
                let sent_ns = from_ntp(u64_at(value, 4));
                self.follow_up = Some(FollowUp { seq: u32_at(value, 0), sent_ns });
            }
            (WATCH, WATCH_LEN) if value.starts_with(&WATCH_MAGIC) => {
                self.watch = Some(Watch::read(value));
            }
            (CLASS, CLASS_LEN) => self.dscp = Some(((value[0] & 3) << 4) | (value[1] >> 4)),
            _ => {}
        }
    }
}

/// Begins an extension at `end`, which moves behind it; says where its value is.
fn begin(bytes: &mut [u8], end: &mut usize, kind: u8, len: usize) -> usize {
    let value = *end + HEADER;
    put(bytes, *end, &[UNRECOGNIZED, kind]);
    put(bytes, *end + 2, &(len as u16).to_be_bytes());
    *end = value + len;
    value
}

/// Reads a time in the format that the error's second bit names: NTP's, or PTP's truncated.
fn time_at(bytes: &[u8], at: usize, error: u16) -> u64 {
    let time = u64_at(bytes, at);
    if error & 0x4000 == 0 {
        from_ntp(time)
    } else {
        (time >> 32) * NS_PER_S + (time & 0xffff_ffff)
    }
}

/// The 64 bits of NTP: seconds since 1900, and 2⁻³² s.
fn to_ntp(unix_ns: u64) -> u64 {
    let (s, ns) = (unix_ns / NS_PER_S + EPOCH_S, unix_ns % NS_PER_S);
    (s << 32) | (((ns << 32) + NS_PER_S / 2) / NS_PER_S)
}

/// ns since 1970 of NTP's time. What would be before 1970 is of the next era, which begins in 2036.
fn from_ntp(time: u64) -> u64 {
    let (s, fraction) = (time >> 32, time & 0xffff_ffff);
    let era = if s < EPOCH_S { 1 << 32 } else { 0 };
    (s + era - EPOCH_S) * NS_PER_S + ((fraction * NS_PER_S + (1 << 31)) >> 32)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Extensions = Extensions { follow_up: true, watch: true, dscp: Some(46) };

    fn query() -> Query {
        let error = ClockError { synchronised: true, most_ns: 12_345 };
        Query { seq: 7, sent_ns: 1_800_000_000_123_456_789, error, ssid: 513 }
    }

    fn reply() -> Reply {
        Reply {
            seq: 3,
            received_ns: 1_800_000_000_200_000_001,
            sent_ns: 1_800_000_000_200_004_002,
            error: ClockError { synchronised: false, most_ns: 16_000_000_000 },
            ttl: 61,
            tos: (34 << 2) | 1,
            follow_up: Some(FollowUp { seq: 2, sent_ns: 1_800_000_000_100_000_999 }),
            watch: Watch {
                boot: 1,
                dropped: 2,
                refused: 3,
                stalls: 4,
                cause: Cause::Throttled,
                stall_ns: 5,
                lasted_ns: 6,
                run_delay_us: 7,
                throttled_us: 8,
                unsent: 9,
            },
        }
    }

    #[test]
    fn an_answer_says_what_was_known_and_is_as_long() {
        let mut bytes = [0; 200];
        query().write(&mut bytes, ALL);
        let read = Query::read(&bytes).expect("a query");
        assert!(!Query::is_answer(&bytes, reply().sent_ns));
        assert_eq!(Query { error: query().error, ..read }, query());
        assert!(read.error.most_ns.abs_diff(12_345) < 12_345 / 128 + 1);
        let used = reply().write(&mut bytes).expect("an answer");
        assert_eq!(used, Used { follow_up: true, dscp: Some(46) });
        assert!(Query::is_answer(&bytes, reply().sent_ns));
        let answer = Answer::read(&bytes).expect("an answer");
        let expected = reply();
        assert_eq!((answer.seq, answer.query_seq, answer.ssid), (3, 7, 513));
        assert_eq!((answer.received_ns, answer.sent_ns), (expected.received_ns, expected.sent_ns));
        assert_eq!((answer.ttl, answer.dscp), (61, Some(34)));
        assert_eq!((answer.follow_up, answer.watch), (expected.follow_up, Some(expected.watch)));
        assert!(!answer.error.synchronised && answer.error.most_ns >= 16_000_000_000);
    }

    #[test]
    fn what_a_reflector_does_not_know_is_no_answer() {
        let mut bytes = [0; BASE + 8];
        query().write(&mut bytes, Extensions::default());
        bytes[BASE + 1] = 99;
        reply().write(&mut bytes).expect("an answer");
        assert_eq!(bytes[BASE], UNRECOGNIZED);
        bytes[BASE..BASE + 4].copy_from_slice(&[UNRECOGNIZED, CLASS, 0, 5]);
        reply().write(&mut bytes).expect("an answer");
        assert_eq!(bytes[BASE], UNRECOGNIZED | MALFORMED);
        assert_eq!(reply().write(&mut bytes[..LEAST - 1]), None);
        assert!(reply().write(&mut bytes[..LEAST]).is_some());
    }

    #[test]
    fn times_keep_their_nanosecond_beyond_2036() {
        for unix_ns in
            [0, 1, 1_800_000_000_999_999_999, 2_085_978_495_999_999_999, 3_000_000_000_123_456_789]
        {
            assert_eq!(from_ntp(to_ntp(unix_ns)), unix_ns);
        }
        assert_eq!(to_ntp(0), EPOCH_S << 32);
    }

    #[test]
    fn an_error_is_never_said_to_be_less() {
        for most_ns in [0, 1, 59, 60, 1_000, 999_999, 16_000_000_000, u64::MAX / 2] {
            let error = ClockError { synchronised: true, most_ns };
            let read = ClockError::from_bits(error.bits());
            assert!(read.synchronised && read.most_ns >= most_ns, "{most_ns}: {read:?}");
            assert!(read.most_ns <= most_ns + most_ns / 127 + 1, "{most_ns}: {read:?}");
        }
    }
}
