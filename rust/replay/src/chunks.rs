//! The chunks into which vLLM's scheduler splits a prefill in a model with recurrent states. States
//! exist only at the end of a step and can be cached only at block boundaries.

use kvoxide_core::{Manager, RequestView, Size};

/// The kind of the groups for which chunks are split.
const STATES: &str = "mamba";

/// The rules of the split. Sizes are in tokens.
#[derive(Clone, Debug)]
pub struct Chunks {
    block_size: usize,
    hash_block_size: usize,
    has_partial_hits: bool,
    /// The alignment of states inside a chunk, if the worker exports such states.
    checkpoint_alignment: Option<usize>,
    keeps_boundary_states: bool,
    max_batched_tokens: usize,
}

impl Chunks {
    /// Returns the rules for a manager's groups; `None` if no group has states.
    pub fn of(manager: &Manager, max_batched_tokens: usize) -> Option<Self> {
        let specs = || manager.config().groups.iter().filter(|spec| spec.kind == STATES);
        let first = specs().next()?;
        let exports =
            specs().all(|spec| spec.size(Size::NumPrefillCheckpointBlocks).unwrap_or(0) > 0);
        Some(Self {
            block_size: first.block_size,
            hash_block_size: manager.hash_block_size(),
            has_partial_hits: manager.has_partial_hits(),
            checkpoint_alignment: first.size(Size::PrefillCheckpointAlignment).filter(|_| exports),
            keeps_boundary_states: manager.keeps_boundary_states(),
            max_batched_tokens,
        })
    }

    /// Returns the number of tokens in the chunk from `start` on, at most `num_new`. Returns 0 if
    /// the request must wait for a step with a larger budget.
    pub fn split(&self, request: &RequestView<'_>, start: usize, num_new: usize) -> usize {
        // A preempted request computes its generated tokens again.
        let prefill_end = request.num_prompt_tokens.max(request.num_tokens - 1);
        if start >= prefill_end {
            return num_new;
        }
        let end = self.aligned_end(start, start + num_new, prefill_end);
        let is_inside = |&stop: &usize| start < stop && stop < end;
        let stops = self.stops(request, start, start + num_new, end, prefill_end);
        stops.into_iter().filter(is_inside).min().unwrap_or(end) - start
    }

    /// Returns the end of a chunk, which is the end of a block. The end is not aligned in two
    /// cases: the chunk is the last one, or no step has the budget for a block.
    fn aligned_end(&self, start: usize, end: usize, prefill_end: usize) -> usize {
        let aligned = end / self.block_size * self.block_size;
        let is_kept =
            end >= prefill_end || aligned <= start && self.block_size > self.max_batched_tokens;
        if is_kept { end } else { aligned.max(start) }
    }

    /// Returns positions that the chunk must not pass; 0 for unused entries.
    fn stops(
        &self,
        request: &RequestView<'_>,
        start: usize,
        asked_end: usize,
        end: usize,
        prefill_end: usize,
    ) -> [usize; 4] {
        let size = self.block_size;
        let boundary = self.boundary_stop(request, start, end);
        if asked_end >= prefill_end && self.exports_state(start, asked_end, prefill_end) {
            return [0, 0, 0, boundary];
        }
        let last = last_boundary(request.num_tokens, size);
        let next = if start.is_multiple_of(size) { 0 } else { (start / size + 1) * size };
        let tail = match self.has_partial_hits {
            true => last_boundary(request.num_prompt_tokens, self.hash_block_size),
            false => 0,
        };
        let tail = if last < tail && tail < request.num_prompt_tokens { tail } else { 0 };
        [next, last, tail, boundary]
    }

    /// Returns the stop at the shared-prefix boundary; 0 if there is none.
    fn boundary_stop(&self, request: &RequestView<'_>, start: usize, end: usize) -> usize {
        let boundary = request.shared_prefix_boundary;
        if boundary <= start || end <= boundary {
            0
        } else if self.keeps_boundary_states && boundary <= request.num_prompt_tokens {
            boundary
        } else {
            start + (boundary - start) / self.block_size * self.block_size
        }
    }

