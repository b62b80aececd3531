//! Admits waiting requests in a step.

use std::collections::VecDeque;

use kvoxide_core::RequestView;

use super::run::{Run, chunk};
use super::settings::Stopped;
use super::step_clock::StepClock;
use crate::active_request::{ActiveRequest, Arrival};
use crate::cache::{Cache, Hit, Slots};
use crate::losses::Losses;

impl<C: Cache> Run<'_, C> {
    /// Admits waiting requests.
    pub(super) fn admit_waiting(
        &mut self,
        budget: &mut usize,
        step: &mut StepClock,
    ) -> Result<(), Stopped> {
        let mut later = VecDeque::new();
        let result = self.admit_ready(budget, step, &mut later);
        while let Some(request) = later.pop_back() {
            self.waiting.push_front(request);
        }
        result
    }

    /// Admits waiting requests in order. A request that has to wait for transfers goes to `later`.
    fn admit_ready(
        &mut self,
        budget: &mut usize,
        step: &mut StepClock,
        later: &mut VecDeque<ActiveRequest>,
    ) -> Result<(), Stopped> {
        while *budget > 0 && self.running.len() < self.settings.concurrency {
            if let Some(request) = self.loaded.pop_front() {
                if !self.resume_loaded(request, budget, step)? {
                    break;
                }
                continue;
            }
            let Some(mut request) = self.next_waiting(later.len()) else { break };
            let view = request.view();
            let (hit, num_new, fits) = step.time(&mut self.report.schedule, || {
                let hit = match request.skips_reading {
                    true => self.cache.without_look_up(&view),
                    false => self.cache.look_up(&view)?,
                };
                if hit.is_later || hit.num_loaded > 0 {
                    return Ok((hit, 0, false));
                }
                let view =
                    RequestView { shared_prefix_boundary: hit.shared_prefix_boundary, ..view };
                let most = (view.num_tokens - hit.length).min(*budget);
                let num_new = chunk(&self.chunks, &view, hit.length, most);
                let fits =
                    num_new > 0 && self.cache.allocate(&view, Slots::of(num_new), Some(&hit))?;
                Ok((hit, num_new, fits))
            })?;
            if hit.is_later {
                later.push_back(request);
                continue;
            }
            if hit.num_loaded > 0 {
                match self.start_load(request, &hit, Slots::of(0), step)? {
                    None => continue,
                    Some(request) => {
                        self.waiting.push_front(request);
                        break;
                    }
                }
            }
            match fits {
                true => {
                    *budget -= num_new;
                    self.admit(request, &hit, num_new);
                }
                false if self.running.is_empty() && !self.has_waiting_blocks() => {
                    self.reject(request.index)
                }
                false => {
                    request.shared_prefix_boundary = hit.shared_prefix_boundary;
                    self.waiting.push_front(request);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the next request: first preempted requests, then arrived ones, then the next one of
    /// the trace. It is hashed here unless the router hashed it. `num_later` requests wait for
    /// transfers.
    fn next_waiting(&mut self, num_later: usize) -> Option<ActiveRequest> {
        self.waiting.pop_front().or_else(|| {
            let num_active = self.running.len() + self.loading.len() + num_later;
            if num_active >= self.settings.concurrency && self.arrived.is_empty() {
                return None;
            }
            let next = self.arrived.front().map_or(self.next, |arrival| arrival.request);
            if self.resets.contains_key(&next) {
                return None;
            }
            let arrival = self.arrived.pop_front().or_else(|| self.next_of_trace())?;
            let request = &self.trace.requests()[arrival.request];
            self.cache.arrives(arrival.request as u64, request.arrival, request.retention());
            let chain = arrival.chain;
            let chain = chain.unwrap_or_else(|| self.hashes(arrival.request));
            let expected_hit = arrival.expected_hit;
            Some(ActiveRequest {
                expected_hit,
                ..ActiveRequest::new(arrival.request, request, chain)
                    .with_caching(self.settings.enable_caching)
            })
        })
    }

    fn next_of_trace(&mut self) -> Option<Arrival> {
        let request = self.next;
        (request < self.trace.requests().len()).then(|| {
            self.next += 1;
            Arrival { request, ..Arrival::default() }
        })
    }

    pub(super) fn admit(&mut self, mut request: ActiveRequest, hit: &Hit, num_new: usize) {
        self.note_admission(&mut request, hit);
        request.is_waiting = false;
        self.work.add(&request.view(), hit.length, num_new);
        self.record(|schedule| schedule.admit(request.index, hit.length + num_new));
        self.cache.note_computed(&request.view(), hit.length, hit.length + num_new);
        self.running.push(request);
        self.scheduled.push(num_new);
    }

    /// Notes the hit of a request that got its first blocks.
    pub(super) fn note_admission(&mut self, request: &mut ActiveRequest, hit: &Hit) {
        request.shared_prefix_boundary = hit.shared_prefix_boundary;
        request.num_computed_tokens = hit.length;
        let report = &mut self.report.requests[request.index];
        // A preempted request hits its own blocks, so only the first admission counts.
        if report.hit_tokens.is_none() {
            report.hit_tokens = Some(hit.length);
            report.loaded_tokens = hit.num_loaded;
            if let Some((host, _)) = self.cache.host() {
                host.count_without_tail(hit.without_tail);
            }
            let num_before = self.num_answer_tokens;
            let num_answer_tokens = self.cache.hit_answer_tokens();
            report.hit_answer_tokens = num_answer_tokens.map(|num| (num - num_before) as usize);
            self.num_answer_tokens = num_answer_tokens.unwrap_or(0);
            report.skips_cache = request.skips_reading;
            report.shared = self.cache.shared(&request.view());
            report.losses = match request.skips_reading && self.settings.enable_caching {
                true => Losses { never_cached: report.shared.last_end, ..Losses::default() },
                false => self.cache.losses(&request.view(), hit),
            };
        }
    }
}
