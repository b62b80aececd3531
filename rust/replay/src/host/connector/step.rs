//! The stores of a step.

use std::collections::HashSet;

use kvoxide_core::host::{ChunkKeys, ChunkLookup, HostGroup};
use kvoxide_core::{Error, HashSource as _, Manager, NULL_BLOCK, Offload, RequestId, RequestView};

use super::HostConnector;
use crate::clock::Nanoseconds;
use crate::host::geometry::GroupMask;
use crate::host::jobs::Job;
use crate::host::offers::{Offer, Offered};
use crate::host::request::{OfferedAt, Progress, RequestState};

impl HostConnector {
    /// Makes the stores of a step: states that the manager hands over, then the offers of
    /// `scheduled` requests with their new tokens, then the offers of requests that have ended. Under
    /// `adaptive`, makes the stores of [`Self::store_leaving`] instead.
    /// Returns the time for which the step waits, because it needs blocks that are being stored.
    pub fn step_scheduled<'a>(
        &mut self,
        manager: &mut Manager,
        scheduled: impl Iterator<Item = (RequestView<'a>, usize)> + Clone,
    ) -> Result<Nanoseconds, Error> {
        let fence = self.fence();
        if self.decides_over_both() {
            let has_tokens = scheduled.clone().next().is_some();
            return Ok(fence.max(self.store_leaving(manager, has_tokens)));
        }
        self.forget_taken_blocks();
        let offloads = manager.take_offloads();
        if !offloads.is_empty() {
            for (view, num_new) in scheduled.clone() {
                let own = offloads.iter().filter(|offload| offload.request == view.id);
                own.into_iter().try_for_each(|offload| {
                    self.store_state(&Progress::of(&view, num_new), offload)
                })?;
            }
        }
        for (view, num_new) in scheduled {
            self.offer(view.id, &Progress::of(&view, num_new))?;
        }
        for ended in std::mem::take(&mut self.ended) {
            self.offer(ended.id, &ended.progress())?;
            self.finish(ended.id);
        }
        self.allocated.clear();
        self.preempted.clear();
        self.report.skipped += self.tier.take_num_skipped() as u64;
        self.tier.take_store_sizes();
        Ok(fence)
    }

    /// Returns how long the step waits for stores whose blocks it needs.
    fn fence(&mut self) -> Nanoseconds {
        if self.stores.next_end().is_none() {
            return 0;
        }
        let mut ended: HashSet<_> = self.ended.iter().map(|ended| ended.id).collect();
        let states = self.requests.iter().filter(|(_, state)| state.has_ended);
        ended.extend(states.map(|(&request, _)| request));
        let end = self.stores.last_end_of(&self.allocated, &self.preempted, &ended);
        let fence = end.map_or(0, |end| end.saturating_sub(self.now));
        self.report.fence_time += fence;
        fence
    }

    /// Forgets blocks that left windows and that requests got in this step.
    fn forget_taken_blocks(&mut self) {
        let groups = self.geometry.groups();
        let prompt_only = self.settings.prompt_only;
        for state in self.requests.values_mut() {
            let windows = groups.iter().enumerate();
            let windows = windows.filter(|(_, group)| group.window_chunks.is_some());
            for (at, group) in windows.filter(|_| !self.allocated.is_empty()) {
                let most = match prompt_only {
                    true => state.num_prompt_tokens / group.tokens_per_chunk,
                    false => usize::MAX,
                };
                state.forget_taken_blocks(at, most, &self.allocated);
            }
            state.end_step();
        }
    }

