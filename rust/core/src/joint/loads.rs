//! The blocks of a load: the blocks of the pool that it attaches, and the blocks that it fills.

use crate::block::{BlockId, CacheKey, NULL_BLOCK};
use crate::error::Result;
use crate::host::{ChunkKeys, ChunkLookup, HashKeys, HostGroup, attached};
use crate::manager::Manager;
use crate::request::{GroupBlocks, RequestView};

/// Returns the keys of a request in each group.
fn keys<'a>(
    manager: &Manager,
    request: &RequestView<'a>,
    groups: &[HostGroup],
) -> Vec<HashKeys<'a>> {
    let size = manager.hash_block_size();
    groups.iter().map(|group| HashKeys::of(group, request.hashes, size)).collect()
}

/// Returns the tables of a hit with the blocks that a load attaches. The hit has `num_local` tokens,
/// and the load ends after `end` tokens.
pub fn attached_tables(
    manager: &Manager,
    request: &RequestView<'_>,
    groups: &[HostGroup],
    hit: &[GroupBlocks],
    (num_local, end): (usize, usize),
) -> Vec<GroupBlocks> {
    let mut tables = hit.to_vec();
    tables.resize(manager.groups().len(), GroupBlocks::default());
    attached(groups, &keys(manager, request, groups), manager.pool(), tables, (num_local, end))
}

/// A block that a load fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedBlock {
    /// The block.
    pub block: BlockId,
    /// The key of the chunk.
    pub key: CacheKey,
    /// The number of tokens up to the end of the chunk.
    pub position: u32,
}

