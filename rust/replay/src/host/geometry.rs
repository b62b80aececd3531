//! The groups of a manager as vLLM's offloading connector sees them. A chunk is one block.

use kvoxide_core::host::{HostGroup, HostSearch};
use kvoxide_core::pool::LeavingBlock;
use kvoxide_core::{Manager, Retention, Size};

/// The groups of a connector, and the rules of its masks.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub search: HostSearch,
    /// For each group, the rule that decides which of its chunks are stored.
    pub masks: Vec<GroupMask>,
    /// Hits end at multiples of this many tokens; `None` if groups differ.
    pub alignment: Option<usize>,
    /// Tokens between tails that are stored; `None` for every alignment, 0 for boundaries alone.
    pub interval: Option<usize>,
    pub hash_block_size: usize,
}

/// The rule that decides which chunks of a group are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupMask {
    /// All chunks are stored.
    All,
    /// Tails of this many blocks are stored.
    Tails(usize),
    /// States at boundaries are stored, from the block table.
    States,
    /// States are stored when the manager hands them over.
    HandedOver,
}

impl Geometry {
    pub fn of(manager: &Manager) -> Self {
        let cacheable = || manager.groups().iter().filter(|group| group.is_cacheable);
        let (mut groups, mut masks) = (Vec::new(), Vec::new());
        for group in cacheable() {
            let (spec, size) = (&group.spec, group.block_size);
            let is_state = group.is_state;
            let window = spec.kind.starts_with("sliding_window").then(|| {
                let window = spec.size(Size::SlidingWindow).unwrap_or(1);
                (window, window - 1 + spec.size(Size::ExtraRetainedTokens).unwrap_or(0))
            });
            let chunk = match &*spec.kind {
                "chunked_local_attention" => spec.size(Size::AttentionChunkSize),
                _ => None,
            };
            let window_chunks = match (window, chunk) {
                _ if is_state => Some(1),
                (Some((window, before)), _) => {
                    Some(window.div_ceil(size).max(before.div_ceil(size)))
                }
                (None, Some(chunk)) => Some(chunk.div_ceil(size)),
                (None, None) => None,
            };
            masks.push(match window {
                _ if spec.kind == "mamba" => GroupMask::HandedOver,
                _ if is_state => GroupMask::States,
                Some((_, before)) => {
                    GroupMask::Tails(before.div_ceil(size) + usize::from(spec.is_eagle_group))
                }
                None => GroupMask::All,
            });
            groups.push(HostGroup {
                group_idx: usize::from(group.id),
                tokens_per_block: size,
                tokens_per_chunk: size,
                window_chunks,
                load_window_tokens: window.map(|(_, before)| before),
                is_eagle_group: spec.is_eagle_group,
                is_state,
            });
        }
        let mut full: Vec<_> =
            groups.iter().filter(|group| group.window_chunks.is_none()).collect();
        full.dedup_by_key(|group| group.tokens_per_chunk);
        let alignment = match full[..] {
            [] => groups.iter().map(|group| group.tokens_per_chunk).max(),
            [first, ref rest @ ..] => {
                let is_same = |other: &&HostGroup| other.tokens_per_chunk == first.tokens_per_chunk;
                rest.iter().all(is_same).then_some(first.tokens_per_chunk)
            }
        };
        let aligned = masks.iter().position(|mask| *mask == GroupMask::HandedOver);
        let align_size = aligned.map(|at| groups[at].tokens_per_chunk);
        let policy = &manager.config().policy;
        // Adaptive retention leaves the setting that the connector reads at its default.
        let interval = match policy.retention {
            Retention::Standard => policy.retention_interval,
            Retention::Adaptive => Some(0),
        };
        Self {
            search: HostSearch::new(groups.clone(), order(&groups), align_size),
            masks,
            alignment,
            interval,
            hash_block_size: manager.hash_block_size(),
        }
    }

    pub fn groups(&self) -> &[HostGroup] {
        &self.search.groups
    }

    fn group_of(&self, block: &LeavingBlock) -> Option<&HostGroup> {
        let group = usize::from(block.key.group);
        self.groups().iter().find(|other| other.group_idx == group)
    }

    /// Returns whether a block of the pool is full, so that it makes a chunk.
    pub fn is_whole(&self, block: &LeavingBlock) -> bool {
        let group = self.group_of(block);
        group.is_some_and(|group| block.num_tokens.is_multiple_of(group.tokens_per_chunk))
    }

    /// Returns whether a block of the pool is of a window, or a state.
    pub fn is_tail(&self, block: &LeavingBlock) -> bool {
        self.group_of(block).is_some_and(|group| group.window_chunks.is_some())
    }
}

/// Returns the order of look-ups: full attention first, then windows, the largest first.
fn order(groups: &[HostGroup]) -> Vec<usize> {
    let mut order: Vec<_> = (0..groups.len()).collect();
    order.sort_by_key(|&at| groups[at].window_chunks.map(std::cmp::Reverse));
    order
}
