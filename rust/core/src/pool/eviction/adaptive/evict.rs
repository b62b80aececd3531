//! Free cached blocks are evicted: they leave the lists for the free queue.

use super::Adaptive;
use crate::block::{BlockHash, BlockId, CacheKey};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::links::run_from;
use crate::pool::blocks::list_span::ListSpan;
use crate::pool::blocks::run::IdRun;
use crate::pool::eviction::Find;

/// The block of full attention that a hash finds, if any.
#[derive(Clone, Copy)]
struct Prefix {
    hash: BlockHash,
    block: Option<BlockId>,
}

impl Adaptive {
    /// Takes the `n` free blocks that are allocated next to the end of `out`.
    pub fn evict(&mut self, states: &mut Blocks, n: usize, find: Find<'_>, out: &mut Vec<BlockId>) {
        if n > self.queue.free.len() {
            self.refill_queue(states, n - self.queue.free.len(), find);
        }
        self.queue.evict(states, n, out);
    }

    /// Puts every free block into the free queue, since the cache is about to be emptied.
    pub fn clear(&mut self, states: &mut Blocks, find: Find<'_>) {
        self.refill_queue(states, self.num_blocks(), find);
        self.sample.forget_all();
    }

    /// Moves the `n` blocks that are to be evicted first to the end of the free queue.
    #[cold]
    #[inline(never)]
    fn refill_queue(&mut self, states: &mut Blocks, n: usize, find: Find<'_>) {
        let (mut num_left, mut last) = (n, None);
        while num_left > 0 {
            let num_moved = self.pop_run(states, num_left);
            num_left -= num_moved;
            if num_moved == 0 {
                let Some(block) = self.pop_unless_used(states, find, &mut last) else { return };
                self.queue.free.push_back(states, block);
                num_left -= 1;
            }
        }
    }

    /// Takes the block out of its list that is to be evicted first, and gives tails before it their
    /// second chances.
    fn pop_unless_used(
        &mut self,
        states: &mut Blocks,
        find: Find<'_>,
        last: &mut Option<Prefix>,
    ) -> Option<BlockId> {
        loop {
            let block = self.pop(states)?;
            let prefix = self.prefix_of_tail(states, block, find, last);
            if !prefix.is_some_and(|prefix| self.rejoin(states, block, prefix)) {
                return Some(block);
            }
        }
    }

    /// Returns the block of full attention that ends where a tail does, if the tail may get a second
    /// chance. Tails of several groups that end there come one after the other.
    fn prefix_of_tail(
        &self,
        states: &Blocks,
        tail: BlockId,
        find: Find<'_>,
        last: &mut Option<Prefix>,
    ) -> Option<BlockId> {
        if !self.tags.of(tail).may_wait_on() {
            return None;
        }
        let hash = states.last_key(tail).hash;
        match *last {
            Some(Prefix { hash: same, block }) if same == hash => block,
            _ => {
                let block = find(states, &CacheKey { hash, group: self.whole_group? });
                *last = Some(Prefix { hash, block });
                block
            }
        }
    }

    /// Takes the block out of its list that is to be evicted first.
    fn pop(&mut self, states: &mut Blocks) -> Option<BlockId> {
        let listed = self.lists.first(states).and_then(|list| states.first_of_ring(list));
        let kept = || self.ladder.first_high(states).or_else(|| self.held.first(states));
        let block = listed.or_else(kept)?;
        self.remove(states, block);
        Some(block)
    }

    /// Moves blocks that are to be evicted first to the end of the free queue, up to `n` and up to a tail
    /// that may have a chance still: how many.
    fn pop_run(&mut self, states: &mut Blocks, n: usize) -> usize {
        if self.ladder.has_low() {
            return self.pop_low(states, n);
        }
        let Some(list) = self.lists.first(states) else { return 0 };
        let (run, num_watched) = match self.leave_in_row(states, list, n) {
            Some(left) => left,
            None => self.leave_one_by_one(states.ring(list).take(n)),
        };
        self.num_listed -= run.len();
        self.num_watched -= num_watched;
        states.unlink_run(&run);
        self.queue.free.push_run(states, &run);
        run.len()
    }

    /// The first blocks of a list leave it if they are in a row and no tails that may have a chance
    /// still: those, up to `n`, and how many of them are watched.
    #[inline]
    fn leave_in_row(&mut self, states: &Blocks, list: u32, n: usize) -> Option<(ListSpan, usize)> {
        let first = states.first_of_ring(list).filter(|_| n >= IdRun::MIN_LEN)?;
        let row = run_from(states.links(), first, n);
        let num_watched = self.tags.row_that_leaves(row)?.leave();
        Some((ListSpan { front: row.first, back: row.last, len: row.len() }, num_watched))
    }

    /// As [`Self::leave_in_row`], of blocks that stand side by side, up to a tail that may have a
    /// chance still.
    fn leave_one_by_one(&mut self, blocks: impl Iterator<Item = BlockId>) -> (ListSpan, usize) {
        let (mut run, mut num_watched) = (ListSpan::default(), 0);
        let mut tags = self.tags.writer();
        for block in blocks {
            let Some(was) = tags.leave_unless_waiting_on(block) else { break };
            num_watched += was.num_watched();
            run.push(block);
        }
        (run, num_watched)
    }

    /// Whether a tail that is to be evicted may have a chance: one that goes with `prefix`, the
    /// block of its prefix that ends where it does, waits on beside that block if that was used
    /// since.
    fn rejoin(&mut self, states: &mut Blocks, tail: BlockId, prefix: BlockId) -> bool {
        let now = self.lists.epoch();
        let age = |block| now.age(self.tags.of(block).epoch());
        let prefix_age = if states.ref_count(prefix) == 0 { age(prefix) } else { 0 };
        if prefix_age >= age(tail) {
            return false;
        }
        self.tags.inherit_uses(tail, prefix);
        self.tags.forget_hit(tail);
        self.list_aged(states, tail, prefix_age);
        self.num_listed += 1;
        self.num_watched += self.tags.of(tail).num_watched();
        true
    }
}
