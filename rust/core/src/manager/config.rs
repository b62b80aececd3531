//! How a manager is set up, and what follows from that before it serves its first request.

use crate::error::{Error, Result};
use crate::group::{AttentionKind, attention_kind};
use crate::hit_search::LookupGroup;
use crate::policy::Policy;
use crate::spec::GroupSpec;

/// What a manager is made of. Lengths in tokens.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// Blocks of the pool, the null block included.
    pub num_blocks: usize,
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// The longest sequence.
    pub max_model_len: usize,
    /// Hits of hybrid models are multiples of it; the least common multiple of the block sizes if
    /// not given.
    pub scheduler_block_size: Option<usize>,
    /// Tokens per block hash; the greatest common divisor of the block sizes if not given.
    pub hash_block_size: Option<usize>,
    /// Tokens scheduled but not settled; `max_model_len` if not given.
    pub max_in_flight_tokens: Option<usize>,
    /// Whether blocks are cached at all.
    pub enable_caching: bool,
    /// Whether hits drop their last block: in the groups marked for it, or in all if none is.
    pub use_eagle: bool,
    /// Prompt tokens that a multi-module MTP drafter reads ahead of a chunk.
    pub num_prefill_lookahead: usize,
    /// Whether the manager keeps events.
    pub enable_events: bool,
    /// Share of the pool kept free when a waiting request is admitted beside running ones.
    pub watermark: f64,
    /// Whether newly allocated blocks are listed for zeroing.
    pub needs_zeroing: bool,
    /// Whether retention with EAGLE also keeps the tail one block below a shared-prefix junction
    /// (vLLM from 0.33.0 on).
    pub keep_tail_below_junction: bool,
    /// Whether the pool keeps what a metrics collector asks for; see [`crate::pool::Observation`].
    pub observe: bool,
    /// Retention and recycling.
    pub policy: Policy,
}

impl ManagerConfig {
    /// A pool of `num_blocks` for `groups`, with everything else at its default.
    pub fn new(num_blocks: usize, groups: Vec<GroupSpec>, max_model_len: usize) -> Self {
        Self {
            num_blocks,
            groups,
            max_model_len,
            scheduler_block_size: None,
            hash_block_size: None,
            max_in_flight_tokens: None,
            enable_caching: true,
            use_eagle: false,
            num_prefill_lookahead: 0,
            enable_events: false,
            watermark: 0.0,
            needs_zeroing: false,
            keep_tail_below_junction: true,
            observe: false,
            policy: Policy::default(),
        }
    }

    /// Checks that the pool holds the null block and the shortest request: a block in each group.
    pub fn check_holds_a_request(&self) -> Result<()> {
        let least = self.groups.len() + 1;
        if self.num_blocks >= least {
            return Ok(());
        }
        Err(Error::Config(format!(
            "num_blocks is {}; the null block and one block for each of the {} KV cache groups \
             need at least {least}",
            self.num_blocks,
            self.groups.len()
        )))
    }
}

/// The checked configuration and what follows from it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub kinds: Vec<Box<dyn AttentionKind>>,
    pub lookup_groups: Vec<LookupGroup>,
    pub scheduler_block_size: usize,
    pub hash_block_size: usize,
    /// Hits are multiples of this many tokens.
    pub hit_alignment: usize,
    /// Whether the hits of each group drop their last block.
    pub drops_eagle_block: Vec<bool>,
    pub any_group_drops: bool,
    /// Tokens at the end of a computed prefix that a multi-module MTP drafter may compute again.
    pub num_reprefillable_tokens: usize,
    pub watermark_blocks: usize,
}

impl Plan {
    pub fn new(config: &ManagerConfig) -> Result<Self> {
        let kinds = config.groups.iter().map(attention_kind).collect::<Result<Vec<_>>>()?;
        check_sizes(config)?;
        let scheduler_block_size = scheduler_block_size(config)?;
        let hash_block_size = hash_block_size(config, scheduler_block_size)?;
        let has_window = kinds.iter().any(|kind| kind.has_sliding_window());
        config.policy.validate(has_window, scheduler_block_size)?;
        let num_reprefillable_tokens = num_reprefillable_tokens(config, scheduler_block_size)?;

        let drops = groups_that_drop(config);
        let lookup_groups = match config.enable_caching {
            true => LookupGroup::gather(&config.groups, &kinds, |group| drops[group]),
            false => Vec::new(),
        };
        let is_unitary = config.groups.len() == 1;
        let plan = Self {
            any_group_drops: drops.contains(&true),
            drops_eagle_block: drops_by_lookup_group(config, &lookup_groups),
            kinds,
            lookup_groups,
            scheduler_block_size,
            hash_block_size,
            hit_alignment: if is_unitary { hash_block_size } else { scheduler_block_size },
            num_reprefillable_tokens,
            watermark_blocks: (config.watermark * config.num_blocks as f64) as usize,
        };
        plan.check_lookups(config)?;
        Ok(plan)
    }

