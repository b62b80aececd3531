//! Handles blocks that become cached, and cached blocks in use about which more becomes known.

use super::Adaptive;
use super::block_meta::{BlockClass, BlockMeta};
use super::nearness::Nearness;
use super::shadow::Access;
use super::value::ValueLevel;
use crate::block::{BlockId, GroupId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, Fingerprint, FullBlocks, IdRun};
use crate::pool::eviction::{EvictionHints, WithoutTail};

impl Adaptive {
    /// Notes that full blocks have become cached.
    #[cold]
    #[inline(never)]
    pub fn cached(&mut self, blocks: &mut Blocks, batch: &FullBlocks<'_>, hints: EvictionHints) {
        let EvictionHints { value, num_prompt_tokens, without_tail } = hints;
        let prompt = BlockClass { value, ..self.class_of(batch.group) };
        let generated = BlockClass { is_generated: true, ..prompt };
        let (in_prompt, behind) = batch.blocks.split_at(batch.num_filled_by(num_prompt_tokens));
        match without_tail.end >= batch.first_num_tokens {
            true => self.start_again(blocks, batch, in_prompt, prompt, without_tail),
            false => self.start(blocks, in_prompt, prompt, Access::Computed),
        }
        if self.full_group == Some(batch.group)
            && let Some(last) = in_prompt.len().checked_sub(1)
        {
            let num_behind = num_prompt_tokens - batch.num_tokens(last);
            self.note_nearness(in_prompt, batch.block_size, num_behind);
        }
        if !behind.is_empty() {
            self.start(blocks, behind, generated, Access::Computed);
        }
        if self.has_priorities_for_cached() {
            self.prioritize_cached(blocks, batch.blocks);
        }
        self.end_due_epochs(blocks);
    }

    /// Notes that a single block has become cached.
    pub(crate) fn cached_alone(&mut self, blocks: &mut Blocks, block: BlockId, group: GroupId) {
        self.start(blocks, &[block], self.class_of(group), Access::Computed);
        self.prioritize_cached(blocks, &[block]);
        self.end_due_epochs(blocks);
    }

    fn class_of(&self, group: GroupId) -> BlockClass {
        self.classes[usize::from(group)]
    }

    /// Notes how near the end of its prompt each full block lies. `num_behind` tokens follow the
    /// last block.
    #[inline]
    fn note_nearness(&mut self, ids: &[BlockId], block_size: usize, num_behind: usize) {
        for (&block, num_behind) in ids.iter().rev().zip((num_behind..).step_by(block_size)) {
            match Nearness::of(num_behind) {
                Nearness::FAR => break,
                nearness => _ = self.metas.update(block, |meta| meta.with_nearness(nearness)),
            }
        }
    }

    /// Starts to count the uses of blocks of a prompt. An earlier request had some of them, and
    /// vLLM's default policy would compute a part of these again, as this request did.
    #[cold]
    fn start_again(
        &mut self,
        blocks: &Blocks,
        batch: &FullBlocks<'_>,
        ids: &[BlockId],
        class: BlockClass,
        without_tail: WithoutTail,
    ) {
        let end = batch.num_filled_by(without_tail.end).min(ids.len());
        let start = batch.num_filled_by(without_tail.start).min(end);
        self.start(blocks, &ids[..start], class, Access::Computed);
        self.start(blocks, &ids[start..end], class, Access::ComputedWithoutTail);
        self.start(blocks, &ids[end..], class, Access::Computed);
    }

    /// Starts to count the uses of blocks that have become cached. Null blocks are skipped.
    /// `computed` is the access to the blocks that are sampled.
    pub(super) fn start(
        &mut self,
        blocks: &Blocks,
        ids: &[BlockId],
        class: BlockClass,
        computed: Access,
    ) {
        let first = BlockMeta::first(class);
        let run = IdRun::detect(ids).filter(|&run| self.metas.start_run(run, first));
        let num_cached = match run {
            Some(_) => ids.len(),
            None => self.metas.start_each(ids, first),
        };
        if class.is_sampleable {
            match run {
                Some(run) => self.sample_run(blocks, run, computed),
                None => self.sample_each(blocks, ids, computed),
            }
            self.shadow.flush();
            self.num_cached_in_round += num_cached;
        }
    }

