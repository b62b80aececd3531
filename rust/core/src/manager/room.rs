//! Whether there is room for an allocation.

use super::Manager;
use super::args::AllocateArgs;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::Result;
use crate::group::BlockDemand;
use crate::pool::BlockPool;
use crate::request::RequestView;

/// An allocation that needs room.
pub(super) struct Room<'a> {
    pub request: &'a RequestView<'a>,
    pub args: &'a AllocateArgs<'a>,
    /// Computed tokens, external ones included, as far as the model goes.
    pub total_computed: usize,
    pub step: &'a BlockDemand<'a>,
}

impl Room<'_> {
    /// Tokens that no step in flight computes: those read below the optimistic boundary still.
    pub fn num_processed(&self) -> usize {
        self.total_computed.saturating_sub(self.request.num_in_flight_tokens)
    }
}

impl Manager {
    /// Whether there is room for the request, whole if it must fit, and for this step. What left a
    /// window is given back before the second question.
    pub(super) fn has_room(&mut self, room: &Room<'_>) -> bool {
        let mut counted = CountedHit::default();
        if !self.has_room_for_all(room, &mut counted) {
            return false;
        }
        let request = room.request;
        let num_prompt_tokens = Some(request.num_prompt_tokens);
        self.release_skipped(request.id, room.num_processed(), num_prompt_tokens);
        self.fits(request.id, room.step, self.num_kept(room), &mut counted)
    }

    /// What [`Self::has_room`] would answer. Nothing changes.
    #[cold]
    pub(super) fn would_have_room(&mut self, room: &Room<'_>) -> bool {
        let mut counted = CountedHit::default();
        if !self.has_room_for_all(room, &mut counted) {
            return false;
        }
        let demanded = self.demand_ahead(room, &mut counted);
        demanded.saturating_add(self.num_kept(room)) <= self.pool.num_free_blocks()
    }

    /// Checks that there are as many blocks as the step takes, which neither a reserve below zero
    /// nor a demand below zero tells. Nothing changes.
    #[cold]
    pub(super) fn check_free_for(&mut self, room: &Room<'_>) -> Result<()> {
        let question = BlockDemand { is_question: true, ..*room.step };
        let taken = self.num_taken(room.request.id, &question);
        if taken <= self.pool.num_free_blocks() {
            return Ok(());
        }
        let beyond = taken.saturating_sub(self.num_given_back(room));
        self.pool.check_free(beyond.max(0) as usize)
    }

    /// What the step asks for beyond what is given back first.
    fn demand_ahead(&mut self, room: &Room<'_>, counted: &mut CountedHit) -> isize {
        let step = BlockDemand { is_question: true, ..*room.step };
        let demanded = self.demand(room.request.id, &step, |pool, group, adopted| {
            counted.num_free(group, adopted, pool)
        });
        demanded.saturating_sub(self.num_given_back(room))
    }

    fn watermark_for(&self, room: &Room<'_>) -> isize {
        match room.args.has_scheduled_reqs && room.request.is_waiting {
            true => isize::try_from(self.plan.watermark_blocks).unwrap_or(isize::MAX),
            false => 0,
        }
    }

    /// Free blocks that the step leaves to others.
    fn num_kept(&self, room: &Room<'_>) -> isize {
        self.watermark_for(room).saturating_add(room.args.reserved_blocks)
    }

    /// Whether there is room for the whole request, if it must fit.
    fn has_room_for_all(&mut self, room: &Room<'_>, counted: &mut CountedHit) -> bool {
        if !room.args.full_sequence_must_fit {
            return true;
        }
        let num_tokens = room.request.num_tokens.min(self.config.max_model_len);
        let whole = BlockDemand {
            num_tokens,
            num_tokens_main_model: num_tokens,
            total_computed_tokens: room.total_computed,
            apply_admission_cap: true,
            ..*room.step
        };
        self.fits(room.request.id, &whole, self.watermark_for(room), counted)
    }

    /// Blocks that become free when what left a window is given back.
    pub(super) fn num_given_back(&self, room: &Room<'_>) -> isize {
        let id = room.request.id;
        let Some(held) = self.requests.get(&id) else { return 0 };
        let prompt = Some(room.request.num_prompt_tokens);
        let given_back = self.groups.iter().zip(&held.groups).flat_map(|(group, state)| {
            let blocks = state.blocks.iter().enumerate();
            blocks.filter(|&(position, block)| {
                block != NULL_BLOCK
                    && group.is_given_back(id, position, room.num_processed(), prompt)
                    && self.pool.blocks().ref_count(block) == 1
            })
        });
        given_back.count() as isize
    }
}

/// How many blocks of a hit are free, which one call asks up to twice.
#[derive(Default)]
pub(super) struct CountedHit {
    /// Group, number of blocks at the end of its hit, and how many of those are free.
    counts: Vec<(usize, usize, usize)>,
}

impl CountedHit {
    pub(super) fn num_free(
        &mut self,
        group: usize,
        adopted: &[BlockId],
        pool: &BlockPool,
    ) -> usize {
        if adopted.is_empty() {
            return 0;
        }
        let known = self.counts.iter().find(|count| (count.0, count.1) == (group, adopted.len()));
        if let Some(&(_, _, num_free)) = known {
            return num_free;
        }
        let num_free = num_free(adopted, pool);
        self.counts.push((group, adopted.len(), num_free));
        num_free
    }
}

/// How many blocks of a hit are free.
pub(super) fn num_free(adopted: &[BlockId], pool: &BlockPool) -> usize {
    let is_free = |&&block: &&BlockId| block != NULL_BLOCK && pool.is_free(block);
    adopted.iter().filter(is_free).count()
}
