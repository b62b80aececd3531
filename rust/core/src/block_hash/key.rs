//! What is hashed beside the tokens of a block.

/// A value in the extra keys of a block.
///
/// Strings, bytes and tuples carry the identity of the object that they were: pickle writes an
/// object that comes again as a reference to where it came first, and an equal object in full.
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

/// Which object a value was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An object that comes only once.
    Unique,
    /// The object with this number, its address say.
    Object(usize),
}

impl Key {
    /// A text that comes only once.
    pub fn text(text: &str) -> Self {
        Self::Text(Identity::Unique, text.into())
    }

    /// A tuple that comes only once.
    pub fn tuple(items: Vec<Key>) -> Self {
        Self::Tuple(Identity::Unique, items)
    }
}
