//! Configurations of all kinds of groups and policies, possible ones and others.

use arbitrary::Arbitrary;
use kvoxide_core::{GroupSpec, ManagerConfig, Policy, RecycleOrder};

use super::call::Amount;

/// A configuration as the fuzzer gives it.
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
}

#[derive(Arbitrary, Debug)]
struct Group {
    kind: Kind,
    /// As a power of two.
    block_size: u8,
    window: u16,
    extra_retained_tokens: Amount,
    is_eagle_group: bool,
    prefix_cacheable: bool,
    layout: u8,
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Full,
    Mla,
    Sliding,
    SlidingMla,
    Chunked,
}

impl Config {
    /// What the manager is asked for.
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
            num_prefill_lookahead: usize::from(self.num_prefill_lookahead % 8),
            enable_events,
            watermark: f64::from(self.watermark) / 256.0,
            needs_zeroing,
            keep_tail_below_junction: keep_tail,
            observe,
            policy: self.policy(),
            ..ManagerConfig::new(num_blocks, groups, usize::from(self.max_model_len % 1024))
        }
    }

    fn policy(&self) -> Policy {
        Policy {
            recycle_order: match self.is_fifo {
                true => RecycleOrder::Fifo,
                false => RecycleOrder::UncachedFirst,
            },
            reachable_block_mask: self.reachable_block_mask,
            retention_interval: self.retention_interval.map(|n| usize::from(n) * 8),
            pin_min_drop_size: self.pin_min_drop_size.map(usize::from),
        }
    }
}

impl Group {
    fn spec(&self) -> GroupSpec {
        let block_size = 1 << (self.block_size % 6);
        let window = usize::from(self.window % 256);
        let spec = match self.kind {
            Kind::Full => GroupSpec::full(block_size),
            Kind::Mla => GroupSpec::new("mla_attention", block_size),
            Kind::Sliding => GroupSpec::sliding_window(block_size, window),
            Kind::SlidingMla => GroupSpec {
                prefix_cacheable: self.prefix_cacheable,
                sliding_window: Some(window),
                ..GroupSpec::new("sliding_window_mla", block_size)
            },
            Kind::Chunked => GroupSpec::chunked_local(block_size, window),
        };
        let has_window = spec.sliding_window.is_some();
        GroupSpec {
            extra_retained_tokens: match has_window {
                true => self.extra_retained_tokens.tokens(0),
                false => 0,
            },
            is_eagle_group: self.is_eagle_group,
            layout: u32::from(self.layout % 2),
            ..spec
        }
    }
}
