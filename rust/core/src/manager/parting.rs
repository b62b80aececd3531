//! How a request gives its blocks back in adaptive order: those of all groups together, the end of
//! the sequence first, so that what is needed together leaves together.

use std::cmp::Reverse;

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::group::Group;
use crate::pool::{BlockPool, Parting};
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
        let ending = Ending { groups, states: &held.groups };
        ending.value_tails(pool, &tails);
        ending.give_back(pool, &tails);
        pool.release_null(held.groups.iter().map(|state| state.blocks.null_head()).sum());
    }

    /// Lets the held tails of a request go.
    pub(super) fn let_tails_go(&mut self, held: &RequestBlocks) {
        let tails = own_tails(&self.pool, held);
        claim_again(&mut self.pool, held, &tails);
        self.pool.part_with(|parting| tails.iter().for_each(|&(_, tail)| parting.let_go(tail)));
    }
}

/// Tokens before the end of a tail's block, and the block.
type Tail = (usize, BlockId);

/// The tails that are still held, and for this request's prefix; the last first.
fn own_tails(pool: &BlockPool, held: &RequestBlocks) -> Vec<Tail> {
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
fn claim_again(pool: &mut BlockPool, held: &RequestBlocks, tails: &[Tail]) {
    if pool.is_claiming() {
        let used = held.groups.iter().flat_map(|group| group.blocks.iter_held_back());
        pool.claim_again(used.chain(tails.iter().map(|&(_, tail)| tail)));
    }
}

/// What a request holds as it ends.
#[derive(Clone, Copy)]
struct Ending<'a> {
    groups: &'a [Group],
    states: &'a [GroupState],
}

impl<'a> Ending<'a> {
    fn is_tail(self, group: usize) -> bool {
        self.groups[group].kind().is_sparse()
    }

    /// Where a sequence ends, a later one goes on: its last window and state are worth as much as
    /// full blocks. Tails have been used as often as the prefixes that they go with.
    fn value_tails(self, pool: &mut BlockPool, tails: &[Tail]) {
        let whole = (0..self.groups.len()).find(|&group| !self.is_tail(group));
        let prefix = whole.map(|whole| (self.groups[whole].block_size, &self.states[whole].blocks));
        let prefix_at = |end: usize| {
            let (size, table) = prefix?;
            table.get((end / size).saturating_sub(1)).filter(|&block| block != NULL_BLOCK)
        };
        for group in (0..self.groups.len()).filter(|&group| self.is_tail(group)) {
            let (size, table) = (self.groups[group].block_size, &self.states[group].blocks);
            let prefix_size = prefix.map_or(usize::MAX, |(size, _)| size);
            let (mut end, mut left) = ((table.null_head() + 1) * size, table.tail());
            while !left.is_empty() {
                let next_end = (end / prefix_size).saturating_add(1).saturating_mul(prefix_size);
                let num_beside = (next_end - end).div_ceil(size).min(left.len());
                let (beside, behind) = left.split_at(num_beside);
                pool.promote(beside, prefix_at(end));
                (left, end) = (behind, end + num_beside * size);
            }
        }
        for &(end, tail) in tails {
            if let Some(prefix) = prefix_at(end) {
                pool.inherit_uses(tail, prefix);
            }
        }
    }

    /// Gives back the blocks of every group and lets the tails go, those at the end of the sequence
    /// first.
    fn give_back(self, pool: &mut BlockPool, tails: &[Tail]) {
        let tables = self.groups.iter().zip(self.states);
        let mut left = Left {
            tables: tables.map(|(group, state)| Table::new(group, state)).collect(),
            tails,
            turns: Vec::new(),
        };
        pool.part_with(|parting| while left.give_back_last(parting) {});
    }
}

/// What a request has not given back yet.
struct Left<'a> {
    tables: Vec<Table<'a>>,
    tails: &'a [Tail],
    /// Memory for blocks that are given back in turns.
    turns: Vec<&'a [BlockId]>,
}

/// The tables that end last.
struct Last {
    /// Tokens before their end; 0 if there are none.
    end: usize,
    /// Tokens before the end of what comes behind them.
    behind: usize,
    /// The first of them.
    first: usize,
    num_tables: usize,
    are_alike: bool,
}

impl Left<'_> {
    /// Gives back what ends last, of equals the tables first and in their order, as far as the same
    /// tables end last; `false` if nothing is left.
    #[inline]
    fn give_back_last(&mut self, parting: &mut Parting<'_>) -> bool {
        let mut last = self.last();
        if let Some(&(tail_end, tail)) = self.tails.first() {
            if tail_end > last.end {
                parting.let_go(tail);
                self.tails = &self.tails[1..];
                return true;
            }
            last.behind = last.behind.max(tail_end);
        }
        if last.end == 0 {
            return false;
        }
        if last.num_tables == 1 {
            let table = &mut self.tables[last.first];
            parting.give_all_back(table.take(table.num_beyond(last.behind)));
        } else {
            self.give_back_in_turns(&last, parting);
        }
        true
    }

    fn last(&self) -> Last {
        let mut last = Last { end: 0, behind: 0, first: 0, num_tables: 0, are_alike: true };
        for (i, table) in self.tables.iter().enumerate() {
            if table.end > last.end {
                let (end, behind) = (table.end, last.end);
                last = Last { end, behind, first: i, num_tables: 1, are_alike: true };
            } else if table.end == last.end {
                last.num_tables += 1;
                last.are_alike &= table.block_size == self.tables[last.first].block_size;
            } else {
                last.behind = last.behind.max(table.end);
            }
        }
        last
    }

    /// Several tables end last: each gives back a block at a time.
    fn give_back_in_turns(&mut self, last: &Last, parting: &mut Parting<'_>) {
        let tables = self.tables.iter_mut().filter(|table| table.end == last.end);
        let beyond = |table: &Table<'_>| table.num_beyond(last.behind);
        if !last.are_alike {
            return tables.for_each(|table| parting.give_all_back(table.take(1)));
        }
        let num_turns = tables.map(|table| beyond(table)).min().unwrap_or(1);
        self.turns.clear();
        let tables = self.tables.iter_mut().filter(|table| table.end == last.end);
        self.turns.extend(tables.map(|table| table.take(num_turns)));
        for turn in (0..num_turns).rev() {
            self.turns.iter().for_each(|blocks| parting.give_back(blocks[turn]));
        }
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

    /// The blocks that end beyond so many tokens, at most those before the table's end; and at least
    /// the last one.
    fn num_beyond(&self, num_tokens: usize) -> usize {
        (self.end - num_tokens).div_ceil(self.block_size).clamp(1, self.blocks.len())
    }

    /// The last `n` blocks.
    fn take(&mut self, n: usize) -> &'a [BlockId] {
        let (kept, taken) = self.blocks.split_at(self.blocks.len() - n);
        self.keep(kept);
        taken
    }
}
