//! A run before it starts: settings that were checked, and what follows from them.

use kvoxide_core::{Error, GroupSpec, ManagerConfig, Size};

use super::run::Run;
use super::settings::{Control, Settings};
use crate::bound::Groups;
use crate::cache::{Cache, ManagedCache, UnlimitedCache};
use crate::chunks::Chunks;
use crate::tokens::HashSizes;
use crate::trace::Trace;

/// A trace and settings that can work.
pub struct Plan<'a> {
    trace: &'a Trace,
    settings: &'a Settings,
    control: &'a Control,
    /// Of the manager, or of one for the same groups where there is no pool.
    config: ManagerConfig,
    /// Whether requests play in a manager's pool.
    pub has_pool: bool,
    hash_sizes: HashSizes,
    chunks: Option<Chunks>,
}

impl<'a> Plan<'a> {
    /// Checks settings, those of a run without a pool too.
    pub fn new(
        trace: &'a Trace,
        settings: &'a Settings,
        control: &'a Control,
    ) -> Result<Self, Error> {
        if settings.concurrency == 0 || settings.max_batched_tokens == 0 {
            let message = "concurrency and max_batched_tokens must be at least 1";
            return Err(Error::Config(message.into()));
        }
        let longest = trace.requests().iter().map(|r| r.prompt.len() + r.output_length).max();
        let longest = longest.unwrap_or(1).max(1);
        let has_states = settings.groups.iter().any(|group| group.kind == "mamba");
        // What a state leaves of a prefix depends on the steps, so that it has to be played.
        let room_for_all = has_states.then(|| num_blocks_for_all(trace, settings));
        let num_blocks = settings.num_blocks.or(room_for_all);
        let config = ManagerConfig {
            max_in_flight_tokens: Some(settings.max_batched_tokens),
            policy: settings.policy.clone(),
            ..ManagerConfig::new(
                num_blocks.unwrap_or(usize::from(u16::MAX)),
                settings.groups.clone(),
                longest,
            )
        };
        config.check_holds_a_request()?;
        let managed = ManagedCache::new(config.clone())?;
        let chunks = Chunks::of(managed.manager(), settings.max_batched_tokens);
        let tokens_per_id =
            trace.tokens_per_id().map_err(|unknown| Error::Config(unknown.to_string()))?;
        let hash_sizes = HashSizes { block_size: managed.hash_block_size(), tokens_per_id };
        let has_pool = num_blocks.is_some();
        Ok(Self { trace, settings, control, config, has_pool, hash_sizes, chunks })
    }

    /// A pool of its own for a run.
    pub fn pool(&self) -> Result<ManagedCache, Error> {
        let mut cache = ManagedCache::new(self.config.clone())?;
        cache.explain(self.trace, self.hash_sizes.tokens_per_id);
        Ok(cache)
    }

    /// What a run has instead of a pool.
    pub fn unlimited(&self) -> Result<UnlimitedCache, Error> {
        let tokens_per_id = self.hash_sizes.tokens_per_id;
        Ok(ManagedCache::new(self.config.clone())?.unlimited(self.trace, tokens_per_id))
    }

    /// What a bound for a run in this pool is found from, if it is asked for.
    pub fn bounded(&self, cache: &ManagedCache) -> Option<Groups> {
        let is_bounded = self.settings.has_bound && self.settings.num_blocks.is_some();
        is_bounded.then(|| Groups::of(cache.manager()))
    }

    /// A run with a cache of its own.
    pub fn run<C: Cache>(&self, cache: C) -> Run<'a, C> {
        let sizes = (self.hash_sizes, self.chunks.clone());
        Run::new(self.trace, self.settings, self.control, cache, sizes)
    }
}

/// A pool in which every request's blocks have a place of their own, the blocks included that
/// states are copied to.
fn num_blocks_for_all(trace: &Trace, settings: &Settings) -> usize {
    let lengths = || trace.requests().iter().map(|r| r.prompt.len() + r.output_length);
    let blocks = |group: &GroupSpec| -> usize {
        let drafts = group.size(Size::NumSpeculativeBlocks).unwrap_or(0);
        let beside = 4 + drafts;
        lengths().map(|length| length.div_ceil(group.block_size.max(1)) + beside).sum()
    };
    let all = settings.groups.iter().map(blocks).sum::<usize>() + 1;
    all.min(kvoxide_core::MAX_BLOCKS)
}
