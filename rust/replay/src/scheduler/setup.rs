//! Sets up a run: checks the settings and computes values from them.

use kvoxide_core::{Error, GroupSpec, ManagerConfig, Size};

use super::run::Run;
use super::settings::{Control, Settings};
use crate::cache::{Cache, ManagedCache, UnlimitedCache};
use crate::chunks::Chunks;
use crate::clairvoyant::BoundModel;
use crate::tokens::HashSizes;
use crate::trace::Trace;

/// A trace and valid settings.
pub struct Setup<'a> {
    trace: &'a Trace,
    settings: &'a Settings,
    control: &'a Control,
    /// The manager's configuration. Without a pool, it is the configuration of a manager for the
    /// same groups.
    config: ManagerConfig,
    /// Whether the run has a pool.
    pub has_pool: bool,
    hash_sizes: HashSizes,
    chunks: Option<Chunks>,
}

impl<'a> Setup<'a> {
    /// Creates the setup. Fails for invalid settings.
    pub fn new(
        trace: &'a Trace,
        settings: &'a Settings,
        control: &'a Control,
    ) -> Result<Self, Error> {
        if settings.follows_schedule && !trace.has_schedule() {
            let message = "the trace has no recorded schedule that can be followed";
            return Err(Error::Config(message.into()));
        }
        if settings.concurrency == 0 || settings.max_batched_tokens == 0 {
            let message = "concurrency and max_batched_tokens must be at least 1";
            return Err(Error::Config(message.into()));
        }
        if settings.has_bound && !settings.enable_caching {
            let message = "a bound needs prefix caching, which is disabled";
            return Err(Error::Config(message.into()));
        }
        if let Some(host) = &settings.host {
            host.check()?;
            check_with_host(settings)?;
        }
        let longest = trace.requests().iter().map(|r| r.prompt.len() + r.output_length).max();
        let longest = longest.unwrap_or(1).max(1);
        let has_states = settings.groups.iter().any(|group| group.kind == "mamba");
        // The steps determine which states are cached, so a run without evictions needs a pool.
        let needed = has_states.then(|| num_blocks_for_all(trace, settings));
        let num_blocks = settings.num_blocks.or(needed);
        let config = ManagerConfig {
            max_in_flight_tokens: Some(settings.max_batched_tokens),
            policy: settings.policy.clone(),
            enable_caching: settings.enable_caching,
            ..ManagerConfig::new(
                num_blocks.unwrap_or(usize::from(u16::MAX)),
                settings.groups.clone(),
                longest,
            )
        };
        let config = settings.rules.as_ref().map_or(config.clone(), |rules| rules.of(config));
        let config = settings.release.as_ref().map_or(config.clone(), |rules| rules.of(config));
        config.check_holds_a_request()?;
        let managed = ManagedCache::new(config.clone())?;
        let chunks = Chunks::of(managed.manager(), settings.max_batched_tokens);
        let tokens_per_id =
            trace.tokens_per_stored_id().map_err(|unknown| Error::Config(unknown.to_string()))?;
        let rules = settings.rules.as_ref();
        let hash_sizes = HashSizes {
            block_size: managed.hash_block_size(),
            tokens_per_id,
            num_lookahead_tokens: rules.map_or(0, |rules| rules.num_hash_lookahead_tokens),
        };
        let has_pool = num_blocks.is_some();
        Ok(Self { trace, settings, control, config, has_pool, hash_sizes, chunks })
    }

    /// Returns whether runs follow the trace's schedules.
    pub fn follows_schedule(&self) -> bool {
        self.settings.follows_schedule
    }

    /// Returns a new pool.
    pub fn pool(&self) -> Result<ManagedCache, Error> {
        let mut cache = ManagedCache::new(self.config.clone())?;
        cache.record_losses(self.trace, self.hash_sizes.tokens_per_id);
        if let Some(baseline) = self.settings.baseline {
            cache.evict_by(baseline, self.trace)?;
        }
        if let Some(host) = &self.settings.host {
            cache.add_host(host)?;
        }
        Ok(cache)
    }

    /// Returns a cache that never evicts.
    pub fn unlimited(&self) -> Result<UnlimitedCache, Error> {
        let tokens_per_id = self.hash_sizes.tokens_per_id;
        Ok(ManagedCache::new(self.config.clone())?.unlimited(self.trace, tokens_per_id))
    }

    /// Returns the model for a bound of a run in this pool, if the settings ask for a bound.
    pub fn bounded(&self, cache: &ManagedCache) -> Option<BoundModel> {
        let is_bounded = self.settings.has_bound && self.settings.num_blocks.is_some();
        is_bounded.then(|| BoundModel::of(cache.manager()))
    }

    /// Returns a new run that takes all requests from the trace, and the resets of one instance.
    pub fn run_alone<C: Cache>(&self, cache: C) -> Run<'a, C> {
        let mut run = self.run(cache);
        let resets = self.trace.resets();
        let first = resets.iter().map(|reset| reset.instance).min();
        let of_first = resets.iter().filter(|reset| Some(reset.instance) == first);
        run.reset_before(of_first.map(|reset| (reset.request, reset.preempts)));
        run
    }

    /// Returns a new run.
    pub fn run<C: Cache>(&self, cache: C) -> Run<'a, C> {
        let sizes = (self.hash_sizes, self.chunks.clone());
        Run::new(self.trace, self.settings, self.control, cache, sizes)
    }
}

/// Checks that the other settings go with CPU memory.
fn check_with_host(settings: &Settings) -> Result<(), Error> {
    let message = match settings {
        Settings { num_blocks: None, .. } => "CPU memory needs a pool that evicts",
        Settings { has_bound: true, .. } => {
            "a bound knows only the pool; compute it for one pool of both sizes"
        }
        Settings { enable_caching: false, .. } => {
            "CPU memory needs prefix caching, which is disabled"
        }
        _ => return Ok(()),
    };
    Err(Error::Config(message.into()))
}

/// Returns how many blocks a pool needs to hold the blocks of all requests at the same time,
/// including copies of states.
fn num_blocks_for_all(trace: &Trace, settings: &Settings) -> usize {
    let lengths = || trace.requests().iter().map(|r| r.prompt.len() + r.output_length);
    let blocks = |group: &GroupSpec| -> usize {
        let drafts = group.size(Size::NumSpeculativeBlocks).unwrap_or(0);
        let extra = 4 + drafts;
        lengths().map(|length| length.div_ceil(group.block_size.max(1)) + extra).sum()
    };
    let all = settings.groups.iter().map(blocks).sum::<usize>() + 1;
    all.min(kvoxide_core::MAX_BLOCKS)
}
