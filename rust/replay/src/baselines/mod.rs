//! Published simple eviction policies, to compare with. Only a replay has them.
//!
//! Each orders the free cached blocks one at a time ([`EvictionPolicy`]). Which tails of windows and
//! states are cached is as with vLLM's default.

mod arc;
mod caller;
mod ghosts;
mod ordered;
mod s3_fifo;
mod session_lru;
mod t_lru;
#[cfg(test)]
mod toy_pool;

use std::sync::Arc as Shared;

use kvoxide_core::pool::EvictionPolicy;

use arc::Arc;
pub use caller::{Caller, Callers};
use s3_fifo::S3Fifo;
use session_lru::SessionLru;
use t_lru::TLru;

/// A simple eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The blocks of the session that is unused for the longest time are evicted first.
    SessionLru,
    /// Tail-Optimized LRU.
    TLru,
    /// S3-FIFO.
    S3Fifo,
    /// ARC.
    Arc,
}

impl Baseline {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::SessionLru, Self::TLru, Self::S3Fifo, Self::Arc];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionLru => "session-lru",
            Self::TLru => "t-lru",
            Self::S3Fifo => "s3-fifo",
            Self::Arc => "arc",
        }
    }

    /// Returns the policy with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns the policy for a pool of `capacity` blocks. `caller` says whose calls change the
    /// pool.
    pub fn policy(self, capacity: usize, caller: Shared<Caller>) -> Box<dyn EvictionPolicy> {
        match self {
            Self::SessionLru => Box::new(SessionLru::new(caller)),
            Self::TLru => Box::new(TLru::new(caller)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Arc => Box::new(Arc::new(capacity)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toy_pool::ToyPool;

    #[test]
    fn the_invariants_hold_under_random_prompts() {
        for baseline in Baseline::ALL {
            assert_eq!(Baseline::named(baseline.name()), Some(baseline));
            let mut pool = ToyPool::new(40, baseline);
            let mut random = 7_u64;
            let mut draw = |most: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % most
            };
            for _ in 0..400 {
                let (prompt, length) = (1 + draw(8), 1 + draw(12));
                let names: Vec<_> = (0..length).map(|block| 100 * prompt + block).collect();
                pool.serve(draw(5), &names);
            }
            let names: Vec<_> =
                (1..9).flat_map(|it| (0..12).map(move |at| 100 * it + at)).collect();
            assert!((30..=40).contains(&pool.cached(&names).len()), "{}", baseline.name());
        }
    }
}
