//! The longest hit of a request in the tier, in all groups of a connector.

use std::ops::Range;

use super::tier::HostTier;
use crate::block::CacheKey;
use crate::pool::LeavingBlock;

/// A group of a connector.
#[derive(Clone, Copy, Debug)]
pub struct HostGroup {
    /// The index of its blocks among the blocks of all groups.
    pub group_idx: usize,
    /// Tokens per block.
    pub tokens_per_block: usize,
    /// Tokens per chunk.
    pub tokens_per_chunk: usize,
    /// The number of chunks in its window; `None` for full attention.
    pub window_chunks: Option<usize>,
    /// Tokens before the end of a load that its window needs, where the window counts tokens.
    pub load_window_tokens: Option<usize>,
    /// Whether its last chunk may change, so that a hit ends a chunk before it.
    pub is_eagle_group: bool,
    /// Whether each of its chunks is a state, which covers all tokens before it.
    pub is_state: bool,
}

impl HostGroup {
    /// Returns whether it has a window, not states.
    pub fn is_window(&self) -> bool {
        self.window_chunks.is_some() && !self.is_state
    }

    /// Returns how many chunks a load that ends after `num_tokens` needs; `None` for all.
    pub fn load_window(&self, num_tokens: usize) -> Option<usize> {
        let window = self.window_chunks?;
        let Some(tokens) = self.load_window_tokens else { return Some(window) };
        let padding = num_tokens.next_multiple_of(self.tokens_per_chunk) - num_tokens;
        Some(window.max((tokens + padding).div_ceil(self.tokens_per_chunk)))
    }
}

/// The keys of a request's chunks in one group, and look-ups of them in a tier.
#[expect(clippy::len_without_is_empty, reason = "a look-up only compares lengths")]
pub trait ChunkLookup {
    /// Returns the number of keys.
    fn len(&self) -> usize;

    /// Returns how many keys a tier has from the first of these places on; `None` if one of them is
    /// pending.
    fn prefix(&self, places: Range<usize>, tier: &HostTier) -> Option<usize>;

    /// Returns the end of the last run of `window` keys that a tier has: see
    /// [`HostTier::lookup_window`].
    fn window(
        &self,
        places: Range<usize>,
        windows: (usize, usize),
        tier: &HostTier,
    ) -> Option<usize>;

    /// Returns whether one of the keys at these places is noted as being loaded.
    fn is_any_loading(&self, places: Range<usize>, tier: &HostTier) -> bool;
}

/// The groups of a connector, and the order in which they are looked up.
#[derive(Clone, Debug)]
pub struct HostSearch {
    /// The groups.
    pub groups: Vec<HostGroup>,
    /// Groups with full attention first, then windows, the largest first.
    order: Vec<usize>,
    /// How many of them have full attention.
    num_full: usize,
    /// A hit is a multiple of this before windows shorten it.
    align_size: Option<usize>,
}

/// The load that a request wants.
#[derive(Clone, Copy, Debug)]
pub struct WantedLoad {
    /// Tokens that the GPU has.
    pub num_computed: usize,
    /// Tokens of the request.
    pub num_tokens: usize,
    /// The most tokens that the step can load.
    pub max_new: Option<usize>,
    /// The most tokens that the request asked to load.
    pub max_load: Option<usize>,
}

/// A group has fewer keys than the request has chunks.
#[derive(Clone, Copy, Debug)]
pub struct TooFewKeys;

/// The result of a look-up.
#[derive(Clone, Debug)]
pub struct HostHit {
    /// Tokens beyond the tokens of the GPU; `None` if the request has to ask again later.
    pub num_tokens: Option<usize>,
    /// For each group with full attention, the chunk after the last one that was found.
    pub ends: Vec<usize>,
    /// In a look-up of pool and tier, the number of blocks that the load takes from the pool.
    pub num_blocks: usize,
}

impl HostSearch {
    /// Creates a search. `order` has full attention first, then windows, the largest first.
    pub fn new(groups: Vec<HostGroup>, order: Vec<usize>, align_size: Option<usize>) -> Self {
        let is_full = |at: &&usize| groups[**at].window_chunks.is_none();
        let num_full = order.iter().take_while(is_full).count();
        Self { groups, order, num_full, align_size }
    }

    /// Returns the group of a key.
    pub fn group_of(&self, key: &CacheKey) -> Option<&HostGroup> {
        self.groups.iter().find(|group| group.group_idx == usize::from(key.group))
    }

    /// Returns whether a block of the pool is full and of one of the groups, so that it makes a
    /// chunk.
    pub fn is_whole(&self, block: &LeavingBlock) -> bool {
        let group = self.group_of(&block.key);
        group.is_some_and(|group| block.num_tokens.is_multiple_of(group.tokens_per_chunk))
    }

    /// Returns whether some group has a window or states.
    pub fn has_windows(&self) -> bool {
        self.num_full < self.order.len()
    }

