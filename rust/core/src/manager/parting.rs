//! How a request gives its blocks back in adaptive order: those of all groups together, the end of
//! the sequence first, so that what is needed together leaves together.

use std::cmp::Reverse;

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::group::Group;
use crate::pool::{BlockPool, Parted};
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
        claim_again(pool, held, &tails);
        let parting = Parting { groups, states: &held.groups };
        parting.value_tails(pool, &tails);
        parting.give_back(pool, &tails);
        pool.release_null(held.groups.iter().map(|state| state.blocks.null_head()).sum());
    }

    /// Lets the held tails of a request go.
    pub(super) fn let_tails_go(&mut self, held: &RequestBlocks) {
        let tails = own_tails(&self.pool, held);
        claim_again(&mut self.pool, held, &tails);
        self.pool.part_with(tails.into_iter().map(|(_, tail)| Parted::Held(tail)));
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

/// What a request gives back that asked for a priority has it from now on.
fn claim_again(pool: &mut BlockPool, held: &RequestBlocks, tails: &[Ending]) {
    if pool.is_claiming() {
        let used = held.groups.iter().flat_map(|group| group.blocks.iter_held_back());
        pool.claim_again(used.chain(tails.iter().map(|&(_, tail)| tail)));
    }
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
        let tables = self.groups.iter().zip(self.states);
        pool.part_with(FromTheEnd {
            tables: tables.map(|(group, state)| Table::new(group, state)).collect(),
            tails,
            run: [].iter(),
        });
    }
}

/// What a request gives back, what ends last first.
struct FromTheEnd<'a> {
    tables: Vec<Table<'a>>,
    tails: &'a [Ending],
    /// The part of a table that comes next, backwards.
    run: std::slice::Iter<'a, BlockId>,
}

impl Iterator for FromTheEnd<'_> {
    type Item = Parted;

    #[inline]
    fn next(&mut self) -> Option<Parted> {
        if let Some(&block) = self.run.next_back() {
            return Some(Parted::Used(block));
        }
        let (last, behind) = self.last_two();
        let end = self.tables.get(last)?.end;
        let tail_end = self.tails.first().map_or(0, |&(end, _)| end);
        if tail_end > end {
            let (&(_, tail), rest) = self.tails.split_first()?;
            self.tails = rest;
            return Some(Parted::Held(tail));
        }
        if end == 0 {
            return None;
        }
        self.run = self.tables[last].take_beyond(behind.max(tail_end)).iter();
        self.run.next_back().map(|&block| Parted::Used(block))
    }
}

impl FromTheEnd<'_> {
    /// The table that ends last, of equals the first, and where the next one ends.
    fn last_two(&self) -> (usize, usize) {
        let (mut last, mut behind) = (0, 0);
        for (i, table) in self.tables.iter().enumerate().skip(1) {
            if table.end > self.tables[last].end {
                (last, behind) = (i, self.tables[last].end);
            } else {
                behind = behind.max(table.end);
            }
        }
        (last, behind)
    }
}

/// What is left of a group's table, whose end is given back first.
struct Table<'a> {
    first: usize,
    blocks: &'a [BlockId],
    block_size: usize,
    /// Tokens before the end; 0 if nothing is left.
    end: usize,
}

impl<'a> Table<'a> {
    fn new(group: &Group, state: &'a GroupState) -> Self {
        let mut table = Self {
            first: state.blocks.null_head(),
            blocks: &[],
            block_size: group.block_size,
            end: 0,
        };
        table.keep(state.blocks.tail());
        table
    }

    fn keep(&mut self, blocks: &'a [BlockId]) {
        self.blocks = blocks;
        let is_empty = blocks.is_empty();
        self.end = if is_empty { 0 } else { (self.first + blocks.len()) * self.block_size };
    }

    /// The blocks that end beyond so many tokens, and at least the last one.
    fn take_beyond(&mut self, num_tokens: usize) -> &'a [BlockId] {
        let kept = (num_tokens / self.block_size).saturating_sub(self.first);
        let (kept, taken) = self.blocks.split_at(kept.min(self.blocks.len() - 1));
        self.keep(kept);
        taken
    }
}
