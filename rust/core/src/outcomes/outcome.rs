//! The outcomes of prompt tokens.

/// The reason why a prompt token was hit or not when its request was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was hit in a block without generated tokens.
    HitGpu,
    /// A connector brings it.
    HitHost,
    /// It was hit in a block that holds generated tokens of an earlier request.
    HitAnswer,
    /// It was not computed before, as far as the manager remembers.
    FirstTime,
    /// It was computed before, but no hit of this prompt can end after it: hits end at block
    /// boundaries that all groups share, and EAGLE drops a block.
    BelowBlock,
    /// Its full attention was cached and evicted.
    EvictedFull,
    /// Its full attention is cached. The window or state of a hit was cached and evicted.
    EvictedTail,
    /// It was computed before. No window or state of a hit after it was ever cached.
    NeverCached,
    /// It was computed under another salt or adapter.
    OtherSaltOrAdapter,
    /// It had to be computed: caching is off, the request does not read the cache, it is the last
    /// token, or the caller took a shorter hit than the cache has.
    NotCacheable,
}

impl Outcome {
    /// All outcomes, in the order of their counts.
    pub const ALL: [Self; 10] = [
        Self::HitGpu,
        Self::HitHost,
        Self::HitAnswer,
        Self::FirstTime,
        Self::BelowBlock,
        Self::EvictedFull,
        Self::EvictedTail,
        Self::NeverCached,
        Self::OtherSaltOrAdapter,
        Self::NotCacheable,
    ];

    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::HitGpu => "hit_gpu",
            Self::HitHost => "hit_host",
            Self::HitAnswer => "hit_answer",
            Self::FirstTime => "first_time",
            Self::BelowBlock => "below_block",
            Self::EvictedFull => "evicted_full",
            Self::EvictedTail => "evicted_tail",
            Self::NeverCached => "never_cached",
            Self::OtherSaltOrAdapter => "other_salt_or_adapter",
            Self::NotCacheable => "not_cacheable",
        }
    }
}

/// Numbers of prompt tokens, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptOutcomes {
    counts: [u64; Outcome::ALL.len()],
}

impl PromptOutcomes {
    /// Returns the number of tokens with an outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize]
    }

    /// Returns all numbers, in the order of [`Outcome::ALL`].
    pub fn counts(&self) -> &[u64; Outcome::ALL.len()] {
        &self.counts
    }

    /// Returns the number of all tokens.
    pub fn num_tokens(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn add(&mut self, outcome: Outcome, num_tokens: usize) {
        self.counts[outcome as usize] += num_tokens as u64;
    }

    /// Moves tokens from one outcome to another, which must have them.
    pub(super) fn shift(&mut self, from: Outcome, to: Outcome, num_tokens: usize) {
        self.counts[from as usize] -= num_tokens as u64;
        self.counts[to as usize] += num_tokens as u64;
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
    }
}
