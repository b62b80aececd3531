//! The stores of a step under `adaptive`: blocks that the pool evicts soon and the joint pool keeps.

use std::sync::Arc;

use kvoxide_core::host::ChunkLookup;
use kvoxide_core::{Error, GroupBlocks, Manager, RequestId, RequestRetention, RequestView};

use super::HostConnector;
use super::transfers::Pace;
use crate::host::jobs::{Job, NO_REQUEST};
use crate::host::request::Progress;

impl HostConnector {
    /// Notes that a request has slots for its first `end` tokens.
    pub fn note_slots(
        &mut self,
        view: &RequestView<'_>,
        end: usize,
        retention: Option<&Arc<RequestRetention>>,
    ) -> Result<(), Error> {
        self.joint.as_mut().map_or(Ok(()), |joint| joint.reach(view, end, retention))
    }

    /// Notes that the blocks of a request were released.
    pub fn note_released(&mut self, request: RequestId, retention: Option<&Arc<RequestRetention>>) {
        if let Some(joint) = &mut self.joint {
            joint.free(request, retention);
        }
    }

    /// Starts a step.
    pub fn step_starts(&mut self) {
        if let Some(joint) = &mut self.joint {
            joint.step_starts();
        }
    }

    /// Sets the time in milliseconds that ends of priorities are compared with.
    pub fn set_milliseconds(&mut self, milliseconds: u64) {
        if let Some(joint) = &mut self.joint {
            joint.set_now(milliseconds);
        }
    }

    /// Notes that the pool forgot everything.
    pub fn note_reset(&mut self) {
        if let Some(joint) = &mut self.joint {
            joint.reset();
        }
    }

    /// Notes that the pool keeps the cached blocks of a request for now.
    pub(super) fn note_used(&mut self, manager: &Manager, request: RequestId) {
        let Ok(held) = manager.blocks_of(request) else { return };
        let pool = manager.pool();
        let blocks = held.groups.iter().flat_map(|table| table.blocks.iter());
        self.tier.note_used_in_pool(blocks.filter_map(|block| pool.blocks().key(block)));
    }

    /// Returns the blocks of the pool that a load up to `end` tokens attaches: full attention from
    /// the start on, windows at the end, and no further states. The pool's hit has `num_local` tokens
    /// and the blocks `local`. Returns `None` unless `adaptive` decides.
    pub fn attached(
        &self,
        manager: &Manager,
        view: &RequestView<'_>,
        local: &[GroupBlocks],
        (num_local, end): (usize, usize),
    ) -> Option<Vec<GroupBlocks>> {
        self.joint.as_ref()?;
        let pool = manager.pool();
        let progress = Progress::of(view, 0);
        let mut tables = local.to_vec();
        tables.resize(manager.groups().len(), GroupBlocks::default());
        for (at, group) in self.geometry.groups().iter().enumerate() {
            let keys = self.geometry.keys(at, &progress);
            let num_blocks = end.div_ceil(group.tokens_per_block).min(keys.len());
            let find = |place: usize| pool.find(&keys.at(place));
            let table = &mut tables[group.group_idx];
            match group.load_window(end) {
                None => {
                    table.truncate(num_local / group.tokens_per_block);
                    (table.len()..num_blocks).map_while(find).for_each(|block| table.push(block));
                }
                Some(_) if group.is_state => {}
                Some(window) => {
                    let first = num_blocks.saturating_sub(window);
                    let found: Option<Vec<_>> = (first..num_blocks).map(find).collect();
                    if let Some(blocks) = found {
                        *table = GroupBlocks::new(first, blocks);
                    }
                }
            }
        }
        Some(tables)
    }

