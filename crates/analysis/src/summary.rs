//! Every figure under its name.

use capture::Files;
use capture::{Stamps, Trailer};
use probe::key::MatchOn;
use units::counted;

use crate::basis::{Basis, Bounds, Clocks, Skew, Tried, nearest_whole, whole};
use crate::counts::{TcpCounts, TcpSide};
use crate::floor::{DRIFTS_PPT, Drift, Slip};
use crate::histogram::{EXACT_TO, Histogram};
use crate::instrument::Instrument;
use crate::pair::{Analysis, Captured};
use crate::quantile::{LEVEL, QUANTILES, Quantile};
use crate::survey::{has_tail, is_more_alone};

/// The value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count or a time.
    Unsigned(u64),
    /// A difference.
    Signed(i64),
    /// A ratio or a mean.
    Real(f64),
    /// A name.
    Text(String),
    /// A mark.
    Flag(bool),
    /// No value: no sample, or too few to support it.
    Missing,
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

/// Figures in the order in which they are named.
#[derive(Default)]
struct Figures(Vec<(String, Value)>);

impl Figures {
    fn add(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// Adds a quantile with all that is known of its worth.
    fn add_quantile(&mut self, name: &str, quantile: Option<&Quantile>) {
        self.add(name, quantile.map(|q| q.value_ns));
        self.add(format!("{name}_ci_low"), quantile.and_then(|q| q.ci_low_ns));
        self.add(format!("{name}_ci_high"), quantile.and_then(|q| q.ci_high_ns));
        self.add(format!("{name}_beyond"), quantile.map(|q| q.beyond));
        self.add(format!("{name}_supported"), quantile.is_some_and(|q| q.supported));
    }

    /// Adds the quantiles that the samples support, less `base`.
    fn add_supported(&mut self, name: &str, histogram: &Histogram, base: u64) {
        let found = histogram.quantiles(&QUANTILES.map(|(q, _)| q));
        for (i, (_, label)) in QUANTILES.iter().enumerate() {
            let supported = found.get(i).filter(|quantile| quantile.supported);
            self.add(format!("{name}_{label}"), supported.map(|quantile| quantile.value_ns - base));
        }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Analysis {
    /// Returns every figure under its name, in a fixed order (`docs/analyze.md` defines each).
    #[must_use]
    pub fn summary(&self) -> Vec<(String, Value)> {
        let mut figures = Figures::default();
        self.add_counts(&mut figures);
        self.add_latency(&mut figures);
        self.add_variation(&mut figures);
        for (name, captured) in [("pre", &self.pre), ("post", &self.post)] {
            add_side(&mut figures, name, captured);
        }
        if let Some(instrument) = &self.instrument {
            add_instrument(&mut figures, instrument);
        }
        self.add_provenance(&mut figures);
        figures.0
    }

    fn add_counts(&self, figures: &mut Figures) {
        let counts = &self.counts;
        figures.add("count", counts.matched);
        figures.add("sent", counts.sent);
        figures.add("lost", counts.lost);
        figures.add("lost_proven", self.lost_proven());
        figures.add("loss_ratio", ratio(counts.lost, counts.sent - counts.outside));
        figures.add("late", counts.late);
        figures.add("outside", counts.outside);
        figures.add("corrupt", counts.corrupt);
        figures.add("resegmented", counts.resegmented);
        figures.add("untimed", counts.untimed);
        figures.add("ambiguous", counts.ambiguous);
        figures.add("repeated", counts.repeated);
        figures.add("reverse", counts.reverse);
        figures.add("local", counts.local);
        figures.add("duplicated", counts.duplicated);
        figures.add("negative", counts.negative);
        figures.add("reordered", self.reordered);
        figures.add("reordered_ratio", ratio(self.reordered, counts.matched));
        figures.add("transfer_rate", ratio(self.post.side.kept, self.pre.side.kept));
        figures.add("pre_packets", self.pre.side.packets);
        figures.add("pre_trimmed", counts.pre_trimmed);
        figures.add("pre_unkeyed", counts.pre_unkeyed);
        figures.add("post_packets", self.post.side.packets);
        figures.add("post_trimmed", counts.post_trimmed);
        figures.add("post_unkeyed", counts.post_unkeyed);
        figures.add("post_ambiguous", counts.post_ambiguous);
        figures.add("post_negative", counts.post_negative);
        figures.add("post_reverse", counts.post_reverse);
        figures.add("post_late", counts.post_late);
        figures.add("post_outside", counts.post_outside);
        figures.add("post_resegmented", counts.post_resegmented);
        figures.add("post_untimed", counts.post_untimed);
        figures.add("post_corrupt", counts.post_corrupt);
        figures.add("post_unknown", counts.post_unknown);
        if let Some(tcp) = &self.tcp {
            add_tcp(figures, tcp);
        }
    }

    /// Returns the number of lost packets that cannot be among what is only known from behind the
    /// device. A recording knows each packet that it sent.
    fn lost_proven(&self) -> u64 {
        if self.instrument.is_some() || self.tcp.is_some() {
            return self.counts.lost;
        }
        let elsewhere = self.ledger.lost_of(&self.unseen_flows());
        self.counts.lost.saturating_sub(self.other_forms() + elsewhere)
    }

    /// Returns the number of packets behind the device that may be lost ones in another form.
    fn other_forms(&self) -> u64 {
        // Bytes of a stream are lost only if the stream proves it.
        let unknown = if self.tcp.is_some() { 0 } else { self.counts.post_unknown };
        unknown.saturating_sub(self.local_behind)
    }

    fn add_latency(&self, figures: &mut Figures) {
        figures.add("latency_ns_min", self.latency.min());
        figures.add("latency_ns_mean", self.latency.mean());
        let found = self.quantiles(&QUANTILES.map(|(q, _)| q));
        for (i, (_, label)) in QUANTILES.iter().enumerate() {
            figures.add_quantile(&format!("latency_ns_{label}"), found.get(i));
        }
        figures.add("latency_ns_max", self.latency.max());
        figures.add("ci_level", LEVEL);
    }

    fn add_variation(&self, figures: &mut Figures) {
        figures.add_supported("pdv_ns", &self.latency, self.latency.min().unwrap_or(0));
        let range = self.variation.range_ns();
        figures.add("ipdv_ns_min", range.map(|(min, _)| min));
        figures.add("ipdv_ns_max", range.map(|(_, max)| max));
        figures.add("ipdv_abs_ns_mean", self.variation.magnitude().mean());
        figures.add_supported("ipdv_abs_ns", self.variation.magnitude(), 0);
    }

    /// Quantiles of the latency. No interval is narrower than what the times resolve: both ends of a
    /// latency may be off by a step of the clock.
    #[must_use]
    pub fn quantiles(&self, qs: &[f64]) -> Vec<Quantile> {
        let step = self.resolution_ns().map_or(0, |step| step.ceil() as u64);
        let mut found = self.latency.quantiles(qs);
        for quantile in &mut found {
            quantile.ci_low_ns = quantile.ci_low_ns.map(|low| low.saturating_sub(step));
            quantile.ci_high_ns = quantile.ci_high_ns.map(|high| high.saturating_add(step));
        }
        found
    }

    /// Returns the least distance of times that can be told apart, in ns: those of the captures, or
    /// the tick of an instrument's counter; `None` for a counter with a tick of at most 1 ns.
    #[must_use]
    pub fn resolution_ns(&self) -> Option<f64> {
        let unit = |of: &Captured| {
            of.info.as_ref().and_then(|info| info.resolution).map_or(0.0, |unit| unit.step_ns())
        };
        let of_files = unit(&self.pre).max(unit(&self.post));
        let step = self.basis.grid.step_ns().max(of_files);
        (self.instrument.is_none() || step > 1.0).then_some(step)
    }

    /// Returns when both captures looked, in ns: from the beginning of the one that began later to
    /// the end of the one that ended first; `None` for a recording, and where they have no time in
    /// common.
    #[must_use]
    pub fn common_span_ns(&self) -> Option<(u64, u64)> {
        let (pre, post) = (&self.pre.side, &self.post.side);
        let first = pre.first_ns?.max(post.first_ns?);
        let last = pre.last_ns?.min(post.last_ns?);
        (self.instrument.is_none() && first <= last).then_some((first, last))
    }

    fn add_provenance(&self, figures: &mut Figures) {
        figures.add("match_on", self.config.match_on.to_string());
        figures.add("key_limit_bytes", self.basis.limit_bytes.map(u64::from));
        figures.add("window_ns", self.config.window.0);
        figures.add("trim_ns", self.config.trim.0);
        let clock = if self.instrument.is_some() { "tsc" } else { "capture-file" };
        figures.add("clock", clock.to_owned());
        figures.add("resolution_ns", self.resolution_ns());
        let span = self.common_span_ns();
        let since = self.pre.side.first_ns.unwrap_or(0);
        figures.add("span_start_s", span.map(|(start, _)| (start - since) as f64 / 1e9));
        figures.add("span_s", span.map(|(start, end)| (end - start) as f64 / 1e9));
        let apart = match self.config.clocks {
            Clocks::Apart { skew, relative, bounds } => Some((skew, relative, bounds)),
            Clocks::Detect | Clocks::Same => None,
        };
        let ppm = |ppt: i64| ppt as f64 / 1e6;
        let bounds = apart.map_or(Bounds::default(), |(_, _, bounds)| bounds);
        figures.add("clock_offset_ns", apart.map(|(skew, ..)| skew.offset_ns));
        figures.add("clock_offset_ns_low", bounds.offset_low_ns);
        figures.add("clock_offset_ns_high", bounds.offset_high_ns);
        figures.add("clock_drift_ppm", apart.map(|(skew, ..)| ppm(skew.drift_ppt)));
        figures.add(
            "clock_drift_ppm_error",
            apart.and_then(|_| self.drift_error_ppt(bounds)).map(ppm),
        );
        figures.add(
            "clock_drift_suspected_ns",
            self.suspected_drift().map(|drift| drift.change_ns as i64),
        );
        figures.add("clock_slips", self.slips().len() as u64);
        figures.add("latency_relative", apart.is_some_and(|(_, relative, _)| relative));
        figures.add("order_doubtful", self.is_order_doubtful());
        figures.add("floor_ns", Value::Missing);
    }

    /// Returns what a reader of the figures must know, in words.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        self.pre.warn(&mut warnings);
        self.post.warn(&mut warnings);
        self.warn_of_basis(&mut warnings);
        self.warn_of_counts(&mut warnings);
        self.warn_of_steps(&mut warnings);
        warnings
    }

    /// Warns of values that are counted by steps.
    fn warn_of_steps(&self, warnings: &mut Vec<String>) {
        let all = [
            ("latencies", &self.latency),
            ("variations of latency", self.variation.magnitude()),
            ("gaps before the device", &self.pre.side.gaps),
            ("gaps behind the device", &self.post.side.gaps),
        ];
        for (values, _) in all.into_iter().filter(|(_, histogram)| !histogram.is_exact()) {
            warnings.push(format!(
                "{values} above {:.2} ms are told to a two-thousandth: each by itself would take more memory",
                EXACT_TO as f64 / 1e6
            ));
        }
    }

    /// Warns of what was found in the captures, if somebody might expect something else.
    fn warn_of_basis(&self, warnings: &mut Vec<String>) {
        let Basis { limit_bytes, copies_ns, tried, .. } = &self.basis;
        let plain = [MatchOn::Probe, MatchOn::Frame];
        if let Some(tcp) = &self.tcp {
            warnings.push(self.streams_in_words(tcp));
        } else if tried.len() > 1 && !plain.contains(&self.config.match_on) {
            warnings.push(self.matched_in_words());
        }
        if let Some(limit) = limit_bytes {
            warnings.push(format!(
                "the captures hold only the beginning of each packet: keys end {limit} bytes behind the \
                 link-layer header"
            ));
        }
        if let Some(key) = &self.config.joined_by {
            warnings.push(format!(
                "behind the beginning of the captures some packets come out in another form: {key} joins \
                 them, and all are matched by it"
            ));
        }
        for (captured, trailer) in [&self.pre, &self.post].into_iter().zip(self.basis.trailers) {
            if let Some(Trailer { kind, .. }) = trailer {
                warnings.push(format!(
                    "{}: a time of {kind} lies behind each frame: --stamps trailer takes it",
                    captured.name
                ));
            }
        }
        if *copies_ns > 0 {
            warnings.push(format!(
                "the capture before the device holds packets several times within {copies_ns} ns, as mirror \
                 ports may deliver them: all but the first count as repeated"
            ));
        }
        if self.is_order_doubtful() {
            warnings.push(
                "some packets were seen behind the device alone, and hardly any before it alone: a \
                 device loses packets and makes none, so the captures may be swapped, or the one before the device \
                 has missed some"
                    .to_owned(),
            );
        }
        if self.counts.reverse > 0 {
            warnings.push(format!(
                "packets travel both ways: those that came from behind the device ({}) are left out; give \
                 the captures in the other order to analyse them",
                self.counts.reverse
            ));
        }
        if let Some((slip, ns)) = self.slips().first().map(|slip| (slip, slip.lasts_ns())) {
            let since = slip.start_ns.saturating_sub(self.pre.side.first_ns.unwrap_or(0));
            let way = if slip.by_ns < 0 { "fall" } else { "rise" };
            warnings.push(format!(
                "{}: the latencies of all packets {way} at once by {:.3} ms, {:.3} s after the first, and return at once \
                 {:.3} s later, and one of the captures goes back in time: so does a clock that is set, and no queue. A log \
                 of the clock tells which packets to leave out (--clock-log)",
                counted(self.slips().len() as u64, "slip of a clock"),
                slip.by_ns.unsigned_abs() as f64 / 1e6,
                since as f64 / 1e9,
                ns as f64 / 1e9,
            ));
        }
        if let Some(Drift { ppt, error_ppt, change_ns, .. }) = self.suspected_drift() {
            let (ppm, error_ppm) = (ppt.abs() / 1e6, error_ppt / 1e6);
            let decimals = decimals_of_four_digits(ppm.max(error_ppm));
            warnings.push(format!(
                "the fastest packets become steadily {} by {ppm:.decimals$} ± {error_ppm:.decimals$} ppm: if two clocks stamped the captures, latencies \
                 are off by up to {:.0} ns at one end: say --clocks {}; if one did, the device changes, or a queue \
                 grows: say --clocks same",
                if ppt > 0.0 { "slower" } else { "faster" },
                change_ns.abs(),
                if self.tcp.is_some() { "offset=TIME,drift=PPM" } else { "estimate" },
            ));
        }
        if let Clocks::Apart { skew, relative, bounds } = self.config.clocks {
            warnings.push(self.apart_in_words(skew, relative, bounds));
        }
    }

    /// Returns true if packets seen behind the device alone speak against the order of the captures, and no hops
    /// or streams tell it.
    fn is_order_doubtful(&self) -> bool {
        let Basis { gains, two_way, routed, .. } = self.basis;
        (gains || self.looks_swapped()) && !two_way && !routed && self.tcp.is_none()
    }

    /// Returns true if hardly any packet was seen before the device alone, many were behind it, and latencies have
    /// no tail: mirrored, it lies on the other side.
    fn looks_swapped(&self) -> bool {
        let (made, lost, seen) = (self.other_forms(), self.counts.lost, self.latency.count());
        if seen == 0 || !is_more_alone(made, lost) {
            return false;
        }
        let hundredth = seen / 100;
        let ranks = [hundredth.max(1), seen.div_ceil(2), (seen - hundredth).max(1)];
        let found = self.latency.values_at(&ranks);
        !has_tail(found[1] - found[0], found[2] - found[1])
    }

    /// Returns when all latencies were others at once and returned at once, while a capture has packets that go
    /// back in time about as far: those of one queue are captured in order, whatever they waited for.
    fn slips(&self) -> Vec<Slip> {
        let back_ns = self.pre.side.disorder_ns_max.max(self.post.side.disorder_ns_max);
        let mut slips = self.floor.slips();
        slips.retain(|slip| back_ns >= slip.by_ns.unsigned_abs() / 2);
        slips
    }

    /// Returns a drift of captures that is clear, and too small or too short to prove that there are two clocks, or
    /// that is left by one that somebody knows; recordings have one clock.
    fn suspected_drift(&self) -> Option<Drift> {
        let clocks = self.config.clocks;
        let asked =
            (clocks == Clocks::Detect || clocks.drift_is_known()) && self.instrument.is_none();
        self.drift().filter(|drift| asked && drift.is_clear())
    }

    /// Returns by how much the drift that was taken out may be wrong, in parts per 10¹².
    fn drift_error_ppt(&self, bounds: Bounds) -> Option<i64> {
        // None was told, but one that is no larger than what the fastest packets allow may be there.
        let allowed = || {
            let error_ppt = |drift: Drift| drift.error_ppt + drift.ppt.abs();
            self.drift().map(|drift| error_ppt(drift).min(*DRIFTS_PPT.end()).ceil() as i64)
        };
        let open = self.config.clocks.drift_is_open();
        bounds.drift_error_ppt.or_else(|| if open { allowed() } else { None })
    }

    /// Returns what was taken out, and what else it may have been.
    fn apart_in_words(&self, skew: Skew, relative: bool, bounds: Bounds) -> String {
        let named = whole(nearest_whole(skew.offset_ns));
        let by = named.unwrap_or_else(|| format!("{} ns", skew.offset_ns.unsigned_abs()));
        let way = if skew.offset_ns < 0 { "behind" } else { "ahead" };
        let drift = match (skew.drift_ppt, self.drift_error_ppt(bounds)) {
            (0, Some(0)) => String::new(),
            (ppt, Some(0)) => format!(" and drifts by {:.3} ppm", ppt as f64 / 1e6),
            (_, None) => " (whether it drifts is not known: too few packets)".into(),
            (0, Some(error)) => {
                format!(" (it may drift by up to {:.3} ppm either way)", error as f64 / 1e6)
            }
            (ppt, Some(error)) => {
                format!(" and drifts by {:.3} ± {:.3} ppm", ppt as f64 / 1e6, error as f64 / 1e6)
            }
        };
        let found = format!(
            "the clocks are apart: the one behind the device is {way} by {by}{drift}; that was taken out"
        );
        if !relative {
            return format!("{found}.");
        }
        let proven = match (bounds.offset_low_ns, bounds.offset_high_ns) {
            (Some(low), Some(high)) => format!(
                "Packets of both directions bound its offset: {low} to {high} ns at the first packet."
            ),
            (_, Some(high)) => format!(
                "Packets of one direction bound its offset from above alone: at most {high} ns at the first packet."
            ),
            _ => String::new(),
        };
        let swapped = if self.may_be_swapped(skew) {
            " Every packet was seen behind the device first: if one clock stamped both, the captures are \
             swapped, so give them in the other order."
        } else {
            " If one clock stamped both, a queue that grows looks the same: say --clocks same."
        };
        format!("{found}; latencies are above that of the fastest packet. {proven}{swapped}")
    }

    /// Returns true if all packets were seen behind the device first, and their hops do not tell
    /// why.
    fn may_be_swapped(&self, skew: Skew) -> bool {
        let slowest = self.latency.max().map_or(0, |ns| ns as i64);
        let named = nearest_whole(skew.offset_ns) != 0;
        let two_way = self.basis.two_way;
        let drifts = DRIFTS_PPT.contains(&(skew.drift_ppt.unsigned_abs() as f64));
        !self.basis.routed
            && !two_way
            && !named
            && !drifts
            && skew.offset_ns.saturating_add(slowest) < 0
    }

    /// Returns what is matched by bytes of streams, and what is left out.
    fn streams_in_words(&self, tcp: &TcpCounts) -> String {
        let why =
            if self.basis.tried.len() > 1 { ", as no other key matches (a proxy?)" } else { "" };
        let of = |side: &TcpSide| side.connections;
        let (before, behind) = (of(&tcp.sides[0]), of(&tcp.sides[1]));
        let left = |name: &str, side: &TcpSide| {
            format!(
                "{name} the device {} without data, {} retransmitted, {} of other protocols",
                side.without_data, side.retransmitted, side.not_tcp
            )
        };
        let parts = if tcp.stretches == 0 {
            String::new()
        } else {
            format!(
                ". The device changes what it passes on (an HTTP proxy?): of other connections, only segments are \
                 matched that end in one of {} parts that are the same on both sides and nowhere else; what it \
                 changes is not judged, so nothing of it counts as lost",
                tcp.stretches
            )
        };
        format!(
            "matched by the bytes of TCP streams{why}: {} of {before} connections before the device are known among \
             {behind} behind it, and {} of {} bytes; each segment before the device counts once, when the last of \
             its bytes was first seen behind it{parts}. Not judged are {}; {}",
            tcp.paired,
            tcp.bytes_matched,
            tcp.bytes,
            left("before", &tcp.sides[0]),
            left("behind", &tcp.sides[1]),
        )
    }

    /// Returns what each key that was tried has matched.
    fn matched_in_words(&self) -> String {
        let own = self.config.match_on.to_string();
        let share = |tried: &Tried| {
            format!("{:.1} %", 100.0 * tried.matched as f64 / tried.of.max(1) as f64)
        };
        let best = self.basis.tried.iter().find(|tried| tried.key == own);
        let matched = best.map_or(0, |best| best.matched);
        let best = best.map_or_else(|| "nothing".into(), share);
        let before = self.basis.tried.iter().take_while(|tried| tried.key != own);
        let most = self.basis.tried.iter().map(|tried| tried.of).max().unwrap_or(0).max(1);
        let less: Vec<String> = before
            .clone()
            .filter(|tried| tried.key != "probe" || tried.matched > 0)
            .map(|tried| {
                format!("{:.1} % by {}", 100.0 * tried.matched as f64 / most as f64, tried.key)
            })
            .collect();
        let as_much = before.clone().any(|tried| tried.matched > 0 && tried.matched >= matched);
        let why = match self.config.match_on {
            _ if as_much => ", which do not tell packets apart",
            MatchOn::L3 => " (a router?)",
            MatchOn::Payload => " (NAT, or tags?)",
            MatchOn::Inner => " (a tunnel?)",
            _ => "",
        };
        let less = if less.is_empty() { String::new() } else { format!("; {}", less.join(", ")) };
        format!("matched {best} of a sample by {own}{less}{why}")
    }

    /// Returns what damaged packets have in common.
    fn damage_in_words(&self) -> String {
        let Some(first) = self.corruptions.first() else { return String::new() };
        let most = self.corruptions.iter().map(|of| of.damage.bits).max().unwrap_or(0);
        let since_ns = first.pre_ns.saturating_sub(self.pre.side.first_ns.unwrap_or(0));
        format!(
            "came out damaged, as their own checksums show: {} changed at most. They are neither lost, nor in the \
             latencies. The first is of {}, {:.6} s after the first packet, and differs at byte {} of its frame",
            counted(most.into(), "bit"),
            first.flow,
            since_ns as f64 / 1e9,
            first.damage.offset_bytes
        )
    }

    fn warn_of_counts(&self, warnings: &mut Vec<String>) {
        let counts = &self.counts;
        if counts.matched == 0 {
            warnings.push(if self.instrument.is_some() {
                "no packet came back from the device".to_owned()
            } else {
                format!("no packet was matched by {}", self.config.match_on)
            });
        }
        let mut warn = |count: u64, [one, several]: [&str; 2], what: &str| {
            if count > 0 {
                let which = if count == 1 { one } else { several };
                warnings.push(format!("{count} {which} {what}"));
            }
        };
        warn(
            counts.ambiguous,
            ["packet looks", "packets look"],
            "like others within the window, and nothing proves which is which. They are not matched: their \
             latency and loss are not known. Send packets with a counter in the payload. Equal ones are only \
             matched if each comes out before the next one goes in, and both captures begin with a packet that \
             differs",
        );
        let dropped = self.post.info.as_ref().and_then(|info| info.dropped_packets).unwrap_or(0);
        warn(
            counts.outside,
            ["packet is", "packets are"],
            if self.tcp.is_some() {
                "not judged: bytes of a connection that is not known behind the device, of a handshake with a proxy, \
                 such that a proxy changes, or such that nothing proves to be lost, as the stream neither went on \
                 nor ended"
            } else if dropped > 0 {
                "outside of what both captures saw, or among those that the capture behind the device \
                 dropped: not judged"
            } else {
                "outside of what both captures saw: not judged. The capture behind the device holds nothing from \
                 that time; if it was running, they were lost"
            },
        );
        warn(
            counts.resegmented,
            ["packet", "packets"],
            "came out divided or merged (segmentation offload, or fragments): the bytes were seen behind the \
             device in others, so nothing of it is lost, and there is no latency",
        );
        warn(
            counts.untimed,
            ["packet was", "packets were"],
            "seen while one of the clocks was in doubt: set apart, without a latency",
        );
        warn(
            counts.negative,
            ["packet was", "packets were"],
            "seen behind the device before being sent: the clocks disagree",
        );
        warn(
            counts.local,
            ["packet", "packets"],
            "that nobody expects to be forwarded, such as control traffic of the link, did not come out: \
             not judged",
        );
        if self.tcp.is_none() {
            warn(
                counts.pre_unkeyed,
                ["packet before the device has", "packets before the device have"],
                "no key: not matched",
            );
            warn(
                counts.post_unkeyed,
                ["packet behind the device has", "packets behind the device have"],
                "no key: not matched",
            );
        }
        if self.instrument.is_some() {
            warn(counts.corrupt, ["packet", "packets"], "came back changed");
        } else {
            warn(counts.corrupt, ["packet", "packets"], &self.damage_in_words());
        }
        self.warn_of_flows(warnings);
        warn_of_loss(counts.lost, self.lost_proven(), self.other_forms(), warnings);
        if let Some(instrument) = &self.instrument {
            warnings.extend(instrument.warnings(&self.latency));
        }
    }
}

/// Returns how many decimals show a number with four digits: as all that is printed, it has no more.
fn decimals_of_four_digits(number: f64) -> usize {
    (0..3).find(|&decimals| number >= 10_f64.powi(3 - decimals as i32)).unwrap_or(3)
}

/// Says how many packets were lost for certain, and why not all.
fn warn_of_loss(lost: u64, proven: u64, unknown: u64, warnings: &mut Vec<String>) {
    if unknown > 0 && proven < lost {
        warnings.push(format!(
            "lost {proven} to {lost}: {unknown} packets behind the device are not known from before it, and \
             may be some of the lost ones in another form (a proxy, or encryption)"
        ));
    }
}

impl Captured {
    fn warn(&self, warnings: &mut Vec<String>) {
        let name = &self.name;
        if let Some(cut) = &self.cut {
            warnings.push(format!(
                "{name}: cut off at byte {}: {}; analysed {} up to there",
                cut.offset,
                cut.reason,
                counted(cut.packets, "packet")
            ));
        }
        let dropped = self.info.as_ref().and_then(|info| info.dropped_packets);
        if let Some(dropped) = dropped.filter(|dropped| *dropped > 0) {
            let packets = counted(dropped, "packet");
            warnings.push(format!("{name}: the capture dropped {packets} itself"));
        }
        if let Some(stamps) = self.info.as_ref().and_then(|info| info.stamps) {
            warnings.push(stamps_in_words(name, stamps));
        }
        if let Some(files) = &self.files {
            files_in_words(name, files, self.side.first_ns.unwrap_or(0), warnings);
        }
        if self.side.disordered > 0 {
            warnings.push(format!(
                "{name}: {} out of order by at most {} ns: put in order",
                counted(self.side.disordered, "packet"),
                self.side.disorder_ns_max
            ));
        }
    }
}

/// Says whose times are taken, and how far the clock of the capture is from them.
fn stamps_in_words(name: &str, stamps: Stamps) -> String {
    let Stamps { kind, without, offset_ns, drift_ppt, largest_ns } = stamps;
    let drift = drift_ppt
        .map_or_else(String::new, |ppt| format!(", drifts by {:.3} ppm", ppt as f64 / 1e6));
    let left = match without {
        0 => String::new(),
        count => format!("; {} without a time left out", counted(count, "packet")),
    };
    format!(
        "{name}: times are those behind its frames, of {kind}; the clock of the capture is {offset_ns} ns ahead of \
         them{drift}, at most {largest_ns} ns{left}"
    )
}

/// Says how several files fit together.
fn files_in_words(name: &str, files: &Files, first_ns: u64, warnings: &mut Vec<String>) {
    if let Some((from, to)) = files.gaps.iter().max_by_key(|(from, to)| to - from) {
        let gaps = counted(files.gaps.len() as u64, "gap");
        let at_s = from.saturating_sub(first_ns) as f64 / 1e9;
        let last_s = (to - from) as f64 / 1e9;
        warnings.push(format!(
            "{name}: {gaps} between files, the longest of {last_s:.3} s, {at_s:.3} s after its first packet: what was \
             captured then may be in a file that is missing, so what the other capture has of it is not judged"
        ));
    }
    if files.overlapping > 0 {
        let which = counted(files.overlapping as u64, "file");
        warnings.push(format!("{name}: {which} overlap others in time: all are merged"));
    }
}

fn add_side(figures: &mut Figures, name: &str, captured: &Captured) {
    let side = &captured.side;
    figures.add(format!("{name}_rate_pps"), side.rate_pps());
    figures.add(format!("{name}_second_mean_pps"), side.second_mean_pps());
    figures.add(format!("{name}_duration_s"), side.duration_ns().map(|ns| ns as f64 / 1e9));
    figures.add(format!("{name}_gap_ns_min"), side.gaps.min());
    figures.add(format!("{name}_gap_ns_mean"), side.gaps.mean());
    figures.add_supported(&format!("{name}_gap_ns"), &side.gaps, 0);
    figures.add(format!("{name}_gap_ns_max"), side.gaps.max());
    figures.add(format!("{name}_disordered"), side.disordered);
    let info = captured.info.as_ref();
    figures.add(format!("{name}_file"), captured.name.clone());
    figures.add(format!("{name}_format"), info.map(|info| info.format.to_string()));
    let resolution = info.and_then(|info| info.resolution.as_ref()).map(ToString::to_string);
    figures.add(format!("{name}_resolution"), resolution);
    let stamps = info.and_then(|info| info.stamps);
    figures.add(format!("{name}_stamps"), stamps.map(|stamps| stamps.kind.to_string()));
    figures.add(format!("{name}_stamps_offset_ns"), stamps.map(|stamps| stamps.offset_ns));
    let drift_ppt = stamps.and_then(|stamps| stamps.drift_ppt);
    figures.add(format!("{name}_stamps_drift_ppm"), drift_ppt.map(|ppt| ppt as f64 / 1e6));
    figures.add(format!("{name}_stamps_largest_ns"), stamps.map(|stamps| stamps.largest_ns));
    figures.add(format!("{name}_stamps_without"), stamps.map(|stamps| stamps.without));
    figures.add(format!("{name}_dropped"), info.and_then(|info| info.dropped_packets));
    figures.add(format!("{name}_cut_offset_bytes"), captured.cut.as_ref().map(|cut| cut.offset));
}

fn add_tcp(figures: &mut Figures, tcp: &TcpCounts) {
    figures.add("tcp_connections_paired", tcp.paired);
    figures.add("tcp_connections_ambiguous", tcp.ambiguous);
    figures.add("tcp_stretches", tcp.stretches);
    figures.add("tcp_bytes", tcp.bytes);
    figures.add("tcp_bytes_matched", tcp.bytes_matched);
    for (name, side) in ["pre", "post"].into_iter().zip(&tcp.sides) {
        figures.add(format!("{name}_tcp_connections"), side.connections);
        figures.add(format!("{name}_tcp_retransmitted"), side.retransmitted);
        figures.add(format!("{name}_tcp_without_data"), side.without_data);
        figures.add(format!("{name}_not_tcp"), side.not_tcp);
    }
}

fn add_instrument(figures: &mut Figures, instrument: &Instrument) {
    figures.add("tainted", instrument.tainted);
    figures.add("stalls", instrument.stalls);
    figures.add("stall_ns_total", instrument.stall_ns_total);
    figures.add("stall_ns_max", instrument.stall_ns_max);
    add_least_latency(figures, &instrument.least_latency);
    for (name, histogram) in [
        ("intended_latency_ns", &instrument.intended_latency),
        ("departure_error_ns", &instrument.departure_error),
        ("untainted_departure_error_ns", &instrument.untainted_departure_error),
    ] {
        figures.add(format!("{name}_mean"), histogram.mean());
        figures.add_supported(name, histogram, 0);
        figures.add(format!("{name}_max"), histogram.max());
    }
}

/// Adds the lower ends of the latency, beside its quantiles: `latency_ns_pX_supported` is of both.
fn add_least_latency(figures: &mut Figures, least: &Histogram) {
    figures.add("least_latency_ns_min", least.min());
    figures.add("least_latency_ns_mean", least.mean());
    let found = least.quantiles(&QUANTILES.map(|(q, _)| q));
    for (i, (_, label)) in QUANTILES.iter().enumerate() {
        let (name, quantile) = (format!("least_latency_ns_{label}"), found.get(i));
        figures.add(name.clone(), quantile.map(|q| q.value_ns));
        figures.add(format!("{name}_ci_low"), quantile.and_then(|q| q.ci_low_ns));
        figures.add(format!("{name}_ci_high"), quantile.and_then(|q| q.ci_high_ns));
    }
    figures.add("least_latency_ns_max", least.max());
}
