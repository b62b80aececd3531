//! The block table of a request's states. It has null blocks, sometimes a state inside a chunk of
//! the prompt, the running state, and the blocks to which drafts write.
//!
//! Between calls, a table with slots ends with the running state and the blocks for drafts. Each of
//! its blocks is null or belongs to the request. The shared tail stays at the position where it was
//! found. After it is released, no step can follow.

use std::ops::Range;

use super::checkpoint::Checkpoint;
use crate::block::{BlockId, NULL_BLOCK};
use crate::group::partial_hits::SharedTail;
use crate::request::{GroupBlocks, HeldBlocks, RequestId};
use crate::retention::OlderRules;

/// The manager's notes on a request's table.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableRecord {
    /// Whether slots were allocated. Then the table ends with blocks for drafts.
    pub is_allocated: bool,
    /// The position of the previous step's state.
    pub last_state: Option<usize>,
    /// The number of leading positions that were released.
    pub num_released: usize,
    /// The state inside the running chunk.
    pub checkpoint: Option<Checkpoint>,
    /// The shared block that the next step writes to.
    pub shared_tail: Option<SharedTail>,
    /// The block inside which the request cached the end of its prompt, and the number of tokens up
    /// to that end.
    pub producer_tail: Option<(BlockId, usize)>,
}

/// The records of all requests. A request without an entry has an empty record.
pub(super) type TableRecords =
    hashbrown::HashMap<RequestId, TableRecord, foldhash::fast::FixedState>;

impl TableRecord {
    /// Adds the record of a request to a digest.
    pub(super) fn digest(&self, request: RequestId, put: &mut dyn FnMut(u64)) {
        let number = |value: Option<usize>| value.map_or(0, |value| value as u64 + 1);
        put(request);
        put(u64::from(self.is_allocated));
        put(number(self.last_state));
        put(self.num_released as u64);
        put(number(self.checkpoint.map(|checkpoint| checkpoint.num_tokens)));
        put(number(self.checkpoint.map(|checkpoint| checkpoint.position)));
        put(number(self.shared_tail.map(|tail| tail.position)));
        put(self.shared_tail.map_or(0, |tail| u64::from(tail.block)));
        put(self.producer_tail.map_or(0, |(block, _)| u64::from(block)));
        put(number(self.producer_tail.map(|(_, num_tokens)| num_tokens)));
    }

    /// Checks that the table has the blocks of the record. The error says what is broken.
    pub(crate) fn check(&self, held: &HeldBlocks, num_speculative: usize) -> Result<(), String> {
        let blocks = &held.blocks;
        if self.is_allocated && blocks.len() < num_speculative {
            return Err(format!("a table of {} blocks has no draft blocks", blocks.len()));
        }
        let Some(tail) = self.shared_tail else { return Ok(()) };
        match blocks.get(tail.position) {
            Some(block) if block == tail.block || block == NULL_BLOCK => Ok(()),
            _ => Err(format!(
                "block {} is not at the position where the table shares it",
                tail.block
            )),
        }
    }

    /// Returns the state from which the next step resumes: the last one before the blocks for
    /// drafts.
    pub(crate) fn resumed_state(
        &self,
        held: &HeldBlocks,
        num_speculative: usize,
    ) -> Option<BlockId> {
        let drafts = if self.is_allocated { num_speculative } else { 0 };
        let position = held.blocks.len().checked_sub(drafts + 1)?;
        held.blocks.get(position).filter(|&block| block != NULL_BLOCK)
    }

    /// Returns whether the step gets new blocks for drafts although the table has some.
    pub(super) fn renews_drafts(&self, older_rules: OlderRules) -> bool {
        older_rules.renews_drafts_at_checkpoints && self.checkpoint.is_some()
    }

    /// Returns whether the block at a position is released if the first `num_skipped` positions are
    /// not needed.
    pub(crate) fn is_skipped(&self, position: usize, num_skipped: usize) -> bool {
        position < num_skipped
            && (position >= self.num_released || self.last_state == Some(position))
    }
}

