//! How a request gives its blocks back in adaptive order: those of all groups together, the end of
//! the sequence first, so that what is needed together leaves together.

use std::cmp::Reverse;

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::group::Group;
use crate::pool::BlockPool;
use crate::request::{GroupState, RequestBlocks};

impl RequestBlocks {
    /// Remembers the tails that the pool held since it was told to.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_tails(&mut self, pool: &mut BlockPool) {
        let tails = pool.end_holding();
        let name = |block| (block, pool.states().name_word(block));
        self.held_tails.extend(tails.into_iter().map(name));
    }
}

impl Manager {
    /// Gives back every block of a request and lets its held tails go.
    pub(super) fn part_with(&mut self, held: &RequestBlocks) {
        let Self { groups, pool, .. } = self;
        let tails = own_tails(pool, held);
        let parting = Parting { groups, states: &held.groups };
        parting.value_tails(pool, &tails);
        parting.give_back(pool, &tails);
        pool.release_null(held.groups.iter().map(|state| state.blocks.null_head()).sum());
    }

    /// Lets the held tails of a request go.
    pub(super) fn let_tails_go(&mut self, held: &RequestBlocks) {
        for (_, block) in own_tails(&self.pool, held) {
            self.pool.let_go(block);
        }
    }
}

/// Tokens before the end of a block, and the block.
type Ending = (usize, BlockId);

/// The tails that are still held, and for this request's prefix; the last first.
fn own_tails(pool: &BlockPool, held: &RequestBlocks) -> Vec<Ending> {
    let states = pool.states();
    let is_own =
        |&&(block, word): &&(BlockId, u64)| pool.is_held(block) && states.name_word(block) == word;
    let own = held.held_tails.iter().filter(is_own);
    let mut tails: Vec<_> =
        own.map(|&(block, _)| (states.last_hash_num_tokens(block), block)).collect();
    tails.sort_unstable_by_key(|&tail| Reverse(tail));
    tails.dedup();
    tails
}

/// What a request holds as it ends.
#[derive(Clone, Copy)]
struct Parting<'a> {
    groups: &'a [Group],
    states: &'a [GroupState],
}

impl<'a> Parting<'a> {
    /// Each group's held blocks, the last first.
    fn endings(self, group: usize) -> impl Iterator<Item = Ending> + 'a {
        let size = self.groups[group].block_size;
        let table = &self.states[group].blocks;
        let first = table.null_head();
        let blocks = table.tail().iter().enumerate().rev();
        blocks
            .filter(|&(_, &block)| block != NULL_BLOCK)
            .map(move |(i, &block)| ((first + i + 1) * size, block))
    }

    fn is_tail(self, group: usize) -> bool {
        self.groups[group].kind().is_sparse()
    }

    /// Where a sequence ends, a later one goes on: its last window and state are worth as much as
    /// full blocks. Tails have been used as often as the prefixes that they go with.
    fn value_tails(self, pool: &mut BlockPool, tails: &[Ending]) {
        let sparse = || (0..self.groups.len()).filter(|&group| self.is_tail(group));
        pool.promote(sparse().flat_map(|group| self.endings(group)).map(|(_, block)| block));
        let Some(whole) = (0..self.groups.len()).find(|&group| !self.is_tail(group)) else {
            return;
        };
        let (size, table) = (self.groups[whole].block_size, &self.states[whole].blocks);
        let in_tables = sparse().flat_map(|group| self.endings(group));
        for (end, tail) in tails.iter().copied().chain(in_tables) {
            let position = (end / size).saturating_sub(1);
            if let Some(prefix) = table.get(position).filter(|&block| block != NULL_BLOCK) {
                pool.inherit_uses(tail, prefix);
            }
        }
    }

    /// Gives back the blocks of every group and lets the tails go, those at the end of the sequence
    /// first.
    fn give_back(self, pool: &mut BlockPool, tails: &[Ending]) {
        let table = |(group, state): (&Group, &'a GroupState)| Table {
            first: state.blocks.null_head(),
            blocks: state.blocks.tail(),
            block_size: group.block_size,
        };
        let mut tables: Vec<_> = self.groups.iter().zip(self.states).map(table).collect();
        let mut tails = tails.iter().copied().peekable();
        while let Some(last) = (0..tables.len()).rev().max_by_key(|&i| tables[i].end()) {
            let end = tables[last].end();
            while let Some((_, tail)) = tails.next_if(|&(tail_end, _)| tail_end > end) {
                pool.let_go(tail);
            }
            if end == 0 {
                return;
            }
            let others = (0..tables.len()).filter(|&i| i != last).map(|i| tables[i].end());
            let next = others.chain(tails.peek().map(|&(end, _)| end)).max().unwrap_or(0);
            pool.release(tables[last].take_beyond(next));
        }
    }
}

/// What is left of a group's table, whose end is given back first.
struct Table<'a> {
    first: usize,
    blocks: &'a [BlockId],
    block_size: usize,
}

impl<'a> Table<'a> {
    /// Tokens before the end; 0 if nothing is left.
    fn end(&self) -> usize {
        if self.blocks.is_empty() { 0 } else { (self.first + self.blocks.len()) * self.block_size }
    }

    /// The blocks that end beyond so many tokens, and at least the last one; the last first.
    fn take_beyond(&mut self, num_tokens: usize) -> impl Iterator<Item = BlockId> + 'a {
        let kept = (num_tokens / self.block_size).saturating_sub(self.first);
        let (kept, taken) = self.blocks.split_at(kept.min(self.blocks.len() - 1));
        self.blocks = kept;
        taken.iter().rev().copied()
    }
}
