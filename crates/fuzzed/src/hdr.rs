//! Reading of histograms as HdrHistogram encodes them.

const MOST: usize = 1_000;

/// The bytes are a histogram that is not compressed.
pub fn run(bytes: &[u8]) -> bool {
    let Ok(buckets) = analysis::read_hdr(bytes, MOST) else { return false };
    assert!(buckets.len() <= MOST);
    assert!(buckets.iter().all(|one| one.low <= one.high && one.count > 0));
    assert!(buckets.windows(2).all(|pair| pair[0].high < pair[1].low));
    true
}