    /// Returns whether the worker exports the prompt's last state from inside the chunk.
    fn exports_state(&self, start: usize, end: usize, prefill_end: usize) -> bool {
        let Some(alignment) = self.checkpoint_alignment else { return false };
        let (hash, size) = (self.hash_block_size, self.block_size);
        let state = last_boundary(prefill_end, if self.has_partial_hits { hash } else { size });
        // Positions of states, counted from 1: the last one before the chunk, and the last but one
        // in it.
        let (before, exported) = (start.div_ceil(size), end.div_ceil(size).saturating_sub(1));
        start.is_multiple_of(hash)
            && exported > before
            && start + hash <= state
            && state < end
            && (state - start).is_multiple_of(alignment)
    }
}

/// Returns the last boundary before the last token, which is always computed.
fn last_boundary(num_tokens: usize, unit: usize) -> usize {
    num_tokens.saturating_sub(1) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvoxide_core::{GroupSpec, ManagerConfig};

    fn chunks(states: &GroupSpec, hash_block_size: usize, max_batched_tokens: usize) -> Chunks {
        let groups = vec![GroupSpec::full(hash_block_size), states.clone()];
        let manager = Manager::new(ManagerConfig::new(100, groups, 1 << 20)).expect("a manager");
        Chunks::of(&manager, max_batched_tokens).expect("states")
    }

    fn prompt(num_tokens: usize) -> RequestView<'static> {
        RequestView::new(1, &[][..], num_tokens)
    }

    #[test]
    fn no_states_no_split() {
        let manager = Manager::new(ManagerConfig::new(10, vec![GroupSpec::full(16)], 100));
        assert!(Chunks::of(&manager.expect("a manager"), 64).is_none());
    }

    #[test]
    fn chunks_end_with_blocks_and_before_the_last_token() {
        let chunks = chunks(&GroupSpec::new("mamba", 16), 16, 40);
        let request = prompt(100);
        assert_eq!(chunks.split(&request, 0, 40), 32);
        assert_eq!(chunks.split(&request, 32, 40), 32);
        // 96 is the last boundary of the prompt. Its state is cached, then the other tokens follow.
        assert_eq!(chunks.split(&request, 64, 36), 32);
        assert_eq!(chunks.split(&request, 96, 4), 4);
        // The state after the last token is useless, because that token is computed again.
        assert_eq!(chunks.split(&prompt(96), 64, 32), 16);
        assert_eq!(chunks.split(&request, 32, 9), 0, "not a block is left of this step");
        assert_eq!(chunks.split(&request, 100, 1), 1, "a decode step");
    }

    #[test]
    fn a_block_beyond_every_step_is_crossed_in_parts() {
        let chunks = chunks(&GroupSpec::new("mamba", 64), 64, 40);
        let request = prompt(200);
        assert_eq!(chunks.split(&request, 0, 40), 40);
        assert_eq!(chunks.split(&request, 40, 40), 24);
    }

    #[test]
    fn hits_inside_blocks_need_the_prompts_last_hash() {
        let chunks = chunks(&GroupSpec::new("mamba", 64), 16, 200);
        let request = prompt(100);
        assert_eq!(chunks.split(&request, 0, 100), 64);
        assert_eq!(chunks.split(&request, 64, 36), 32);
        assert_eq!(chunks.split(&request, 80, 20), 16, "a hit inside a block");
    }

    #[test]
    fn a_shared_prefix_ends_a_chunk_where_its_last_block_does() {
        let chunks = chunks(&GroupSpec::new("mamba", 16), 16, 200);
        let request = RequestView { shared_prefix_boundary: 48, ..prompt(100) };
        assert_eq!(chunks.split(&request, 0, 100), 48);
        assert_eq!(chunks.split(&request, 48, 52), 48);
    }

    #[test]
    fn a_state_that_the_worker_exports_needs_no_stop() {
        let states = GroupSpec::new("mamba", 16)
            .with(Size::NumPrefillCheckpointBlocks, 1)
            .with(Size::PrefillCheckpointAlignment, 1);
        let chunks = chunks(&states, 16, 200);
        assert_eq!(chunks.split(&prompt(100), 0, 100), 100);
        assert_eq!(chunks.split(&prompt(100), 0, 90), 80, "not the last chunk");
        assert_eq!(chunks.split(&prompt(60), 24, 36), 8, "a start inside a block");
    }
}
