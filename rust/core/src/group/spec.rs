//! What a KV cache group is: its attention kind, block size and window. Plain data; what a kind
//! does is in [`crate::group`].

use crate::error::{Error, Result};

/// One KV cache group: layers that share a block table. Sizes in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Name of the attention kind, as in [`crate::group::supported_kinds`].
    pub kind: String,
    /// Tokens per block.
    pub block_size: usize,
    /// The window of a kind that has one: a token attends to itself and the `window - 1` before.
    pub sliding_window: Option<usize>,
    /// The chunk of a kind that attends within chunks.
    pub attention_chunk_size: Option<usize>,
    /// Tokens below a sliding window that stay allocated (multi-module MTP).
    pub extra_retained_tokens: usize,
    /// Whether the group holds draft layers, whose hits drop their last block.
    pub is_eagle_group: bool,
    /// Whether the group takes part in prefix caching.
    pub prefix_cacheable: bool,
    /// Groups with different layouts are looked up apart even if all else is equal.
    pub layout: u32,
}

impl GroupSpec {
    /// The largest size or window, in tokens, that the engine counts with.
    pub const MAX_TOKENS: usize = u32::MAX as usize / 4;

    /// A group of a kind, with nothing that only some kinds have.
    pub fn new(kind: &str, block_size: usize) -> Self {
        Self {
            kind: kind.to_owned(),
            block_size,
            sliding_window: None,
            attention_chunk_size: None,
            extra_retained_tokens: 0,
            is_eagle_group: false,
            prefix_cacheable: true,
            layout: 0,
        }
    }

    /// A full-attention group.
    pub fn full(block_size: usize) -> Self {
        Self::new("full_attention", block_size)
    }

    /// A sliding-window group.
    pub fn sliding_window(block_size: usize, window: usize) -> Self {
        Self { sliding_window: Some(window), ..Self::new("sliding_window", block_size) }
    }

    /// A chunked-local-attention group.
    pub fn chunked_local(block_size: usize, chunk: usize) -> Self {
        Self {
            attention_chunk_size: Some(chunk),
            ..Self::new("chunked_local_attention", block_size)
        }
    }

    /// Whether two groups are looked up together.
    pub fn is_looked_up_with(&self, other: &Self) -> bool {
        Self { is_eagle_group: other.is_eagle_group, ..self.clone() } == *other
    }

    /// A size that the kind needs, checked.
    pub(crate) fn required(&self, name: &str, value: Option<usize>) -> Result<usize> {
        let value = value.ok_or_else(|| {
            Error::Config(format!("a group of kind '{}' needs {name}, in tokens", self.kind))
        })?;
        Self::positive(name, value)
    }

    /// Refuses a value that the kind has no use for.
    pub(crate) fn forbidden(&self, name: &str, is_given: bool) -> Result<()> {
        if !is_given {
            return Ok(());
        }
        Err(Error::Config(format!("a group of kind '{}' takes no {name}; leave it out", self.kind)))
    }

    pub(crate) fn positive(name: &str, value: usize) -> Result<usize> {
        if (1..=Self::MAX_TOKENS).contains(&value) {
            return Ok(value);
        }
        Err(Error::Config(format!(
            "{name} is {value}; it must be from 1 to {} tokens",
            Self::MAX_TOKENS
        )))
    }
}