    /// Returns whether a load has to wait for a step, in which the blocks are stored that it takes
    /// from the pool.
    pub(super) fn waits_for_stores(&mut self, request: RequestId, num_tokens: usize) -> bool {
        if self.joint.is_none() || self.pace == Pace::Recorded {
            return false;
        }
        let groups = self.geometry.groups().iter();
        let num_blocks = groups.map(|group| {
            let num_blocks = num_tokens.div_ceil(group.tokens_per_block);
            group.load_window(num_tokens).map_or(num_blocks, |window| window.min(num_blocks))
        });
        let num_blocks = num_blocks.sum::<usize>() as u64;
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
        let Some(joint) = &mut self.joint else { return };
        self.report.evicted += self.tier.give_up(joint.take_given_up()) as u64;
        let pool = manager.pool();
        let Some(num_blocks) =
            self.horizon.after_step(pool.num_blocks(), pool.num_allocated(), has_ended)
        else {
            return;
        };
        let geometry = &self.geometry;
        let leaving = pool
            .leaving(num_blocks)
            .filter(|block| geometry.is_whole(block) && joint.has(&block.key));
        let stores = self.tier.store_leaving(pool, leaving);
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

/// How many of the blocks that the pool evicts next are stored ahead: as many as the largest step
/// takes, and up to a quarter more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Horizon {
    num_allocated: u64,
    /// The most blocks that a step took, in parts of [`Self::PARTS`]; older steps count less.
    most: u64,
    /// The number of allocated blocks up to which the blocks to be taken are stored.
    stored_to: u64,
    /// The number of blocks that a load will take.
    asked: u64,
}

impl Horizon {
    /// Each step forgets this part of the largest one.
    const PARTS: u64 = 1 << 12;

    /// Asks for stores of the next `num_blocks` blocks. Returns whether not all are stored yet.
    fn ask_for(&mut self, num_blocks: u64) -> bool {
        let is_short = self.num_allocated + num_blocks > self.stored_to;
        if is_short {
            self.asked += num_blocks;
        }
        is_short
    }

    /// Ends a step. The pool has `num_blocks` blocks and has allocated `num_allocated` in all its
    /// steps. Returns how many of the next blocks are to be stored now, unless enough are stored
    /// already. Blocks of requests that ended can be taken before others.
    fn after_step(
        &mut self,
        num_blocks: usize,
        num_allocated: u64,
        has_ended: bool,
    ) -> Option<usize> {
        let taken = num_allocated - self.num_allocated;
        self.num_allocated = num_allocated;
        self.most = (taken * Self::PARTS).max(self.most - self.most / Self::PARTS);
        let most = self.most.div_ceil(Self::PARTS).min(num_blocks as u64 / 4);
        let asked = std::mem::take(&mut self.asked);
        if !has_ended && asked == 0 && num_allocated + most <= self.stored_to {
            return None;
        }
        let num_stored = most + asked.max(most / 4);
        self.stored_to = num_allocated + num_stored;
        Some(num_stored as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_step(horizon: &mut Horizon, num_allocated: u64, has_ended: bool) -> Option<usize> {
        horizon.after_step(100_000, num_allocated, has_ended)
    }

    #[test]
    fn as_many_blocks_are_stored_as_the_largest_step_takes() {
        let mut horizon = Horizon::default();
        assert_eq!(after_step(&mut horizon, 100, false), Some(125));
        assert_eq!(after_step(&mut horizon, 101, false), None);
        assert_eq!(after_step(&mut horizon, 130, false), Some(125));
        assert_eq!(after_step(&mut horizon, 330, false), Some(250));
    }

    #[test]
    fn a_load_that_takes_more_asks_for_it() {
        let mut horizon = Horizon::default();
        after_step(&mut horizon, 100, false);
        assert!(!horizon.ask_for(125));
        assert!(horizon.ask_for(5_000));
        assert_eq!(after_step(&mut horizon, 100, false), Some(5_100));
        assert!(!horizon.ask_for(5_000));
    }

    #[test]
    fn a_request_that_ends_changes_what_comes_next() {
        let mut horizon = Horizon::default();
        after_step(&mut horizon, 100, false);
        assert_eq!(after_step(&mut horizon, 100, false), None);
        assert_eq!(after_step(&mut horizon, 100, true), Some(125));
    }

    #[test]
    fn a_large_step_is_forgotten_and_never_counts_for_most_of_the_pool() {
        let mut horizon = Horizon::default();
        assert_eq!(horizon.after_step(1_000, 1_000, false), Some(312));
        (0..4_000).for_each(|_| _ = after_step(&mut horizon, 1_000, false));
        let num_stored = after_step(&mut horizon, 1_000, true);
        assert!(num_stored.is_some_and(|num| (300..600).contains(&num)), "{num_stored:?}");
    }
}
