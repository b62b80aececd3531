//! Calls on behalf of a request that asks for its blocks to be kept longer, or less long, than
//! those of others.

use super::{Manager, Retention};
use crate::error::{Error, Result};
use crate::pool::Claim;

impl Manager {
    /// Makes a call on behalf of a request, whose blocks get the priority that it claims; as the
    /// call itself without a claim. Every call that uses the request's blocks has to be made so:
    /// those that allocate, cache or give back.
    pub fn claiming<R>(&mut self, claim: Option<&Claim>, call: impl FnOnce(&mut Self) -> R) -> R {
        if let Some(claim) = claim {
            self.pool.start_claiming(*claim);
        }
        let result = call(self);
        if claim.is_some() {
            self.pool.end_claiming();
        }
        result
    }

    /// Checks that a claim has an effect.
    pub fn check_takes_claims(&self) -> Result<()> {
        match self.config.policy.retention {
            Retention::Adaptive => Ok(()),
            Retention::Standard => Err(Error::Request(
                "the request has a retention, which only adaptive retention takes; leave it out, \
                 or make the manager with Policy(retention='adaptive')"
                    .into(),
            )),
        }
    }

    /// Whether [`Self::set_now`] has to be called from time to time: the claim of some request ends
    /// by itself.
    pub fn keeps_time(&self) -> bool {
        self.pool.keeps_time()
    }

    /// The time in milliseconds, of a clock that does not go backwards. What was claimed until then
    /// counts as of the default priority from now on.
    pub fn set_now(&mut self, now: u64) {
        self.pool.set_now(now);
    }
}
