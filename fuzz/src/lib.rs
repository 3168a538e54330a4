//! What targets tell libFuzzer.

use libfuzzer_sys::Corpus;

/// Keeps an input only if it is of the kind that its parser reads.
#[must_use]
pub fn kept(is_known: bool) -> Corpus {
    if is_known { Corpus::Keep } else { Corpus::Reject }
}
