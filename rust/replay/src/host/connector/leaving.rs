//! The stores of a step under `adaptive`: blocks that the pool evicts soon and the joint pool keeps.

use kvoxide_core::host::LeavingStores;
use kvoxide_core::joint::{StepStores, StoredStep, attached_tables};
use kvoxide_core::{GroupBlocks, Manager, RequestId, RequestView};

use super::HostConnector;
use super::transfers::Pace;
use crate::clock::Nanoseconds;
use crate::host::jobs::{Job, NO_REQUEST};

impl HostConnector {
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
        let groups = self.geometry.groups();
        Some(attached_tables(manager, view, groups, local, (num_local, end)))
    }

    /// Returns whether a load waits in this step, for stores of the `num_blocks` blocks that it takes
    /// from the pool.
    pub(super) fn waits_for_stores(&mut self, request: RequestId, num_blocks: usize) -> bool {
        if self.pace == Pace::Recorded {
            return false;
        }
        let mut wait = self.state(request).store_wait;
        let waits = wait.waits(&mut self.horizon, &self.tier, num_blocks as u64);
        self.state(request).store_wait = wait;
        waits
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
        // Loads from before a reset can still read the chunks that are free now.
        let stores_taken = !std::mem::take(&mut self.was_reset);
        let step = StoredStep { has_tokens, has_ended, stores_taken };
        let Self { tier, horizon, geometry, .. } = self;
        let StepStores { num_given_up, taken, leaving } =
            StepStores::decide(manager, tier, horizon, &geometry.search, step);
        self.report.evicted += num_given_up as u64;
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
