//! Runs [`kvoxide_fuzzed::manager`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvoxide_fuzzed::manager::run(data));
