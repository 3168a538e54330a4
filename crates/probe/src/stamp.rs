//! Packets of STAMP (RFC 8762) with the extensions of RFC 8972 that tailscope uses: open, or sealed by a key
//! (the authenticated mode). The open ones serve TWAMP light (RFC 5357, appendix I), too, whose packets may
//! be shorter.
//!
//! ```text
//!  open    0 seq   4 sent   12 error 14 ssid 16 received 24 query seq 28 query sent 36 error 40 ttl  44 TLVs
//!  sealed  0 seq  16 sent   24 error 26 ssid 32 received 48 query seq 64 query sent 72 error 80 ttl  96 seal 112 TLVs
//! ```
//!
//! What a query does not have is zero.

use crate::seal::{Key, SEAL};

/// Where a packet has what.
#[derive(Debug)]
struct Fields {
    /// Bytes of a packet without extensions.
    base: usize,
    /// Bytes of the shortest packet that an answer fits in.
    least: usize,
    sent: usize,
    error: usize,
    ssid: usize,
    received: usize,
    query_seq: usize,
    query_sent: usize,
    query_error: usize,
    ttl: usize,
}

const OPEN: Fields = Fields {
    base: 44,
    // That of TWAMP light ends behind the hop limit.
    least: 41,
    sent: 4,
    error: 12,
    ssid: 14,
    received: 16,
    query_seq: 24,
    query_sent: 28,
    query_error: 36,
    ttl: 40,
};
const SEALED: Fields = Fields {
    base: 112,
    least: 112,
    sent: 16,
    error: 24,
    ssid: 26,
    received: 32,
    query_seq: 48,
    query_sent: 64,
    query_error: 72,
    ttl: 80,
};
/// Where the seal of a packet begins, and what it is of ends.
const SEAL_AT: usize = 96;
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
const NOT_INTACT: u8 = 0x20;
const PADDING: u8 = 1;
const CLASS: u8 = 4;
const CLASS_LEN: usize = 4;
const FOLLOW_UP: u8 = 7;
const FOLLOW_UP_LEN: usize = 16;
const SEAL_OF_EXTENSIONS: u8 = 8;
/// "HW assist": a card took the time.
const BY_CARD: u8 = 1;
/// "SW local": the kernel did.
const BY_KERNEL: u8 = 2;
/// One of the types that RFC 8972 leaves to private use.
const WATCH: u8 = 252;
/// What it begins with; behind that is the version of who wrote it, as a digit.
const WATCH_MAGIC: [u8; 3] = *b"tsw";

/// How packets look: open, or sealed by a key.
#[derive(Clone, Debug)]
pub struct Form {
    fields: &'static Fields,
    key: Option<Key>,
}

/// Why a packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is too short.
    Short,
    /// It is not sealed by this key.
    WrongKey,
}

impl Form {
    /// The form of packets that are sealed by a key, or open without one.
    #[must_use]
    pub fn new(key: Option<Key>) -> Self {
        Self { fields: if key.is_some() { &SEALED } else { &OPEN }, key }
    }

    /// Bytes of the shortest packet that an answer fits in.
    #[must_use]
    pub fn least_bytes(&self) -> usize {
        self.fields.least
    }

    /// Bytes of a query with these extensions.
    #[must_use]
    pub fn query_bytes(&self, extensions: Extensions) -> usize {
        let values = extensions.values().map(|(_, len)| HEADER + len).sum::<usize>();
        let seal = if self.key.is_some() && values > 0 { HEADER + SEAL } else { 0 };
        self.fields.base + values + seal
    }

