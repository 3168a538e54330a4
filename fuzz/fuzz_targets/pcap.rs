//! Reading of pcap.

#![no_main]

use capture::Format;
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if survey::survey(bytes, Format::Pcap) { Corpus::Keep } else { Corpus::Reject }
});
