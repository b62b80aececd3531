//! The stores of a step under `adaptive`: blocks that the pool evicts soon and the joint pool keeps.

use kvoxide_core::host::{LeavingStores, attached};
use kvoxide_core::pool::LeavingBlock;
use kvoxide_core::{GroupBlocks, Manager, RequestId, RequestView};

use super::HostConnector;
use super::transfers::Pace;
use crate::clock::Nanoseconds;
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

    /// Returns whether the joint pool has to see each step in which a request decodes, as it did on
    /// the recorded server. It takes what a request has computed from the last step that it saw.
    pub fn sees_every_step(&self) -> bool {
        self.decides_over_both() && self.pace == Pace::Recorded
    }

    /// Asks for stores of the blocks that loads take for which the recorded server waited.
    pub fn ask_for_stores(&mut self, num_blocks: u64) {
        self.horizon.ask_for(num_blocks);
    }

    /// Notes how many stores the recorded server begins in the next step.
    pub fn note_stores(&mut self, num_stores: u32) {
        self.num_recorded_stores = num_stores;
    }

    /// Makes the stores of a step: the blocks that it takes from the pool and that are not stored yet,
    /// and the blocks that later steps can take soon. `has_tokens` is whether the step computes any.
    /// Returns the time for which the step waits for the former.
    pub(super) fn store_leaving(&mut self, manager: &mut Manager, has_tokens: bool) -> Nanoseconds {
        manager.take_offloads();
        let has_ended = !self.ended.is_empty() || std::mem::take(&mut self.has_unseen_end);
        for ended in std::mem::take(&mut self.ended) {
            self.finish(ended.id);
        }
        self.allocated.clear();
        self.preempted.clear();
        let given_up = manager.take_given_up();
        self.report.evicted += self.tier.give_up(given_up.into_iter()) as u64;
        let taken = manager.take_evicted();
        let (Some(joint), pool) = (manager.follower(), manager.pool()) else { return 0 };
        let (num_blocks, num_allocated) = (pool.num_blocks(), pool.num_allocated());
        let num_blocks =
            self.horizon.after_step(num_blocks, num_allocated, (has_tokens, has_ended));
        let geometry = &self.geometry;
        let is_kept = |block: &LeavingBlock| geometry.is_whole(block) && joint.has(&block.key);
        let taken = taken.into_iter().filter(is_kept);
        let taken = self.tier.store_leaving(pool, taken, joint.order());
        let leaving = pool.leaving(num_blocks.unwrap_or(0)).filter(is_kept);
        let leaving = self.tier.store_leaving(pool, leaving, joint.order());
        self.push_stores(taken);
        let fence = if self.pace == Pace::Timed { self.stores.begin(self.now) } else { 0 };
        self.report.fence_time += fence;
        self.push_stores(leaving);
        fence
    }

    fn push_stores(&mut self, stores: LeavingStores) {
        let LeavingStores { stored, evicted, .. } = stores;
        self.report.evicted += evicted.len() as u64;
        let tails = stored.iter().filter(|block| self.geometry.is_tail(block));
        self.report.stored_tails += tails.count() as u64;
        if !stored.is_empty() {
            let keys = stored.iter().map(|block| block.key).collect();
            let blocks = stored.iter().map(|block| block.block).collect();
            self.stores.push(Job::new(NO_REQUEST, keys, self.num_steps).of_blocks(blocks, true));
        }
    }
}