    /// Writes the time at which a packet leaves, and seals it.
    pub fn depart(&self, bytes: &mut [u8], sent_ns: u64) {
        put(bytes, self.fields.sent, &to_ntp(sent_ns).to_be_bytes());
        if let Some(key) = &self.key {
            let seal = key.seal(&[&bytes[..SEAL_AT]]);
            put(bytes, SEAL_AT, &seal);
        }
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Unread> {
        if bytes.len() < self.fields.least {
            return Err(Unread::Short);
        }
        let is_ours = self.key.as_ref().is_none_or(|key| {
            key.has_sealed(&[&bytes[..SEAL_AT]], &bytes[SEAL_AT..self.fields.base])
        });
        is_ours.then_some(()).ok_or(Unread::WrongKey)
    }

    /// Whether extensions are as they were sealed; padding needs no seal.
    fn has_intact_extensions(&self, bytes: &[u8]) -> bool {
        let Some(key) = &self.key else { return true };
        let (mut is_sealed, mut needs_seal, mut end) = (false, false, self.fields.base);
        for extension in extensions(bytes, self.fields.base) {
            end = extension.end();
            match extension.kind {
                PADDING => {}
                SEAL_OF_EXTENSIONS if !is_sealed => {
                    let sealed = [&bytes[..4], &bytes[self.fields.base..extension.at]];
                    if !key.has_sealed(&sealed, extension.value) {
                        return false;
                    }
                    is_sealed = true;
                }
                // Nothing but padding is behind the seal.
                _ if is_sealed => return false,
                _ => needs_seal = true,
            }
        }
        bytes.len() - end < HEADER && (is_sealed || !needs_seal)
    }

    /// Seals the extensions of a packet, at `at`.
    fn seal_extensions(&self, bytes: &mut [u8], at: usize) {
        if let Some(key) = &self.key {
            let seal = key.seal(&[&bytes[..4], &bytes[self.fields.base..at]]);
            put(bytes, at + HEADER, &seal);
        }
    }
}

/// An extension of a packet.
struct Extension<'a> {
    /// Where it begins.
    at: usize,
    flags: u8,
    kind: u8,
    value: &'a [u8],
}

impl Extension<'_> {
    fn end(&self) -> usize {
        self.at + HEADER + self.value.len()
    }
}

/// The extensions behind `base`, as far as they are whole.
fn extensions(bytes: &[u8], base: usize) -> impl Iterator<Item = Extension<'_>> {
    let mut at = base;
    std::iter::from_fn(move || {
        let header = bytes.get(at..at + HEADER)?;
        let value = at + HEADER;
        let value = bytes.get(value..value + usize::from(u16_at(header, 2)))?;
        let extension = Extension { at, flags: header[0], kind: header[1], value };
        at = extension.end();
        Some(extension)
    })
}

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
    pub watch: Option<WatchForm>,
    /// The class of service that answers shall have.
    pub dscp: Option<u8>,
}

/// A form of what a reflector of tailscope says of itself. A later one says more behind what earlier ones say, so
/// that an end reads what it knows of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchForm {
    version: u8,
    bytes: usize,
}

impl WatchForm {
    /// That of this version.
    pub const LATEST: Self = Self { version: b'2', bytes: 60 };
    /// Every one that a reflector may know, the latest first: of version 1, none knew another's length.
    pub const ALL: [Self; 3] =
        [Self::LATEST, Self { version: b'1', bytes: 60 }, Self { version: b'1', bytes: 56 }];
    const LEAST_BYTES: usize = 56;

    /// The form of a value, if it is one; of what a later version has more, nothing is known.
    fn of(value: &[u8]) -> Option<Self> {
        let version = *value.strip_prefix(&WATCH_MAGIC)?.first()?;
        let bytes = value.len().min(Self::LATEST.bytes);
        (bytes >= Self::LEAST_BYTES)
            .then_some(Self { version: version.min(Self::LATEST.version), bytes })
    }

    fn write(self, value: &mut [u8]) {
        put(value, 0, &WATCH_MAGIC);
        value[WATCH_MAGIC.len()] = self.version;
    }
}

impl Extensions {
    /// Kind and length of each.
    fn values(self) -> impl Iterator<Item = (u8, usize)> {
        let follow_up = self.follow_up.then_some((FOLLOW_UP, FOLLOW_UP_LEN));
        let watch = self.watch.map(|form| (WATCH, form.bytes));
        let dscp = self.dscp.map(|_| (CLASS, CLASS_LEN));
        [follow_up, watch, dscp].into_iter().flatten()
    }
}

impl Query {
    /// Writes the packet into all of `bytes`, padded to its end.
    ///
    /// # Panics
    /// When there is no room for the extensions.
    pub fn write(&self, bytes: &mut [u8], extensions: Extensions, form: &Form) {
        assert!(bytes.len() >= form.query_bytes(extensions), "extensions fit");
        let fields = form.fields;
        bytes.fill(0);
        put(bytes, 0, &self.seq.to_be_bytes());
        put(bytes, fields.error, &self.error.bits().to_be_bytes());
        put(bytes, fields.ssid, &self.ssid.to_be_bytes());
        let mut end = fields.base;
        for (kind, len) in extensions.values() {
            let value = begin(bytes, &mut end, kind, len);
            match kind {
                WATCH => extensions.watch.unwrap_or(WatchForm::LATEST).write(&mut bytes[value..]),
                CLASS => bytes[value] = extensions.dscp.unwrap_or(0) << 2,
                _ => {}
            }
        }
        if form.key.is_some() && end > fields.base {
            let at = end;
            begin(bytes, &mut end, SEAL_OF_EXTENSIONS, SEAL);
            form.seal_extensions(bytes, at);
        }
        if let Some(len) = (bytes.len() - end).checked_sub(HEADER) {
            begin(bytes, &mut end, PADDING, len);
        }
        form.depart(bytes, self.sent_ns);
    }

