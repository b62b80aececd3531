//! How a request gives its blocks back in adaptive order: those of all groups together, the end of
//! the sequence first, so that what is needed together leaves together.

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::group::Group;
use crate::pool::BlockPool;
use crate::request::{GroupState, RequestBlocks};

impl RequestBlocks {
    /// Remembers the tails that the pool held since it was told to.
    pub(super) fn keep_tails(&mut self, pool: &mut BlockPool) {
        let tails = pool.end_holding();
        let states = pool.states();
        self.held_tails.extend(tails.into_iter().map(|block| (block, states.name_word(block))));
    }
}

impl Manager {
    /// Gives back every block of a request and lets its held tails go.
    pub(super) fn part_with(&mut self, held: &RequestBlocks) {
        let Self { groups, pool, .. } = self;
        for (group, state) in groups.iter().zip(&held.groups) {
            if group.kind().is_sparse() {
                // Where a sequence ends, a later one goes on.
                pool.promote(state.blocks.iter_held_back());
            }
            if pool.counts_null_references() {
                let nulls = state.blocks.iter().filter(|&block| block == NULL_BLOCK);
                pool.release_null(nulls.count());
            }
        }
        let mut tails = own_tails(pool, held);
        let num_tokens = |block| pool.states().last_hash_num_tokens(block);
        tails.sort_by_key(|&block| std::cmp::Reverse(num_tokens(block)));
        let tails: Vec<_> = tails.into_iter().map(|block| (num_tokens(block), block)).collect();
        let whole = groups.iter().zip(&held.groups).find(|(group, _)| !group.kind().is_sparse());
        if let Some((group, state)) = whole {
            let prefix_block =
                |end: usize| state.blocks.get((end / group.block_size).saturating_sub(1));
            for &(end, tail) in &tails {
                if let Some(from) = prefix_block(end) {
                    pool.inherit_uses(tail, from);
                }
            }
            for (group, state) in
                groups.iter().zip(&held.groups).filter(|(group, _)| group.kind().is_sparse())
            {
                let head = state.blocks.null_head();
                for (i, &block) in
                    state.blocks.tail().iter().enumerate().filter(|(_, b)| **b != NULL_BLOCK)
                {
                    if let Some(from) = prefix_block((head + i + 1) * group.block_size) {
                        pool.inherit_uses(block, from);
                    }
                }
            }
        }
        for parted in in_order_of_parting(groups, &held.groups, tails) {
            match parted {
                Parted::Released(block) => pool.release([block]),
                Parted::LetGo(block) => pool.let_go(block),
            }
        }
    }

    /// Lets the held tails of a request go.
    pub(super) fn let_tails_go(&mut self, held: &RequestBlocks) {
        for block in own_tails(&self.pool, held) {
            self.pool.let_go(block);
        }
    }
}

/// The tails that are still held, and for this request's prefix.
fn own_tails(pool: &BlockPool, held: &RequestBlocks) -> Vec<BlockId> {
    let is_own = |&&(block, word): &&(BlockId, u64)| {
        pool.is_held(block) && pool.states().name_word(block) == word
    };
    let mut tails: Vec<_> =
        held.held_tails.iter().filter(is_own).map(|&(block, _)| block).collect();
    tails.sort_unstable();
    tails.dedup();
    tails
}

/// A block that is given back.
enum Parted {
    /// A reference to it is dropped.
    Released(BlockId),
    /// It was held.
    LetGo(BlockId),
}

/// Blocks of every group and held tails with the tokens before their ends, those with most first.
fn in_order_of_parting<'a>(
    groups: &'a [Group],
    states: &'a [GroupState],
    tails: Vec<(usize, BlockId)>,
) -> impl Iterator<Item = Parted> + 'a {
    let tables = groups.iter().zip(states).map(|(group, state)| {
        let head = state.blocks.null_head();
        let blocks = state.blocks.tail().iter().enumerate().rev();
        let held = blocks.filter(|&(_, &block)| block != NULL_BLOCK);
        let end_of = move |i: usize| (head + i + 1) * group.block_size;
        Box::new(held.map(move |(i, &block)| (end_of(i), Parted::Released(block)))) as Blocks<'_>
    });
    let tails = tails.into_iter().map(|(end, block)| (end, Parted::LetGo(block)));
    let mut sources: Vec<_> =
        tables.chain([Box::new(tails) as Blocks<'_>]).map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let ends = sources.iter_mut().map(|source| source.peek().map(|&(end, _)| end));
        let (farthest, end) =
            ends.enumerate().max_by_key(|&(i, end)| (end, std::cmp::Reverse(i)))?;
        end?;
        sources[farthest].next().map(|(_, parted)| parted)
    })
}

type Blocks<'a> = Box<dyn Iterator<Item = (usize, Parted)> + 'a>;
