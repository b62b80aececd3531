//! The metadata of all blocks, and of the blocks of a run, which all change in the same way.

use std::ops::Index;

use super::block_meta::{BlockMeta, TargetList, bit};
use super::sampled::Sampled;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::{IdRun, prefault};

#[derive(Debug)]
pub(super) struct BlockMetas {
    metas: Vec<BlockMeta>,
    /// The blocks whose metadata marks them as sampled.
    pub(super) sampled: Sampled,
}

impl Index<BlockId> for BlockMetas {
    type Output = BlockMeta;

    fn index(&self, block: BlockId) -> &BlockMeta {
        &self.metas[block as usize]
    }
}

impl BlockMetas {
    pub(super) fn new(num_blocks: usize) -> Self {
        Self { metas: prefault::zeros(num_blocks), sampled: Sampled::new(num_blocks) }
    }

    /// Returns the metadata of every block, for loops. Callers must not change whether a block is
    /// sampled.
    #[inline]
    pub(super) fn all_mut(&mut self) -> &mut [BlockMeta] {
        &mut self.metas
    }

    /// Changes the metadata of a block, but not whether it is sampled. Returns the earlier
    /// metadata.
    #[inline]
    pub(super) fn update(
        &mut self,
        block: BlockId,
        change: impl FnOnce(BlockMeta) -> BlockMeta,
    ) -> BlockMeta {
        let meta = &mut self.metas[block as usize];
        let was = *meta;
        *meta = change(was);
        was
    }

    /// Lets a block enter a list if the list accepts it. Returns the earlier metadata if the block
    /// entered.
    #[inline]
    pub(super) fn enter(&mut self, block: BlockId, list: TargetList) -> Option<BlockMeta> {
        let meta = &mut self.metas[block as usize];
        let was = *meta;
        list.accepts(was).then(|| {
            *meta = was.entered(list);
            was
        })
    }

    /// Starts the metadata of blocks that become cached. Null blocks are skipped. Returns the
    /// number of other blocks.
    pub(super) fn start_each(&mut self, ids: &[BlockId], first: BlockMeta) -> usize {
        let Self { metas, sampled } = self;
        let cached = ids.iter().filter(|&&block| block != NULL_BLOCK);
        let start = |&block: &BlockId| {
            let meta = &mut metas[block as usize];
            let was = meta.0;
            *meta = BlockMeta(was & bit::PLACE | first.0);
            if (was ^ first.0) & bit::SAMPLED != 0 {
                sampled.toggle(block);
            }
        };
        cached.map(start).count()
    }

    /// Starts the metadata of a run of blocks that become cached. Changes nothing if one of them is
    /// in a list. Returns whether it did.
    #[inline]
    pub(super) fn start_run(&mut self, run: IdRun, first: BlockMeta) -> bool {
        let Some(metas) = run.slice_mut(&mut self.metas) else { return false };
        if metas.iter().fold(0, |any, meta| any | meta.0) & bit::PLACE != 0 {
            return false;
        }
        metas.fill(first);
        self.sampled.remove_run(run);
        true
    }

    /// Returns a run whose blocks all have these bits under a mask. Returns `None` if a block has
    /// other bits, or if the run contains the null block.
    #[inline]
    pub(super) fn run_alike(&mut self, run: IdRun, mask: u32, bits: u32) -> Option<MetaRun<'_>> {
        let metas = run.slice_mut(&mut self.metas)?;
        let [first, .., last] = *metas else { return None };
        if (first.0 & mask ^ bits) | (last.0 & mask ^ bits) != 0 {
            return None;
        }
        let (parts, rest) = metas.as_chunks::<PART>();
        let differing = parts
            .iter()
            .fold(0, |any, part| any | part.iter().fold(0, |any, meta| any | meta.0 ^ first.0));
        let differing = rest.iter().fold(differing, |any, meta| any | meta.0 ^ first.0);
        (differing & mask == 0).then_some(MetaRun { metas, differing })
    }

    /// Copies all metadata except the place.
    pub(super) fn copy(&mut self, from: BlockId, to: BlockId) {
        self.start_each(&[to], self[from].removed());
    }

    /// Adds a block to the sample that is not in it.
    #[inline]
    pub(super) fn add_to_sample(&mut self, block: BlockId) {
        self.metas[block as usize].0 |= bit::SAMPLED;
        self.sampled.toggle(block);
    }

    /// Checks that the set of sampled blocks agrees with the metadata. The error names the first
    /// block that differs.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_wrong = |block: &BlockId| self[*block].is_sampled() != self.sampled.has(*block);
        match (0..self.metas.len() as u32).find(is_wrong) {
            Some(block) => Err(format!("block {block} is listed wrongly in the sample")),
            None => Ok(()),
        }
    }
}