/// Returns the blocks that a load fills: in each group, the blocks from the first empty one on, and in
/// windows only empty ones. The pool has `num_local` tokens of the request, and the load ends after
/// `end` tokens. Where the request lacks a block, it is the null block.
pub fn blocks_to_load(
    manager: &Manager,
    request: &RequestView<'_>,
    groups: &[HostGroup],
    (num_local, end): (usize, usize),
) -> Result<Vec<LoadedBlock>> {
    let (held, pool) = (manager.blocks_of(request.id)?, manager.pool());
    let mut loaded = Vec::new();
    for (group, keys) in groups.iter().zip(keys(manager, request, groups)) {
        let table = &held.groups[group.group_idx].blocks;
        let size = group.tokens_per_block;
        let (first, last) = (num_local.div_ceil(size), end.div_ceil(size));
        let block = |place| table.get(place).unwrap_or(NULL_BLOCK);
        let is_empty = |&place: &usize| {
            block(place) != NULL_BLOCK && pool.keys_of(block(place)).next().is_none()
        };
        let first = (first..last).find(is_empty).unwrap_or(last);
        let places = first..last.min(keys.len());
        loaded.reserve(places.len());
        let places = places.filter(|place| !group.is_window() || is_empty(place));
        loaded.extend(places.map(|place| LoadedBlock {
            block: block(place),
            key: keys.at(place),
            position: ((place + 1) * group.tokens_per_chunk) as u32,
        }));
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockHash, GroupId};
    use crate::check;
    use crate::group::GroupSpec;
    use crate::host::{HostPolicy, HostRequest, HostTier, HostTierConfig, WantedLoad};
    use crate::joint::search_of;
    use crate::joint::testing::{BLOCK, hashes};
    use crate::manager::{AllocateArgs, ManagerConfig};
    use crate::retention::Policy;

    const NUM_PLACES: usize = 6;
    const WINDOW: usize = 3;

    /// A memory that has the block of a window at a place.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum In {
        Pool,
        Tier,
        Neither,
    }

    /// A prompt whose first `num_in_pool` blocks of full attention are in the pool, and all of them in
    /// the tier. Its windows are as the places say.
    struct Memories {
        manager: Manager,
        tier: HostTier,
        hashes: Vec<BlockHash>,
    }

    impl Memories {
        fn new(num_in_pool: usize, window: [In; NUM_PLACES]) -> Self {
            let groups =
                vec![GroupSpec::full(BLOCK), GroupSpec::sliding_window(BLOCK, WINDOW * BLOCK)];
            let policy = Policy::every_tail();
            let config = ManagerConfig { policy, ..ManagerConfig::new(40, groups, 1 << 12) };
            let mut manager = Manager::new(config).expect("a manager");
            let hashes = hashes(0, NUM_PLACES as u64 + 1);
            let view = RequestView::new(1, &hashes[..NUM_PLACES], NUM_PLACES * BLOCK);
            for num_computed_tokens in (0..NUM_PLACES).map(|place| place * BLOCK) {
                let view = RequestView { num_computed_tokens, ..view };
                let args = AllocateArgs { num_new_tokens: BLOCK, ..AllocateArgs::default() };
                manager.allocate_slots(&view, &args).expect("a call").expect("slots");
            }
            manager.free(1).expect("an end");
            let tier = HostTier::new(&HostTierConfig::new(20, HostPolicy::Lru)).expect("a tier");
            let mut it = Self { manager, tier, hashes };
            let full = |place: usize| if place < num_in_pool { In::Pool } else { In::Tier };
            (0..NUM_PLACES).for_each(|place| it.put(0, place, full(place)));
            (0..NUM_PLACES).for_each(|place| it.put(1, place, window[place]));
            it
        }

        fn key(&self, group: GroupId, place: usize) -> CacheKey {
            CacheKey { hash: self.hashes[place], group }
        }

        fn put(&mut self, group: GroupId, place: usize, memory: In) {
            let key = self.key(group, place);
            if memory == In::Tier {
                let keys = [(key, None)].into_iter();
                let request = &mut HostRequest::default();
                let plan = self.tier.prepare_store_of_distinct(request, keys).expect("a call");
                assert!(plan.is_some());
                self.tier.complete_store([key].into_iter(), true);
            }
            if memory != In::Pool {
                let block = self.manager.pool().find(&key).expect("a cached block");
                self.manager.evict_blocks(&[block]).expect("a block");
            }
        }

        /// Looks a longer prompt up. Returns the pool's hit, and the end of the hit in both.
        fn look_up(&mut self) -> (Vec<GroupBlocks>, usize, usize) {
            self.look_up_prompt(NUM_PLACES + 1)
        }

        /// Looks a prompt of some blocks up.
        fn look_up_prompt(&mut self, num_blocks: usize) -> (Vec<GroupBlocks>, usize, usize) {
            let hashes = self.hashes[..num_blocks].to_vec();
            let view = longer(&hashes);
            let most = view.num_tokens - 1;
            let hit = self.manager.get_computed_blocks(2, &view.hashes, most).expect("a hit");
            let search = search_of(&self.manager);
            let keys = keys(&self.manager, &view, &search.groups);
            let wanted = WantedLoad {
                num_computed: hit.length,
                num_tokens: view.num_tokens,
                max_new: None,
                max_load: None,
            };
            let found = search.find_in_both(wanted, &keys, self.manager.pool(), &self.tier);
            let num_tokens = found.expect("enough keys").num_tokens.expect("nothing is pending");
            (hit.blocks.to_vec(), hit.length, hit.length + num_tokens)
        }

        /// Gives the request its blocks. Returns whether enough were free.
        fn allocate(&mut self, hit: &[GroupBlocks], tokens: (usize, usize)) -> bool {
            let (view, groups) = (longer(&self.hashes), search_of(&self.manager).groups);
            let tables = attached_tables(&self.manager, &view, &groups, hit, tokens);
            let args = AllocateArgs {
                num_new_computed_tokens: tokens.0,
                new_computed_blocks: &tables,
                num_external_computed_tokens: tokens.1 - tokens.0,
                fills_holes: true,
                delay_cache_blocks: true,
                ..AllocateArgs::default()
            };
            let new = self.manager.allocate_slots(&view, &args).expect("a call");
            assert_eq!(check(&self.manager), Ok(()));
            new.is_some()
        }

        /// Returns the block of the request at a place.
        fn block(&self, group: GroupId, place: usize) -> Option<BlockId> {
            let held = self.manager.blocks_of(2).expect("a request");
            held.groups[usize::from(group)].blocks.get(place)
        }

        /// Returns the keys that the request's load fills.
        fn loaded(&self, tokens: (usize, usize)) -> Vec<CacheKey> {
            let groups = search_of(&self.manager).groups;
            let view = longer(&self.hashes);
            let loaded = blocks_to_load(&self.manager, &view, &groups, tokens).expect("blocks");
            for LoadedBlock { block, key, position } in &loaded {
                let place = *position as usize / BLOCK - 1;
                assert_eq!(*key, self.key(key.group, place));
                assert_eq!(self.block(key.group, place), Some(*block));
            }
            loaded.into_iter().map(|it| it.key).collect()
        }
    }

    /// Returns a prompt of one more block.
    fn longer(hashes: &[BlockHash]) -> RequestView<'_> {
        RequestView::new(2, hashes, hashes.len() * BLOCK)
    }

    /// Yields all windows.
    fn windows() -> impl Iterator<Item = [In; NUM_PLACES]> {
        (0..3_usize.pow(NUM_PLACES as u32)).map(|n| {
            let digit = |place| n / 3_usize.pow(place as u32) % 3;
            std::array::from_fn(|place| [In::Pool, In::Tier, In::Neither][digit(place)])
        })
    }

    #[test]
    fn a_window_is_hit_if_each_place_is_in_one_of_the_memories_and_the_missing_ones_are_loaded() {
        let (mut num_mixed, mut num_loads) = (0, 0);
        for num_in_pool in 0..=NUM_PLACES {
            for window in windows() {
                let mut it = Memories::new(num_in_pool, window);
                let (hit, num_local, end) = it.look_up();
                let places = |end: usize| end.saturating_sub(WINDOW)..end;
                let is_hit = |end: &usize| places(*end).all(|place| window[place] != In::Neither);
                let longest = (0..=NUM_PLACES).rfind(is_hit).expect("an empty hit");
                assert_eq!(end, longest * BLOCK, "{num_in_pool} {window:?}");
                if end == num_local {
                    continue;
                }
                let missing = (num_in_pool..longest).map(|place| it.key(0, place));
                let in_tier = |place: &usize| window[*place] == In::Tier;
                let in_tier: Vec<_> = places(longest).filter(in_tier).collect();
                num_loads += 1;
                num_mixed +=
                    usize::from(!in_tier.is_empty() && in_tier.len() < longest.min(WINDOW));
                let wanted = missing.chain(in_tier.into_iter().map(|place| it.key(1, place)));
                let wanted: Vec<_> = wanted.collect();
                assert!(it.allocate(&hit, (num_local, end)));
                assert_eq!(it.loaded((num_local, end)), wanted, "{num_in_pool} {window:?}");

                let hashes = it.hashes.clone();
                it.manager.cache_blocks(&longer(&hashes), end).expect("a call");
                assert_eq!(check(&it.manager), Ok(()));
                for place in places(longest) {
                    let found = it.manager.pool().find(&it.key(1, place));
                    assert_eq!(found, it.block(1, place), "{num_in_pool} {window:?}");
                }
                it.manager.free(2).expect("an end");
                assert_eq!(check(&it.manager), Ok(()));
            }
        }
        assert!(num_mixed > 1000 && num_loads > num_mixed, "{num_mixed} of {num_loads}");
    }

    #[test]
    fn a_window_that_the_pool_has_up_to_the_last_token_does_not_hide_the_hit_before_its_block() {
        use In::{Neither, Pool, Tier};
        let mut it = Memories::new(NUM_PLACES, [Neither, Neither, Tier, Pool, Pool, Pool]);
        let (hit, num_local, end) = it.look_up_prompt(NUM_PLACES);
        assert_eq!((num_local, end), (0, 5 * BLOCK));
        assert!(it.allocate(&hit, (num_local, end)));
        assert_eq!(it.loaded((num_local, end)), [it.key(1, 2)]);
        let mut it = Memories::new(NUM_PLACES, [Neither, Tier, Neither, Pool, Pool, Pool]);
        let (_, num_local, end) = it.look_up_prompt(NUM_PLACES);
        assert_eq!((num_local, end), (0, 0));
    }

    #[test]
    fn a_load_into_a_window_needs_free_blocks_for_its_holes_and_gives_them_back_if_it_is_aborted() {
        use In::{Neither, Pool, Tier};
        let mut it = Memories::new(5, [Neither, Neither, Neither, Tier, Pool, Tier]);
        let (hit, num_local, end) = it.look_up();
        assert_eq!((num_local, end), (0, 6 * BLOCK));
        // Six attached blocks, and three new ones.
        let num_taken = it.manager.pool().num_free_blocks() as usize - 8;
        let mut taken = Vec::new();
        it.manager.pool_mut().allocate(num_taken, &mut taken);
        assert!(!it.allocate(&hit, (num_local, end)));
        it.manager.pool_mut().release(&taken[..1]);
        assert!(it.allocate(&hit, (num_local, end)));
        assert_eq!(it.manager.pool().num_free_blocks(), 0);
        let attached = it.manager.pool().find(&it.key(1, 4));
        assert_eq!(it.block(1, 4), attached);
        it.manager.free(2).expect("an end");
        assert_eq!(check(&it.manager), Ok(()));
        assert_eq!(it.manager.pool().find(&it.key(1, 4)), attached);
        assert_eq!(it.manager.pool().find(&it.key(1, 3)), None);
    }
}
