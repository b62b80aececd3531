//! How long a load waits for the stores of the blocks that it takes.

use super::horizon::Horizon;
use crate::host::tier::HostTier;

/// How far a load has waited for the stores of the blocks that it takes from the pool. It waits until
/// they have ended, because the step that overwrites their blocks would wait for them too, with all
/// its requests. It waits once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreWait {
    /// It has not asked for stores.
    #[default]
    NotAsked,
    /// It has asked. The stores begin in this step.
    Asked,
    /// It waits until this many chunks of all stores are stored.
    Until(u64),
    /// It does not wait any more.
    Over,
}

impl StoreWait {
    /// Returns whether a load that takes `num_blocks` blocks waits in this step.
    pub fn waits(&mut self, horizon: &mut Horizon, tier: &HostTier, num_blocks: u64) -> bool {
        *self = match *self {
            Self::NotAsked if horizon.ask_for(num_blocks) => Self::Asked,
            Self::Asked => Self::Until(tier.num_stores()),
            wait => wait,
        };
        let waits = *self == Self::Asked || self.is_open(tier);
        if !waits {
            *self = Self::Over;
        }
        waits
    }

    /// Returns whether stores have not ended for which the load waits. It needs no look-up then.
    pub fn is_open(&self, tier: &HostTier) -> bool {
        matches!(*self, Self::Until(num) if tier.num_stores_ended() < num)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockHash, CacheKey};
    use crate::host::{HostPolicy, HostRequest, HostTierConfig};

    fn key(n: u64) -> CacheKey {
        CacheKey { hash: BlockHash([n, 0, 0, 0]), group: 0 }
    }

    fn begin_store(tier: &mut HostTier, n: u64) {
        let plan = tier
            .prepare_store_of_distinct(&mut HostRequest::default(), [(key(n), None)].into_iter());
        assert!(plan.expect("a call").is_some());
    }

    #[test]
    fn a_load_waits_for_the_stores_that_begin_in_its_step() {
        let mut tier = HostTier::new(&HostTierConfig::new(8, HostPolicy::Lru)).expect("a tier");
        let (mut horizon, mut wait) = (Horizon::default(), StoreWait::default());
        begin_store(&mut tier, 1);
        assert!(wait.waits(&mut horizon, &tier, 5));
        assert!(!wait.is_open(&tier));
        begin_store(&mut tier, 2);
        horizon.after_step(100, 0, (true, false));
        assert!(wait.waits(&mut horizon, &tier, 5));
        begin_store(&mut tier, 3);
        tier.complete_store([key(1)].into_iter(), true);
        assert!(wait.is_open(&tier) && wait.waits(&mut horizon, &tier, 5));
        tier.complete_store([key(2)].into_iter(), false);
        assert!(!wait.is_open(&tier) && !wait.waits(&mut horizon, &tier, 50));
        assert!(!wait.waits(&mut horizon, &tier, 500));
    }

    #[test]
    fn a_load_whose_blocks_are_stored_does_not_wait() {
        let mut tier = HostTier::new(&HostTierConfig::new(8, HostPolicy::Lru)).expect("a tier");
        let (mut horizon, mut wait) = (Horizon::default(), StoreWait::default());
        horizon.ask_for(5);
        horizon.after_step(100, 0, (true, false));
        begin_store(&mut tier, 1);
        assert!(!wait.waits(&mut horizon, &tier, 5));
        assert!(!wait.waits(&mut horizon, &tier, 500));
    }

    #[test]
    fn a_reset_ends_the_wait() {
        let mut tier = HostTier::new(&HostTierConfig::new(8, HostPolicy::Lru)).expect("a tier");
        let (mut horizon, mut wait) = (Horizon::default(), StoreWait::default());
        assert!(wait.waits(&mut horizon, &tier, 5));
        begin_store(&mut tier, 1);
        assert!(wait.waits(&mut horizon, &tier, 5));
        tier.reset();
        assert!(!wait.waits(&mut horizon, &tier, 5));
    }
}
