//! The fuzz targets. `rust/fuzz` runs them on new inputs, and `tests/corpus.rs` on inputs that a
//! fuzzer found before. They panic if a result is wrong.

pub mod hashes;
pub mod host;
pub mod manager;
mod pickle;
pub mod trace;

/// A fuzz target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every fuzz target.
pub const TARGETS: [Target; 4] = [
    ("hashes", hashes::run),
    ("host", host::run),
    ("manager", manager::run),
    ("trace", trace::run),
];
