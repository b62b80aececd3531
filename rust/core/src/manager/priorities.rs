//! Handles the priorities that requests set for their blocks, and changes the retention interval.

use std::sync::Arc;

use super::Manager;
use crate::error::Result;
use crate::pool::{Adaptive, RequestRetention};
use crate::retention::Policy;

impl Manager {
    /// Changes [`Policy::retention_interval`], at which states and window blocks are cached from
    /// now on.
    pub fn set_retention_interval(&mut self, interval: Option<usize>) -> Result<()> {
        let policy = Policy { retention_interval: interval, ..self.config.policy.clone() };
        self.retention.set_policy(policy.clone())?;
        self.config.policy = policy;
        if let Some(follower) = &mut self.follower {
            follower.set_retention_interval(interval);
        }
        Ok(())
    }

    /// Makes a call for a request that asks for a retention, if it does. Every call for the request
    /// that allocates, caches or releases must be made with this method.
    pub fn with_retention<R>(
        &mut self,
        requested: Option<&Arc<RequestRetention>>,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let Some(requested) = requested else { return call(self) };
        self.retention.set_requested(&mut self.pool, Some(Arc::clone(requested)));
        let result = call(self);
        self.retention.set_requested(&mut self.pool, None);
        result
    }

    /// Checks that requests' priorities have an effect.
    pub fn check_takes_priorities(&self) -> Result<()> {
        self.retention.check_takes_priorities()
    }

    /// Returns how many more free blocks with a priority above the default the protected share can
    /// hold.
    pub fn num_spare_protected(&self) -> usize {
        self.pool.adaptive().map_or(0, Adaptive::num_spare_high_priority)
    }

    /// Returns whether some request's priority has a time to live. Then [`Self::set_now`] must be
    /// called from time to time.
    pub fn has_times_to_live(&self) -> bool {
        self.retention.has_times_to_live(&self.pool)
    }

    /// Sets the time, in milliseconds of a clock that never goes backwards. Blocks whose time to
    /// live has ended get the default priority.
    pub fn set_now(&mut self, now: u64) {
        self.retention.set_now(&mut self.pool, now);
        if let Some(follower) = &mut self.follower {
            follower.set_now(now);
        }
    }
}