/// The sizes that all tables of a group have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableShape {
    /// Tokens per block.
    pub block_size: usize,
    /// The number of blocks for drafts at the end of a table with slots.
    pub(crate) num_speculative_blocks: usize,
}

impl TableShape {
    /// Returns the position of the running state after a step, and the length of the table.
    pub(crate) fn running_and_len(&self, num_tokens: usize) -> (usize, usize) {
        let num_blocks = num_tokens.div_ceil(self.block_size);
        (num_blocks.saturating_sub(1), num_blocks.saturating_add(self.num_speculative_blocks))
    }

    /// Returns the positions of the blocks for drafts that the step passes. These blocks move to
    /// the end.
    pub(crate) fn drafts_to_move(
        &self,
        older_rules: OlderRules,
        record: &TableRecord,
        len: usize,
        num_tokens: usize,
    ) -> Range<usize> {
        let first = len.saturating_sub(self.num_speculative_blocks);
        let (running, _) = self.running_and_len(num_tokens);
        let end = running.saturating_sub(usize::from(record.checkpoint.is_some()));
        let stay = !record.is_allocated || record.renews_drafts(older_rules);
        if stay { first..first } else { first..end.clamp(first, len) }
    }

    /// Appends null blocks to a table up to the running state of the step. Then moves the blocks
    /// for drafts that the step passes to the end.
    pub(crate) fn advance(
        &self,
        older_rules: OlderRules,
        record: &TableRecord,
        blocks: &mut GroupBlocks,
        num_tokens: usize,
    ) {
        let len = blocks.len();
        let (running, _) = self.running_and_len(num_tokens);
        if len < running {
            blocks.push_nulls(running - usize::from(record.checkpoint.is_some()) - len);
        }
        for position in self.drafts_to_move(older_rules, record, len, num_tokens) {
            if let Some(block) = blocks.replace(position, NULL_BLOCK) {
                blocks.push(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(blocks: &[BlockId]) -> HeldBlocks {
        HeldBlocks { blocks: GroupBlocks::new(0, blocks.to_vec()), ..HeldBlocks::default() }
    }

    #[test]
    fn a_table_with_slots_has_the_blocks_for_its_drafts() {
        let record = TableRecord { is_allocated: true, ..TableRecord::default() };
        assert_eq!(record.check(&held(&[1, 2, 3]), 2), Ok(()));
        assert_eq!(record.check(&held(&[1, 2]), 2), Ok(()), "its state was released");
        assert!(record.check(&held(&[1]), 2).is_err());
        assert_eq!(TableRecord::default().check(&held(&[1]), 2), Ok(()), "it has no slots yet");
    }

    #[test]
    fn a_shared_tail_is_where_it_was_found_or_released() {
        let record = TableRecord {
            shared_tail: Some(SharedTail { position: 1, block: 7 }),
            ..TableRecord::default()
        };
        for (blocks, is_right) in
            [(&[1, 7][..], true), (&[1, NULL_BLOCK], true), (&[1, 3], false), (&[7], false)]
        {
            assert_eq!(record.check(&held(blocks), 0).is_ok(), is_right, "{blocks:?}");
        }
    }

    #[test]
    fn a_step_goes_on_from_the_last_state_before_the_drafts() {
        let record = TableRecord { is_allocated: true, ..TableRecord::default() };
        assert_eq!(record.resumed_state(&held(&[4, 5, 6]), 2), Some(4));
        assert_eq!(record.resumed_state(&held(&[4, 5, 6, 7]), 2), Some(5));
        assert_eq!(record.resumed_state(&held(&[4, NULL_BLOCK, 6, 7]), 2), None);
        assert_eq!(record.resumed_state(&held(&[5, 6]), 2), None);
        assert_eq!(
            TableRecord::default().resumed_state(&held(&[4, 5]), 2),
            Some(5),
            "no drafts yet"
        );
    }
}
