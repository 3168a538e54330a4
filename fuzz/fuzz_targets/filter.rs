#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> libfuzzer_sys::Corpus {
    tailscope_fuzz::kept(fuzzed::filter::run(bytes))
});
