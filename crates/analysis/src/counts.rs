//! The fate of every packet.

/// The numbers of packets by their fate (`docs/statistics.md`).
///
/// `pre packets = pre_trimmed + pre_unkeyed + ambiguous + repeated + reverse + local + sent`,
/// `sent = matched + lost + late + negative + outside + corrupt + resegmented + untimed`, `post packets =
/// post_trimmed + post_unkeyed + matched + duplicated + post_negative + post_reverse + post_ambiguous +
/// post_late + post_outside + post_resegmented + post_untimed + post_corrupt + post_unknown`.
/// [`Counts::assert_conserved`] holds them to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets of pre outside of the trimmed interval.
    pub pre_trimmed: u64,
    /// Packets of pre that have no key, such as one without the probe payload.
    pub pre_unkeyed: u64,
    /// Packets of pre whose key another one carries within the window, where order does not tell
    /// which of them arrived: not matched.
    pub ambiguous: u64,
    /// Further copies that the capture holds of one packet of pre.
    pub repeated: u64,
    /// Packets of pre that travel the other way: they were seen behind the device first.
    pub reverse: u64,
    /// Control traffic of the link before the device that did not come out behind it.
    pub local: u64,
    /// Packets of pre that are to be found again.
    pub sent: u64,
    /// Sent packets with a match.
    pub matched: u64,
    /// Sent packets that the capture behind the device would hold, and does not.
    pub lost: u64,
    /// Sent packets that arrived after the window, before a second one had passed.
    pub late: u64,
    /// Sent packets that were seen behind the device before they were sent: the clocks disagree.
    pub negative: u64,
    /// Sent packets of which the captures prove nothing: the one behind the device had not begun yet,
    /// had ended, or dropped as many itself.
    pub outside: u64,
    /// Sent packets that only came out damaged: a recording knows them, and of captures a second look tells.
    pub corrupt: u64,
    /// Sent packets that came out divided or merged: each of their bytes was seen behind the device, in
    /// packets that are like none before it.
    pub resegmented: u64,
    /// Sent packets that were seen on both sides while one of the clocks was in doubt: they have no latency.
    pub untimed: u64,
    /// Packets of post outside of the trimmed interval.
    pub post_trimmed: u64,
    /// Packets of post that have no key.
    pub post_unkeyed: u64,
    /// Further posts of a matched packet.
    pub duplicated: u64,
    /// Posts before their pre packet: the clocks disagree.
    pub post_negative: u64,
    /// Posts that travel the other way.
    pub post_reverse: u64,
    /// Posts of an ambiguous key.
    pub post_ambiguous: u64,
    /// Posts after the window of their pre packet.
    pub post_late: u64,
    /// Posts whose key no pre packet carries, while the capture before the device had not begun yet,
    /// had ended, or dropped as many itself.
    pub post_outside: u64,
    /// Posts that are parts of packets of pre, or were merged of them.
    pub post_resegmented: u64,
    /// Posts of untimed packets that came after them.
    pub post_untimed: u64,
    /// Posts that are damaged packets of pre.
    pub post_corrupt: u64,
    /// Posts whose key no pre packet carries.
    pub post_unknown: u64,
}

/// What TCP streams were found on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Before the device, and behind it.
    pub sides: [TcpSide; 2],
    /// Connections before the device that are known behind it.
    pub paired: u64,
    /// Those that may be one of several behind it.
    pub ambiguous: u64,
    /// Parts of streams that are the same behind it, while the device changes what lies around them.
    pub stretches: u64,
    /// Bytes of streams that come out behind the device, as a whole or in parts: those that were seen before it.
    pub bytes: u64,
    /// Bytes of these in packets of which all bytes were seen behind it, or of parts the last one.
    pub bytes_matched: u64,
}

/// What a capture holds besides bytes of TCP streams that are new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSide {
    /// Connections.
    pub connections: u64,
    /// Segments of which all bytes had been seen before.
    pub retransmitted: u64,
    /// Segments without data.
    pub without_data: u64,
    /// Packets that are no TCP segments.
    pub not_tcp: u64,
}

/// Number of figures of [`Counts`].
const FIGURES: usize = 26;

impl Counts {
    /// # Panics
    /// When packets were lost count of.
    pub fn assert_conserved(&self, pre_packets: u64, post_packets: u64) {
        let [sent, pre, post] = self.sums();
        assert_eq!(u128::from(self.sent), sent, "sent: {self:?}");
        assert_eq!(u128::from(pre_packets), pre, "pre: {self:?}");
        assert_eq!(u128::from(post_packets), post, "post: {self:?}");
    }

    pub(crate) fn are_conserved(&self, pre_packets: u64, post_packets: u64) -> bool {
        self.sums() == [self.sent, pre_packets, post_packets].map(u128::from)
    }

    /// Returns sent packets, packets of pre and of post, as what became of them adds up to.
    fn sums(&self) -> [u128; 3] {
        let sum = |counts: &[u64]| counts.iter().copied().map(u128::from).sum();
        let seen = [self.matched, self.lost, self.late, self.negative, self.outside, self.corrupt];
        let changed = [self.resegmented, self.untimed];
        let left = [self.pre_trimmed, self.pre_unkeyed, self.ambiguous, self.repeated];
        let other = [self.reverse, self.local, self.sent];
        let arrived = [self.matched, self.duplicated, self.post_negative, self.post_reverse];
        let strayed = [self.post_ambiguous, self.post_late, self.post_outside, self.post_unknown];
        let behind = [self.post_trimmed, self.post_unkeyed];
        let recast = [self.post_resegmented, self.post_untimed, self.post_corrupt];
        [
            sum(&[&seen[..], &changed].concat()),
            sum(&[&left[..], &other].concat()),
            sum(&[&arrived[..], &strayed, &behind, &recast].concat()),
        ]
    }

    /// Adds the counts of another stretch of the same pair. What one counts as lost another may take
    /// back: see [`Matcher`](crate::matcher::Matcher).
    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, count) in self.all().into_iter().zip(other.all()) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// Counts as outside what the captures do not prove to be lost: `sent` packets of those that
    /// count as lost, and `arrived` of those that count as unknown.
    pub(crate) fn set_outside(&mut self, sent: u64, arrived: u64) {
        let (sent, arrived) = (sent.min(self.lost), arrived.min(self.post_unknown));
        self.lost -= sent;
        self.outside += sent;
        self.post_unknown -= arrived;
        self.post_outside += arrived;
    }

    /// Returns every count, in a fixed order, but what only a second look finds behind the device.
    pub(crate) fn all(&mut self) -> [&mut u64; FIGURES] {
        [
            &mut self.pre_trimmed,
            &mut self.pre_unkeyed,
            &mut self.ambiguous,
            &mut self.repeated,
            &mut self.reverse,
            &mut self.local,
            &mut self.sent,
            &mut self.matched,
            &mut self.lost,
            &mut self.late,
            &mut self.negative,
            &mut self.outside,
            &mut self.corrupt,
            &mut self.resegmented,
            &mut self.untimed,
            &mut self.post_trimmed,
            &mut self.post_unkeyed,
            &mut self.duplicated,
            &mut self.post_negative,
            &mut self.post_reverse,
            &mut self.post_ambiguous,
            &mut self.post_late,
            &mut self.post_outside,
            &mut self.post_resegmented,
            &mut self.post_untimed,
            &mut self.post_unknown,
        ]
    }
}
