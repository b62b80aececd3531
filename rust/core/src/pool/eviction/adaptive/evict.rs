//! Evicts free cached blocks: moves them from their lists to the free queue.

use super::Adaptive;
use crate::block::{BlockId, CacheKey};
use crate::pool::blocks::{Blocks, IdRun, ListSpan, run_from};
use crate::pool::eviction::Find;

impl Adaptive {
    /// Appends the next `n` free blocks to allocate to `out`.
    pub fn evict(&mut self, blocks: &mut Blocks, n: usize, find: Find<'_>, out: &mut Vec<BlockId>) {
        if n > self.queue.free.len() {
            self.refill_queue(blocks, n - self.queue.free.len(), find);
        }
        self.queue.evict(blocks, n, out);
    }

    /// Puts all free blocks into the free queue, since the cache is about to be emptied.
    pub fn clear(&mut self, blocks: &mut Blocks, find: Find<'_>) {
        self.refill_queue(blocks, self.num_listed(), find);
        self.shadow.forget_all();
    }

    /// Moves the `n` free cached blocks that are evicted first to the end of the free queue.
    #[cold]
    #[inline(never)]
    fn refill_queue(&mut self, blocks: &mut Blocks, n: usize, find: Find<'_>) {
        let mut num_left = n;
        while num_left > 0 {
            let num_moved = self.pop_many(blocks, num_left);
            num_left -= num_moved;
            if num_moved == 0 {
                let Some(block) = self.pop_one(blocks, find) else { return };
                self.queue.free.push_back(blocks, block);
                num_left -= 1;
            }
        }
    }

    /// Moves the blocks that are evicted first to the end of the free queue. Stops after `n`
    /// blocks, and before a block with a priority or a second chance. Returns the number of moved
    /// blocks.
    fn pop_many(&mut self, blocks: &mut Blocks, n: usize) -> usize {
        if self.priority_lists.has_low() {
            return 0;
        }
        let Some(list) = self.lists.first(blocks) else { return 0 };
        let (span, num_sampled) = match self.pop_run(blocks, list, n) {
            Some(popped) => popped,
            None => self.pop_each(blocks.ring(list).take(n)),
        };
        self.num_ranked -= span.len();
        self.num_sampled -= num_sampled;
        blocks.unlink_span(&span);
        self.queue.free.push_span(blocks, &span);
        span.len()
    }

    /// Pops the first blocks of a list, at most `n`, if they are a run and none has a second
    /// chance. Returns the blocks and how many of them are sampled.
    #[inline]
    fn pop_run(&mut self, blocks: &Blocks, list: u32, n: usize) -> Option<(ListSpan, usize)> {
        let first = blocks.first_of_ring(list).filter(|_| n >= IdRun::MIN_LEN)?;
        let run = run_from(blocks.links(), first, n);
        if run.len() < IdRun::MIN_LEN {
            return None;
        }
        let first = self.metas[run.first];
        let mask = first.bits_against_second_chance()?;
        self.metas.run_alike(run, mask, first.0 & mask)?.evict();
        let num_sampled = self.metas.sampled.count(run);
        Some((ListSpan { front: run.first, back: run.last, len: run.len() }, num_sampled))
    }

    /// Pops neighbours in a list, up to the first one that has a second chance. Returns the same
    /// values as [`Self::pop_run`].
    fn pop_each(&mut self, ids: impl Iterator<Item = BlockId>) -> (ListSpan, usize) {
        let (mut span, mut num_sampled) = (ListSpan::default(), 0);
        let metas = self.metas.all_mut();
        for block in ids {
            let meta = &mut metas[block as usize];
            if meta.has_second_chance() {
                break;
            }
            num_sampled += usize::from(meta.is_sampled());
            *meta = meta.evicted();
            span.push(block);
        }
        (span, num_sampled)
    }

    /// Takes the block that is evicted first out of its list. All tails before it get their second
    /// chances.
    fn pop_one(&mut self, blocks: &mut Blocks, find: Find<'_>) -> Option<BlockId> {
        let low = self.priority_lists.first_low(blocks);
        loop {
            let block = low.or_else(|| self.first(blocks))?;
            self.remove(blocks, block);
            if low.is_some() || !self.give_second_chance(blocks, block, find) {
                return Some(block);
            }
        }
    }

    /// Returns the block that is evicted first if no block has a low priority.
    fn first(&mut self, blocks: &Blocks) -> Option<BlockId> {
        let ranked = self.lists.first(blocks).and_then(|list| blocks.first_of_ring(list));
        let others = || self.priority_lists.first_high(blocks).or(self.protected.first(blocks));
        ranked.or_else(others)
    }

    /// Gives a tail its second chance, if it may get one and the full-attention block that ends at
    /// the same token was used since. The tail is ranked again with the age of that block. Returns
    /// whether it did.
    fn give_second_chance(&mut self, blocks: &mut Blocks, tail: BlockId, find: Find<'_>) -> bool {
        if !self.metas[tail].has_second_chance() {
            return false;
        }
        let Some(group) = self.full_group else { return false };
        let key = CacheKey { hash: blocks.last_key(tail).hash, group };
        let Some(prefix) = find(blocks, &key) else { return false };
        let now = self.lists.epoch();
        let age = |block| now.age(self.metas[block].epoch());
        let prefix_age = if blocks.ref_count(prefix) == 0 { age(prefix) } else { 0 };
        if prefix_age >= age(tail) {
            return false;
        }
        let prefix = self.metas[prefix];
        self.metas.update(tail, |meta| meta.with_uses_of(prefix).used_second_chance());
        self.rank(blocks, tail, prefix_age);
        true
    }
}
