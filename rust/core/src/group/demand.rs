//! What a request needs slots for, and the blocks that it needs for them.

use crate::block::{BlockId, GroupId};
use crate::request::GroupBlocks;

/// What a request needs slots for, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotDemand<'a> {
    /// Tokens that need a slot, including those that have one.
    pub num_tokens: usize,
    /// The blocks of a hit to attach, per group; empty for none.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
    /// Computed tokens without external ones, which is where the hit ends. If it ends inside a
    /// block, a group needs one more block for the copy.
    pub num_local_computed_tokens: usize,
    /// Tokens of the target model, without lookahead slots for drafts.
    pub num_tokens_main_model: usize,
    /// Encoder tokens, for a request that is admitted now.
    pub num_encoder_tokens: usize,
    /// The end of the prefill. The chunk that reaches it keeps the state inside the chunk.
    pub prefill_end: usize,
    /// Whether the demand is about the whole request, for which kinds that release blocks need only
    /// what they hold at once.
    pub apply_admission_cap: bool,
}

impl<'a> SlotDemand<'a> {
    /// Returns a group's blocks of the hit, if there is any hit.
    pub(crate) fn hit(&self, group: GroupId) -> Option<&'a GroupBlocks> {
        self.new_computed_blocks.get(usize::from(group))
    }
}

/// What a request needs in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NeededBlocks<'a> {
    /// New blocks; negative if the group is of states and its table longer than the request needs.
    pub new: isize,
    /// The blocks of the hit that are attached. Those that are free are taken from the free blocks.
    pub(crate) attached: &'a [BlockId],
}