    /// Stores a state that the manager hands over.
    fn store_state(&mut self, progress: &Progress<'_>, offload: &Offload) -> Result<(), Error> {
        let is_group = |group: &HostGroup| group.group_idx == usize::from(offload.group);
        let Some(at) = self.geometry.groups().iter().position(is_group) else { return Ok(()) };
        let size = self.geometry.groups()[at].tokens_per_chunk;
        let most = match self.settings.prompt_only {
            true => progress.num_tokens.min(progress.num_prompt_tokens),
            false => progress.num_tokens,
        };
        let is_stored = offload.block != NULL_BLOCK
            && offload.num_tokens <= most
            && offload.num_tokens.is_multiple_of(size)
            && offload.num_tokens > 0;
        if !is_stored || self.geometry.masks[at] != GroupMask::HandedOver {
            return Ok(());
        }
        let keys = self.geometry.keys(at, progress);
        let place = offload.num_tokens / size - 1;
        if place >= keys.len() {
            return Ok(());
        }
        let (position, block) = (offload.num_tokens as u32, offload.block);
        let chunk = Offered { key: keys.at(place), position, group: at, block };
        self.store(offload.request, &[chunk]).map(drop)
    }

    /// Stores what a request offers.
    fn offer(&mut self, request: RequestId, progress: &Progress<'_>) -> Result<(), Error> {
        let prompt_only = self.settings.prompt_only;
        let Some(state) = self.requests.get(&request) else { return Ok(()) };
        if !self.geometry.may_offer(state, progress, prompt_only) {
            return Ok(());
        }
        let offered = OfferedAt {
            num_changes: self.num_changes,
            num_tokens: self.geometry.num_offerable(progress, progress.num_computed, prompt_only),
            num_hashes: progress.hashes.len(),
            has_ended: progress.has_ended,
        };
        // The same offer has the same result, unless offers are counted.
        if state.refused == Some(offered) && self.settings.store_threshold < 2 {
            self.report.refused += 1;
            return Ok(());
        }
        let Offer { chunks, ends } = self.geometry.offer(state, progress, prompt_only);
        let has_room = chunks.is_empty() || self.store(request, &chunks)?;
        let state = self.state(request);
        match has_room {
            true => {
                let next = state.next.iter_mut().zip(ends);
                next.for_each(|(next, end)| *next = end.max(*next));
            }
            // An offer without room is repeated in the next step.
            false => state.refused = Some(offered),
        }
        Ok(())
    }

    /// Stores chunks that a request offers. Returns whether there was room.
    fn store(&mut self, request: RequestId, chunks: &[Offered]) -> Result<bool, Error> {
        let num_groups = self.geometry.groups().len();
        let state = self.requests.entry(request).or_insert_with(|| RequestState::new(num_groups));
        let keys = chunks.iter().map(|chunk| (chunk.key, Some(chunk.position)));
        let plan = self.tier.prepare_store_of_distinct(&mut state.host, keys)?;
        let Some(plan) = plan else {
            self.report.refused += 1;
            return Ok(false);
        };
        self.report.evicted += plan.evicted.len() as u64;
        if plan.stored.is_empty() {
            return Ok(true);
        }
        self.num_changes += 1;
        let groups = self.geometry.groups();
        let is_tail = |chunk: &Offered| groups[chunk.group].window_chunks.is_some();
        let stored: Vec<_> = plan.stored.iter().map(|&at| chunks[at]).collect();
        self.report.stored_tails += stored.iter().filter(|chunk| is_tail(chunk)).count() as u64;
        state.num_jobs += 1;
        let keys = stored.iter().map(|chunk| chunk.key).collect();
        let blocks = stored.iter().map(|chunk| chunk.block).collect();
        let is_fenced = stored.iter().any(is_tail);
        let job = Job::new(request, keys, self.num_steps).of_blocks(blocks, is_fenced);
        self.stores.push(job);
        Ok(true)
    }

    /// Tells the tier that a request has ended.
    pub(super) fn finish(&mut self, request: RequestId) {
        let Some(state) = self.requests.get_mut(&request) else { return };
        state.has_ended = true;
        self.tier.finish_request(&mut state.host, []);
        if state.num_jobs == 0 {
            self.requests.remove(&request);
        }
    }
}
