//! The stores of a step under `adaptive`: blocks that the pool evicts soon and the joint pool keeps.

use kvoxide_core::host::attached;
use kvoxide_core::{GroupBlocks, Manager, RequestId, RequestView};

use super::HostConnector;
use super::transfers::Pace;
use crate::host::jobs::{Job, NO_REQUEST};
use crate::host::request::Progress;

impl HostConnector {
    /// Notes that the pool keeps the cached blocks of a request for now.
    pub(super) fn note_used(&mut self, manager: &Manager, request: RequestId) {
        let Ok(held) = manager.blocks_of(request) else { return };
        let pool = manager.pool();
        let blocks = held.groups.iter().flat_map(|table| table.blocks.iter());
        self.tier.note_used_in_pool(blocks.filter_map(|block| pool.blocks().key(block)));
    }

    /// Returns the tables `local` of the pool's hit, which has `num_local` tokens, with the blocks that a
    /// load up to `end` tokens attaches. Returns `None` unless `adaptive` decides.
    pub fn attached(
        &self,
        manager: &Manager,
        view: &RequestView<'_>,
        local: &[GroupBlocks],
        (num_local, end): (usize, usize),
    ) -> Option<Vec<GroupBlocks>> {
        if !self.decides_over_both() {
            return None;
        }
        let progress = Progress::of(view, 0);
        let groups = self.geometry.groups();
        let keys: Vec<_> = (0..groups.len()).map(|at| self.geometry.keys(at, &progress)).collect();
        let mut tables = local.to_vec();
        tables.resize(manager.groups().len(), GroupBlocks::default());
        Some(attached(groups, &keys, manager.pool(), tables, (num_local, end)))
    }

    /// Returns whether a load has to wait for a step, in which the blocks are stored that it takes
    /// from the pool.
    pub(super) fn waits_for_stores(&mut self, request: RequestId, num_tokens: usize) -> bool {
        if !self.decides_over_both() || self.pace == Pace::Recorded {
            return false;
        }
        let num_blocks = self.geometry.search.num_blocks_taken(num_tokens);
        let state = self.state(request);
        if std::mem::replace(&mut state.has_waited_for_stores, true) {
            return false;
        }
        self.horizon.ask_for(num_blocks)
    }

    /// Makes the stores of a step: the blocks that later steps can take from the pool soon.
    pub(super) fn store_leaving(&mut self, manager: &mut Manager) {
        manager.take_offloads();
        let has_ended = !self.ended.is_empty();
        for ended in std::mem::take(&mut self.ended) {
            self.finish(ended.id);
        }
        self.allocated.clear();
        self.preempted.clear();
        let given_up = manager.take_given_up();
        self.report.evicted += self.tier.give_up(given_up.into_iter()) as u64;
        let (Some(joint), pool) = (manager.follower(), manager.pool()) else { return };
        let Some(num_blocks) =
            self.horizon.after_step(pool.num_blocks(), pool.num_allocated(), has_ended)
        else {
            return;
        };
        let geometry = &self.geometry;
        let leaving = pool
            .leaving(num_blocks)
            .filter(|block| geometry.is_whole(block) && joint.has(&block.key));
        let stores = self.tier.store_leaving(pool, leaving, joint.order());
        self.report.evicted += stores.evicted.len() as u64;
        let tails = stores.stored.iter().filter(|block| geometry.is_tail(block));
        self.report.stored_tails += tails.count() as u64;
        if !stores.stored.is_empty() {
            let keys = stores.stored.iter().map(|block| block.key).collect();
            let blocks = stores.stored.iter().map(|block| block.block).collect();
            self.stores.push(Job::new(NO_REQUEST, keys, self.num_steps).of_blocks(blocks, true));
        }
    }
}
