//! The extra keys of blocks, as Python values.

/// A value in the extra keys of a block.
///
/// Strings, bytes and tuples carry the identity of their Python object. Pickle writes an object
/// that occurs again as a reference to its first occurrence, but writes an equal object in full.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Key {
    /// Python's `None`.
    #[default]
    None,
    /// An integer of at most 64 bits.
    Int(i64),
    /// A byte string.
    Bytes(Identity, Box<[u8]>),
    /// A string without surrogates.
    Text(Identity, Box<str>),
    /// A tuple.
    Tuple(Identity, Vec<Key>),
}

/// The identity of a value's Python object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An object that occurs only once.
    Unique,
    /// The object with this number, such as its address.
    Object(usize),
}

impl Key {
    /// Creates a string that occurs only once.
    pub fn text(text: &str) -> Self {
        Self::Text(Identity::Unique, text.into())
    }

    /// Creates a tuple that occurs only once.
    pub fn tuple(items: Vec<Key>) -> Self {
        Self::Tuple(Identity::Unique, items)
    }
}
