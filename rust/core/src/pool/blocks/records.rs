//! Loops that change references, links and flags of many blocks at once, when blocks are allocated,
//! hit or released.
//!
//! To stay short, a loop handles only the usual kind of block. It stops at any other block, which
//! its caller handles. Loops over a run of ids change the whole run or nothing, and the compiler
//! turns them into vector instructions. The tests compare each loop with changes to one block after
//! another.

use std::hint::black_box;

use super::fingerprint::Fingerprint;
use super::flags::{FLAGS_BUT_IN_TRIE, MAX_REFERENCES, flag};
use super::links::{Links, join};
use super::list_span::ListSpan;
use super::open_ends::OpenEnds;
use super::run::IdRun;
use super::{Blocks, SegmentId, key_flags};
use crate::block::{BlockId, NULL_BLOCK};

impl Blocks {
    /// Adds a reference to each block. Free blocks next to `span` in their list become part of it.
    /// Stops at any other free block and at the null block. Returns the number of blocks before it.
    pub(crate) fn hit_each(&mut self, ids: &[BlockId], span: &mut ListSpan) -> usize {
        let links = &self.links[..];
        let usage = &mut self.usage[..];
        let [mut before, mut behind] = span.neighbours(links);
        let ListSpan { mut front, mut back, mut len } = *span;
        let mut num_hit = 0;
        for &block in ids {
            let usage = &mut usage[block as usize];
            if *usage & MAX_REFERENCES == 0 {
                if block == NULL_BLOCK {
                    break;
                } else if block == before {
                    (front, before) = (block, links[block as usize].prev_of(block));
                } else if block == behind {
                    (back, behind) = (block, links[block as usize].next_of(block));
                } else {
                    break;
                }
                len += 1;
            } else if block == NULL_BLOCK {
                break;
            }
            *usage += 1;
            num_hit += 1;
        }
        *span = ListSpan { front, back, len };
        num_hit
    }

    /// Adds a reference to each block of a run. All must be in use, or all must be free and next to
    /// each other in their list. Returns the span of the free blocks.
    pub(crate) fn hit_run(&mut self, run: IdRun) -> Option<ListSpan> {
        let usage = run.slice_mut(&mut self.usage)?;
        if usage.iter().fold(0, |any, usage| any | usage) & MAX_REFERENCES == 0 {
            return self.hit_free_run(run);
        }
        let is_used = |usage: &u32| usage & MAX_REFERENCES > 0;
        if !usage.iter().fold(true, |all, usage| all & is_used(usage)) {
            return None;
        }
        usage.iter_mut().for_each(|usage| *usage += 1);
        Some(ListSpan::default())
    }

    /// Does the same as [`Self::hit_run`] for blocks that are known to be free.
    pub(crate) fn hit_free_run(&mut self, run: IdRun) -> Option<ListSpan> {
        let usage = run.slice_mut(&mut self.usage)?;
        let span = ListSpan::of_run(&self.links, run)?;
        usage.iter_mut().for_each(|usage| *usage += 1);
        Some(span)
    }

    /// Does the same as [`Self::release_each`] for the blocks of a run, if all are changed in the
    /// same way. Returns whether it did.
    pub(crate) fn release_run(
        &mut self,
        run: IdRun,
        uncached_first: bool,
        ends: &mut OpenEnds,
    ) -> bool {
        let Some(usages) = run.slice_mut(&mut self.usage) else { return false };
        let usage = usages[0] & !flag::IN_TRIE;
        let other = |other: u32| other & !flag::IN_TRIE ^ usage;
        if usages.iter().fold(0, |any, &usage| any | other(usage)) != 0 {
            return false;
        }
        let end = match usage {
            _ if usage == flag::CACHED + 1 => Some(&mut ends.back),
            1 if uncached_first => Some(&mut ends.front),
            _ if usage & MAX_REFERENCES > 1 => None,
            _ => return false,
        };
        usages.iter_mut().for_each(|usage| *usage -= 1);
        let Some(end) = end else { return true };
        if let Some(links) = run.slice_mut(&mut self.links) {
            // The compiler must not know that these are zeros: for zeros, it would call a function.
            links.fill(black_box(if run.is_ascending() { Links::UP } else { Links::DOWN }));
        }
        join(&mut self.links, *end, run.first);
        *end = run.last;
        ends.num_added += run.len();
        true
    }

