//! The prefix cache's hash table: from a key to the blocks that have it.

mod duplicates;
mod fingerprint;
mod line;
mod lines;
mod simple_changes;
mod table;

pub use fingerprint::{Fingerprint, KeyLayout};
pub use line::Entry;
pub use simple_changes::Place;
pub use table::HashIndex;
