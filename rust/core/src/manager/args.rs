//! The arguments of an allocation, and values computed from them.

use super::config::ManagerConfig;
use crate::group::SlotDemand;
use crate::request::{GroupBlocks, RequestView};

/// Arguments of [`crate::Manager::allocate_slots`]. Counts are in tokens unless the name says
/// blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocateArgs<'a> {
    /// Tokens to compute in this step, including unverified draft tokens.
    pub num_new_tokens: usize,
    /// The length of the hit to attach.
    pub num_new_computed_tokens: usize,
    /// The blocks of this hit, one table per group; empty for no hit.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Slots for draft tokens in addition to `num_new_tokens`.
    pub num_lookahead_tokens: usize,
    /// Tokens after the hit whose KV a connector brings.
    pub num_external_computed_tokens: usize,
    /// Encoder tokens that the request attends to. Given when the request is admitted.
    pub num_encoder_tokens: usize,
    /// Whether new blocks replace the null blocks of the hit that the request does not skip. A
    /// connector fills the new blocks.
    pub fills_holes: bool,
    /// Whether the blocks are cached by a later call, after a transfer has filled them.
    pub delay_cache_blocks: bool,
    /// Whether the request is refused if its whole sequence does not fit now.
    pub full_sequence_must_fit: bool,
    /// Free blocks that the allocation leaves to other requests. Negative if those requests will
    /// release blocks, as tables of states do.
    pub reserved_blocks: isize,
    /// Whether other requests are scheduled. Then the watermark applies to a waiting request.
    pub has_scheduled_reqs: bool,
    /// Ids of groups whose external blocks are not zeroed, because a transfer fills them.
    pub skip_zeroing_group_ids: &'a [usize],
}

impl AllocateArgs<'_> {
    /// Returns whether the step attaches a hit or blocks for external tokens.
    pub(super) fn attaches(&self) -> bool {
        !self.new_computed_blocks.is_empty() || self.num_external_computed_tokens > 0
    }

    /// Returns the number of computed tokens whose blocks this manager has.
    pub(super) fn num_local(&self, request: &RequestView<'_>) -> usize {
        request.num_computed_tokens.saturating_add(self.num_new_computed_tokens)
    }

    /// Returns the number of computed tokens, including external ones.
    pub(super) fn total_computed(&self, request: &RequestView<'_>) -> usize {
        self.num_local(request).saturating_add(self.num_external_computed_tokens)
    }

    /// Returns the number of computed tokens after the step.
    pub fn num_final(&self, request: &RequestView<'_>) -> usize {
        self.total_computed(request).saturating_add(self.num_new_tokens)
    }
}

/// One allocation: a request, the arguments, and values computed from both. Counts are in tokens.
pub(super) struct Allocation<'a> {
    pub request: &'a RequestView<'a>,
    pub args: &'a AllocateArgs<'a>,
    /// Computed tokens, including external ones, at most `max_model_len`.
    pub(crate) total_computed: usize,
    /// The tokens for which the step needs slots.
    pub step: SlotDemand<'a>,
    /// The number of tokens to cache at the end of the step, if the step caches any.
    pub(crate) num_tokens_to_cache: Option<usize>,
}

impl<'a> Allocation<'a> {
    pub(super) fn new(
        request: &'a RequestView<'a>,
        args: &'a AllocateArgs<'a>,
        config: &ManagerConfig,
    ) -> Self {
        let max_model_len = config.max_model_len;
        let computed = args.total_computed(request);
        let total_computed = computed.min(max_model_len);
        let num_final = args.num_final(request);
        let step = SlotDemand {
            num_tokens: num_final.saturating_add(args.num_lookahead_tokens).min(max_model_len),
            new_computed_blocks: args.new_computed_blocks,
            fills_holes: args.fills_holes,
            total_computed_tokens: computed,
            num_local_computed_tokens: args.num_local(request),
            num_tokens_main_model: total_computed.saturating_add(args.num_new_tokens),
            num_encoder_tokens: args.num_encoder_tokens,
            prefill_end: request.num_prompt_tokens.max(request.num_tokens.saturating_sub(1)),
            ..SlotDemand::default()
        };
        // Draft tokens can be rejected, so only final tokens are cached.
        let num_tokens_to_cache = (config.enable_caching && !args.delay_cache_blocks)
            .then(|| num_final.min(request.num_tokens).min(max_model_len));
        Self { request, args, total_computed, step, num_tokens_to_cache }
    }

    /// Returns the number of computed tokens, without tokens of steps in flight.
    pub(super) fn num_processed(&self) -> usize {
        self.request.num_processed(self.total_computed)
    }
}
