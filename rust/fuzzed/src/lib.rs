//! What the fuzz targets do with their input. `rust/fuzz` calls these functions with what a fuzzer
//! makes up, `tests/corpus.rs` with what it found before. They panic where something is wrong.

pub mod hashes;
pub mod manager;
mod pickle;
pub mod trace;

/// A fuzz target: its name and what it does with its input.
pub type Target = (&'static str, fn(&[u8]));

/// Every fuzz target.
pub const TARGETS: [Target; 3] =
    [("hashes", hashes::run), ("manager", manager::run), ("trace", trace::run)];
