//! A reset of CPU memory.

use std::collections::HashSet;

use super::HostConnector;

impl HostConnector {
    /// Empties the tier. Stores in progress are forgotten. Loads in progress end as before.
    pub fn reset(&mut self) {
        self.tier.reset();
        self.stores.forget();
        self.loads.forget_keys();
        self.horizon.forget_stores();
        self.was_reset = true;
        let ended: HashSet<_> = self.ended.iter().map(|ended| ended.id).collect();
        let loads = &self.loads;
        self.requests.retain(|&request, state| {
            state.next.fill(0);
            state.num_jobs = usize::from(loads.has_job_of(request));
            !(state.has_ended || ended.contains(&request))
        });
    }
}
