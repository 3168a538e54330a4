//! Reading of pcapng.

#![no_main]

use capture::Format;
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let known = survey::survey(&survey::mended(bytes), Format::PcapNg);
    if survey::survey(bytes, Format::PcapNg) || known { Corpus::Keep } else { Corpus::Reject }
});
