//! Handles hits of blocks. Free blocks leave their lists.

use super::Adaptive;
use super::block_meta::{BlockMeta, Place, bit};
use super::shadow::Access;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, IdRun, Part, Parts};

impl Adaptive {
    /// Adds a reference to each block. A free block leaves its list. Null blocks are skipped.
    #[cold]
    #[inline(never)]
    pub fn hit(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        match self.num_without_tail {
            0 => self.hit_all(blocks, ids, Access::Hit),
            _ => self.hit_in_parts(blocks, ids),
        }
        self.shadow.flush();
        if self.full_group.is_some() && ids.last().is_some_and(|&last| self.metas[last].is_tail()) {
            let num_tails = ids.iter().filter(|&&block| block != NULL_BLOCK).count();
            self.shadow.default_cache.hit_tails(num_tails);
        }
        self.raise_priorities(blocks, ids.iter().copied());
    }

    /// Hits blocks. vLLM's default policy would compute the last ones again, unless they are tails.
    #[cold]
    #[inline(never)]
    fn hit_in_parts(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        let are_full = ids.first().is_some_and(|&id| !self.metas[id].is_tail());
        let num_without_tail = match are_full {
            true => std::mem::take(&mut self.num_without_tail).min(ids.len()),
            false => 0,
        };
        let (with_tail, without_tail) = ids.split_at(ids.len() - num_without_tail);
        self.hit_all(blocks, with_tail, Access::Hit);
        self.hit_all(blocks, without_tail, Access::HitWithoutTail);
    }

    /// Notes that another session uses these full blocks of a prefix too.
    pub(crate) fn mark_shared(&mut self, prefix: &[BlockId]) {
        // The blocks before a shared block are shared too.
        let unshared = prefix.iter().rev().take_while(|&&block| !self.metas[block].is_shared());
        let unshared: Vec<_> = unshared.copied().collect();
        for block in unshared {
            self.metas.update(block, BlockMeta::with_shared);
        }
    }

    #[inline(always)]
    fn hit_all(&mut self, blocks: &mut Blocks, ids: &[BlockId], access: Access) {
        // A few tails are rarely neighbours, because tails of several groups are listed together.
        let are_few = ids.len() < 4 * IdRun::MIN_LEN;
        if ids.len() < IdRun::MIN_LEN || are_few && !blocks.starts_with_neighbours(ids) {
            self.hit_scattered(blocks, ids, access);
        } else {
            for part in Parts::of(ids, IdRun::MIN_LEN) {
                match part {
                    Part::Run(ids) if self.hit_run(blocks, IdRun::of(ids), access) => {}
                    Part::Run(ids) | Part::Scattered(ids) => {
                        self.hit_scattered(blocks, ids, access);
                    }
                }
            }
        }
    }

    /// Hits the blocks of a run if no block has a priority. Also, either all blocks are in use or
    /// all are neighbours in a ranked list. Returns whether it did.
    fn hit_run(&mut self, blocks: &mut Blocks, run: IdRun, access: Access) -> bool {
        let are_ranked = blocks.ref_count(run.first) == 0;
        let place = if are_ranked { bit::RANKED } else { 0 };
        let metas = self.metas.run_alike(run, bit::PLACE | bit::HAS_PRIORITY, place);
        let Some(mut metas) = metas else { return false };
        let touch = if are_ranked { Blocks::hit_free_run } else { Blocks::hit_run };
        let Some(span) = touch(blocks, run) else { return false };
        self.num_answer_block_hits += metas.hit() as u64;
        let num_sampled = self.shadow.record_run(access, blocks, &self.metas.sampled, run);
        if are_ranked {
            blocks.unlink_span(&span);
            self.num_ranked -= span.len();
            self.num_sampled -= num_sampled;
        }
        true
    }

    fn hit_scattered(&mut self, blocks: &mut Blocks, mut ids: &[BlockId], access: Access) {
        loop {
            let num_hit = self.hit_ranked(blocks, ids, access);
            let Some((&block, behind)) = ids[num_hit..].split_first() else { break };
            self.hit_one(blocks, block, access);
            ids = behind;
        }
    }

    /// Hits blocks, up to the first one that is not in a ranked list or has a priority. Returns the
    /// number of hit blocks.
    #[inline]
    fn hit_ranked(&mut self, blocks: &mut Blocks, ids: &[BlockId], access: Access) -> usize {
        let Self { metas, shadow, .. } = self;
        let metas = metas.all_mut();
        shadow.begin(access);
        let (mut num_answers, mut num_sampled) = (0, 0);
        let mut records = blocks.writer_of_first(metas.len());
        let stop = ids.iter().position(|&block| {
            let meta = &mut metas[block as usize];
            let was = *meta;
            // A block in use is in no list.
            if was.0 & (bit::PLACE | bit::HAS_PRIORITY) != bit::RANKED {
                return true;
            }
            *meta = was.hit().removed();
            records.hit(block);
            num_answers += was.num_answers();
            if was.is_sampled() {
                num_sampled += 1;
                shadow.push(records.fingerprint(block));
            }
            false
        });
        let num_hit = stop.unwrap_or(ids.len());
        self.num_ranked -= num_hit;
        self.num_sampled -= num_sampled;
        self.num_answer_block_hits += num_answers as u64;
        num_hit
    }

    fn hit_one(&mut self, blocks: &mut Blocks, block: BlockId, access: Access) {
        if block == NULL_BLOCK {
            return;
        }
        let is_free = blocks.add_reference(block) == 1;
        let was = self
            .metas
            .update(block, |meta| if is_free { meta.hit().removed() } else { meta.hit() });
        self.num_answer_block_hits += was.num_answers() as u64;
        if was.is_sampled() {
            self.shadow.record(access, blocks.fingerprint(block));
        }
        if was.has_priority() {
            self.end_low_priority(blocks, block);
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
