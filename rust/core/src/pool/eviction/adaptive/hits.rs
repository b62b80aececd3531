//! Blocks are hit, and free ones leave their lists.

use super::Adaptive;
use super::block_meta::{Place, bit};
use super::shadow::Use;
use super::shadow::access_log::Access;
use super::shadow::table::ShadowKey;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::{IdRun, Part, Parts};

impl Adaptive {
    /// Adds a reference to each block; a free one leaves its list. Null blocks are passed over.
    #[cold]
    #[inline(never)]
    pub fn hit(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        if ids.is_empty() {
            return;
        }
        if ids.len() < IdRun::MIN_LEN || are_scattered_tails(blocks, ids) {
            self.hit_scattered(blocks, ids);
        } else {
            for part in Parts::of(ids, IdRun::MIN_LEN) {
                match part {
                    Part::Run(ids) if self.hit_run(blocks, IdRun::of(ids)) => {}
                    Part::Run(ids) | Part::Scattered(ids) => self.hit_scattered(blocks, ids),
                }
            }
        }
        self.log.flush(&mut self.shadow);
        if self.full_group.is_some() && ids.last().is_some_and(|&last| self.metas[last].is_tail()) {
            self.shadow.hit_tails(ids.iter().filter(|&&block| block != NULL_BLOCK).count());
        }
        self.raise_priorities(blocks, ids.iter().copied());
    }

    /// Hits the blocks of a run if none has a priority, and all are in use, or all are neighbours in
    /// a ranked list. Returns whether it did.
    fn hit_run(&mut self, blocks: &mut Blocks, run: IdRun) -> bool {
        let are_ranked = blocks.ref_count(run.first) == 0;
        let Some(mut metas) = self.metas.run_without_priority(run, are_ranked) else {
            return false;
        };
        let touch = if are_ranked { Blocks::hit_free_run } else { Blocks::hit_run };
        let Some(span) = touch(blocks, run) else { return false };
        self.num_answer_block_hits += metas.hit() as u64;
        let num_sampled = self.log_run(blocks, run, Access::Used(Use::Hit));
        if are_ranked {
            blocks.unlink_span(&span);
            self.num_ranked -= span.len();
            self.num_sampled -= num_sampled;
        }
        true
    }

    fn hit_scattered(&mut self, blocks: &mut Blocks, mut ids: &[BlockId]) {
        loop {
            let num_hit = self.hit_ranked(blocks, ids);
            let Some((&block, behind)) = ids[num_hit..].split_first() else { break };
            self.hit_one(blocks, block);
            ids = behind;
        }
    }

    /// Hits blocks up to one that is not in a ranked list or has a priority. Returns how many.
    #[inline]
    fn hit_ranked(&mut self, blocks: &mut Blocks, ids: &[BlockId]) -> usize {
        let mut num_hit = 0;
        self.log.begin(&mut self.shadow, Access::Used(Use::Hit));
        loop {
            let (num, is_sampled) = self.hit_up_to_sampled(blocks, &ids[num_hit..]);
            num_hit += num;
            if !is_sampled {
                return num_hit;
            }
            let key = ShadowKey::of(blocks.fingerprint(ids[num_hit - 1]));
            self.log.push(&mut self.shadow, key);
        }
    }

    /// Does what [`Self::hit_ranked`] does up to a sampled block. Returns how many blocks, and whether
    /// the last is sampled. Calls nothing, so that the loop keeps all it needs in registers.
    #[inline]
    fn hit_up_to_sampled(&mut self, blocks: &mut Blocks, ids: &[BlockId]) -> (usize, bool) {
        let metas = self.metas.all_mut();
        let (mut num_answers, mut is_sampled) = (0, false);
        let mut records = blocks.writer_of_first(metas.len());
        let stop = ids.iter().position(|&block| {
            let meta = &mut metas[block as usize];
            let was = *meta;
            // No block in use is in a list.
            if was.0 & (bit::PLACE | bit::HAS_PRIORITY) != bit::RANKED {
                return true;
            }
            *meta = was.hit().removed();
            records.hit(block);
            num_answers += was.num_answers();
            is_sampled = was.is_sampled();
            is_sampled
        });
        let num_hit = stop.map_or(ids.len(), |stop| stop + usize::from(is_sampled));
        self.num_ranked -= num_hit;
        self.num_sampled -= usize::from(is_sampled);
        self.num_answer_block_hits += num_answers as u64;
        (num_hit, is_sampled)
    }

    fn hit_one(&mut self, blocks: &mut Blocks, block: BlockId) {
        if block == NULL_BLOCK {
            return;
        }
        let is_free = blocks.add_reference(block) == 1;
        let was = self
            .metas
            .update(block, |meta| if is_free { meta.hit().removed() } else { meta.hit() });
        self.num_answer_block_hits += was.num_answers() as u64;
        if was.is_sampled() {
            let key = ShadowKey::of(blocks.fingerprint(block));
            self.log.record(&mut self.shadow, Access::Used(Use::Hit), key);
        }
        if was.has_priority() {
            self.end_low_priority(block);
        }
        if !is_free {
            return;
        }
        match was.place() {
            Place::Elsewhere => self.queue.free.remove(blocks, block),
            _ => self.unlink(blocks, block, was),
        }
    }
}

/// Whether a few blocks hardly are neighbours in their lists, as tails, of which those of several
/// groups are listed together.
fn are_scattered_tails(blocks: &Blocks, ids: &[BlockId]) -> bool {
    ids.len() < 4 * IdRun::MIN_LEN && !blocks.starts_with_neighbours(ids)
}
