//! Derives groups, sizes and caching rules from a configuration.

use super::config::ManagerConfig;
use crate::block::GroupId;
use crate::error::{Error, Result};
use crate::group::{Group, GroupData, GroupSpec, Kind, PartialHits, declaration};
use crate::lookup::SpecGroup;
use crate::retention::{ActivePolicy, CacheRules, TailShape};

/// Sizes, in tokens, and rules that a checked configuration determines.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) spec_groups: Vec<SpecGroup>,
    /// The length of a hit is a multiple of this many tokens.
    pub hit_alignment: usize,
    pub watermark_blocks: usize,
    /// Whether any group has tables other than the usual ones.
    pub(crate) has_unusual_tables: bool,
}

impl Layout {
    /// Returns the layout of a configuration, its groups and its retention policy, or
    /// [`Error::Config`].
    pub(super) fn new(config: &ManagerConfig) -> Result<(Self, Vec<Group>, ActivePolicy)> {
        GroupSpec::positive("dcp_world_size", config.dcp_world_size)?;
        let mut groups = groups(config)?;
        check_sizes(config)?;
        let scheduler_block_size = scheduler_block_size(config, &groups)?;
        let hash_block_size = hash_block_size(config, &groups, scheduler_block_size)?;
        let is_sparse = groups.iter().any(|group| group.is_sparse);
        config.policy.validate(is_sparse, scheduler_block_size)?;
        let policy = config.policy.clone().in_effect(is_sparse);
        let num_reprefillable_tokens = num_reprefillable_tokens(config, scheduler_block_size)?;

        let has_partial_hits = has_partial_hits(config, &groups, hash_block_size);
        groups.iter_mut().for_each(|group| group.set_has_partial_hits(has_partial_hits));
        let is_fine_grained = groups.len() == 1 || has_partial_hits;
        let rules = CacheRules {
            hash_block_size,
            tail_alignment: if has_partial_hits { hash_block_size } else { scheduler_block_size },
            scheduler_block_size,
            has_partial_hits,
            drops_checkpoint_block: config.use_eagle,
            num_hash_lookahead_tokens: config.num_hash_lookahead_tokens,
            keeps_boundary_state: config.enable_mamba_shared_prefix_checkpoint
                && has_draft(config)
                && has_partial_hits
                && num_reprefillable_tokens == 0,
            recaches_known_tail: config.recaches_known_tail,
            older: config.older_rules,
            masks_unreachable: policy.reachable_block_mask,
            retention_interval: policy.retention_interval,
            any_drops_eagle_block: groups.iter().any(|group| group.drops_eagle_block),
            keeps_tail_below_boundary: config.keep_tail_below_boundary,
            is_hybrid: groups.len() > 1,
            num_reprefillable_tokens,
            shares_hashes: share_hashes(&groups),
        };
        let before = tail_shapes(&groups);
        let spec_groups = match config.enable_caching {
            true => SpecGroup::gather(&groups, &rules),
            false => Vec::new(),
        };
        drop_together(&mut groups, &spec_groups);
        let shapes = [before, tail_shapes(&groups)];
        let retention = ActivePolicy::new(policy, rules, shapes);
        let layout = Self {
            spec_groups,
            hit_alignment: if is_fine_grained { hash_block_size } else { scheduler_block_size },
            watermark_blocks: (config.watermark * config.num_blocks as f64) as usize,
            has_unusual_tables: groups.iter().any(|group| !group.has_usual_table),
        };
        layout.check_lookups(config, &groups)?;
        Ok((layout, groups, retention))
    }

    fn check_lookups(&self, config: &ManagerConfig, groups: &[Group]) -> Result<()> {
        if config.enable_caching && groups.len() != 1 && self.spec_groups.is_empty() {
            return Err(Error::Config(
                "prefix caching needs at least one cacheable KV cache group; disable caching"
                    .into(),
            ));
        }
        if !config.enable_caching {
            return Ok(());
        }
        groups.iter().try_for_each(|group| {
            let (size, drops_block) = (group.block_size, group.drops_eagle_block);
            group.kind().check_lookup(size, self.hit_alignment, drops_block)
        })
    }
}