    /// Reads a packet, or says why it is not to be answered.
    pub fn read(bytes: &[u8], form: &Form) -> Result<Self, Unread> {
        form.check(bytes)?;
        let error = u16_at(bytes, form.fields.error);
        Ok(Self {
            seq: u32_at(bytes, 0),
            sent_ns: time_at(bytes, form.fields.sent, error),
            error: ClockError::from_bits(error),
            ssid: u16_at(bytes, form.fields.ssid),
        })
    }

    /// Whether a packet is an answer, by the time at which it says that its query came. Two reflectors that
    /// answered each other's answers would never end.
    #[must_use]
    pub fn is_answer(bytes: &[u8], form: &Form, now_ns: u64) -> bool {
        bytes.len() >= form.fields.least
            && from_ntp(u64_at(bytes, form.fields.received)).abs_diff(now_ns) < RECENT_NS
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
    /// It waited for a CPU that others had, or for the quota of its control group, which nobody can read.
    Waited = 7,
}

impl Cause {
    /// Every cause, by its number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Stopped,
        Self::Throttled,
        Self::Preempted,
        Self::Paged,
        Self::Busy,
        Self::ClockStep,
        Self::Waited,
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
    /// The time at which this query came is its program's, which may be later than the kernel's.
    pub received_by_program: bool,
    /// How often its clock was set.
    pub clock_steps: u16,
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
    /// How long its kernel keeps an answer that has left, as it says; 0 if that is not known.
    pub handling_ns: u32,
    /// How far times of its card may be off its clock; 0 of times that its kernel takes, and `None` if it is of a
    /// version that does not tell.
    pub card_error_ns: Option<u32>,
}

impl Watch {
    /// Writes as much as there is room for in a form.
    fn write(&self, form: WatchForm, room: &mut [u8]) {
        let mut whole = [0; WatchForm::LATEST.bytes];
        let value = &mut whole;
        form.write(value);
        put(value, 4, &self.boot.to_be_bytes());
        put(value, 8, &self.dropped.to_be_bytes());
        put(value, 12, &self.refused.to_be_bytes());
        put(value, 16, &self.stalls.to_be_bytes());
        put(value, 20, &[self.cause as u8, u8::from(self.received_by_program)]);
        put(value, 22, &self.clock_steps.to_be_bytes());
        put(value, 24, &self.stall_ns.to_be_bytes());
        put(value, 32, &self.lasted_ns.to_be_bytes());
        put(value, 40, &self.run_delay_us.to_be_bytes());
        put(value, 44, &self.throttled_us.to_be_bytes());
        put(value, 48, &self.unsent.to_be_bytes());
        put(value, 52, &self.handling_ns.to_be_bytes());
        put(value, 56, &self.card_error_ns.unwrap_or(0).to_be_bytes());
        room[..form.bytes].copy_from_slice(&whole[..form.bytes]);
    }

