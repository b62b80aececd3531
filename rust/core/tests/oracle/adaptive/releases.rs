//! Releases of requests under the adaptive policy: of skipped blocks while they run, and of all
//! blocks when they end.

use std::cmp::Reverse;
use std::collections::HashMap;

use kvoxide_core::{BlockId, NULL_BLOCK};

use super::requests::{Manager, Request, Tail};

impl Manager {
    /// Releases the skipped blocks of a running request, and records the tails that are protected.
    pub fn leave_behind(&mut self, id: u64, num_computed: usize) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        self.policy.newly_protected = Some(Vec::new());
        let mut ends = HashMap::new();
        for (group, table) in self.groups.iter().zip(&mut request.tables) {
            let mut left = Vec::new();
            let num_left = group.num_left_behind(num_computed).min(table.len());
            for position in
                (0..num_left).rev().take_while(|&i| table[i] != NULL_BLOCK).collect::<Vec<_>>()
            {
                ends.insert(table[position], (position + 1) * group.block_size);
                left.push(std::mem::replace(&mut table[position], NULL_BLOCK));
            }
            self.policy.release(&left);
        }
        for block in self.policy.newly_protected.take().expect("tails") {
            let hash = self.policy.pool.blocks[block as usize].keys[0].hash;
            request.tails.push(Tail { end: ends[&block], block, hash });
        }
    }

    /// Releases the blocks of a request that ends. Its last tails get the value of full blocks,
    /// because a later request may continue there. Tails get the uses of the full blocks that end
    /// where they do. Blocks that end within one of the largest blocks of any group are released
    /// together, the end of the sequence first, so that they are evicted together.
    pub fn free(&mut self, id: u64) {
        let request = self.requests.remove(&id).expect("a request that runs");
        let tails = self.own_tails(&request);
        let full = self.groups.iter().position(|group| group.window.is_none());
        let full_at = |end: usize| {
            let full = full?;
            let last = (end / self.groups[full].block_size).saturating_sub(1);
            request.tables[full].get(last).copied().filter(|&block| block != NULL_BLOCK)
        };
        let unit = self.groups.iter().map(|group| group.block_size).max().expect("a group");
        let mut order = Vec::new();
        for (i, (group, table)) in self.groups.iter().zip(&request.tables).enumerate() {
            for (position, &block) in
                table.iter().enumerate().filter(|&(_, &block)| block != NULL_BLOCK)
            {
                let end = (position + 1) * group.block_size;
                if group.window.is_some() {
                    self.policy.promote(block, full_at(end));
                }
                order.push(((end - 1) / unit, usize::MAX - i, end, block));
            }
        }
        for &Tail { end, block, .. } in &tails {
            full_at(end).into_iter().for_each(|full| self.policy.inherit_uses(block, full));
            order.push(((end - 1) / unit, 0, end, block));
        }
        // The last unit first; of one the groups in order, then the protected tails, each from the
        // end on.
        order.sort_by_key(|&place| Reverse(place));
        let order: Vec<_> = order.into_iter().map(|(.., block)| block).collect();
        self.policy.release(&order);
    }

    /// Ends a request whose blocks the caller releases. Returns them group by group, in the order
    /// of the sequence.
    pub fn forget(&mut self, id: u64) -> Vec<BlockId> {
        let request = self.requests.remove(&id).expect("a request that runs");
        let tails: Vec<_> = self.own_tails(&request).iter().map(|tail| tail.block).collect();
        let mut used = request.tables.concat();
        used.retain(|&block| block != NULL_BLOCK);
        self.policy.raise(&used);
        self.policy.release(&tails);
        used
    }

    /// Returns the tails of a request that are still protected and still have their keys, the last
    /// first.
    fn own_tails(&self, request: &Request) -> Vec<Tail> {
        let is_own = |tail: &&Tail| {
            let keys = &self.policy.pool.blocks[tail.block as usize].keys;
            self.policy.is_protected(tail.block) && keys[0].hash == tail.hash
        };
        let mut tails: Vec<_> = request.tails.iter().filter(is_own).copied().collect();
        tails.sort_by_key(|tail| Reverse((tail.end, tail.block)));
        tails.dedup_by_key(|tail| tail.block);
        tails
    }
}
