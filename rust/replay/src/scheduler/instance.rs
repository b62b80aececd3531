//! A run as one of several instances under a clock: its arrivals, and its load as a router sees it.

use kvoxide_core::RequestView;

use super::run::Run;
use super::settings::Stopped;
use crate::active_request::{ActiveRequest, Arrival};
use crate::cache::{Cache, Occupancy};
use crate::clock::{StepWork, Times};
use crate::router::Load;
use crate::tokens::HashChain;

impl<C: Cache> Run<'_, C> {
    /// Starts to record times.
    pub fn keep_times(&mut self) {
        self.times = Some(Times::new(self.trace.requests().len()));
    }

    pub fn times_mut(&mut self) -> Option<&mut Times> {
        self.times.as_mut()
    }

    /// Serves only arrivals from now on and takes no requests from the trace.
    pub fn wait_for_arrivals(&mut self) {
        self.next = self.trace.requests().len();
    }

    pub fn push_arrival(&mut self, arrival: Arrival) {
        self.arrived.push_back(arrival);
    }

    pub fn has_work(&self) -> bool {
        let is_idle = self.running.is_empty()
            && self.waiting.is_empty()
            && self.arrived.is_empty()
            && self.loaded.is_empty();
        !is_idle || self.next < self.trace.requests().len()
    }

    /// Returns the work of the current step.
    pub fn work(&self) -> &StepWork {
        &self.work
    }

    pub fn occupancy(&self) -> Occupancy {
        self.cache.occupancy()
    }

    pub fn num_finished(&self) -> usize {
        self.num_finished
    }

    pub fn hashes(&self, request: usize) -> HashChain {
        let prompt = &self.trace.requests()[request].prompt;
        HashChain::new(self.hash_sizes, self.samples.as_ref(), prompt, request)
    }

    /// Returns the number of tokens that a request would hit now.
    pub fn hit(&self, request: usize, chain: &HashChain) -> Result<usize, Stopped> {
        if !self.settings.enable_caching {
            return Ok(0);
        }
        let num_tokens = self.trace.requests()[request].prompt.len();
        let view = RequestView::new(request as u64, chain.window(), num_tokens);
        Ok(self.cache.cached_length(&view)?)
    }

    pub fn load(&self) -> Load {
        let requests =
            || self.running.iter().chain(&self.waiting).chain(&self.loading).chain(&self.loaded);
        let left = |request: &ActiveRequest| {
            let known = request.num_computed_tokens.max(request.expected_hit);
            request.num_prompt_tokens.saturating_sub(known)
        };
        let prompt = |arrival: &Arrival| self.trace.requests()[arrival.request].prompt.len();
        let arrived = || self.arrived.iter();
        let occupancy = self.cache.occupancy();
        Load {
            waiting: self.waiting.len()
                + self.arrived.len()
                + self.loading.len()
                + self.loaded.len(),
            running: self.running.len(),
            prefill_tokens: requests().map(left).sum::<usize>()
                + arrived().map(|arrival| prompt(arrival) - arrival.expected_hit).sum::<usize>(),
            active_tokens: requests().map(|request| request.num_tokens).sum::<usize>()
                + arrived().map(prompt).sum::<usize>(),
            usage: occupancy.used as f64 / occupancy.capacity.max(1) as f64,
        }
    }
}
