//! Runs [`kvoxide_fuzzed::host`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvoxide_fuzzed::host::run(data));
