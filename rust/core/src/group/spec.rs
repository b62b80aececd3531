//! Specs of KV cache groups as plain data: the kind, the block size and further sizes.

use crate::error::{Error, Result};

/// A size that only some kinds of groups have. It is in tokens or in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The window: a token attends to itself and to the `window - 1` tokens before it.
    SlidingWindow,
    /// The length of a chunk. A token attends only to its own chunk.
    AttentionChunkSize,
    /// Tokens before a sliding window that stay allocated (multi-module MTP); 0 for none.
    ExtraRetainedTokens,
    /// Generated tokens that a token attends to in addition to the prompt (R-SWA).
    RswaWindow,
    /// Blocks after the running state, to which drafts write (Mamba).
    NumSpeculativeBlocks,
    /// Blocks for a state inside a chunk of the prompt (Mamba); more than one counts as one.
    NumPrefillCheckpointBlocks,
    /// The alignment of such states, in tokens from the start of a chunk.
    PrefillCheckpointAlignment,
}

impl Size {
    /// All sizes, in the order of declaration, with the names of their arguments.
    pub const ALL: [(Self, &str); 7] = [
        (Self::SlidingWindow, "sliding_window"),
        (Self::AttentionChunkSize, "attention_chunk_size"),
        (Self::ExtraRetainedTokens, "extra_retained_tokens"),
        (Self::RswaWindow, "rswa_window"),
        (Self::NumSpeculativeBlocks, "num_speculative_blocks"),
        (Self::NumPrefillCheckpointBlocks, "num_prefill_checkpoint_blocks"),
        (Self::PrefillCheckpointAlignment, "prefill_checkpoint_alignment"),
    ];

    /// Returns the name of the argument that gives the size.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns the size with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|&(_, known)| known == name).map(|(size, _)| size)
    }

    /// Returns the size for groups that do not give it; `None` if it has no default.
    pub fn default(self) -> Option<usize> {
        let is_none = matches!(
            self,
            Self::ExtraRetainedTokens
                | Self::NumSpeculativeBlocks
                | Self::NumPrefillCheckpointBlocks
        );
        is_none.then_some(0)
    }
}

/// The sizes that a spec gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes([Option<usize>; Size::ALL.len()]);

/// One KV cache group: layers that share a block table. Sizes are in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// The name of the kind, one of [`super::supported_kinds`].
    pub kind: String,
    /// Tokens per block.
    pub block_size: usize,
    /// The sizes that only some kinds of groups have.
    pub sizes: Sizes,
    /// Whether the group has draft layers. Hits in such groups drop their last block.
    pub is_eagle_group: bool,
    /// Whether the group takes part in prefix caching; with `None` the kind decides.
    pub prefix_cacheable: Option<bool>,
    /// Whether the ranks of decode context parallelism divide the tokens of a block among them;
    /// with `None` the kind decides.
    pub dcp_sharded: Option<bool>,
    /// The number of the layout. Groups with different layouts are looked up separately.
    pub layout: u32,
}

impl GroupSpec {
    /// The largest value of a size, in tokens.
    pub const MAX_TOKENS: usize = u32::MAX as usize / 4;

    /// Creates a group of a kind, without further sizes.
    pub fn new(kind: &str, block_size: usize) -> Self {
        Self {
            kind: kind.to_owned(),
            block_size,
            sizes: Sizes::default(),
            is_eagle_group: false,
            prefix_cacheable: None,
            dcp_sharded: None,
            layout: 0,
        }
    }

    /// Creates a full-attention group.
    pub fn full(block_size: usize) -> Self {
        Self::new("full_attention", block_size)
    }

    /// Creates a sliding-window group.
    pub fn sliding_window(block_size: usize, window: usize) -> Self {
        Self::new("sliding_window", block_size).with(Size::SlidingWindow, window)
    }

    /// Creates a chunked-local-attention group.
    pub fn chunked_local(block_size: usize, chunk: usize) -> Self {
        Self::new("chunked_local_attention", block_size).with(Size::AttentionChunkSize, chunk)
    }

    /// Returns the spec with a size. To give a size its default is the same as not to give it.
    pub fn with(mut self, size: Size, tokens: usize) -> Self {
        self.sizes.0[size as usize] = Some(tokens).filter(|_| Some(tokens) != size.default());
        self
    }

    /// Returns a size of the group: the given value or the default.
    pub fn size(&self, size: Size) -> Option<usize> {
        self.sizes.0[size as usize].or(size.default())
    }

    /// Yields the sizes that were given.
    pub fn sizes(&self) -> impl Iterator<Item = (Size, usize)> + '_ {
        Size::ALL.into_iter().filter_map(|(size, _)| Some((size, self.sizes.0[size as usize]?)))
    }

    /// Returns whether groups with the two specs are looked up together.
    pub fn is_looked_up_with(&self, other: &Self) -> bool {
        Self { is_eagle_group: other.is_eagle_group, ..self.clone() } == *other
    }

    /// Returns a size that the kind requires. Fails if it is missing or out of range.
    pub(crate) fn required(&self, size: Size) -> Result<usize> {
        let value = self.size(size).ok_or_else(|| {
            Error::Config(format!(
                "a group of kind '{}' needs {}, in tokens",
                self.kind,
                size.name()
            ))
        })?;
        Self::positive(size.name(), value)
    }

    /// Fails if a value is given that the kind does not accept.
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
