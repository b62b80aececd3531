//! Allocations that the server tried without success. They are not recorded, but they release blocks
//! that left a window, and cache blocks whose load has ended.

use super::Follower;
use crate::cache::Cache;
use crate::scheduler::run::chunk;
use crate::scheduler::settings::Stopped;

impl<C: Cache> Follower<'_, C> {
    /// Releases the blocks of a running request that left a window, as a failed allocation does.
    pub(super) fn fail_to_allocate(&mut self, place: usize) {
        let request = &self.run.running[place];
        let num_in_flight = self.positions.get(&request.index).map_or(0, |it| it.num_in_flight);
        let num_settled = request.num_computed_tokens.saturating_sub(num_in_flight);
        self.run.cache.leave_windows(&request.view(), num_settled);
    }

    /// Returns whether the server found no room for a running request in this step, and preempted
    /// none for it. This ended its pass over the running requests. A preemption would not have helped,
    /// because blocks return to the pool late.
    pub(super) fn found_no_room(&self, place: usize, budget: usize) -> bool {
        let run = &self.run;
        let frees_late = run.settings.rules.as_ref().is_some_and(|it| it.frees_late);
        let has_step = |index: &usize| {
            self.positions.get(index).is_some_and(|position| position.end > position.start)
        };
        if !frees_late || run.running[place..].iter().any(|it| has_step(&it.index)) {
            return false;
        }
        let request = &run.running[place];
        let known = &run.trace.requests()[request.index];
        let start = request.num_computed_tokens;
        let num_left = known.prompt.len() + known.output_length;
        let wanted = match start < request.num_prompt_tokens {
            true => request.num_prompt_tokens - start,
            // The last token of a request is not computed.
            false => usize::from(start + 1 < num_left),
        };
        let wanted = wanted.min(budget);
        wanted > 0 && chunk(&run.chunks, &request.view(), start, wanted) > 0
    }

    /// Caches the blocks of the first request whose load has ended, if it is not admitted in this
    /// step. The server caches them before it looks for room.
    pub(super) fn settle_first_loaded(&mut self, budget: usize) -> Result<(), Stopped> {
        let is_reached = budget > 0 && self.run.running.len() < self.run.settings.concurrency;
        let Some((host, _)) = self.run.cache.host().filter(|_| is_reached) else { return Ok(()) };
        let mut loading = self.loading.iter_mut();
        match loading.find(|request| !host.has_load_of(request.index as u64)) {
            Some(request) => self.run.settle_load(request),
            None => Ok(()),
        }
    }
}