    /// Drops a reference to each block. A block that becomes free is added:
    ///
    /// - at the back, if it is cached only under its own hash,
    /// - at the front, if it is uncached and `uncached_first` holds.
    ///
    /// Stops before any other block that would become free, and before a null block. Returns the
    /// number of blocks before it.
    #[inline(never)]
    pub(crate) fn release_each(
        &mut self,
        ids: &[BlockId],
        uncached_first: bool,
        ends: &mut OpenEnds,
    ) -> usize {
        let OpenEnds { mut front, mut back, mut num_added, .. } = *ends;
        let uncached = if uncached_first { 1 } else { MAX_REFERENCES };
        let (usages, links) = (&mut self.usage[..], &mut self.links[..]);
        let other = ids.iter().position(|&block| {
            let usage = usages[block as usize];
            if usage & !flag::IN_TRIE == flag::CACHED + 1 {
                usages[block as usize] = usage - 1;
                join(links, back, block);
                back = block;
            } else if usage == uncached && block != NULL_BLOCK {
                usages[block as usize] = 0;
                join(links, front, block);
                front = block;
            } else {
                let is_shared = usage & MAX_REFERENCES > 1 && block != NULL_BLOCK;
                usages[block as usize] -= u32::from(is_shared);
                return !is_shared;
            }
            num_added += 1;
            false
        });
        (ends.front, ends.back, ends.num_added) = (front, back, num_added);
        other.unwrap_or(ids.len())
    }

    /// Drops the only reference to each uncached block, from last to first, and adds the block at
    /// the front. Stops at any other block. Returns the number of blocks that are left.
    pub(crate) fn release_uncached(&mut self, ids: &[BlockId], ends: &mut OpenEnds) -> usize {
        let (usages, links) = (&mut self.usage[..], &mut self.links[..]);
        let mut front = ends.front;
        let other = ids.iter().rposition(|&block| {
            let usage = &mut usages[block as usize];
            if *usage != 1 || block == NULL_BLOCK {
                return true;
            }
            *usage = 0;
            join(links, front, block);
            front = block;
            false
        });
        let num_left = other.map_or(0, |last| last + 1);
        ends.front = front;
        ends.num_added += ids.len() - num_left;
        num_left
    }

    /// Gives one reference to each free block that is neither cached nor pinned. Writes every other
    /// block, with `home` of its fingerprint, to `cached`, which has space for all `ids`.
    pub(crate) fn allocate_uncached<T>(
        &mut self,
        ids: &[BlockId],
        cached: &mut [(BlockId, T)],
        home: impl Fn(Fingerprint) -> T,
    ) -> CachedLeft {
        let run = IdRun::detect(ids);
        let left = run.and_then(|run| self.allocate_uncached_run(run, ids, cached, &home));
        left.unwrap_or_else(|| self.allocate_each_uncached(ids, cached, &home))
    }

    /// Does the same as [`Self::allocate_uncached`] for the blocks of a run, if all are plain or
    /// none is cached.
    fn allocate_uncached_run<T>(
        &mut self,
        run: IdRun,
        ids: &[BlockId],
        cached: &mut [(BlockId, T)],
        home: &impl Fn(Fingerprint) -> T,
    ) -> Option<CachedLeft> {
        let usages = run.slice_mut(&mut self.usage)?;
        let (any, all) = usages.iter().fold((0, !0), |(any, all), &u| (any | u, all & u));
        if any & FLAGS_BUT_IN_TRIE == 0 {
            usages.fill(1);
            return Some(CachedLeft { num_cached: 0, plain: 0, is_any_in_trie: false });
        } else if any & FLAGS_BUT_IN_TRIE != flag::CACHED || all & FLAGS_BUT_IN_TRIE != flag::CACHED
        {
            return None;
        }
        for (&block, cached) in ids.iter().zip(cached) {
            *cached = (block, home(self.fingerprints[block as usize]));
        }
        Some(CachedLeft {
            num_cached: ids.len(),
            plain: !0 >> (u64::BITS as usize - ids.len()),
            is_any_in_trie: any & flag::IN_TRIE != 0,
        })
    }

