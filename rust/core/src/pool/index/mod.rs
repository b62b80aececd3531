//! Which block serves a key: the hash table of the prefix cache, alias keys, and the trie that finds
//! the blocks of a prefix side by side.

pub(crate) mod aliases;
pub(crate) mod cursor;
pub(crate) mod duplicates;
pub(crate) mod fingerprint;
pub(crate) mod full_blocks;
pub(crate) mod hash_cache;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod lines;
pub(crate) mod linking;
pub(crate) mod removals;
pub(crate) mod simple_changes;
pub(crate) mod table;
pub(crate) mod trie;

pub use fingerprint::{Fingerprint, KeyLayout};
pub use line::Entry;
pub use simple_changes::Place;
pub use table::HashTable;