/// Returns the groups of a configuration. With EAGLE, hits drop their last block in the EAGLE
/// groups. If no group is an EAGLE group, hits drop it in all groups.
fn groups(config: &ManagerConfig) -> Result<Vec<Group>> {
    let none_marked = !config.groups.iter().any(|group| group.is_eagle_group);
    let drops = config.use_eagle || config.drops_flagged_groups && !none_marked;
    let max_in_flight = config.max_in_flight_tokens.unwrap_or(config.max_model_len);
    let group = |(id, spec): (usize, &GroupSpec)| {
        let declaration = declaration(spec)?;
        let kind = Kind::new(spec)?;
        // A state is whole from the first step on.
        let max_admission_blocks = match declaration.is_state {
            true => None,
            false => kind.skips().max_blocks(spec.block_size, max_in_flight, config.max_model_len),
        };
        let data = GroupData {
            id: id as GroupId,
            spec: spec.clone(),
            declaration,
            block_size: declaration.block_size(spec, config.dcp_world_size)?,
            skips: kind.skips(),
            is_cacheable: declaration.is_cacheable(spec),
            has_partial_hits: false,
            older_rules: config.older_rules,
            is_zeroed: config.needs_zeroing && declaration.needs_zeroing,
            drops_eagle_block: drops && (none_marked || spec.is_eagle_group),
            tail_len: kind.tail_len(),
            max_admission_blocks,
        };
        Ok(Group::new(data, kind))
    };
    config.groups.iter().enumerate().map(group).collect()
}

fn tail_shapes(groups: &[Group]) -> Vec<TailShape> {
    groups.iter().map(|group| group.tail_shape()).collect()
}

/// Returns whether hits can end inside blocks: some kind wants it, and each other kind supports it
/// or has blocks of one hash.
fn has_partial_hits(config: &ManagerConfig, groups: &[Group], hash_block_size: usize) -> bool {
    // Blocks of the other groups are larger if ranks divide them.
    let is_larger = |block_size: usize| match config.dcp_world_size {
        1 => block_size > hash_block_size,
        _ => block_size >= hash_block_size,
    };
    let asks =
        |group: &Group| group.partial_hits == PartialHits::Wanted && is_larger(group.block_size);
    let can = |group: &Group| {
        !group.is_cacheable
            || group.partial_hits != PartialHits::Never
            || group.block_size == hash_block_size
    };
    config.enable_caching && groups.len() > 1 && groups.iter().any(asks) && groups.iter().all(can)
}

fn share_hashes(groups: &[Group]) -> bool {
    let cacheable = groups.iter().filter(|group| group.is_cacheable);
    let mut sizes: Vec<_> = cacheable.map(|group| group.block_size).collect();
    sizes.sort_unstable();
    sizes.windows(2).any(|pair| pair[0] == pair[1])
}

/// Makes groups that are looked up together drop their last block together. No other groups drop
/// it.
fn drop_together(groups: &mut [Group], spec_groups: &[SpecGroup]) {
    groups.iter_mut().for_each(|group| group.set_drops_eagle_block(false));
    for spec_group in spec_groups {
        for &id in &spec_group.groups {
            groups[usize::from(id)].set_drops_eagle_block(spec_group.drops_eagle_block);
        }
    }
}

fn check_sizes(config: &ManagerConfig) -> Result<()> {
    if config.groups.len() > usize::from(u16::MAX) {
        return Err(Error::Config(format!(
            "{} KV cache groups were given; at most {} are allowed",
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

fn scheduler_block_size(config: &ManagerConfig, groups: &[Group]) -> Result<usize> {
    let block_sizes = || groups.iter().map(|group| group.block_size);
    let least = block_sizes().try_fold(1, |lcm, size| {
        GroupSpec::positive("the least common multiple of the block sizes", lcm_of(lcm, size))
    })?;
    let size = config.scheduler_block_size.unwrap_or(least);
    GroupSpec::positive("scheduler_block_size", size)?;
    match block_sizes().find(|&block_size| !size.is_multiple_of(block_size)) {
        None => Ok(size),
        Some(block_size) => Err(Error::Config(format!(
            "scheduler_block_size is {size}; the block size {block_size} of a KV cache group does \
             not divide it. Use a multiple of {least}"
        ))),
    }
}

fn hash_block_size(
    config: &ManagerConfig,
    groups: &[Group],
    scheduler_block_size: usize,
) -> Result<usize> {
    let cacheable = || groups.iter().filter(|group| group.is_cacheable || groups.len() == 1);
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
    if let [group] = groups
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
    if config.enable_caching
        && has_draft(config)
        && scheduler_block_size < config.num_prefill_lookahead
    {
        return Err(Error::Config(format!(
            "num_prefill_lookahead is {}; with prefix caching it can be at most the scheduler \
             block size {scheduler_block_size}",
            config.num_prefill_lookahead
        )));
    }
    Ok(config.num_prefill_lookahead.saturating_sub(1))
}

/// Returns whether the model has draft layers.
fn has_draft(config: &ManagerConfig) -> bool {
    config.use_eagle || config.groups.iter().any(|group| group.is_eagle_group)
}

fn gcd_of(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd_of(b, a % b) }
}

fn lcm_of(a: usize, b: usize) -> usize {
    a / gcd_of(a, b) * b
}
