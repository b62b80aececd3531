//! The metadata of the blocks of a run, which are changed alike.

use super::block_meta::{BlockMeta, TargetList, bit};

/// The metadata of blocks in a run, in the order of their ids, which have some bits alike.
pub(super) struct MetaRun<'a> {
    metas: &'a mut [BlockMeta],
    /// The bits in which any of them differs from the first.
    differing: u32,
}

/// Blocks that are looked at side by side.
const PART: usize = 32;

impl<'a> MetaRun<'a> {
    /// Returns none if not all have these bits of a mask.
    #[inline]
    pub(super) fn of(metas: &'a mut [BlockMeta], mask: u32, bits: u32) -> Option<Self> {
        let [first, .., last] = *metas else { return None };
        if (first.0 & mask ^ bits) | (last.0 & mask ^ bits) != 0 {
            return None;
        }
        let (parts, rest) = metas.as_chunks::<PART>();
        let differing = parts
            .iter()
            .fold(0, |any, part| any | part.iter().fold(0, |any, meta| any | meta.0 ^ first.0));
        let differing = rest.iter().fold(differing, |any, meta| any | meta.0 ^ first.0);
        (differing & mask == 0).then_some(Self { metas, differing })
    }

    /// The blocks enter a list.
    #[inline]
    pub(super) fn enter(&mut self, list: TargetList) {
        self.change(bit::PLACE | bit::EPOCH, |meta| meta.entered(list));
    }

    /// A hit uses the blocks, which leave their lists. Returns how many hold generated tokens, tails
    /// left out.
    #[inline]
    pub(super) fn hit(&mut self) -> usize {
        let fields = bit::USES | bit::VALUE | bit::PLACE | bit::RESUMED;
        self.change(fields, |meta| meta.hit().removed());
        match self.differing & (bit::GENERATED | bit::TAIL) {
            0 => self.metas[0].num_answers() * self.metas.len(),
            _ => self.metas.iter().map(|meta| meta.num_answers()).sum(),
        }
    }

    /// The blocks are evicted.
    #[inline]
    pub(super) fn evict(&mut self) {
        self.change(bit::PLACE | bit::VALUE, BlockMeta::evicted);
    }

    /// Changes fields of all in a way that depends on nothing but these fields.
    #[inline]
    fn change(&mut self, fields: u32, change: impl Fn(BlockMeta) -> BlockMeta) {
        if self.differing & fields != 0 {
            return self.metas.iter_mut().for_each(|meta| *meta = change(*meta));
        }
        // Each field has one value in all, so that nothing is carried over to the next.
        let difference = change(self.metas[0]).0.wrapping_sub(self.metas[0].0);
        let (parts, rest) = self.metas.as_chunks_mut::<PART>();
        let metas = parts.iter_mut().flatten().chain(rest);
        metas.for_each(|meta| meta.0 = meta.0.wrapping_add(difference));
    }
}
