//! A request's row of states: null blocks, perhaps a state inside a chunk of its prompt, the
//! running state, and blocks that drafts write to.
//!
//! Between calls: a row that was given slots ends with the running state and the blocks for drafts;
//! every block of it is null or held by the request; the shared tail of a row is where it was found,
//! or was given back, after which the row cannot go on.

use std::ops::Range;

use super::checkpoint::Checkpoint;
use crate::block::{BlockId, NULL_BLOCK};
use crate::group::partial_hits::SharedTail;
use crate::request::{GroupBlocks, GroupState, RequestId};

/// What is remembered of a request beside its table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Whether the row was given slots, so that it ends with blocks for drafts.
    pub is_allocated: bool,
    /// Where the state of the step before stands.
    pub last_state: Option<usize>,
    /// Leading positions that were given back.
    pub num_retired: usize,
    /// A state inside the chunk that runs.
    pub checkpoint: Option<Checkpoint>,
    /// A shared block that the next step writes to.
    pub shared_tail: Option<SharedTail>,
    /// The end of the prompt that the request has cached inside a block, and how many tokens it is.
    pub producer_tail: Option<(BlockId, usize)>,
}

/// The rows of all requests.
#[derive(Clone, Debug, Default)]
pub struct Rows(hashbrown::HashMap<RequestId, Row, foldhash::fast::FixedState>);

impl Rows {
    /// A request's row; an empty one for a request that has none.
    pub fn get(&self, request: RequestId) -> Row {
        self.0.get(&request).copied().unwrap_or_default()
    }

    /// A request's row, to change it.
    pub fn of(&mut self, request: RequestId) -> &mut Row {
        self.0.entry(request).or_default()
    }

    /// A request's row, to change it if there is one.
    pub fn known(&mut self, request: RequestId) -> Option<&mut Row> {
        self.0.get_mut(&request)
    }

    /// Forgets a request's row.
    pub fn remove(&mut self, request: RequestId) {
        self.0.remove(&request);
    }

    /// Tells all of them as numbers, request by request.
    pub fn digest(&self, put: &mut dyn FnMut(u64)) {
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(request, _)| **request);
        let number = |value: Option<usize>| value.map_or(0, |value| value as u64 + 1);
        for (&request, row) in rows {
            put(request);
            put(u64::from(row.is_allocated));
            put(number(row.last_state));
            put(row.num_retired as u64);
            put(number(row.checkpoint.map(|checkpoint| checkpoint.num_tokens)));
            put(number(row.checkpoint.map(|checkpoint| checkpoint.position)));
            put(number(row.shared_tail.map(|tail| tail.position)));
            put(row.shared_tail.map_or(0, |tail| u64::from(tail.block)));
            put(row.producer_tail.map_or(0, |(block, _)| u64::from(block)));
            put(number(row.producer_tail.map(|(_, num_tokens)| num_tokens)));
        }
    }
}

impl Row {
    /// What is wrong with the row, if anything is.
    pub fn check(&self, state: &GroupState, num_speculative: usize) -> Result<(), String> {
        let blocks = &state.blocks;
        if self.is_allocated && blocks.len() < num_speculative {
            return Err(format!("a row of {} blocks lacks those for drafts", blocks.len()));
        }
        let Some(tail) = self.shared_tail else { return Ok(()) };
        match blocks.get(tail.position) {
            Some(block) if block == tail.block || block == NULL_BLOCK => Ok(()),
            _ => Err(format!("block {} is not where the row shares it", tail.block)),
        }
    }

    /// The state that the next step goes on from: the last before the blocks for drafts.
    pub fn state_read(&self, state: &GroupState, num_speculative: usize) -> Option<BlockId> {
        let drafts = if self.is_allocated { num_speculative } else { 0 };
        let position = state.blocks.len().checked_sub(drafts + 1)?;
        state.blocks.get(position).filter(|&block| block != NULL_BLOCK)
    }

    /// Whether what stands at a position is given back once the first `skipped` are not needed.
    pub fn is_skipped(&self, position: usize, skipped: usize) -> bool {
        position < skipped && (position >= self.num_retired || self.last_state == Some(position))
    }
}

/// The sizes of all rows of a group.
#[derive(Clone, Copy, Debug)]
pub struct RowShape {
    /// Tokens per block.
    pub block_size: usize,
    /// Blocks that drafts write to, at the end of a row with slots.
    pub num_speculative_blocks: usize,
}

impl RowShape {
    /// Where the running state of a step stands, and how long the row is then.
    pub fn positions(&self, num_tokens: usize) -> (usize, usize) {
        let num_blocks = num_tokens.div_ceil(self.block_size);
        (num_blocks.saturating_sub(1), num_blocks.saturating_add(self.num_speculative_blocks))
    }

    /// Blocks for drafts that the step leaves behind, and which therefore move on.
    pub fn outrun_drafts(&self, row: &Row, len: usize, num_tokens: usize) -> Range<usize> {
        let first = len.saturating_sub(self.num_speculative_blocks);
        let (running, _) = self.positions(num_tokens);
        let end = running.saturating_sub(usize::from(row.checkpoint.is_some()));
        if row.is_allocated { first..end.clamp(first, len) } else { first..first }
    }

    /// Lengthens a row with null blocks up to what the step needs, and moves the blocks for drafts
    /// that it leaves behind to the end.
    pub fn advance(&self, row: &Row, blocks: &mut GroupBlocks, num_tokens: usize) {
        let len = blocks.len();
        let (running, _) = self.positions(num_tokens);
        if len < running {
            blocks.push_nulls(running - usize::from(row.checkpoint.is_some()) - len);
        }
        for position in self.outrun_drafts(row, len, num_tokens) {
            if let Some(block) = blocks.replace(position, NULL_BLOCK) {
                blocks.push(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(blocks: &[BlockId]) -> GroupState {
        GroupState { blocks: GroupBlocks::new(0, blocks.to_vec()), num_cached_blocks: None }
    }

    #[test]
    fn a_row_with_slots_has_the_blocks_for_its_drafts() {
        let row = Row { is_allocated: true, ..Row::default() };
        assert_eq!(row.check(&held(&[1, 2, 3]), 2), Ok(()));
        assert_eq!(row.check(&held(&[1, 2]), 2), Ok(()), "its state was given back");
        assert!(row.check(&held(&[1]), 2).is_err());
        assert_eq!(Row::default().check(&held(&[1]), 2), Ok(()), "it has no slots yet");
    }

    #[test]
    fn a_shared_tail_is_where_it_was_found_or_given_back() {
        let row = Row { shared_tail: Some(SharedTail { position: 1, block: 7 }), ..Row::default() };
        for (blocks, is_right) in
            [(&[1, 7][..], true), (&[1, NULL_BLOCK], true), (&[1, 3], false), (&[7], false)]
        {
            assert_eq!(row.check(&held(blocks), 0).is_ok(), is_right, "{blocks:?}");
        }
    }

    #[test]
    fn a_step_goes_on_from_the_last_state_before_the_drafts() {
        let row = Row { is_allocated: true, ..Row::default() };
        assert_eq!(row.state_read(&held(&[4, 5, 6]), 2), Some(4));
        assert_eq!(row.state_read(&held(&[4, 5, 6, 7]), 2), Some(5));
        assert_eq!(row.state_read(&held(&[4, NULL_BLOCK, 6, 7]), 2), None);
        assert_eq!(row.state_read(&held(&[5, 6]), 2), None);
        assert_eq!(Row::default().state_read(&held(&[4, 5]), 2), Some(5), "no drafts yet");
    }
}