    /// Samples the newly cached blocks of a run whose fingerprints are below the limit.
    fn sample_run(&mut self, blocks: &Blocks, run: IdRun, computed: Access) {
        const PART: usize = 8;
        let Some(fingerprints) = run.slice(blocks.fingerprints()) else { return };
        let limit = self.shadow.sample_limit();
        let is_sampled = |own: &Fingerprint| own.0 < limit;
        let mut sample_part = |part: &[Fingerprint], first: BlockId| {
            let sampled = part.iter().zip(first..).filter(|(own, _)| is_sampled(own));
            sampled.for_each(|(_, block)| self.metas.add_to_sample(block));
        };
        let (parts, rest) = fingerprints.as_chunks::<PART>();
        let mut first = run.bounds().0;
        for part in parts {
            // Usually no block of a part is sampled. All blocks of a part are compared in parallel.
            if part.iter().fold(false, |any, own| any | is_sampled(own)) {
                sample_part(part, first);
            }
            first += PART as BlockId;
        }
        sample_part(rest, first);
        self.shadow.record_run(computed, blocks, &self.metas.sampled, run);
    }

    /// Samples the newly cached blocks whose fingerprints are below the limit.
    fn sample_each(&mut self, blocks: &Blocks, ids: &[BlockId], computed: Access) {
        let limit = self.shadow.sample_limit();
        for &block in ids {
            let fingerprint = blocks.fingerprint(block);
            if fingerprint.0 < limit && block != NULL_BLOCK {
                self.metas.add_to_sample(block);
                self.shadow.record(computed, fingerprint);
            }
        }
    }

    /// Copies the metadata and the priority of a block to another block, which got its keys.
    pub(crate) fn moved(&mut self, blocks: &Blocks, from: BlockId, to: BlockId) {
        self.metas.copy(from, to);
        if let Some(priority) = self.priority_of(from) {
            self.set_priority(blocks, to, priority);
        }
    }

    /// Sets the value of blocks that have just become cached. Null blocks are skipped.
    pub(crate) fn set_value(&mut self, ids: &[BlockId], value: ValueLevel) {
        let metas = self.metas.all_mut();
        for &block in ids.iter().filter(|&&block| block != NULL_BLOCK) {
            let meta = &mut metas[block as usize];
            *meta = meta.with_value(value).with_durable(value.is_durable());
        }
    }

    /// Gives tails at which a sequence ends the value of that end. Tails in the prompt keep a
    /// higher value. Each tail also gets at least the uses of the full block that ends at the same
    /// token. If no such block exists, the tail comes with the null block instead. Null blocks
    /// among the tails are skipped.
    #[inline]
    pub fn promote(
        &mut self,
        tails: impl IntoIterator<Item = (BlockId, BlockId)>,
        value: ValueLevel,
    ) {
        let metas = self.metas.all_mut();
        for (tail, prefix) in tails.into_iter().filter(|&(tail, _)| tail != NULL_BLOCK) {
            // The uses of the null block are never counted.
            let prefix = metas[prefix as usize];
            let meta = &mut metas[tail as usize];
            *meta = meta.end_of_sequence(prefix, value);
        }
    }

    /// Gives a tail another value if one or two requests resumed at it and its value does not last.
    /// If more requests resumed at a tail, prompts diverge there.
    pub fn demote_resumed(&mut self, tail: BlockId, value: ValueLevel) {
        if self.metas[tail].has_two_or_three_uses() && !self.metas[tail].is_durable() {
            self.metas.update(tail, |meta| meta.with_value(value));
        }
    }

    /// Lets a free block be evicted first, because another block with the same content is in use.
    #[cold]
    #[inline(never)]
    pub fn replaced(&mut self, blocks: &mut Blocks, block: BlockId, by: BlockId) {
        self.pass_priority_on(block, by);
        if self.move_to_queue(blocks, block) {
            self.metas.update(block, |meta| meta.with_value(ValueLevel::WORST));
            self.fit_shadow_caches();
        }
    }
}
