//! Export in the log format of HdrHistogram, which its plotting tools read.

use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::pair::Analysis;

/// Significant decimal digits of an exported value. The figures themselves are exact; this export
/// is not: a value is kept within a thousandth of itself.
const DIGITS: u8 = 3;

impl Analysis {
    /// Returns the latencies in ns as one interval of an HdrHistogram log, version 2.
    ///
    /// # Panics
    /// Never: writing to memory does not fail, and the bounds hold every latency.
    #[must_use]
    pub fn hlog(&self) -> String {
        let highest = self.latency.max().unwrap_or(0).max(2);
        let mut exported = hdrhistogram::Histogram::<u64>::new_with_bounds(1, highest, DIGITS)
            .expect("1 <= highest / 2");
        self.latency.for_each(|ns, count| {
            exported.record_n(ns, count).expect("within the bounds");
        });
        let start_ns = self.pre.side.rate.first().map_or(0, |(start, _)| *start);
        let duration_ns = self.pre.side.duration_ns().unwrap_or(0);
        let mut log = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("tailscope: latency in ns, values within 0.1 %")
            .begin_log_with(&mut log, &mut serializer)
            .expect("memory takes it");
        let tag = Tag::new("latency_ns");
        let (start, length) = (Duration::from_nanos(start_ns), Duration::from_nanos(duration_ns));
        writer.write_histogram(&exported, start, length, tag).expect("memory takes it");
        String::from_utf8(log).expect("the log is text")
    }
}
