//! How many blocks a request asks for.

use crate::block::BlockId;
use crate::request::GroupBlocks;

/// What a request needs slots for, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockDemand<'a> {
    /// Tokens that need a slot, those that have one included.
    pub num_tokens: usize,
    /// The blocks of a hit to attach, per group; empty for none.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
    /// Computed tokens without external ones: where the hit ends. Inside a block, a group needs
    /// one more to copy that block to.
    pub num_local_computed_tokens: usize,
    /// Those of the tokens that are the target model's: without slots for drafts to come.
    pub num_tokens_main_model: usize,
    /// Encoder tokens that a request which is admitted now attends to.
    pub num_encoder_tokens: usize,
    /// Where the prefill ends: a state inside a chunk is kept of the chunk that reaches it.
    pub prefill_end: usize,
    /// Whether kinds that give blocks back ask only for what they hold at once: the demand is about
    /// the whole request.
    pub apply_admission_cap: bool,
    /// Whether nothing is remembered of the demand.
    pub is_dry_run: bool,
}

/// What a group asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupDemand<'a> {
    /// New blocks; below zero where a table is longer than the request needs and its kind says so.
    pub new: isize,
    /// The blocks of the hit that the request attaches. Those that are free leave the free blocks.
    pub attached: &'a [BlockId],
}
