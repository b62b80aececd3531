//! Runs [`kvoxide_fuzzed::hashes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvoxide_fuzzed::hashes::run(data));