    fn allocate_each_uncached<T>(
        &mut self,
        ids: &[BlockId],
        cached: &mut [(BlockId, T)],
        home: &impl Fn(Fingerprint) -> T,
    ) -> CachedLeft {
        let (mut num_cached, mut plain, mut flags) = (0, 0, 0);
        for &block in ids {
            let usage = self.usage[block as usize];
            let kind = usage & FLAGS_BUT_IN_TRIE;
            if kind == 0 {
                self.usage[block as usize] = 1;
            } else if let Some(cached) = cached.get_mut(num_cached) {
                *cached = (block, home(self.fingerprints[block as usize]));
                plain |= u64::from(kind == flag::CACHED) << num_cached;
                flags |= usage;
                num_cached += 1;
            }
        }
        CachedLeft { num_cached, plain, is_any_in_trie: flags & flag::IN_TRIE != 0 }
    }

    /// Flags blocks as cached that will get their own hashes next. Stops at the null block and at a
    /// block that is already cached. Returns how many blocks it flagged.
    pub(crate) fn mark_cached(&mut self, ids: &[BlockId], segment: SegmentId) -> usize {
        let flags = key_flags(segment);
        if let Some(run) = IdRun::detect(ids)
            && let Some(usages) = run.slice_mut(&mut self.usage)
            && usages.iter().fold(0, |any, usage| any | usage) & flag::CACHED == 0
        {
            usages.iter_mut().for_each(|usage| *usage |= flags);
            return ids.len();
        }
        let is_marked = |&block: &BlockId| {
            let usage = &mut self.usage[block as usize];
            let is_new = *usage & flag::CACHED == 0 && block != NULL_BLOCK;
            if is_new {
                *usage |= flags;
            }
            is_new
        };
        ids.iter().map(is_marked).take_while(|&is_marked| is_marked).count()
    }
}

