//! Configurations with all kinds of groups and policies, valid or not.

use arbitrary::Arbitrary;
use kvoxide_core::group::{Caching, kinds};
use kvoxide_core::{GroupSpec, ManagerConfig, Policy, RecycleOrder, Retention};

use super::call::Amount;

/// A configuration from the fuzzer.
#[derive(Arbitrary, Debug)]
pub struct Config {
    num_blocks: u8,
    max_model_len: u16,
    groups: Vec<Group>,
    scheduler_block_size: Option<u8>,
    hash_block_size: Option<u8>,
    max_in_flight_tokens: Option<Amount>,
    num_prefill_lookahead: u8,
    watermark: u8,
    switches: [bool; 6],
    is_fifo: bool,
    reachable_block_mask: bool,
    retention_interval: Option<u8>,
    pin_min_drop_size: Option<u8>,
    dcp_world_size: u8,
    keeps_boundary_states: bool,
}

#[derive(Arbitrary, Debug)]
struct Group {
    /// A position in the list of kinds, scaled to 32 bits.
    kind: u32,
    /// An exponent of two.
    block_size: u8,
    window: u16,
    extra_retained_tokens: Amount,
    is_eagle_group: bool,
    prefix_cacheable: bool,
    layout: u8,
    dcp_sharded: Option<bool>,
}

/// The value of `pin_min_drop_size` that selects adaptive retention. A separate field would change
/// the meaning of the corpus.
const ADAPTIVE: u8 = 7;

impl Config {
    /// Returns the configuration of the manager.
    pub fn manager_config(&self) -> ManagerConfig {
        let [enable_caching, use_eagle, needs_zeroing, keep_tail, observe, enable_events] =
            self.switches;
        let groups = self.groups.iter().take(6).map(Group::spec).collect();
        let num_blocks = usize::from(self.num_blocks);
        ManagerConfig {
            scheduler_block_size: self.scheduler_block_size.map(usize::from),
            hash_block_size: self.hash_block_size.map(usize::from),
            max_in_flight_tokens: self.max_in_flight_tokens.map(|tokens| tokens.tokens(64)),
            enable_caching,
            use_eagle,
            // Most configurations have one rank.
            dcp_world_size: [1, 1, 1, 1, 1, 0, 2, 4][usize::from(self.dcp_world_size % 8)],
            enable_mamba_shared_prefix_checkpoint: self.keeps_boundary_states,
            num_prefill_lookahead: usize::from(self.num_prefill_lookahead % 8),
            enable_events,
            watermark: f64::from(self.watermark) / 256.0,
            needs_zeroing,
            keep_tail_below_boundary: keep_tail,
            observe,
            policy: self.policy(),
            ..ManagerConfig::new(num_blocks, groups, usize::from(self.max_model_len % 1024))
        }
    }

    fn policy(&self) -> Policy {
        if self.pin_min_drop_size == Some(ADAPTIVE) {
            return Policy::adaptive();
        }
        Policy {
            retention: Retention::Standard,
            recycle_order: match self.is_fifo {
                true => RecycleOrder::Fifo,
                false => RecycleOrder::UncachedFirst,
            },
            reachable_block_mask: self.reachable_block_mask,
            retention_interval: self.retention_interval.map(|n| usize::from(n) * 8),
            pin_min_drop_size: self.pin_min_drop_size.map(usize::from),
            ..Policy::every_tail()
        }
    }
}

impl Group {
    fn spec(&self) -> GroupSpec {
        let kind = (u64::from(self.kind) * kinds().len() as u64) >> 32;
        let kind = kinds()[kind as usize];
        let window = usize::from(self.window % 256);
        let optional = self.extra_retained_tokens.tokens(0);
        let sizes = kind.required.iter().map(|&size| (size, window));
        let sizes = sizes.chain(kind.optional.iter().map(|&size| (size, optional)));
        let spec = GroupSpec::new(kind.name, 1 << (self.block_size % 6));
        GroupSpec {
            prefix_cacheable: match kind.caching {
                Caching::Optional => Some(self.prefix_cacheable),
                Caching::Always | Caching::Never => None,
            },
            is_eagle_group: self.is_eagle_group,
            layout: u32::from(self.layout % 2),
            dcp_sharded: self.dcp_sharded,
            ..sizes.fold(spec, |spec, (size, tokens)| spec.with(size, tokens))
        }
    }
}
