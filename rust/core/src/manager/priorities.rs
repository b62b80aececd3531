//! Priorities that requests set for their blocks, and the retention interval that is in force.

use super::Manager;
use super::policy::{Policy, Retention};
use crate::error::{Error, Result};
use crate::pool::{Adaptive, RetentionPriority};

impl Manager {
    /// Caches states and window blocks at another [`Policy::retention_interval`] from now on.
    pub fn set_retention_interval(&mut self, interval: Option<usize>) -> Result<()> {
        let Self { config, derived, groups, .. } = self;
        let policy = Policy { retention_interval: interval, ..config.policy.clone() };
        let is_sparse = groups.iter().any(|group| group.is_sparse);
        policy.validate(is_sparse, derived.rules.scheduler_block_size)?;
        config.policy = policy;
        derived.rules.retention_interval = interval;
        Ok(())
    }

    /// Makes a call on behalf of a request; the blocks that it uses get the request's priority, if
    /// it sets one. Every call for the request that allocates, caches or releases has to be made
    /// so.
    pub fn with_priority<R>(
        &mut self,
        priority: Option<&RetentionPriority>,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if priority.is_none() {
            return call(self);
        }
        self.set_requested_priority(priority.copied());
        let result = call(self);
        self.set_requested_priority(None);
        result
    }

    fn set_requested_priority(&mut self, priority: Option<RetentionPriority>) {
        if let Some((adaptive, _)) = self.pool.adaptive_mut() {
            adaptive.set_requested_priority(priority);
        }
    }

    /// Checks that priorities of requests have an effect.
    pub fn check_takes_priorities(&self) -> Result<()> {
        match self.config.policy.retention {
            Retention::Adaptive => Ok(()),
            Retention::Standard => Err(Error::Request(
                "the request has a retention, which only adaptive retention takes; leave it out, \
                 or make the manager with Policy(retention='adaptive')"
                    .into(),
            )),
        }
    }

    /// Whether the priority of some request has a time to live, so that [`Self::set_now`] has to be
    /// called from time to time.
    pub fn has_times_to_live(&self) -> bool {
        self.pool.adaptive().is_some_and(Adaptive::has_times_to_live)
    }

    /// Sets the time, in milliseconds of a clock that never goes backwards. Blocks whose time to
    /// live has ended get the default priority.
    pub fn set_now(&mut self, now: u64) {
        if let Some((adaptive, blocks)) = self.pool.adaptive_mut() {
            adaptive.set_now(blocks, now);
        }
    }
}