    /// Returns the longest hit. Each group may shorten what the groups before it found, which are
    /// then looked up again.
    pub fn find(
        &self,
        wanted: WantedLoad,
        keys: &[impl ChunkLookup],
        tier: &HostTier,
    ) -> Result<HostHit, TooFewKeys> {
        let mut search = Search {
            limit: self.limit(wanted),
            num_hit: 0,
            is_later: false,
            has_popped: vec![false; self.groups.len()],
            ends: vec![0; self.groups.len()],
        };
        let mut round = &self.order[..];
        while !round.is_empty() {
            let (mut saw_window, mut next) = (false, &self.order[..0]);
            for &at in round {
                let group = &self.groups[at];
                if keys[at].len() < wanted.num_tokens / group.tokens_per_chunk {
                    return Err(TooFewKeys);
                }
                let Some(num_hit) = search.look_up(at, group, wanted, &keys[at], tier) else {
                    return Ok(HostHit { num_tokens: Some(0), ends: search.ends, num_blocks: 0 });
                };
                if num_hit < search.num_hit {
                    if !group.is_eagle_group {
                        search.has_popped.fill(false);
                    }
                    if search.is_later {
                        search.is_later = false;
                        next = &self.order;
                    } else if saw_window && next.is_empty() {
                        next = &self.order[self.num_full..];
                    }
                }
                saw_window |= group.window_chunks.is_some();
                search.num_hit = num_hit;
            }
            round = next;
        }
        let num_tokens = search.num_hit;
        let is_later = search.is_later || self.is_being_loaded(wanted, num_tokens, keys, tier);
        let num_tokens = (!is_later).then_some(num_tokens);
        Ok(HostHit { num_tokens, ends: search.ends, num_blocks: 0 })
    }

    /// Returns the most tokens, with the tokens of the GPU, that a hit can have.
    fn limit(&self, wanted: WantedLoad) -> i64 {
        let WantedLoad { num_computed, num_tokens, max_new, max_load } = wanted;
        let most = [max_new, max_load].into_iter().flatten();
        let most = most.map(|most| num_computed.saturating_add(most)).min();
        let limit = most.map_or(num_tokens, |most| most.min(num_tokens)) as i64;
        if !self.has_windows() {
            return limit;
        }
        // The last token of a prompt is computed for its logits.
        let limit = limit - 1;
        self.align_size.map_or(limit, |size| limit.div_euclid(size as i64) * size as i64)
    }

    /// Returns whether another request loads a chunk of a hit.
    fn is_being_loaded(
        &self,
        wanted: WantedLoad,
        num_hit: usize,
        keys: &[impl ChunkLookup],
        tier: &HostTier,
    ) -> bool {
        let end = wanted.num_computed + num_hit;
        num_hit > 0
            && tier.num_loading() > 0
            && self.groups.iter().zip(keys).any(|(group, keys)| {
                let size = group.tokens_per_chunk;
                let last = end.div_ceil(size).min(keys.len());
                let first = (wanted.num_computed / size).min(last);
                let window = group.load_window(end).unwrap_or(usize::MAX);
                keys.is_any_loading(first.max(last.saturating_sub(window))..last, tier)
            })
    }
}

/// A look-up that is not finished.
struct Search {
    /// The most tokens that the hit can have, with the tokens of the GPU.
    limit: i64,
    /// Tokens of the hit beyond the tokens of the GPU.
    num_hit: usize,
    /// Whether a group has to be asked again later.
    is_later: bool,
    /// The EAGLE groups whose last chunk was taken off the hit.
    has_popped: Vec<bool>,
    ends: Vec<usize>,
}

impl Search {
    /// Shortens the hit to what a group has. Returns its tokens beyond the tokens of the GPU; `None` if
    /// they are less than a chunk.
    fn look_up(
        &mut self,
        at: usize,
        group: &HostGroup,
        wanted: WantedLoad,
        keys: &impl ChunkLookup,
        tier: &HostTier,
    ) -> Option<usize> {
        let (size, num_keys) = (group.tokens_per_chunk as i64, keys.len() as i64);
        let num_computed = wanted.num_computed as i64;
        let pops = group.is_eagle_group && !self.has_popped[at];
        self.limit = self.limit.min(num_keys * size);
        if wanted.max_load.is_some() {
            self.limit = self.limit.div_euclid(size) * size;
        }
        if self.limit - num_computed < size {
            return None;
        }
        // The chunk that is taken off is looked up too.
        let end = if pops { (self.limit + size).min(num_keys * size) } else { self.limit };
        let (start, end) = ((num_computed / size) as usize, (end as usize).div_ceil(size as usize));
        let end = end.min(keys.len());
        let popped = usize::from(pops);
        let found = match group.window_chunks {
            None => {
                let found = keys.prefix(start..end, tier);
                self.ends[at] = start + found.unwrap_or(0);
                found
            }
            Some(window) => {
                let last = self.limit.min((end - popped) as i64 * size);
                let first_window = group.load_window(last as usize).unwrap_or(window);
                let windows = (window + popped, first_window + popped);
                keys.window(start..end, windows, tier)
            }
        };
        match found {
            Some(0) => return None,
            None => self.is_later = true,
            Some(found) => {
                self.has_popped[at] |= pops;
                self.limit = self.limit.min(size * (start + found - popped) as i64);
            }
        }
        let num_hit = self.limit - num_computed;
        (num_hit >= size).then_some(num_hit as usize)
    }
}
