//! Prefix-cache statistics, as vLLM counts them.

use pyo3::prelude::*;

/// The look-ups since the last report.
#[pyclass(module = "kvoxide", get_all, set_all, eq, skip_from_py_object)]
#[derive(Clone, Default, PartialEq)]
pub(crate) struct PrefixCacheStats {
    pub(super) reset: bool,
    requests: usize,
    queries: usize,
    hits: usize,
    preempted_requests: usize,
    preempted_queries: usize,
    preempted_hits: usize,
}

impl PrefixCacheStats {
    /// Counts one look-up. Look-ups of preempted requests are counted separately.
    pub(super) fn record(&mut self, num_tokens: usize, num_hits: usize, preempted: bool) {
        let (requests, queries, hits) = match preempted {
            true => (
                &mut self.preempted_requests,
                &mut self.preempted_queries,
                &mut self.preempted_hits,
            ),
            false => (&mut self.requests, &mut self.queries, &mut self.hits),
        };
        *requests += 1;
        *queries += num_tokens;
        *hits += num_hits;
    }
}
