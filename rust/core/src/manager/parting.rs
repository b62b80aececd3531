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
        let name = |block| (block, pool.blocks().name_word(block));
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
    let states = pool.blocks();
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
        pool.claim_again(held.iter_held_back().chain(tails.iter().map(|&(_, tail)| tail)));
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
            let (mut left, first) = (table.tail(), table.null_head());
            if let Some((prefix_size, prefix)) = prefix
                && prefix_size == size
            {
                let (first_prefix, prefixes) = prefix.tail_from(first);
                let num_lone = (first_prefix - first).min(left.len());
                let (lone, with_prefix) = left.split_at(num_lone);
                let num_beside = with_prefix.len().min(prefixes.len());
                pool.promote_beside(&with_prefix[..num_beside], prefixes);
                pool.promote(&with_prefix[num_beside..], None);
                left = lone;
            }
            let prefix_size = prefix.map_or(usize::MAX, |(size, _)| size);
            let mut end = (first + 1) * size;
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
    /// first. What lies in one block of the group with the largest is needed together, and in no
    /// particular order.
    fn give_back(self, pool: &mut BlockPool, tails: &[Tail]) {
        let tables = self.groups.iter().zip(self.states);
        let mut left = Left {
            tables: tables.map(|(group, state)| Table::new(group, state)).collect(),
            tails,
            unit: self.groups.iter().map(|group| group.block_size).max().unwrap_or(1),
            next: Vec::new(),
        };
        left.next.reserve(left.num_beside());
        pool.part_with(|parting| {
            while left.give_back_last(parting) {}
            left.give_back_next(parting);
        });
    }
}

/// What a request has not given back yet.
struct Left<'a> {
    tables: Vec<Table<'a>>,
    tails: &'a [Tail],
    /// Tokens of what is given back together.
    unit: usize,
    /// Blocks of the tables that come next.
    next: Vec<BlockId>,
}

impl Left<'_> {
    /// Blocks of all tables but the longest.
    fn num_beside(&self) -> usize {
        let lens = || self.tables.iter().map(|table| table.blocks.len());
        lens().sum::<usize>() - lens().max().unwrap_or(0)
    }

    /// Gives back the last unit, or as many as have blocks of one table alone; `false` if nothing is
    /// left.
    fn give_back_last(&mut self, parting: &mut Parting<'_>) -> bool {
        let (longest, behind) = self.longest();
        let end = self.tables.get(longest).map_or(0, |table| table.end);
        let tail_end = self.tails.first().map_or(0, |&(end, _)| end);
        let shared = behind.max(tail_end).next_multiple_of(self.unit);
        if end > shared {
            self.give_back_next(parting);
            parting.give_all_back(self.tables[longest].take_beyond(shared));
        } else if end.max(tail_end) > 0 {
            self.give_units_back((end.max(tail_end) - 1) / self.unit * self.unit, parting);
        } else {
            return false;
        }
        true
    }

    /// The table that ends last, and where the next one ends.
    fn longest(&self) -> (usize, usize) {
        let (mut longest, mut end, mut behind) = (0, 0, 0);
        for (i, table) in self.tables.iter().enumerate() {
            if table.end > end {
                (longest, end, behind) = (i, table.end, end);
            } else {
                behind = behind.max(table.end);
            }
        }
        (longest, behind)
    }

    /// Gives back what ends beyond so many tokens, and units before it as long as the same tables
    /// have one block in each.
    fn give_units_back(&mut self, start: usize, parting: &mut Parting<'_>) {
        let Self { tables, tails, unit, next } = self;
        let (mut turns, mut num_turns) = (Vec::with_capacity(tables.len()), usize::MAX);
        for table in tables.iter_mut().filter(|table| table.end > start) {
            num_turns = match table.block_size == *unit && tails.is_empty() {
                true => num_turns.min(table.blocks.len()),
                false => 1,
            };
        }
        let others = tables.iter().map(|table| table.end).filter(|&end| end <= start);
        num_turns = num_turns.min((start - others.max().unwrap_or(0)) / *unit + 1);
        let start = start - (num_turns - 1) * *unit;
        turns.extend(
            tables
                .iter_mut()
                .filter(|table| table.end > start)
                .map(|table| table.take_beyond(start)),
        );
        if num_turns == 1 {
            turns.iter().for_each(|blocks| next.extend(blocks.iter().rev()));
        } else {
            let first = next.len();
            next.resize(first + turns.len() * num_turns, NULL_BLOCK);
            for (i, blocks) in turns.iter().enumerate() {
                let places = next[first + i..].iter_mut().step_by(turns.len());
                places.zip(blocks.iter().rev()).for_each(|(place, &block)| *place = block);
            }
        }
        while let Some((&(end, tail), rest)) = self.tails.split_first()
            && end > start
        {
            self.give_back_next(parting);
            parting.let_go(tail);
            self.tails = rest;
        }
    }

    /// Gives back what comes next.
    fn give_back_next(&mut self, parting: &mut Parting<'_>) {
        if !self.next.is_empty() {
            self.next.reverse();
            parting.give_each_back(&self.next);
            self.next.clear();
        }
    }
}

/// What is left of a group's table, whose end is given back first.
struct Table<'a> {
    blocks: &'a [BlockId],
    block_size: usize,
    /// Tokens before the end; 0 if nothing is left.
    end: usize,
}

impl<'a> Table<'a> {
    fn new(group: &Group, state: &'a GroupState) -> Self {
        let (blocks, block_size) = (state.blocks.tail(), group.block_size);
        let end = (state.blocks.null_head() + blocks.len()) * block_size;
        Self { blocks, block_size, end: if blocks.is_empty() { 0 } else { end } }
    }

    /// The blocks that end beyond so many tokens.
    fn take_beyond(&mut self, num_tokens: usize) -> &'a [BlockId] {
        let n = (self.end - num_tokens).div_ceil(self.block_size).min(self.blocks.len());
        let (kept, taken) = self.blocks.split_at(self.blocks.len() - n);
        self.blocks = kept;
        self.end = if kept.is_empty() { 0 } else { self.end - n * self.block_size };
        taken
    }
}
