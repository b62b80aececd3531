//! Releases blocks of requests under the adaptive policy: skipped blocks while a request runs, and
//! all blocks when it ends.

use std::cmp::Reverse;
use std::collections::HashMap;

use kvoxide_core::{BlockId, NULL_BLOCK};

use super::block::WORTHLESS;
use super::requests::{Manager, Request, Tail};

impl Manager {
    /// Releases the skipped blocks of a running request. Records the tails that are protected.
    pub fn leave_behind(&mut self, id: u64, num_computed: usize) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let (mut ends, mut protected) = (HashMap::new(), Vec::new());
        for (group, table) in self.groups.iter().zip(&mut request.tables) {
            let mut left = Vec::new();
            let num_left = group.num_left_behind(num_computed).min(table.len());
            for position in
                (0..num_left).rev().take_while(|&i| table[i] != NULL_BLOCK).collect::<Vec<_>>()
            {
                ends.insert(table[position], (position + 1) * group.block_size);
                left.push(std::mem::replace(&mut table[position], NULL_BLOCK));
            }
            protected.extend(self.policy.release_left_behind(&left));
        }
        let tail = |&block: &BlockId| {
            let hash = self.policy.pool.blocks[block as usize].keys[0].hash;
            Tail { end: ends[&block], block, hash }
        };
        let new: Vec<_> = protected.iter().map(tail).collect();
        request.tails.extend(&new);
        let passed = self.passed_by(id, &new);
        let request = self.requests.get_mut(&id).expect("a request that runs");
        // An earlier tail in the same block, with another hash, stays recorded.
        request.tails.retain(|tail| !passed.contains(tail));
        let passed: Vec<_> = passed.iter().map(|tail| tail.block).collect();
        for &block in &passed {
            self.policy.blocks[block as usize].halvings = WORTHLESS;
        }
        self.policy.release(&passed);
    }

    /// Returns the protected tails in a request's answer that end before the last boundary of hits
    /// where new tails end. They are no longer needed.
    fn passed_by(&self, id: u64, new: &[Tail]) -> Vec<Tail> {
        let boundary = |tail: &Tail| tail.end.div_ceil(self.alignment);
        let is_in_answer = |tail: &&Tail| self.policy.is_unused_answer(tail.block);
        let Some(last) = new.iter().filter(is_in_answer).map(boundary).max() else {
            return Vec::new();
        };
        let tails = self.requests[&id].tails.iter().filter(|tail| self.is_own(tail));
        tails.filter(is_in_answer).filter(|tail| boundary(tail) < last).copied().collect()
    }

    /// Releases the blocks of a request that ends, each table from its end on, and its protected
    /// tails. The request's last tails get the value of an end, because a later request can
    /// continue there. Tails get the uses of full-attention blocks with the same end.
    pub fn free(&mut self, id: u64) {
        let request = self.requests.remove(&id).expect("a request that runs");
        self.note_session_end(&request);
        let halvings = self.note_ends(&request);
        let tails = self.own_tails(&request);
        let whole = self.groups.iter().position(|group| group.window.is_none());
        let prefix_at = |end: usize| {
            let whole = whole?;
            let last = (end / self.groups[whole].block_size).saturating_sub(1);
            request.tables[whole].get(last).copied().filter(|&block| block != NULL_BLOCK)
        };
        let mut order = Vec::new();
        for (i, (group, table)) in self.groups.iter().zip(&request.tables).enumerate() {
            let last_tail = request.num_cached[i].saturating_sub(group.tail_len());
            for (position, &block) in table.iter().enumerate().rev() {
                if group.window.is_some() && position >= last_tail && block != NULL_BLOCK {
                    self.policy.promote(
                        block,
                        prefix_at((position + 1) * group.block_size),
                        halvings,
                    );
                }
                order.push(block);
            }
        }
        for &Tail { end, block, .. } in &tails {
            if self.policy.is_unused_answer(block) {
                self.policy.promote(block, prefix_at(end), halvings);
            } else if let Some(prefix) = prefix_at(end) {
                self.policy.inherit_uses(block, prefix);
            }
            order.push(block);
        }
        for &Tail { end, block, .. } in &tails {
            let group =
                self.groups[usize::from(self.policy.pool.blocks[block as usize].keys[0].group)];
            let prompt_end = request.num_prompt_tokens / self.alignment * self.alignment;
            // A tail nearer to the prompt's end belongs to the tail there.
            let is_before_last_tail = end + group.tail_len() * group.block_size <= prompt_end;
            let prefix = prefix_at(end).filter(|_| is_before_last_tail);
            if prefix.is_some_and(|prefix| self.policy.blocks[prefix as usize].is_end()) {
                self.policy.demote_resumed(block, self.end_worths.resumed.halvings(end));
            }
        }
        self.policy.release(&order);
    }

    /// Ends a request. The caller releases its blocks. Returns the blocks by group, in the order of
    /// the sequence.
    pub fn forget(&mut self, id: u64) -> Vec<BlockId> {
        let request = self.requests.remove(&id).expect("a request that runs");
        self.note_session_end(&request);
        let tails: Vec<_> = self.own_tails(&request).iter().map(|tail| tail.block).collect();
        let mut used = request.tables.concat();
        used.retain(|&block| block != NULL_BLOCK);
        self.policy.raise(&used);
        self.policy.release(&tails);
        used
    }

    fn is_own(&self, tail: &Tail) -> bool {
        let keys = &self.policy.pool.blocks[tail.block as usize].keys;
        self.policy.is_protected(tail.block) && keys[0].hash == tail.hash
    }

    /// Returns the tails of a request that are still protected and still have their keys, from last
    /// to first.
    fn own_tails(&self, request: &Request) -> Vec<Tail> {
        let own = request.tails.iter().filter(|tail| self.is_own(tail));
        let mut tails: Vec<_> = own.copied().collect();
        tails.sort_by_key(|tail| Reverse((tail.end, tail.block)));
        tails.dedup_by_key(|tail| tail.block);
        tails
    }
}
