//! Runs [`kvoxide_fuzzed::trace`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvoxide_fuzzed::trace::run(data));
