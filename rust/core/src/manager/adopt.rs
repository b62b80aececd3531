//! A request takes over what it is given: the blocks of its hit, blocks for what a connector
//! brings, and blocks for its step.

use super::Manager;
use super::args::AllocateArgs;
use super::request_turn::RequestTurn;
use super::room::Room;
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::{Adoption, Asked, BlockDemand, External, Group, Head, SharedTail, Slots};
use crate::request::{GroupBlocks, GroupState, RequestBlocks, RequestId, RequestView};

impl Manager {
    /// Checks that no group is given a hit that it refuses before anybody asks for room.
    pub(super) fn check_running_hit(&self, request: RequestId, hit: &[GroupBlocks]) -> Result<()> {
        if hit.is_empty() {
            return Ok(());
        }
        let Some(held) = self.requests.get(&request) else { return Ok(()) };
        let mut groups = self.groups.iter().zip(&held.groups).zip(hit);
        let refuses = |((group, state), hit): ((&Group, &GroupState), &GroupBlocks)| {
            let is_running = state.num_cached_blocks.is_some();
            is_running && !hit.is_empty() && group.kind().refuses_hits_first()
        };
        if groups.any(refuses) { Err(takes_no_hit()) } else { Ok(()) }
    }

    /// Checks that what is to be adopted goes with what the request holds.
    pub(super) fn check_adoption(&mut self, room: &Room<'_>) -> Result<()> {
        let &Room { request, args, step, .. } = room;
        let computed = step.total_computed_tokens;
        if !self.config.enable_caching && self.keeps_hit(args, computed) {
            return Err(Error::Precondition(
                "new_computed_blocks has blocks, but prefix caching is off".into(),
            ));
        }
        let held = self.requests.get(&request.id);
        let is_running = || held.is_some_and(RequestBlocks::is_running);
        if has_blocks(args.new_computed_blocks) && is_running() {
            return Err(takes_no_hit());
        }
        let adopts = args.adopts();
        if adopts && !is_running() {
            if held.is_some_and(|held| self.holds_adoptable(held)) {
                return Err(Error::Precondition(
                    "computed tokens were given for a request that was allocated without them; \
                     free it first"
                        .into(),
                ));
            }
            self.check_null_blocks(computed)?;
        }
        if !adopts && computed > 0 && !is_running() {
            self.check_lacking_blocks(room)?;
        }
        self.check_ends_of_hit(step, args.new_computed_blocks)
    }

    /// Checks that no table would begin with null blocks far beyond the longest request.
    fn check_null_blocks(&self, computed: usize) -> Result<()> {
        let max_model_len = self.config.max_model_len;
        let has_nulls = |group: &Group| group.is_state || group.head != Head::Kept;
        if computed <= 2 * max_model_len || !self.groups.iter().any(has_nulls) {
            return Ok(());
        }
        Err(Error::Request(format!(
            "{computed} tokens would be computed, more than twice max_model_len {max_model_len}"
        )))
    }

    /// Checks that a hit ends where it can, in each group that takes over any of it.
    fn check_ends_of_hit(&self, step: &BlockDemand<'_>, hit: &[GroupBlocks]) -> Result<()> {
        let num_local = step.num_local_computed_tokens;
        let computed = step.total_computed_tokens;
        for (group, blocks) in self.groups.iter().zip(hit) {
            if !group.adopts_hits || blocks.len() <= group.num_skipped_blocks(computed) {
                continue;
            }
            if group.has_partial_hits {
                SharedTail::check(group, blocks, num_local)?;
            } else if !num_local.is_multiple_of(group.block_size) {
                return Err(Error::Request(format!(
                    "the hit ends at token {num_local}, inside a block of {} tokens; cut it to a \
                     multiple of the block size",
                    group.block_size
                )));
            }
        }
        Ok(())
    }

    /// Checks that there are blocks for a request that counts tokens as computed without holding
    /// theirs. The demand leaves out what a window skips; its table is filled nevertheless, with
    /// what the request itself gives back among others.
    #[cold]
    fn check_lacking_blocks(&mut self, room: &Room<'_>) -> Result<()> {
        let &Room { request: &RequestView { id, .. }, step, .. } = room;
        let held = self.requests.get(&id);
        let table = |group: usize| held.map(|held| &held.groups[group]);
        let is_held = |group: &Group| {
            let num_held = table(usize::from(group.id)).map_or(0, |state| state.blocks.len());
            group.num_skipped_blocks(step.total_computed_tokens) <= num_held
        };
        if self.groups.iter().all(is_held) {
            return Ok(());
        }
        let pool = &self.pool;
        let missing = self.groups.iter_mut().enumerate().map(|(i, group)| {
            let unskipped = BlockDemand {
                num_tokens: step.num_tokens,
                num_tokens_main_model: step.num_tokens_main_model,
                num_encoder_tokens: step.num_encoder_tokens,
                is_question: true,
                ..BlockDemand::default()
            };
            group.demand(&Asked { request: id, state: table(i), pool }, &unskipped).new
        });
        let missing = missing.fold(0, isize::saturating_add);
        let beyond = missing.saturating_sub(self.num_given_back(room));
        self.pool.check_free(beyond.max(0) as usize)
    }

    /// Whether any block of a hit lies behind what its group skips.
    fn keeps_hit(&self, args: &AllocateArgs<'_>, computed: usize) -> bool {
        let mut hits = self.groups.iter().zip(args.new_computed_blocks);
        hits.any(|(group, hit)| group.adopts_hits && hit.len() > group.num_skipped_blocks(computed))
    }

    /// Whether there is a block in some group whose tables start with those of a hit.
    fn holds_adoptable(&self, held: &RequestBlocks) -> bool {
        let mut groups = self.groups.iter().zip(&held.groups);
        groups.any(|(group, state)| group.adopts_hits && !state.blocks.is_empty())
    }
}

impl RequestTurn<'_> {
    /// Makes a hit, and blocks for what a connector brings, the request's own. Every group's hit
    /// is taken before any block is allocated, so that no allocation evicts another group's hit.
    pub fn adopt(&mut self, args: &AllocateArgs<'_>, step: &BlockDemand<'_>) {
        let &BlockDemand { num_local_computed_tokens, total_computed_tokens, .. } = step;
        if self.held.is_running() {
            return;
        }
        self.each(|group, turn| {
            let hit = args.new_computed_blocks.get(usize::from(group.id));
            let adoption = Adoption { hit, num_local_computed_tokens, total_computed_tokens };
            group.adopt(turn, &adoption);
        })
        .for_each(drop);
        if args.num_external_computed_tokens > 0 {
            self.each(|group, turn| {
                let external = External {
                    num_tokens: args.num_external_computed_tokens,
                    total_computed_tokens,
                    is_zeroed: !args.skip_zeroing_group_ids.contains(&usize::from(group.id)),
                };
                group.fill_external(turn, &external);
            })
            .for_each(drop);
        }
    }

    /// Gives the request slots: the new blocks of each group.
    pub fn extend(&mut self, slots: &Slots) -> Vec<Vec<BlockId>> {
        self.each(|group, turn| group.extend(turn, slots)).collect()
    }
}

pub(super) fn takes_no_hit() -> Error {
    Error::Precondition(
        "the request holds blocks already and takes no new hit; free it first".into(),
    )
}

fn has_blocks(groups: &[GroupBlocks]) -> bool {
    groups.iter().any(|blocks| !blocks.is_empty())
}
