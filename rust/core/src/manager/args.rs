//! What an allocation is asked for.

use crate::request::{GroupBlocks, RequestView};

/// What [`crate::Manager::allocate_slots`] is asked for. Counts in tokens unless called blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocateArgs<'a> {
    /// Tokens to compute in this step, unverified draft tokens included.
    pub num_new_tokens: usize,
    /// Tokens of the hit to adopt.
    pub num_new_computed_tokens: usize,
    /// The blocks of that hit, per group; none at all where nothing is to be adopted.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Slots for draft tokens beyond `num_new_tokens`.
    pub num_lookahead_tokens: usize,
    /// Tokens beyond the hit whose KV a connector brings.
    pub num_external_computed_tokens: usize,
    /// Encoder tokens that a request which is admitted now attends to.
    pub num_encoder_tokens: usize,
    /// Whether blocks are cached by a later call, once a transfer has filled them.
    pub delay_cache_blocks: bool,
    /// Whether the request is refused if its whole sequence does not fit now.
    pub full_sequence_must_fit: bool,
    /// Free blocks to leave to others. Below zero where those others give blocks back, as rows of
    /// states do.
    pub reserved_blocks: isize,
    /// Whether other requests are scheduled, so that the watermark applies to a waiting one.
    pub has_scheduled_reqs: bool,
    /// Groups whose external blocks a transfer fills, so that they are not zeroed.
    pub skip_zeroing_group_ids: &'a [usize],
}

impl AllocateArgs<'_> {
    /// Whether the request is to take over blocks, or to get blocks for what a connector brings.
    pub(super) fn adopts(&self) -> bool {
        !self.new_computed_blocks.is_empty() || self.num_external_computed_tokens > 0
    }

    /// Computed tokens whose blocks this manager has.
    pub(super) fn num_local(&self, request: &RequestView<'_>) -> usize {
        request.num_computed_tokens.saturating_add(self.num_new_computed_tokens)
    }

    /// Computed tokens, external ones included.
    pub(super) fn total_computed(&self, request: &RequestView<'_>) -> usize {
        self.num_local(request).saturating_add(self.num_external_computed_tokens)
    }

    /// Computed tokens after the step.
    pub fn num_final(&self, request: &RequestView<'_>) -> usize {
        self.total_computed(request).saturating_add(self.num_new_tokens)
    }
}
