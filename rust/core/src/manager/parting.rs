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
        for parted in parting.in_order(&tails) {
            match parted {
                Parted::Released(block) => pool.release([block]),
                Parted::LetGo(block) => pool.let_go(block),
            }
        }
        if pool.counts_null_references() {
            let blocks = held.groups.iter().flat_map(|state| state.blocks.iter());
            pool.release_null(blocks.filter(|&block| block == NULL_BLOCK).count());
        }
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

/// A block that is given back.
enum Parted {
    /// A reference to it is dropped.
    Released(BlockId),
    /// It was held.
    LetGo(BlockId),
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

    /// Blocks of every group and held tails, those at the end of the sequence first.
    fn in_order(self, tails: &'a [Ending]) -> impl Iterator<Item = Parted> + 'a {
        type Source<'a> = Box<dyn Iterator<Item = (usize, Parted)> + 'a>;
        let released =
            |group| self.endings(group).map(|(end, block)| (end, Parted::Released(block)));
        let tables =
            (0..self.groups.len()).map(move |group| Box::new(released(group)) as Source<'_>);
        let let_go = tails.iter().map(|&(end, block)| (end, Parted::LetGo(block)));
        let sources = tables.chain([Box::new(let_go) as Source<'_>]);
        let mut sources: Vec<_> = sources.map(Iterator::peekable).collect();
        std::iter::from_fn(move || {
            let ends = sources.iter_mut().map(|source| source.peek().map(|&(end, _)| end));
            let (last, end) = ends.enumerate().max_by_key(|&(i, end)| (end, Reverse(i)))?;
            end.and_then(|_| sources[last].next()).map(|(_, parted)| parted)
        })
    }
}
