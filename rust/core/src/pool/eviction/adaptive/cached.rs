//! Blocks become cached, and what else is found out about cached blocks in use.

use super::Adaptive;
use super::block_meta::{Mark, Place, Tag, Uses};
use super::shadow::Use;
use super::shadow::access_log::Event;
use super::shadow::table::Name;
use crate::block::{BlockId, GroupId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::fingerprint::Fingerprint;
use crate::pool::blocks::full_blocks::FullBlocks;
use crate::pool::blocks::run::IdRun;
use crate::pool::eviction::EvictionHints;
use crate::pool::eviction::nearness::Nearness;
use crate::pool::eviction::value::Grade;

impl Adaptive {
    /// Full blocks have become cached.
    #[cold]
    #[inline(never)]
    pub fn cached(&mut self, states: &mut Blocks, batch: &FullBlocks<'_>, hints: EvictionHints) {
        let EvictionHints { grade, num_prompt_tokens } = hints;
        let prompt = Mark { grade, ..self.mark_of(batch.group) };
        let generated = Mark { is_watched: false, ..prompt };
        let (in_prompt, behind) = batch.blocks.split_at(batch.num_filled_by(num_prompt_tokens));
        self.mark(states, in_prompt, prompt);
        if self.whole_group == Some(batch.group)
            && let Some(last) = in_prompt.len().checked_sub(1)
        {
            let num_behind = num_prompt_tokens - batch.num_tokens(last);
            self.mark_near_end(in_prompt, batch.block_size, num_behind);
        }
        if !behind.is_empty() {
            self.mark(states, behind, generated);
        }
        if self.has_claims_to_mark() {
            self.claim_marked(states, batch.blocks);
        }
        self.tick(states);
    }

    /// A block has become cached by itself.
    pub fn cached_alone(&mut self, states: &mut Blocks, block: BlockId, group: GroupId) {
        self.mark(states, &[block], self.mark_of(group));
        self.claim_marked(states, &[block]);
        self.tick(states);
    }

    /// Full blocks have just become cached, the last of which lies so many tokens before the end of
    /// its prompt.
    #[inline]
    fn mark_near_end(&mut self, blocks: &[BlockId], block_size: usize, num_behind: usize) {
        for (block, num_behind) in blocks.iter().rev().zip((num_behind..).step_by(block_size)) {
            match Nearness::of(num_behind) {
                Nearness::FAR => break,
                nearness => self.tags.set_nearness(*block, nearness),
            }
        }
    }

    /// Blocks have become cached under the keys that they have now. Null blocks are passed over.
    pub fn mark(&mut self, states: &Blocks, blocks: &[BlockId], mark: Mark) {
        let first = Tag::first(mark);
        let row = IdRun::detect(blocks).filter(|&row| self.tags.start_row(row, first));
        let mut num_marked = blocks.len();
        if row.is_none() {
            let mut tags = self.tags.writer();
            let known = blocks.iter().filter(|&&block| block != NULL_BLOCK);
            num_marked = known.map(|&block| tags.start(block, first)).count();
        }
        if mark.is_watched {
            match row {
                Some(row) => self.sample_row(states, row),
                None => blocks.iter().for_each(|&block| self.sample_one(states, block)),
            }
            self.sightings.tell(&mut self.sample);
            self.clock.num_cached += num_marked;
        }
    }

    /// Those of blocks in a row, which have become cached, that are of the sample from now on.
    fn sample_row(&mut self, states: &Blocks, row: IdRun) {
        const FEW: usize = 8;
        let Some(fingerprints) = row.slice(states.fingerprints()) else { return };
        let limit = self.sample.limit();
        let is_sampled = |own: &Fingerprint| own.0 < limit;
        for (few, first) in fingerprints.chunks(FEW).zip((row.bounds().0..).step_by(FEW)) {
            // Mostly none, and looked at side by side.
            if few.iter().fold(false, |any, own| any | is_sampled(own)) {
                let sampled = few.iter().zip(first..).filter(|(own, _)| is_sampled(own));
                sampled.for_each(|(_, block)| self.tags.add_to_sample(block));
            }
        }
        self.note_row(states, row, Event::Used(Use::Computed));
    }

    fn sample_one(&mut self, states: &Blocks, block: BlockId) {
        let fingerprint = states.fingerprint(block);
        if fingerprint.0 < self.sample.limit() && block != NULL_BLOCK {
            self.tags.add_to_sample(block);
            let name = Name::of(fingerprint);
            self.sightings.note(&mut self.sample, Event::Used(Use::Computed), name);
        }
    }

    /// The same became of blocks in a row: the sample has to know of those that it has.
    #[inline]
    pub(super) fn note_row(&mut self, states: &Blocks, row: IdRun, event: Event) {
        let Self { tags, sightings, sample, .. } = self;
        sightings.start(sample, event);
        let name = |block| Name::of(states.fingerprint(block));
        match row.is_ascending() {
            true => sightings.add_each(sample, tags.sampled().upwards(row).map(name)),
            false => sightings.add_each(sample, tags.sampled().downwards(row).map(name)),
        }
    }

    /// The keys of a block have gone to another, and what is known of the block with them.
    pub fn moved(&mut self, states: &Blocks, from: BlockId, to: BlockId) {
        self.tags.copy(from, to);
        self.move_claim(states, from, to);
    }

    /// A tail goes with another block of its prefix: it has been used as often.
    pub fn inherit_uses(&mut self, block: BlockId, from: BlockId) {
        self.tags.inherit_uses(block, from);
    }

    /// A sequence ends at tails in use: they are worth as much as full blocks from now on, and have
    /// been used as often as the block of their prefix that they go with.
    #[inline]
    pub fn promote(&mut self, tails: &[BlockId], prefix: Option<BlockId>) {
        let uses = prefix.map_or(Uses::default(), |prefix| self.tags.of(prefix).uses());
        let mut tags = self.tags.writer();
        for &tail in tails.iter().filter(|&&tail| tail != NULL_BLOCK) {
            tags.promote(tail, uses);
        }
    }

    /// As [`Self::promote`], of tails and the blocks of their prefix one by one.
    #[inline]
    pub fn promote_beside(&mut self, tails: &[BlockId], prefix: &[BlockId]) {
        let mut tags = self.tags.writer();
        for (&tail, &prefix) in tails.iter().zip(prefix).filter(|&(&tail, _)| tail != NULL_BLOCK) {
            // The null block is never used.
            tags.promote(tail, tags.uses(prefix));
        }
    }

    /// A block whose content another has that is in use is evicted before all others if it is free.
    #[cold]
    #[inline(never)]
    pub fn replaced(&mut self, states: &mut Blocks, block: BlockId, by: BlockId) {
        self.inherit_claim(block, by);
        let was = self.tags.of(block);
        if was.place() == Place::Listed {
            self.tags.set_grade(block, Grade::WORST);
            states.unlink(block);
            self.list_aged(states, block, 0);
        } else if self.remove(states, block) {
            self.tags.set_grade(block, Grade::WORST);
            self.file_one(states, block);
        }
    }
}