/// The metadata of the blocks in a run, in the order of their ids. Some bits are equal in all of
/// them.
pub(super) struct MetaRun<'a> {
    metas: &'a mut [BlockMeta],
    /// The bits in which any block differs from the first.
    differing: u32,
}

/// The number of blocks that are examined in parallel.
const PART: usize = 32;

impl MetaRun<'_> {
    /// Lets the blocks enter a list.
    #[inline]
    pub(super) fn enter(&mut self, list: TargetList) {
        self.change(bit::PLACE | bit::EPOCH, |meta| meta.entered(list));
    }

    /// Counts a hit of the blocks, and takes them out of their lists. Returns how many of them hold
    /// generated tokens and are not tails.
    #[inline]
    pub(super) fn hit(&mut self) -> usize {
        let fields = bit::USES | bit::VALUE | bit::PLACE | bit::HIT_SINCE;
        self.change(fields, |meta| meta.hit().removed());
        match self.differing & (bit::GENERATED | bit::TAIL) {
            0 => self.metas[0].num_answers() * self.metas.len(),
            _ => self.metas.iter().map(|meta| meta.num_answers()).sum(),
        }
    }

    #[inline]
    pub(super) fn evict(&mut self) {
        self.change(bit::PLACE | bit::VALUE, BlockMeta::evicted);
    }

    /// Changes fields of all blocks. The change of a field depends only on these fields.
    #[inline]
    fn change(&mut self, fields: u32, change: impl Fn(BlockMeta) -> BlockMeta) {
        if self.differing & fields != 0 {
            return self.metas.iter_mut().for_each(|meta| *meta = change(*meta));
        }
        // Each field has the same value in all blocks, so nothing is carried over to the next
        // field.
        let difference = change(self.metas[0]).0.wrapping_sub(self.metas[0].0);
        let (parts, rest) = self.metas.as_chunks_mut::<PART>();
        let metas = parts.iter_mut().flatten().chain(rest);
        metas.for_each(|meta| meta.0 = meta.0.wrapping_add(difference));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::eviction::adaptive::BlockClass;
    use crate::pool::eviction::adaptive::block_meta::{Epoch, Place};
    use crate::pool::eviction::adaptive::nearness::Nearness;
    use crate::pool::eviction::adaptive::tuning;
    use crate::pool::eviction::adaptive::value::ValueLevel;

    const BLOCK: BlockId = 3;

    fn metas(class: BlockClass) -> BlockMetas {
        let mut metas = BlockMetas::new(8);
        metas.start_each(&[BLOCK], BlockMeta::first(class));
        metas
    }

    fn hit(metas: &mut BlockMetas) {
        metas.update(BLOCK, BlockMeta::hit);
    }

    fn class(metas: &BlockMetas, block: BlockId) -> usize {
        metas[block].class()
    }

    fn value(metas: &BlockMetas, block: BlockId) -> ValueLevel {
        metas[block].value()
    }

    fn enter(metas: &mut BlockMetas, epoch: usize) -> Option<BlockMeta> {
        let list = TargetList::new(metas[BLOCK], Epoch::new(epoch), true);
        metas.enter(BLOCK, list)
    }

    #[test]
    fn a_tail_gets_a_second_chance_for_each_resume_and_always_if_its_value_lasts() {
        for is_durable in [false, true] {
            let value = if is_durable { ValueLevel::BEST.durable() } else { ValueLevel::BEST };
            let mut metas = metas(BlockClass { value, is_tail: true, ..BlockClass::default() });
            let has_second_chance = |metas: &BlockMetas| metas[BLOCK].has_second_chance();
            assert_eq!(has_second_chance(&metas), is_durable);
            for _ in 0..2 {
                hit(&mut metas);
                assert!(has_second_chance(&metas));
                metas.update(BLOCK, BlockMeta::used_second_chance);
                assert_eq!(has_second_chance(&metas), is_durable);
            }
        }
    }

    #[test]
    fn how_near_the_end_of_its_prompt_a_block_lies_stays_known() {
        let mut metas = metas(BlockClass { is_sampleable: true, ..BlockClass::default() });
        for (block, tokens) in [(BLOCK, 100), (5, 0)] {
            metas.update(block, |meta| meta.with_nearness(Nearness::of(tokens)));
        }
        let list = TargetList::new(metas[BLOCK], Epoch::new(1), true);
        hit(&mut metas);
        assert!(metas.enter(BLOCK, list).is_none());
        assert!(enter(&mut metas, 0x7fff).is_some());
        let nearness = [BLOCK, 5, 6].map(|block| metas[block].nearness());
        assert_eq!(nearness, [100, 0, 512].map(Nearness::of));
        assert_eq!(metas[BLOCK].epoch(), Epoch::new(0x3fff));
    }

    #[test]
    fn a_run_without_second_chance_has_none() {
        let bits = |i: u32| {
            let flag = |n: u32, bit: u32| (i >> n & 1) * bit;
            let flags = flag(0, bit::TAIL) | flag(1, bit::HIT_SINCE) | flag(2, bit::DURABLE);
            BlockMeta(flags | (i >> 3) << bit::VALUE_SHIFT)
        };
        let all: Vec<_> = (0..1 << 6).map(bits).collect();
        for first in &all {
            let mask = first.bits_against_second_chance();
            assert_eq!(mask.is_none(), first.has_second_chance());
            let Some(mask) = mask else { continue };
            let alike = all.iter().filter(|other| (other.0 ^ first.0) & mask == 0);
            assert_eq!(alike.filter(|other| other.has_second_chance()).count(), 0, "{first:?}");
        }
        assert!(all.iter().any(|meta| meta.has_second_chance()));
    }

    #[test]
    fn classes_are_by_doublings_of_uses() {
        let mut metas = metas(BlockClass::default());
        let classes: Vec<_> = (1..=20)
            .map(|_| {
                let class = class(&metas, BLOCK);
                hit(&mut metas);
                class
            })
            .collect();
        assert_eq!(classes[..8], [0, 1, 1, 2, 2, 2, 2, 3]);
        assert!(classes[8..].iter().all(|&class| class == 3));
        assert_eq!(value(&metas, BLOCK), ValueLevel::BEST, "uses stay in their bits");
    }

    #[test]
    fn a_tail_that_is_hit_has_the_best_value() {
        let class = BlockClass { value: ValueLevel::WORST, is_tail: true, ..BlockClass::default() };
        let mut metas = metas(class);
        assert_eq!(value(&metas, BLOCK), ValueLevel::WORST);
        hit(&mut metas);
        assert_eq!(value(&metas, BLOCK), ValueLevel::BEST);
        assert!(metas[BLOCK].is_protectable());
        assert!(!metas[BLOCK].is_sampled());
    }

    #[test]
    fn all_but_the_place_is_copied() {
        let mut metas = metas(BlockClass {
            value: ValueLevel::new(2),
            is_tail: true,
            is_generated: true,
            ..BlockClass::default()
        });
        assert!(enter(&mut metas, 0xabcd).is_some());
        assert!(metas.enter(BLOCK, TargetList::NONE).is_none());
        metas.update(5, BlockMeta::protected);
        metas.copy(BLOCK, 5);
        let places = [BLOCK, 5].map(|block| metas[block].place());
        assert_eq!(places, [Place::Ranked, Place::Protected]);
        assert_eq!((value(&metas, 5), metas[5].epoch()), (ValueLevel::new(2), Epoch::new(0xabcd)));
        assert!(metas[5].is_tail() && !metas[5].is_protectable() && metas[5].is_generated());
    }

    #[test]
    fn the_more_uses_are_inherited() {
        let mut metas = metas(BlockClass::default());
        (0..4).for_each(|_| hit(&mut metas));
        let [used, unused] = [metas[BLOCK], metas[6]];
        metas.update(5, |meta| meta.with_uses_of(used));
        metas.update(BLOCK, |meta| meta.with_uses_of(unused));
        assert_eq!([5, BLOCK].map(|block| class(&metas, block)), [2, 2]);
    }

    #[test]
    fn tails_are_protected_whose_value_is_worth_it() {
        for halvings in 0..=ValueLevel::WORST.halvings() {
            let value = ValueLevel::new(halvings);
            let is_protectable = |is_tail| {
                let class = BlockClass { value, is_tail, ..BlockClass::default() };
                BlockMeta::first(class).is_protectable()
            };
            let expected = (halvings <= tuning::LOWEST_PROTECTED_VALUE, false);
            assert_eq!((is_protectable(true), is_protectable(false)), expected);
        }
    }

    #[test]
    fn a_block_that_is_listed_wrongly_in_the_sample_is_found() {
        let mut metas = metas(BlockClass::default());
        metas.start_each(&[5], BlockMeta::first(BlockClass::default()));
        metas.add_to_sample(5);
        metas.copy(5, 6);
        metas.copy(BLOCK, 5);
        assert_eq!(metas.check(), Ok(()));
        assert!(!metas.sampled.has(5) && metas.sampled.has(6));
        metas.sampled.toggle(5);
        assert_eq!(metas.check(), Err("block 5 is listed wrongly in the sample".into()));
    }

    fn unsampled(metas: Vec<BlockMeta>) -> BlockMetas {
        let sampled = Sampled::new(metas.len());
        BlockMetas { metas, sampled }
    }

    /// Returns 100 blocks that differ in few bits, and the null block.
    fn some_metas() -> impl Strategy<Value = Vec<BlockMeta>> {
        let bits = prop::collection::vec(any::<u32>(), 101);
        (any::<u32>(), any::<u32>(), any::<u32>(), bits).prop_map(|(all, a, b, bits)| {
            let all = all & !(bit::PLACE | bit::HAS_PRIORITY);
            let others = a & b & !(bit::PROTECTED | bit::PRIORITY_LIST | bit::HAS_PRIORITY);
            bits.into_iter().map(|bits| BlockMeta(all ^ bits & others)).collect()
        })
    }

    proptest! {
        #[test]
        fn a_run_is_hit_as_its_blocks_one_by_one(metas in some_metas(), run in some_run()) {
            let mut metas = unsampled(metas);
            let mut expected = metas.metas.clone();
            let (low, high) = run.bounds();
            for are_ranked in [false, true] {
                let blocks = &mut expected[low as usize..=high as usize];
                let is_alike =
                    |meta: &BlockMeta| (meta.0 & bit::PLACE == bit::RANKED) == are_ranked;
                let are_alike = blocks.iter().all(is_alike);
                let place = if are_ranked { bit::RANKED } else { 0 };
                let run = metas.run_alike(run, bit::PLACE | bit::HAS_PRIORITY, place);
                let hit = run.map(|mut run| run.hit());
                prop_assert_eq!(hit.is_some(), are_alike);
                if hit.is_some() {
                    blocks.iter_mut().for_each(|meta| *meta = meta.hit().removed());
                }
                prop_assert_eq!(&expected, &metas.metas);
            }
        }

        #[test]
        fn a_run_enters_a_list_as_its_blocks_one_by_one(
            metas in some_metas(),
            run in some_run(),
            are_tails_apart: bool,
        ) {
            let [mut metas, mut expected] = [metas.clone(), metas].map(unsampled);
            let list = TargetList::new(metas[run.first], Epoch::new(77), are_tails_apart);
            let (low, high) = run.bounds();
            let blocks = low..high + 1;
            let entered = metas.run_alike(run, list.mask, list.bits).map(|mut run| run.enter(list));
            let are_alike = blocks.clone().all(|block| list.accepts(expected[block]));
            prop_assert_eq!(entered.is_some(), are_alike);
            if are_alike {
                blocks.for_each(|block| assert!(expected.enter(block, list).is_some()));
            }
            prop_assert_eq!(metas.metas, expected.metas);
        }
    }

    fn some_run() -> impl Strategy<Value = IdRun> {
        (1_u32..101, 1_u32..101)
            .prop_filter("two blocks", |(first, last)| first != last)
            .prop_map(|(first, last)| IdRun { first, last })
    }
}