    fn read(value: &[u8]) -> Option<Self> {
        let form = WatchForm::of(value)?;
        Some(Self {
            boot: u32_at(value, 4),
            dropped: u32_at(value, 8),
            refused: u32_at(value, 12),
            stalls: u32_at(value, 16),
            cause: Cause::from_number(value[20]),
            received_by_program: value[21] != 0,
            clock_steps: u16_at(value, 22),
            stall_ns: u64_at(value, 24),
            lasted_ns: u64_at(value, 32),
            run_delay_us: u32_at(value, 40),
            throttled_us: u32_at(value, 44),
            unsent: u32_at(value, 48),
            handling_ns: u32_at(value, 52),
            card_error_ns: (form.bytes >= 60).then(|| u32_at(value, 56)),
        })
    }
}

/// What a reflector knows when it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The answer's own number in its session.
    pub seq: u32,
    /// When the query came, in ns since 1970.
    pub received_ns: u64,
    /// How far its clock may be off.
    pub error: ClockError,
    /// Hop limit with which the query came; 255 if that is not known.
    pub ttl: u8,
    /// Class of service and congestion bits with which it came.
    pub tos: u8,
    /// When an earlier answer of the session left,
    pub follow_up: Option<FollowUp>,
    /// and whether a card took that time.
    pub by_card: bool,
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
    /// Makes the answer to a query of the query itself, as long, never longer; it is whole when it departs.
    ///
    /// # Panics
    /// When the query is one that cannot be read.
    pub fn write(&self, bytes: &mut [u8], form: &Form) -> Used {
        let fields = form.fields;
        assert!(bytes.len() >= fields.least, "it was read");
        let is_intact = form.has_intact_extensions(bytes);
        let (seq, sent, error) =
            (u32_at(bytes, 0), u64_at(bytes, fields.sent), u16_at(bytes, fields.error));
        // The session's name is where it was; all else that is not told is zero.
        let ssid = u16_at(bytes, fields.ssid);
        let base = fields.base.min(bytes.len());
        bytes[..base].fill(0);
        put(bytes, 0, &self.seq.to_be_bytes());
        put(bytes, fields.error, &self.error.bits().to_be_bytes());
        put(bytes, fields.ssid, &ssid.to_be_bytes());
        put(bytes, fields.received, &to_ntp(self.received_ns).to_be_bytes());
        put(bytes, fields.query_seq, &seq.to_be_bytes());
        put(bytes, fields.query_sent, &sent.to_be_bytes());
        put(bytes, fields.query_error, &error.to_be_bytes());
        bytes[fields.ttl] = self.ttl;
        if !is_intact {
            let whole: Vec<_> = extensions(bytes, base).map(|each| (each.at, each.end())).collect();
            whole.iter().for_each(|(at, _)| bytes[*at] |= NOT_INTACT);
            let end = whole.last().map_or(base, |(_, end)| *end);
            if bytes.len() - end >= HEADER {
                bytes[end] |= NOT_INTACT | MALFORMED;
            }
            return Used::default();
        }
        let seal = extensions(bytes, base).find(|each| each.kind == SEAL_OF_EXTENSIONS);
        let seal_at = seal.map(|each| each.at).filter(|_| form.key.is_some());
        let used = self.write_extensions(&mut bytes[base..]);
        if let Some(at) = seal_at {
            bytes[at] = 0;
            form.seal_extensions(bytes, at);
        }
        used
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
                        value[12] = if self.by_card { BY_CARD } else { BY_KERNEL };
                    }
                    true
                }
                (WATCH, _) => {
                    WatchForm::of(value).map(|form| self.watch.write(form, value)).is_some()
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
    /// Reads an answer, or says why it is none.
    pub fn read(bytes: &[u8], form: &Form) -> Result<Self, Unread> {
        form.check(bytes)?;
        let fields = form.fields;
        let error = u16_at(bytes, fields.error);
        let mut answer = Self {
            seq: u32_at(bytes, 0),
            sent_ns: time_at(bytes, fields.sent, error),
            error: ClockError::from_bits(error),
            ssid: u16_at(bytes, fields.ssid),
            received_ns: time_at(bytes, fields.received, error),
            query_seq: u32_at(bytes, fields.query_seq),
            ttl: bytes[fields.ttl],
            ..Self::default()
        };
        if form.has_intact_extensions(bytes) {
            for extension in extensions(bytes, fields.base) {
                if extension.flags & (UNRECOGNIZED | MALFORMED | NOT_INTACT) == 0 {
                    answer.take(extension.kind, extension.value);
                }
            }
        }
        Ok(answer)
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (FOLLOW_UP, FOLLOW_UP_LEN) if value[12] != 0 => {
                let sent_ns = from_ntp(u64_at(value, 4));
                self.follow_up = Some(FollowUp { seq: u32_at(value, 0), sent_ns });
            }
            (WATCH, _) => self.watch = Watch::read(value),
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

    const ALL: Extensions =
        Extensions { follow_up: true, watch: Some(WatchForm::LATEST), dscp: Some(46) };

    fn query() -> Query {
        let error = ClockError { synchronised: true, most_ns: 12_345 };
        Query { seq: 7, sent_ns: 1_800_000_000_123_456_789, error, ssid: 513 }
    }

    const SENT_NS: u64 = 1_800_000_000_200_004_002;

    fn reply() -> Reply {
        Reply {
            seq: 3,
            received_ns: 1_800_000_000_200_000_001,
            error: ClockError { synchronised: false, most_ns: 16_000_000_000 },
            ttl: 61,
            tos: (34 << 2) | 1,
            follow_up: Some(FollowUp { seq: 2, sent_ns: 1_800_000_000_100_000_999 }),
            by_card: false,
            watch: Watch {
                boot: 1,
                dropped: 2,
                refused: 3,
                stalls: 4,
                cause: Cause::Throttled,
                received_by_program: true,
                clock_steps: 513,
                stall_ns: 5,
                lasted_ns: 6,
                run_delay_us: 7,
                throttled_us: 8,
                unsent: 9,
                handling_ns: 10,
                card_error_ns: Some(11),
            },
        }
    }

    fn open() -> Form {
        Form::new(None)
    }

    fn sealed() -> Form {
        Form::new(Key::from_hex(&[b'7'; 64]))
    }

    #[test]
    fn an_answer_says_what_was_known_and_is_as_long() {
        for form in [open(), sealed()] {
            let mut bytes = [0; 250];
            query().write(&mut bytes, ALL, &form);
            let read = Query::read(&bytes, &form).expect("a query");
            assert!(!Query::is_answer(&bytes, &form, SENT_NS));
            assert_eq!(Query { error: query().error, ..read }, query());
            assert!(read.error.most_ns.abs_diff(12_345) < 12_345 / 128 + 1);
            let used = reply().write(&mut bytes, &form);
            form.depart(&mut bytes, SENT_NS);
            assert_eq!(used, Used { follow_up: true, dscp: Some(46) });
            assert!(Query::is_answer(&bytes, &form, SENT_NS));
            let answer = Answer::read(&bytes, &form).expect("an answer");
            let expected = reply();
            assert_eq!((answer.seq, answer.query_seq, answer.ssid), (3, 7, 513));
            assert_eq!((answer.received_ns, answer.sent_ns), (expected.received_ns, SENT_NS));
            assert_eq!((answer.ttl, answer.dscp), (61, Some(34)));
            assert_eq!(
                (answer.follow_up, answer.watch),
                (expected.follow_up, Some(expected.watch))
            );
            assert!(!answer.error.synchronised && answer.error.most_ns >= 16_000_000_000);
        }
    }

    #[test]
    fn ends_of_different_versions_read_what_both_know() {
        let (form, value) = (open(), OPEN.base + HEADER);
        let told = |watch: WatchForm| {
            let mut bytes = [0; 250];
            let asked = Extensions { watch: Some(watch), ..Extensions::default() };
            query().write(&mut bytes, asked, &form);
            reply().write(&mut bytes, &form);
            // Each version names itself, and asks no earlier one in a form that it does not know.
            assert_eq!(bytes[value..value + 4], [b't', b's', b'w', watch.version.min(b'2')]);
            assert!(bytes[value + watch.bytes + HEADER..].iter().all(|byte| *byte == 0));
            Answer::read(&bytes, &form).expect("an answer").watch
        };
        let all = reply().watch;
        let [latest, long, short] = WatchForm::ALL.map(told);
        assert_eq!((latest, long), (Some(all), Some(all)));
        assert_eq!(short, Some(Watch { card_error_ns: None, ..all }));
        assert_eq!(told(WatchForm { version: b'3', bytes: 68 }), Some(all));
        assert_eq!(told(WatchForm { version: b'1', bytes: 52 }), None);
    }

    #[test]
    fn a_follow_up_says_who_took_its_time() {
        let asked = Extensions { follow_up: true, ..Extensions::default() };
        let told = [false, true].map(|by_card| {
            let mut bytes = [0; OPEN.base + HEADER + FOLLOW_UP_LEN];
            query().write(&mut bytes, asked, &open());
            Reply { by_card, ..reply() }.write(&mut bytes, &open());
            assert!(Answer::read(&bytes, &open()).expect("an answer").follow_up.is_some());
            bytes[OPEN.base + HEADER + 12]
        });
        assert_eq!(told, [BY_KERNEL, BY_CARD]);
    }

    #[test]
    fn what_a_reflector_does_not_know_is_no_answer() {
        let (form, base) = (open(), OPEN.base);
        let mut bytes = [0; OPEN.base + 8];
        query().write(&mut bytes, Extensions::default(), &form);
        bytes[base + 1] = 99;
        reply().write(&mut bytes, &form);
        assert_eq!(bytes[base], UNRECOGNIZED);
        bytes[base..base + 4].copy_from_slice(&[UNRECOGNIZED, CLASS, 0, 5]);
        reply().write(&mut bytes, &form);
        assert_eq!(bytes[base], UNRECOGNIZED | MALFORMED);
        assert_eq!(Query::read(&bytes[..OPEN.least - 1], &form), Err(Unread::Short));
        reply().write(&mut bytes[..OPEN.least], &form);
    }

    /// The fields of RFC 8762, figures 5 and 7, and the seal of RFC 8972, section 4.8.
    #[test]
    fn a_sealed_packet_has_its_fields_where_the_standard_has_them() {
        let (form, key) = (sealed(), Key::from_hex(&[b'7'; 64]).unwrap());
        let mut bytes = [0; 200];
        let follow_up = Extensions { follow_up: true, ..Extensions::default() };
        query().write(&mut bytes, follow_up, &form);
        let sent = to_ntp(query().sent_ns);
        assert_eq!((u32_at(&bytes, 0), u64_at(&bytes, 16), u16_at(&bytes, 26)), (7, sent, 513));
        assert_eq!(bytes[96..112], key.seal(&[&bytes[..96]]));
        assert_eq!(bytes[132..136], [UNRECOGNIZED, SEAL_OF_EXTENSIONS, 0, 16]);
        assert_eq!(bytes[136..152], key.seal(&[&bytes[..4], &bytes[112..132]]));
        assert_eq!(bytes[152..156], [UNRECOGNIZED, PADDING, 0, 44]);
        reply().write(&mut bytes, &form);
        form.depart(&mut bytes, SENT_NS);
        assert_eq!((u32_at(&bytes, 0), u64_at(&bytes, 16)), (3, to_ntp(SENT_NS)));
        assert_eq!(u64_at(&bytes, 32), to_ntp(reply().received_ns));
        assert_eq!((u32_at(&bytes, 48), u64_at(&bytes, 64), bytes[80]), (7, sent, 61));
        assert_eq!(bytes[96..112], key.seal(&[&bytes[..96]]));
        assert_eq!(bytes[136..152], key.seal(&[&bytes[..4], &bytes[112..132]]));
    }

    #[test]
    fn a_packet_of_another_key_is_not_read() {
        let form = sealed();
        let mut bytes = [0; 250];
        query().write(&mut bytes, ALL, &form);
        let other = Form::new(Key::from_hex(&[b'8'; 64]));
        assert_eq!(Query::read(&bytes, &other), Err(Unread::WrongKey));
        assert_eq!(Answer::read(&bytes, &other), Err(Unread::WrongKey));
        assert_eq!(Query::read(&bytes[..111], &form), Err(Unread::Short));
        for at in 0..SEALED.base {
            bytes[at] ^= 1;
            assert_eq!(Query::read(&bytes, &form), Err(Unread::WrongKey), "{at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn extensions_that_somebody_changed_are_returned_as_they_came() {
        let form = sealed();
        let mut whole = [0; 250];
        query().write(&mut whole, ALL, &form);
        let end = form.query_bytes(ALL);
        // Flags of the seal itself are no part of what is sealed, and mean nothing.
        let flags_of_seal = end - HEADER - SEAL;
        for at in (SEALED.base..end).filter(|at| *at != flags_of_seal) {
            let mut bytes = whole;
            bytes[at] ^= 1;
            let changed = bytes;
            assert!(Query::read(&bytes, &form).is_ok());
            assert_eq!(reply().write(&mut bytes, &form), Used::default(), "{at}");
            assert_ne!(bytes[SEALED.base] & NOT_INTACT, 0);
            assert_eq!(
                bytes[SEALED.base + 1..SEALED.base + 4],
                changed[SEALED.base + 1..SEALED.base + 4]
            );
            form.depart(&mut bytes, SENT_NS);
            let answer = Answer::read(&bytes, &form).expect("an answer");
            assert_eq!((answer.follow_up, answer.watch, answer.dscp), (None, None, None));
        }
        // Nothing but padding may be behind the seal, and only padding may do without one.
        let mut bytes = whole;
        bytes[end + 1] = CLASS;
        assert!(!form.has_intact_extensions(&bytes));
        query().write(&mut bytes[..120], Extensions::default(), &form);
        assert!(form.has_intact_extensions(&bytes[..120]));
        bytes[SEALED.base + 1] = CLASS;
        assert!(!form.has_intact_extensions(&bytes[..120]));
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
