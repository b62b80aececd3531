//! The order in which a request releases its blocks under adaptive retention: those of all groups
//! together, the end of the sequence first, so that blocks that a hit needs together are evicted
//! together.

use std::cmp::Reverse;

use crate::block::{BlockId, NULL_BLOCK};
use crate::group::Group;
use crate::pool::{Adaptive, Blocks, Release};
use crate::request::{GroupState, RequestBlocks};

/// Releases every block of a request that ends, and ends the protection of its tails.
pub(super) fn release_all(
    groups: &[Group],
    adaptive: &mut Adaptive,
    blocks: &mut Blocks,
    held: &RequestBlocks,
) {
    let tails = protected_tails(adaptive, blocks, held);
    raise_priorities(adaptive, blocks, held, &tails);
    let ended = EndedRequest { groups, states: &held.groups };
    ended.promote_tails(adaptive, &tails);
    ended.release(adaptive, blocks, &tails);
}

/// Ends the protection of a request's tails.
pub(super) fn unprotect_tails(adaptive: &mut Adaptive, blocks: &mut Blocks, held: &RequestBlocks) {
    let tails = protected_tails(adaptive, blocks, held);
    raise_priorities(adaptive, blocks, held, &tails);
    adaptive
        .release_by(blocks, |release| tails.iter().for_each(|&(_, tail)| release.unprotect(tail)));
}

/// A tail's block, behind the number of tokens before its end.
type Tail = (usize, BlockId);

/// Returns the protected tails of a request, the last first. Blocks that were allocated for other
/// content since have another hash and are left out.
fn protected_tails(adaptive: &Adaptive, blocks: &Blocks, held: &RequestBlocks) -> Vec<Tail> {
    let is_own = |&&(block, word): &&(BlockId, u64)| {
        adaptive.is_protected(block) && blocks.name_word(block) == word
    };
    let own = held.protected_tails.iter().filter(is_own);
    let mut tails: Vec<_> =
        own.map(|&(block, _)| (blocks.last_hash_num_tokens(block), block)).collect();
    tails.sort_unstable_by_key(|&tail| Reverse(tail));
    tails.dedup();
    tails
}

/// Gives the blocks and protected tails of a request its priority, if it sets one.
fn raise_priorities(
    adaptive: &mut Adaptive,
    blocks: &Blocks,
    held: &RequestBlocks,
    tails: &[Tail],
) {
    let tails = tails.iter().map(|&(_, tail)| tail);
    adaptive.raise_priorities(blocks, held.iter_owned_rev().chain(tails));
}

/// The tables of a request that ends.
#[derive(Clone, Copy)]
struct EndedRequest<'a> {
    groups: &'a [Group],
    states: &'a [GroupState],
}

impl<'a> EndedRequest<'a> {
    fn is_tail(self, group: usize) -> bool {
        self.groups[group].is_sparse
    }

    /// Gives the last window and state the value of full blocks, because later requests continue
    /// where a sequence ends. Tails get the number of uses of the prefix block that they end with.
    fn promote_tails(self, adaptive: &mut Adaptive, tails: &[Tail]) {
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
                let num_without_prefix = (first_prefix - first).min(left.len());
                let (without_prefix, with_prefix) = left.split_at(num_without_prefix);
                let num_paired = with_prefix.len().min(prefixes.len());
                adaptive.promote_each(&with_prefix[..num_paired], prefixes);
                adaptive.promote(&with_prefix[num_paired..], None);
                left = without_prefix;
            }
            let prefix_size = prefix.map_or(usize::MAX, |(size, _)| size);
            let mut end = (first + 1) * size;
            while !left.is_empty() {
                let next_end = (end / prefix_size).saturating_add(1).saturating_mul(prefix_size);
                let num_same = (next_end - end).div_ceil(size).min(left.len());
                let (same_prefix, behind) = left.split_at(num_same);
                adaptive.promote(same_prefix, prefix_at(end));
                (left, end) = (behind, end + num_same * size);
            }
        }
        for &(end, tail) in tails {
            if let Some(prefix) = prefix_at(end) {
                adaptive.inherit_uses(tail, prefix);
            }
        }
    }

    /// Releases the blocks of every group and unprotects the tails, those at the end of the
    /// sequence first. Blocks within one block of the group with the largest blocks are needed
    /// together; their order among each other is that of the groups.
    fn release(self, adaptive: &mut Adaptive, blocks: &mut Blocks, tails: &[Tail]) {
        let tables = self.groups.iter().zip(self.states);
        let mut unreleased = Unreleased {
            tables: tables.map(|(group, state)| Table::new(group, state)).collect(),
            tails,
            unit: self.groups.iter().map(|group| group.block_size).max().unwrap_or(1),
            next: Vec::new(),
        };
        unreleased.next.reserve(unreleased.num_outside_longest());
        adaptive.release_by(blocks, |release| {
            while unreleased.release_end(release) {}
            unreleased.release_next(release);
        });
    }
}