/// The cached blocks among some free blocks. They still have to be allocated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CachedLeft {
    pub num_cached: usize,
    /// One bit per cached block: whether it serves its own hash, has no other key and is not
    /// pinned.
    pub plain: u64,
    /// Whether any of them is in the prefix trie.
    pub(crate) is_any_in_trie: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::blocks::{BlockList, KeyLayout, NO_SEGMENT, Part};

    const NUM_BLOCKS: usize = 60;
    const USAGES: [u32; 8] = [
        0,
        1,
        3,
        flag::CACHED,
        flag::CACHED + 1,
        flag::CACHED + flag::IN_TRIE + 1,
        flag::CACHED + 2,
        flag::CACHED + flag::PINNED + 1,
    ];

    /// A pool and its list of free blocks. All blocks but a few have the same usage.
    #[derive(Debug)]
    struct World {
        blocks: Blocks,
        list: BlockList,
    }

    fn worlds() -> impl Strategy<Value = World> {
        let usages = (0..8_usize, prop::collection::vec((1..NUM_BLOCKS, 0..8_usize), 0..3));
        (usages, 0..3_usize).prop_map(|((all, others), order)| {
            let mut blocks = Blocks::new(NUM_BLOCKS, KeyLayout::new(1), 0);
            let usage = &mut blocks.usage;
            usage[1..].fill(USAGES[all]);
            others.into_iter().for_each(|(block, kind)| usage[block] = USAGES[kind]);
            let mut list = BlockList::new(&mut blocks, 0);
            let mut free: Vec<_> = (1..NUM_BLOCKS as u32).collect();
            free.retain(|&block| blocks.ref_count(block) == 0);
            match order {
                0 => {}
                1 => free.reverse(),
                _ => free.sort_by_key(|block| block % 7),
            }
            free.into_iter().for_each(|block| list.push_back(&mut blocks, block));
            World { blocks, list }
        })
    }

    /// Generates runs of at least [`IdRun::MIN_LEN`] ids.
    fn runs() -> impl Strategy<Value = Vec<BlockId>> {
        (1..20_u32, IdRun::MIN_LEN as u32..40, any::<bool>()).prop_map(|(first, len, up)| {
            let ids = first..first + len;
            if up { ids.collect() } else { ids.rev().collect() }
        })
    }

    impl World {
        fn usage(&self) -> Vec<u32> {
            self.blocks.usage.clone()
        }

        fn free(&self) -> Vec<BlockId> {
            self.list.iter(&self.blocks).collect()
        }
    }

    proptest! {
        #[test]
        fn a_run_is_released_as_its_blocks_are(
            mut world in worlds(), run in runs(), uncached_first: bool,
        ) {
            let (mut usage, [mut front, mut back]) = (world.usage(), [vec![], vec![]]);
            let is_uncached_first = uncached_first && !world.free().is_empty();
            let stop = run.iter().position(|&block| {
                let own = &mut usage[block as usize];
                match *own & !flag::IN_TRIE {
                    1 if is_uncached_first => front.push(block),
                    own if own == flag::CACHED + 1 => back.push(block),
                    own if own & MAX_REFERENCES > 1 => {}
                    _ => return true,
                }
                *own -= 1;
                false
            });
            let free = [front, world.free(), back].concat();

            let mut ends = world.list.open(&world.blocks);
            let num = world.blocks.release_to(Part::Run(&run), uncached_first, &mut ends);
            world.list.close(&mut world.blocks, &ends);
            prop_assert_eq!(num, stop.unwrap_or(run.len()));
            prop_assert_eq!((world.usage(), world.free()), (usage, free));
        }

        #[test]
        fn a_run_is_hit_as_its_blocks_are_or_not_at_all(mut world in worlds(), run in runs()) {
            let (mut usage, mut free) = (world.usage(), world.free());
            let Some(span) = world.blocks.hit_run(IdRun::of(&run)) else {
                prop_assert_eq!((world.usage(), world.free()), (usage, free));
                return Ok(());
            };
            world.list.remove_span(&mut world.blocks, &span);
            run.iter().for_each(|&block| usage[block as usize] += 1);
            free.retain(|block| !run.contains(block));
            prop_assert_eq!((world.usage(), world.free()), (usage, free));
        }

        #[test]
        fn a_run_is_allocated_as_its_blocks_are(mut world in worlds(), run in runs()) {
            let mut expected = world.blocks.clone();
            let mut cached = [[(NULL_BLOCK, 0); 64]; 2];
            let [own, others] = &mut cached;
            let home = |Fingerprint(bits)| bits + 1;
            let left = world.blocks.allocate_uncached(&run, own, home);
            prop_assert_eq!(left, expected.allocate_each_uncached(&run, others, &home));
            prop_assert_eq!(&world.blocks.usage, &expected.usage);
            prop_assert_eq!(cached[0], cached[1]);
        }

        #[test]
        fn a_run_is_marked_as_its_blocks_are(mut world in worlds(), run in runs()) {
            let mut usage = world.usage();
            let is_new = |block: &&BlockId| usage[**block as usize] & flag::CACHED == 0;
            let num = run.iter().take_while(is_new).count();
            run[..num].iter().for_each(|&block| usage[block as usize] |= flag::CACHED);
            prop_assert_eq!(world.blocks.mark_cached(&run, NO_SEGMENT), num);
            prop_assert_eq!(world.usage(), usage);
        }
    }
}
