//! Extra keys of blocks, as values of Python.

/// A value in the extra keys of a block.
///
/// Strings, bytes and tuples have the identity of their Python object, because pickle writes an
/// object that occurs again as a reference to its first occurrence, but an equal object in full.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Key {
    /// Python's `None`.
    #[default]
    None,
    /// A number within 64 bits.
    Int(i64),
    /// A byte string.
    Bytes(Identity, Box<[u8]>),
    /// A text without surrogates.
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
    /// A text that occurs only once.
    pub fn text(text: &str) -> Self {
        Self::Text(Identity::Unique, text.into())
    }

    /// A tuple that occurs only once.
    pub fn tuple(items: Vec<Key>) -> Self {
        Self::Tuple(Identity::Unique, items)
    }
}