/// Blocks of a request that are still to be released.
struct Unreleased<'a> {
    tables: Vec<Table<'a>>,
    tails: &'a [Tail],
    /// Tokens whose blocks are released together.
    unit: usize,
    /// The blocks that are released next, in order.
    next: Vec<BlockId>,
}

impl Unreleased<'_> {
    fn num_outside_longest(&self) -> usize {
        let lens = || self.tables.iter().map(|table| table.blocks.len());
        lens().sum::<usize>() - lens().max().unwrap_or(0)
    }

    /// Releases the last units: all in which one table alone has blocks, or else one, or several in
    /// which each table has one block. Returns `false` if nothing was left.
    fn release_end(&mut self, release: &mut Release<'_>) -> bool {
        let (longest, second_end) = self.longest();
        let end = self.tables.get(longest).map_or(0, |table| table.end);
        let tail_end = self.tails.first().map_or(0, |&(end, _)| end);
        let shared = second_end.max(tail_end).next_multiple_of(self.unit);
        if end > shared {
            self.release_next(release);
            release.release_all(self.tables[longest].take_after(shared));
        } else if end.max(tail_end) > 0 {
            self.release_units((end.max(tail_end) - 1) / self.unit * self.unit, release);
        } else {
            return false;
        }
        true
    }

    /// Returns the table that ends last, and where the next one ends.
    fn longest(&self) -> (usize, usize) {
        let (mut longest, mut end, mut second_end) = (0, 0, 0);
        for (i, table) in self.tables.iter().enumerate() {
            if table.end > end {
                (longest, end, second_end) = (i, table.end, end);
            } else {
                second_end = second_end.max(table.end);
            }
        }
        (longest, second_end)
    }

    /// Releases the blocks that end after `start` tokens, and the units before as long as the same
    /// tables have one block in each.
    fn release_units(&mut self, start: usize, release: &mut Release<'_>) {
        let num_units = self.num_even_units(start);
        let start = start - (num_units - 1) * self.unit;
        let first = self.next.len();
        let num_open = self.tables.iter().filter(|table| table.end > start).count();
        let open = self.tables.iter_mut().filter(|table| table.end > start);
        if num_units == 1 {
            open.for_each(|table| self.next.extend(table.take_after(start).iter().rev()));
        } else {
            self.next.resize(first + num_open * num_units, NULL_BLOCK);
            for (i, table) in open.enumerate() {
                let places = self.next[first + i..].iter_mut().step_by(num_open);
                let blocks = table.take_after(start).iter().rev();
                places.zip(blocks).for_each(|(place, &block)| *place = block);
            }
        }
        while let Some((&(end, tail), rest)) = self.tails.split_first()
            && end > start
        {
            self.release_next(release);
            release.unprotect(tail);
            self.tails = rest;
        }
    }

    /// Returns the number of units, from the one that begins at `start` on backwards, in which the
    /// same tables have one block each.
    fn num_even_units(&self, start: usize) -> usize {
        let mut num_units = usize::MAX;
        for table in self.tables.iter().filter(|table| table.end > start) {
            if table.block_size != self.unit || !self.tails.is_empty() {
                return 1;
            }
            num_units = num_units.min(table.blocks.len());
        }
        let others = self.tables.iter().map(|table| table.end).filter(|&end| end <= start);
        num_units.min((start - others.max().unwrap_or(0)) / self.unit + 1)
    }

    fn release_next(&mut self, release: &mut Release<'_>) {
        if !self.next.is_empty() {
            self.next.reverse();
            release.release_each(&self.next);
            self.next.clear();
        }
    }
}

/// The blocks of one table that are still to be released.
struct Table<'a> {
    blocks: &'a [BlockId],
    block_size: usize,
    /// Tokens before its end; 0 if no block is left.
    end: usize,
}

impl<'a> Table<'a> {
    fn new(group: &Group, state: &'a GroupState) -> Self {
        let (blocks, block_size) = (state.blocks.tail(), group.block_size);
        let end = (state.blocks.null_head() + blocks.len()) * block_size;
        Self { blocks, block_size, end: if blocks.is_empty() { 0 } else { end } }
    }

    /// Takes the blocks that end after `num_tokens` tokens.
    fn take_after(&mut self, num_tokens: usize) -> &'a [BlockId] {
        let n = (self.end - num_tokens).div_ceil(self.block_size).min(self.blocks.len());
        let (kept, taken) = self.blocks.split_at(self.blocks.len() - n);
        self.blocks = kept;
        self.end = if kept.is_empty() { 0 } else { self.end - n * self.block_size };
        taken
    }
}
