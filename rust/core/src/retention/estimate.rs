//! Reports what the shadow caches say about the traffic: the current scoring function, and the hits
//! that vLLM's own policy would have had.

use super::ActivePolicy;
use super::shape::{blocks_per_token, tails_and_others};
use crate::pool::{BlockPool, SampleCounts, ScoringFunction};

/// The number of prompt tokens that vLLM's own policy would have hit. It is an estimate. Without
/// adaptive retention, or if no group needs the whole prefix, it is the number of tokens that were
/// hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DefaultHits {
    /// The number of prompt tokens.
    pub tokens: u64,
    /// Whether vLLM could have hit less because states are missing. The sample counts only full
    /// blocks.
    pub is_upper_limit: bool,
}

/// The counts of adaptive retention's shadow caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowReport {
    /// The current scoring function.
    pub in_force: ScoringFunction,
    /// The counts of the shadow caches.
    pub counts: SampleCounts,
}

impl ActivePolicy {
    /// Returns the counts of the shadow caches; `None` without adaptive retention.
    pub(crate) fn shadow_report(&self, pool: &BlockPool) -> Option<ShadowReport> {
        let shadow = pool.adaptive()?.shadow();
        Some(ShadowReport { in_force: shadow.in_force(), counts: shadow.counts })
    }

    /// Returns how often blocks with generated tokens were hit; 0 without adaptive retention.
    pub(crate) fn num_answer_block_hits(&self, pool: &BlockPool) -> u64 {
        pool.adaptive().map_or(0, |adaptive| adaptive.num_answer_block_hits)
    }

    /// Estimates how many of `prompt_tokens` vLLM's own policy would have hit. It starts from the
    /// tokens that were hit. It adds the difference between the sampled blocks that vLLM's policy
    /// and this policy kept, scaled up to the pool.
    pub(crate) fn default_hits(
        &self,
        pool: &BlockPool,
        prompt_tokens: u64,
        hit_tokens: u64,
    ) -> DefaultHits {
        let is_upper_limit = self.shapes.iter().any(|shape| shape.is_state);
        let blocks_per_token = blocks_per_token(tails_and_others(&self.shapes).1.into_iter());
        let Some(adaptive) = pool.adaptive().filter(|_| blocks_per_token > 0.0) else {
            return DefaultHits { tokens: hit_tokens, is_upper_limit };
        };
        let sample = adaptive.shadow().counts;
        let more = sample.kept_by_default as f64 - sample.hit as f64;
        let more_tokens = more * adaptive.shadow().blocks_per_sample() as f64 / blocks_per_token;
        let tokens = (hit_tokens as f64 + more_tokens).clamp(0.0, prompt_tokens as f64) as u64;
        DefaultHits { tokens, is_upper_limit }
    }
}