    fn check_lookups(&self, config: &ManagerConfig) -> Result<()> {
        if config.enable_caching && config.groups.len() != 1 && self.lookup_groups.is_empty() {
            return Err(Error::Config(
                "prefix caching needs at least one cacheable KV cache group; switch caching off"
                    .into(),
            ));
        }
        self.lookup_groups.iter().try_for_each(|group| {
            self.kinds[usize::from(group.groups[0])]
                .check_lookup(self.hit_alignment, group.use_eagle)
        })
    }
}

fn check_sizes(config: &ManagerConfig) -> Result<()> {
    if config.groups.len() > usize::from(u16::MAX) {
        return Err(Error::Config(format!(
            "{} KV cache groups were given; at most {} are possible",
            config.groups.len(),
            u16::MAX
        )));
    }
    if !(0.0..1.0).contains(&config.watermark) {
        return Err(Error::Config(format!(
            "watermark is {}; it must be a share of the pool: 0.0 or more, below 1.0",
            config.watermark
        )));
    }
    GroupSpec::positive("max_model_len", config.max_model_len).map(|_| ())
}

fn scheduler_block_size(config: &ManagerConfig) -> Result<usize> {
    let block_sizes = || config.groups.iter().map(|group| group.block_size);
    let least = block_sizes().try_fold(1, |lcm, size| {
        GroupSpec::positive("the least common multiple of the block sizes", lcm_of(lcm, size))
    })?;
    let size = config.scheduler_block_size.unwrap_or(least);
    GroupSpec::positive("scheduler_block_size", size)?;
    match block_sizes().find(|&block_size| !size.is_multiple_of(block_size)) {
        None => Ok(size),
        Some(block_size) => Err(Error::Config(format!(
            "scheduler_block_size is {size}, which the block size {block_size} of a KV cache \
             group does not divide; give a multiple of {least}"
        ))),
    }
}

fn hash_block_size(config: &ManagerConfig, scheduler_block_size: usize) -> Result<usize> {
    let cacheable =
        || config.groups.iter().filter(|group| group.prefix_cacheable || config.groups.len() == 1);
    let common = cacheable().fold(0, |gcd, group| gcd_of(gcd, group.block_size));
    let default = if common == 0 { scheduler_block_size } else { common };
    let size = config.hash_block_size.unwrap_or(default);
    GroupSpec::positive("hash_block_size", size)?;
    let refuse = |why: String| {
        Err(Error::Config(format!("hash_block_size is {size}, but {why}; use {default}")))
    };
    if !scheduler_block_size.is_multiple_of(size) {
        return refuse(format!("it must divide the scheduler block size {scheduler_block_size}"));
    }
    if !config.enable_caching {
        return Ok(size);
    }
    if let [group] = &config.groups[..]
        && group.block_size != size
    {
        return refuse(format!("a single group hashes by its block size {}", group.block_size));
    }
    match cacheable().find(|group| group.block_size % size != 0) {
        None => Ok(size),
        Some(group) => refuse(format!("it must divide the block size {}", group.block_size)),
    }
}

fn num_reprefillable_tokens(config: &ManagerConfig, scheduler_block_size: usize) -> Result<usize> {
    let has_draft = config.use_eagle || config.groups.iter().any(|group| group.is_eagle_group);
    if config.enable_caching && has_draft && scheduler_block_size < config.num_prefill_lookahead {
        return Err(Error::Config(format!(
            "num_prefill_lookahead is {}; with prefix caching it can be at most the scheduler \
             block size {scheduler_block_size}",
            config.num_prefill_lookahead
        )));
    }
    Ok(config.num_prefill_lookahead.saturating_sub(1))
}

/// The marked groups drop the last block of a hit; if none is marked, all do.
fn groups_that_drop(config: &ManagerConfig) -> Vec<bool> {
    let none_marked = !config.groups.iter().any(|group| group.is_eagle_group);
    let drops = |group: &GroupSpec| config.use_eagle && (none_marked || group.is_eagle_group);
    config.groups.iter().map(drops).collect()
}

/// Groups that are looked up together drop together.
fn drops_by_lookup_group(config: &ManagerConfig, lookup_groups: &[LookupGroup]) -> Vec<bool> {
    let mut drops = vec![false; config.groups.len()];
    for group in lookup_groups {
        for &id in &group.groups {
            drops[usize::from(id)] = group.use_eagle;
        }
    }
    drops
}

fn gcd_of(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd_of(b, a % b) }
}

fn lcm_of(a: usize, b: usize) -> usize {
    a / gcd_of(a, b) * b
}
