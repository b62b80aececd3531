//! A cache that never evicts. No policy can have more hits.

use kvoxide_core::{Error, RequestView};

use super::{Cache, Hit, Occupancy, Slots};
use crate::radix_tree::RadixTree;
use crate::trace::Trace;

/// Records every aligned prefix that was computed. Its size grows with the number of requests.
#[derive(Debug)]
pub struct UnlimitedCache {
    prefixes: RadixTree,
    /// The largest number of tokens that requests computed up to each node of the tree, or into it.
    computed: Vec<u32>,
    alignment: usize,
    num_cached: usize,
}

impl UnlimitedCache {
    /// Returns an empty cache for groups whose hits are multiples of `alignment`.
    pub fn new(trace: &Trace, tokens_per_id: usize, alignment: usize) -> Self {
        let prefixes = RadixTree::new(trace.requests(), tokens_per_id);
        Self { computed: vec![0; prefixes.len()], prefixes, alignment, num_cached: 0 }
    }
}

impl Cache for UnlimitedCache {
    fn look_up(&mut self, request: &RequestView<'_>) -> Result<Hit, Error> {
        let length = self.cached_length(request)?;
        Ok(Hit::of_pool(length, 0, length, None))
    }

    fn cached_length(&self, request: &RequestView<'_>) -> Result<usize, Error> {
        let nodes = self.prefixes.nodes_from_last(request.id as usize);
        let computed = nodes.map(|node| self.computed[node] as usize).max().unwrap_or(0);
        let most = self.prefixes.num_known(request.id as usize).min(request.num_tokens - 1);
        Ok(computed.min(most) / self.alignment * self.alignment)
    }

    /// Returns the number of computed tokens at the step that computes the next boundary.
    fn next_call(&self, num_computed_tokens: usize) -> usize {
        (num_computed_tokens + 1).next_multiple_of(self.alignment) - 1
    }

    fn allocate(
        &mut self,
        request: &RequestView<'_>,
        slots: Slots,
        hit: Option<&Hit>,
    ) -> Result<bool, Error> {
        let id = request.id as usize;
        let start = request.num_computed_tokens + hit.map_or(0, |hit| hit.length);
        // Unknown tokens are unique and are never hit.
        let end = (start + slots.num_new_tokens).min(self.prefixes.num_known(id));
        if start / self.alignment >= end / self.alignment {
            return Ok(true);
        }
        for node in self.prefixes.nodes_from_last(id) {
            let range = self.prefixes.range(node);
            let before = (self.computed[node] as usize).max(range.start);
            let after = range.end.min(end);
            if after > before {
                self.num_cached += after / self.alignment - before / self.alignment;
                self.computed[node] = after as u32;
            }
        }
        Ok(true)
    }

    fn free(&mut self, _request: u64) {}

    fn reset(&mut self) -> bool {
        self.computed.fill(0);
        self.num_cached = 0;
        true
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { cached: self.num_cached, ..Occupancy::default() }
    }
}
